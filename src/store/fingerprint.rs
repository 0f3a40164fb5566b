//! What the file system says about a file. A file at rest that has the same device, inode, size and
//! times as before has the same bytes as before: any change sets the time of change, which no
//! program can choose.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// How long a file must have been at rest before its times are trusted: some file systems count
/// in steps of two seconds, so that two changes can have one time.
const REST: Duration = Duration::from_secs(2);
/// The same where times have fractions of a second: they then move with every clock tick.
const FINE_REST: Duration = Duration::from_millis(100);

const NANOSECONDS: i64 = 1_000_000_000;

/// Device, inode, size and times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_size`, in bytes.
    pub size: u64,
    /// `st_mtim`, in nanoseconds since 1970.
    pub modified: i64,
    /// `st_ctim`, in nanoseconds since 1970.
    pub changed: i64,
}

impl Fingerprint {
    /// What `metadata` says.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let time =
            |seconds: i64, rest: i64| seconds.saturating_mul(NANOSECONDS).saturating_add(rest);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            changed: time(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the file has been left alone for so long before `now` that these times are its alone.
    #[must_use]
    pub fn is_at_rest(&self, now: SystemTime) -> bool {
        self.rests_for(REST, now)
    }

    /// Whether a change after `now` would show in the times.
    #[must_use]
    pub fn shows_changes(&self, now: SystemTime) -> bool {
        let is_fine = self.modified % NANOSECONDS != 0 || self.changed % NANOSECONDS != 0;
        self.rests_for(if is_fine { FINE_REST } else { REST }, now)
    }

    fn rests_for(&self, rest: Duration, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let now = now.ok().and_then(|now| i64::try_from(now.as_nanos()).ok());
        let last = self.modified.max(self.changed);
        // Times in the future say that a clock was set: nothing can be told from them.
        now.is_some_and(|now| now.saturating_sub(last) >= rest.as_nanos() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanoseconds: i64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds as u64)
    }

    #[test]
    fn rest() {
        let second = NANOSECONDS;
        let print =
            |modified, changed| Fingerprint { device: 1, inode: 1, size: 1, modified, changed };
        let fine = print(10 * second, 11 * second + 1);
        assert!(!fine.is_at_rest(at(13 * second)));
        assert!(fine.is_at_rest(at(13 * second + 1)));
        assert!(!fine.is_at_rest(at(5 * second)), "from the future");
        assert!(fine.shows_changes(at(11 * second + 200_000_000)));
        let coarse = print(10 * second, 11 * second);
        assert!(!coarse.shows_changes(at(12 * second)));
        assert!(coarse.shows_changes(at(13 * second)));
        let extreme = print(i64::MIN, i64::MAX);
        assert!(!extreme.is_at_rest(at(second)));
    }
}
