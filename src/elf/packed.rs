//! Files that are compressed as a whole, as modules are that have been installed: `.ko.gz`, `.ko.xz`,
//! `.ko.zst`. Takes an open file, gives one with what comes out of it, which nobody else can open.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use lzma_rust2::XzReader;

use super::ElfError;
use super::archive::is_magic;
use crate::zstd_frames::Frames;

/// How large a file may get: so much, and so many times its size. Modules shrink to a third or a
/// tenth; what shrinks more than this was made to fill the disk.
const ALWAYS_ALLOWED: u64 = 64 << 20;
const MAX_RATIO: u64 = 256;
/// Memory that xz may take, in KiB: what its strongest preset asks for.
const MAX_XZ_MEMORY: u32 = 128 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Gzip,
    Xz,
    Zstd,
}

fn method_of(magic: [u8; 8]) -> Option<Method> {
    match magic {
        [0x1f, 0x8b, ..] => Some(Method::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Method::Xz),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Method::Zstd),
        _ => None,
    }
}

/// What comes out of `file`; `None` if it is not compressed.
///
/// # Errors
/// When it is damaged, or becomes larger than any module; or when it is an archive.
pub(super) fn unpack(file: &File) -> Result<Option<File>, ElfError> {
    let mut magic = [0; 8];
    if file.read_exact_at(&mut magic, 0).is_err() {
        return Ok(None);
    }
    if is_magic(&magic) {
        return Err(ElfError::Archive);
    }
    let Some(method) = method_of(magic) else {
        return Ok(None);
    };
    let size = file.metadata()?.len();
    let limit = ALWAYS_ALLOWED.max(size.saturating_mul(MAX_RATIO));
    let unpacked = match method {
        Method::Gzip => drain(flate2::read::MultiGzDecoder::new(packed(file)?), limit),
        Method::Xz => drain(XzReader::new_mem_limit(packed(file)?, true, MAX_XZ_MEMORY), limit),
        Method::Zstd => drain(Frames::new(packed(file)?), limit),
    };
    let failed = |error| ElfError::Damaged(format!("cannot be decompressed: {error}"));
    unpacked.map(Some).map_err(failed)
}

fn packed(mut file: &File) -> io::Result<BufReader<&File>> {
    file.seek(SeekFrom::Start(0))?;
    Ok(BufReader::new(file))
}

fn drain(reader: impl Read, limit: u64) -> io::Result<File> {
    let mut unpacked = tempfile::tempfile()?;
    let size = io::copy(&mut reader.take(limit + 1), &mut unpacked)?;
    if size > limit {
        return Err(io::Error::other(format!("more than {limit} bytes come out of it")));
    }
    unpacked.flush()?;
    Ok(unpacked)
}
