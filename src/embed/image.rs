//! What must be known of an ELF file to lay it out anew: its headers and the names of its sections.
//! Takes a source of bytes, gives a checked [`Image`]; never looks into the contents of sections.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::elf;

use super::EmbedError;
use super::record::{FileHeader, Format, SectionHeader, Segment};
use super::signature::is_signed;

/// The largest header or name table that is read. Real ones reach some tens of megabytes; a damaged
/// or sparse file must not make us ask for more memory than this.
const TABLE_LIMIT: u64 = 256 << 20;

/// Anything that bytes can be read from at a position.
pub(super) trait Source {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

impl Source for [u8] {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The header bytes of one file, as they are stored.
#[derive(Debug)]
pub(super) struct HeaderBytes {
    /// Length of the file.
    pub(super) length: u64,
    header: FileHeader,
    programs: Vec<u8>,
    sections: Vec<u8>,
    names_index: usize,
    names: Vec<u8>,
}

/// Why headers could not be read: the source, or what it says.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    Elf(EmbedError),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<EmbedError> for ReadError {
    fn from(error: EmbedError) -> Self {
        Self::Elf(error)
    }
}

/// Reads the headers of a file of `length` bytes.
pub(super) fn read_headers(
    source: &(impl Source + ?Sized),
    length: u64,
) -> Result<HeaderBytes, ReadError> {
    if is_signed(source, length)? {
        return Err(EmbedError::Signed.into());
    }
    let header =
        FileHeader::decode(&read_range(source, &(0..length.min(64)))?).ok_or(EmbedError::NotElf)?;
    check_record_sizes(&header)?;

    let first = first_section(source, &header, length)?;
    let sections = section_table_range(&header, &first, length)?;
    let programs = program_table_range(&header, &first, length)?;
    let mut bytes = HeaderBytes {
        length,
        header,
        programs: read_range(source, &programs)?,
        sections: read_range(source, &sections)?,
        names_index: names_index(&header, &first)?,
        names: Vec::new(),
    };
    bytes.names = read_range(source, &bytes.names_range()?)?;
    Ok(bytes)
}

impl HeaderBytes {
    fn names_range(&self) -> Result<Range<u64>, EmbedError> {
        let table = SectionTable { format: self.header.format, bytes: &self.sections };
        let header = table.get(self.names_index).ok_or(EmbedError::NoSectionNames)?;
        if header.kind != elf::SHT_STRTAB.0
            || header.size == 0
            || header.has_flag(elf::SHF_COMPRESSED.0)
        {
            return Err(EmbedError::NoSectionNames);
        }
        checked_range("section name table", header.offset, header.size, self.length)
    }
}

fn read_range(source: &(impl Source + ?Sized), range: &Range<u64>) -> io::Result<Vec<u8>> {
    let size = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = vec![0; size];
    source.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

fn check_record_sizes(header: &FileHeader) -> Result<(), EmbedError> {
    let format = header.format;
    let fields = [
        ("e_ehsize", header.header_size, format.file_header_size(), true),
        ("e_shentsize", header.section_size, format.section_header_size(), true),
        (
            "e_phentsize",
            header.program_size,
            format.program_header_size(),
            header.program_count > 0,
        ),
    ];
    for (field, value, expected, matters) in fields {
        if matters && usize::from(value) != expected {
            return Err(EmbedError::Header { field, value: u64::from(value) });
        }
    }
    Ok(())
}

/// Section 0, whose fields stand in for header fields that are too narrow.
fn first_section(
    source: &(impl Source + ?Sized),
    header: &FileHeader,
    length: u64,
) -> Result<SectionHeader, ReadError> {
    if header.section_offset == 0 {
        return Err(EmbedError::NoSectionTable.into());
    }
    let size = header.format.section_header_size() as u64;
    let range = checked_range("section header table", header.section_offset, size, length)?;
    let bytes = read_range(source, &range)?;
    Ok(SectionHeader::decode(header.format, &bytes).ok_or(EmbedError::NotElf)?)
}

fn section_table_range(
    header: &FileHeader,
    first: &SectionHeader,
    length: u64,
) -> Result<Range<u64>, EmbedError> {
    let count = match header.section_count {
        0 => first.size,
        count => u64::from(count),
    };
    if count == 0 {
        return Err(EmbedError::NoSectionTable);
    }
    let size = count.saturating_mul(header.format.section_header_size() as u64);
    checked_range("section header table", header.section_offset, size, length)
}

fn program_table_range(
    header: &FileHeader,
    first: &SectionHeader,
    length: u64,
) -> Result<Range<u64>, EmbedError> {
    let count = match header.program_count {
        0 => return Ok(0..0),
        elf::PN_XNUM => u64::from(first.info),
        count => u64::from(count),
    };
    let size = count * header.format.program_header_size() as u64;
    checked_range("program header table", header.program_offset, size, length)
}

fn names_index(header: &FileHeader, first: &SectionHeader) -> Result<usize, EmbedError> {
    let index = match header.names_index {
        0 => return Err(EmbedError::NoSectionNames),
        index if index == elf::SHN_XINDEX.0 => first.link,
        index => u32::from(index),
    };
    usize::try_from(index).map_err(|_| EmbedError::NoSectionNames)
}

fn checked_range(
    table: &'static str,
    offset: u64,
    size: u64,
    length: u64,
) -> Result<Range<u64>, EmbedError> {
    match offset.checked_add(size) {
        Some(end) if end <= length && size <= TABLE_LIMIT => Ok(offset..end),
        _ => Err(EmbedError::Table { table, offset, size, length }),
    }
}

/// Section headers by index, decoded when asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectionTable<'a> {
    format: Format,
    bytes: &'a [u8],
}

impl SectionTable<'_> {
    pub(super) fn get(&self, index: usize) -> Option<SectionHeader> {
        let size = self.format.section_header_size();
        let start = index.checked_mul(size)?;
        SectionHeader::decode(self.format, self.bytes.get(start..)?)
    }

