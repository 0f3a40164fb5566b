//! The three records of an ELF file that embedding reads and writes: file header, program header,
//! section header. Takes and gives bytes of either class and byte order; judges no value.

use std::ops::Range;

use object::elf;

/// Class and byte order: all that decides where a field lies and how it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) is_64: bool,
    pub(super) big_endian: bool,
}

impl Format {
    /// What `e_ident` says; `None` if this is not an ELF file of version 1.
    pub(super) fn of(ident: &[u8]) -> Option<Self> {
        let (magic, rest) = ident.split_first_chunk::<4>()?;
        let (&[class, data, version], _) = rest.split_first_chunk::<3>()?;
        if *magic != elf::ELFMAG || version != elf::EV_CURRENT.0 {
            return None;
        }
        let is_64 = match class {
            class if class == elf::ELFCLASS32.0 => false,
            class if class == elf::ELFCLASS64.0 => true,
            _ => return None,
        };
        let big_endian = match data {
            data if data == elf::ELFDATA2LSB.0 => false,
            data if data == elf::ELFDATA2MSB.0 => true,
            _ => return None,
        };
        Some(Self { is_64, big_endian })
    }

    pub(super) const fn file_header_size(self) -> usize {
        if self.is_64 { 64 } else { 52 }
    }

    pub(super) const fn program_header_size(self) -> usize {
        if self.is_64 { 56 } else { 32 }
    }

    pub(super) const fn section_header_size(self) -> usize {
        if self.is_64 { 64 } else { 40 }
    }

    /// Alignment of header tables in the file.
    pub(super) const fn word_size(self) -> u64 {
        if self.is_64 { 8 } else { 4 }
    }
}

/// Takes fields off the front of a record, in the order of the specification.
struct Fields<'a> {
    format: Format,
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*field)
    }

    fn half(&mut self) -> Option<u16> {
        let read = if self.format.big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
        self.take().map(read)
    }

    fn word(&mut self) -> Option<u32> {
        let read = if self.format.big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        self.take().map(read)
    }

    /// A field that is as wide as the class: an address, an offset, a size.
    fn native(&mut self) -> Option<u64> {
        if !self.format.is_64 {
            return self.word().map(u64::from);
        }
        let read = if self.format.big_endian { u64::from_be_bytes } else { u64::from_le_bytes };
        self.take().map(read)
    }
}

/// Puts fields one after the other.
struct Record {
    format: Format,
    bytes: Vec<u8>,
}

impl Record {
    fn half(&mut self, value: u16) {
        let field = if self.format.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend_from_slice(&field);
    }

    fn word(&mut self, value: u32) {
        let field = if self.format.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend_from_slice(&field);
    }

    /// `None` if `value` is too wide for the class.
    fn native(&mut self, value: u64) -> Option<()> {
        if self.format.is_64 {
            let field =
                if self.format.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            self.bytes.extend_from_slice(&field);
        } else {
            self.word(u32::try_from(value).ok()?);
        }
        Some(())
    }
}

/// `Elf32_Ehdr` or `Elf64_Ehdr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) format: Format,
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    pub(super) program_offset: u64,
    pub(super) section_offset: u64,
    flags: u32,
    pub(super) header_size: u16,
    pub(super) program_size: u16,
    pub(super) program_count: u16,
    pub(super) section_size: u16,
    pub(super) section_count: u16,
    pub(super) names_index: u16,
}

impl FileHeader {
    /// `None` if `bytes` are too few or do not start as an ELF file does.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let format = Format::of(bytes)?;
        let mut fields = Fields { format, rest: bytes };
        Some(Self {
            format,
            ident: fields.take()?,
            kind: fields.half()?,
            machine: fields.half()?,
            version: fields.word()?,
            entry: fields.native()?,
            program_offset: fields.native()?,
            section_offset: fields.native()?,
            flags: fields.word()?,
            header_size: fields.half()?,
            program_size: fields.half()?,
            program_count: fields.half()?,
            section_size: fields.half()?,
            section_count: fields.half()?,
            names_index: fields.half()?,
        })
    }

    /// `None` if a value does not fit the class.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut record = Record { format: self.format, bytes: self.ident.to_vec() };
        record.half(self.kind);
        record.half(self.machine);
        record.word(self.version);
        record.native(self.entry)?;
        record.native(self.program_offset)?;
        record.native(self.section_offset)?;
        record.word(self.flags);
        record.half(self.header_size);
        record.half(self.program_size);
        record.half(self.program_count);
        record.half(self.section_size);
        record.half(self.section_count);
        record.half(self.names_index);
        Some(record.bytes)
    }
}

