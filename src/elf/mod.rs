//! Reads an ELF file: headers, sections, symbols. Takes a path, gives owned pieces; never maps the
//! file, so that a file cut short under us is an error and not a signal.

mod archive;
mod compression;
mod debug_file;
mod input;
mod inputs;
mod links;
mod packed;
mod section;
mod symbols;

use std::fmt;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fs_err::File;
use object::Endianness;
use object::elf::{FileClass, FileHeader32, FileHeader64, FileType, Machine};
use object::read::elf::{FileHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};

pub use archive::{Archive, Member, is_archive};
pub use debug_file::{DebugFile, find as find_debug_file};
pub use input::Input;
pub use links::{Link, build_id_path};
pub use section::{Section, SectionData};
pub use symbols::{Symbol, SymbolTable};

/// What is wrong with an ELF file. The path is added by the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// The file could not be opened or read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The path names something that is not a regular file.
    #[error("not a regular file")]
    NotAFile,
    /// The file does not start with the ELF magic.
    #[error("not an ELF file")]
    NotElf,
    /// The file is an archive of ELF files.
    #[error("an archive of files: link them with `ld -r`, or name them one by one")]
    Archive,
    /// An archive is damaged.
    #[error("damaged archive: {0}")]
    DamagedArchive(String),
    /// A member of an archive cannot be encoded.
    #[error("its member `{name}`: {source}")]
    Member {
        /// Name of the member.
        name: String,
        /// What is wrong with it.
        source: Box<ElfError>,
    },
    /// A member of an archive is an ELF file of another type.
    #[error("not an object file, but one that is linked already")]
    NotAnObject,
    /// A member of an archive is for another processor, word size or byte order than the first.
    #[error("for another processor, word size or byte order than the members before it")]
    OtherTarget,
    /// Members of an archive claim more units than can be counted.
    #[error("more units than can be counted")]
    TooManyUnits,
    /// A header or table is damaged.
    #[error("damaged ELF file: {0}")]
    Damaged(String),
    /// A section reaches beyond the end of the file or cannot be decompressed.
    #[error("section `{section}` (offset {offset:#x}, size {size:#x}): {what}")]
    Section {
        /// Name of the section.
        section: String,
        /// File offset of the section.
        offset: u64,
        /// Size of the section in the file.
        size: u64,
        /// What went wrong.
        what: String,
    },
}

impl From<object::read::Error> for ElfError {
    fn from(error: object::read::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// The facts of the ELF header that decoding depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Byte order of everything in the file.
    pub big_endian: bool,
    /// ELF class: 64-bit or 32-bit; also the size of a pointer.
    pub is_64: bool,
    /// `e_machine`.
    pub machine: Machine,
    /// `e_type`.
    pub kind: FileType,
}

impl Target {
    /// Size of an address in bytes.
    #[must_use]
    pub const fn address_size(self) -> u8 {
        if self.is_64 { 8 } else { 4 }
    }

    /// Whether this is a relocatable file (`ET_REL`: .o, .ko).
    #[must_use]
    pub fn is_relocatable(self) -> bool {
        self.kind == object::elf::ET_REL
    }
}

/// The unsigned integer that up to eight bytes are.
#[must_use]
pub fn unsigned(bytes: &[u8], big_endian: bool) -> u64 {
    let fold = |value, byte: &u8| value << 8 | u64::from(*byte);
    if big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
}

/// An open ELF file with its section table.
pub struct ElfFile {
    path: PathBuf,
    file: File,
    /// What comes out of the file, if that is compressed as a whole.
    unpacked: Option<std::fs::File>,
    /// Where it starts in the file, if that is an archive.
    start: u64,
    target: Target,
    sections: Vec<Section>,
    /// For each section whether its bytes can change a result.
    inputs: Vec<bool>,
    /// Whether only those may be read.
    is_to_be_encoded: bool,
}

impl fmt::Debug for ElfFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ElfFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ElfFile {
    /// Opens `path` and reads its section table.
    ///
    /// # Errors
    /// See [`ElfError`]; nothing of the contents of sections is looked at yet.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        // A fifo would block in `open`, so look first.
        let metadata = fs_err::metadata(path)?;
        if !metadata.is_file() {
            return Err(ElfError::NotAFile);
        }
        let file = File::open(path)?;
        let whole = 0..file.metadata()?.len();
        let mut unpacked = None;
        let headers = match read_headers(file.file(), whole) {
            Err(ElfError::NotElf) => {
                unpacked = packed::unpack(file.file())?;
                let bytes = unpacked.as_ref().ok_or(ElfError::NotElf)?;
                read_headers(bytes, 0..bytes.metadata()?.len())
            }
            headers => headers,
        };
        Ok(Self { unpacked, ..Self::of(path, file, headers?) })
    }

