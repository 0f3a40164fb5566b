//! From a base to its prepared form.

use hashbrown::HashMap;
use thiserror::Error;

use super::asked::{Asked, Bits, Restriction};
use super::prepared::{
    KeyTableBuilder, Prepared, STRING_BITS, Section, Summary, TYPE_BITS, TableBuilder, record_hash,
    string_hash,
};
use crate::btf::kind::{for_each_name, for_each_ref, kind_of, map_names, map_refs};
use crate::btf::read::Btf;
use crate::pool::{Ref, is_definition, key_of};

/// Why nothing can be built upon a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// It is split itself: the kernel knows one level only (rule P1).
    #[error("it is split BTF itself, which cannot be a base")]
    Split,
    /// It has a kind that only its layout section knows (rule Y4).
    #[error("type {id} of it is of unknown kind {kind}")]
    Kind {
        /// The type.
        id: u32,
        /// The number of the kind.
        kind: u32,
    },
    /// More types or strings than the kernel accepts anyway.
    #[error("it has {types} types and {strings} bytes of strings: too many")]
    TooLarge {
        /// Number of types.
        types: u32,
        /// Size of the strings.
        strings: u32,
    },
}

/// What fits into the tables.
const MAX_TYPES: u32 = (1 << TYPE_BITS) - 1;
const MAX_STRINGS: u32 = 1 << STRING_BITS;

/// Prepares `base` on the current rayon pool.
///
/// # Errors
/// When nothing can be built upon it.
pub fn prepare(base: Btf<'_>) -> Result<Prepared, PrepareError> {
    prepare_some(base, None)
}

/// Prepares so much of `base` as a module with these strings can ask for, and perhaps too little: see
/// [`Prepared::is_insufficient`].
///
/// # Errors
/// When nothing can be built upon it.
pub fn prepare_for(base: Btf<'_>, asked: Asked) -> Result<Prepared, PrepareError> {
    prepare_some(base, Some(asked))
}

fn prepare_some(base: Btf<'_>, asked: Option<Asked>) -> Result<Prepared, PrepareError> {
    if base.base().is_some() {
        return Err(PrepareError::Split);
    }
    if let Some((id, kind)) = base.first_unknown() {
        return Err(PrepareError::Kind { id, kind });
    }
    let (types, strings) = (base.type_count(), base.end_string());
    if types > MAX_TYPES || strings > MAX_STRINGS {
        return Err(PrepareError::TooLarge { types, strings });
    }
    let summary =
        Summary { is_big_endian: base.is_big_endian(), end_id: base.end_id(), end_string: strings };
    let (words, starts, strings) = base.into_parts();
    let mut records = Records { words, starts };
    let (united, mut uses) =
        rayon::join(|| United::of(&records, &Strings(&strings), asked), || Uses::of(&records));
    if !united.replaced.is_empty() {
        united.rename(&mut records);
        uses = Uses::of(&records);
    }
    let Uses { names, irregular, tainted, tainted_records } = uses;
    let (type_table, canonical) =
        normalize(&mut records, &names, &irregular, united.restriction.as_ref());
    // In the order of `Section`.
    let sections = [
        records.starts,
        records.words,
        united.table.into_words(),
        type_table,
        names.table.into_words(),
        canonical,
        tainted,
        tainted_records.starts,
        tainted_records.words,
    ];
    const { assert!(Section::TaintedRecords as usize == 8) }
    Ok(Prepared::new(summary, strings, sections, united.restriction))
}

/// Records by id, from 1.
struct Records {
    words: Vec<u32>,
    starts: Vec<u32>,
}

impl Records {
    fn get(&self, id: u32) -> &[u32] {
        let starts = &self.starts[id as usize - 1..];
        &self.words[starts[0] as usize..starts[1] as usize]
    }

