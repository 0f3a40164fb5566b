//! Undoes `SHF_COMPRESSED` (zlib, zstd) and the older `.zdebug` form.
//!
//! Memory grows with what really comes out of the stream, never with what a header claims.

use std::io::{self, Read};

use super::{ElfError, ElfFile, Section, unsigned};
use crate::zstd_frames::Frames;
use object::elf::CompressionType;

/// How large a section may get when decompressed: so much, and so many times its size in the file.
/// DWARF shrinks to a third or a fifth; what shrinks more than this was made to fill memory. Changing
/// the numbers changes which inputs are accepted, nothing else.
const ALWAYS_ALLOWED: u64 = 64 << 20;
const MAX_RATIO: u64 = 256;

/// Reads a section whose contents start with an `Elf32_Chdr`/`Elf64_Chdr` (gABI, chapter 4).
pub(super) fn standard(elf: &ElfFile, section: &Section) -> Result<Vec<u8>, ElfError> {
    let stored = read_stored(elf, section)?;
    let header_size = if elf.target().is_64 { 24 } else { 12 };
    if stored.len() < header_size {
        return Err(section.error("compression header is cut off"));
    }
    let big = elf.target().big_endian;
    let method = unsigned(&stored[..4], big);
    let size = if elf.target().is_64 {
        unsigned(&stored[8..16], big)
    } else {
        unsigned(&stored[4..8], big)
    };
    let body = &stored[header_size..];
    match CompressionType(method as u32) {
        object::elf::ELFCOMPRESS_ZLIB => zlib(section, body, size),
        object::elf::ELFCOMPRESS_ZSTD => zstd(section, body, size),
        _ => Err(section.error(format!("unknown compression method {method}"))),
    }
}

/// How many bytes a section that starts with such a header claims to decompress to.
pub(super) fn claimed_size(elf: &ElfFile, section: &Section) -> io::Result<u64> {
    let (at, size) = if elf.target().is_64 { (8, 8) } else { (4, 4) };
    let mut field = [0; 8];
    elf.read_at(section.offset.saturating_add(at), &mut field[..size])?;
    Ok(unsigned(&field[..size], elf.target().big_endian))
}

/// Reads a `.zdebug` section: "ZLIB", a big-endian 64-bit size, a zlib stream.
pub(super) fn gnu(elf: &ElfFile, section: &Section) -> Result<Vec<u8>, ElfError> {
    let stored = read_stored(elf, section)?;
    match stored.strip_prefix(b"ZLIB") {
        Some(rest) if rest.len() >= 8 => zlib(section, &rest[8..], unsigned(&rest[..8], true)),
        _ => Ok(stored),
    }
}

fn read_stored(elf: &ElfFile, section: &Section) -> Result<Vec<u8>, ElfError> {
    let size = usize::try_from(section.size).map_err(|_| section.error("is too large"))?;
    let mut stored = vec![0; size];
    elf.read_at(section.offset, &mut stored)?;
    Ok(stored)
}

fn zlib(section: &Section, body: &[u8], size: u64) -> Result<Vec<u8>, ElfError> {
    drain(section, flate2::read::ZlibDecoder::new(body), body.len(), size)
}

fn zstd(section: &Section, body: &[u8], size: u64) -> Result<Vec<u8>, ElfError> {
    drain(section, Frames::new(body), body.len(), size)
}

fn drain(
    section: &Section,
    stream: impl Read,
    stored: usize,
    size: u64,
) -> Result<Vec<u8>, ElfError> {
    if size > ALWAYS_ALLOWED.max((stored as u64).saturating_mul(MAX_RATIO)) {
        return Err(section.error(format!("claims to decompress to {size} bytes")));
    }
    let mut bytes = Vec::new();
    stream
        .take(size)
        .read_to_end(&mut bytes)
        .map_err(|error| section.error(format!("damaged compressed data: {error}")))?;
    if bytes.len() as u64 != size {
        return Err(section.error(format!("decompresses to {} bytes, not {size}", bytes.len())));
    }
    Ok(bytes)
}
