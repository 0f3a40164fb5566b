//! A prepared base: tables over flat words, so that it can be stored and mapped as it is.

use std::ops::Range;

use super::asked::Restriction;
use super::mapping::Mapping;
use crate::pool;

/// First word of the table; another byte order reads it differently.
const MAGIC: u32 = u32::from_ne_bytes(*b"BCpb");
/// Changes with everything that is stored, hash functions included.
const FORMAT: u32 = 3;
/// Where the checksum of everything after it is.
const CHECKSUM: usize = 2;
/// Words before the extents of the sections.
const FIXED_WORDS: usize = 6 + DIGEST_WORDS;
const DIGEST_WORDS: usize = 8;
const END_ID: usize = 4;
const END_STRING: usize = 5;
const HEADER_WORDS: usize = FIXED_WORDS + 2 * (Section::COUNT + 1);
/// Seed of the hash of records: stored tables need a fixed one. Whoever makes a base collide slows
/// down his own build.
const SEED: u64 = 0x6274_6663_6163_6865;

/// Bits of a string offset: those that the kernel reads.
pub(super) const STRING_BITS: u32 = 24;
/// Bits of a type id: those that the kernel reads.
pub(super) const TYPE_BITS: u32 = 20;

/// The parts of a prepared base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Start of each record in `Records`, and the end of the last one.
    Starts,
    /// The records in normal form, by id.
    Records,
    /// [`Table`] of offsets by hash of the string.
    StringTable,
    /// [`Table`] of ids by hash of the record.
    TypeTable,
    /// Slots of (reference by kind and name, id): what the base knows under that name.
    KeyTable,
    /// Pairs of (id, id of the type in the table that has the same normal form) of the types that
    /// refer to something else than what the name they use stands for, and of those that are another
    /// one once more, by id.
    Irregular,
    /// Ids of the types that reach an irregular one, or one that shares its name with another.
    Tainted,
    /// Start of the record of each of those in `TaintedRecords`, and the end of the last.
    TaintedStarts,
    /// Their records with ids for all references.
    TaintedRecords,
}

impl Section {
    const COUNT: usize = 9;
}

/// What can be looked up of a base.
#[derive(Debug)]
pub struct Prepared {
    summary: Summary,
    data: Data,
    /// What it was prepared for, if not for everything.
    restriction: Option<Restriction>,
}

/// Where everything is: made here, or in a file that is mapped.
#[derive(Debug)]
enum Data {
    Owned { sections: [Vec<u32>; Section::COUNT], strings: Vec<u8> },
    Stored(Stored, Extents),
}

/// Where the sections are in the words that are stored, and behind them the strings.
type Extents = [Range<usize>; Section::COUNT + 1];

/// A stored prepared base.
#[derive(Debug)]
pub enum Stored {
    /// In memory.
    Words(Vec<u32>),
    /// In a file, from this byte on.
    Mapped(Mapping, usize),
}

impl Stored {
    fn words(&self) -> &[u32] {
        match self {
            Self::Words(words) => words,
            Self::Mapped(mapping, start) => {
                let bytes = mapping.bytes().get(*start..).unwrap_or(&[]);
                bytemuck::try_cast_slice(bytes).unwrap_or(&[])
            }
        }
    }
}

/// Where a string would be in the table of strings.
#[derive(Clone, Copy, Debug, Default)]
pub struct StringSlot {
    hash: u64,
    /// What is there.
    word: u32,
    /// The first byte of the string that this leads to.
    first: u8,
}

/// What a prepared base says about its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whether the base is in big-endian byte order.
    pub is_big_endian: bool,
    /// The id after that of its last type.
    pub end_id: u32,
    /// Size of its strings in bytes.
    pub end_string: u32,
}

impl Prepared {
    pub(super) const fn new(
        summary: Summary,
        strings: Vec<u8>,
        sections: [Vec<u32>; Section::COUNT],
        restriction: Option<Restriction>,
    ) -> Self {
        Self { summary, data: Data::Owned { sections, strings }, restriction }
    }

    /// Whether something was asked of it that it was not prepared for: what was made with it is then
    /// to be made again.
    #[must_use]
    pub fn is_insufficient(&self) -> bool {
        self.restriction.as_ref().is_some_and(Restriction::is_insufficient)
    }

