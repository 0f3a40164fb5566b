//! References that lead out of a unit: into others (LTO, dwz), to type units.
//!
//! In a unit's records they are numbers beyond any offset, given out in order of first use. Who
//! decodes the unit reads what they lead to afterwards, see `fragment::import`.

use hashbrown::HashMap;

use super::die::{DieRef, FOREIGN};
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

impl Dwarf<'_> {
    /// The units of a section.
    #[must_use]
    pub fn units_of(&self, space: Space) -> &[UnitHeader] {
        match space {
            Space::Info => &self.units,
            Space::Types => &self.type_units,
        }
    }

    /// The header of a unit.
    #[must_use]
    pub fn unit(&self, place: UnitPlace) -> &UnitHeader {
        &self.units_of(place.space)[place.index as usize]
    }

    /// Bytes of a section.
    ///
    /// # Errors
    /// As those of `.debug_info`.
    pub fn unit_bytes<'a>(
        &'a self,
        place: UnitPlace,
        buffer: &'a mut Vec<u8>,
    ) -> std::io::Result<&'a [u8]> {
        let header = self.unit(place);
        let section = match place.space {
            Space::Info => &self.info,
            Space::Types => &self.types,
        };
        section.range(self.elf, header.offset, header.size as usize, buffer)
    }

    /// The unit that a target lies in, and its offset there.
    #[must_use]
    pub fn locate(&self, target: Target) -> Option<(UnitPlace, DieRef)> {
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

    /// Where the type of each signature is. The first unit of a signature counts.
    fn signatures(&self) -> &HashMap<u64, (UnitPlace, DieRef)> {
        self.signatures.get_or_init(|| {
            let mut found = HashMap::new();
            for space in [Space::Types, Space::Info] {
                for (unit, index) in self.units_of(space).iter().zip(0..) {
                    if let Some(TypeHead { signature, offset }) = unit.type_head {
                        let place = UnitPlace { space, index };
                        found.entry(signature).or_insert((place, offset));
                    }
                }
            }
            found
        })
    }
}
