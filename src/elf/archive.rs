//! Archives of object files (`.a`): plain ones, which hold their members, and thin ones, which name
//! other files, as the kernel's `built-in.a` and `vmlinux.a` do.
//!
//! Members are opened one at a time, so that a process never has thousands of files open.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use fs_err::File;
use object::read::ReadCache;
use object::read::archive::{ArchiveFile, ArchiveMember};

use super::{ElfError, ElfFile, Target};

/// How archives begin: plain and thin ones.
const MAGIC: [&[u8; 8]; 2] = [b"!<arch>\n", b"!<thin>\n"];
/// No unit is shorter, because of its header.
const SMALLEST_UNIT: u64 = 11;

/// Whether the file at `path` is an archive; not if it cannot be read.
#[must_use]
pub fn is_archive(path: &Path) -> bool {
    let mut magic = [0; 8];
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let mut read = || File::open(path)?.file().read_exact_at(&mut magic, 0);
    is_file && read().is_ok() && is_magic(&magic)
}

/// Whether a file that begins with `start` is an archive.
pub(super) fn is_magic(start: &[u8]) -> bool {
    MAGIC.iter().any(|magic| start.starts_with(&magic[..]))
}

/// An archive of object files for one target.
#[derive(Debug)]
pub struct Archive {
    file: File,
    members: Vec<Member>,
    is_thin: bool,
    target: Option<Target>,
}

/// An object file of an archive.
#[derive(Debug)]
pub struct Member {
    /// Its name in the archive.
    pub name: String,
    /// A number that no unit of an earlier member has; its own count from here on.
    pub first_unit: u32,
    archive: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Within { offset: u64, size: u64 },
    File(PathBuf),
}

impl Archive {
    /// Opens the archive at `path` and looks at the headers of all members. A file that a thin
    /// archive names more than once counts once.
    ///
    /// # Errors
    /// When it is damaged, or a member is not there, no object file, or one for another target.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let cache = ReadCache::new(file.file());
        let damaged = |error: object::read::Error| ElfError::DamagedArchive(error.to_string());
        let parsed = ArchiveFile::parse(&cache).map_err(damaged)?;
        let is_thin = parsed.is_thin();
        let mut archive =
            Self { file: file.try_clone()?, members: Vec::new(), is_thin, target: None };
        let mut files = HashSet::new();
        let mut units = 0;
        for member in parsed.members() {
            let member = member.map_err(damaged)?;
            let name = String::from_utf8_lossy(member.name()).into_owned();
            let failed = |source| ElfError::Member { name: name.clone(), source: Box::new(source) };
            let place = place_of(&member, path, size).map_err(failed)?;
            if let Place::File(path) = &place {
                let metadata = fs_err::metadata(path).map_err(|error| failed(error.into()))?;
                if !files.insert((metadata.dev(), metadata.ino())) {
                    continue;
                }
            }
            let next =
                Member { name: name.clone(), first_unit: units, archive: path.to_owned(), place };
            units = archive.admit(&next).map_err(failed)?;
            archive.members.push(next);
        }
        Ok(archive)
    }

    /// Looks at the headers of `member`; returns the number after those of all its units.
    fn admit(&mut self, member: &Member) -> Result<u32, ElfError> {
        let elf = member.open()?;
        if !elf.target().is_relocatable() {
            return Err(ElfError::NotAnObject);
        }
        if *self.target.get_or_insert(elf.target()) != elf.target() {
            return Err(ElfError::OtherTarget);
        }
        let is_info = |name: &[u8]| matches!(name, b".debug_info" | b".zdebug_info");
        let info = elf.sections().iter().filter(|section| is_info(&section.name));
        let size =
            info.fold(0, |size: u64, section| size.saturating_add(elf.unpacked_size(section)));
        let end = u64::from(member.first_unit).saturating_add(size / SMALLEST_UNIT + 1);
        // The largest number means no unit.
        u32::try_from(end).ok().filter(|&end| end < u32::MAX).ok_or(ElfError::TooManyUnits)
    }

    /// The object files, in order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// What all members are for; `None` if there is none.
    #[must_use]
    pub const fn target(&self) -> Option<Target> {
        self.target
    }

    /// Whether its members are other files.
    #[must_use]
    pub const fn is_thin(&self) -> bool {
        self.is_thin
    }

    /// The facts of the file system about the archive itself.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        self.file.metadata()
    }
}

/// Where the bytes of a member of the archive at `path`, which has `size` bytes, are.
fn place_of(member: &ArchiveMember<'_>, path: &Path, size: u64) -> Result<Place, ElfError> {
    if member.is_thin() {
        let folder = path.parent().unwrap_or(Path::new(""));
        return Ok(Place::File(folder.join(OsStr::from_bytes(member.name()))));
    }
    let (start, length) = member.file_range();
    match start.checked_add(length) {
        Some(end) if end <= size => Ok(Place::Within { offset: start, size: length }),
        _ => Err(ElfError::DamagedArchive("it reaches beyond the end of the archive".to_owned())),
    }
}

impl Member {
    /// Opens it to be encoded.
    ///
    /// # Errors
    /// As [`ElfFile::open`].
    pub fn open(&self) -> Result<ElfFile, ElfError> {
        match &self.place {
            Place::File(path) => ElfFile::open_to_encode(path),
            Place::Within { offset, size } => ElfFile::open_part(&self.archive, *offset, *size),
        }
    }
}
