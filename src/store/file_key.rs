//! The key of a file: all of its bytes that can change a result, hashed by the threads of the
//! current rayon pool in pieces of bounded size. Says nothing of what the bytes mean.

use std::io;

use btfcache_schema::{CHUNK_SIZE, Fields, Key, KeyHasher, Purpose, Tag};
use rayon::prelude::*;

use super::keys::content_fields;
use crate::elf::{ElfFile, Input, Member, Section};

/// How much is read at once: small enough to stay in a processor's own cache until it is hashed.
const BUFFER_SIZE: usize = 128 << 10;

/// The key of the contents of `elf`.
///
/// # Errors
/// When the file cannot be read.
pub fn content_key(elf: &ElfFile) -> io::Result<Key> {
    let digests = section_digests(elf)?;
    let mut hasher = KeyHasher::new(Purpose::Content);
    content_fields(elf, &digests, &mut hasher);
    Ok(hasher.finish())
}

/// The key of the contents of `input`: of an archive, that of its members, wherever they are.
///
/// # Errors
/// When a file cannot be read.
pub fn input_key(input: &Input) -> io::Result<Key> {
    let archive = match input {
        Input::File(elf) => return content_key(elf),
        Input::Archive(archive) => archive,
    };
    let key = |member: &Member| content_key(&member.open().map_err(io::Error::other)?);
    let keys: io::Result<Vec<Key>> = archive.members().par_iter().map(key).collect();
    let mut hasher = KeyHasher::new(Purpose::Content);
    keys?.iter().for_each(|key| hasher.key(Tag::Content, key));
    Ok(hasher.finish())
}

/// The digest of each input section, in order.
///
/// # Errors
/// When the file cannot be read.
pub fn section_digests(elf: &ElfFile) -> io::Result<Vec<[u8; 32]>> {
    let inputs = || elf.key_sections().filter(|(_, _, is_input)| *is_input).map(|entry| entry.1);
    let pieces: Vec<Piece> = inputs().flat_map(pieces_of).collect();
    let digest = |buffer: &mut Vec<u8>, piece: &Piece| piece.digest(elf, buffer);
    let digests: io::Result<Vec<[u8; 32]>> =
        pieces.par_iter().map_init(|| vec![0; BUFFER_SIZE], digest).collect();
    let digests = digests?;
    let mut rest = &digests[..];
    let mut of_section = |section: &Section| {
        let (own, others) = rest.split_at(pieces_of(section).count());
        rest = others;
        join(own)
    };
    Ok(inputs().map(&mut of_section).collect())
}

fn join(digests: &[[u8; 32]]) -> [u8; 32] {
    blake3::hash(digests.as_flattened()).into()
}

/// A part of the file.
struct Piece {
    offset: u64,
    size: usize,
}

fn pieces_of(section: &Section) -> impl Iterator<Item = Piece> {
    let size = if section.has_bytes() { section.size } else { 0 };
    let start = section.offset;
    (0..size).step_by(CHUNK_SIZE).map(move |at| Piece {
        offset: start + at,
        size: (size - at).min(CHUNK_SIZE as u64) as usize,
    })
}

impl Piece {
    fn digest(&self, elf: &ElfFile, buffer: &mut [u8]) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        for at in (0..self.size).step_by(buffer.len()) {
            let part = &mut buffer[..(self.size - at).min(BUFFER_SIZE)];
            elf.read_at(self.offset + at as u64, part)?;
            hasher.update(part);
        }
        Ok(hasher.finalize().into())
    }
}
