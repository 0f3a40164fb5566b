//! Hand-made ELF files for the unit tests, in every class and byte order, and ways to look at the
//! result of an edit. Needs no compiler.

use object::elf;

use super::check::check;
use super::image::{self, Image, ReadError};
use super::plan::plan;
use super::record::{FileHeader, Format, SectionHeader};
use super::{Edit, EmbedError, Placement};

pub(super) const FORMATS: [Format; 4] = [
    Format { is_64: false, big_endian: false },
    Format { is_64: false, big_endian: true },
    Format { is_64: true, big_endian: false },
    Format { is_64: true, big_endian: true },
];

/// The format of most tests.
pub(super) const ELF64: Format = FORMATS[2];

/// A file to be built: header, program headers, contents, `.shstrtab`, section table, trailer.
pub(super) struct Sample {
    pub(super) format: Format,
    pub(super) sections: Vec<(String, SectionHeader, Vec<u8>)>,
    /// One segment over the contents of the first so many sections.
    pub(super) loaded: usize,
    pub(super) trailer: Vec<u8>,
}

impl Sample {
    /// `.text`, loaded if `loaded`, and `.debug`.
    pub(super) fn new(format: Format, loaded: bool) -> Self {
        let sample =
            Self { format, sections: Vec::new(), loaded: loaded.into(), trailer: Vec::new() };
        sample.with(".text", elf::SHF_ALLOC.0, b"instructions").with(".debug", 0, b"dwarf")
    }

    pub(super) fn with(mut self, name: &str, flags: u64, bytes: &[u8]) -> Self {
        let header = SectionHeader {
            kind: elf::SHT_PROGBITS.0,
            flags,
            size: bytes.len() as u64,
            alignment: 1,
            ..SectionHeader::default()
        };
        self.sections.push((name.to_owned(), header, bytes.to_vec()));
        self
    }

    pub(super) fn last(&mut self) -> &mut SectionHeader {
        &mut self.sections.last_mut().unwrap().1
    }

    pub(super) fn build(&self) -> Vec<u8> {
        let format = self.format;
        let program_size = if self.loaded > 0 { format.program_header_size() } else { 0 };
        let mut file = vec![0; format.file_header_size() + program_size];
        let mut names = vec![0];
        let mut table = SectionHeader::default().encode(format).unwrap();
        let mut segment = 0..0;
        for (position, (name, header, bytes)) in self.sections.iter().enumerate() {
            let offset = put(&mut file, bytes, 4);
            if position < self.loaded {
                segment = (if position == 0 { offset } else { segment.start })..file.len() as u64;
            }
            let header = SectionHeader { name: names.len() as u32, offset, ..*header };
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            table.extend(header.encode(format).unwrap());
        }
        let name = names.len() as u32;
        names.extend_from_slice(b".shstrtab\0");
        let offset = put(&mut file, &names, 1);
        let size = names.len() as u64;
        let kind = elf::SHT_STRTAB.0;
        let header = SectionHeader { name, kind, offset, size, ..SectionHeader::default() };
        table.extend(header.encode(format).unwrap());
        self.finish(file, &table, &segment)
    }

    fn finish(&self, mut file: Vec<u8>, table: &[u8], segment: &std::ops::Range<u64>) -> Vec<u8> {
        let format = self.format;
        let count = table.len() / format.section_header_size();
        let mut header = blank_header(format);
        header.section_offset = put(&mut file, table, format.word_size());
        header.section_count = count.try_into().unwrap();
        header.names_index = (count - 1).try_into().unwrap();
        if self.loaded > 0 {
            header.program_count = 1;
            header.program_offset = format.file_header_size() as u64;
            let bytes = program_header(format, segment);
            file[format.file_header_size()..][..bytes.len()].copy_from_slice(&bytes);
        }
        file[..format.file_header_size()].copy_from_slice(&header.encode().unwrap());
        file.extend_from_slice(&self.trailer);
        file
    }
}

