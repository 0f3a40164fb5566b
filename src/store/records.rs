//! Values by key, each in a file of its own: `FOLDER/a/b/cdef...`. A value never changes; it is made
//! elsewhere and renamed into place, and verified when it is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use btfcache_schema::{HEADER_SIZE, Header, Key, Kind, seal};

use super::{Directory, Problem};

/// A value that was used less than this ago need not be marked as used again.
pub(super) const RECENT: Duration = Duration::from_secs(60);
/// Do not wait for the writer of a fifo.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// The values of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records<'a> {
    directory: &'a Directory,
    kind: Kind,
    folder: &'static str,
}

/// What became of a value.
#[derive(Debug)]
pub(super) enum Found {
    /// It is whole.
    Value(Vec<u8>),
    /// It is not there.
    Nothing,
    /// It cannot be used, and has been removed if that was possible.
    Unusable(Problem),
}

impl<'a> Records<'a> {
    /// The values of `kind`, in `folder` of the cache.
    pub(super) const fn new(directory: &'a Directory, kind: Kind, folder: &'static str) -> Self {
        Self { directory, kind, folder }
    }

    /// Where the value of `key` is.
    pub(super) fn path(&self, key: &Key) -> PathBuf {
        let name = key.to_string();
        let folder = self.directory.join(self.folder);
        folder.join(&name[..1]).join(&name[1..2]).join(&name[2..])
    }

    /// The value of `key`; marks it as used if `mark`.
    pub(super) fn get(&self, key: &Key, mark: bool) -> Found {
        let path = self.path(key);
        let mut file = match open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
            Err(error) => return unusable(&path, Problem::io("read", &path, &error)),
        };
        match self.read(&mut file, &path, key) {
            Ok(payload) => {
                if mark {
                    mark_used(&file);
                }
                Found::Value(payload)
            }
            Err(problem) => unusable(&path, problem),
        }
    }

    /// The open file of the value of `key`, whose payload of words, which has a checksum of its own,
    /// follows the header; marks it as used if `mark`.
    pub(super) fn open(&self, key: &Key, mark: bool) -> Result<Option<File>, Problem> {
        let path = self.path(key);
        let opened = open(&path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, mut file) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Problem::io("read", &path, &error)),
        };
        if !metadata.is_file() {
            return Err(Problem::damaged(&path, "it is not a file"));
        }
        self.header(&mut file, &path, key, metadata.len())?;
        if mark {
            mark_used(&file);
        }
        Ok(Some(file))
    }

    /// Nothing is allocated before the header has been found sound and as long as the file says.
    fn read(&self, file: &mut File, path: &Path, key: &Key) -> Result<Vec<u8>, Problem> {
        let failed = |error: io::Error| Problem::io("read", path, &error);
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Problem::damaged(path, "it is not a file"));
        }
        let header = self.header(file, path, key, metadata.len())?;
        let mut payload = Vec::with_capacity(usize::try_from(header.length()).unwrap_or(0));
        file.take(header.length()).read_to_end(&mut payload).map_err(failed)?;
        header.verify(&payload).map_err(|error| Problem::format(path, &error))?;
        Ok(payload)
    }

    fn header(
        &self,
        file: &mut File,
        path: &Path,
        key: &Key,
        size: u64,
    ) -> Result<Header, Problem> {
        let mut header = [0; HEADER_SIZE];
        file.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Problem::damaged(path, "it is cut off"),
            _ => Problem::io("read", path, &error),
        })?;
        Header::parse(header, self.kind, key, size).map_err(|error| Problem::format(path, &error))
    }

    /// Stores the value of `key`; gives the bytes that takes on disk.
    pub(super) fn put(&self, key: &Key, payload: &[u8]) -> Result<u64, Problem> {
        let bytes = seal(self.kind, key, payload);
        self.directory.replace(&self.path(key), &bytes)?;
        Ok(size_on_disk(payload.len()))
    }

    /// The keys of all values, or of those that were used after `since`, in order.
    pub(super) fn keys(&self, since: Option<SystemTime>) -> Vec<Key> {
        let is_used = |path: &Path| {
            let used = path.symlink_metadata().and_then(|metadata| metadata.modified());
            since.is_none_or(|since| used.is_ok_and(|used| used > since))
        };
        let mut keys = Vec::new();
        for first in children(&self.directory.join(self.folder)) {
            for path in children(&first).iter().flat_map(|second| children(second)) {
                // Anything else that lies here has no key.
                keys.extend(key_of(&path).filter(|_| is_used(&path)));
            }
        }
        keys.sort();
        keys
    }

    /// Says when the value of `key` was used last.
    pub(super) fn set_used(&self, key: &Key, time: SystemTime) {
        // It then leaves the cache sooner or later than it should.
        _ = open(&self.path(key)).and_then(|file| file.set_modified(time));
    }
}