    pub(super) const fn bytes(&self) -> &[u8] {
        self.bytes
    }

    pub(super) const fn count(&self) -> usize {
        self.bytes.len() / self.format.section_header_size()
    }

    /// All sections with their index, but for the null section.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, SectionHeader)> {
        (1..self.count()).map_while(|index| Some((index, self.get(index)?)))
    }
}

/// The headers of an ELF file, checked: every section and segment lies in the file, every name in
/// the name table.
#[derive(Debug)]
pub(super) struct Image<'a> {
    pub(super) length: u64,
    pub(super) header: FileHeader,
    pub(super) segments: Vec<Range<u64>>,
    pub(super) sections: SectionTable<'a>,
    pub(super) names: &'a [u8],
    pub(super) names_index: usize,
    /// File header, program header table and section header table.
    pub(super) tables: [Range<u64>; 3],
}

impl<'a> Image<'a> {
    /// Checks the headers of a file. Pure.
    pub(super) fn parse(bytes: &'a HeaderBytes) -> Result<Self, EmbedError> {
        let header = bytes.header;
        let place = |offset: u64, table: &[u8]| match table.len() as u64 {
            0 => 0..0,
            size => offset..offset.saturating_add(size),
        };
        let image = Self {
            length: bytes.length,
            header,
            segments: segments(header.format, &bytes.programs, bytes.length)?,
            sections: SectionTable { format: header.format, bytes: &bytes.sections },
            names: &bytes.names,
            names_index: bytes.names_index,
            tables: [
                0..header.format.file_header_size() as u64,
                place(header.program_offset, &bytes.programs),
                place(header.section_offset, &bytes.sections),
            ],
        };
        image.check_sections()?;
        Ok(image)
    }

    fn check_sections(&self) -> Result<(), EmbedError> {
        for (index, section) in self.sections.iter() {
            if section.name as usize >= self.names.len() {
                return Err(EmbedError::SectionName { index, offset: section.name });
            }
            let end = section.offset.checked_add(section.size);
            if section.has_contents() && end.is_none_or(|end| end > self.length) {
                return Err(EmbedError::Section {
                    name: String::from_utf8_lossy(self.name(&section)).into_owned(),
                    index,
                    offset: section.offset,
                    size: section.size,
                    length: self.length,
                });
            }
        }
        Ok(())
    }

    /// The name of a section of this file, without its end mark.
    pub(super) fn name(&self, section: &SectionHeader) -> &'a [u8] {
        let rest = self.names.get(section.name as usize..).unwrap_or_default();
        rest.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Whether the place of a section is fixed by the program headers: it is part of the memory
    /// image, or its bytes are bytes of a segment.
    pub(super) fn is_pinned(&self, section: &SectionHeader) -> bool {
        let range = section.range();
        !self.segments.is_empty()
            && (section.has_flag(elf::SHF_ALLOC.0)
                || self.segments.iter().any(|segment| overlap(segment, &range)))
    }

    /// Whether some bytes of section `index` are also a header or another section.
    pub(super) fn is_shared(&self, index: usize, range: &Range<u64>) -> bool {
        self.tables.iter().any(|table| overlap(table, range))
            || self
                .sections
                .iter()
                .any(|(other, section)| other != index && overlap(&section.range(), range))
    }
}

/// Whether two ranges have a byte in common.
pub(super) fn overlap(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start.max(right.start) < left.end.min(right.end)
}

fn segments(format: Format, table: &[u8], length: u64) -> Result<Vec<Range<u64>>, EmbedError> {
    let mut segments = Vec::new();
    for (index, bytes) in table.chunks_exact(format.program_header_size()).enumerate() {
        let segment = Segment::decode(format, bytes).ok_or(EmbedError::NotElf)?;
        if segment.kind == elf::PT_NULL.0 || segment.size == 0 {
            continue;
        }
        match segment.offset.checked_add(segment.size) {
            Some(end) if end <= length => segments.push(segment.offset..end),
            _ => {
                let Segment { offset, size, .. } = segment;
                return Err(EmbedError::Segment { index, offset, size, length });
            }
        }
    }
    Ok(segments)
}
