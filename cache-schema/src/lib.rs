//! The versioned formats of everything that btfcache stores: no I/O, no threads, no unsafe.
#![forbid(unsafe_code)]

/// Version of the bytes on disk. It is part of every key and of the cache directory's name.
pub const SCHEMA_VERSION: u32 = 1;

/// Version of the meaning: bump it whenever the same DWARF would give another BTF.
pub const ENCODER_VERSION: u32 = 1;
