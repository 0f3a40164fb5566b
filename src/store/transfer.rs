//! Results that leave the cache for another one, and those that come from there.
//!
//! The file `transfer` is as old as the last export or import. What was used since then is what the
//! runs since then needed: an import does not count as use.

use std::time::SystemTime;

use btfcache_schema::{Key, Kind, ResultRecord, seal};

use super::records::{Found, RECENT};
use super::{Cache, Problem};

/// The file.
const MARK: &str = "transfer";

/// What became of a result that came from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// It is stored.
    Stored,
    /// There was one of this key, which stays.
    Known,
    /// The limit leaves no room for it.
    NoRoom,
}

impl Cache {
    /// The keys of all results, in order; or of those that were used since the last export or
    /// import. Those used up to a minute before it may be among them, because use is not noted more
    /// often.
    #[must_use]
    pub fn result_keys(&self, used_since_transfer: bool) -> Vec<Key> {
        let mark = self.directory().join(MARK).symlink_metadata();
        let transfer = mark.and_then(|metadata| metadata.modified()).ok();
        let since = transfer.filter(|_| used_since_transfer);
        let since = since.and_then(|since| since.checked_sub(RECENT));
        // Without a mark all runs count, even those of a clock that was wrong.
        self.results().keys(since)
    }

    /// The result of `key` in its envelope; does not count as use. `None` if it is not there, or
    /// damaged.
    #[must_use]
    pub fn sealed_result(&self, key: &Key) -> Option<Vec<u8>> {
        match self.results().get(key, false) {
            Found::Value(payload) => Some(seal(Kind::Result, key, &payload)),
            Found::Nothing | Found::Unusable(_) => None,
        }
    }

    /// Stores a result that was exported elsewhere, unless it is known; `now` is when the import
    /// began.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn import_result(
        &self,
        key: &Key,
        record: &ResultRecord,
        now: SystemTime,
    ) -> Result<Imported, Problem> {
        if matches!(self.results().get(key, false), Found::Value(_)) {
            return Ok(Imported::Known);
        }
        if !self.put_result(key, record)?.is_stored {
            return Ok(Imported::NoRoom);
        }
        // So long ago that its first use is noted, and that it is not taken for used since.
        self.results().set_used(key, now.checked_sub(2 * RECENT).unwrap_or(now));
        Ok(Imported::Stored)
    }

    /// Remembers that an export or import began at `now`.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn mark_transfer(&self, now: SystemTime) -> Result<(), Problem> {
        let path = self.directory().join(MARK);
        self.directory().replace(&path, b"")?;
        let marked = std::fs::File::open(&path).and_then(|file| file.set_modified(now));
        marked.map_err(|error| Problem::io("write", &path, &error))
    }
}
