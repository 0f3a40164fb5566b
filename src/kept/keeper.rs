//! Looks units up among those that are known, and takes note of those that will be. One per worker.

use super::{Hit, Kept, Known};
use crate::dwarf::foreign::{Space, UnitPlace, View};
use crate::dwarf::sections::Dwarf;
use crate::fragment::Fragment;
use crate::unit_key::operands::{AddressPlace, Operands};
use crate::unit_key::{KeyMaker, Masks, Sources};

/// The keeper's state.
#[derive(Debug)]
pub struct Keeper<'a> {
    dwarf: &'a Dwarf<'a>,
    known: &'a Known,
    /// Makes the keys.
    pub maker: KeyMaker<'a>,
    /// The units whose fragments are known.
    pub hits: Vec<Hit>,
    /// The units whose fragments can be kept.
    pub kept: Vec<Kept>,
    buffer: Vec<u8>,
    /// What is to be added to the number of a unit to have that of its record, most likely.
    shift: i64,
}

/// A unit that has to be decoded, and may be kept then.
#[derive(Debug)]
pub struct New {
    unit: u32,
    key: [u8; 32],
    size: u32,
    masks: Vec<u8>,
    addresses: Vec<AddressPlace>,
}

/// What is known of a unit.
#[derive(Debug)]
pub enum Looked {
    /// Its fragment.
    Hit,
    /// Its key.
    New(New),
    /// Nothing: its key would not tell all that it depends on.
    Nothing,
}

impl<'a> Keeper<'a> {
    /// For the units of `dwarf`.
    #[must_use]
    pub fn new(dwarf: &'a Dwarf<'a>, known: &'a Known, sources: &'a Sources<'a>) -> Self {
        Self {
            dwarf,
            known,
            maker: KeyMaker::new(sources),
            hits: Vec::new(),
            kept: Vec::new(),
            buffer: Vec::new(),
            shift: 0,
        }
    }

    /// Looks the unit at this place in the file up.
    pub fn look(&mut self, unit: u32) -> Looked {
        let mut buffer = std::mem::take(&mut self.buffer);
        let place = UnitPlace { space: Space::Info, index: unit };
        let looked = match (View { dwarf: self.dwarf, split: None }).unit_bytes(place, &mut buffer)
        {
            Ok(bytes) => self.look_at(unit, bytes).unwrap_or(Looked::Nothing),
            // Whoever decodes it will say so.
            Err(_) => Looked::Nothing,
        };
        self.buffer = buffer;
        looked
    }

    fn look_at(&mut self, unit: u32, bytes: &[u8]) -> Option<Looked> {
        if let Some(number) = self.by_position(unit, bytes)
            && self.hit(unit, bytes, number).is_some()
        {
            return Some(Looked::Hit);
        }
        let walked = self.maker.by_walk(unit, bytes)?;
        let new = New {
            unit,
            key: walked.key.0.0,
            size: bytes.len() as u32,
            masks: walked.masks.0.clone(),
            addresses: walked.addresses.to_vec(),
        };
        self.maker.meet_names();
        if let Some(number) = self.known.find(&new.key)
            && self.hit(unit, bytes, number).is_some()
        {
            return Some(Looked::Hit);
        }
        Some(Looked::New(new))
    }

    /// The number of the unit's record, if its fields are where those of the one are that had its place.
    fn by_position(&mut self, unit: u32, bytes: &[u8]) -> Option<u32> {
        let number = self.known.near(i64::from(unit) + self.shift, bytes.len() as u32)?;
        let (masks, _) = self.known.places(number)?;
        let key = self.maker.by_positions(unit, bytes, &Masks(masks.to_vec()))?;
        (*self.known.key(number)? == key.0.0).then_some(number)
    }

    /// Takes note of a hit; `None` if its addresses cannot be read.
    fn hit(&mut self, unit: u32, bytes: &[u8], number: u32) -> Option<()> {
        let (masks, operands) = self.known.places(number)?;
        let (masks, operands) = (Masks(masks.to_vec()), Operands(operands.to_vec()));
        let addresses = self.maker.read_operands(unit, bytes, &masks, &operands)?;
        let key = *self.known.key(number)?;
        self.maker.meet_names();
        self.shift = i64::from(number) - i64::from(unit);
        let size = bytes.len() as u32;
        self.kept.push(Kept { unit, key, size, masks: masks.0, operands: operands.0 });
        self.hits.push(Hit { unit, number, addresses });
        Some(())
    }

    /// Takes note of a unit that was decoded.
    pub fn keep(&mut self, new: New, fragment: &Fragment) {
        let Fragment { functions, variables, .. } = fragment;
        if let Some(operands) = Operands::find(functions, variables, &new.addresses) {
            let New { unit, key, size, masks, .. } = new;
            self.kept.push(Kept { unit, key, size, masks, operands: operands.0 });
        }
    }
}
