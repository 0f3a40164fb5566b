//! Finds the file that has the debug information of another: by the identifier that the linker gave
//! both, or by the name in `.gnu_debuglink`. A file counts if its identifier is the same, or, where
//! there is none, the checksum that the link says.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::links::{DEBUG_FOLDER, Link};
use super::{ElfError, ElfFile, build_id_path, unsigned};

/// What is known of the debug file of another.
#[derive(Debug)]
pub struct DebugFile {
    /// The file, if it is there.
    pub elf: Option<ElfFile>,
    /// What the other one calls it.
    pub name: PathBuf,
}

/// Looks for the debug file of `elf`; `None` if that names none.
///
/// # Errors
/// When a section of `elf` cannot be read, or a debug file is damaged.
pub fn find(elf: &ElfFile) -> Result<Option<DebugFile>, ElfError> {
    let (id, link) = (elf.build_id()?, elf.link(".gnu_debuglink")?);
    let by_id = id.as_deref().and_then(build_id_path);
    let by_link = link.as_ref().map_or_else(Vec::new, |link| places_of(elf.path(), &link.name));
    let places: Vec<PathBuf> = by_id.into_iter().chain(by_link).collect();
    let Some(first) = places.first() else {
        return Ok(None);
    };
    let name = link.as_ref().map_or(first, |link| &link.name).clone();
    for place in places.iter().filter(|place| place.is_file()) {
        let file = ElfFile::open(place)?;
        let is_same = match (&id, file.build_id()?) {
            (Some(one), Some(other)) => *one == other,
            _ => link.as_ref().is_some_and(|link| has_checksum(place, link, elf)),
        };
        if is_same && file.target() == elf.target() {
            return Ok(Some(DebugFile { elf: Some(file), name }));
        }
    }
    Ok(Some(DebugFile { elf: None, name }))
}

/// Where gdb looks for the file that a link names.
fn places_of(referrer: &Path, name: &Path) -> Vec<PathBuf> {
    let folder = referrer.parent().unwrap_or(Path::new(""));
    let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
    if let Ok(folder) = std::path::absolute(folder) {
        let below = folder.strip_prefix("/").unwrap_or(&folder);
        places.push(Path::new(DEBUG_FOLDER).join(below).join(name));
    }
    places.retain(|place| place != referrer);
    places
}

/// Whether the file at `path` is what `link` of `elf` says: its last four bytes are a checksum.
fn has_checksum(path: &Path, link: &Link, elf: &ElfFile) -> bool {
    let Some(expected) = link.rest.last_chunk::<4>() else {
        return false;
    };
    let sum = || -> std::io::Result<u32> {
        let mut file = fs_err::File::open(path)?;
        let (mut crc, mut buffer) = (flate2::Crc::new(), vec![0; 1 << 16]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(crc.sum()),
                size => crc.update(&buffer[..size]),
            }
        }
    };
    sum().is_ok_and(|sum| u64::from(sum) == unsigned(expected, elf.target().big_endian))
}
