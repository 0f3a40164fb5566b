//! Keys of units: what a unit means, whatever it was linked with and wherever it lies.
//!
//! The key of a unit is made of its *masked stream*: its bytes without what changes from link to link
//! and does not change the fragment (see `plan`), with strings and location lists in the place of
//! their offsets. Two ways find the masked fields: [`KeyMaker::by_walk`] goes through all DIEs and also
//! gives the places of the fields; [`KeyMaker::by_positions`] takes the places that an earlier unit
//! had. If that gives the key of the earlier unit then the places were right: what is taken as it
//! stands tells, from one field to the next, which abbreviation a DIE has, so that equal streams have
//! equal fields at equal places. If it gives another key, that key means nothing.
//!
//! Units that draw on other units or files have no key. What moves with every link and is part of a
//! fragment all the same is read again from the file at hand: see [`operands`].
//!
//! A number that needs another form (a line beyond 255) moves the key: that is a miss, never wrong.

mod expression;
mod masking;
mod masks;
pub mod operands;
mod plan;
mod stream;
mod strings;
mod table;
mod walk;

pub use btfcache_schema::UnitKey;
use btfcache_schema::{Fields, KeyHasher, Purpose, Tag, Value};
pub use masks::Masks;

use crate::dwarf::budget::Budget;
use crate::dwarf::foreign::View;
use crate::dwarf::location::{ListSections, Locations};
use crate::dwarf::sections::Dwarf;
use crate::dwarf::unit::UnitHeader;
use crate::kept::MetNames;
use crate::options::Options;
use masking::{Digests, Masking, Operations};
use masks::BasePlaces;
use operands::AddressPlace;
use plan::Volatile;
use stream::Stream;
use strings::{Remembered, StringDigests};
use table::{Plans, Table};

/// What keys are made from, for all workers of a run.
#[derive(Debug)]
pub struct Sources<'a> {
    dwarf: &'a Dwarf<'a>,
    volatile: Volatile,
    strings: StringDigests,
    list_budget: Budget,
    abbreviation_budget: Budget,
    /// Has taken what all keys of the run have in common.
    common: KeyHasher,
}

impl<'a> Sources<'a> {
    /// For the units of `dwarf`, whose fragments will be made with `options`. Takes some milliseconds:
    /// all strings are hashed, by all threads of the pool.
    #[must_use]
    pub fn new(dwarf: &'a Dwarf<'a>, options: &Options) -> Self {
        let target = dwarf.elf.target();
        let mut common = KeyHasher::new(Purpose::Unit);
        options.fields(&mut common);
        common.number(Tag::Is64, target.is_64);
        common.number(Tag::BigEndian, target.big_endian);
        common.number(Tag::Machine, target.machine.0);
        let lists = dwarf.location_lists.len().saturating_add(dwarf.old_location_lists.len());
        Self {
            dwarf,
            volatile: Volatile { unit_names: options.exclude_unit_prefix.is_none() },
            strings: StringDigests::new(dwarf.names.section()),
            list_budget: Budget::for_size(lists),
            abbreviation_budget: Budget::for_size(dwarf.abbreviations.len() as u64),
            common,
        }
    }

    fn lists(&self, header: &UnitHeader) -> ListSections<'_> {
        let view = View { dwarf: self.dwarf, split: None };
        ListSections { budget: &self.list_budget, ..view.lists(header) }
    }

    fn key(&self, header: &UnitHeader, table: &[u8; 32], digests: &Digests) -> UnitKey {
        let mut hasher = self.common.clone();
        let encoding = header.encoding;
        hasher.number(Tag::DwarfVersion, encoding.version);
        hasher.number(Tag::OffsetSize, encoding.offset_size);
        hasher.number(Tag::AddressSize, encoding.address_size);
        hasher.number(Tag::UnitSize, header.size);
        hasher.field(Tag::Abbreviations, Value::Digest(table));
        hasher.field(Tag::UnitStream, Value::Digest(&digests.stream));
        hasher.field(Tag::UnitStrings, Value::Digest(&digests.strings));
        UnitKey(hasher.finish())
    }
}

