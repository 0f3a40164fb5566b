//! Append: what comes after the types of all units: functions with their prototypes and tags,
//! then the sections with variables (spec/encoding 3.3, 5.8, 6.4, 6.5).

use anyhow::{Result, bail};
use hashbrown::HashSet;

use crate::base::Matching;
use crate::btf::kind::{Info, Kind, MAX_VLEN, kind_of};
use crate::emit::Datasec;
use crate::merge::{Item, Numbered, Union};
use crate::names::NameId;
use crate::options::{Feature, Options};
use crate::pool::{Pool, Ref, Target};
use crate::select::{Chosen, ChosenVariables, Objects};

/// What was appended besides items.
#[derive(Debug)]
pub struct Appended<'a> {
    /// The functions, with the prototypes they really got.
    pub functions: Vec<Chosen<'a>>,
    /// Id of each function.
    pub function_ids: Vec<u32>,
    /// The sections with variables.
    pub datasecs: Vec<Datasec>,
}

/// `KF_ARENA_RET`, `KF_ARENA_ARG1`, `KF_ARENA_ARG2` (6.4) and `KF_FASTCALL` (6.5) in the flags of
/// a kfunc.
const FASTCALL: u32 = 1 << 12;
const ARENA_RESULT: u32 = 1 << 13;
const ARENA_FIRST: u32 = 1 << 14;
const ARENA_SECOND: u32 = 1 << 15;

/// Gives ids to functions and sections.
///
/// # Errors
/// When a kfunc is flagged for an arena pointer where it has none.
pub fn append<'a>(
    objects: &Objects<'_>,
    union: &mut Union,
    numbered: &mut Numbered<'_>,
    chosen: &[Chosen<'a>],
    variables: &ChosenVariables,
    options: &Options,
) -> Result<Appended<'a>> {
    let mut appended = Appended {
        functions: chosen.to_vec(),
        function_ids: Vec::with_capacity(chosen.len()),
        datasecs: Vec::new(),
    };
    let tags = KfuncTags {
        is_on: options.features.has(Feature::DeclTag),
        has_attributes: options.features.has(Feature::Attributes),
        kfunc: objects.names.inline(b"bpf_kfunc"),
        fastcall: objects.names.inline(b"bpf_fastcall"),
        arena: objects.names.inline(b"address_space(1)"),
    };
    for index in 0..chosen.len() {
        let function = &mut appended.functions[index];
        let id = tags.append(index as u32, function, &mut union.pool, numbered)?;
        appended.function_ids.push(id);
    }
    appended.datasecs = datasecs(objects, numbered, variables);
    for index in 0..appended.datasecs.len() {
        numbered.assign(Item::Datasec(index as u32));
    }
    Ok(appended)
}

struct KfuncTags {
    is_on: bool,
    has_attributes: bool,
    kfunc: NameId,
    fastcall: NameId,
    arena: NameId,
}

impl KfuncTags {
    /// Appends one function; returns its id.
    fn append(
        &self,
        index: u32,
        function: &mut Chosen<'_>,
        pool: &mut Pool,
        numbered: &mut Numbered<'_>,
    ) -> Result<u32> {
        if let Some(flags) = function.kfunc_flags
            && self.has_attributes
        {
            self.mark_arena_pointers(flags, function, pool, numbered)?;
        }
        let prototype = numbered.id_or_new(function.unit, function.prototype);
        let known = numbered.base().and_then(|base| base.function(function.name, prototype));
        let id = known.unwrap_or_else(|| numbered.assign(Item::Function(index)));
        let mut tags: Vec<(NameId, i32)> = pool.record(function.class)[4..]
            .chunks_exact(2)
            .map(|tag| (NameId(tag[0]), tag[1] as i32))
            .collect();
        if let Some(flags) = function.kfunc_flags
            && self.is_on
        {
            tags.push((self.kfunc, -1));
            if flags & FASTCALL != 0 {
                tags.push((self.fastcall, -1));
            }
        }
        let mut seen = HashSet::new();
        for (value, component) in tags {
            let is_known = |base: &Matching<'_>| base.tag(value, id, component).is_some();
            if seen.insert((value, component)) && !numbered.base().is_some_and(is_known) {
                numbered.assign(Item::FunctionTag(index, value, component));
            }
        }
        Ok(id)
    }

    /// Replaces flagged pointers of a kfunc by ones into address space 1 (6.4).
    fn mark_arena_pointers(
        &self,
        flags: u32,
        function: &mut Chosen<'_>,
        pool: &mut Pool,
        numbered: &mut Numbered<'_>,
    ) -> Result<()> {
        let mut record = pool.record(function.prototype).to_vec();
        let places = [(ARENA_RESULT, 2), (ARENA_FIRST, 4), (ARENA_SECOND, 6)];
        let mut is_changed = false;
        for (flag, place) in places {
            if flags & flag == 0 {
                continue;
            }
            let pointee = record.get(place).and_then(|&word| pointee(pool, Ref(word)));
            let Some(pointee) = pointee else {
                bail!(
                    "kfunc `{}` is flagged for an arena pointer where it has no pointer",
                    String::from_utf8_lossy(function.name)
                );
            };
            let tag = [self.arena.0, Info::new(Kind::TypeTag, 0, true).0, pointee.0];
            let tag = pool.intern(&tag);
            numbered.add_classes(pool);
            numbered.id_or_new(function.unit, tag);
            let pointer = [0, Info::new(Kind::Ptr, 0, false).0, Ref::class(tag).0];
            let pointer = pool.intern(&pointer);
            numbered.add_classes(pool);
            numbered.id_or_new(function.unit, pointer);
            record[place] = Ref::class(pointer).0;
            is_changed = true;
        }
        if is_changed {
            function.prototype = pool.intern(&record);
            numbered.add_classes(pool);
        }
        Ok(())
    }
}

/// What a pointer points to, if the reference is one.
fn pointee(pool: &Pool, reference: Ref) -> Option<Ref> {
    let Target::Class(class) = reference.target() else {
        return None;
    };
    let record = pool.record(class);
    (kind_of(record) == Kind::Ptr).then(|| Ref(record[2]))
}

/// The sections that have variables, by index, each with its variables by offset.
fn datasecs(
    objects: &Objects<'_>,
    numbered: &Numbered<'_>,
    variables: &ChosenVariables,
) -> Vec<Datasec> {
    let ids = numbered.items.iter().zip(numbered.first_id..);
    let ids = ids.filter(|(item, _)| matches!(item, Item::Variable(..))).map(|(_, id)| id);
    let mut entries: Vec<(u32, [u32; 3])> = ids
        .zip(&variables.places)
        .map(|(id, place)| (place.section, [id, place.offset, place.size]))
        .collect();
    // Stable: variables at one offset stay in id order (5.8).
    entries.sort_by_key(|(section, entry)| (*section, entry[1]));
    let by_section = entries.chunk_by(|one, two| one.0 == two.0);
    let datasec = |entries: &[(u32, [u32; 3])]| {
        let section = objects.section_name(entries[0].0);
        let entries = entries.iter().map(|entry| entry.1).take(MAX_VLEN as usize).collect();
        Datasec { name: objects.names.inline(section), entries }
    };
    by_section.map(datasec).collect()
}