    /// Opens the ELF file that starts at `offset` of the one at `path`, to be encoded.
    fn open_part(path: &Path, offset: u64, size: u64) -> Result<Self, ElfError> {
        let file = File::open(path)?;
        let headers = read_headers(file.file(), offset..offset.saturating_add(size))?;
        Ok(Self { start: offset, is_to_be_encoded: true, ..Self::of(path, file, headers) })
    }

    fn of(path: &Path, file: File, (target, sections): (Target, Vec<Section>)) -> Self {
        let inputs = inputs::of(&sections, target.is_relocatable());
        Self {
            path: path.to_owned(),
            file,
            unpacked: None,
            start: 0,
            target,
            sections,
            inputs,
            is_to_be_encoded: false,
        }
    }

    /// Opens `path` to be encoded: of its sections only those may be read that are part of its key,
    /// which debug builds check.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to_encode(path: &Path) -> Result<Self, ElfError> {
        Ok(Self { is_to_be_encoded: true, ..Self::open(path)? })
    }

    /// The path the file was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Class, byte order, machine and type.
    #[must_use]
    pub const fn target(&self) -> Target {
        self.target
    }

    /// All sections by index; index 0 is the null section.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of this name; inactive headers (`SHT_NULL`), and the first one, which is
    /// inactive whatever it says, are none.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        let is_active = |section: &&Section| section.kind != object::elf::SHT_NULL;
        self.sections
            .iter()
            .skip(1)
            .filter(is_active)
            .find(|section| section.name == name.as_bytes())
    }

    /// Whether the bytes of `section`, one of [`Self::sections`], can change a result.
    #[must_use]
    pub fn is_input(&self, section: &Section) -> bool {
        let index = self.sections.iter().position(|other| std::ptr::eq(other, section));
        index.is_some_and(|index| self.inputs[index])
    }

    /// The sections whose header can change a result, by index, and whether their bytes can, too.
    pub fn key_sections(&self) -> impl Iterator<Item = (u32, &Section, bool)> {
        let sections = self.sections.iter().zip(&self.inputs).zip(0_u32..);
        let sections = sections.map(|((section, &is_input), index)| (index, section, is_input));
        sections.filter(|(_, section, is_input)| *is_input || inputs::is_loaded(section))
    }

    /// The facts of the file system about the open file, compressed or not.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// Fills `buffer` from the file at `offset`, of what comes out of it if it is compressed.
    ///
    /// # Errors
    /// When the file cannot be read or ends early.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let offset = self.start.saturating_add(offset);
        self.unpacked.as_ref().unwrap_or(self.file.file()).read_exact_at(buffer, offset)
    }

    /// Makes the contents of `section` available: in the file where they lie if they are stored
    /// as they are, else decompressed in memory.
    ///
    /// # Errors
    /// When the section is compressed in a way that cannot be undone.
    pub fn data(&self, section: &Section) -> Result<SectionData, ElfError> {
        debug_assert!(
            !self.is_to_be_encoded || self.is_input(section),
            "`{}` is read, but not part of the file's key: see elf/inputs.rs",
            String::from_utf8_lossy(&section.name)
        );
        section::open(self, section)
    }

    /// Size of `section` when it is decompressed, as far as its header can be read.
    #[must_use]
    pub fn unpacked_size(&self, section: &Section) -> u64 {
        if section.flags.0 & object::elf::SHF_COMPRESSED.0 == 0 {
            return section.size;
        }
        compression::claimed_size(self, section).unwrap_or(section.size)
    }

    /// All bytes of `section`, decompressed.
    ///
    /// # Errors
    /// As [`Self::data`], and when the file cannot be read.
    pub fn bytes(&self, section: &Section) -> Result<Vec<u8>, ElfError> {
        match self.data(section)? {
            SectionData::Memory(bytes) => Ok(bytes),
            SectionData::InFile { offset, size } => {
                let mut bytes = vec![0; usize::try_from(size).map_err(|_| ElfError::NotElf)?];
                self.read_at(offset, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// The symbols of `.symtab`; `None` if there is no such section.
    ///
    /// # Errors
    /// When the table or its strings are damaged.
    pub fn symbols(&self) -> Result<Option<SymbolTable>, ElfError> {
        symbols::read(self)
    }
}

/// Reads the headers of the ELF file that is in `range` of `file`.
fn read_headers(
    file: &std::fs::File,
    range: Range<u64>,
) -> Result<(Target, Vec<Section>), ElfError> {
    let mut magic = [0; 5];
    let size = range.end - range.start;
    let read = file.read_exact_at(&mut magic, range.start);
    if size < 16 || read.is_err() || magic[..4] != object::elf::ELFMAG {
        return Err(ElfError::NotElf);
    }
    let cache = ReadCache::new(file);
    let data = cache.range(range.start, size);
    match FileClass(magic[4]) {
        object::elf::ELFCLASS32 => read_class::<FileHeader32<Endianness>, _>(data, size),
        object::elf::ELFCLASS64 => read_class::<FileHeader64<Endianness>, _>(data, size),
        class => Err(ElfError::Damaged(format!("unknown class {class}"))),
    }
}

/// Longest table of section names that is read: more than 65 536 long ones need.
const MAX_SECTION_NAMES: u64 = 16 << 20;

/// The names of all sections, read at once: one by one they would cost two system calls each. Empty
/// if there are none.
fn section_names<'data, Elf, R>(
    header: &Elf,
    endian: Endianness,
    data: R,
) -> Result<&'data [u8], ElfError>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let headers = header.section_headers(endian, data)?;
    if headers.is_empty() {
        return Ok(b"");
    }
    let index = header.shstrndx(endian, data)? as usize;
    let Some(section) = headers.get(index) else {
        return Ok(b"");
    };
    let (offset, size): (u64, u64) =
        (section.sh_offset(endian).into(), section.sh_size(endian).into());
    Ok(data.read_bytes_at(offset, size.min(MAX_SECTION_NAMES)).unwrap_or(b""))
}

fn read_class<'data, Elf, R>(data: R, size: u64) -> Result<(Target, Vec<Section>), ElfError>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let target = Target {
        big_endian: endian == Endianness::Big,
        is_64: header.is_type_64(),
        machine: header.e_machine(endian),
        kind: header.e_type(endian),
    };
    let table = header.sections(endian, data)?;
    let names = section_names(header, endian, data)?;
    let mut sections = Vec::new();
    for section in table.iter() {
        let name = names.get(section.sh_name(endian) as usize..).unwrap_or(b"");
        let name = &name[..memchr::memchr(0, name).unwrap_or(0)];
        sections.push(Section {
            name: name.to_vec(),
            kind: section.sh_type(endian),
            flags: section.sh_flags(endian),
            address: section.sh_addr(endian).into(),
            offset: section.sh_offset(endian).into(),
            size: section.sh_size(endian).into(),
            link: section.sh_link(endian),
            info: section.sh_info(endian),
            entry_size: section.sh_entsize(endian).into(),
            alignment: section.sh_addralign(endian).into(),
        });
    }
    for section in &sections {
        section.check_range(size)?;
    }
    Ok((target, sections))
}