/// Makes keys of units, one after the other. One per worker.
#[derive(Debug)]
pub struct KeyMaker<'a> {
    sources: &'a Sources<'a>,
    table: Table,
    plans: Plans,
    workspace: Workspace,
    parents: Vec<bool>,
    addresses: Vec<AddressPlace>,
    annotations: walk::Annotations,
}

/// What is used again from unit to unit.
#[derive(Debug, Default)]
struct Workspace {
    stream: Stream,
    /// Offsets of strings that were not looked up yet.
    offsets: Vec<u64>,
    strings: Stream,
    remembered: Remembered,
    masks: Masks,
    locations: Locations,
    operations: Operations,
    /// The offsets of all strings of the unit at hand.
    all_offsets: Vec<u64>,
    met: MetNames,
}

impl Workspace {
    fn restart(&mut self, places: BasePlaces) {
        self.stream.restart();
        self.strings.restart();
        self.offsets.clear();
        self.all_offsets.clear();
        self.masks.start(places);
    }
}

/// The key of a unit, and what else the walk over it has found.
#[derive(Debug)]
pub struct Walked<'w> {
    /// The key.
    pub key: UnitKey,
    /// Where its masked fields are.
    pub masks: &'w Masks,
    /// Where the addresses of its functions and variables are.
    pub addresses: &'w [AddressPlace],
}

impl<'a> KeyMaker<'a> {
    /// A maker that shares `sources` with others.
    #[must_use]
    pub fn new(sources: &'a Sources<'a>) -> Self {
        Self {
            sources,
            table: Table::default(),
            plans: Plans::default(),
            workspace: Workspace {
                met: MetNames::of(sources.dwarf.names.section().len()),
                ..Workspace::default()
            },
            parents: Vec::new(),
            addresses: Vec::new(),
            annotations: walk::Annotations::default(),
        }
    }

    /// Takes note of the names that the unit has whose key was made last: a key that is right.
    pub fn meet_names(&mut self) {
        let Workspace { all_offsets, met, .. } = &mut self.workspace;
        all_offsets.drain(..).for_each(|offset| met.meet(offset));
    }

    /// The names of `.debug_str` that were met so far.
    #[must_use]
    pub fn into_met_names(self) -> MetNames {
        self.workspace.met
    }

    /// The key of the unit at this place in the file, whose bytes, header included, are `bytes`.
    /// `None` if it has none: it draws on others, or is damaged.
    pub fn by_walk(&mut self, unit: u32, bytes: &[u8]) -> Option<Walked<'_>> {
        let header = self.header(unit, bytes)?;
        if self.sources.dwarf.elf.target().big_endian {
            self.walk::<true>(header, bytes)
        } else {
            self.walk::<false>(header, bytes)
        }
    }

    /// The key of the unit, if its masked fields are where `masks` says. If they are not, the key is
    /// not that of any unit, or `None`.
    pub fn by_positions(&mut self, unit: u32, bytes: &[u8], masks: &Masks) -> Option<UnitKey> {
        let header = self.header(unit, bytes)?;
        if self.sources.dwarf.elf.target().big_endian {
            self.mask_at::<true>(header, bytes, masks)
        } else {
            self.mask_at::<false>(header, bytes, masks)
        }
    }

    fn header(&self, unit: u32, bytes: &[u8]) -> Option<&'a UnitHeader> {
        let header = self.sources.dwarf.units.get(unit as usize)?;
        let is_whole = header.kind == gimli::DW_UT_compile.0 && bytes.len() == header.size as usize;
        is_whole.then_some(header)
    }

    fn mask_at<const BIG: bool>(
        &mut self,
        header: &UnitHeader,
        bytes: &[u8],
        masks: &Masks,
    ) -> Option<UnitKey> {
        let dwarf = self.sources.dwarf;
        let budget = &self.sources.abbreviation_budget;
        let table = self.table.read(&dwarf.abbreviations, header.abbreviations, budget)?;
        let (places, mut reader) = masks.read()?;
        let mut masking = Masking::<BIG>::new(self.sources, header, bytes, &mut self.workspace);
        masking.restart(places)?;
        while !reader.at_end() {
            let mask = reader.next()?;
            let place = masking.done().checked_add(mask.gap as usize)?;
            masking.mask(place, mask.field, mask.zeros)?;
        }
        let (digests, _) = masking.finish()?;
        Some(self.sources.key(header, table, &digests))
    }
}
