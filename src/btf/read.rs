//! Reads BTF images, raw or split on a base, in either byte order (spec/btf-and-dedup 1.1 to 1.8).
//!
//! Takes bytes that nobody vouches for; gives records of native words in the shape of
//! [`kind`](super::kind), all of whose references and names lead somewhere. That is what libbpf
//! demands, less than the kernel does: see [`verify`](super::verify). It never panics on bytes and
//! never allocates more than a small multiple of them.

use thiserror::Error;

use super::kind::{Info, Kind, for_each_name, for_each_ref};

/// Why an image cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{fault} (at offset {offset:#x} of the BTF)")]
pub struct BtfError {
    /// Offset in the image of what is wrong.
    pub offset: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// It ends before its header does.
    #[error("the header needs {wanted} bytes, there are {found}")]
    HeaderCut {
        /// Bytes that the header needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The first two bytes are not those of BTF.
    #[error("{0:#06x} is not the magic number of BTF")]
    Magic(u16),
    /// A version that does not exist yet.
    #[error("version {0} is not known")]
    Version(u8),
    /// Flags that have no meaning yet.
    #[error("flags {0:#x} are not known")]
    Flags(u8),
    /// A header shorter than the oldest one.
    #[error("a header of {0} bytes is too short")]
    HeaderLength(u32),
    /// A section that is not within the image.
    #[error("{length} bytes of {section} at {start:#x} after the header exceed the image")]
    SectionBounds {
        /// Which one.
        section: Section,
        /// Its start, from the end of the header.
        start: u32,
        /// Its length.
        length: u32,
    },
    /// Sections that overlap, or are not in the order types, layout, strings.
    #[error("{0} begin before the end of what must come before them")]
    SectionOrder(Section),
    /// A section whose start or length is not a multiple of 4.
    #[error("{0} are not aligned to 4 bytes")]
    SectionAlignment(Section),
    /// Strings that do not end, or begin, with NUL, or are missing.
    #[error("the strings do not begin and end with NUL")]
    Strings,
    /// Another byte order than the base.
    #[error("it is in another byte order than its base")]
    ByteOrder,
    /// More types or strings than can be numbered.
    #[error("there are more {0} than can be numbered")]
    TooMany(Section),
    /// Bytes at the end that are too few for a record.
    #[error("the record of type {id} needs {wanted} bytes, there are {found}")]
    RecordCut {
        /// The type.
        id: u32,
        /// Bytes that the record needs.
        wanted: u64,
        /// Bytes that there are.
        found: usize,
    },
    /// A kind that neither this reader nor the layout section knows.
    #[error("type {id} is of unknown kind {kind}")]
    Kind {
        /// The type.
        id: u32,
        /// The number of the kind.
        kind: u32,
    },
    /// A reference to a type that does not exist.
    #[error("type {id} refers to type {target}, which does not exist")]
    Reference {
        /// The type that refers.
        id: u32,
        /// What it refers to.
        target: u32,
    },
    /// A name outside of the strings.
    #[error("type {id} has a name at {name:#x}, outside of the strings")]
    Name {
        /// The type that has it.
        id: u32,
        /// Offset of the name.
        name: u32,
    },
    /// A FUNC that refers to something else than a FUNC_PROTO.
    #[error("function {id} refers to type {target}, which is no prototype")]
    Prototype {
        /// The FUNC.
        id: u32,
        /// What it refers to.
        target: u32,
    },
}

/// A section of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The records.
    Types,
    /// Sizes of the records of each kind (1.3).
    Layout,
    /// The names.
    Strings,
}

impl std::fmt::Display for Section {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Types => "types",
            Self::Layout => "layout entries",
            Self::Strings => "strings",
        })
    }
}

/// A section's start, from the end of the header, and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset from the end of the header.
    pub start: u32,
    /// Length in bytes.
    pub length: u32,
}

impl Extent {
    /// Offset of the first byte after it, from the end of the header.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start as u64 + self.length as u64
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Size of the whole image in bytes.
    pub image_size: usize,
    /// Size of the header in bytes, 24 or more.
    pub size: u32,
    /// Whether words are in big-endian order.
    pub is_big_endian: bool,
    /// Where the records are.
    pub types: Extent,
    /// Where the layout section is; of length 0 if there is none.
    pub layout: Extent,
    /// Where the strings are.
    pub strings: Extent,
    /// Whether header bytes that this reader does not know are set: such an image can be read, not
    /// changed (rule F5).
    pub has_unknown_fields: bool,
}

