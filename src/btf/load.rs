//! The BTF of a file: takes a path, gives the bytes of its images, or a checked [`Btf`].
//!
//! A file is an ELF file with a section `.BTF`, or it is the image itself, as
//! `/sys/kernel/btf/vmlinux` is (rule F8). Memory is bounded by [`MAX_SIZE`], whatever the file says
//! of itself.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use blake3::Hash;

use super::read::{Btf, BtfError, Fault};
use crate::elf::{ElfError, ElfFile, Section};
use crate::embed::note::{self, NoteError};

/// Largest image that is read, in bytes: sixteen times what the kernel takes, and more than the
/// types of a whole kernel before they are deduplicated.
pub const MAX_SIZE: u64 = 256 << 20;

/// Why a file's BTF cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the BTF of `{}`", path.display())]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a file that BTF is wanted of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It could not be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a folder, a device or a fifo.
    #[error("it is not a regular file")]
    NotAFile,
    /// It begins as an ELF file and is a damaged one.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It begins neither as an ELF file nor as BTF.
    #[error("it is neither an ELF file nor BTF")]
    Unknown,
    /// An ELF file without a section `.BTF`, or with one that has no bytes.
    #[error("it has no section `.BTF`")]
    NoBtf,
    /// The section is compressed, which no reader of BTF expects.
    #[error("its section `{0}` is compressed")]
    Compressed(&'static str),
    /// The image is larger than any real one.
    #[error("{0} bytes of BTF are more than the {MAX_SIZE} that are read")]
    TooLarge(u64),
    /// It is split BTF, where BTF that stands alone is wanted.
    #[error("it is split BTF, which itself needs a base; name the base it was split on")]
    Split,
    /// The note about its base is damaged.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The bytes are not those of BTF that stands alone.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// It is not split BTF of that base: ids or strings do not exist there, or the byte order is
    /// another.
    #[error("it does not fit the base `{}`", base.display())]
    Base {
        /// The file of the base.
        base: PathBuf,
        /// What does not fit.
        source: BtfError,
    },
    /// A name begins in the middle of one of that base (rule P4).
    #[error("it was split on another base than `{}`: type {id} has half a name of it", base.display())]
    Misfit {
        /// The file of the base.
        base: PathBuf,
        /// The type that has the name.
        id: u32,
    },
}

/// The images in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Whether the file is an ELF file; else it is the image itself.
    pub is_elf: bool,
    /// The section `.BTF`, or the whole file.
    pub btf: Vec<u8>,
    /// The section `.BTF.base`, which `.BTF` is then split on; `None` without it.
    pub distilled_base: Option<Vec<u8>>,
    /// The digest of the base that `.BTF` was split on, as the section `.note.btfcache` has it;
    /// `None` without it.
    pub base_digest: Option<Hash>,
}

impl Images {
    /// What to call the distilled base in messages, if these are the images of the file at `path`.
    #[must_use]
    pub fn base_path(&self, path: &Path) -> PathBuf {
        if !self.is_elf {
            return distilled_base_path(path);
        }
        let mut name = path.as_os_str().to_owned();
        name.push(":.BTF.base");
        name.into()
    }
}

/// Where the distilled base of the BTF in the raw file at `path` is.
#[must_use]
pub fn distilled_base_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".base");
    name.into()
}

/// Reads the images of a module: those of an ELF file, or of a raw one, whose distilled base is in a
/// file of that name with `.base` at the end.
///
/// # Errors
/// As [`images`]; a file `.base` that cannot be read is one too.
pub fn module(path: &Path) -> Result<Images, LoadError> {
    let mut found = images(path)?;
    let base_path = found.base_path(path);
    if !found.is_elf && base_path.exists() {
        found.distilled_base = Some(images(&base_path)?.btf);
    }
    Ok(found)
}

/// Reads the images of a file, without looking into them.
///
/// # Errors
/// When there is none; see [`Problem`].
pub fn images(path: &Path) -> Result<Images, LoadError> {
    read_images(path).map_err(|problem| LoadError { path: path.to_owned(), problem })
}

/// Reads the BTF of a file that other BTF can be split on: one that stands alone.
///
/// # Errors
/// When there is none, and when it is damaged, or is itself split.
pub fn base(path: &Path) -> Result<Btf<'static>, LoadError> {
    base_of(path, &images(path)?)
}

/// As [`base`], of images that were read already from the file at `path`.
///
/// # Errors
/// When the BTF is damaged, or is itself split.
pub fn base_of(path: &Path, images: &Images) -> Result<Btf<'static>, LoadError> {
    match images.distilled_base {
        Some(_) => Err(LoadError { path: path.to_owned(), problem: Problem::Split }),
        None => base_from(path, &images.btf),
    }
}