/// What a program header says about the file: which bytes the segment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) kind: u32,
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Segment {
    pub(super) fn decode(format: Format, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields { format, rest: bytes };
        let kind = fields.word()?;
        if format.is_64 {
            fields.word()?; // p_flags, which ELF32 has near the end
        }
        let offset = fields.native()?;
        fields.native()?; // p_vaddr
        fields.native()?; // p_paddr
        Some(Self { kind, offset, size: fields.native()? })
    }
}

/// `Elf32_Shdr` or `Elf64_Shdr`. The default is an inactive header (`SHT_NULL`, all zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SectionHeader {
    pub(super) name: u32,
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) link: u32,
    pub(super) info: u32,
    pub(super) alignment: u64,
    pub(super) entry_size: u64,
}

impl SectionHeader {
    pub(super) fn decode(format: Format, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields { format, rest: bytes };
        Some(Self {
            name: fields.word()?,
            kind: fields.word()?,
            flags: fields.native()?,
            address: fields.native()?,
            offset: fields.native()?,
            size: fields.native()?,
            link: fields.word()?,
            info: fields.word()?,
            alignment: fields.native()?,
            entry_size: fields.native()?,
        })
    }

    /// `None` if a value does not fit the class.
    pub(super) fn encode(&self, format: Format) -> Option<Vec<u8>> {
        let bytes = Vec::with_capacity(format.section_header_size());
        let mut record = Record { format, bytes };
        record.word(self.name);
        record.word(self.kind);
        record.native(self.flags)?;
        record.native(self.address)?;
        record.native(self.offset)?;
        record.native(self.size)?;
        record.word(self.link);
        record.word(self.info);
        record.native(self.alignment)?;
        record.native(self.entry_size)?;
        Some(record.bytes)
    }

    pub(super) const fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    pub(super) const fn has_contents(&self) -> bool {
        self.kind != elf::SHT_NULL.0 && self.kind != elf::SHT_NOBITS.0 && self.size > 0
    }

    /// The bytes of the file that are the section's, empty if there are none. Saturates: whoever
    /// reads headers checks that the section lies in the file.
    pub(super) fn range(&self) -> Range<u64> {
        if !self.has_contents() {
            return 0..0;
        }
        self.offset..self.offset.saturating_add(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Format; 4] = [
        Format { is_64: false, big_endian: false },
        Format { is_64: false, big_endian: true },
        Format { is_64: true, big_endian: false },
        Format { is_64: true, big_endian: true },
    ];

    fn ident(format: Format) -> Vec<u8> {
        let class = if format.is_64 { 2 } else { 1 };
        let data = if format.big_endian { 2 } else { 1 };
        let mut bytes = vec![0x7f, b'E', b'L', b'F', class, data, 1];
        bytes.resize(16, 0);
        bytes
    }

    #[test]
    fn headers_survive_a_round_trip_in_every_format() {
        for format in FORMATS {
            let mut file = ident(format);
            file.extend((16u8..).take(format.file_header_size() - 16));
            let header = FileHeader::decode(&file).unwrap();
            assert_eq!(header.format, format);
            assert_eq!(header.encode().unwrap(), file);

            let section: Vec<u8> = (1u8..).take(format.section_header_size()).collect();
            let header = SectionHeader::decode(format, &section).unwrap();
            assert_eq!(header.encode(format).unwrap(), section);
        }
    }

    #[test]
    fn a_short_record_is_none() {
        for format in FORMATS {
            let mut file = ident(format);
            file.resize(format.file_header_size() - 1, 0);
            assert_eq!(FileHeader::decode(&file), None);
            assert_eq!(SectionHeader::decode(format, &file[..30]), None);
            assert_eq!(Segment::decode(format, &file[..8]), None);
        }
    }

    #[test]
    fn a_value_too_wide_for_the_class_is_refused() {
        let header = SectionHeader { offset: 1 << 32, ..SectionHeader::default() };
        assert_eq!(header.encode(FORMATS[0]), None);
        assert!(header.encode(FORMATS[2]).is_some());
    }
}
