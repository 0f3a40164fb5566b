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
pub struct Pool {
    words: Vec<u32>,
    /// Start of each record in `words`, and the end of the last one.
    starts: Vec<u32>,
    table: HashTable<u32>,
    seed: u64,
    /// For each class, the two that were last asked for after it: units repeat the types of the
    /// same headers in the same order, so that a look-up is usually one comparison.
    successors: Vec<[u32; 2]>,
    last: u32,
}

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
            words: Vec::new(),
            starts: vec![0],
            table: HashTable::new(),
            // Random, so that no input can be made to collide; nothing depends on hash order.
            seed: RandomState::new().hash_one(0),
            successors: Vec::new(),
            last: 0,
        }
    }

    /// Number of classes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.starts.len() - 1
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
        record(&self.words, &self.starts, class.0)
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

    /// The class of `wanted`, added if it is new.
    ///
    /// # Panics
    /// When the pool would exceed 2^30 words: it holds only distinct types.
    #[inline]
    pub fn intern(&mut self, wanted: &[u32]) -> ClassId {
        let guesses = self.successors.get(self.last as usize).copied().unwrap_or([u32::MAX; 2]);
        for guess in guesses {
            if (guess as usize) < self.len()
                && is_same(record(&self.words, &self.starts, guess), wanted)
            {
                self.last = guess;
                return ClassId(guess);
            }
        }
        let class = self.look_up(wanted);
        if let Some(successors) = self.successors.get_mut(self.last as usize) {
            *successors = [class, successors[0]];
        }
        self.last = class;
        ClassId(class)
    }

    fn look_up(&mut self, wanted: &[u32]) -> u32 {
        let Self { words, starts, table, seed, .. } = self;
        let hash = hash(wanted, *seed);
        if let Some(&class) = table.find(hash, |&class| record(words, starts, class) == wanted) {
            return class;
        }
        let class = starts.len() as u32 - 1;
        assert!(words.len() + wanted.len() < 1 << 30, "too many distinct types");
        words.extend_from_slice(wanted);
        starts.push(words.len() as u32);
        let rehash = |&class: &u32| crate::pool::hash(record(words, starts, class), *seed);
        table.insert_unique(hash, class, rehash);
        self.successors.push([u32::MAX; 2]);
        class
    }
}

#[inline]
fn record<'a>(words: &'a [u32], starts: &[u32], class: u32) -> &'a [u32] {
    &words[starts[class as usize] as usize..starts[class as usize + 1] as usize]
}

/// Compares records: those that differ mostly do so in their first words.
#[inline(always)]
fn is_same(one: &[u32], two: &[u32]) -> bool {
    match (one.split_first_chunk::<3>(), two.split_first_chunk::<3>()) {
        (Some((one, rest)), Some((two, others))) => {
            one == two && rest.len() == others.len() && (rest.is_empty() || rest == others)
        }
        _ => one == two,
    }
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
