//! The stream of a unit: its bytes with what is volatile masked. Both ways to the key make it here,
//! they only differ in how they find the fields.

use super::masks::{BasePlaces, Mask, Masks};
use super::plan::{Base, Field};
use super::strings::digest_at;
use super::{Sources, Workspace};
use crate::dwarf::cursor::Cursor;
use crate::dwarf::location::{Expressions, Source};
use crate::dwarf::sections::Dwarf;
use crate::dwarf::unit::UnitHeader;
use crate::fragment::Addresses;

/// So many strings are looked up at once.
const GROUP: usize = 1 << 10;

/// What a unit says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digests {
    /// Its bytes, what is volatile masked.
    pub stream: [u8; 32],
    /// Its strings.
    pub strings: [u8; 32],
}

/// What the offsets are that indices of a unit count from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bases {
    strings: Option<u64>,
    addresses: u64,
    lists: u64,
}

impl Bases {
    /// What indices into `.debug_addr` lead to.
    pub fn addresses<'a>(&self, dwarf: &'a Dwarf<'_>, header: &UnitHeader) -> Addresses<'a> {
        Addresses {
            section: &dwarf.addresses,
            base: self.addresses,
            width: header.encoding.address_size,
        }
    }
}

/// Reads the offsets at `places` of a unit. `None` if they are not in it.
pub(super) fn bases<const BIG: bool>(
    header: &UnitHeader,
    bytes: &[u8],
    places: BasePlaces,
) -> Option<Bases> {
    let read = |place: u32| {
        let mut cursor = Cursor::<BIG>::new(bytes, place as usize);
        let value = cursor.unsigned(header.encoding.offset_size);
        if place == 0 { Some(None) } else { value.ok().map(Some) }
    };
    Some(Bases {
        strings: read(places.strings)?,
        addresses: read(places.addresses)?.unwrap_or(0),
        lists: read(places.lists)?.unwrap_or(0),
    })
}

/// Writes the stream of one unit.
#[derive(Debug)]
pub(super) struct Masking<'a, 'w, const BIG: bool> {
    sources: &'a Sources<'a>,
    header: &'a UnitHeader,
    /// The bytes of the unit.
    pub bytes: &'a [u8],
    workspace: &'w mut Workspace,
    bases: Bases,
    /// How far the unit was taken.
    done: usize,
}

impl<'a, 'w, const BIG: bool> Masking<'a, 'w, BIG> {
    /// Starts behind the header, which is no part of the stream.
    pub fn new(
        sources: &'a Sources<'a>,
        header: &'a UnitHeader,
        bytes: &'a [u8],
        workspace: &'w mut Workspace,
    ) -> Self {
        workspace.restart(BasePlaces::default());
        let done = header.first_die as usize;
        Self { sources, header, bytes, workspace, bases: Bases::default(), done }
    }

    /// Starts again, knowing what indices count from. `None` if that is not in the unit.
    pub fn restart(&mut self, places: BasePlaces) -> Option<()> {
        self.bases = bases::<BIG>(self.header, self.bytes, places)?;
        self.workspace.restart(places);
        self.done = self.header.first_die as usize;
        Some(())
    }

    /// Takes note that an offset that indices count from is at `place`.
    pub const fn found(places: &mut BasePlaces, base: Base, place: usize) {
        let place = place as u32;
        match base {
            Base::Strings => places.strings = place,
            Base::Addresses => places.addresses = place,
            Base::Lists => places.lists = place,
        }
    }

    /// The same as [`Self::mask`], and keeps the mask.
    #[inline(always)]
    pub fn mask_and_keep(&mut self, place: usize, field: Field, zeros: u32) -> Option<usize> {
        let gap = place.checked_sub(self.done)? as u32;
        self.workspace.masks.push(Mask { gap, field, zeros });
        self.mask(place, field, zeros)
    }

    /// How far the unit was taken.
    pub const fn done(&self) -> usize {
        self.done
    }

    /// Takes everything before `place` as it stands, then masks `field` there and `zeros` bytes behind
    /// it. Returns where that ends.
    #[inline(always)]
    pub fn mask(&mut self, place: usize, field: Field, zeros: u32) -> Option<usize> {
        self.workspace.stream.copy(self.bytes, self.done, place)?;
        let end = match field {
            Field::Zeros => place,
            Field::String4 => {
                let offset = Cursor::<BIG>::new(self.bytes, place).u32().ok()?;
                self.string(offset.into());
                place + 4
            }
            other => self.rare(place, other)?,
        };
        let end = end.checked_add(zeros as usize)?;
        self.done = end;
        (end <= self.bytes.len()).then_some(end)
    }

    /// Takes a string. What it says is looked up later, with many others: the processor then waits for
    /// all of them at once.
    #[inline(always)]
    fn string(&mut self, offset: u64) {
        self.workspace.offsets.push(offset);
        self.workspace.all_offsets.push(offset);
        if self.workspace.offsets.len() == GROUP {
            self.look_up();
        }
    }