    /// A prepared base that was stored, of the base with this digest; `None` if it is damaged or
    /// something else.
    #[must_use]
    pub fn from_stored(stored: Stored, digest: &[u8; 32]) -> Option<Self> {
        let words = stored.words();
        let is_whole = words.len() >= HEADER_WORDS
            && words[0] == MAGIC
            && words[1] >> 1 == FORMAT
            && checksum(words) == u64::from(words[CHECKSUM]) | u64::from(words[CHECKSUM + 1]) << 32;
        if !is_whole {
            return None;
        }
        let summary = Summary {
            is_big_endian: words[1] & 1 != 0,
            end_id: words[END_ID],
            end_string: words[END_STRING],
        };
        let extents = extents(words)?;
        let has_strings = extents[Section::COUNT].len() * 4 >= summary.end_string as usize;
        let stored_digest: &[u8] =
            bytemuck::cast_slice(&words[FIXED_WORDS - DIGEST_WORDS..FIXED_WORDS]);
        let is_wanted = stored_digest == digest && has_strings;
        let data = Data::Stored(stored, extents);
        is_wanted.then_some(Self { summary, data, restriction: None })
    }

    /// The words to store; `digest` is that of the base's image.
    #[must_use]
    pub fn to_words(&self, digest: &[u8; 32]) -> Vec<u32> {
        let (sections, strings) = match &self.data {
            Data::Owned { sections, strings } => (sections, strings),
            Data::Stored(stored, _) => return stored.words().to_vec(),
        };
        let size = sections.iter().map(Vec::len).sum::<usize>() + strings.len().div_ceil(4);
        let mut words = Vec::with_capacity(HEADER_WORDS + size);
        let Summary { is_big_endian, end_id, end_string } = &self.summary;
        words.extend([MAGIC, FORMAT << 1 | u32::from(*is_big_endian), 0, 0, *end_id, *end_string]);
        let digest = digest.as_chunks().0;
        words.extend(digest.iter().map(|bytes| u32::from_ne_bytes(*bytes)));
        let mut start = HEADER_WORDS;
        for section in sections {
            words.extend([start as u32, (start + section.len()) as u32]);
            start += section.len();
        }
        words.extend([start as u32, (start + strings.len().div_ceil(4)) as u32]);
        sections.iter().for_each(|section| words.extend_from_slice(section));
        words.resize(HEADER_WORDS + size, 0);
        bytemuck::cast_slice_mut(&mut words[start..])[..strings.len()].copy_from_slice(strings);
        let checksum = checksum(&words);
        words[CHECKSUM] = checksum as u32;
        words[CHECKSUM + 1] = (checksum >> 32) as u32;
        words
    }

    /// What it says about its base.
    #[must_use]
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The id after that of the last type of the base: the first of a split image.
    #[must_use]
    pub const fn end_id(&self) -> u32 {
        self.summary.end_id
    }

    /// Size of the strings of the base: offset of the first string of a split image.
    #[must_use]
    pub const fn end_string(&self) -> u32 {
        self.summary.end_string
    }

    /// The offset of a string of the base; `None` if it has no such string.
    #[must_use]
    pub fn string(&self, wanted: &[u8]) -> Option<u32> {
        if wanted.is_empty() {
            return Some(0);
        }
        let mut slot = self.string_slot(wanted);
        self.touch(&mut slot);
        self.string_in(slot, wanted)
    }

    /// Where the table of strings would have `wanted`: the first half of [`Self::string`], for those
    /// who look up many at a time.
    #[must_use]
    #[inline]
    pub fn string_slot(&self, wanted: &[u8]) -> StringSlot {
        let hash = string_hash(wanted);
        let table = self.section(Section::StringTable);
        let word = table.get(hash as usize & table.len().wrapping_sub(1)).copied().unwrap_or(0);
        StringSlot { hash, word, first: 0 }
    }

    /// What comes between the two halves: looks at the string that was found.
    #[inline]
    pub fn touch(&self, slot: &mut StringSlot) {
        let start = Table::<STRING_BITS>::value(slot.word) as usize;
        slot.first = self.strings().get(start).copied().unwrap_or(0);
    }

