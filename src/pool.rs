//! Classes: deduplicated type records, interned by content.
//!
//! A record has the shape of a BTF record (see `btf::kind`), with `NameId`s for names and [`Ref`]s
//! for references. What a reference *is* makes everything else work (DESIGN.md section 2): to a
//! named struct, union or enum it is the pair of kind and name, whatever the unit knows of that
//! type; to anything else it is the class itself. So no record is part of a cycle, equal records
//! of different units are equal words, and classes of different pools are merged one by one.
//!
//! Example: two units that both have `struct file { struct inode *inode; }` share the classes
//! `STRUCT file {inode: #1}` and `#1 = PTR -> (struct, "inode")`, whether or not a unit also
//! defines `struct inode`.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::btf::kind::{Info, Kind, kind_of};
use crate::names::NameId;

/// Index of a class in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// The kind of a nominal reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Namespace {
    /// `struct name`.
    Struct = 0,
    /// `union name`.
    Union = 1,
    /// `enum name`.
    Enum = 2,
    /// A typedef that is part of a cycle of otherwise structural types: cut by name.
    Typedef = 3,
}

/// What a nominal reference means: a kind and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kind.
    pub namespace: Namespace,
    /// The name.
    pub name: NameId,
}

/// A reference in a class record: void, a class, or a [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ref(pub u32);

/// A decoded [`Ref`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `void`.
    Void,
    /// A class of the same pool.
    Class(ClassId),
    /// A kind and name.
    Key(Key),
}

const KEY: u32 = 1 << 31;

impl Ref {
    /// `void`.
    pub const VOID: Self = Self(0);
    /// The index type of every array: chosen for the whole run (spec/encoding 3.4), so it is the
    /// same class everywhere and needs no name here.
    pub const INDEX: Self = Self(KEY - 1);

    /// A reference to a class.
    #[must_use]
    pub const fn class(class: ClassId) -> Self {
        Self(class.0 + 1)
    }

    /// A nominal reference.
    #[must_use]
    pub const fn key(namespace: Namespace, name: NameId) -> Self {
        Self(KEY | (namespace as u32) << 29 | name.0)
    }

    /// What the reference leads to. [`Ref::INDEX`] must have been dealt with.
    #[must_use]
    #[inline]
    pub const fn target(self) -> Target {
        if self.0 & KEY != 0 {
            let namespace = match self.0 >> 29 & 3 {
                0 => Namespace::Struct,
                1 => Namespace::Union,
                2 => Namespace::Enum,
                _ => Namespace::Typedef,
            };
            return Target::Key(Key { namespace, name: NameId(self.0 & 0x1fff_ffff) });
        }
        match self.0.checked_sub(1) {
            None => Target::Void,
            Some(class) => Target::Class(ClassId(class)),
        }
    }
}

/// The name that a record defines, or mentions as a forward declaration; `None` for types that C
/// does not refer to by kind and name.
#[must_use]
pub fn key_of(record: &[u32]) -> Option<Key> {
    let name = NameId(record[0]);
    if name.is_none() {
        return None;
    }
    let namespace = match kind_of(record) {
        Kind::Struct => Namespace::Struct,
        Kind::Union => Namespace::Union,
        Kind::Enum | Kind::Enum64 => Namespace::Enum,
        Kind::Fwd if Info(record[1]).kflag() => Namespace::Union,
        Kind::Fwd => Namespace::Struct,
        _ => return None,
    };
    Some(Key { namespace, name })
}

/// Whether a record is a definition of a name, not a mere mention: a struct, union or an enum
/// with values (spec/btf-and-dedup section 2.6).
#[must_use]
pub fn is_definition(record: &[u32]) -> bool {
    match kind_of(record) {
        Kind::Struct | Kind::Union => record[0] != 0,
        Kind::Enum | Kind::Enum64 => record[0] != 0 && record.len() > 3,
        _ => false,
    }
}

impl From<Key> for Ref {
    fn from(key: Key) -> Self {
        Self::key(key.namespace, key.name)
    }
}

/// A set of class records, each once. Ids are in order of insertion.
///
/// Units repeat the types of the same headers in the same order. So each class remembers the two that
/// were last asked for after it, and a look-up is usually one comparison.
pub struct Pool {
    /// Each record behind its [`Header`]. In front stands an empty one, after which nothing was
    /// asked for yet.
    words: Vec<u32>,
    /// Place of each class in `words`.
    places: Vec<u32>,
    /// Places of all classes, by hash.
    /// (upper half of the hash, place) of each record.
    table: HashTable<(u32, u32)>,
    seed: u64,
    /// Place of the class that was last asked for.
    last: u32,
}

