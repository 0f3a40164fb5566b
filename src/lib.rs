//! btfcache turns the DWARF of kernel images and modules into BTF. ARCHITECTURE.md has the map.

pub mod embed;
pub mod options;
pub mod pipeline;
pub mod timing;
pub mod write_file;
