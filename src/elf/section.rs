//! One section of an ELF file and the ways to its bytes.

use object::elf::{SectionFlags, SectionType};

use super::{ElfError, ElfFile, compression};

/// A section header, in native byte order.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name; empty if the name table is damaged.
    pub name: Vec<u8>,
    /// `sh_type`.
    pub kind: SectionType,
    /// `sh_flags`.
    pub flags: SectionFlags,
    /// `sh_addr`.
    pub address: u64,
    /// `sh_offset`.
    pub offset: u64,
    /// `sh_size`, in bytes, compressed if the section is.
    pub size: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_info`.
    pub info: u32,
    /// `sh_entsize`.
    pub entry_size: u64,
    /// `sh_addralign`.
    pub alignment: u64,
}

impl Section {
    /// Whether the section has bytes in the file.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.kind != object::elf::SHT_NOBITS && self.kind != object::elf::SHT_NULL
    }

    pub(super) fn check_range(&self, file_size: u64) -> Result<(), ElfError> {
        let end = self.offset.checked_add(self.size);
        if self.has_bytes() && self.size != 0 && end.is_none_or(|end| end > file_size) {
            return Err(self.error("reaches beyond the end of the file"));
        }
        Ok(())
    }

    pub(super) fn error(&self, what: impl Into<String>) -> ElfError {
        ElfError::Section {
            section: String::from_utf8_lossy(&self.name).into_owned(),
            offset: self.offset,
            size: self.size,
            what: what.into(),
        }
    }
}

/// Where the bytes of a section are.
#[derive(Debug)]
pub enum SectionData {
    /// In the file, as they are.
    InFile {
        /// File offset.
        offset: u64,
        /// Size in bytes.
        size: u64,
    },
    /// In memory, because they had to be decompressed.
    Memory(Vec<u8>),
}

impl SectionData {
    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self {
            Self::InFile { size, .. } => *size,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes `start..start + size`, read into `buffer` if they lie in the file.
    ///
    /// # Errors
    /// When the range is not inside the section or the file cannot be read.
    pub fn range<'a>(
        &'a self,
        elf: &ElfFile,
        start: u64,
        size: usize,
        buffer: &'a mut Vec<u8>,
    ) -> std::io::Result<&'a [u8]> {
        let end = start.checked_add(size as u64).filter(|&end| end <= self.len());
        let Some(end) = end else {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        };
        match self {
            Self::InFile { offset, .. } => {
                // What is read over need not be cleared first.
                if buffer.len() < size {
                    buffer.resize(size, 0);
                }
                elf.read_at(offset + start, &mut buffer[..size])?;
                Ok(&buffer[..size])
            }
            Self::Memory(bytes) => {
                let start = usize::try_from(start).expect("inside a vector");
                let end = usize::try_from(end).expect("inside a vector");
                Ok(&bytes[start..end])
            }
        }
    }
}

pub(super) fn open(elf: &ElfFile, section: &Section) -> Result<SectionData, ElfError> {
    if !section.has_bytes() {
        return Ok(SectionData::Memory(Vec::new()));
    }
    let stored = SectionData::InFile { offset: section.offset, size: section.size };
    if section.flags.0 & object::elf::SHF_COMPRESSED.0 != 0 {
        return compression::standard(elf, section).map(SectionData::Memory);
    }
    if section.name.starts_with(b".zdebug") {
        return compression::gnu(elf, section).map(SectionData::Memory);
    }
    Ok(stored)
}

/// All bytes of a small section as it is stored, even if it is no part of the key of the file.
pub(super) fn bytes_of(elf: &ElfFile, section: &Section) -> Result<Vec<u8>, ElfError> {
    match open(elf, section)? {
        SectionData::Memory(bytes) => Ok(bytes),
        SectionData::InFile { offset, size } => {
            let mut bytes =
                vec![0; usize::try_from(size).map_err(|_| section.error("is too large"))?];
            elf.read_at(offset, &mut bytes)?;
            Ok(bytes)
        }
    }
}
