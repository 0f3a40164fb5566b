//! Unit -> fragment: what one compile unit contributes, without addresses and section offsets.
//!
//! `walk` reads the DIEs into `local`, `classes` interns the types, `functions` and `variables`
//! judge the rest. A [`Decoder`] belongs to one thread and keeps its pool from unit to unit.

mod aliases;
mod classes;
mod composite;
mod enumeration;
mod functions;
mod import;
mod language;
mod local;
mod notes;
mod packed;
mod split;
mod types;
mod variables;
mod walk;

use anyhow::{Context as _, Result, anyhow};

pub use notes::{Note, Notes};
pub(crate) use variables::address_of;
pub(crate) use walk::Addresses;

use crate::btf::kind::{Info, Kind};
use crate::dwarf::die::{DieReader, Values};
use crate::dwarf::foreign::{Space, UnitPlace, View};
use crate::dwarf::location::Passing;
use crate::dwarf::sections::Dwarf;
use crate::dwarf::table::Templates;
use crate::dwarf::template::{DieKind, Slot};
use crate::dwarf::unit::UnitHeader;
use crate::names::{NameCache, NameId};
use crate::options::Options;
use crate::pool::{ClassId, Key, Pool, Ref};

/// Rounds of telling definitions of one name apart. Each tells some apart for good, and real ones
/// need one or two.
const MAX_ROUNDS: u32 = 8;

/// What is wrong or remarkable about a function, as one word of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionFlags(pub u32);

impl FunctionFlags {
    /// A parameter arrives in another register than it should (4.5.6).
    pub const UNEXPECTED: u32 = 1;
    /// A packed struct is passed on the stack (4.5.2).
    pub const UNCERTAIN: u32 = 2;
    /// Parameters are in another order than in the source (4.3.6).
    pub const REORDERED: u32 = 4;
    /// A parameter has no location (4.5.5).
    pub const OPTIMIZED: u32 = 8;
    /// clang changed the signature (4.5.1).
    pub const SIGNATURE_CHANGED: u32 = 16;

    fn set(&mut self, flag: u32, on: bool) {
        self.0 |= if on { flag } else { 0 };
    }

    /// Whether `flag` is set.
    #[must_use]
    pub const fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

/// A function of a unit that could be emitted. Its class is a FUNC record with two additions:
/// [`FunctionFlags`], then value and component index of each tag.
#[derive(Clone, Copy, Debug)]
pub struct FunctionUse {
    /// The FUNC class.
    pub class: ClassId,
    /// `DW_AT_low_pc`, or 0: a volatile operand, no part of the fragment's identity.
    pub address: u64,
    /// Offset in the unit of the DIE that has the address.
    pub die: u32,
}

/// A variable of a unit that could be emitted.
#[derive(Clone, Debug)]
pub struct VariableUse {
    /// Its name.
    pub name: NameId,
    /// Its type.
    pub ty: Ref,
    /// Whether it is visible outside of its unit.
    pub is_external: bool,
    /// Size of its type in bytes.
    pub size: u64,
    /// Its `btf_decl_tag`s.
    pub tags: Vec<NameId>,
    /// Where it is: a volatile operand.
    pub address: u64,
    /// Offset in the unit of the DIE that has the address.
    pub die: u32,
}

/// What the unit says about the index type of arrays (3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexType {
    /// It has neither an array nor an `int`.
    None,
    /// Its first base type named `int`.
    Int(ClassId),
    /// It has an array, but no `int`: one must be made up if no earlier unit had one.
    Missing,
}

/// What one unit contributes. Class ids are of the pool of the decoder that made it.
#[derive(Debug)]
pub struct Fragment {
    /// Place of the unit in the file.
    pub unit: u32,
    /// Its types, each class once, in the order of pahole's core ids.
    pub types: Vec<ClassId>,
    /// DECL_TAG classes of its types, which come after all types.
    pub tags: Vec<ClassId>,
    /// Names under which references find definitions whose own name the unit defines twice.
    pub aliases: Vec<(Key, ClassId)>,
    /// The index type.
    pub index_type: IndexType,
    /// Its functions, in order of completion.
    pub functions: Vec<FunctionUse>,
    /// Its variables, in DIE order.
    pub variables: Vec<VariableUse>,
    /// Whether it defines all types that it uses by value. C++ compilers leave some to other units, and
    /// others are told to.
    pub has_complete_types: bool,
    /// Whether it has something that lies in other units (LTO, dwz, type units): then it depends on
    /// more than its own bytes.
    pub draws_on_others: bool,
    /// Whether BTF could not express all of it.
    pub has_notes: bool,
}

