//! Names as integers: the same bytes have the same [`NameId`] within one run.
//!
//! In a linked image `.debug_str` holds each string once, so there the offset itself is the
//! identity and costs nothing ("direct"). That is checked, not assumed: [`Names::new`] looks for a
//! duplicate. In relocatable files strings repeat per unit, and each is looked up by its bytes.
//! If there is a base, a string that it has is its offset there, so that it need not be looked for
//! again when types are looked up in it.
//! Strings of up to three bytes, which gcc puts into `.debug_info` itself, are their own identity.
//! Other compilers put them into `.debug_str` (where the linker may make them the tail of another
//! string), so that in their units the length must be looked at: see [`Names::at_offset`].
//!
//! Ids differ from run to run. Nothing may be ordered by them; see [`Names::bytes`].

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, OnceLock};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::base::{Prepared, StringSlot};
use crate::pool::spread;
use crate::string_index::StringIndex;

/// A name; [`NameId::NONE`] is the empty one. Always below 2^29, which class references rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NameId(pub u32);

impl NameId {
    /// No name, or an empty one: BTF does not tell them apart.
    pub const NONE: Self = Self(0);

    /// Whether there is no name.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Ids below this are offsets in `.debug_str` plus one, or, where those are no identities, offsets
/// in the strings of the base.
const SHORT: u32 = 1 << 28;
/// Ids from here on are indices into the table of looked-up names.
const INTERNED: u32 = SHORT + (1 << 24);
const SHARDS: usize = 64;
/// Longer names are cut, so that many names that share the end of one endless string cost no more
/// than they are. The kernel refuses names of more than 512 bytes.
const MAX_NAME: usize = 1024;

/// All names of one run.
#[derive(Debug)]
pub struct Names {
    strings: Vec<u8>,
    /// Set when offsets in `strings` are identities.
    direct: Option<Direct>,
    /// Set when offsets in its strings are identities.
    base: Option<Arc<Prepared>>,
    /// Set when strings are looked up all at once.
    index: Option<StringIndex>,
    /// `--kabi_prefix`: a name that begins with it becomes it (spec/encoding 2.0.2).
    prefix: Option<Vec<u8>>,
    shards: Vec<Mutex<HashTable<(u64, u32)>>>,
    interned: boxcar::Vec<Interned>,
    hasher: RandomState,
    prefix_id: OnceLock<NameId>,
}

/// What is special about a `.debug_str` whose strings are all distinct.
#[derive(Debug)]
struct Direct {
    /// Offset of the empty string, if there is one.
    empty: u32,
    /// (low half of the hash, offset) of every string, for names that are spelt out elsewhere.
    table: HashTable<(u32, u32)>,
}

#[derive(Debug)]
enum Interned {
    InStrings { start: u32, len: u32 },
    Owned(Box<[u8]>),
}

impl Names {
    /// Takes the contents of `.debug_str`. `linked` says that the linker may have made its
    /// strings unique, so that looking for duplicates is worth it.
    #[must_use]
    pub fn new(strings: Vec<u8>, linked: bool, prefix: Option<&[u8]>) -> Self {
        let mut names = Self {
            strings,
            direct: None,
            base: None,
            index: None,
            prefix: prefix.map(<[u8]>::to_vec),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            interned: boxcar::Vec::new(),
            hasher: RandomState::default(),
            prefix_id: OnceLock::new(),
        };
        if linked && names.prefix.is_none() && names.strings.len() < SHORT as usize - 1 {
            names.direct = names.find_direct();
        }
        names
    }

    /// The same, for types that are looked up in `base`.
    #[must_use]
    pub fn with_base(mut self, base: Option<&Arc<Prepared>>) -> Self {
        let is_small = |base: &&Arc<Prepared>| base.end_string() < SHORT;
        if self.direct.is_none() {
            self.base = base.filter(is_small).cloned();
        }
        self
    }

    /// The same, with all strings of `.debug_str` looked up now: worth it where each unit has its own.
    #[must_use]
    pub fn indexed(mut self) -> Self {
        if self.direct.is_none() {
            self.index =
                StringIndex::new(&self.strings, |starts, ids| self.look_up_all(starts, ids));
        }
        self
    }

