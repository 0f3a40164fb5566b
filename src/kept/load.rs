//! From what was kept to fragments of the run at hand.

use btfcache_schema::{FormatError, PoolRecord, UnitRecord, VariableRecord};
use hashbrown::HashMap;
use rayon::prelude::*;

use super::Known;
use crate::btf::kind::{Info, Kind, for_each_ref, map_names, map_refs};
use crate::fragment::{Fragment, FunctionUse, IndexType, Notes, VariableUse};
use crate::merge::WorkerOutput;
use crate::names::{NameId, Names};
use crate::pool::{ClassId, Key, Pool, Ref, Target};

/// A unit of the file at hand whose fragment is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its place in the file.
    pub unit: u32,
    /// The number of its record.
    pub number: u32,
    /// The addresses of its functions, then of its variables.
    pub addresses: Vec<u64>,
}

/// Where in `.debug_str` names begin that units refer to: a bit for each byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetNames(pub Vec<u64>);

impl MetNames {
    /// None of a section of so many bytes.
    #[must_use]
    pub fn of(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    /// Adds the one at `offset`.
    #[inline(always)]
    pub fn meet(&mut self, offset: u64) {
        if let Some(word) = self.0.get_mut((offset / 64) as usize) {
            *word |= 1 << (offset % 64);
        }
    }

    /// Adds those of others.
    pub fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    /// Their offsets.
    fn offsets(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let bits = std::iter::successors((word != 0).then_some(word), |&rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            });
            bits.map(move |rest| index as u32 * 64 + rest.trailing_zeros())
        })
    }
}

impl Known {
    /// The fragments of `hits`, as if a worker had decoded them.
    ///
    /// # Errors
    /// When a record is not what it should be, or does not fit the file.
    pub fn load(
        &self,
        hits: &[Hit],
        met: &MetNames,
        names: &Names,
    ) -> Result<WorkerOutput, FormatError> {
        let units: Vec<UnitRecord> = hits
            .par_iter()
            .map(|hit| UnitRecord::decode(self.record(hit.number)))
            .collect::<Result<_, _>>()?;
        let name_ids = name_ids(&self.pool, met, names)?;
        let mut loader = Loader { names: name_ids, classes: Vec::new(), pool: Pool::new() };
        let starts = starts(&self.pool)?;
        let used = used(&self.pool, &starts, &units)?;
        loader.classes(&self.pool, &starts, &used)?;
        let fragments = hits
            .par_iter()
            .zip(units)
            .map(|(hit, unit)| loader.fragment(hit, &unit))
            .collect::<Result<_, _>>()?;
        Ok(WorkerOutput { pool: loader.pool, fragments, notes: Notes::default() })
    }
}

const fn invalid(field: &'static str) -> FormatError {
    FormatError::Invalid { field }
}

/// Where each record starts, and where the last one ends; each must be whole.
fn starts(pool: &PoolRecord) -> Result<Vec<usize>, FormatError> {
    let mut starts = vec![0];
    let mut start = 0;
    for &size in &pool.sizes {
        let record = &pool.words[start..start + size as usize];
        let info = Info(*record.get(1).ok_or(invalid("record"))?);
        let kind = info.kind().ok_or(invalid("kind"))?;
        let wanted = 3 + kind.info_words() + info.vlen() as usize * kind.element_words();
        let is_whole = match kind {
            // Its flags, then its tags.
            Kind::Func => record.len() >= 4 && record.len().is_multiple_of(2),
            Kind::Var | Kind::Datasec => false,
            _ => record.len() == wanted,
        };
        if !is_whole {
            return Err(invalid("record"));
        }
        start += size as usize;
        starts.push(start);
    }
    Ok(starts)
}

/// Which classes the units lead to.
fn used(
    pool: &PoolRecord,
    starts: &[usize],
    units: &[UnitRecord],
) -> Result<Vec<bool>, FormatError> {
    let mut used = vec![false; pool.sizes.len()];
    let mut mark = |class: u32| {
        *used.get_mut(class as usize).ok_or(invalid("class"))? = true;
        Ok(())
    };
    for unit in units {
        let classes = unit.types.iter().chain(&unit.tags).chain(&unit.functions);
        classes.copied().try_for_each(&mut mark)?;
        for variable in &unit.variables {
            if let Some(class) = class_in(variable.ty) {
                mark(class)?;
            }
        }
        if unit.index_type >= 2 {
            mark(unit.index_type - 2)?;
        }
    }
    for class in (0..used.len()).rev() {
        if !used[class] {
            continue;
        }
        let mut is_sound = true;
        for_each_ref(&pool.words[starts[class]..starts[class + 1]], |reference| {
            if let Some(target) = class_in(reference) {
                is_sound &= (target as usize) < class;
                used[(target as usize).min(class)] = true;
            }
        });
        if !is_sound {
            return Err(invalid("reference"));
        }
    }
    Ok(used)
}

/// The class that a reference leads to.
fn class_in(reference: u32) -> Option<u32> {
    if reference == Ref::INDEX.0 {
        return None;
    }
    match Ref(reference).target() {
        Target::Class(class) => Some(class.0),
        Target::Void | Target::Key(_) => None,
    }
}