/// Decodes units one after the other. One per thread.
#[derive(Debug)]
pub struct Decoder<'a> {
    dwarf: &'a Dwarf<'a>,
    options: &'a Options,
    /// What is added to the numbers of units.
    first_unit: u32,
    passing: Passing,
    well_known: WellKnown,
    /// The classes of all units decoded so far.
    pub pool: Pool,
    /// What could not be expressed.
    pub notes: Notes,
    listed: aliases::Listed,
    scratch: Scratch,
}

/// What a decoder has learnt, for one that goes on with another file of the same names.
#[derive(Debug, Default)]
pub struct Known {
    /// The classes of all units decoded so far.
    pub pool: Pool,
    /// What could not be expressed.
    pub notes: Notes,
    listed: aliases::Listed,
}

/// Names that the encoder itself looks for.
#[derive(Clone, Copy, Debug)]
struct WellKnown {
    int: NameId,
    sanitized_int: NameId,
    type_tag: NameId,
    decl_tag: NameId,
}

#[derive(Debug, Default)]
struct Scratch {
    bytes: Vec<u8>,
    templates: Templates,
    names: NameCache,
    values: Values,
    local: local::Local,
    aside: Vec<u32>,
    bit_sizes: Vec<(u32, u32)>,
    classes: classes::Classes,
    functions: functions::Functions,
    imports: import::Imports,
}

/// What a unit is for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    /// A unit of its own.
    #[default]
    Whole,
    /// A part of those that import it (dwz).
    Part,
    /// A type for those that refer to it.
    Types,
    /// Its DWARF is in another file.
    Skeleton,
}

/// A unit to be decoded.
#[derive(Clone, Copy, Debug)]
struct Subject<'d> {
    /// Its number, that of the skeleton if it has one.
    unit: u32,
    place: UnitPlace,
    header: &'d UnitHeader,
    /// The root of the skeleton, of a unit in another file.
    skeleton: Option<&'d Root>,
}

/// The root DIE of a unit.
#[derive(Debug, Default)]
struct Root {
    /// Offset of the unit.
    offset: u64,
    has_children: bool,
    role: Role,
    string_offsets_base: u64,
    /// The file that has its DWARF, the folder that it was compiled in, and what names both units.
    dwo_name: NameId,
    folder: NameId,
    dwo_id: Option<u64>,
    language: u16,
    name: NameId,
    is_clang: bool,
    is_gcc: bool,
    /// It was compiled with one of gcc's `-femit-struct-debug-*`.
    has_declared_types: bool,
    addresses_base: u64,
    loclists_base: u64,
}

/// Compiles the abbreviations of the unit at `place`.
fn compile(
    view: View<'_>,
    place: UnitPlace,
    header: &UnitHeader,
    templates: &mut Templates,
) -> Result<()> {
    let (section, budget) = view.abbreviations(place.space);
    let compiled = templates.compile(section, header.abbreviations, header.encoding, budget);
    compiled
        .with_context(|| format!("failed to read the abbreviations at {:#x}", header.abbreviations))
}

impl Root {
    /// The one of both that says its language: partial units need not.
    const fn language_or<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.language == 0 { other } else { self }
    }
}

/// More words than the classes of a kernel with so much DWARF take.
fn room_for(dwarf: &Dwarf<'_>) -> usize {
    let size: u64 = dwarf.units.iter().map(|unit| u64::from(unit.size)).sum();
    usize::try_from(size / 64).unwrap_or(usize::MAX)
}

impl<'a> Decoder<'a> {
    /// A decoder for the units of `dwarf`.
    #[must_use]
    pub fn new(dwarf: &'a Dwarf<'a>, options: &'a Options) -> Self {
        let target = dwarf.elf.target();
        Self {
            dwarf,
            options,
            first_unit: 0,
            passing: Passing::of(target.machine, target.address_size()),
            well_known: WellKnown {
                int: dwarf.names.inline(b"int"),
                sanitized_int: dwarf.names.inline(types::SANITIZED_INT),
                type_tag: dwarf.names.inline(b"btf_type_tag"),
                decl_tag: dwarf.names.inline(b"btf_decl_tag"),
            },
            pool: Pool::with_room(room_for(dwarf)),
            notes: Notes::default(),
            listed: aliases::Listed::default(),
            scratch: Scratch::default(),
        }
    }