    /// The second half.
    #[must_use]
    #[inline]
    pub fn string_in(&self, slot: StringSlot, wanted: &[u8]) -> Option<u32> {
        let strings = self.strings();
        let is_wanted = |start: u32| {
            strings.get(start as usize..).is_some_and(|start| {
                start.get(wanted.len()) == Some(&0) && start.get(..wanted.len()) == Some(wanted)
            })
        };
        let is_likely = wanted.first() == Some(&slot.first);
        let found = match Table::<STRING_BITS>::matching(slot.word, slot.hash) {
            Some(start) if is_likely && is_wanted(start) => Some(start),
            _ if slot.word == 0 => None,
            _ => {
                Table::<STRING_BITS>(self.section(Section::StringTable)).find(slot.hash, is_wanted)
            }
        };
        match (found, &self.restriction) {
            (None, Some(restriction)) => restriction.search(strings, wanted, slot.hash),
            _ => found,
        }
    }

    /// The string at an offset.
    #[must_use]
    pub fn string_at(&self, offset: u32) -> &[u8] {
        let start = &self.strings()[offset as usize..];
        &start[..memchr::memchr(0, start).unwrap_or(start.len())]
    }

    /// The type of this normal form: its id, and whether it is regular, which means that its
    /// references by name lead to what those names stand for.
    #[must_use]
    pub fn class(&self, record: &[u32]) -> Option<(u32, bool)> {
        let table = Table::<TYPE_BITS>(self.section(Section::TypeTable));
        let found = table.find(record_hash(record), |id| self.record(id) == record);
        if let (None, Some(restriction)) = (found, &self.restriction) {
            restriction.missed(record);
        }
        found.map(|id| (id, self.canonical(id).is_none()))
    }

    /// The same, where type `guess` is likely to be it: one look at that is then enough.
    #[must_use]
    pub fn class_near(&self, guess: u32, record: &[u32]) -> Option<(u32, bool)> {
        if !(1..self.end_id()).contains(&guess) || self.record(guess) != record {
            return self.class(record);
        }
        match self.canonical(guess) {
            None => Some((guess, true)),
            Some(id) => Some((id, self.canonical(id).is_none())),
        }
    }

