//! Fragments kept from run to run: what the units of an artifact contributed, by key, over one pool of
//! classes. No I/O: bytes in, bytes out.
//!
//! Classes and names have other numbers in each run, so what is loaded is put into a pool of its own,
//! which is merged as that of one more worker. A name is what a unit of the file at hand says at some
//! offset of `.debug_str`, if any does: another offset might hold the same text, but not the same name.

mod keeper;
mod load;
mod write;

use std::ops::Range;

use btfcache_schema::{FormatError, PoolRecord, UnitRecord};
use hashbrown::HashMap;

pub use keeper::{Keeper, Looked, New};
pub use load::{Hit, MetNames};
pub use write::{Kept, Whole, write};

/// What was kept of an artifact.
#[derive(Debug, Default)]
pub struct Known {
    pool: PoolRecord,
    units: Vec<u8>,
    /// Where in `units` each record is, in the order of the units when they were kept.
    records: Vec<Range<usize>>,
    /// Key and size of each unit.
    keys: Vec<([u8; 32], u32)>,
    by_key: HashMap<[u8; 32], u32>,
}

impl Known {
    /// Reads what [`write()`] gave.
    ///
    /// # Errors
    /// When it is something else.
    pub fn read(pool: &[u8], units: Vec<u8>) -> Result<Self, FormatError> {
        let start = units.as_ptr() as usize;
        let range = |record: &[u8]| {
            let first = record.as_ptr() as usize - start;
            first..first + record.len()
        };
        let records: Vec<Range<usize>> =
            UnitRecord::split(&units)?.into_iter().map(range).collect();
        let key = |record: &Range<usize>| UnitRecord::key_of(&units[record.clone()]);
        let keys = records.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let by_key = keys.iter().map(|entry| entry.0).zip(0..).collect();
        Ok(Self { pool: PoolRecord::decode(pool)?, units, records, keys, by_key })
    }

    /// Number of units.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The number of the record with this key.
    #[must_use]
    pub fn find(&self, key: &[u8; 32]) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// The key of a record.
    #[must_use]
    pub fn key(&self, number: u32) -> Option<&[u8; 32]> {
        self.keys.get(number as usize).map(|entry| &entry.0)
    }

    /// The number of the record of a unit of this size that is nearest to `number`.
    #[must_use]
    pub fn near(&self, number: i64, size: u32) -> Option<u32> {
        /// How many units may have come or gone before it that nobody knows of yet.
        const REACH: i64 = 16;
        let is_wanted = |number: &i64| {
            let entry = usize::try_from(*number).ok().and_then(|number| self.keys.get(number));
            entry.is_some_and(|entry| entry.1 == size)
        };
        let found = (0..=REACH).flat_map(|reach| [number + reach, number - reach]).find(is_wanted);
        found.and_then(|number| u32::try_from(number).ok())
    }

    /// Where the masked fields of a unit are, and its addresses.
    #[must_use]
    pub fn places(&self, number: u32) -> Option<(&[u8], &[u8])> {
        UnitRecord::places_of(self.record(number)).ok()
    }

    fn record(&self, number: u32) -> &[u8] {
        self.records.get(number as usize).map_or(&[], |range| &self.units[range.clone()])
    }
}