    /// A decoder that knows already what another one has learnt. Numbers of units start at `first_unit`.
    #[must_use]
    pub fn resume(
        dwarf: &'a Dwarf<'a>,
        options: &'a Options,
        first_unit: u32,
        known: Known,
    ) -> Self {
        let Known { pool, notes, listed } = known;
        Self { first_unit, pool, notes, listed, ..Self::new(dwarf, options) }
    }

    /// What it has learnt.
    #[must_use]
    pub fn into_known(self) -> Known {
        let Self { pool, notes, listed, .. } = self;
        Known { pool, notes, listed }
    }

    /// Decodes the unit at this place in the file; `None` if the options leave it out.
    ///
    /// # Errors
    /// When the unit is damaged: the message names it and the DIE.
    pub fn decode(&mut self, unit: u32) -> Result<Option<Fragment>> {
        let header = &self.dwarf.units[unit as usize];
        let notes = self.notes.count();
        let result = if self.dwarf.elf.target().big_endian {
            self.decode_as::<true>(unit, header)
        } else {
            self.decode_as::<false>(unit, header)
        };
        let mut fragment = result.with_context(|| {
            format!("failed to decode the unit at {:#x} of `.debug_info`", header.offset)
        })?;
        if let Some(fragment) = &mut fragment {
            fragment.has_notes = self.notes.count() != notes;
        }
        Ok(fragment)
    }

