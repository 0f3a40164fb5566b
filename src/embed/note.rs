//! The note that says which base a module's BTF is split on (rule P4): takes a digest, gives the
//! bytes of the section, and back. Reads and writes no file.
//!
//! The section [`SECTION`] holds one ELF note (gABI, chapter 5):
//!
//! ```text
//! u32 9, u32 32, u32 1 | "btfcache\0", padded to 12 bytes | 32 bytes: BLAKE3 of the base's image
//! ```
//!
//! Words are in the byte order of the file. The image is that of the section `.BTF` or of the raw
//! file, as it is, so that any change of the base's bytes shows. The section is not loaded, so the
//! kernel never sees it.

use blake3::Hash;
use object::Endianness;
use object::elf::{FileHeader64, NoteType};
use object::read::elf::NoteIterator;

/// Name of the section.
pub const SECTION: &str = ".note.btfcache";
/// Who defines the types of the note.
const OWNER: &[u8] = b"btfcache";
/// The note whose content is the digest of the base. Other types may come; they are passed over.
const BASE_DIGEST: u32 = 1;
/// Of the parts of a note, and so of the section.
pub(super) const ALIGNMENT: u64 = 4;

/// What is wrong with the contents of the section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// A note that does not fit the section.
    #[error("section `{SECTION}` is damaged: {0}")]
    Damaged(String),
    /// A digest of another length than digests have.
    #[error("section `{SECTION}` is damaged: a digest of {0} bytes, not 32")]
    Length(usize),
}

/// The digest of a base: of all bytes of its image.
#[must_use]
pub fn base_digest(image: &[u8]) -> Hash {
    blake3::hash(image)
}

/// The contents of the section.
#[must_use]
pub fn to_bytes(base: &Hash, big_endian: bool) -> Vec<u8> {
    let order = if big_endian { u32::to_be_bytes } else { u32::to_le_bytes };
    let digest = base.as_bytes();
    let sizes = [OWNER.len() as u32 + 1, digest.len() as u32, BASE_DIGEST];
    let mut bytes: Vec<u8> = sizes.into_iter().flat_map(order).collect();
    bytes.extend_from_slice(OWNER);
    // The end mark of the name, and padding.
    bytes.resize((bytes.len() + 1).next_multiple_of(ALIGNMENT as usize), 0);
    bytes.extend_from_slice(digest);
    bytes
}

/// The digest in the contents of the section; `None` if no note there is one of ours.
///
/// # Errors
/// When the notes are damaged.
pub fn parse(bytes: &[u8], big_endian: bool) -> Result<Option<Hash>, NoteError> {
    let damaged = |error: object::read::Error| NoteError::Damaged(error.to_string());
    let endian = if big_endian { Endianness::Big } else { Endianness::Little };
    // Notes are the same in both classes.
    let mut notes: NoteIterator<'_, FileHeader64<Endianness>> =
        NoteIterator::new(endian, ALIGNMENT, bytes).map_err(damaged)?;
    while let Some(note) = notes.next().map_err(damaged)? {
        if note.name() == OWNER && note.n_type(endian) == NoteType(BASE_DIGEST) {
            let digest = Hash::from_slice(note.desc());
            return digest.map(Some).map_err(|_| NoteError::Length(note.desc().len()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_in_either_byte_order() {
        let digest = base_digest(b"base");
        for big_endian in [false, true] {
            let bytes = to_bytes(&digest, big_endian);
            assert_eq!(bytes.len(), 12 + 12 + 32);
            assert_eq!(bytes[if big_endian { 3 } else { 0 }], 9);
            assert_eq!(parse(&bytes, big_endian), Ok(Some(digest)));
            assert!(parse(&bytes, !big_endian).is_err());
            let twice = [bytes.clone(), bytes].concat();
            assert_eq!(parse(&twice, big_endian), Ok(Some(digest)));
        }
    }

    #[test]
    fn notes_of_others_are_passed_over() {
        let digest = base_digest(b"base");
        let ours = to_bytes(&digest, false);
        let mut other_owner = ours.clone();
        other_owner[12] = b'B';
        let mut other_type = ours.clone();
        other_type[8] = 2;
        let all = [&other_owner[..], &other_type, &ours].concat();
        assert_eq!(parse(&all, false), Ok(Some(digest)));
        assert_eq!(parse(&all[..112], false), Ok(None));
        assert_eq!(parse(b"", false), Ok(None));
    }

    #[test]
    fn damage_is_told() {
        let bytes = to_bytes(&base_digest(b"base"), false);
        for length in 1..bytes.len() {
            assert!(matches!(parse(&bytes[..length], false), Err(NoteError::Damaged(_))));
        }
        let mut short = bytes[..52].to_vec();
        short[4] = 28;
        assert_eq!(parse(&short, false), Err(NoteError::Length(28)));
    }
}