/// Reads the image of a file that other BTF can be split on, without looking into it.
///
/// # Errors
/// When there is none, or it has a base itself.
pub fn base_image(path: &Path) -> Result<Vec<u8>, LoadError> {
    let images = images(path)?;
    match images.distilled_base {
        Some(_) => Err(LoadError { path: path.to_owned(), problem: Problem::Split }),
        None => Ok(images.btf),
    }
}

/// As [`base`], of the image of the file at `path`.
///
/// # Errors
/// When the BTF is damaged, or is itself split.
pub fn base_from(path: &Path, image: &[u8]) -> Result<Btf<'static>, LoadError> {
    parse_alone(image).map_err(|problem| LoadError { path: path.to_owned(), problem })
}

/// Reads `image`, of the file at `path`, as the continuation of `base`, of the file at `base_path`.
///
/// # Errors
/// Names both files when the image is not split on that base.
pub fn split<'base>(
    path: &Path,
    image: &[u8],
    base_path: &Path,
    base: &'base Btf<'base>,
) -> Result<Btf<'base>, LoadError> {
    let error = |problem| LoadError { path: path.to_owned(), problem };
    let btf = Btf::parse(image, Some(base))
        .map_err(|source| error(Problem::Base { base: base_path.to_owned(), source }))?;
    match btf.first_misfit() {
        Some(id) => Err(error(Problem::Misfit { base: base_path.to_owned(), id })),
        None => Ok(btf),
    }
}

/// Parses an image that has no base.
///
/// # Errors
/// When it is damaged, or split.
pub fn parse_alone(image: &[u8]) -> Result<Btf<'static>, Problem> {
    Btf::parse(image, None).map_err(|error| match error.fault {
        // Only split BTF may have strings that do not begin with NUL, or none (rule S2).
        Fault::Strings if image.get(error.offset) != Some(&0) => Problem::Split,
        _ => Problem::Btf(error),
    })
}

fn read_images(path: &Path) -> Result<Images, Problem> {
    // A fifo would block in `open`, so look first.
    if !path.metadata()?.is_file() {
        return Err(Problem::NotAFile);
    }
    let mut start = [0; 4];
    let mut file = File::open(path)?;
    let count = read_start(&mut file, &mut start)?;
    match start {
        [0x9f, 0xeb, ..] | [0xeb, 0x9f, ..] => {
            let btf = read_raw(file, &start[..count])?;
            Ok(Images { is_elf: false, btf, distilled_base: None, base_digest: None })
        }
        object::elf::ELFMAG => read_elf(&ElfFile::open(path)?),
        _ => Err(Problem::Unknown),
    }
}

/// Fills `start` as far as the file reaches; returns how far.
fn read_start(file: &mut File, start: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < start.len() {
        match file.read(&mut start[count..])? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

/// The whole file, of which `start` was read before. Its size is not trusted: files of the kernel
/// may say anything.
fn read_raw(file: File, start: &[u8]) -> Result<Vec<u8>, Problem> {
    let size = file.metadata()?.len().min(MAX_SIZE) as usize;
    let mut bytes = Vec::with_capacity(size + 1);
    bytes.extend_from_slice(start);
    file.take(MAX_SIZE).read_to_end(&mut bytes)?;
    let size = bytes.len() as u64;
    if size > MAX_SIZE { Err(Problem::TooLarge(size)) } else { Ok(bytes) }
}

fn read_elf(elf: &ElfFile) -> Result<Images, Problem> {
    let btf = section_bytes(elf, ".BTF")?.ok_or(Problem::NoBtf)?;
    let distilled_base = section_bytes(elf, ".BTF.base")?;
    let note = section_bytes(elf, note::SECTION)?.unwrap_or_default();
    let base_digest = note::parse(&note, elf.target().big_endian)?;
    Ok(Images { is_elf: true, btf, distilled_base, base_digest })
}

/// The bytes of a section; `None` if it is absent or has none.
fn section_bytes(elf: &ElfFile, name: &'static str) -> Result<Option<Vec<u8>>, Problem> {
    let is_there = |section: &&Section| section.has_bytes() && section.size != 0;
    let Some(section) = elf.section(name).filter(is_there) else {
        return Ok(None);
    };
    if section.flags.0 & object::elf::SHF_COMPRESSED.0 != 0 {
        return Err(Problem::Compressed(name));
    }
    if section.size > MAX_SIZE {
        return Err(Problem::TooLarge(section.size));
    }
    Ok(Some(elf.bytes(section)?))
}
