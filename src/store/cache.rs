//! The cache as the rest of the program sees it: results and what is known of files, within a
//! limit of size.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use btfcache_schema::{
    Fields, FootingRecord, HEADER_SIZE, Key, KeyHasher, Kind, OutlineRecord, Purpose, ResultRecord,
    RunRecord, StatRecord, StepRecord, Tag,
};

use super::gc::{self, Collected, Limits, Usage};
use super::keys::{prepared_fields, step_fields};
use super::records::{Found, Records, remove, size_on_disk};
use super::runs::RunLog;
use super::size::SizeLog;
use super::{Directory, Fingerprint, Problem};
use crate::base::{Mapping, Prepared, Stored as StoredBase};
use crate::settings::Settings;

/// An open cache.
#[derive(Debug)]
pub struct Cache {
    directory: Directory,
    read_only: bool,
    /// Limit in bytes; 0: none.
    max_size: u64,
    max_age: Duration,
}

/// What became of a question.
#[derive(Debug)]
pub enum Lookup<T> {
    /// It is known.
    Known(T),
    /// It is not.
    Unknown,
    /// What is stored cannot be used.
    Unusable(Problem),
}

impl Cache {
    /// Opens the cache that `settings` name; `None` if they want none, or there is no place for
    /// one, or it is to be read only and does not exist.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(settings: &Settings) -> Result<Option<Self>, Problem> {
        let Some(parent) = settings.dir.value.as_deref().filter(|_| !settings.disable.value) else {
            return Ok(None);
        };
        let read_only = settings.readonly.value;
        let Some(directory) = Directory::open(parent, read_only)? else {
            return Ok(None);
        };
        if !read_only {
            SizeLog::of(&directory).begin();
        }
        let (max_size, max_age) = (settings.max_size.value, settings.max_age.value);
        Ok(Some(Self { directory, read_only, max_size, max_age }))
    }

    /// The folder of the cache.
    #[must_use]
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether nothing may be stored.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The result of `key`.
    #[must_use]
    pub fn result(&self, key: &Key) -> Lookup<ResultRecord> {
        self.look_up(self.results(), key, ResultRecord::decode)
    }

    /// Stores the result of `key`; makes room for it first. Gives what had to go.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn put_result(&self, key: &Key, record: &ResultRecord) -> Result<Stored, Problem> {
        self.put(self.results(), key, &record.encode())
    }

    /// The key of the contents of a file that has been read before; `what` of it, the contents of
    /// an ELF file or a base.
    #[must_use]
    pub fn known_content(&self, print: &Fingerprint, what: Purpose) -> Lookup<Key> {
        let Fingerprint { device, inode, size, modified, changed } = *print;
        match self.look_up(self.stats(), &stat_key(print, what), StatRecord::decode) {
            Lookup::Known(record) => {
                let content = record.content;
                let same = StatRecord { device, inode, size, modified, changed, content } == record;
                if same { Lookup::Known(content) } else { Lookup::Unknown }
            }
            Lookup::Unknown => Lookup::Unknown,
            Lookup::Unusable(problem) => Lookup::Unusable(problem),
        }
    }

    /// Remembers the key of the contents of a file at rest.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn remember(
        &self,
        print: &Fingerprint,
        what: Purpose,
        content: Key,
    ) -> Result<Stored, Problem> {
        let Fingerprint { device, inode, size, modified, changed } = *print;
        let record = StatRecord { device, inode, size, modified, changed, content };
        self.put(self.stats(), &stat_key(print, what), &record.encode())
    }

    /// The prepared form of the base of this key, mapped.
    #[must_use]
    pub fn prepared_base(&self, base: &Key) -> Lookup<Prepared> {
        let (records, key) = (self.bases(), prepared_key(base));
        let damaged = |what: &str| {
            let path = records.path(&key);
            remove(&path);
            Lookup::Unusable(Problem::damaged(&path, what))
        };
        let file = match records.open(&key, !self.read_only) {
            Ok(Some(file)) => file,
            Ok(None) => return Lookup::Unknown,
            Err(problem) => {
                remove(&records.path(&key));
                return Lookup::Unusable(problem);
            }
        };
        let Ok(mapping) = Mapping::of(&file) else {
            return damaged("it cannot be mapped");
        };
        let prepared = Prepared::from_stored(StoredBase::Mapped(mapping, HEADER_SIZE), &base.0);
        prepared.map_or_else(|| damaged("its checksum is wrong"), Lookup::Known)
    }

    /// Stores the prepared form of the base of this key.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn put_prepared_base(&self, base: &Key, prepared: &Prepared) -> Result<Stored, Problem> {
        self.put(
            self.bases(),
            &prepared_key(base),
            bytemuck::cast_slice(&prepared.to_words(&base.0)),
        )
    }

    /// The types of the base of this key as hashes.
    #[must_use]
    pub fn outline(&self, base: &Key) -> Lookup<OutlineRecord> {
        let records = Records::new(&self.directory, Kind::Outline, "bases");
        self.look_up(records, &outline_key(base), OutlineRecord::decode)
    }

    /// Stores the types of the base of this key as hashes.
    ///
    /// # Errors
    /// When they cannot be stored.
    pub fn put_outline(&self, base: &Key, outline: &OutlineRecord) -> Result<Stored, Problem> {
        let records = Records::new(&self.directory, Kind::Outline, "bases");
        self.put(records, &outline_key(base), &outline.encode())
    }

    /// What the last result of this key, made without that of the base, stands on.
    #[must_use]
    pub fn footing(&self, key: &Key) -> Lookup<FootingRecord> {
        self.look_up(self.footings(Kind::Footing), key, FootingRecord::decode)
    }

    /// Stores what a result stands on.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn put_footing(&self, key: &Key, footing: &FootingRecord) -> Result<Stored, Problem> {
        self.put(self.footings(Kind::Footing), key, &footing.encode())
    }

    /// What is different between two bases.
    #[must_use]
    pub fn step(&self, old: &Key, new: &Key) -> Lookup<StepRecord> {
        self.look_up(self.footings(Kind::Step), &step_key(old, new), StepRecord::decode)
    }

    /// Stores what is different between two bases.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn put_step(&self, old: &Key, new: &Key, step: &StepRecord) -> Result<Stored, Problem> {
        self.put(self.footings(Kind::Step), &step_key(old, new), &step.encode())
    }

    const fn footings(&self, kind: Kind) -> Records<'_> {
        Records::new(&self.directory, kind, "footings")
    }

    const fn bases(&self) -> Records<'_> {
        Records::new(&self.directory, Kind::Base, "bases")
    }

    /// Adds what a run counted.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn count(&self, record: &RunRecord) -> Result<(), Problem> {
        let size = RunLog::of(&self.directory).append(record, SystemTime::now())?;
        SizeLog::of(&self.directory).add(size)
    }

    /// What runs counted, by artifact.
    #[must_use]
    pub fn counted(&self) -> BTreeMap<String, RunRecord> {
        RunLog::of(&self.directory).sums()
    }

    /// Forgets what runs counted.
    pub fn forget_counted(&self) {
        RunLog::of(&self.directory).clear();
    }

    /// How much is in the cache.
    #[must_use]
    pub fn usage(&self) -> Usage {
        gc::usage(&self.directory)
    }

    /// Removes entries until no more than `size` bytes are left and none is older than the limit;
    /// `None` if another process is at it.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn collect(&self, size: u64) -> Result<Option<Collected>, Problem> {
        let limits = Limits { size, age: self.max_age };
        gc::collect(&self.directory, limits, SystemTime::now())
    }

    /// The limit in bytes; `u64::MAX` if there is none.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        if self.max_size == 0 { u64::MAX } else { self.max_size }
    }

    /// Tells the cache that an entry that it does not store itself has grown or shrunk by so many
    /// bytes on disk.
    ///
    /// # Errors
    /// When that cannot be noted.
    pub fn note_size(&self, bytes: i64) -> Result<(), Problem> {
        SizeLog::of(&self.directory).add(bytes)
    }

    pub(super) const fn results(&self) -> Records<'_> {
        Records::new(&self.directory, Kind::Result, "results")
    }

    const fn stats(&self) -> Records<'_> {
        Records::new(&self.directory, Kind::Stat, "stat")
    }

    fn look_up<T>(
        &self,
        records: Records<'_>,
        key: &Key,
        decode: impl FnOnce(&[u8]) -> Result<T, btfcache_schema::FormatError>,
    ) -> Lookup<T> {
        match records.get(key, !self.read_only) {
            Found::Value(payload) => match decode(&payload) {
                Ok(value) => Lookup::Known(value),
                Err(error) => Lookup::Unusable(Problem::format(&records.path(key), &error)),
            },
            Found::Nothing => Lookup::Unknown,
            Found::Unusable(problem) => Lookup::Unusable(problem),
        }
    }

    fn put(&self, records: Records<'_>, key: &Key, payload: &[u8]) -> Result<Stored, Problem> {
        let size = size_on_disk(payload.len());
        let Some(collected) = self.make_room(size)? else {
            return Ok(Stored { is_stored: false, evicted: Usage::default() });
        };
        records.put(key, payload)?;
        SizeLog::of(&self.directory).add(size as i64)?;
        Ok(Stored { is_stored: true, evicted: collected.removed })
    }

    /// Removes entries if `size` more bytes might be too many: the size that is known cheaply says
    /// so. `None` if there can be no room.
    fn make_room(&self, size: u64) -> Result<Option<Collected>, Problem> {
        let (limit, nothing) = (self.limit(), Collected::default());
        if self.max_size == 0 {
            return Ok(Some(nothing));
        }
        // Frees an eighth, so that it is seldom needed; starts early, because other processes
        // store meanwhile.
        let target = limit - limit / 8;
        let early = limit - limit / 16;
        if size > target {
            return Ok(None);
        }
        let estimate = SizeLog::of(&self.directory).estimate();
        if estimate.is_some_and(|estimate| estimate.saturating_add(size) <= early) {
            return Ok(Some(nothing));
        }
        match self.collect(target - size)? {
            Some(collected) => Ok(Some(collected).filter(|_| collected.kept.bytes + size <= limit)),
            // Somebody makes room now. Until it is there, a full cache takes nothing.
            None => {
                let is_full =
                    estimate.is_some_and(|estimate| estimate.saturating_add(size) > limit);
                Ok((!is_full).then_some(nothing))
            }
        }
    }
}

/// What became of a value to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whether there was room.
    pub is_stored: bool,
    /// What had to go for it.
    pub evicted: Usage,
}

fn prepared_key(base: &Key) -> Key {
    let mut key = KeyHasher::new(Purpose::PreparedBase);
    prepared_fields(base, &mut key);
    key.finish()
}

fn outline_key(base: &Key) -> Key {
    let mut key = KeyHasher::new(Purpose::Outline);
    prepared_fields(base, &mut key);
    key.finish()
}

fn step_key(old: &Key, new: &Key) -> Key {
    let mut key = KeyHasher::new(Purpose::Step);
    step_fields(old, new, &mut key);
    key.finish()
}

fn stat_key(print: &Fingerprint, what: Purpose) -> Key {
    let mut hasher = KeyHasher::new(Purpose::Stat);
    hasher.number(Tag::Purpose, what as u8);
    hasher.number(Tag::Device, print.device);
    hasher.number(Tag::Inode, print.inode);
    hasher.finish()
}
