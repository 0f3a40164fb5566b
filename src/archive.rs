//! Exported results: a zstd-compressed tar of `results/KEY`, each with the envelope that it has in the
//! cache. Takes keys and bytes, gives an archive, and the other way round. The same results give the
//! same archive: nothing in it tells of a time, a user or a machine.
//!
//! A name in an archive is a key or nothing: it is never used as a path. Memory grows with what comes
//! out of the archive, which is bounded, and never with what is claimed there.

use std::fs::File;
use std::io::{self, BufReader, Read};

use btfcache_schema::{HEADER_SIZE, Header, Key, Kind, ResultRecord};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{EntryType, Header as TarHeader};

use crate::zstd_frames::Frames;

/// How much may come out of an archive: so much, and so many times its size. Results shrink to a
/// third or a tenth; what shrinks more than this was made to fill memory.
const ALWAYS_ALLOWED: u64 = 64 << 20;
const MAX_RATIO: u64 = 256;
const FOLDER: &str = "results/";
/// Tar files consist of blocks of so many bytes.
const BLOCK: usize = 512;

/// The part of an archive that is the result of `key` in its envelope: a zstd frame of its own, so
/// that only one result is held in memory.
///
/// # Errors
/// None in practice: every key is short enough for a tar header.
pub(crate) fn entry(key: &Key, sealed: &[u8]) -> io::Result<Vec<u8>> {
    let mut header = TarHeader::new_ustar();
    header.set_path(format!("{FOLDER}{key}"))?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(sealed.len() as u64);
    header.set_mode(0o600);
    for set in [TarHeader::set_mtime, TarHeader::set_uid, TarHeader::set_gid] {
        set(&mut header, 0);
    }
    header.set_cksum();
    let padding = [0; BLOCK];
    let padding = &padding[..sealed.len().next_multiple_of(BLOCK) - sealed.len()];
    let bytes = header.as_bytes().chain(sealed).chain(padding);
    Ok(compress_to_vec(bytes, CompressionLevel::Fastest))
}

/// The end of an archive; without it one is cut off.
pub(crate) fn end() -> Vec<u8> {
    compress_to_vec(&[0; 2 * BLOCK][..], CompressionLevel::Fastest)
}

/// What an archive holds, one after the other.
#[derive(Debug)]
pub(crate) enum Item {
    /// A whole result.
    Result(Key, ResultRecord),
    /// Something damaged, or nothing that btfcache exports.
    Other,
}

/// Gives each item of the archive `file` to `take`, until there is none or `take` fails.
///
/// # Errors
/// When the archive is damaged, cut off, or much larger than its file; those of `take`.
pub(crate) fn read<E: From<io::Error>>(
    file: File,
    mut take: impl FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    let limit = ALWAYS_ALLOWED.max(file.metadata()?.len().saturating_mul(MAX_RATIO));
    let mut archive = tar::Archive::new(Bounded::new(Frames::new(BufReader::new(file)), limit));
    // Raw: long names and the like, which would be read into memory, are entries as any other.
    for entry in archive.entries()?.raw(true) {
        take(item(&mut entry?)?)?;
    }
    let is_cut = archive.into_inner().has_ended;
    if is_cut { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) } else { Ok(()) }
}

fn item(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Item> {
    let (size, is_file) = (entry.size(), entry.header().entry_type().is_file());
    let Some(key) = key_of(&entry.path_bytes()).filter(|_| is_file) else {
        return Ok(Item::Other);
    };
    if size < HEADER_SIZE as u64 {
        return Ok(Item::Other);
    }
    let mut header = [0; HEADER_SIZE];
    entry.read_exact(&mut header)?;
    let Ok(header) = Header::parse(header, Kind::Result, &key, size) else {
        return Ok(Item::Other);
    };
    let mut payload = Vec::new();
    entry.take(header.length()).read_to_end(&mut payload)?;
    let record = header.verify(&payload).and_then(|()| ResultRecord::decode(&payload));
    Ok(record.map_or(Item::Other, |record| Item::Result(key, record)))
}

fn key_of(name: &[u8]) -> Option<Key> {
    std::str::from_utf8(name).ok()?.strip_prefix(FOLDER)?.parse().ok()
}

/// A reader of which no more than so many bytes are taken.
struct Bounded<R> {
    source: R,
    left: u64,
    /// Whether there was nothing more when somebody wanted to read on.
    has_ended: bool,
}

impl<R> Bounded<R> {
    const fn new(source: R, limit: u64) -> Self {
        Self { source, left: limit, has_ended: false }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.has_ended |= count == 0 && !buffer.is_empty();
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other("far more comes out of it than cached results")),
        }
        Ok(count)
    }
}
