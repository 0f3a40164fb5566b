//! Which classes of a module its base has.

use super::Prepared;
use crate::btf::kind::{Info, Kind, for_each_name, kind_of, map_names, map_refs};
use crate::names::{NameId, Names};
use crate::pool::{ClassId, Key, Pool, Ref, Target, is_definition};

/// The classes of a pool that are found in a base.
#[derive(Debug)]
pub struct Matching<'a> {
    base: &'a Prepared,
    names: &'a Names,
    /// By class: the type in the base's table with the same normal form, or 0.
    nominal: Vec<u32>,
    /// By class: the type of the base that it is unless its unit deviates, or 0.
    ids: Vec<u32>,
    /// What the index type of all arrays is in the base, or 0.
    index_type: u32,
    /// The type that was found last. What comes after it there is likely to be looked for next: types
    /// of the same headers.
    last: u32,
    record: Vec<u32>,
}

impl<'a> Matching<'a> {
    /// Matches all classes of `pool`, whose arrays have this index type.
    #[must_use]
    pub fn new(
        base: &'a Prepared,
        names: &'a Names,
        pool: &Pool,
        index_type: Option<ClassId>,
    ) -> Self {
        let mut matching = Self {
            base,
            names,
            nominal: Vec::with_capacity(pool.len()),
            ids: Vec::with_capacity(pool.len()),
            index_type: 0,
            last: 0,
            record: Vec::new(),
        };
        let index_type = index_type.and_then(|class| matching.find(pool.record(class)));
        matching.index_type = index_type.map_or(0, |(id, _)| id);
        matching.extend(pool);
        matching
    }

    /// Matches the classes that were added since.
    pub fn extend(&mut self, pool: &Pool) {
        for class in self.ids.len()..pool.len() {
            let record = pool.record(ClassId(class as u32));
            // A FUNC class holds more than the record of one: see `function`.
            let is_type = kind_of(record) != Kind::Func;
            let (nominal, is_regular) =
                is_type.then(|| self.find(record)).flatten().unwrap_or((0, false));
            self.nominal.push(nominal);
            self.ids.push(if is_regular { nominal } else { 0 });
        }
    }

    /// The base.
    #[must_use]
    pub const fn base(&self) -> &'a Prepared {
        self.base
    }

    /// The base id of a class in units where it does not deviate, or 0.
    #[must_use]
    #[inline]
    pub fn id(&self, class: ClassId) -> u32 {
        self.ids.get(class.0 as usize).copied().unwrap_or(0)
    }

    /// By class: see [`Self::id`].
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The type in the base's table with the normal form of a class, or 0.
    #[must_use]
    pub fn nominal(&self, class: ClassId) -> u32 {
        self.nominal.get(class.0 as usize).copied().unwrap_or(0)
    }

    /// The base id of the index type of all arrays, or 0.
    #[must_use]
    pub const fn index_type(&self) -> u32 {
        self.index_type
    }

    /// What the base knows under a name, and whether that is a definition.
    #[must_use]
    pub fn named(&self, key: Key) -> Option<(u32, bool)> {
        let name = self.names.offset_in(self.base, key.name)?;
        let id = self.base.named(Ref::key(key.namespace, NameId(name)).0)?;
        Some((id, is_definition(self.base.record(id))))
    }

    /// The function of this name and prototype in the base (rule B1).
    #[must_use]
    pub fn function(&self, name: &[u8], prototype: u32) -> Option<u32> {
        let name = self.base.string(name)?;
        let record = [name, Info::new(Kind::Func, 0, false).0, prototype];
        self.base.class(&record).map(|(id, _)| id)
    }

    /// The tag of this value on a type of the base.
    #[must_use]
    pub fn tag(&self, value: NameId, target: u32, component: i32) -> Option<u32> {
        let value = self.names.offset_in(self.base, value)?;
        let record = [value, Info::new(Kind::DeclTag, 0, false).0, target, component as u32];
        self.base.class(&record).map(|(id, _)| id)
    }

    /// The type of the base with the normal form of `class`.
    fn find(&mut self, class: &[u32]) -> Option<(u32, bool)> {
        let mut is_known = true;
        for_each_name(class, |name| is_known &= name == 0 || self.offset(NameId(name)).is_some());
        if !is_known {
            return None;
        }
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.extend_from_slice(class);
        map_names(&mut record, |name| self.offset(NameId(name)).unwrap_or(0));
        map_refs(&mut record, |reference| {
            let found = self.reference(Ref(reference));
            is_known &= found.is_some();
            found.unwrap_or(0)
        });
        let found = is_known.then(|| self.base.class_near(self.last + 1, &record)).flatten();
        self.last = found.map_or(self.last, |(id, _)| id);
        self.record = record;
        found
    }

    fn reference(&self, reference: Ref) -> Option<u32> {
        if reference == Ref::INDEX {
            return Some(self.index_type).filter(|&id| id != 0);
        }
        match reference.target() {
            Target::Void => Some(0),
            Target::Class(class) => Some(self.nominal(class)).filter(|&id| id != 0),
            Target::Key(Key { namespace, name }) => {
                self.offset(name).map(|name| Ref::key(namespace, NameId(name)).0)
            }
        }
    }

    fn offset(&self, name: NameId) -> Option<u32> {
        self.names.offset_in(self.base, name)
    }
}
