//! btfcache turns the DWARF of kernel images and modules into BTF. ARCHITECTURE.md has the map.

pub mod cli;
pub mod commands;
pub mod config;
pub mod embed;
pub mod options;
pub mod output;
pub mod pipeline;
pub mod timing;
pub mod write_file;
