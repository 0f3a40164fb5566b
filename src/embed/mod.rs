//! Puts sections into an ELF file. Takes a path and an [`Edit`], gives the same file with the
//! sections in it; never moves anything else, never leaves a partial file.
//!
//! A linker script ties the bytes of a section to addresses, symbols and segments, so the file is
//! not laid out again. New bytes go to the end of the file and a new section header table after
//! them; only the file header, which points to that table, is changed in place:
//!
//! ```text
//! before  | header | segments, sections ... | names | table |
//! after   | header | segments, sections ... | .BTF | .BTF.base | names | table |
//!                                           ^ `keep`: up to here the file is copied as it is
//! ```
//!
//! The pieces that an edit rewrites anyway (its own sections, names, table) give their place back
//! when they end the file, so repeated edits do not make it grow. In the middle of the file:
//!
//! * a section that is not part of a segment is overwritten if the new bytes fit, else moved to
//!   the end;
//! * a section of a segment (`.BTF` of a linked vmlinux) is overwritten only by bytes of exactly its
//!   size, because the symbols that the linker laid around it (`__start_BTF`, `__stop_BTF`) still
//!   tell the old size to the running program, and the kernel refuses BTF with a byte too many. Of
//!   any other size it is *detached*: the segment keeps its old bytes, so that the program runs as
//!   before, and the section header leaves the memory image (no `SHF_ALLOC`, address 0) and names
//!   the new bytes at the end of the file.
//!
//! A new section is of type `SHT_PROGBITS`, or `SHT_NOTE` if its name begins with `.note`.
//!
//! A damaged file in which that would not hold, because headers and sections share bytes, is refused:
//! what is planned is read back before it is written.
//!
//! A removed section keeps its index as an inactive header (`SHT_NULL`), because symbols refer to
//! sections by index; such headers at the end of the table are used again. Relocations that apply
//! to replaced or removed bytes (`.rela.BTF`) are removed with them.

mod check;
mod image;
pub mod note;
mod patch;
mod plan;
mod record;
#[cfg(test)]
mod sample;
mod signature;

use std::io;
use std::path::{Path, PathBuf};

pub use signature::has_module_signature;

/// What is wrong. Problems of the ELF file do not name its path: the caller adds it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The file could not be read or written.
    #[error("failed to {action} `{}`", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path names something that is not a regular file.
    #[error("`{}` is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file became shorter while it was copied.
    #[error("`{}` changed while it was copied", .0.display())]
    Changed(PathBuf),
    /// The file does not start with an ELF header.
    #[error("not an ELF file, or one that is compressed: BTF can only be put into a plain one")]
    NotElf,
    /// A field of the ELF header has a value that cannot be.
    #[error("damaged ELF header: `{field}` is {value}")]
    Header {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The file has no section header table to add to.
    #[error("the ELF file has no section header table")]
    NoSectionTable,
    /// The sections of the file have no names.
    #[error("the ELF file has no usable section name table")]
    NoSectionNames,
    /// A table reaches beyond the end of the file, or is larger than any real one.
    #[error(
        "{table} (offset {offset:#x}, size {size:#x}) does not fit a file of {length:#x} bytes"
    )]
    Table {
        /// The table.
        table: &'static str,
        /// Its offset in the file.
        offset: u64,
        /// Its size.
        size: u64,
        /// Length of the file.
        length: u64,
    },
    /// A section reaches beyond the end of the file.
    #[error(
        "section `{name}` (index {index}, offset {offset:#x}, size {size:#x}) \
         does not fit a file of {length:#x} bytes"
    )]
    Section {
        /// Name of the section.
        name: String,
        /// Its index.
        index: usize,
        /// Its offset in the file.
        offset: u64,
        /// Its size.
        size: u64,
        /// Length of the file.
        length: u64,
    },
    /// The name of a section lies beyond the name table.
    #[error("the name of section {index} is at {offset:#x}, beyond the section name table")]
    SectionName {
        /// Index of the section.
        index: usize,
        /// Offset in the name table.
        offset: u32,
    },
    /// A segment reaches beyond the end of the file.
    #[error(
        "segment {index} (offset {offset:#x}, size {size:#x}) does not fit a file of {length:#x} bytes"
    )]
    Segment {
        /// Index of the program header.
        index: usize,
        /// Its offset in the file.
        offset: u64,
        /// Its size in the file.
        size: u64,
        /// Length of the file.
        length: u64,
    },
    /// Headers and sections lie over each other, or refer to what is not there yet, so that the
    /// result could not be read back, or would be another if the edit were made again.
    #[error(
        "damaged ELF file: its headers and sections are entangled, what is put into it would not \
         stay as it is"
    )]
    Entangled,
    /// The edit asks for something that no ELF file can have.
    #[error("section `{name}` cannot be written or removed: {what}")]
    Request {
        /// The name in the edit.
        name: String,
        /// Why not.
        what: &'static str,
    },
    /// The new file would be too large for its ELF class.
    #[error("the sections do not fit: the ELF file would grow beyond what its class can address")]
    TooLarge,
    /// The file is a signed kernel module; any change breaks the signature.
    #[error(
        "the module is signed, and any change makes the signature wrong: change it before it is \
         signed, or have the signature removed (`--strip-signature`)"
    )]
    Signed,
    /// The sizes before the mark of a signature cannot be those of one.
    #[error(
        "the module ends with `~Module signature appended~`, but what is before is no signature"
    )]
    Signature,
}