    /// The offset of a name in the strings of `base`, which is the one that these names were made
    /// for, if for any.
    #[must_use]
    pub fn offset_in(&self, base: &Prepared, name: NameId) -> Option<u32> {
        match (&self.base, name.0) {
            (Some(_), id) if id < SHORT => Some(id),
            (Some(_), id) if id >= INTERNED => None,
            _ => base.string(self.bytes(name, &mut [0; 4])),
        }
    }

    /// The id of the string at `offset` of `.debug_str`; none if that is outside. `is_long` says
    /// that whoever wrote the reference never does so for a string of up to three bytes.
    #[inline(always)]
    pub fn at_offset(&self, offset: u64, is_long: bool, cache: &mut NameCache) -> NameId {
        match &self.direct {
            Some(direct) if offset < self.strings.len() as u64 => {
                let offset = offset as u32;
                if !is_long {
                    return self.at_any_offset(offset);
                }
                if offset == direct.empty { NameId::NONE } else { NameId(offset + 1) }
            }
            Some(_) => NameId::NONE,
            None => match self.index.as_ref().and_then(|index| index.get(offset)) {
                Some(name) => name,
                None => cache.get(offset, || self.look_up_offset(offset)),
            },
        }
    }

    #[cold]
    fn at_any_offset(&self, offset: u32) -> NameId {
        let start = &self.strings[offset as usize..];
        let length = start.iter().take(4).position(|&byte| byte == 0).unwrap_or(start.len().min(4));
        match pack(&start[..length]) {
            Some(0) => NameId::NONE,
            Some(packed) => NameId(SHORT + packed),
            None => NameId(offset + 1),
        }
    }

    /// The id of `bytes`, a string found elsewhere than in `.debug_str`.
    pub fn inline(&self, bytes: &[u8]) -> NameId {
        if let Some(prefix) = self.prefixed(bytes) {
            return prefix;
        }
        match pack(bytes) {
            Some(0) => NameId::NONE,
            Some(packed) => NameId(SHORT + packed),
            None => self.in_section(bytes).unwrap_or_else(|| self.look_up(bytes, None)),
        }
    }

    /// The id of the string at `offset` of the strings of another file; none if that is outside.
    pub fn in_other(&self, strings: &[u8], offset: u64) -> NameId {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        strings.get(start..).map_or(NameId::NONE, |rest| self.inline(until_nul(rest)))
    }

    /// The id of a name of up to three bytes, given as a little-endian integer.
    #[inline]
    pub fn short(&self, packed: u32) -> NameId {
        if self.prefix.is_some() {
            let bytes = packed.to_le_bytes();
            return self.inline(until_nul(&bytes));
        }
        if packed == 0 { NameId::NONE } else { NameId(SHORT + packed) }
    }

    /// The bytes of a name. `buffer` holds them if they are nowhere else.
    #[must_use]
    pub fn bytes<'a>(&'a self, name: NameId, buffer: &'a mut [u8; 4]) -> &'a [u8] {
        match name.0 {
            0 => b"",
            id if id < SHORT => match &self.base {
                Some(base) => base.string_at(id),
                None => until_nul(&self.strings[id as usize - 1..]),
            },
            id if id < INTERNED => {
                *buffer = (id - SHORT).to_le_bytes();
                until_nul(&*buffer)
            }
            id => match &self.interned[(id - INTERNED) as usize] {
                Interned::InStrings { start, len } => {
                    &self.strings[*start as usize..][..*len as usize]
                }
                Interned::Owned(bytes) => bytes,
            },
        }
    }

    /// The name that begins at `offset` of `.debug_str`, if names are known by that.
    #[must_use]
    pub fn at_direct_offset(&self, offset: u32) -> Option<NameId> {
        let is_inside = self.direct.is_some() && (offset as usize) < self.strings.len();
        is_inside.then(|| self.at_offset(offset.into(), false, &mut NameCache::default()))
    }

    /// `.debug_str`.
    #[must_use]
    pub fn section(&self) -> &[u8] {
        &self.strings
    }

    /// The bytes of a name, as an owned value.
    #[must_use]
    pub fn to_vec(&self, name: NameId) -> Vec<u8> {
        self.bytes(name, &mut [0; 4]).to_vec()
    }

    fn in_section(&self, bytes: &[u8]) -> Option<NameId> {
        let direct = self.direct.as_ref()?;
        let tag = self.hasher.hash_one(bytes) as u32;
        let same = |entry: &(u32, u32)| self.is_string_at(*entry, tag, bytes);
        direct.table.find(spread(tag), same).map(|entry| NameId(entry.1 + 1))
    }