    fn decode_as<const BIG: bool>(
        &mut self,
        unit: u32,
        header: &'a UnitHeader,
    ) -> Result<Option<Fragment>> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut buffer = std::mem::take(&mut scratch.bytes);
        let place = UnitPlace { space: Space::Info, index: unit };
        let unit = self.first_unit + unit;
        let subject = Subject { unit, place, header, skeleton: None };
        let view = View { dwarf: self.dwarf, split: None };
        let result = self.decode_bytes::<BIG>(subject, view, &mut scratch, &mut buffer);
        scratch.bytes = buffer;
        self.scratch = scratch;
        result
    }

    fn decode_bytes<const BIG: bool>(
        &mut self,
        subject: Subject<'_>,
        view: View<'_>,
        scratch: &mut Scratch,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Fragment>> {
        let Subject { unit, place, header, skeleton } = subject;
        let dwarf = self.dwarf;
        compile(view, place, header, &mut scratch.templates)?;
        let size = header.size as usize;
        let bytes = view.unit_bytes(place, buffer)?;
        let mut reader =
            DieReader::<BIG>::new(dwarf, header, bytes, &scratch.templates, &mut scratch.names);
        reader.set_place(place.space, view.split);
        let Some(mut root) = self.root(&mut reader, &mut scratch.values).map_err(|error| {
            anyhow!(error)
                .context(format!("at DIE {:#x}", header.offset + u64::from(reader.current)))
        })?
        else {
            return Ok(None);
        };
        // gcc writes strings of up to three bytes in place (AT_string_form in its dwarf2out.c).
        reader.has_long_names = root.is_gcc;
        scratch.imports.foreign.clear();
        reader.foreign = Some(&mut scratch.imports.foreign);
        match (root.role, skeleton) {
            (_, Some(skeleton)) => root.addresses_base = skeleton.addresses_base,
            (Role::Skeleton, None) => return self.decode_split::<BIG>(unit, header, &root),
            (Role::Part | Role::Types, None) => return Ok(None),
            (Role::Whole, None) => {}
        }
        if !self.admits(&root) {
            return Ok(None);
        }
        scratch.local.reset(size);
        scratch.local.is_big_endian = BIG;
        scratch.local.address_size = header.encoding.address_size.into();
        let context = self.context(header, &root);
        scratch.aside.clear();
        scratch.bit_sizes.clear();
        let mut walk = walk::Walk {
            reader,
            context,
            local: &mut scratch.local,
            notes: &mut self.notes,
            values: &mut scratch.values,
            aside: &mut scratch.aside,
            bit_sizes: &mut scratch.bit_sizes,
            depth: 0,
        };
        if root.has_children {
            walk.unit().map_err(|error| {
                let offset = header.offset + u64::from(walk.reader.current);
                anyhow!(error).context(format!("at DIE {offset:#x}"))
            })?;
        }
        let draws_on_others = !scratch.imports.foreign.targets().is_empty();
        if draws_on_others {
            self.import::<BIG>(&root, view, scratch)
                .context("failed to read what it has in other units")?;
        }
        let local = &mut scratch.local;
        let mut fragment = self.intern(unit, header.offset, local, &mut scratch.classes);
        fragment.has_complete_types = language::is_c(root.language) && !root.has_declared_types;
        fragment.draws_on_others = draws_on_others || skeleton.is_some();
        let judging = functions::Judging {
            options: self.options,
            names: &dwarf.names,
            passing: self.passing,
            is_clang: root.is_clang,
            encoding: header.encoding,
            lists: view.lists(header),
            loclists_base: view.lists_base(header, root.loclists_base),
            bytes,
        };
        scratch
            .functions
            .judge(local, &scratch.classes, &mut self.pool, &judging, &mut fragment.functions)
            .context("failed to read a location list")?;
        variables::collect(
            local,
            &scratch.classes,
            &dwarf.names,
            &self.passing,
            &mut fragment.variables,
        );
        Ok(Some(fragment))
    }

    /// What the walk over the unit of `root` depends on.
    fn context(&self, header: &UnitHeader, root: &Root) -> walk::Context<'a> {
        let is_c = language::is_c(root.language);
        let compat = self.options.compat_pahole;
        walk::Context {
            options: self.options,
            names: &self.dwarf.names,
            unit_offset: header.offset,
            sorts_members: !is_c && (!compat || root.language == gimli::DW_LANG_Rust.0),
            has_linkage_names: !is_c && !compat,
            has_base_members: !compat,
            addresses: walk::Addresses {
                section: &self.dwarf.addresses,
                base: root.addresses_base,
                width: header.encoding.address_size,
            },
            type_tag: self.well_known.type_tag,
            decl_tag: self.well_known.decl_tag,
            int: self.well_known.int,
            sanitized_int: self.well_known.sanitized_int,
        }
    }

    fn root<const BIG: bool>(
        &self,
        reader: &mut DieReader<'_, BIG>,
        values: &mut Values,
    ) -> Result<Option<Root>, crate::dwarf::die::DieError> {
        if reader.at_end() {
            return Ok(None);
        }
        let start = reader.cursor.position;
        let template = match reader.next_die()? {
            Some(template) if template.kind == DieKind::Root => template,
            _ => return Ok(None),
        };
        reader.read(template, values)?;
        // Indexed strings need the base, which may stand after the first of them: read again.
        if let Some(base) = values.get(Slot::StrOffsetsBase)
            && reader.string_offsets_base != base
        {
            reader.string_offsets_base = base;
            reader.cursor.position = start;
            reader.next_die()?;
            reader.read(template, values)?;
        }
        let root = self.root_of(template, values);
        let string_offsets_base = reader.string_offsets_base;
        Ok(Some(Root { offset: reader.unit_offset(), string_offsets_base, ..root }))
    }

    fn root_of(&self, template: &crate::dwarf::template::Template, values: &Values) -> Root {
        let producer = NameId(values.number(Slot::Producer) as u32);
        let mut buffer = [0; 4];
        let producer = self.dwarf.names.bytes(producer, &mut buffer);
        Root {
            offset: 0,
            string_offsets_base: 0,
            has_children: template.has_children,
            dwo_name: NameId(values.number(Slot::DwoName) as u32),
            folder: NameId(values.number(Slot::CompDir) as u32),
            dwo_id: values.get(Slot::DwoId),
            role: match template.tag {
                gimli::DW_TAG_skeleton_unit => Role::Skeleton,
                _ if values.has(Slot::DwoName) => Role::Skeleton,
                gimli::DW_TAG_partial_unit => Role::Part,
                gimli::DW_TAG_type_unit => Role::Types,
                _ => Role::Whole,
            },
            language: values.number(Slot::Language) as u16,
            name: values.name(),
            is_gcc: producer.starts_with(b"GNU C") || producer.starts_with(b"GNU GIMPLE"),
            has_declared_types: memchr::memmem::find(producer, b"-femit-struct-debug").is_some(),
            is_clang: memchr::memmem::find(producer, b"clang").is_some(),
            addresses_base: values.number(Slot::AddrBase),
            loclists_base: values.number(Slot::LoclistsBase),
        }
    }

    fn admits(&self, root: &Root) -> bool {
        if !self.options.languages.admits(root.language) {
            return false;
        }
        let Some(prefix) = &self.options.exclude_unit_prefix else {
            return true;
        };
        let mut buffer = [0; 4];
        let name = self.dwarf.names.bytes(root.name, &mut buffer);
        name.is_empty() || !name.starts_with(prefix)
    }

    /// Interns the types of the unit. If it defines a name twice, this is repeated with aliases;
    /// again if types that only differ in what they lead to come apart by that.
    fn intern(
        &mut self,
        unit: u32,
        offset: u64,
        local: &mut local::Local,
        classes: &mut classes::Classes,
    ) -> Fragment {
        classes.intern(local, &mut self.pool, &mut self.notes, offset);
        let (mut types, mut has_duplicates) = self.list_types(unit, local, classes);
        let has_aliases = has_duplicates;
        for round in 0..MAX_ROUNDS {
            if !has_duplicates {
                break;
            }
            classes.give_back_nominal_refs(local);
            aliases::assign(unit, round, local, classes, &self.pool, &self.dwarf.names);
            self.listed.forget(&types);
            classes.intern(local, &mut self.pool, &mut Notes::default(), offset);
            (types, _) = self.list_types(unit, local, classes);
            has_duplicates = aliases::has_ambiguous(local, classes, &self.pool);
        }
        let aliases = if has_aliases {
            aliases::list(local, classes, &self.pool, &self.dwarf.names)
        } else {
            Vec::new()
        };
        let index_type = match local.first_int {
            Some(int) => classes.class(int).map_or(IndexType::None, IndexType::Int),
            None if local.has_array => IndexType::Missing,
            None => IndexType::None,
        };
        Fragment {
            unit,
            types,
            tags: self.list_tags(local, classes),
            aliases,
            index_type,
            functions: Vec::new(),
            variables: Vec::new(),
            has_complete_types: true,
            draws_on_others: false,
            has_notes: false,
        }
    }

    /// Lists the classes of the unit's types in id order, each once; and whether some name is
    /// defined twice.
    fn list_types(
        &mut self,
        unit: u32,
        local: &local::Local,
        classes: &classes::Classes,
    ) -> (Vec<ClassId>, bool) {
        let mut types = Vec::with_capacity(local.order.len());
        self.listed.start(&self.pool);
        let mut add = |class: ClassId| {
            if self.listed.add(unit, class) {
                types.push(class);
            }
        };
        if classes.has_extra() {
            for &index in &local.order {
                if local.types[index as usize].has_several_classes() {
                    classes.extra(index).for_each(&mut add);
                }
                classes.class(index).into_iter().for_each(&mut add);
            }
        } else {
            local.order.iter().filter_map(|&index| classes.class(index)).for_each(&mut add);
        }
        types.shrink_to_fit();
        (types, self.listed.has_duplicates)
    }

    /// DECL_TAGs in ascending order of their targets, those of one target as they stand (2.8.5).
    fn list_tags(&mut self, local: &local::Local, classes: &classes::Classes) -> Vec<ClassId> {
        if local.type_tags.is_empty() {
            return Vec::new();
        }
        let mut by_type = local.type_tags.clone();
        by_type.sort_by_key(|entry| entry.0);
        let mut tags = Vec::new();
        let info = Info::new(Kind::DeclTag, 0, false).0;
        for &index in &local.order {
            // Tags of classes are dropped by pahole, and BTF has no other use for them (2.8.5).
            if local.types[index as usize].kind == DieKind::Class && self.options.compat_pahole {
                continue;
            }
            let start = by_type.partition_point(|entry| entry.0 < index);
            for (_, tag) in by_type[start..].iter().take_while(|entry| entry.0 == index) {
                let target = classes.reference(index);
                let record = [tag.value.0, info, target.0, tag.component as u32];
                tags.push(self.pool.intern(&record));
            }
        }
        tags
    }
}
