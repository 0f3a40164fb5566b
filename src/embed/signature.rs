//! The signature that may be at the end of a kernel module. Takes a source of bytes, tells how long
//! the module is without it.
//!
//! ```text
//! | ELF file | name of the signer, key id, signature | their sizes: 12 bytes | ~Module signature appended~\n |
//! ```
//!
//! The sizes are those of `struct module_signature` of the kernel: five bytes, of which the fourth
//! and fifth are the lengths of name and key id, three of padding, and the length of the signature
//! as a big-endian word. The signature is of all bytes before it, so any edit makes it wrong.

use std::io;

use super::EmbedError;
use super::image::{ReadError, Source};

const MARK: &[u8; 28] = b"~Module signature appended~\n";
const SIZES: usize = 12;

/// Whether `bytes`, a kernel module or just the end of one, carry an appended signature.
#[must_use]
pub fn has_module_signature(bytes: &[u8]) -> bool {
    bytes.ends_with(MARK)
}

/// Whether a file of `length` bytes ends with a signature.
pub(super) fn is_signed(source: &(impl Source + ?Sized), length: u64) -> io::Result<bool> {
    let mut end = [0; MARK.len()];
    let Some(start) = length.checked_sub(end.len() as u64) else {
        return Ok(false);
    };
    source.read_exact_at(&mut end, start)?;
    Ok(has_module_signature(&end))
}

/// Length of the file without its signature, or signatures: a module can be signed again.
pub(super) fn unsigned_length(
    source: &(impl Source + ?Sized),
    length: u64,
) -> Result<u64, ReadError> {
    let mut length = length;
    while is_signed(source, length)? {
        let end = length - MARK.len() as u64;
        let start = end.checked_sub(SIZES as u64).ok_or(EmbedError::Signature)?;
        let mut sizes = [0; SIZES];
        source.read_exact_at(&mut sizes, start)?;
        let [_, _, _, signer, key, _, _, _, signature @ ..] = sizes;
        let size = u64::from(signer) + u64::from(key) + u64::from(u32::from_be_bytes(signature));
        length = start.checked_sub(size).ok_or(EmbedError::Signature)?;
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `file`, signed with so many bytes.
    fn signed(file: &[u8], signature: u8, claimed: u32) -> Vec<u8> {
        let mut bytes = file.to_vec();
        bytes.resize(file.len() + usize::from(signature), 0x30);
        bytes.extend([0, 0, 2, 0, 0, 0, 0, 0]);
        bytes.extend(claimed.to_be_bytes());
        bytes.extend(MARK);
        bytes
    }

    fn length(file: &[u8]) -> Option<u64> {
        unsigned_length(file, file.len() as u64).ok()
    }

    #[test]
    fn signatures_are_taken_off_one_by_one() {
        let once = signed(b"module", 200, 200);
        assert_eq!(length(b"module"), Some(6));
        assert_eq!(length(b""), Some(0));
        assert_eq!(length(&once), Some(6));
        assert_eq!(length(&signed(&once, 7, 7)), Some(6));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        assert_eq!(length(MARK), None);
        assert_eq!(length(&signed(b"module", 5, 12)), None);
        assert_eq!(length(&signed(b"module", 5, u32::MAX)), None);
    }
}
