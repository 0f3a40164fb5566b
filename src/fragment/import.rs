//! Reads what a unit has in others: types, functions and variables that its references lead to, and
//! partial units that it imports (dwz), which are part of it.
//!
//! What is read becomes part of the unit's [`Local`], as if it stood behind the unit's own DIEs; its
//! references, relative to where it came from, become foreign ones of the unit, which are followed in
//! turn. So each unit has all that it needs, as without LTO or dwz, and memory does not grow with the
//! number of units. What is read twice gives the same class twice, which is one.

use anyhow::{Context as _, Result, anyhow};
use hashbrown::HashMap;

use super::local::{Import, Local, Shape};
use super::notes::{Note, Notes};
use super::walk::Walk;
use super::{Decoder, Role, Root, Scratch, compile};
use crate::dwarf::die::{DieError, DieReader, DieRef};
use crate::dwarf::foreign::{FIRST_FOREIGN, ForeignRefs, Target, UnitPlace, View, number_of};
use crate::dwarf::table::Templates;
use crate::dwarf::template::{DieKind, Encoding};
use crate::dwarf::unit::UnitHeader;

/// As many bytes of other units are kept for the next reference into them.
const MAX_KEPT: usize = 16 << 20;
/// As many tables of abbreviations are kept; partial units share one.
const MAX_TABLES: usize = 64;

/// Foreign references of the unit at hand, and other units. Reused from unit to unit.
#[derive(Debug, Default)]
pub(super) struct Imports {
    pub foreign: ForeignRefs,
    kept: HashMap<UnitPlace, OtherUnit>,
    kept_bytes: usize,
    tables: HashMap<(u64, Encoding), Templates>,
}

/// A unit that others refer to.
#[derive(Debug)]
struct OtherUnit {
    bytes: Vec<u8>,
    root: Root,
}

/// What of another unit is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// The DIE at this offset, with what is below it.
    Die(DieRef),
    /// All of it.
    Whole,
}

/// How much a [`Local`] holds.
#[derive(Clone, Copy, Debug)]
struct Filled {
    types: usize,
    functions: usize,
    parameters: usize,
    variables: usize,
    specified: usize,
    old_bitfields: usize,
    foreign_enums: usize,
    imported_units: usize,
}

impl Filled {
    fn of(local: &Local) -> Self {
        Self {
            types: local.types.len(),
            functions: local.functions.len(),
            parameters: local.parameters.len(),
            variables: local.variables.len(),
            specified: local.specified.len(),
            old_bitfields: local.old_bitfields.len(),
            foreign_enums: local.foreign_enums.len(),
            imported_units: local.imported_units.len(),
        }
    }
}

