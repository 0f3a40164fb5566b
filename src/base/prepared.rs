//! A prepared base: tables over flat words, so that it can be stored and mapped as it is.

use std::ops::Range;

use super::mapping::Mapping;
use crate::pool;

/// First word of the table; another byte order reads it differently.
const MAGIC: u32 = u32::from_ne_bytes(*b"BCpb");
/// Changes with everything that is stored, hash functions included.
const FORMAT: u32 = 1;
/// Where the checksum of everything after it is.
const CHECKSUM: usize = 2;
/// Words before the extents of the sections.
const FIXED_WORDS: usize = 6 + DIGEST_WORDS;
const DIGEST_WORDS: usize = 8;
const END_ID: usize = 4;
const END_STRING: usize = 5;
const HEADER_WORDS: usize = FIXED_WORDS + 2 * Section::COUNT;
/// Seed of the hash of records: stored tables need a fixed one. Whoever makes a base collide slows
/// down his own build.
const SEED: u64 = 0x6274_6663_6163_6865;

/// The parts of a prepared base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Start of each record in `Records`, and the end of the last one.
    Starts,
    /// The records in normal form, by id.
    Records,
    /// The strings of the base, as bytes.
    Strings,
    /// Slots of (offset + 1, tag) by hash of the string.
    StringTable,
    /// Slots of (id, tag) by hash of the record.
    TypeTable,
    /// Slots of (reference by kind and name, id): what the base knows under that name.
    KeyTable,
    /// Pairs of (id, id of the type in the table that has the same normal form) of the types that
    /// refer to something else than what the name they use stands for, by id.
    Irregular,
    /// Ids of the types that reach an irregular one, or one that shares its name with another.
    Tainted,
    /// Start of the record of each of those in `TaintedRecords`, and the end of the last.
    TaintedStarts,
    /// Their records with ids for all references.
    TaintedRecords,
}

impl Section {
    const COUNT: usize = 10;
}

/// What can be looked up of a base.
#[derive(Debug)]
pub struct Prepared {
    words: Words,
    /// Where each section is.
    sections: [Range<usize>; Section::COUNT],
}

/// Where the words are: made here, or in a file that is mapped.
#[derive(Debug)]
pub enum Words {
    /// In memory.
    Owned(Vec<u32>),
    /// In a file, from this byte on.
    Mapped(Mapping, usize),
}

impl Words {
    fn get(&self) -> &[u32] {
        match self {
            Self::Owned(words) => words,
            Self::Mapped(mapping, start) => {
                let bytes = mapping.bytes().get(*start..).unwrap_or(&[]);
                bytemuck::try_cast_slice(bytes).unwrap_or(&[])
            }
        }
    }
}

/// What a prepared base says about its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Digest of the base's image.
    pub digest: [u8; 32],
    /// Whether the base is in big-endian byte order.
    pub is_big_endian: bool,
    /// The id after that of its last type.
    pub end_id: u32,
    /// Size of its strings in bytes.
    pub end_string: u32,
}

impl Prepared {
    pub(super) fn new(summary: &Summary, sections: &[Vec<u32>; Section::COUNT]) -> Self {
        let size = sections.iter().map(Vec::len).sum::<usize>();
        let mut words = Vec::with_capacity(HEADER_WORDS + size);
        let order = u32::from(summary.is_big_endian);
        words.extend([MAGIC, FORMAT << 1 | order, 0, 0, summary.end_id, summary.end_string]);
        let digest = summary.digest.chunks_exact(4);
        words.extend(digest.map(|bytes| u32::from_le_bytes(bytes.try_into().expect("of four"))));
        let mut start = HEADER_WORDS;
        for section in sections {
            words.extend([start as u32, (start + section.len()) as u32]);
            start += section.len();
        }
        sections.iter().for_each(|section| words.extend_from_slice(section));
        let checksum = checksum(&words);
        words[CHECKSUM] = checksum as u32;
        words[CHECKSUM + 1] = (checksum >> 32) as u32;
        let sections = extents(&words).expect("they were just put one after the other");
        Self { words: Words::Owned(words), sections }
    }

    /// A prepared base that was stored, of the base with this digest; `None` if it is damaged or
    /// something else.
    #[must_use]
    pub fn from_words(stored: Words, digest: &[u8; 32]) -> Option<Self> {
        let words = stored.get();
        let is_whole = words.len() >= HEADER_WORDS
            && words[0] == MAGIC
            && words[1] >> 1 == FORMAT
            && checksum(words) == u64::from(words[CHECKSUM]) | u64::from(words[CHECKSUM + 1]) << 32;
        if !is_whole {
            return None;
        }
        let sections = extents(words)?;
        let prepared = Self { words: stored, sections };
        (prepared.summary().digest == *digest).then_some(prepared)
    }

