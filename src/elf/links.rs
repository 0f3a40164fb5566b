//! Names of other files in an ELF file: what separates debug information from what it is about.
//!
//! The sections are no part of the key of a file (see `inputs.rs`): a result that depends on other
//! files is not kept.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use object::elf::SHT_NOTE;

use super::{ElfError, ElfFile, Section, section, unsigned};

/// Longer links and identifiers than any tool writes are not looked at.
const MAX_SIZE: u64 = 1 << 16;
/// Where distributions put debug files.
pub(super) const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// A file name and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The file.
    pub name: PathBuf,
    /// Its identifier, or padding and a checksum.
    pub rest: Vec<u8>,
}

impl ElfFile {
    /// The link in the section of this name.
    ///
    /// # Errors
    /// When the section cannot be read.
    pub fn link(&self, name: &str) -> Result<Option<Link>, ElfError> {
        let Some(section) = self.section(name).filter(|section| is_small(section)) else {
            return Ok(None);
        };
        let bytes = section::bytes_of(self, section)?;
        let Some(end) = memchr::memchr(0, &bytes).filter(|&end| end > 0) else {
            return Ok(None);
        };
        let name = PathBuf::from(OsStr::from_bytes(&bytes[..end]));
        Ok(Some(Link { name, rest: bytes[end + 1..].to_vec() }))
    }

    /// The identifier that the linker gave to the file.
    ///
    /// # Errors
    /// When a section with notes cannot be read.
    pub fn build_id(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let is_note = |section: &&Section| section.kind == SHT_NOTE && is_small(section);
        for section in self.sections().iter().filter(is_note) {
            let bytes = section::bytes_of(self, section)?;
            if let Some(id) = build_id_in(&bytes, self.target().big_endian) {
                return Ok(Some(id.to_vec()));
            }
        }
        Ok(None)
    }
}

fn is_small(section: &Section) -> bool {
    section.has_bytes() && section.size <= MAX_SIZE
}

/// The description of the note `NT_GNU_BUILD_ID`.
fn build_id_in(mut notes: &[u8], big_endian: bool) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u64 = 3;
    while notes.len() >= 12 {
        let word = |at: usize| unsigned(&notes[at..at + 4], big_endian);
        let (name_size, size, kind) = (word(0) as usize, word(4) as usize, word(8));
        let start = 12_usize.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let id = notes.get(start..start.checked_add(size)?)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") {
            return Some(id).filter(|id| id.len() >= 2);
        }
        notes = notes.get(start.checked_add(size.checked_next_multiple_of(4)?)?..)?;
    }
    None
}

/// Where the debug file of an identifier is, if it is installed.
#[must_use]
pub fn build_id_path(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!("{DEBUG_FOLDER}/.build-id/{first:02x}/{rest}.debug")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_behind_other_notes() {
        let note = |kind: u8, name: &[u8; 4], id: &[u8]| {
            let mut bytes = vec![4, 0, 0, 0, id.len() as u8, 0, 0, 0, kind, 0, 0, 0];
            bytes.extend(name);
            bytes.extend(id);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let bytes = [note(1, b"GNU\0", &[9; 5]), note(3, b"GNU\0", &[1, 2, 3])].concat();
        assert_eq!(build_id_in(&bytes, false), Some(&[1, 2, 3][..]));
        assert_eq!(build_id_in(&bytes[..bytes.len() - 4], false), None);
        assert_eq!(build_id_in(&note(3, b"Go\0\0", &[1; 8]), false), None);
        let path = build_id_path(&[0xab, 0x0c, 0xd0]).unwrap();
        assert_eq!(path, PathBuf::from("/usr/lib/debug/.build-id/ab/0cd0.debug"));
    }
}
