//! References that lead out of a unit: into others (LTO, dwz), to type units.
//!
//! In a unit's records they are numbers beyond any offset, given out in order of first use. Who
//! decodes the unit reads what they lead to afterwards, see `fragment::import`.

use hashbrown::HashMap;

use super::budget::Budget;
use super::die::{DieRef, FOREIGN};
use super::location::ListSections;
use super::other_file::OtherFile;
use super::sections::Dwarf;
use super::unit::{TypeHead, UnitHeader};

/// References from here on are foreign. No unit that has any is so large.
pub const FIRST_FOREIGN: DieRef = 1 << 31;

/// Where units lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// `.debug_info`.
    Info,
    /// `.debug_types` (DWARF 4).
    Types,
    /// `.debug_info` of the supplementary file (`dwz -m`).
    Supplementary,
}

/// What a foreign reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The DIE at an offset of a section.
    Die(Space, u64),
    /// The type of this signature.
    Signature(u64),
}

/// A unit by its place in the list of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitPlace {
    /// The section.
    pub space: Space,
    /// Index in the list.
    pub index: u32,
}

/// The foreign references of one unit.
#[derive(Debug, Default)]
pub struct ForeignRefs {
    targets: Vec<Target>,
    numbers: HashMap<Target, u32>,
}

impl ForeignRefs {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.targets.clear();
        self.numbers.clear();
    }

    /// What they name, in order.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The reference to `target`.
    pub fn refer(&mut self, target: Target) -> DieRef {
        let next = self.targets.len() as u32;
        if next >= FOREIGN - FIRST_FOREIGN {
            return FOREIGN;
        }
        let number = *self.numbers.entry(target).or_insert(next);
        if number == next {
            self.targets.push(target);
        }
        FIRST_FOREIGN + number
    }
}

/// The number of a foreign reference.
#[must_use]
pub const fn number_of(reference: DieRef) -> Option<usize> {
    if reference >= FIRST_FOREIGN && reference != FOREIGN {
        Some((reference - FIRST_FOREIGN) as usize)
    } else {
        None
    }
}

/// What units lie in the file being encoded, or in another that has a part of its DWARF.
#[derive(Clone, Copy, Debug)]
pub struct View<'d> {
    /// The DWARF of the file being encoded.
    pub dwarf: &'d Dwarf<'d>,
    /// The `.dwo` file that the unit at hand lies in.
    pub split: Option<&'d OtherFile>,
}

impl<'d> View<'d> {
    /// The file that a section belongs to; `None` for the one being encoded.
    #[must_use]
    pub fn file(self, space: Space) -> Option<&'d OtherFile> {
        match space {
            Space::Info | Space::Types => self.split,
            Space::Supplementary => self.dwarf.supplementary.as_ref(),
        }
    }

    /// The units of a section.
    #[must_use]
    pub fn units_of(self, space: Space) -> &'d [UnitHeader] {
        match (self.file(space), space) {
            (Some(file), _) => file.units_of(space),
            (None, Space::Info) => &self.dwarf.units,
            (None, Space::Types) => &self.dwarf.type_units,
            (None, Space::Supplementary) => &[],
        }
    }

    /// The header of a unit.
    #[must_use]
    pub fn unit(self, place: UnitPlace) -> &'d UnitHeader {
        &self.units_of(place.space)[place.index as usize]
    }

    /// The bytes of a unit.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn unit_bytes<'a>(
        self,
        place: UnitPlace,
        buffer: &'a mut Vec<u8>,
    ) -> std::io::Result<&'a [u8]>
    where
        'd: 'a,
    {
        if let Some(file) = self.file(place.space) {
            return file.unit_bytes(place, buffer);
        }
        let header = self.unit(place);
        let section =
            if place.space == Space::Types { &self.dwarf.types } else { &self.dwarf.info };
        section.range(self.dwarf.elf, header.offset, header.size as usize, buffer)
    }

    /// The abbreviations of units of a section, and how much of them may be read.
    #[must_use]
    pub fn abbreviations(self, space: Space) -> (&'d [u8], &'d Budget) {
        match self.file(space) {
            Some(file) => (&file.abbreviations, &file.abbreviation_budget),
            None => (&self.dwarf.abbreviations, &self.dwarf.abbreviation_budget),
        }
    }

    /// The location lists of the unit at hand.
    #[must_use]
    pub fn lists(self, header: &UnitHeader) -> ListSections<'d> {
        let Some(file) = self.split else {
            return ListSections {
                elf: self.dwarf.elf,
                new: &self.dwarf.location_lists,
                old: &self.dwarf.old_location_lists,
                old_base: 0,
                is_split: false,
                budget: &self.dwarf.list_budget,
            };
        };
        ListSections {
            elf: &file.elf,
            new: &file.location_lists,
            old: &file.old_location_lists,
            old_base: file.contribution(Space::Info, header.offset).old_location_lists,
            is_split: true,
            budget: &file.list_budget,
        }
    }

    /// What indices of location lists count from; `own` is what the unit says. Those in `.dwo` files
    /// say nothing: there they count from behind the header of the section.
    #[must_use]
    pub fn lists_base(self, header: &UnitHeader, own: u64) -> u64 {
        let Some(file) = self.split else {
            return own;
        };
        let size_of_header = if header.encoding.offset_size == 8 { 20 } else { 12 };
        file.contribution(Space::Info, header.offset).location_lists + size_of_header
    }

    /// The unit that a target lies in, and its offset there.
    #[must_use]
    pub fn locate(self, target: Target) -> Option<(UnitPlace, DieRef)> {
        let (space, offset) = match target {
            Target::Die(space, offset) => (space, offset),
            Target::Signature(signature) => return self.signatures().get(&signature).copied(),
        };
        let units = self.units_of(space);
        let after = units.partition_point(|unit| unit.offset <= offset);
        let index = after.checked_sub(1)?;
        let distance = offset - units[index].offset;
        let is_inside = distance < u64::from(units[index].size.min(FIRST_FOREIGN));
        is_inside.then_some((UnitPlace { space, index: index as u32 }, distance as DieRef))
    }

    /// Where the type of each signature is.
    fn signatures(self) -> &'d HashMap<u64, (UnitPlace, DieRef)> {
        let Dwarf { signatures, type_units, units, .. } = self.dwarf;
        match self.split {
            Some(file) => file.signatures(),
            None => signatures.get_or_init(|| signatures_of(type_units, units)),
        }
    }
}

/// Where the type of each signature is, in `.debug_types` or `.debug_info`. The first unit of a
/// signature counts.
pub(super) fn signatures_of(
    types: &[UnitHeader],
    info: &[UnitHeader],
) -> HashMap<u64, (UnitPlace, DieRef)> {
    let mut found = HashMap::new();
    for (space, units) in [(Space::Types, types), (Space::Info, info)] {
        for (unit, index) in units.iter().zip(0..) {
            if let Some(TypeHead { signature, offset }) = unit.type_head {
                let place = UnitPlace { space, index };
                found.entry(signature).or_insert((place, offset));
            }
        }
    }
    found
}
