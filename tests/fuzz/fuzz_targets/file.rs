//! Gives bytes a path, in memory.

use std::fs;
use std::path::PathBuf;

/// Writes `bytes` to the one file that this process uses.
pub fn file_of(bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(format!("/dev/shm/btfcache-fuzz-{}", std::process::id()));
    fs::write(&path, bytes).expect("/dev/shm is writable");
    path
}