/// Where a section of an edit went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// There was no section of this name.
    Added,
    /// The section has new bytes, in its old place or at the end of the file.
    Replaced,
    /// The section was part of a segment and its size changed: the segment keeps the old bytes,
    /// the section is no longer loaded.
    Detached,
}

/// What is to be done to the sections of a file.
///
/// ```no_run
/// use btfcache::embed::Edit;
/// # fn main() -> Result<(), btfcache::embed::EmbedError> {
/// // The new `.BTF` has no distilled base: one left by an earlier run would contradict it.
/// let edit = Edit { sections: &[(".BTF", b"...")], remove: &[".BTF.base"] };
/// edit.apply("ext4.ko".as_ref())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Edit<'a> {
    /// Sections to replace or, where there is none of the name, to add.
    pub sections: &'a [(&'a str, &'a [u8])],
    /// Names of sections that must not stay.
    pub remove: &'a [&'a str],
}

impl Edit<'_> {
    /// Applies the edit to the ELF file at `path`, or at the end of its symlinks.
    ///
    /// The file is replaced as a whole by renaming, with its mode and, where permitted, its owner.
    /// Other hard links of it keep the old content. If it holds the result already, only its
    /// modification time changes. Gives a placement for each of the sections, in their order.
    ///
    /// # Errors
    /// See [`EmbedError`]; the file is then as it was.
    pub fn apply(&self, path: &Path) -> Result<Vec<Placement>, EmbedError> {
        patch::apply(path, self, Signature::Refuse)
    }

    /// Applies the edit as [`Self::apply`] does, and takes a signature off a signed module.
    ///
    /// # Errors
    /// See [`EmbedError`]; the file is then as it was.
    pub fn apply_unsigned(&self, path: &Path) -> Result<Vec<Placement>, EmbedError> {
        patch::apply(path, self, Signature::Remove)
    }
}

/// What is to become of the signature of a kernel module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signature {
    /// A signed module is not edited.
    Refuse,
    /// It is taken off.
    Remove,
}

/// Replaces or adds each of `sections` (name, bytes) in the ELF file at `path`: an [`Edit`] that
/// removes nothing.
///
/// # Errors
/// As [`Edit::apply`].
pub fn embed(path: &Path, sections: &[(&str, &[u8])]) -> Result<(), EmbedError> {
    Edit { sections, remove: &[] }.apply(path).map(|_| ())
}
