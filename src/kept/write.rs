//! From fragments to the bytes that are kept.

use btfcache_schema::{PoolRecord, UnitRecord, VariableRecord};

use hashbrown::HashMap;

use crate::btf::kind::{Kind, for_each_ref, kind_of, map_names, map_refs};
use crate::fragment::{Fragment, IndexType};
use crate::merge::Union;
use crate::names::{NameId, Names};
use crate::pool::{ClassId, Key, Pool, Ref, Target};

/// A unit whose fragment may be kept: what is known of it besides that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Place of the unit in the file.
    pub unit: u32,
    /// Its key.
    pub key: [u8; 32],
    /// Its size in bytes.
    pub size: u32,
    /// Where its masked fields are.
    pub masks: Vec<u8>,
    /// Where the addresses of its functions and variables are.
    pub operands: Vec<u8>,
}

/// What is stored of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// A [`PoolRecord`].
    pub pool: Vec<u8>,
    /// Its [`UnitRecord`]s.
    pub units: Vec<u8>,
}

/// Whether a fragment says all about its unit.
fn can_be_kept(fragment: &Fragment) -> bool {
    // Aliases are made of the unit's number; notes are not repeated.
    fragment.aliases.is_empty() && !fragment.draws_on_others && !fragment.has_notes
}

/// The fragments of the units in `kept`, which is in order of unit, as far as they can be kept.
#[must_use]
pub fn write(union: &Union, names: &Names, kept: &[Kept]) -> Whole {
    let fragments: Vec<(&Fragment, &Kept)> = union
        .fragments
        .iter()
        .filter(|fragment| can_be_kept(fragment))
        .filter_map(|fragment| {
            let place = kept.binary_search_by_key(&fragment.unit, |kept| kept.unit).ok()?;
            Some((fragment, &kept[place]))
        })
        .collect();
    let mut writer = Writer {
        numbers: numbers(&union.pool, fragments.iter().map(|entry| entry.0)),
        names,
        name_numbers: HashMap::new(),
        pool: PoolRecord::default(),
    };
    writer.classes(&union.pool);
    let mut units = Vec::new();
    for (fragment, kept) in fragments {
        writer.unit(fragment, kept).append(&mut units);
    }
    Whole { pool: writer.pool.encode(), units }
}

const UNUSED: u32 = u32::MAX;

/// The new numbers of the classes that the fragments lead to.
fn numbers<'a>(pool: &Pool, fragments: impl Iterator<Item = &'a Fragment>) -> Vec<u32> {
    let mut used = vec![false; pool.len()];
    for fragment in fragments {
        let functions = fragment.functions.iter().map(|function| function.class);
        let classes = fragment.types.iter().chain(&fragment.tags).copied().chain(functions);
        classes.for_each(|class| used[class.0 as usize] = true);
        for variable in &fragment.variables {
            mark(&mut used, variable.ty.0);
        }
        if let IndexType::Int(class) = fragment.index_type {
            used[class.0 as usize] = true;
        }
    }
    for class in (0..pool.len()).rev() {
        if used[class] {
            let record = pool.record(ClassId(class as u32));
            for_each_ref(record, |reference| mark(&mut used, reference));
        }
    }
    let mut next = 0;
    let number = |is_used: bool| {
        let number = if is_used { next } else { UNUSED };
        next += u32::from(is_used);
        number
    };
    used.into_iter().map(number).collect()
}

fn mark(used: &mut [bool], reference: u32) {
    if reference != Ref::INDEX.0
        && let Target::Class(class) = Ref(reference).target()
    {
        used[class.0 as usize] = true;
    }
}

struct Writer<'a> {
    numbers: Vec<u32>,
    names: &'a Names,
    name_numbers: HashMap<u32, u32>,
    pool: PoolRecord,
}

impl Writer<'_> {
    fn classes(&mut self, pool: &Pool) {
        let mut record = Vec::new();
        for class in pool.ids() {
            if self.numbers[class.0 as usize] == UNUSED {
                continue;
            }
            record.clear();
            record.extend_from_slice(pool.record(class));
            map_names(&mut record, |name| self.name(NameId(name)));
            map_refs(&mut record, |reference| self.reference(Ref(reference)));
            if kind_of(&record) == Kind::Func {
                for tag in record[4..].chunks_exact_mut(2) {
                    tag[0] = self.name(NameId(tag[0]));
                }
            }
            self.pool.sizes.push(record.len() as u32);
            self.pool.words.extend_from_slice(&record);
        }
    }

    fn class(&self, class: ClassId) -> u32 {
        self.numbers[class.0 as usize]
    }

    fn name(&mut self, name: NameId) -> u32 {
        if name.is_none() {
            return 0;
        }
        let next = self.pool.names.len() as u32 + 1;
        let number = *self.name_numbers.entry(name.0).or_insert(next);
        if number == next {
            self.pool.names.push(self.names.to_vec(name));
        }
        number
    }

    fn reference(&mut self, reference: Ref) -> u32 {
        if reference == Ref::INDEX {
            return reference.0;
        }
        match reference.target() {
            Target::Void => reference.0,
            Target::Class(class) => Ref::class(ClassId(self.class(class))).0,
            Target::Key(Key { namespace, name }) => Ref::key(namespace, NameId(self.name(name))).0,
        }
    }

    fn unit(&mut self, fragment: &Fragment, kept: &Kept) -> UnitRecord {
        let list = |classes: &[ClassId]| classes.iter().map(|&class| self.class(class)).collect();
        let (types, tags) = (list(&fragment.types), list(&fragment.tags));
        let functions = fragment.functions.iter();
        let functions = functions.map(|function| self.class(function.class)).collect();
        let index_type = match fragment.index_type {
            IndexType::None => 0,
            IndexType::Missing => 1,
            IndexType::Int(class) => self.class(class) + 2,
        };
        let variables = fragment.variables.iter().map(|variable| VariableRecord {
            name: self.name(variable.name),
            ty: self.reference(variable.ty),
            is_external: variable.is_external,
            size: variable.size,
            tags: variable.tags.iter().map(|&tag| self.name(tag)).collect(),
        });
        UnitRecord {
            variables: variables.collect(),
            key: kept.key,
            size: kept.size,
            masks: kept.masks.clone(),
            operands: kept.operands.clone(),
            types,
            tags,
            index_type,
            functions,
            has_complete_types: fragment.has_complete_types,
        }
    }
}