    fn get_mut(&mut self, id: u32) -> &mut [u32] {
        let starts = &self.starts[id as usize - 1..];
        &mut self.words[starts[0] as usize..starts[1] as usize]
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn ids(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.len() as u32
    }

    /// Whether a restricted table has the type: all its names are known, and that of the type that it
    /// refers to.
    fn is_admitted(&self, id: u32, restriction: &Restriction) -> bool {
        let record = self.get(id);
        if !restriction.has_name(record[0]) {
            return false;
        }
        let mut is_known = true;
        for_each_name(record, |name| is_known &= restriction.has_name(name));
        let target = if kind_of(record).has_target() { record[2] } else { 0 };
        is_known && (target == 0 || restriction.has_name(self.get(target)[0]))
    }

    /// Adds the record of `id` to a table; returns the type there that has the same.
    fn add_to(&self, table: &mut TableBuilder<TYPE_BITS>, id: u32) -> u32 {
        let record = self.get(id);
        table.find_or_add(record_hash(record), id, |other| self.get(other) == record)
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let ranges = self.starts.windows(2);
        (1..).zip(ranges.map(|range| &self.words[range[0] as usize..range[1] as usize]))
    }
}

fn starts_of(lengths: impl Iterator<Item = usize>) -> Vec<u32> {
    let mut end = 0;
    let ends = lengths.map(|length| {
        end += length as u32;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// The strings of a base, each once: they may occur twice, or begin within another (rule S3).
struct United {
    table: TableBuilder<STRING_BITS>,
    /// Which string stands for another one that is equal.
    replaced: HashMap<u32, u32>,
    /// If these are not all strings.
    restriction: Option<Restriction>,
}

impl United {
    /// All strings, or those that are `asked` for.
    fn of(records: &Records, strings: &Strings<'_>, asked: Option<Asked>) -> Self {
        let within = strings.used_within(records);
        let Some(asked) = asked else {
            let mut united = Self::with_capacity(strings.count() + within.len());
            strings.each(|start, string| united.add(strings, start, string, string_hash(string)));
            let string = |start| (start, strings.at(start));
            for (start, string) in within.into_iter().map(string) {
                united.add(strings, start, string, string_hash(string));
            }
            return united;
        };
        let mut found: Vec<(u32, u64)> = Vec::new();
        let mut names = Bits::new(strings.0.len());
        let mut look = |start: u32, string: &[u8]| {
            let hash = string_hash(string);
            if asked.has(string, hash) {
                names.set(start as usize);
                found.push((start, hash));
            }
        };
        strings.each(&mut look);
        within.iter().for_each(|&start| look(start, strings.at(start)));
        let mut united = Self::with_capacity(found.len());
        for (start, hash) in found {
            united.add(strings, start, strings.at(start), hash);
        }
        united.restriction = Some(Restriction::new(asked, names, !within.is_empty()));
        united
    }

    fn with_capacity(count: usize) -> Self {
        let table = TableBuilder::with_capacity(count);
        Self { table, replaced: HashMap::new(), restriction: None }
    }

    /// Adds the string that begins at `start`, unless an equal one is there.
    fn add(&mut self, strings: &Strings<'_>, start: u32, string: &[u8], hash: u64) {
        let first = match string {
            [] => 0,
            _ => self.table.find_or_add(hash, start, |other| strings.is_at(other, string)),
        };
        if first != start {
            self.replaced.insert(start, first);
        }
    }

    /// Gives each name one offset in all records.
    fn rename(&self, records: &mut Records) {
        for id in records.ids() {
            let record = records.get_mut(id);
            map_names(record, |name| self.replaced.get(&name).copied().unwrap_or(name));
        }
    }
}

struct Strings<'a>(&'a [u8]);

impl<'a> Strings<'a> {
    fn count(&self) -> usize {
        memchr::memchr_iter(0, self.0).count()
    }

    /// Gives each string with its offset.
    fn each(&self, mut visit: impl FnMut(u32, &[u8])) {
        let mut start = 0;
        for end in memchr::memchr_iter(0, self.0).chain([self.0.len()]) {
            if start < self.0.len() {
                visit(start as u32, &self.0[start..end]);
            }
            start = end + 1;
        }
    }

    /// Names of records that begin within a string, in order.
    fn used_within(&self, records: &Records) -> Vec<u32> {
        let mut within: Vec<u32> = Vec::new();
        for (_, record) in records.iter() {
            for_each_name(record, |name| {
                if !self.is_start(name) {
                    within.push(name);
                }
            });
        }
        within.sort_unstable();
        within.dedup();
        within
    }

    fn is_start(&self, name: u32) -> bool {
        name == 0 || self.0[name as usize - 1] == 0
    }

    fn at(&self, start: u32) -> &'a [u8] {
        let start = &self.0[start as usize..];
        &start[..memchr::memchr(0, start).unwrap_or(start.len())]
    }

    /// Whether `string` is what begins at `start`.
    fn is_at(&self, start: u32, string: &[u8]) -> bool {
        let rest = self.0[start as usize..].strip_prefix(string);
        rest.is_some_and(|rest| rest.first().is_none_or(|&byte| byte == 0))
    }
}

/// Which types names stand for, and which types that matters to.
struct Uses {
    names: Names,
    /// See [`irregular`].
    irregular: Vec<u32>,
    /// The types that [`Section::Tainted`] has.
    tainted: Vec<u32>,
    tainted_records: Records,
}

impl Uses {
    fn of(records: &Records) -> Self {
        let mut names = Names::of(records);
        let users = if names.shared.is_empty() { Users::default() } else { Users::of(records) };
        let others = names.complete(&users);
        let irregular = irregular(&names, &others, &users);
        let tainted = users.reaching([&others[..], &irregular].concat(), |_| true);
        let tainted_records = Records {
            words: tainted.iter().flat_map(|&id| records.get(id)).copied().collect(),
            starts: starts_of(tainted.iter().map(|&id| records.get(id).len())),
        };
        Self { names, irregular, tainted, tainted_records }
    }
}

/// What is known under each name.
struct Names {
    /// By id, from 1: the reference by kind and name to it, or 0.
    keys: Vec<u32>,
    /// What each name stands for.
    table: KeyTableBuilder,
    /// Names that several types have, by such a reference.
    shared: HashMap<u32, Known>,
}

/// The types of one name.
#[derive(Default)]
struct Known {
    definitions: Vec<u32>,
    forwards: Vec<u32>,
}

impl Known {
    fn add(&mut self, id: u32, records: &Records) {
        let is_definition = is_definition(records.get(id));
        if is_definition { &mut self.definitions } else { &mut self.forwards }.push(id);
    }

    /// What the name stands for: a definition if there is one, the one that is used most.
    fn completion(&self, users: &Users) -> u32 {
        let candidates =
            if self.definitions.is_empty() { &self.forwards } else { &self.definitions };
        let order = |id: &&u32| (std::cmp::Reverse(users.weight(**id)), **id);
        *candidates.iter().min_by_key(order).expect("a shared name has types")
    }
}

impl Names {
    fn of(records: &Records) -> Self {
        let key = |(_, record)| key_of(record).map_or(0, |key| Ref::from(key).0);
        let keys: Vec<u32> = records.iter().map(key).collect();
        let count = keys.iter().filter(|&&key| key != 0).count();
        let mut table = KeyTableBuilder::with_capacity(count);
        let mut shared: HashMap<u32, Known> = HashMap::new();
        for (id, &key) in (1..).zip(&keys).filter(|(_, key)| **key != 0) {
            let first = *table.entry(key, id);
            if first != id {
                let known = shared.entry(key).or_insert_with(|| {
                    let mut known = Known::default();
                    known.add(first, records);
                    known
                });
                known.add(id, records);
            }
        }
        Self { keys, table, shared }
    }

    /// The reference by kind and name to a type, or 0.
    fn key(&self, id: u32) -> u32 {
        id.checked_sub(1).map_or(0, |index| self.keys[index as usize])
    }

    /// Decides what each shared name stands for; gives the types that share it and are not that, by
    /// id.
    fn complete(&mut self, users: &Users) -> Vec<u32> {
        let mut others = Vec::new();
        let mut shared: Vec<(&u32, &Known)> = self.shared.iter().collect();
        shared.sort_unstable_by_key(|entry| entry.0);
        for (&key, known) in shared {
            let best = known.completion(users);
            *self.table.entry(key, best) = best;
            let all = known.definitions.iter().chain(&known.forwards);
            others.extend(all.filter(|&&id| id != best));
        }
        others.sort_unstable();
        others
    }
}

/// Who refers to each type: empty if nobody asks.
#[derive(Default)]
struct Users {
    starts: Vec<u32>,
    users: Vec<u32>,
}

impl Users {
    fn of(records: &Records) -> Self {
        let mut starts = vec![0; records.len() + 2];
        for (_, record) in records.iter() {
            for_each_ref(record, |target| starts[target as usize + 1] += 1);
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut users = vec![0; starts.last().copied().unwrap_or(0) as usize];
        for (id, record) in records.iter() {
            for_each_ref(record, |target| {
                let place = &mut next[target as usize];
                users[*place as usize] = id;
                *place += 1;
            });
        }
        Self { starts, users }
    }

    fn of_type(&self, id: u32) -> &[u32] {
        match self.starts.get(id as usize..id as usize + 2) {
            Some(range) => &self.users[range[0] as usize..range[1] as usize],
            None => &[],
        }
    }

    /// How often a type is used, by itself or through a pointer or modifier.
    fn weight(&self, id: u32) -> usize {
        let users = self.of_type(id);
        users.len() + users.iter().map(|&user| self.of_type(user).len()).sum::<usize>()
    }

    /// Everything that reaches one of `roots` through users that `passes` admits, by id.
    fn reaching(&self, roots: Vec<u32>, passes: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut is_found = vec![false; self.starts.len()];
        let mut found = Vec::new();
        let mut waiting = roots;
        while let Some(id) = waiting.pop() {
            if !std::mem::replace(&mut is_found[id as usize], true) {
                found.push(id);
                if passes(id) {
                    waiting.extend_from_slice(self.of_type(id));
                }
            }
        }
        found.sort_unstable();
        found
    }
}

/// Types that refer to something else than what the name they use stands for, by themselves or
/// through nameless types.
fn irregular(names: &Names, others: &[u32], users: &Users) -> Vec<u32> {
    let roots = others.iter().flat_map(|&id| users.of_type(id)).copied().collect();
    users.reaching(roots, |id| names.key(id) == 0)
}

/// Brings all records into normal form, or those that the restriction admits; gives the table of
/// them, and for each irregular type and each that occurs twice, by id, the one in the table.
fn normalize(
    records: &mut Records,
    names: &Names,
    irregular: &[u32],
    restriction: Option<&Restriction>,
) -> (Vec<u32>, Vec<u32>) {
    let order = in_order_of_reference(records, names, irregular);
    let mut canonical: HashMap<u32, u32> = irregular.iter().map(|&id| (id, id)).collect();
    let admitted: Vec<u32> = match restriction {
        Some(restriction) => {
            records.ids().filter(|&id| records.is_admitted(id, restriction)).collect()
        }
        None => records.ids().collect(),
    };
    let mut table = TableBuilder::with_capacity(admitted.len() + irregular.len());
    let mut repeated: Vec<[u32; 2]> = Vec::new();
    let mut is_irregular = irregular.iter().copied().peekable();
    for id in admitted {
        while is_irregular.next_if(|&irregular| irregular < id).is_some() {}
        if is_irregular.next_if_eq(&id).is_none() {
            map_refs(records.get_mut(id), |target| match names.key(target) {
                0 => target,
                key => key,
            });
            let first = records.add_to(&mut table, id);
            if first != id {
                repeated.push([id, first]);
            }
        }
    }
    for id in order {
        map_refs(records.get_mut(id), |target| match names.key(target) {
            0 => canonical.get(&target).copied().unwrap_or(target),
            key => key,
        });
        canonical.insert(id, records.add_to(&mut table, id));
    }
    let mut pairs = repeated;
    pairs.extend(irregular.iter().map(|&id| [id, canonical[&id]]));
    pairs.sort_unstable();
    (table.into_words(), pairs.into_flattened())
}

/// The irregular types, each after those that it refers to other than by name.
fn in_order_of_reference(records: &Records, names: &Names, irregular: &[u32]) -> Vec<u32> {
    let mut is_waiting: HashMap<u32, bool> = irregular.iter().map(|&id| (id, true)).collect();
    let mut order = Vec::with_capacity(irregular.len());
    let mut stack: Vec<(u32, bool)> = irregular.iter().rev().map(|&id| (id, false)).collect();
    while let Some((id, is_entered)) = stack.pop() {
        if is_entered {
            order.push(id);
        } else if is_waiting.insert(id, false) == Some(true) {
            stack.push((id, true));
            for_each_ref(records.get(id), |target| {
                if names.key(target) == 0 && is_waiting.get(&target) == Some(&true) {
                    stack.push((target, false));
                }
            });
        }
    }
    order
}
