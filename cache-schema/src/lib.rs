//! The versioned formats of everything that btfcache stores: no I/O, no threads, no unsafe.
//!
//! `README.md` has the grammar of the bytes and the history of versions. Two numbers guard them:
//!
//! * [`SCHEMA_VERSION`] names the *bytes*. Bump it when a layout, a key field or a tag changes. It
//!   is in the name of the cache's folder, so entries of other versions are not even seen.
//! * [`ENCODER_VERSION`] names the *meaning*. Bump it whenever the same DWARF would give another
//!   BTF. It is part of every key.
//!
//! `tests/golden.rs` pins the bytes: it fails when they move, and says which number to bump.
#![forbid(unsafe_code)]

mod counters;
mod envelope;
mod error;
mod footing;
mod key;
mod result;
mod stat;
mod wire;
mod work;

pub use counters::{Counter, RunRecord};
pub use envelope::{HEADER_SIZE, Header, Kind, seal};
pub use error::FormatError;
pub use footing::{FootingRecord, OutlineRecord, StepRecord};
pub use key::{CHUNK_SIZE, Field, FieldList, Fields, Key, KeyHasher, Purpose, Tag, UnitKey, Value};
pub use result::ResultRecord;
pub use stat::StatRecord;
pub use work::{PoolRecord, UnitRecord, VariableRecord};

/// Version of the bytes on disk. It is part of every key and of the cache directory's name.
pub const SCHEMA_VERSION: u32 = 1;

/// Version of the meaning: bump it whenever the same DWARF would give another BTF.
pub const ENCODER_VERSION: u32 = 1;
