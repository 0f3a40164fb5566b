//! A file mapped into memory: the only `unsafe` of the program.

#![allow(unsafe_code, reason = "mapping a file is unsafe by nature; see Mapping::of")]

use std::fs::File;
use std::io;

/// A mapped file.
#[derive(Debug)]
pub struct Mapping(memmap2::Mmap);

impl Mapping {
    /// Maps `file`, which must be one that nobody changes: the cache's files are made elsewhere,
    /// renamed into place and removed as a whole, in a folder that is open to nobody else.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the file is never written or cut after it has got its name (see above), so the
        // bytes do not change while they are mapped.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