/// Size of the header without layout fields.
const OLD_HEADER: u32 = 24;
/// Size of the header with them.
const NEW_HEADER: u32 = 32;
const MAGIC: u16 = 0xeb9f;
/// Types, and bytes of strings, that libbpf can number (1.4).
const MAX_NUMBER: u32 = 0x7fff_ffff;
/// Words of a record that every kind has.
const COMMON_WORDS: usize = 3;

/// A checked BTF image: every reference and name in it leads somewhere.
#[derive(Debug)]
pub struct Btf<'base> {
    base: Option<&'base Btf<'base>>,
    header: Header,
    /// All records, one after the other, in native byte order.
    words: Vec<u32>,
    /// Start of each record in `words`, and the end of the last one.
    starts: Vec<u32>,
    strings: Vec<u8>,
    layout: Vec<LayoutEntry>,
    first_id: u32,
    /// Offset of the first byte of `strings`, in all strings.
    first_string: u32,
    unknown: Option<(u32, u32)>,
}

/// What the layout section says about a kind (rule Y1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LayoutEntry {
    info_size: u8,
    element_size: u8,
}

impl<'base> Btf<'base> {
    /// Reads an image that stands alone, or one that is split on `base`.
    ///
    /// # Errors
    /// When the image is not one that libbpf would read.
    pub fn parse(bytes: &[u8], base: Option<&'base Btf<'base>>) -> Result<Self, BtfError> {
        let header = Header::parse(bytes)?;
        if base.is_some_and(|base| base.header.is_big_endian != header.is_big_endian) {
            return Err(fault(0, Fault::ByteOrder));
        }
        let (first_id, first_string) =
            (base.map_or(1, Btf::end_id), base.map_or(0, Btf::end_string));
        let mut btf = Self { base, ..Self::unchecked(bytes, header, first_id, first_string) };
        btf.check()?;
        Ok(btf)
    }

    /// Reads an image that is split on a base of which only the end of its ids and of its strings is
    /// known: its own records and names can be looked at.
    ///
    /// # Errors
    /// When no base of that size makes it an image that libbpf would read.
    pub fn parse_upon(bytes: &[u8], first_id: u32, first_string: u32) -> Result<Self, BtfError> {
        let mut btf = Self::unchecked(bytes, Header::parse(bytes)?, first_id, first_string);
        btf.check()?;
        Ok(btf)
    }

    fn unchecked(bytes: &[u8], header: Header, first_id: u32, first_string: u32) -> Self {
        Self {
            base: None,
            header,
            words: to_words(header.section(bytes, header.types), header.is_big_endian),
            starts: vec![0],
            strings: header.section(bytes, header.strings).to_vec(),
            layout: layout_entries(header.section(bytes, header.layout)),
            first_id,
            first_string,
            unknown: None,
        }
    }

    fn check(&mut self) -> Result<(), BtfError> {
        self.check_strings()?;
        self.find_records()?;
        self.check_records()
    }