    #[inline(never)]
    fn look_up(&mut self) {
        let Workspace { offsets, strings, remembered, .. } = &mut *self.workspace;
        let section = self.sources.dwarf.names.section();
        for &offset in &*offsets {
            let look_up = || self.sources.strings.digest(section, offset);
            strings.array(remembered.get(offset, look_up));
        }
        offsets.clear();
    }

    #[inline(never)]
    fn rare(&mut self, place: usize, field: Field) -> Option<usize> {
        let mut cursor = Cursor::<BIG>::new(self.bytes, place);
        match field {
            Field::Zeros => {}
            Field::String4 | Field::String8 => {
                let offset = cursor.unsigned(if field == Field::String8 { 8 } else { 4 }).ok()?;
                self.string(offset);
            }
            Field::LineString4 | Field::LineString8 => {
                let width = if field == Field::LineString8 { 8 } else { 4 };
                let offset = cursor.unsigned(width).ok()?;
                let section = &self.sources.dwarf.line_strings;
                self.workspace.stream.array(&digest_at(section, offset));
            }
            Field::Index => {
                let index = cursor.uleb().ok()?;
                self.length(cursor.position - place);
                self.indexed_string(index);
            }
            Field::Index1 | Field::Index2 | Field::Index3 | Field::Index4 => {
                let width = field as u8 - Field::Index1 as u8 + 1;
                let index = cursor.unsigned(width).ok()?;
                self.indexed_string(index);
            }
            Field::Number => {
                cursor.uleb().ok()?;
                self.length(cursor.position - place);
            }
            Field::AddressIndex => {
                let index = cursor.uleb().ok()?;
                self.length(cursor.position - place);
                let addresses = self.bases.addresses(self.sources.dwarf, self.header);
                let is_known = addresses.get::<BIG>(index).is_some();
                self.workspace.stream.array(&[is_known.into()]);
            }
            Field::InPlace => {
                cursor.string().ok()?;
                self.length(cursor.position - place);
            }
            Field::List4 | Field::List8 => {
                let width = if field == Field::List8 { 8 } else { 4 };
                let offset = cursor.unsigned(width).ok()?;
                self.list(Source::List(offset))?;
            }
            Field::ListIndex => {
                let index = cursor.uleb().ok()?;
                self.length(cursor.position - place);
                self.list(Source::Index(index, self.bases.lists))?;
            }
        }
        Some(cursor.position)
    }

    fn length(&mut self, length: usize) {
        self.workspace.stream.array(&(length as u64).to_le_bytes());
    }

    fn indexed_string(&mut self, index: u64) {
        match self.offset_of_string(index) {
            Some(offset) => self.string(offset),
            None => self.string(u64::MAX),
        }
    }

    /// DWARF 5, 7.26.
    fn offset_of_string(&self, index: u64) -> Option<u64> {
        let width = self.header.encoding.offset_size;
        // Without the attribute, units start after the section's header.
        let base = self.bases.strings.unwrap_or(if width == 8 { 16 } else { 8 });
        let place = index.checked_mul(width.into())?.checked_add(base)?;
        let section = &self.sources.dwarf.string_offsets;
        Cursor::<BIG>::new(section, usize::try_from(place).ok()?).unsigned(width).ok()
    }

    fn list(&mut self, source: Source<'_>) -> Option<()> {
        let sections = self.sources.lists(self.header);
        let Workspace { stream, locations, operations, .. } = &mut *self.workspace;
        operations.restart();
        locations.read(source, self.header.encoding, sections, operations).ok()?;
        stream.array(&(operations.0.len() as u64).to_le_bytes());
        stream.push(&operations.0);
        Some(())
    }

    /// Takes the rest of the unit as it stands; returns the digests of the stream and of the strings.
    pub fn finish(mut self) -> Option<(Digests, &'w mut Masks)> {
        self.look_up();
        self.workspace.locations.settle(self.sources.lists(self.header)).ok()?;
        self.workspace.stream.copy(self.bytes, self.done, self.bytes.len())?;
        let Workspace { stream, strings, masks, .. } = self.workspace;
        Some((Digests { stream: stream.finish(), strings: strings.finish() }, masks))
    }
}

/// What a list says about a parameter, as bytes.
#[derive(Debug, Default)]
pub(super) struct Operations(Vec<u8>);

impl Expressions for Operations {
    fn restart(&mut self) {
        self.0.clear();
    }

    fn take(&mut self, operations: &[(u8, u64)], _: usize) {
        self.0.extend((operations.len() as u64).to_le_bytes());
        for &(opcode, operand) in operations {
            self.0.push(opcode);
            self.0.extend(operand.to_le_bytes());
        }
    }
}