    /// What the base knows under a reference by kind and name, whose name is an offset of its
    /// strings: the definition that the name stands for, or else a forward declaration.
    #[must_use]
    pub fn named(&self, reference: u32) -> Option<u32> {
        let table = self.section(Section::KeyTable);
        let mask = (table.len() / 2).checked_sub(1)?;
        let mut slot = key_slot(reference, mask);
        while table[2 * slot] != 0 {
            if table[2 * slot] == reference {
                return Some(table[2 * slot + 1]);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// The record of a type in normal form.
    #[must_use]
    pub fn record(&self, id: u32) -> &[u32] {
        let starts = &self.section(Section::Starts)[id as usize - 1..];
        &self.section(Section::Records)[starts[0] as usize..starts[1] as usize]
    }

    /// For an irregular type, or one that occurs twice, the one in the table that has the same normal
    /// form.
    #[must_use]
    pub fn canonical(&self, id: u32) -> Option<u32> {
        let (pairs, _) = self.section(Section::Irregular).as_chunks::<2>();
        let place = pairs.binary_search_by_key(&id, |pair| pair[0]).ok()?;
        Some(pairs[place][1])
    }

    /// The types that share their name with another, that refer to such a type against what the
    /// name stands for, and all that reach one: each with its record, in which references are ids.
    pub fn tainted(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let records = self.section(Section::TaintedRecords);
        let starts = self.section(Section::TaintedStarts).windows(2);
        let records = starts.map(|range| &records[range[0] as usize..range[1] as usize]);
        self.section(Section::Tainted).iter().copied().zip(records)
    }

    fn strings(&self) -> &[u8] {
        match &self.data {
            Data::Owned { strings, .. } => strings,
            Data::Stored(stored, extents) => {
                let words = &stored.words()[extents[Section::COUNT].clone()];
                &bytemuck::cast_slice(words)[..self.summary.end_string as usize]
            }
        }
    }

    fn section(&self, section: Section) -> &[u32] {
        match &self.data {
            Data::Owned { sections, .. } => &sections[section as usize],
            Data::Stored(stored, extents) => &stored.words()[extents[section as usize].clone()],
        }
    }
}

/// Where the sections are, which must be in order and within the words.
fn extents(words: &[u32]) -> Option<Extents> {
    let mut sections = [const { 0..0 }; Section::COUNT + 1];
    let mut end = HEADER_WORDS;
    for (section, extent) in sections.iter_mut().zip(words[FIXED_WORDS..].chunks_exact(2)) {
        *section = extent[0] as usize..extent[1] as usize;
        if section.start != end || section.end < section.start || section.end > words.len() {
            return None;
        }
        end = section.end;
    }
    Some(sections)
}

/// Of everything behind it.
fn checksum(words: &[u32]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytemuck::cast_slice(&words[CHECKSUM + 2..]))
}

pub(super) fn string_hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

pub(super) fn record_hash(record: &[u32]) -> u64 {
    pool::hash(record, SEED)
}

const fn key_slot(reference: u32, mask: usize) -> usize {
    ((reference as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask
}

/// An open-addressing table, at most half full, whose size is a power of two. A slot is a value of
/// `BITS` bits that is not 0, and above it bits of the hash; 0 is a free slot.
struct Table<'a, const BITS: u32>(&'a [u32]);

impl<const BITS: u32> Table<'_, BITS> {
    /// The slot of the value that is wanted, or the free one where it would be; `None` if the table
    /// has no slot.
    fn slot(&self, hash: u64, is_wanted: impl Fn(u32) -> bool) -> Option<usize> {
        let mask = self.0.len().checked_sub(1)?;
        let mut slot = hash as usize & mask;
        loop {
            let word = self.0[slot];
            if word == 0 || Self::matching(word, hash).is_some_and(&is_wanted) {
                return Some(slot);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn find(&self, hash: u64, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let word = self.0[self.slot(hash, is_wanted)?];
        (word != 0).then_some(Self::value(word))
    }

    /// The value of a slot, if it could be one of this hash.
    fn matching(word: u32, hash: u64) -> Option<u32> {
        ((word ^ Self::tag(hash)) >> BITS == 0).then_some(Self::value(word))
    }

    const fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32 >> BITS << BITS
    }

    const fn value(word: u32) -> u32 {
        word & ((1 << BITS) - 1)
    }
}

/// A [`Table`] while it is filled.
pub(super) struct TableBuilder<const BITS: u32>(Vec<u32>);

impl<const BITS: u32> TableBuilder<BITS> {
    /// Room for so many values.
    pub fn with_capacity(count: usize) -> Self {
        Self(vec![0; 2 * count.next_power_of_two()])
    }

    /// The value that is found; adds `value` if there is none.
    pub fn find_or_add(&mut self, hash: u64, value: u32, is_wanted: impl Fn(u32) -> bool) -> u32 {
        let table = Table::<BITS>(&self.0);
        let slot = table.slot(hash, is_wanted).expect("it has two slots at least");
        if self.0[slot] == 0 {
            self.0[slot] = value | Table::<BITS>::tag(hash);
        }
        Table::<BITS>::value(self.0[slot])
    }

    pub fn into_words(self) -> Vec<u32> {
        self.0
    }
}

/// The table of what stands for each name, while it is filled. At most half full.
pub(super) struct KeyTableBuilder(Vec<u32>);

impl KeyTableBuilder {
    pub fn with_capacity(count: usize) -> Self {
        Self(vec![0; 4 * count.next_power_of_two()])
    }

    /// The id that a reference stands for; `id` if it was not there.
    pub fn entry(&mut self, reference: u32, id: u32) -> &mut u32 {
        let mask = self.0.len() / 2 - 1;
        let mut slot = key_slot(reference, mask);
        while self.0[2 * slot] != 0 && self.0[2 * slot] != reference {
            slot = (slot + 1) & mask;
        }
        if self.0[2 * slot] == 0 {
            self.0[2 * slot] = reference;
            self.0[2 * slot + 1] = id;
        }
        &mut self.0[2 * slot + 1]
    }

    pub fn into_words(self) -> Vec<u32> {
        self.0
    }
}