    /// Its words, to store them.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        self.words.get()
    }

    /// What it says about its base.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut digest = [0; 32];
        let all = self.words.get();
        let words = &all[FIXED_WORDS - DIGEST_WORDS..FIXED_WORDS];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Summary {
            digest,
            is_big_endian: all[1] & 1 != 0,
            end_id: all[END_ID],
            end_string: all[END_STRING],
        }
    }

    /// The id after that of the last type of the base: the first of a split image.
    #[must_use]
    pub fn end_id(&self) -> u32 {
        self.words.get()[END_ID]
    }

    /// Size of the strings of the base: offset of the first string of a split image.
    #[must_use]
    pub fn end_string(&self) -> u32 {
        self.words.get()[END_STRING]
    }

    /// The offset of a string of the base; `None` if it has no such string.
    #[must_use]
    pub fn string(&self, wanted: &[u8]) -> Option<u32> {
        if wanted.is_empty() {
            return Some(0);
        }
        let strings = self.strings();
        let table = Table(self.section(Section::StringTable));
        let is_wanted = |slot: u32| {
            strings.get(slot as usize - 1..).is_some_and(|start| {
                start.get(..wanted.len()) == Some(wanted) && start.get(wanted.len()) == Some(&0)
            })
        };
        table.find(string_hash(wanted), is_wanted).map(|slot| slot - 1)
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
        let table = Table(self.section(Section::TypeTable));
        let id = table.find(record_hash(record), |id| self.record(id) == record)?;
        Some((id, self.canonical(id).is_none()))
    }

    /// What the base knows under a reference by kind and name, whose name is an offset of its
    /// strings: the definition that the name stands for, or else a forward declaration.
    #[must_use]
    pub fn named(&self, reference: u32) -> Option<u32> {
        let table = self.section(Section::KeyTable);
        let slots = table.len() / 2;
        let mut slot = key_slot(reference, slots);
        while slots > 0 && table[2 * slot] != 0 {
            if table[2 * slot] == reference {
                return Some(table[2 * slot + 1]);
            }
            slot = (slot + 1) % slots;
        }
        None
    }

    /// The record of a type in normal form.
    #[must_use]
    pub fn record(&self, id: u32) -> &[u32] {
        let starts = &self.section(Section::Starts)[id as usize - 1..];
        &self.section(Section::Records)[starts[0] as usize..starts[1] as usize]
    }

    /// For an irregular type the one in the table that has the same normal form.
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
        bytemuck::cast_slice(self.section(Section::Strings))
    }

    fn section(&self, section: Section) -> &[u32] {
        &self.words.get()[self.sections[section as usize].clone()]
    }
}

/// Where the sections are, which must be in order and within the words.
fn extents(words: &[u32]) -> Option<[Range<usize>; Section::COUNT]> {
    let mut sections = [const { 0..0 }; Section::COUNT];
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

fn key_slot(reference: u32, slots: usize) -> usize {
    let mixed = u64::from(reference).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    // There are fewer than 2^32 slots, so the product has their number as its upper half.
    ((mixed * slots as u64) >> 32) as usize
}

/// An open-addressing table of (value, tag) pairs; value 0 is a free slot. At most half full.
struct Table<'a>(&'a [u32]);

impl Table<'_> {
    fn find(&self, hash: u64, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = self.0.len() / 2;
        let mut slot = (hash as usize).checked_rem(slots)?;
        let tag = (hash >> 32) as u32;
        loop {
            match self.0[2 * slot] {
                0 => return None,
                value if self.0[2 * slot + 1] == tag && is_wanted(value) => return Some(value),
                _ => slot = (slot + 1) % slots,
            }
        }
    }
}

/// A [`Table`] while it is filled.
pub(super) struct TableBuilder(Vec<u32>);

impl TableBuilder {
    pub fn with_capacity(count: usize) -> Self {
        Self(vec![0; 4 * count.next_power_of_two()])
    }

    /// The value that is found; adds `value` if there is none.
    pub fn find_or_add(&mut self, hash: u64, value: u32, is_wanted: impl Fn(u32) -> bool) -> u32 {
        if let Some(found) = Table(&self.0).find(hash, is_wanted) {
            return found;
        }
        let slots = self.0.len() / 2;
        let mut slot = hash as usize % slots;
        while self.0[2 * slot] != 0 {
            slot = (slot + 1) % slots;
        }
        self.0[2 * slot] = value;
        self.0[2 * slot + 1] = (hash >> 32) as u32;
        value
    }

    pub fn into_words(self) -> Vec<u32> {
        self.0
    }
}

/// The table of what stands for each name.
pub(super) fn key_table(entries: &[(u32, u32)]) -> Vec<u32> {
    let slots = (entries.len() * 2).next_power_of_two();
    let mut table = vec![0; 2 * slots];
    for &(reference, id) in entries {
        let mut slot = key_slot(reference, slots);
        while table[2 * slot] != 0 {
            slot = (slot + 1) % slots;
        }
        table[2 * slot] = reference;
        table[2 * slot + 1] = id;
    }
    table
}