fn blank_header(format: Format) -> FileHeader {
    let class = if format.is_64 { elf::ELFCLASS64.0 } else { elf::ELFCLASS32.0 };
    let data = if format.big_endian { elf::ELFDATA2MSB.0 } else { elf::ELFDATA2LSB.0 };
    let mut bytes = vec![0x7f, b'E', b'L', b'F', class, data, 1];
    bytes.resize(64, 0);
    let mut header = FileHeader::decode(&bytes).unwrap();
    header.header_size = format.file_header_size() as u16;
    header.program_size = format.program_header_size() as u16;
    header.section_size = format.section_header_size() as u16;
    header
}

fn program_header(format: Format, segment: &std::ops::Range<u64>) -> Vec<u8> {
    let natives = [segment.start, 0, 0, segment.end - segment.start, 0];
    let mut bytes = word(format, 1);
    if format.is_64 {
        bytes.extend(word(format, 5));
    }
    for value in natives {
        if format.is_64 {
            let value = if format.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            bytes.extend(value);
        } else {
            bytes.extend(word(format, value as u32));
        }
    }
    bytes.resize(format.program_header_size(), 0);
    bytes
}

fn word(format: Format, value: u32) -> Vec<u8> {
    let field = if format.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    field.to_vec()
}

fn put(file: &mut Vec<u8>, bytes: &[u8], alignment: u64) -> u64 {
    let offset = (file.len() as u64).next_multiple_of(alignment);
    file.resize(offset as usize, 0);
    file.extend_from_slice(bytes);
    offset
}

/// Applies `edit` to a file in memory.
pub(super) fn edited(
    file: &[u8],
    edit: &Edit<'_>,
) -> Result<(Vec<u8>, Vec<Placement>), EmbedError> {
    let headers = headers(file)?;
    let Some(plan) = plan(&Image::parse(&headers)?, edit)? else {
        return Ok((file.to_vec(), Vec::new()));
    };
    assert!(plan.keep <= headers.length);
    check(file, edit, &plan).map_err(within)?;
    let mut new = file[..plan.keep as usize].to_vec();
    new.resize(plan.length as usize, 0);
    for patch in plan.patches.iter().filter(|patch| !patch.bytes.is_empty()) {
        new[patch.offset as usize..][..patch.bytes.len()].copy_from_slice(&patch.bytes);
    }
    Ok((new, plan.placements))
}

/// Applies an edit that must succeed.
pub(super) fn embedded(file: &[u8], sections: &[(&str, &[u8])]) -> Vec<u8> {
    edited(file, &Edit { sections, remove: &[] }).unwrap().0
}

fn headers(file: &[u8]) -> Result<image::HeaderBytes, EmbedError> {
    image::read_headers(file, file.len() as u64).map_err(within)
}

/// The error of reading a file in memory.
fn within(error: ReadError) -> EmbedError {
    match error {
        ReadError::Elf(error) => error,
        ReadError::Io(error) => panic!("read beyond the end of the file: {error}"),
    }
}

/// All sections: name, header, bytes.
pub(super) fn sections(file: &[u8]) -> Vec<(String, SectionHeader, Vec<u8>)> {
    let headers = headers(file).unwrap();
    let image = Image::parse(&headers).unwrap();
    let one = |(_, header): (usize, SectionHeader)| {
        let range = header.range();
        let bytes = file[range.start as usize..range.end as usize].to_vec();
        (String::from_utf8_lossy(image.name(&header)).into_owned(), header, bytes)
    };
    image.sections.iter().map(one).collect()
}

/// Index, header and bytes of the section of this name.
pub(super) fn section(file: &[u8], name: &str) -> Option<(usize, SectionHeader, Vec<u8>)> {
    let found = sections(file).into_iter().enumerate().find(|(_, (found, ..))| found == name);
    found.map(|(position, (_, header, bytes))| (position + 1, header, bytes))
}