/// What stands before a record: its number of words, its class, the places of two classes that may
/// be asked for next.
type Header = [u32; 4];
const HEADER: usize = size_of::<Header>() / size_of::<u32>();
/// Room for as many words is worth it for the largest inputs.
const MAX_ROOM: usize = 1 << 24;
/// Where the first of the two places is.
const NEXT: usize = 2;

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("classes", &self.len()).finish_non_exhaustive()
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: vec![0; HEADER],
            places: Vec::new(),
            table: HashTable::new(),
            // Random, so that no input can be made to collide; nothing depends on hash order.
            seed: RandomState::new().hash_one(0),
            last: 0,
        }
    }

    /// An empty pool that can grow to so many words without being moved. Memory that is not used costs
    /// nothing: moving and touching it anew does.
    #[must_use]
    pub fn with_room(words: usize) -> Self {
        let mut pool = Self::new();
        pool.words.reserve(words.min(MAX_ROOM));
        pool
    }

    /// Number of classes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no class.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record of a class.
    #[must_use]
    #[inline]
    pub fn record(&self, class: ClassId) -> &[u32] {
        record(&self.words, self.places[class.0 as usize])
    }

    /// The FUNC_PROTO class that a FUNC class refers to.
    ///
    /// # Panics
    /// If `function` is no FUNC class.
    #[must_use]
    pub fn prototype(&self, function: ClassId) -> ClassId {
        match Ref(self.record(function)[2]).target() {
            Target::Class(prototype) => prototype,
            Target::Void | Target::Key(_) => unreachable!("a FUNC refers to a prototype"),
        }
    }

    /// All ids, in order of insertion: a class comes after those it refers to.
    pub fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.len() as u32).map(ClassId)
    }

    /// The class of `wanted`, added if it is new. No record is empty.
    ///
    /// # Panics
    /// When the pool would exceed 2^30 words: it holds only distinct types.
    #[inline]
    pub fn intern(&mut self, wanted: &[u32]) -> ClassId {
        debug_assert!(!wanted.is_empty());
        let last = self.last as usize;
        for next in [self.words[last + NEXT], self.words[last + NEXT + 1]] {
            let (header, record) = split(&self.words, next);
            if header[0] as usize == wanted.len() && is_same(&record[..wanted.len()], wanted) {
                self.last = next;
                return ClassId(header[1]);
            }
        }
        self.intern_unexpected(wanted)
    }

    #[inline(never)]
    fn intern_unexpected(&mut self, wanted: &[u32]) -> ClassId {
        let place = self.look_up(wanted);
        let next = &mut self.words[self.last as usize + NEXT..][..2];
        next.copy_from_slice(&[place, next[0]]);
        self.last = place;
        ClassId(split(&self.words, place).0[1])
    }

    fn look_up(&mut self, wanted: &[u32]) -> u32 {
        let Self { words, places, table, seed, .. } = self;
        // One half of the hash is enough to find a record, and is kept for when the table grows.
        let tag = (hash(wanted, *seed) >> 32) as u32;
        let is_wanted = |entry: &(u32, u32)| entry.0 == tag && record(words, entry.1) == wanted;
        if let Some(found) = table.find(spread(tag), is_wanted) {
            return found.1;
        }
        assert!(words.len() + wanted.len() < 1 << 30, "too many distinct types");
        let place = words.len() as u32;
        words.extend::<Header>([wanted.len() as u32, places.len() as u32, 0, 0]);
        words.extend_from_slice(wanted);
        places.push(place);
        table.insert_unique(spread(tag), (tag, place), |entry| spread(entry.0));
        place
    }
}

/// The header at `place` and the words from its record on.
#[inline(always)]
fn split(words: &[u32], place: u32) -> (&Header, &[u32]) {
    words[place as usize..].split_first_chunk().expect("records stand behind a header")
}

#[inline(always)]
fn record(words: &[u32], place: u32) -> &[u32] {
    let (header, words) = split(words, place);
    &words[..header[0] as usize]
}

/// Compares records of one length: those that differ mostly do so in their first words.
#[inline(always)]
fn is_same(one: &[u32], two: &[u32]) -> bool {
    match (one.split_first_chunk::<3>(), two.split_first_chunk::<3>()) {
        (Some((one, rest)), Some((two, others))) => {
            one == two && (rest.is_empty() || rest == others)
        }
        _ => one == two,
    }
}

/// A hash of 64 bits, both ends of which the table uses.
pub(crate) const fn spread(tag: u32) -> u64 {
    tag as u64 | (tag as u64) << 32
}

/// Folds words by 64x64 to 128 bit multiplication, two words at a time.
#[inline]
pub(crate) fn hash(words: &[u32], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |state: u64, value: u64| {
        let product = u128::from(state ^ value) * u128::from(MULTIPLIER);
        (product as u64) ^ (product >> 64) as u64
    };
    let mut state = seed ^ words.len() as u64;
    let mut pairs = words.chunks_exact(2);
    for pair in &mut pairs {
        state = fold(state, u64::from(pair[0]) | u64::from(pair[1]) << 32);
    }
    for &rest in pairs.remainder() {
        state = fold(state, u64::from(rest) | 1 << 63);
    }
    fold(state, seed.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_come_back_as_they_were() {
        let name = NameId((1 << 29) - 1);
        for namespace in [Namespace::Struct, Namespace::Union, Namespace::Enum, Namespace::Typedef]
        {
            assert_eq!(Ref::key(namespace, name).target(), Target::Key(Key { namespace, name }));
        }
        assert_eq!(Ref::VOID.target(), Target::Void);
        assert_eq!(Ref::class(ClassId(7)).target(), Target::Class(ClassId(7)));
    }

    #[test]
    fn a_record_is_stored_once_whatever_came_before() {
        let mut pool = Pool::new();
        let records: Vec<Vec<u32>> = (0..1000).map(|n| vec![n % 50, 2 << 24, n % 7]).collect();
        let ids: Vec<ClassId> = records.iter().map(|record| pool.intern(record)).collect();
        assert_eq!(pool.len(), 350);
        for (record, id) in records.iter().zip(ids) {
            assert_eq!(pool.record(id), record);
        }
    }
}