    /// Its own records, where each starts and the last ends, and its own strings.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u32>, Vec<u32>, Vec<u8>) {
        (self.words, self.starts, self.strings)
    }

    /// What the header says.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The image that this one is split on.
    #[must_use]
    pub const fn base(&self) -> Option<&'base Btf<'base>> {
        self.base
    }

    /// Whether it is in big-endian byte order.
    #[must_use]
    pub const fn is_big_endian(&self) -> bool {
        self.header.is_big_endian
    }

    /// Whether it has a layout section of its own.
    #[must_use]
    pub const fn has_layout(&self) -> bool {
        self.header.layout.length != 0
    }

    /// Number of its own types, without void and those of the base.
    #[must_use]
    pub const fn type_count(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Id of its first own type, whether or not it has any.
    #[must_use]
    pub const fn first_id(&self) -> u32 {
        self.first_id
    }

    /// The id after that of the last type.
    #[must_use]
    pub const fn end_id(&self) -> u32 {
        self.first_id + self.type_count()
    }

    /// The record of a type of its own or of the base; `None` for void and ids that do not exist.
    #[must_use]
    #[inline]
    pub fn get(&self, id: u32) -> Option<&[u32]> {
        let mut btf = self;
        while id < btf.first_id {
            btf = btf.base?;
        }
        let index = (id - btf.first_id) as usize;
        let end = *btf.starts.get(index + 1)?;
        Some(&btf.words[btf.starts[index] as usize..end as usize])
    }

    /// The record of a type that exists, as all that records refer to, but for void, do.
    ///
    /// # Panics
    /// For void and ids that do not exist.
    #[must_use]
    #[inline]
    pub fn record(&self, id: u32) -> &[u32] {
        self.get(id).expect("the caller asks for types that exist")
    }

    /// The kind of a type; `None` for void, ids that do not exist, and unknown kinds.
    #[must_use]
    #[inline]
    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.get(id).and_then(|record| Info(record[1]).kind())
    }

    /// Its own types in order, with their ids.
    pub fn records(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let ranges = self.starts.windows(2);
        let records = ranges.map(|range| &self.words[range[0] as usize..range[1] as usize]);
        (self.first_id..).zip(records)
    }

    /// The name at this offset, without NUL; empty if there is none.
    #[must_use]
    pub fn name(&self, offset: u32) -> &[u8] {
        let mut btf = self;
        while offset < btf.first_string {
            let Some(base) = btf.base else {
                return b"";
            };
            btf = base;
        }
        let Some(rest) = btf.strings.get((offset - btf.first_string) as usize..) else {
            return b"";
        };
        // Offset 0 of a split image is that of the base, which the loop above went to.
        &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())]
    }

    /// The name of a type; empty for void and ids that do not exist.
    #[must_use]
    pub fn name_of(&self, id: u32) -> &[u8] {
        self.get(id).map_or(b"", |record| self.name(record[0]))
    }

    /// Size of a pointer, if an INT that is some spelling of `long` tells (rule E5).
    #[must_use]
    pub fn pointer_size(&self) -> Option<u32> {
        let own = self.records().find(|(_, record)| self.is_long(record));
        let size = own.map(|(_, record)| record[2]);
        self.base.and_then(Btf::pointer_size).or(size)
    }

    /// Whether the record is an INT of 4 or 8 bytes whose name is `long` with or without
    /// `unsigned` and `int`, in any order.
    fn is_long(&self, record: &[u32]) -> bool {
        if Info(record[1]).kind() != Some(Kind::Int) || !matches!(record[2], 4 | 8) {
            return false;
        }
        let (mut longs, mut has_others) = (0, false);
        for word in self.name(record[0]).split(|&byte| byte == b' ') {
            match word {
                b"long" => longs += 1,
                b"unsigned" | b"int" => {}
                _ => has_others = true,
            }
        }
        longs == 1 && !has_others
    }

    /// Its own strings, each with its NUL.
    #[must_use]
    pub fn strings(&self) -> &[u8] {
        &self.strings
    }

    /// Offset of its first own string.
    #[must_use]
    pub const fn first_string(&self) -> u32 {
        self.first_string
    }

    /// The offset after that of the last string.
    #[must_use]
    pub const fn end_string(&self) -> u32 {
        self.first_string + self.strings.len() as u32
    }

    /// Id and kind of the first type whose kind only the layout section knows. Its record can be
    /// looked at; nothing says which of its words are names and references, so that whatever
    /// follows or changes those must refuse the image (rule Y4), and the functions of
    /// [`kind`](super::kind) panic on the record.
    #[must_use]
    pub fn first_unknown(&self) -> Option<(u32, u32)> {
        self.base.and_then(Btf::first_unknown).or(self.unknown)
    }

    /// The first own type with a name that begins within a string of the base: a sign that this is
    /// not the base that the image was split on (rule P4).
    #[must_use]
    pub fn first_misfit(&self) -> Option<u32> {
        let base = self.base?;
        let is_start = |name: u32| {
            name == 0
                || name >= self.first_string
                || base.byte(name - 1).is_none_or(|byte| byte == 0)
        };
        let known = self.records().filter(|(_, record)| Info(record[1]).kind().is_some());
        let mut misfits = known.filter(|(_, record)| {
            let mut fits = true;
            for_each_name(record, |name| fits &= is_start(name));
            !fits
        });
        misfits.next().map(|(id, _)| id)
    }

    /// The byte at this offset of all strings.
    fn byte(&self, offset: u32) -> Option<u8> {
        let mut btf = self;
        while offset < btf.first_string {
            btf = btf.base?;
        }
        btf.strings.get((offset - btf.first_string) as usize).copied()
    }

    /// Rules S1, S2 and the limit of numbers (1.4).
    fn check_strings(&self) -> Result<(), BtfError> {
        let start = self.header.offset(self.header.strings);
        let strings = &self.strings;
        let has_start = self.first_string > 0 || strings.first() == Some(&0);
        let has_end = strings.last().is_none_or(|&byte| byte == 0);
        if !has_start || !has_end {
            return Err(fault(start, Fault::Strings));
        }
        let length = u32::try_from(strings.len()).ok();
        let end = length.and_then(|length| self.first_string.checked_add(length));
        if end.is_none_or(|end| end > MAX_NUMBER) {
            return Err(fault(start, Fault::TooMany(Section::Strings)));
        }
        Ok(())
    }

    /// Finds where records start; they must fill the section exactly.
    fn find_records(&mut self) -> Result<(), BtfError> {
        // Those of kernels have eight words on average.
        self.starts.reserve(self.words.len() / 7);
        let mut start = 0;
        while start < self.words.len() {
            let id = self.end_id();
            let words = self.record_words(id, start)?;
            start += words;
            self.starts.push(start as u32);
            if id >= MAX_NUMBER {
                return Err(self.record_fault(start - words, Fault::TooMany(Section::Types)));
            }
        }
        let rest = self.header.types.length as usize % 4;
        if rest != 0 {
            let wanted = COMMON_WORDS as u64 * 4;
            let cut = Fault::RecordCut { id: self.end_id(), wanted, found: rest };
            return Err(self.record_fault(start, cut));
        }
        Ok(())
    }

    /// Number of words of the record that starts at word `start`, all of which exist.
    fn record_words(&mut self, id: u32, start: usize) -> Result<usize, BtfError> {
        let rest = self.words.len() - start;
        let cut = |wanted: u64| Fault::RecordCut { id, wanted, found: rest * 4 };
        if rest < COMMON_WORDS {
            return Err(self.record_fault(start, cut(COMMON_WORDS as u64 * 4)));
        }
        let info = Info(self.words[start + 1]);
        let size = match info.kind() {
            Some(kind) => record_size(info, kind.info_words() * 4, kind.element_words() * 4),
            None => self.unknown_size(id, start, info)?,
        };
        match usize::try_from(size / 4) {
            Ok(words) if words <= rest => Ok(words),
            _ => Err(self.record_fault(start, cut(size))),
        }
    }

    /// Size of a record of unknown kind, by the layout section (rule Y3).
    fn unknown_size(&mut self, id: u32, start: usize, info: Info) -> Result<u64, BtfError> {
        let kind = kind_number(info);
        let entry = self.layout().get(kind as usize).copied();
        match entry {
            Some(LayoutEntry { info_size, element_size })
                if kind != 0 && info_size % 4 == 0 && element_size % 4 == 0 =>
            {
                self.unknown.get_or_insert((id, kind));
                Ok(record_size(info, info_size.into(), element_size.into()))
            }
            _ => Err(self.record_fault(start, Fault::Kind { id, kind })),
        }
    }

    /// The layout entries that count: its own, or those of its base.
    fn layout(&self) -> &[LayoutEntry] {
        let mut btf = self;
        while let (true, Some(base)) = (btf.layout.is_empty(), btf.base) {
            btf = base;
        }
        &btf.layout
    }

    /// Checks that all names and references lead somewhere (1.8).
    fn check_records(&self) -> Result<(), BtfError> {
        let (end_id, end_string) = (self.end_id(), self.end_string());
        for (index, (id, record)) in self.records().enumerate() {
            let Some(kind) = Info(record[1]).kind() else {
                continue;
            };
            let is_known = self.base.is_some() || record[2] == 0 || record[2] >= self.first_id;
            let is_wrong_function =
                kind == Kind::Func && is_known && self.kind(record[2]) != Some(Kind::FuncProto);
            // Nearly always all is well, which the greatest ones alone tell.
            let (mut name, mut target) = (0, 0);
            for_each_name(record, |other| name = name.max(other));
            for_each_ref(record, |other| target = target.max(other));
            if name < end_string && target < end_id && !is_wrong_function {
                continue;
            }
            let mut found = None;
            for_each_name(record, |name| {
                if name >= end_string {
                    found.get_or_insert(Fault::Name { id, name });
                }
            });
            for_each_ref(record, |target| {
                if target >= end_id {
                    found.get_or_insert(Fault::Reference { id, target });
                }
            });
            if is_wrong_function {
                found.get_or_insert(Fault::Prototype { id, target: record[2] });
            }
            if let Some(found) = found {
                return Err(self.record_fault(self.starts[index] as usize, found));
            }
        }
        Ok(())
    }

    fn record_fault(&self, word: usize, found: Fault) -> BtfError {
        fault(self.header.offset(self.header.types) + word * 4, found)
    }
}

