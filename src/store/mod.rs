//! The cache on disk. Takes keys and bytes, gives bytes or nothing; never a reason for a build to
//! fail: whatever goes wrong is a [`Problem`], and for the caller a miss.
//!
//! ```text
//! $BTFCACHE_DIR/v1/             everything of schema 1, mode 0700
//!   results/a/b/cdef...         finished results, by key
//!   footings/a/b/cdef...        what results stand on that build upon other BTF, and how two such BTFs differ
//!   bases/a/b/cdef...           BTFs that others build upon, prepared, and their types as hashes
//!   stat/a/b/cdef...            what is known of files by device and inode
//!   work/NAME/                  partial work of one artifact
//!   runs/DAY                    what runs counted, appended
//!   size                        how much was stored and removed, appended
//!   transfer                    empty; its time is that of the last export or import
//!   tmp/                        files in the making
//!   gc.lock                     held while entries are removed, by one process at most
//! ```
//!
//! Any number of processes use it at once, without a lock and without a daemon: entries are
//! immutable, made elsewhere and renamed into place, verified when they are read.

mod cache;
mod directory;
mod file_key;
mod fingerprint;
mod gc;
mod keys;
mod moving;
mod problem;
mod records;
mod runs;
mod session;
mod shard;
mod size;
mod transfer;
mod work;

pub use cache::{Cache, Lookup, Stored};
pub use directory::Directory;
pub use file_key::{content_key, input_key, section_digests};
pub use fingerprint::Fingerprint;
pub use gc::{Collected, Limits, Usage};
pub use keys::{content_fields, result_fields};
pub use problem::{Problem, Reason};
pub use session::{Answer, BaseAsked, Footing, Inquiry, Moved, Session, Ticket};
pub use transfer::Imported;