/// What the names of the pool are in the file at hand.
fn name_ids(pool: &PoolRecord, met: &MetNames, names: &Names) -> Result<Vec<NameId>, FormatError> {
    let mut by_text: HashMap<Vec<u8>, NameId> = HashMap::new();
    for offset in met.offsets() {
        let Some(name) = names.at_direct_offset(offset) else {
            continue;
        };
        if by_text.insert(names.to_vec(name), name).is_some_and(|other| other != name) {
            // Not one string for each text: nobody could say which of them is meant.
            return Err(invalid("names"));
        }
    }
    let id = |text: &Vec<u8>| by_text.get(text).copied().unwrap_or_else(|| names.inline(text));
    Ok(pool.names.par_iter().map(id).collect())
}

struct Loader {
    names: Vec<NameId>,
    /// New ids of classes.
    classes: Vec<ClassId>,
    pool: Pool,
}

impl Loader {
    fn classes(
        &mut self,
        pool: &PoolRecord,
        starts: &[usize],
        used: &[bool],
    ) -> Result<(), FormatError> {
        let mut record = Vec::new();
        for (class, range) in starts.windows(2).enumerate() {
            if !used[class] {
                // Never asked for.
                self.classes.push(ClassId(0));
                continue;
            }
            record.clear();
            record.extend_from_slice(&pool.words[range[0]..range[1]]);
            self.translate(&mut record)?;
            let id = self.pool.intern(&record);
            self.classes.push(id);
        }
        Ok(())
    }

    fn translate(&self, record: &mut [u32]) -> Result<(), FormatError> {
        let mut is_sound = true;
        let mut name = |number: u32| match self.name(number) {
            Ok(name) => name.0,
            Err(_) => {
                is_sound = false;
                0
            }
        };
        map_names(record, &mut name);
        let kind = Info(record[1]).kind();
        if kind == Some(Kind::Func) {
            record[4..].chunks_exact_mut(2).for_each(|tag| tag[0] = name(tag[0]));
        }
        map_refs(record, |reference| {
            self.reference(reference).map_or_else(
                |_| {
                    is_sound = false;
                    0
                },
                |reference| reference.0,
            )
        });
        if kind == Some(Kind::Func) {
            let prototype = class_in(record[2]).map(|class| self.pool.record(ClassId(class)));
            is_sound &= prototype
                .is_some_and(|prototype| Info(prototype[1]).kind() == Some(Kind::FuncProto));
        }
        if is_sound { Ok(()) } else { Err(invalid("record")) }
    }

    fn name(&self, number: u32) -> Result<NameId, FormatError> {
        match number {
            0 => Ok(NameId::NONE),
            number => self.names.get(number as usize - 1).copied().ok_or(invalid("name")),
        }
    }

    fn class(&self, class: u32) -> Result<ClassId, FormatError> {
        self.classes.get(class as usize).copied().ok_or(invalid("class"))
    }

    fn reference(&self, reference: u32) -> Result<Ref, FormatError> {
        if reference == Ref::INDEX.0 {
            return Ok(Ref::INDEX);
        }
        match Ref(reference).target() {
            Target::Void => Ok(Ref::VOID),
            Target::Class(class) => Ok(Ref::class(self.class(class.0)?)),
            Target::Key(Key { namespace, name }) => Ok(Ref::key(namespace, self.name(name.0)?)),
        }
    }

    fn fragment(&self, hit: &Hit, unit: &UnitRecord) -> Result<Fragment, FormatError> {
        let list = |classes: &[u32]| -> Result<Vec<ClassId>, FormatError> {
            classes.iter().map(|&class| self.class(class)).collect()
        };
        if hit.addresses.len() != unit.functions.len() + unit.variables.len() {
            return Err(invalid("addresses"));
        }
        let (of_functions, of_variables) = hit.addresses.split_at(unit.functions.len());
        let function = |(&class, &address): (&u32, &u64)| {
            let class = self.class(class)?;
            if Info(self.pool.record(class)[1]).kind() != Some(Kind::Func) {
                return Err(invalid("function"));
            }
            Ok(FunctionUse { class, address, die: 0 })
        };
        let variable = |(variable, &address): (&VariableRecord, &u64)| {
            Ok(VariableUse {
                name: self.name(variable.name)?,
                ty: self.reference(variable.ty)?,
                is_external: variable.is_external,
                size: variable.size,
                tags: variable.tags.iter().map(|&tag| self.name(tag)).collect::<Result<_, _>>()?,
                address,
                die: 0,
            })
        };
        let functions = unit.functions.iter().zip(of_functions).map(function);
        let variables = unit.variables.iter().zip(of_variables).map(variable);
        Ok(Fragment {
            unit: hit.unit,
            types: list(&unit.types)?,
            tags: list(&unit.tags)?,
            aliases: Vec::new(),
            index_type: match unit.index_type {
                0 => IndexType::None,
                1 => IndexType::Missing,
                class => IndexType::Int(self.class(class - 2)?),
            },
            functions: functions.collect::<Result<_, _>>()?,
            variables: variables.collect::<Result<_, _>>()?,
            has_complete_types: unit.has_complete_types,
            draws_on_others: false,
            has_notes: false,
        })
    }
}