impl Header {
    /// Reads the header of an image.
    ///
    /// # Errors
    /// When it is damaged, or leads out of the image.
    pub fn parse(bytes: &[u8]) -> Result<Self, BtfError> {
        let cut = |wanted| fault(bytes.len(), Fault::HeaderCut { wanted, found: bytes.len() });
        let Some(&[first, second, version, flags, ..]) = bytes.get(..8) else {
            return Err(cut(8));
        };
        let is_big_endian = match u16::from_le_bytes([first, second]) {
            MAGIC => false,
            magic if magic.swap_bytes() == MAGIC => true,
            magic => return Err(fault(0, Fault::Magic(magic))),
        };
        if version != 1 {
            return Err(fault(2, Fault::Version(version)));
        }
        if flags != 0 {
            return Err(fault(3, Fault::Flags(flags)));
        }
        let size = to_words(&bytes[4..8], is_big_endian)[0];
        if size < OLD_HEADER {
            return Err(fault(4, Fault::HeaderLength(size)));
        }
        let header = bytes.get(..size as usize).ok_or_else(|| cut(size as usize))?;
        let known = &header[8..header.len().min(NEW_HEADER as usize)];
        let fields = to_words(known, is_big_endian);
        let has_layout_fields = size >= NEW_HEADER;
        let unknown_start = if has_layout_fields { NEW_HEADER } else { OLD_HEADER };
        let extent = |index: usize| Extent { start: fields[index], length: fields[index + 1] };
        let parsed = Self {
            image_size: bytes.len(),
            size,
            is_big_endian,
            types: extent(0),
            strings: extent(2),
            layout: if has_layout_fields { extent(4) } else { Extent::default() },
            has_unknown_fields: header[unknown_start as usize..].iter().any(|&byte| byte != 0),
        };
        parsed.check_sections()?;
        Ok(parsed)
    }

