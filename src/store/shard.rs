//! Partial work on one artifact: a small sled database, `work/NAME/`. Opened, read, closed; made anew,
//! closed, renamed into place. So a database is never written to once it can be seen: nothing leaks in
//! it, and a run that is killed leaves it as it was. One process at a time can have it open; whoever
//! finds it taken does without it.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use btfcache_schema::{HEADER_SIZE, Header, Key, Kind, seal};

use super::directory::make;
use super::gc::size_of;
use super::{Directory, Problem, Reason};
use crate::kept::Whole;

/// How often a database that somebody else has open is asked for, and after which time.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(2);

/// The work on one artifact.
#[derive(Debug)]
pub(super) struct Shard<'a> {
    directory: &'a Directory,
    key: Key,
    path: PathBuf,
}

impl<'a> Shard<'a> {
    /// That on the artifact of this name.
    pub fn of(directory: &'a Directory, artifact: &str) -> Self {
        let key = Key(*blake3::hash(artifact.as_bytes()).as_bytes());
        let path = directory.join("work").join(&key.to_string()[..16]);
        Self { directory, key, path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is stored; `None` if nothing is, or somebody else has it open.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged: then it is removed.
    pub fn read(&self) -> Result<Option<Whole>, Problem> {
        if !self.path.is_dir() {
            return Ok(None);
        }
        let read = || -> Result<Option<Whole>, Problem> {
            let Some(database) = self.open()? else {
                return Ok(None);
            };
            let pool = self.value(&database, "pool", Kind::Pool)?;
            let units = self.value(&database, "units", Kind::Units)?;
            Ok(Some(Whole { pool, units }))
        };
        let result = without_panic(&self.path, read);
        if result.is_err() {
            self.remove();
        }
        result
    }

    /// Stores `whole` in the place of what is there; gives by how many bytes that has grown.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn write(&self, whole: &Whole) -> Result<i64, Problem> {
        let failed = |error: io::Error| Problem::io("write", &self.path, &error);
        let folder = self.directory.temporary()?;
        let new = tempfile::Builder::new().prefix("work").tempdir_in(folder).map_err(failed)?;
        let write = || -> Result<(), Problem> {
            let damaged = |error: sled::Error| self.problem(&error);
            let database = config(new.path()).open().map_err(damaged)?;
            for (name, kind, payload) in
                [("pool", Kind::Pool, &whole.pool), ("units", Kind::Units, &whole.units)]
            {
                database.insert(name, seal(kind, &self.key, payload)).map_err(damaged)?;
            }
            Ok(())
        };
        without_panic(&self.path, write)?;
        let grown = size_of(new.path()) as i64 - size_of(&self.path) as i64;
        make(&self.directory.join("work")).map_err(failed)?;
        self.remove();
        fs::rename(new.keep(), &self.path).map_err(failed)?;
        Ok(grown)
    }

    /// Opens the database; `None` if somebody else keeps it.
    fn open(&self) -> Result<Option<sled::Db>, Problem> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            match config(&self.path).open() {
                Ok(database) => return Ok(Some(database)),
                Err(sled::Error::Io(error)) if is_locked(&error) => {}
                Err(error) => return Err(self.problem(&error)),
            }
        }
        Ok(None)
    }

    fn value(&self, database: &sled::Db, name: &str, kind: Kind) -> Result<Vec<u8>, Problem> {
        let found = database.get(name).map_err(|error| self.problem(&error))?;
        let bytes = found.ok_or_else(|| Problem::damaged(&self.path, "a part is missing"))?;
        let cut = || Problem::damaged(&self.path, "it is cut off");
        let (header, payload) = bytes.split_first_chunk::<HEADER_SIZE>().ok_or_else(cut)?;
        let format = |error| Problem::format(&self.path, &error);
        let header = Header::parse(*header, kind, &self.key, bytes.len() as u64).map_err(format)?;
        header.verify(payload).map_err(format)?;
        Ok(payload.to_vec())
    }

    /// Removes what is stored, at once for everybody else.
    pub fn remove(&self) {
        let Ok(folder) = self.directory.temporary() else {
            return;
        };
        if let Ok(aside) = tempfile::Builder::new().prefix("old").tempdir_in(folder) {
            // Removed with the folder that it is put into.
            _ = fs::rename(&self.path, aside.path().join("work"));
        }
    }

    fn problem(&self, error: &sled::Error) -> Problem {
        match error {
            sled::Error::Io(error) => Problem::io("use", &self.path, error),
            other => Problem::damaged(&self.path, other.to_string()),
        }
    }
}

fn config(path: &Path) -> sled::Config {
    // Nothing is written twice, so nothing has to be flushed in between.
    sled::Config::new()
        .path(path)
        .mode(sled::Mode::HighThroughput)
        .cache_capacity(1 << 20)
        .flush_every_ms(None)
}

fn is_locked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("acquire lock")
}

/// sled panics on some kinds of damage.
fn without_panic<T>(path: &Path, work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Problem::new(Reason::Damaged, format!("`{}` is damaged", path.display())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path(), false).unwrap().unwrap();
        let shard = Shard::of(&directory, "vmlinux");
        assert_eq!(shard.read().unwrap(), None);
        for size in [0, 1, 10_000_000] {
            let whole =
                Whole { pool: vec![1; size / 2], units: (0..size).map(|n| n as u8).collect() };
            let before = size_of(&shard.path) as i64;
            let grown = shard.write(&whole).unwrap();
            assert_eq!(before + grown, size_of(&shard.path) as i64);
            assert!(shard.read().unwrap() == Some(whole), "{size}");
        }
        assert!(size_of(&shard.path) < 17_000_000);
        assert_eq!(Shard::of(&directory, "other").read().unwrap(), None);
        // Somebody else has it open.
        let open = shard.open().unwrap().unwrap();
        assert_eq!(shard.read().unwrap(), None);
        drop(open);
        assert!(shard.read().unwrap().is_some());
        shard.remove();
        assert_eq!(shard.read().unwrap(), None);
        assert_eq!(fs::read_dir(directory.temporary().unwrap()).unwrap().count(), 0);
    }
}