    fn is_string_at(&self, entry: (u32, u32), tag: u32, bytes: &[u8]) -> bool {
        entry.0 == tag && until_nul(&self.strings[entry.1 as usize..]) == bytes
    }

    fn prefixed(&self, bytes: &[u8]) -> Option<NameId> {
        let prefix = self.prefix.as_ref()?;
        if !bytes.starts_with(prefix) || prefix.is_empty() {
            return None;
        }
        Some(*self.prefix_id.get_or_init(|| match pack(prefix) {
            Some(packed) => NameId(SHORT + packed),
            None => self.look_up(prefix, None),
        }))
    }

    fn look_up_offset(&self, offset: u64) -> NameId {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(rest) = self.strings.get(start..) else {
            return NameId::NONE;
        };
        let bytes = until_nul(rest);
        let look_up = || self.look_up(bytes, u32::try_from(offset).ok());
        self.without_look_up(bytes).unwrap_or_else(look_up)
    }

    /// The id of a name that need not be looked up.
    fn without_look_up(&self, bytes: &[u8]) -> Option<NameId> {
        if let Some(prefix) = self.prefixed(bytes) {
            return Some(prefix);
        }
        match pack(bytes)? {
            0 => Some(NameId::NONE),
            packed => Some(NameId(SHORT + packed)),
        }
    }

    /// The ids of the strings at `starts`, several at a time: the processor then waits for the slots
    /// of all of them at once.
    fn look_up_all(&self, starts: &[u32], ids: &mut Vec<NameId>) {
        const GROUP: usize = 16;
        let Some(base) = &self.base else {
            ids.extend(starts.iter().map(|&start| self.look_up_offset(start.into())));
            return;
        };
        for group in starts.chunks(GROUP) {
            let mut strings = [&b""[..]; GROUP];
            let mut slots = [StringSlot::default(); GROUP];
            for (place, &start) in group.iter().enumerate() {
                strings[place] = until_nul(&self.strings[start as usize..]);
                slots[place] = base.string_slot(strings[place]);
            }
            slots[..group.len()].iter_mut().for_each(|slot| base.touch(slot));
            for (place, &start) in group.iter().enumerate() {
                let bytes = strings[place];
                let in_base = || base.string_in(slots[place], bytes).map(NameId);
                let name = self.without_look_up(bytes).or_else(in_base);
                ids.push(name.unwrap_or_else(|| self.intern(bytes, Some(start))));
            }
        }
    }

    /// Finds `bytes` in the base, else as [`Self::intern`] does.
    fn look_up(&self, bytes: &[u8], offset: Option<u32>) -> NameId {
        let known = self.base.as_ref().and_then(|base| base.string(bytes));
        known.map_or_else(|| self.intern(bytes, offset), NameId)
    }

    /// Finds or adds `bytes`; they lie at `offset` of `.debug_str` if that is given.
    fn intern(&self, bytes: &[u8], offset: Option<u32>) -> NameId {
        let hash = self.hasher.hash_one(bytes);
        let shard = &self.shards[hash as usize % SHARDS];
        let mut table = shard.lock().expect("no thread panics while it holds a shard");
        let same = |entry: &(u64, u32)| {
            entry.0 == hash && self.bytes(NameId(entry.1), &mut [0; 4]) == bytes
        };
        if let Some(found) = table.find(hash, same) {
            return NameId(found.1);
        }
        let index = self.interned.push(match offset {
            Some(start) => Interned::InStrings { start, len: bytes.len() as u32 },
            None => Interned::Owned(bytes.into()),
        });
        let id = INTERNED + u32::try_from(index).expect("fewer names than bytes in the file");
        table.insert_unique(hash, (hash, id), |entry| entry.0);
        NameId(id)
    }