impl Decoder<'_> {
    /// Reads all that the unit in `scratch`, whose root DIE is `own`, has in other units.
    ///
    /// # Errors
    /// When another unit is damaged, or so much is read again and again as no compiler asks for.
    pub(super) fn import<const BIG: bool>(
        &mut self,
        own: &Root,
        view: View<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        scratch.local.end_own();
        self.import_parts::<BIG>(own, view, scratch)?;
        let mut known = 0;
        while known < scratch.imports.foreign.targets().len() {
            let targets = &scratch.imports.foreign.targets()[known..];
            let place = |(&target, number)| Some((view.locate(target)?, number));
            let mut found: Vec<((UnitPlace, DieRef), usize)> =
                targets.iter().zip(known..).filter_map(place).collect();
            known += targets.len();
            // Unit by unit, and functions before their parameters.
            found.sort_unstable();
            for ((place, offset), number) in found {
                self.import_one::<BIG>((place, offset), number, own, view, scratch)?;
            }
        }
        Ok(())
    }

    /// Reads the partial units that the unit imports. Their types come before its own, as the DIEs
    /// that import them do.
    fn import_parts<const BIG: bool>(
        &mut self,
        own: &Root,
        view: View<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let own_types = scratch.local.order.len();
        let own_functions = scratch.local.function_order.len();
        let mut next = 0;
        while let Some(&reference) = scratch.local.imported_units.get(next) {
            next += 1;
            let Some(number) = number_of(reference) else {
                continue;
            };
            let target = scratch.imports.foreign.targets()[number];
            let Some((place, _)) = view.locate(target) else {
                self.notes.add(Note::ImportedUnit, own.offset);
                continue;
            };
            if import_of(&scratch.local, number) == Import::Unknown {
                self.read::<BIG>(place, Piece::Whole, own, view, scratch)?;
                set_import(&mut scratch.local, number, Import::Unit);
            }
        }
        scratch.local.order.rotate_left(own_types);
        scratch.local.function_order.rotate_left(own_functions);
        scratch.local.end_of_parts = scratch.local.variables.len();
        Ok(())
    }

    /// Reads the DIE that the foreign reference of this number leads to, unless it is known.
    fn import_one<const BIG: bool>(
        &mut self,
        (place, offset): (UnitPlace, DieRef),
        number: usize,
        own: &Root,
        view: View<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if import_of(&scratch.local, number) != Import::Unknown {
            return Ok(());
        }
        let functions = scratch.local.function_order.len();
        // A type may be known by its place, but not yet by its signature.
        let target = Target::Die(place.space, view.unit(place).offset + u64::from(offset));
        let by_place = scratch.imports.foreign.refer(target);
        let Some(by_place) = number_of(by_place) else {
            return Ok(());
        };
        if import_of(&scratch.local, by_place) == Import::Unknown {
            // A type unit is there for one type: what else it has was the unit's, too.
            let is_type_unit = view.unit(place).type_head.is_some();
            let piece = if is_type_unit { Piece::Whole } else { Piece::Die(offset) };
            self.read::<BIG>(place, piece, own, view, scratch)?;
            scratch.local.function_order.truncate(functions);
        }
        let import = import_of(&scratch.local, by_place);
        set_import(&mut scratch.local, number, import);
        Ok(())
    }

    /// Reads a piece of another unit into `scratch.local`.
    fn read<const BIG: bool>(
        &mut self,
        place: UnitPlace,
        piece: Piece,
        own: &Root,
        view: View<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let header = view.unit(place);
        let unit = self.other_unit::<BIG>(place, view, scratch)?;
        let is_there = match piece {
            Piece::Die(offset) => offset >= header.first_die,
            // gcc imports whole units as well, only to make their names visible.
            Piece::Whole => matches!(unit.root.role, Role::Part | Role::Types),
        };
        if !is_there {
            scratch.imports.kept.insert(place, unit);
            return Ok(());
        }
        let templates = table(view, place, header, scratch)?;
        let filled = Filled::of(&scratch.local);
        scratch.local.switch_marks(header.size as usize);
        let mut reader =
            DieReader::<BIG>::new(self.dwarf, header, &unit.bytes, &templates, &mut scratch.names);
        reader.set_place(place.space, view.file(place.space));
        reader.string_offsets_base = unit.root.string_offsets_base;
        reader.has_long_names = unit.root.is_gcc;
        reader.foreign = Some(&mut scratch.imports.foreign);
        let mut unread = Notes::default();
        let is_read_by_itself = unit.root.role == Role::Whole;
        let mut walk = Walk {
            reader,
            context: self.context(header, unit.root.language_or(own)),
            local: &mut scratch.local,
            notes: if is_read_by_itself { &mut unread } else { &mut self.notes },
            values: &mut scratch.values,
            aside: &mut scratch.aside,
            bit_sizes: &mut scratch.bit_sizes,
            depth: 0,
        };
        let (start, result) = walk.piece(piece);
        let size = walk.reader.cursor.position.saturating_sub(start);
        let at = header.offset + u64::from(walk.reader.current);
        scratch.local.switch_marks(0);
        scratch.aside.clear();
        scratch.bit_sizes.clear();
        if result.is_err() {
            // Types that were begun, but have no record.
            let begun = &mut scratch.local.types[filled.types..];
            let unfinished = begun.iter_mut().filter(|ty| ty.shape == Shape::Void);
            unfinished.for_each(|ty| ty.kind = DieKind::Unspecified);
        }
        adopt(&mut scratch.local, &mut scratch.imports.foreign, filled, place, header.offset);
        scratch.imports.kept.insert(place, unit);
        scratch.imports.tables.insert((header.abbreviations, header.encoding), templates);
        self.dwarf.import_budget.spend(size as u64).context("too many references between units")?;
        // A reference to what is no DIE is void, like all that lead to no type.
        match result {
            Err(error) if piece == Piece::Whole => {
                Err(anyhow!(error).context(format!("at DIE {at:#x}")))
            }
            _ => Ok(()),
        }
    }

    /// Another unit: the one that was kept, or read now.
    fn other_unit<const BIG: bool>(
        &self,
        place: UnitPlace,
        view: View<'_>,
        scratch: &mut Scratch,
    ) -> Result<OtherUnit> {
        let Imports { kept, kept_bytes, .. } = &mut scratch.imports;
        if let Some(unit) = kept.remove(&place) {
            return Ok(unit);
        }
        let header = view.unit(place);
        if *kept_bytes > MAX_KEPT {
            kept.clear();
            *kept_bytes = 0;
        }
        *kept_bytes += header.size as usize;
        let dwarf = self.dwarf;
        dwarf
            .import_budget
            .spend(u64::from(header.size))
            .context("too many references between units")?;
        let templates = table(view, place, header, scratch)?;
        let mut buffer = Vec::new();
        let bytes = view.unit_bytes(place, &mut buffer)?.to_vec();
        let mut reader =
            DieReader::<BIG>::new(dwarf, header, &bytes, &templates, &mut scratch.names);
        reader.set_place(place.space, view.file(place.space));
        let root = self.root(&mut reader, &mut scratch.values);
        let root = root.map_err(|error| {
            anyhow!(error)
                .context(format!("at DIE {:#x}", header.offset + u64::from(reader.current)))
        })?;
        let root = root.unwrap_or_default();
        scratch.imports.tables.insert((header.abbreviations, header.encoding), templates);
        Ok(OtherUnit { bytes, root })
    }
}