    /// Rule F6, as libbpf enforces it: in order, within the image, aligned. Gaps are allowed.
    fn check_sections(&self) -> Result<(), BtfError> {
        let space = (self.image_size - self.size as usize) as u64;
        let mut end = 0;
        let sections = [
            (Section::Types, self.types, 8, 4),
            (Section::Layout, self.layout, 24, 4),
            (Section::Strings, self.strings, 16, 1),
        ];
        for (section, extent, field, alignment) in sections {
            if section == Section::Layout && extent.length == 0 {
                continue;
            }
            let Extent { start, length } = extent;
            if extent.end() > space {
                return Err(fault(field, Fault::SectionBounds { section, start, length }));
            }
            if u64::from(start) < end {
                return Err(fault(field, Fault::SectionOrder(section)));
            }
            if start % alignment != 0 || (section == Section::Layout && length % 4 != 0) {
                return Err(fault(field, Fault::SectionAlignment(section)));
            }
            end = extent.end();
        }
        Ok(())
    }

    /// Offset of a section in the image.
    fn offset(&self, extent: Extent) -> usize {
        self.size as usize + extent.start as usize
    }

    /// The bytes of a section that was found to be within the image.
    fn section<'a>(&self, bytes: &'a [u8], extent: Extent) -> &'a [u8] {
        match extent.length {
            0 => &[],
            length => &bytes[self.offset(extent)..][..length as usize],
        }
    }
}

const fn fault(offset: usize, fault: Fault) -> BtfError {
    BtfError { offset, fault }
}

/// The number of the kind, known or not.
const fn kind_number(info: Info) -> u32 {
    info.0 >> 24 & 0x7f
}

/// Bytes of a record.
fn record_size(info: Info, info_size: usize, element_size: usize) -> u64 {
    COMMON_WORDS as u64 * 4 + info_size as u64 + u64::from(info.vlen()) * element_size as u64
}

/// Whole words of `bytes`; what is left at the end is ignored.
fn to_words(bytes: &[u8], is_big_endian: bool) -> Vec<u32> {
    let words = bytes.chunks_exact(4).map(|word| word.try_into().expect("chunks are of 4 bytes"));
    if is_big_endian {
        words.map(u32::from_be_bytes).collect()
    } else {
        words.map(u32::from_le_bytes).collect()
    }
}

fn layout_entries(bytes: &[u8]) -> Vec<LayoutEntry> {
    let entry = |bytes: &[u8]| LayoutEntry { info_size: bytes[0], element_size: bytes[1] };
    bytes.chunks_exact(4).map(entry).collect()
}
