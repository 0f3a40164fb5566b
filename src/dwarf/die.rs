//! Reads DIEs one after the other: an abbreviation code, then the attributes that matter.

use super::cursor::{Cursor, Eof};
use super::foreign::{FIRST_FOREIGN, ForeignRefs, Space, Target};
use super::other_file::OtherFile;
use super::sections::Dwarf;
use super::simple::{Simple, SimpleName, WINDOW};
use super::table::Templates;
use super::template::{Op, SLOTS, Slot, Step, Template, indirect_step};
use super::unit::UnitHeader;
use crate::names::{NameCache, NameId, Names};

/// What is wrong with a DIE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DieError {
    /// The unit ends inside the DIE or its children.
    #[error("the unit ends too early")]
    Eof,
    /// The abbreviation code is not in the table.
    #[error("abbreviation code {0} is not defined")]
    UnknownCode(u64),
    /// Children nest deeper than any compiler's output.
    #[error("children nest deeper than {0} levels")]
    TooDeep(u32),
    /// Annotations that are their own successors, or long chains of them at every DIE.
    #[error("annotations refer to each other without end")]
    EndlessAnnotations,
    /// `DW_FORM_indirect` with a form that cannot be there.
    #[error("attribute form {0:#x} cannot be indirect")]
    BadIndirect(u64),
}

impl From<Eof> for DieError {
    fn from(_: Eof) -> Self {
        Self::Eof
    }
}

/// A reference to a DIE of the same unit: its offset from the unit's header. 0 is none. What leads out
/// of the unit begins at [`FIRST_FOREIGN`].
pub type DieRef = u32;

/// A reference that cannot be followed.
pub const FOREIGN: DieRef = DieRef::MAX;

/// A range of bytes of the unit, as kept in a slot.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Offset in the unit.
    pub start: u32,
    /// Size in bytes.
    pub size: u32,
}

/// The values of one DIE by slot. Reused from DIE to DIE.
#[derive(Debug)]
pub struct Values {
    present: u64,
    values: [u64; SLOTS],
}

impl Default for Values {
    fn default() -> Self {
        Self { present: 0, values: [0; SLOTS] }
    }
}

impl Values {
    #[inline(always)]
    fn set(&mut self, slot: Slot, value: u64) {
        self.present |= 1 << slot as u32;
        self.values[slot as usize] = value;
    }

    /// Whether the DIE has the attribute.
    #[inline(always)]
    #[must_use]
    pub const fn has(&self, slot: Slot) -> bool {
        self.present & (1 << slot as u32) != 0
    }

    /// The value, if there is one.
    #[inline(always)]
    #[must_use]
    pub const fn get(&self, slot: Slot) -> Option<u64> {
        if self.has(slot) { Some(self.values[slot as usize]) } else { None }
    }

    /// The value, or 0.
    #[inline(always)]
    #[must_use]
    pub const fn number(&self, slot: Slot) -> u64 {
        if self.has(slot) { self.values[slot as usize] } else { 0 }
    }

    /// A reference, or 0.
    #[inline(always)]
    #[must_use]
    pub const fn reference(&self, slot: Slot) -> DieRef {
        self.number(slot) as DieRef
    }

    /// The name.
    #[inline(always)]
    #[must_use]
    pub const fn name(&self) -> NameId {
        NameId(self.number(Slot::Name) as u32)
    }

    /// A range of bytes, if there is one.
    #[must_use]
    pub const fn block(&self, slot: Slot) -> Option<Block> {
        match self.get(slot) {
            Some(value) => Some(Block { start: value as u32, size: (value >> 32) as u32 }),
            None => None,
        }
    }
}

/// Walks the DIEs of one unit.
#[derive(Debug)]
pub struct DieReader<'a, const BIG: bool> {
    /// The unit's bytes and where the walk is.
    pub cursor: Cursor<'a, BIG>,
    dwarf: &'a Dwarf<'a>,
    unit: &'a UnitHeader,
    templates: &'a Templates,
    all_names: &'a Names,
    names: &'a mut NameCache,
    /// `DW_AT_str_offsets_base` of the unit: set once the root has been read.
    pub string_offsets_base: u64,
    /// Whether no name of up to three bytes is in `.debug_str`, as in gcc's units.
    pub has_long_names: bool,
    /// Offset of the DIE that is being read, for messages.
    pub current: u32,
    /// Where references out of the unit are kept, if they are to be followed.
    pub foreign: Option<&'a mut ForeignRefs>,
    /// The section that the unit lies in.
    pub space: Space,
    /// The file that it lies in, if that is another than the one being encoded.
    file: Option<&'a OtherFile>,
}