    /// Returns what direct use needs, or `None` if some string occurs twice.
    fn find_direct(&self) -> Option<Direct> {
        let mut empty = u32::MAX;
        let count = memchr::memchr_iter(0, &self.strings).count();
        let mut table = HashTable::with_capacity(count.min(self.strings.len() / 8));
        let mut start = 0;
        while start < self.strings.len() {
            let bytes = until_nul(&self.strings[start..]);
            let offset = start as u32;
            let tag = self.hasher.hash_one(bytes) as u32;
            if table.find(spread(tag), |entry| self.is_string_at(*entry, tag, bytes)).is_some() {
                return None;
            }
            table.insert_unique(spread(tag), (tag, offset), |entry: &(u32, u32)| spread(entry.0));
            if bytes.is_empty() {
                empty = offset;
            }
            start += bytes.len() + 1;
        }
        Some(Direct { empty, table })
    }
}

/// Remembers the ids of recently used offsets, one per worker. Useless and empty in direct use.
#[derive(Debug, Default)]
pub struct NameCache {
    /// (offset, id) by a hash of the offset.
    slots: Vec<(u32, NameId)>,
}

impl NameCache {
    /// A unit has some ten thousand names; this still stays near the processor.
    const SLOT_BITS: u32 = 15;

    /// The id of the string at `offset`; `look_up` finds it if it is not remembered.
    #[inline]
    pub fn get(&mut self, offset: u64, look_up: impl FnOnce() -> NameId) -> NameId {
        let Ok(short) = u32::try_from(offset) else {
            return look_up();
        };
        if self.slots.is_empty() {
            self.slots.resize(1 << Self::SLOT_BITS, (u32::MAX, NameId::NONE));
        }
        let slot = short.wrapping_mul(0x9e37_79b1) >> (u32::BITS - Self::SLOT_BITS);
        let slot = &mut self.slots[slot as usize];
        if slot.0 != short || short == u32::MAX {
            *slot = (short, look_up());
        }
        slot.1
    }

    /// Forgets everything: the next offsets belong to another file.
    pub fn clear(&mut self) {
        self.slots.clear();
    }
}

pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(MAX_NAME)];
    &bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())]
}

/// Up to three bytes as an integer; `None` for more.
fn pack(bytes: &[u8]) -> Option<u32> {
    match *bytes {
        [] => Some(0),
        [a] => Some(u32::from(a)),
        [a, b] => Some(u32::from(a) | u32::from(b) << 8),
        [a, b, c] => Some(u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(names: &Names, id: NameId) -> String {
        String::from_utf8(names.to_vec(id)).unwrap()
    }

    #[test]
    fn equal_bytes_have_equal_ids_wherever_they_are() {
        for strings in [&b"task_struct\0pid\0\0"[..], b"task_struct\0pid\0task_struct\0pid\0\0"] {
            let names = Names::new(strings.to_vec(), true, None);
            let mut cache = NameCache::default();
            let long = names.at_offset(0, false, &mut cache);
            let short = names.at_offset(12, false, &mut cache);
            assert_eq!(short, names.inline(b"pid"));
            assert_eq!(text(&names, long), "task_struct");
            assert_eq!(text(&names, short), "pid");
            assert_eq!(names.inline(b"other_name"), names.inline(b"other_name"));
            assert_eq!(text(&names, names.inline(b"other_name")), "other_name");
            let end = names.strings.len() as u64;
            assert_eq!(names.at_offset(end - 1, false, &mut cache), NameId::NONE);
            assert_eq!(names.at_offset(end, false, &mut cache), NameId::NONE);
            assert_eq!(names.inline(b""), NameId::NONE);
        }
    }

    #[test]
    fn the_tail_of_a_string_is_the_same_short_name() {
        let names = Names::new(b"unsigned int\0".to_vec(), true, None);
        let mut cache = NameCache::default();
        assert!(names.direct.is_some());
        assert_eq!(names.at_offset(9, false, &mut cache), names.inline(b"int"));
        assert_eq!(names.at_offset(12, false, &mut cache), NameId::NONE);
    }

    #[test]
    fn duplicates_in_the_section_switch_to_look_up() {
        let names = Names::new(b"abcd\0abcd\0".to_vec(), true, None);
        let mut cache = NameCache::default();
        assert!(names.direct.is_none());
        assert_eq!(names.at_offset(0, false, &mut cache), names.at_offset(5, false, &mut cache));
    }

    #[test]
    fn a_prefix_replaces_every_name_that_begins_with_it() {
        let names =
            Names::new(b"__kabi_reserved1\0__kabi_reserved2\0".to_vec(), true, Some(b"__kabi"));
        let mut cache = NameCache::default();
        let first = names.at_offset(0, false, &mut cache);
        assert_eq!(first, names.at_offset(17, false, &mut cache));
        assert_eq!(text(&names, first), "__kabi");
    }
}
