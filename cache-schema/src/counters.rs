//! What one run counted. Runs append their records to a log; statistics are sums over it.

use std::collections::BTreeMap;

use crate::FormatError;
use crate::wire::{Reader, Writer};

/// Declares [`Counter`]: numbers are those on disk, names those of `stats --json`.
macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident = $number:literal, $name:literal;)*) => {
        /// What is counted. The number is stored: never change one, never reuse one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Counter { $($(#[$doc])* $counter = $number),* }

        impl Counter {
            /// Every counter, by number.
            pub const ALL: &[Self] = &[$(Self::$counter),*];

            /// The name for a reader: `group.name`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$counter => $name),* }
            }

            fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$counter),)* _ => None }
            }
        }
    };
}

counters! {
    /// Inputs that were encoded or found.
    Runs = 1, "runs";
    /// Results found by device, inode, size and times of the file.
    HitsByStat = 2, "results.hits_by_stat";
    /// Results found by the contents of the file.
    HitsByContent = 3, "results.hits_by_content";
    /// No result was stored for this content, these options and this base.
    MissesNew = 4, "results.misses_new";
    /// Results were not looked for, because they were to be made anew.
    MissesRecache = 5, "results.misses_recache";
    /// The stored result was damaged.
    MissesDamaged = 6, "results.misses_damaged";
    /// The cache could not be read.
    MissesUnusable = 7, "results.misses_unusable";
    /// Results that were stored.
    Stores = 8, "results.stores";
    /// Hits that were computed again and compared.
    Checked = 9, "results.checked";
    /// Results found by the contents of the file, and moved to another base.
    HitsByFooting = 10, "results.hits_moved";
    /// Units whose fragments were found.
    UnitHits = 20, "units.hits";
    /// Units that were decoded.
    UnitMisses = 21, "units.misses";
    /// Time spent encoding, in microseconds.
    SpentMicroseconds = 30, "time.spent_us";
    /// Time that hits saved, in microseconds: that of the first encode less that of the hit.
    SavedMicroseconds = 31, "time.saved_us";
    /// Items that were removed to keep the size.
    Evictions = 40, "cache.evictions";
    /// Their size in bytes.
    EvictedBytes = 41, "cache.evicted_bytes";
    /// A stored value was damaged.
    ProblemDamaged = 50, "problems.damaged";
    /// A stored value was of another version.
    ProblemVersion = 51, "problems.version";
    /// The file system was full.
    ProblemFull = 52, "problems.full";
    /// Something in the cache may not be read or written.
    ProblemDenied = 53, "problems.denied";
    /// The cache belongs to somebody else, or others may write to it.
    ProblemOwner = 54, "problems.owner";
    /// Any other failure of the system.
    ProblemIo = 55, "problems.io";
    /// A stored result was not what the input gives.
    ProblemDiffers = 56, "problems.differs";
    /// A setting could not be understood.
    ProblemSetting = 57, "problems.setting";
}

/// What one run counted, or several of one artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// What was encoded: the last part of its path.
    pub artifact: String,
    counts: BTreeMap<u16, u64>,
}

impl RunRecord {
    /// A record of `artifact` that has counted nothing.
    #[must_use]
    pub const fn new(artifact: String) -> Self {
        Self { artifact, counts: BTreeMap::new() }
    }

    /// Counts `amount`.
    pub fn add(&mut self, counter: Counter, amount: u64) {
        let count = self.counts.entry(counter as u16).or_default();
        *count = count.saturating_add(amount);
    }

    /// How much was counted.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts.get(&(counter as u16)).copied().unwrap_or(0)
    }

    /// What was counted, by number of the counter; those of other versions are left out.
    pub fn counts(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        let known = |(number, count): (&u16, &u64)| Some((Counter::from_number(*number)?, *count));
        self.counts.iter().filter_map(known)
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (number, amount) in &other.counts {
            let count = self.counts.entry(*number).or_default();
            *count = count.saturating_add(*amount);
        }
    }

    /// The record as a payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(self.artifact.as_bytes());
        for (number, count) in &self.counts {
            writer.u16(*number);
            writer.u64(*count);
        }
        writer.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not a record.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let mut record = Self::new(reader.text("artifact")?);
        while reader.end().is_err() {
            let number = reader.u16("counter")?;
            record.counts.insert(number, reader.u64("count")?);
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_add_up() {
        let mut record = RunRecord::new("ext4.ko".to_owned());
        record.add(Counter::MissesNew, 1);
        record.add(Counter::SpentMicroseconds, u64::MAX);
        let mut read = RunRecord::decode(&record.encode()).unwrap();
        assert_eq!(read, record);
        read.merge(&record);
        assert_eq!(read.get(Counter::MissesNew), 2);
        assert_eq!(read.get(Counter::SpentMicroseconds), u64::MAX);
        assert_eq!(read.get(Counter::Stores), 0);
    }

    #[test]
    fn counters_have_numbers_and_names_of_their_own() {
        for (index, counter) in Counter::ALL.iter().enumerate() {
            let before = &Counter::ALL[..index];
            assert!(before.iter().all(|other| (*other as u16) < *counter as u16), "{counter:?}");
            assert!(before.iter().all(|other| other.name() != counter.name()), "{counter:?}");
            assert_eq!(Counter::from_number(*counter as u16), Some(*counter));
        }
    }
}
