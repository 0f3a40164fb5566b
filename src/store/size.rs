//! How large the cache is, roughly and cheaply: a file of signed 64-bit numbers, each what somebody
//! stored or removed, in bytes. Numbers are appended, so any number of processes can do it at once.
//! What is lost when the file is written anew comes back at the next scan.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::{Directory, Problem};

/// A longer file is due for a scan, which writes it anew.
const MAX_ENTRIES: usize = 8192;

/// The file.
#[derive(Debug)]
pub(super) struct SizeLog<'a> {
    directory: &'a Directory,
    path: PathBuf,
}

impl<'a> SizeLog<'a> {
    pub(super) fn of(directory: &'a Directory) -> Self {
        Self { directory, path: directory.join("size") }
    }

    /// Makes the file of a new cache.
    pub(super) fn begin(&self) {
        if self.path.exists() || self.directory.join("results").exists() {
            return;
        }
        let write = |folder: PathBuf| {
            let mut file = tempfile::NamedTempFile::new_in(folder).ok()?;
            file.write_all(&0_i64.to_le_bytes()).ok()?;
            file.persist_noclobber(&self.path).ok()
        };
        // Whoever needs the size scans if this failed.
        _ = self.directory.temporary().ok().and_then(write);
    }

    /// Adds what was stored, or removed if negative. Without a file nothing is added: its absence
    /// says that the size is unknown.
    pub(super) fn add(&self, bytes: i64) -> Result<(), Problem> {
        let open = OpenOptions::new().append(true).open(&self.path);
        match open.and_then(|mut file| file.write_all(&bytes.to_le_bytes())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Problem::io("write", &self.path, &error))
            }
            _ => Ok(()),
        }
    }

    /// The size in bytes; `None` if the entries must be looked at to know it.
    pub(super) fn estimate(&self) -> Option<u64> {
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(nonblock).open(&self.path).ok()?;
        let limit = MAX_ENTRIES * 8 + 1;
        // Room for all of it, so that it takes one read.
        let mut bytes = Vec::with_capacity(limit + 1);
        file.take(limit as u64).read_to_end(&mut bytes).ok()?;
        let (entries, rest) = bytes.as_chunks::<8>();
        if entries.is_empty() || !rest.is_empty() || bytes.len() >= limit {
            return None;
        }
        let sum = entries
            .iter()
            .try_fold(0_i64, |sum, entry| sum.checked_add(i64::from_le_bytes(*entry)));
        u64::try_from(sum?).ok()
    }

    /// Makes `bytes` the size.
    pub(super) fn reset(&self, bytes: u64) -> Result<(), Problem> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.directory.replace(&self.path, &bytes.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_add_up_until_there_are_too_many() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap().unwrap();
        let log = SizeLog::of(&directory);
        log.add(5).unwrap();
        assert_eq!(log.estimate(), None);
        log.reset(100).unwrap();
        log.add(50).unwrap();
        log.add(-20).unwrap();
        assert_eq!(log.estimate(), Some(130));
        log.add(-131).unwrap();
        assert_eq!(log.estimate(), None, "less than nothing");
        log.reset(1).unwrap();
        (1..MAX_ENTRIES).for_each(|_| log.add(0).unwrap());
        assert_eq!(log.estimate(), Some(1));
        log.add(0).unwrap();
        assert_eq!(log.estimate(), None);
        fs_err::write(&log.path, b"odd bytes").unwrap();
        assert_eq!(log.estimate(), None);
    }
}