/// The key that the value at `path` has.
fn key_of(path: &Path) -> Option<Key> {
    let mut parts = path.iter().rev().take(3).map(|part| part.to_str());
    let (end, second, first) = (parts.next()??, parts.next()??, parts.next()??);
    format!("{first}{second}{end}").parse().ok()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The bytes that a value of this length takes.
pub(super) const fn size_on_disk(payload: usize) -> u64 {
    ((HEADER_SIZE + payload) as u64).next_multiple_of(4096)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)
}

/// Removes what cannot be used, so that it is made anew.
fn unusable(path: &Path, problem: Problem) -> Found {
    remove(path);
    Found::Unusable(problem)
}

/// Removes a file, or whatever took its place. If that fails, the next run tries again.
pub(super) fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        _ = fs_err::remove_dir_all(path);
    } else {
        _ = fs_err::remove_file(path);
    }
}

/// Recency is the time of modification: nobody writes to values.
fn mark_used(file: &File) {
    let now = SystemTime::now();
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let is_recent =
        modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age < RECENT));
    if !is_recent {
        // A read-only file system keeps no record of use.
        _ = file.set_modified(now);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::Reason;

    const KEY: Key = Key([0xab; 32]);

    fn with_records(check: impl FnOnce(Records<'_>, PathBuf)) {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap().unwrap();
        let records = Records::new(&directory, Kind::Result, "results");
        assert_eq!(records.put(&KEY, b"payload").unwrap(), 4096);
        check(records, records.path(&KEY));
    }

    fn reason(found: Found) -> Option<Reason> {
        match found {
            Found::Unusable(problem) => Some(problem.reason),
            Found::Value(_) | Found::Nothing => None,
        }
    }

    #[test]
    fn what_was_stored_is_found() {
        with_records(|records, path| {
            assert!(path.ends_with(format!("v1/results/a/b/{}", "ab".repeat(31))));
            for _ in 0..2 {
                assert!(
                    matches!(records.get(&KEY, true), Found::Value(value) if value == b"payload")
                );
                records.put(&KEY, b"payload").unwrap();
            }
            assert!(matches!(records.get(&Key([1; 32]), true), Found::Nothing));
        });
    }

    #[test]
    fn damage_is_told_and_removed() {
        type Damage = fn(&Path);
        let damages: [(&str, Damage); 6] = [
            ("cut", |path| OpenOptions::new().write(true).open(path).unwrap().set_len(40).unwrap()),
            ("empty", |path| fs::write(path, b"").unwrap()),
            ("other bytes", |path| fs::write(path, [7; 95]).unwrap()),
            ("other value", |path| {
                fs::write(path, seal(Kind::Result, &Key([0; 32]), b"x")).unwrap();
            }),
            ("folder", |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir_all(path.join("deep")).unwrap();
            }),
            ("device", |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/dev/zero", path).unwrap();
            }),
        ];
        for (name, damage) in damages {
            with_records(|records, path| {
                damage(&path);
                assert!(reason(records.get(&KEY, true)).is_some(), "{name}");
                assert!(matches!(records.get(&KEY, true), Found::Nothing), "{name}");
                records.put(&KEY, b"payload").unwrap();
                assert!(matches!(records.get(&KEY, true), Found::Value(_)), "{name}");
            });
        }
    }

    #[test]
    fn another_schema_is_another_version() {
        with_records(|records, path| {
            let mut bytes = fs::read(&path).unwrap();
            bytes[8] += 1;
            fs::write(&path, bytes).unwrap();
            assert_eq!(reason(records.get(&KEY, true)), Some(Reason::Version));
        });
    }

    #[test]
    fn use_is_marked() {
        with_records(|records, path| {
            let file = fs::File::open(&path).unwrap();
            let modified = || file.metadata().unwrap().modified().unwrap();
            for past in [SystemTime::UNIX_EPOCH, SystemTime::now() + Duration::from_secs(9_000)] {
                file.set_modified(past).unwrap();
                records.get(&KEY, false);
                assert_eq!(modified(), past);
                records.get(&KEY, true);
                assert!(modified().duration_since(SystemTime::now()).is_err());
                assert_ne!(modified(), past);
            }
        });
    }
}