impl<'a, const BIG: bool> DieReader<'a, BIG> {
    /// Starts at the first DIE of `unit`, whose bytes are `bytes`.
    #[must_use]
    pub fn new(
        dwarf: &'a Dwarf<'a>,
        unit: &'a UnitHeader,
        bytes: &'a [u8],
        templates: &'a Templates,
        names: &'a mut NameCache,
    ) -> Self {
        let cursor = Cursor::new(bytes, unit.first_die as usize);
        // Without the attribute, DWARF 5 units start after the section's header.
        let string_offsets_base = if unit.encoding.offset_size == 8 { 16 } else { 8 };
        Self {
            cursor,
            dwarf,
            unit,
            templates,
            all_names: &dwarf.names,
            names,
            string_offsets_base,
            has_long_names: false,
            current: 0,
            foreign: None,
            space: Space::Info,
            file: None,
        }
    }

    /// Says that the unit lies in this section, of another file if there is one.
    pub fn set_place(&mut self, space: Space, file: Option<&'a OtherFile>) {
        (self.space, self.file) = (space, file);
        if let Some(file) = file {
            // Before DWARF 5 the section had no header.
            let header = if self.unit.encoding.version < 5 { 0 } else { self.string_offsets_base };
            let contribution = file.contribution(space, self.unit.offset);
            self.string_offsets_base = contribution.string_offsets.saturating_add(header);
        }
    }

