//! btfcache turns the DWARF of kernel images and modules into BTF. ARCHITECTURE.md has the map.

pub mod append;
pub mod base;
pub mod btf;
pub mod cli;
pub mod commands;
pub mod config;
pub mod decode;
pub mod distill;
pub mod dwarf;
pub mod elf;
pub mod embed;
pub mod emit;
pub mod fragment;
pub mod merge;
pub mod names;
pub mod options;
pub mod output;
pub mod pipeline;
pub mod pool;
pub mod relocate;
pub mod select;
pub mod settings;
pub mod store;
pub mod string_index;
pub mod timing;
pub mod write_file;