/// The abbreviations of another unit: those that were kept, or compiled now.
fn table(
    view: View<'_>,
    place: UnitPlace,
    header: &UnitHeader,
    scratch: &mut Scratch,
) -> Result<Templates> {
    let tables = &mut scratch.imports.tables;
    if let Some(table) = tables.remove(&(header.abbreviations, header.encoding)) {
        return Ok(table);
    }
    if tables.len() >= MAX_TABLES {
        tables.clear();
    }
    let mut table = Templates::default();
    compile(view, place, header, &mut table)?;
    Ok(table)
}

impl<const BIG: bool> Walk<'_, '_, BIG> {
    /// Walks a piece of the unit; returns where it starts, too.
    fn piece(&mut self, piece: Piece) -> (usize, Result<(), DieError>) {
        if let Piece::Die(offset) = piece {
            self.reader.cursor.position = offset as usize;
        }
        let start = self.reader.cursor.position;
        let result = self.reader.next_die().and_then(|template| match (template, piece) {
            (None, _) => Ok(()),
            (Some(template), Piece::Die(_)) => self.any_declaration(template, false),
            (Some(template), Piece::Whole) => {
                self.reader.skip(template)?;
                if template.has_children { self.unit() } else { Ok(()) }
            }
        });
        (start, result)
    }
}

fn import_of(local: &Local, number: usize) -> Import {
    local.imports.get(number).copied().unwrap_or_default()
}

fn set_import(local: &mut Local, number: usize, import: Import) {
    if local.imports.len() <= number {
        local.imports.resize(number + 1, Import::Unknown);
    }
    if local.imports[number] == Import::Unknown {
        local.imports[number] = import;
    }
}

/// Makes what was read of another unit, all that `local` holds beyond `filled`, part of the unit:
/// its references become foreign ones, and those to it are known from now on.
fn adopt(
    local: &mut Local,
    foreign: &mut ForeignRefs,
    filled: Filled,
    place: UnitPlace,
    unit_offset: u64,
) {
    let mut refer =
        |offset: DieRef| foreign.refer(Target::Die(place.space, unit_offset + u64::from(offset)));
    let mut known: Vec<(DieRef, Import)> = Vec::new();
    for (ty, index) in local.types[filled.types..].iter().zip(filled.types as u32..) {
        known.push((refer(ty.offset), Import::Type(index)));
    }
    for (function, index) in
        local.functions[filled.functions..].iter().zip(filled.functions as u32..)
    {
        known.push((refer(function.offset), Import::Function(index)));
    }
    let parameters = &local.parameters[filled.parameters..];
    for (parameter, index) in parameters.iter().zip(filled.parameters as u32..) {
        known.push((refer(parameter.offset), Import::Parameter(index)));
    }
    for (variable, index) in
        local.variables[filled.variables..].iter().zip(filled.variables as u32..)
    {
        known.push((refer(variable.offset), Import::Variable(index)));
    }
    for (reference, import) in known {
        if let Some(number) = number_of(reference) {
            set_import(local, number, import);
        }
    }
    for_each_reference(local, filled, |reference| {
        if *reference != 0 && *reference < FIRST_FOREIGN {
            *reference = refer(*reference);
        }
    });
}

/// Visits all references of what `local` holds beyond `filled`. Locations of parameters are forgotten:
/// they would be looked for in the bytes of the wrong unit.
fn for_each_reference(local: &mut Local, filled: Filled, mut visit: impl FnMut(&mut DieRef)) {
    for ty in &local.types[filled.types..] {
        let words = &mut local.words[ty.start as usize..][..ty.len as usize];
        match ty.shape {
            Shape::Void | Shape::Plain => {}
            Shape::Alias => visit(&mut words[0]),
            Shape::Array => visit(&mut words[3]),
            Shape::Target | Shape::TaggedPointer => visit(&mut words[2]),
            Shape::Members => {
                words[3..]
                    .as_chunks_mut::<3>()
                    .0
                    .iter_mut()
                    .for_each(|member| visit(&mut member[1]));
            }
            Shape::Prototype | Shape::FunctionValue => {
                visit(&mut words[2]);
                words[3..].as_chunks_mut::<2>().0.iter_mut().for_each(|entry| visit(&mut entry[1]));
            }
        }
    }
    for function in &mut local.functions[filled.functions..] {
        visit(&mut function.result);
        visit(&mut function.origin);
        visit(&mut function.specification);
    }
    for parameter in &mut local.parameters[filled.parameters..] {
        visit(&mut parameter.ty);
        visit(&mut parameter.origin);
        parameter.location = super::local::ParameterLocation::None;
    }
    for variable in &mut local.variables[filled.variables..] {
        visit(&mut variable.ty);
        visit(&mut variable.specification);
    }
    local.specified[filled.specified..].iter_mut().for_each(|entry| visit(&mut entry.1));
    local.old_bitfields[filled.old_bitfields..].iter_mut().for_each(|field| visit(&mut field.ty));
    local.foreign_enums[filled.foreign_enums..].iter_mut().for_each(|entry| visit(&mut entry.1));
    local.imported_units[filled.imported_units..].iter_mut().for_each(visit);
}