    /// Reads the next abbreviation code; `None` at the end of a list of children.
    #[inline(always)]
    pub fn next_die(&mut self) -> Result<Option<&'a Template>, DieError> {
        self.current = self.cursor.position as u32;
        let code = self.cursor.uleb()?;
        if code == 0 {
            return Ok(None);
        }
        self.templates.get(code).map(Some).ok_or(DieError::UnknownCode(code))
    }

    /// Offset of the unit in its section.
    #[must_use]
    pub const fn unit_offset(&self) -> u64 {
        self.unit.offset
    }

    /// The names that [`NameId`]s stand for.
    #[must_use]
    pub const fn names(&self) -> &'a Names {
        self.all_names
    }

    /// Whether the unit's bytes are used up.
    #[must_use]
    pub const fn at_end(&self) -> bool {
        self.cursor.position >= self.cursor.bytes.len()
    }

    /// Reads the attributes of a DIE into `values`.
    #[inline(always)]
    pub fn read(&mut self, template: &Template, values: &mut Values) -> Result<(), DieError> {
        values.present = 0;
        for step in self.templates.steps(template) {
            self.cursor.skip(step.before)?;
            match step.slot {
                Some(slot) => {
                    let value = self.value(step.op, step)?;
                    values.set(slot, value);
                }
                None if step.op == Op::Indirect => {
                    self.indirect(template, step, Some(&mut *values))?;
                }
                None => self.pass(step.op)?,
            }
        }
        self.cursor.skip(template.after)?;
        Ok(())
    }

    /// Reads name, type and number of a DIE whose template is [`Simple`].
    #[inline(always)]
    pub fn read_simple(&mut self, simple: &Simple) -> Result<(NameId, DieRef, u64), DieError> {
        let mut name = NameId::NONE;
        if simple.name == SimpleName::InPlace {
            self.cursor.skip(simple.before_name)?;
            name = self.inline_name()?;
        }
        let bytes = self.cursor.bytes.get(self.cursor.position..).ok_or(Eof)?;
        self.cursor.skip(simple.size)?;
        let copy;
        let window = match bytes.first_chunk() {
            Some(window) => window,
            None => {
                copy = last_window(bytes);
                &copy
            }
        };
        if simple.name == SimpleName::Offset {
            let offset = u64::from(simple.name_in::<BIG>(window));
            name = self.all_names.at_offset(offset, self.has_long_names, self.names);
        }
        Ok((name, simple.type_in::<BIG>(window), simple.number_in::<BIG>(window)))
    }

    /// Passes over the attributes of a DIE.
    #[inline(always)]
    pub fn skip(&mut self, template: &Template) -> Result<(), DieError> {
        if let Some(size) = template.fixed_size {
            self.cursor.skip(size)?;
            return Ok(());
        }
        for step in self.templates.steps(template) {
            self.cursor.skip(step.before)?;
            if step.op == Op::Indirect {
                self.indirect(template, step, None)?;
            } else {
                self.pass(step.op)?;
            }
        }
        self.cursor.skip(template.after)?;
        Ok(())
    }

    /// Passes over a DIE with everything below it.
    pub fn skip_tree(&mut self, template: &Template) -> Result<(), DieError> {
        self.skip(template)?;
        if template.has_children { self.skip_children() } else { Ok(()) }
    }

    /// Passes over a list of children, whose first DIE is next.
    pub fn skip_children(&mut self) -> Result<(), DieError> {
        let mut depth = 1_u32;
        while depth > 0 {
            match self.next_die()? {
                None => depth -= 1,
                Some(template) => {
                    self.skip(template)?;
                    depth += u32::from(template.has_children);
                }
            }
        }
        Ok(())
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block(&self, block: Block) -> &'a [u8] {
        &self.cursor.bytes[block.start as usize..][..block.size as usize]
    }

    #[inline(always)]
    fn value(&mut self, op: Op, step: &Step) -> Result<u64, DieError> {
        Ok(match op {
            Op::Strp(4) => {
                let offset = u64::from(self.cursor.u32()?);
                u64::from(self.all_names.at_offset(offset, self.has_long_names, self.names).0)
            }
            Op::LocalReference(4) => u64::from(self.cursor.u32()?),
            Op::Unsigned(width) => self.cursor.unsigned(width)?,
            Op::Preset => step.value as u64,
            Op::String => u64::from(self.inline_name()?.0),
            Op::Sleb => self.cursor.sleb()? as u64,
            Op::Uleb => self.cursor.uleb()?,
            Op::Flag => u64::from(self.cursor.u8()? != 0),
            other => self.rare_value(other)?,
        })
    }

    /// Reads a string in place. gcc writes those of up to three bytes this way.
    #[inline(always)]
    fn inline_name(&mut self) -> Result<NameId, DieError> {
        let start = self.cursor.position;
        if let Some(Ok(bytes)) = self.cursor.bytes.get(start..start + 4).map(<[u8; 4]>::try_from) {
            let word = u32::from_le_bytes(bytes);
            // The lowest byte that is 0 shows as the lowest set bit (carries go upwards only).
            let zeros = word.wrapping_sub(0x0101_0101) & !word & 0x8080_8080;
            if zeros != 0 {
                let length = zeros.trailing_zeros() / 8;
                self.cursor.position = start + length as usize + 1;
                return Ok(self.all_names.short(word & ((1 << (8 * length)) - 1)));
            }
        }
        let bytes = self.cursor.string()?;
        Ok(self.all_names.inline(bytes))
    }

    fn rare_value(&mut self, op: Op) -> Result<u64, DieError> {
        Ok(match op {
            Op::Strp(width) => {
                let offset = self.cursor.unsigned(width)?;
                u64::from(self.all_names.at_offset(offset, self.has_long_names, self.names).0)
            }
            Op::LineStrp(width) => {
                let offset = self.cursor.unsigned(width)?;
                u64::from(self.line_string(offset).0)
            }
            Op::Strx(width) => {
                let index =
                    if width == 0 { self.cursor.uleb()? } else { self.cursor.unsigned(width)? };
                u64::from(self.indexed_string(index).0)
            }
            Op::LocalReference(width) => self.local(|cursor| cursor.unsigned(width))?,
            Op::LocalReferenceUleb => self.local(Cursor::uleb)?,
            Op::SectionReference(width) => {
                let offset = self.cursor.unsigned(width)?;
                self.section_reference(offset)
            }
            Op::Block(_) | Op::Data16 => self.read_block(op)?,
            Op::Signature => {
                let signature = self.cursor.u64()?;
                self.refer(Target::Signature(signature))
            }
            Op::AltReference(width) => {
                let offset = self.cursor.unsigned(width)?;
                self.refer(Target::Die(Space::Supplementary, offset))
            }
            Op::AltStrp(width) => {
                let offset = self.cursor.unsigned(width)?;
                u64::from(self.string_elsewhere(offset).0)
            }
            Op::Preset
            | Op::Unsigned(_)
            | Op::Flag
            | Op::Uleb
            | Op::Sleb
            | Op::String
            | Op::Indirect => return Err(DieError::Eof),
        })
    }

    fn local(
        &mut self,
        read: impl FnOnce(&mut Cursor<'a, BIG>) -> Result<u64, Eof>,
    ) -> Result<u64, DieError> {
        let offset = read(&mut self.cursor)?;
        Ok(if offset < u64::from(self.unit.size) { offset } else { u64::from(FOREIGN) })
    }

    fn section_reference(&mut self, offset: u64) -> u64 {
        match offset.checked_sub(self.unit.offset) {
            // Whatever lies in `.debug_types` refers to `.debug_info` this way.
            Some(local) if local < u64::from(self.unit.size) && self.space != Space::Types => local,
            _ if self.space == Space::Supplementary => {
                self.refer(Target::Die(Space::Supplementary, offset))
            }
            _ => self.refer(Target::Die(Space::Info, offset)),
        }
    }

    fn refer(&mut self, target: Target) -> u64 {
        let is_too_large = self.unit.size >= FIRST_FOREIGN;
        let foreign = self.foreign.as_mut().filter(|_| !is_too_large);
        u64::from(foreign.map_or(FOREIGN, |foreign| foreign.refer(target)))
    }

    fn read_block(&mut self, op: Op) -> Result<u64, DieError> {
        let size = match op {
            Op::Block(0) => self.cursor.uleb()?,
            Op::Block(width) => self.cursor.unsigned(width)?,
            _ => 16,
        };
        let start = self.cursor.position as u64;
        self.cursor.skip_block(size)?;
        Ok(start | size << 32)
    }

    fn indirect(
        &mut self,
        template: &Template,
        step: &Step,
        values: Option<&mut Values>,
    ) -> Result<(), DieError> {
        let form = self.cursor.uleb()?;
        let (op, slot) = indirect_step(template.kind, step.value, form, self.unit.encoding)
            .ok_or(DieError::BadIndirect(form))?;
        match (slot, values) {
            (Some(slot), Some(values)) => {
                let value = self.value(op, &Step { value: 1, ..*step })?;
                values.set(slot, value);
                Ok(())
            }
            _ => self.pass(op),
        }
    }

    fn pass(&mut self, op: Op) -> Result<(), DieError> {
        match op {
            Op::Preset | Op::Indirect => {}
            Op::Unsigned(size)
            | Op::LocalReference(size)
            | Op::SectionReference(size)
            | Op::AltReference(size)
            | Op::Strp(size)
            | Op::LineStrp(size)
            | Op::AltStrp(size) => self.cursor.skip(u32::from(size))?,
            Op::Strx(size) if size != 0 => self.cursor.skip(u32::from(size))?,
            Op::Flag => self.cursor.skip(1)?,
            Op::Signature => self.cursor.skip(8)?,
            Op::Uleb | Op::Sleb | Op::LocalReferenceUleb | Op::Strx(_) => {
                self.cursor.uleb()?;
            }
            Op::String => {
                self.cursor.string()?;
            }
            Op::Block(_) | Op::Data16 => {
                self.read_block(op)?;
            }
        }
        Ok(())
    }

    fn line_string(&self, offset: u64) -> NameId {
        let strings = self.file.map_or(&self.dwarf.line_strings, |file| &file.line_strings);
        self.all_names.in_other(strings, offset)
    }

    /// A string by its index in the unit's part of `.debug_str_offsets` (DWARF 5, 7.26).
    fn indexed_string(&mut self, index: u64) -> NameId {
        let width = self.unit.encoding.offset_size;
        let place = index
            .checked_mul(u64::from(width))
            .and_then(|distance| distance.checked_add(self.string_offsets_base))
            .and_then(|place| usize::try_from(place).ok());
        let Some(place) = place else {
            return NameId::NONE;
        };
        let offsets = self.file.map_or(&self.dwarf.string_offsets, |file| &file.string_offsets);
        let offset = Cursor::<BIG>::new(offsets, place).unsigned(width);
        match offset {
            Err(_) => NameId::NONE,
            Ok(offset) if self.unit.encoding.is_elsewhere => self.string_elsewhere(offset),
            Ok(offset) => self.all_names.at_offset(offset, self.has_long_names, self.names),
        }
    }

    /// A string that is not one of those that offsets stand for.
    fn string_elsewhere(&mut self, offset: u64) -> NameId {
        let Self { all_names, names, dwarf, .. } = self;
        match (self.file, &dwarf.own_strings, &dwarf.supplementary) {
            (Some(file), ..) | (None, None, Some(file)) => {
                all_names.in_other(&file.strings, offset)
            }
            (None, Some(own), _) => names.get(offset, || all_names.in_other(own, offset)),
            (None, None, None) => NameId::NONE,
        }
    }
}

/// What the end of the unit leaves of a window.
#[cold]
fn last_window(bytes: &[u8]) -> [u8; WINDOW] {
    let mut window = [0; WINDOW];
    window[..bytes.len()].copy_from_slice(bytes);
    window
}
