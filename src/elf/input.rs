//! What can be encoded: an ELF file, or an archive of object files.

use std::path::Path;

use super::{Archive, ElfError, ElfFile};

/// An open file to be encoded.
#[derive(Debug)]
pub enum Input {
    /// An ELF file.
    File(ElfFile),
    /// An archive of object files.
    Archive(Archive),
}

impl Input {
    /// Opens `path` to be encoded; see [`ElfFile::open_to_encode`].
    ///
    /// # Errors
    /// When it is none of both, or damaged.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        match ElfFile::open_to_encode(path) {
            Err(ElfError::Archive) => Archive::open(path).map(Self::Archive),
            file => file.map(Self::File),
        }
    }

    /// The facts of the file system about the open file.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        match self {
            Self::File(elf) => elf.metadata(),
            Self::Archive(archive) => archive.metadata(),
        }
    }

    /// Whether these facts are about all that it has: a thin archive has other files.
    #[must_use]
    pub const fn is_one_file(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Archive(archive) => !archive.is_thin(),
        }
    }
}
