//! What runs counted: one record per input, appended to the file of the day. One `write` of a few
//! hundred bytes to the end of a file is whole or not there, so no lock is needed.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use btfcache_schema::{HEADER_SIZE, Header, Key, Kind, RunRecord, seal};

use super::directory::make;
use super::records::remove;
use super::{Directory, Problem};

/// Records have no name of their own.
const NO_KEY: Key = Key([0; 32]);
const MAGIC: &[u8] = b"BTFCACHE";
/// As much of a file as is read, in bytes.
const LIMIT: u64 = 64 << 20;
/// Files of so many last days may still be appended to.
const OPEN_DAYS: u64 = 2;
/// Artifacts have names of at most so many bytes.
const MAX_NAME: usize = 128;

/// The files of all days.
#[derive(Debug)]
pub(super) struct RunLog<'a> {
    directory: &'a Directory,
    folder: PathBuf,
}

impl<'a> RunLog<'a> {
    pub(super) fn of(directory: &'a Directory) -> Self {
        Self { directory, folder: directory.join("runs") }
    }

    /// Adds a record; gives the bytes that it takes.
    pub(super) fn append(&self, record: &RunRecord, now: SystemTime) -> Result<i64, Problem> {
        let path = self.folder.join(day(now).to_string());
        let bytes = seal(Kind::Run, &NO_KEY, &record.encode());
        let append = || OpenOptions::new().create(true).append(true).open(&path);
        let file = match append() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(&self.folder).and_then(|()| append())
            }
            result => result,
        };
        let written = file.and_then(|mut file| file.write_all(&bytes));
        written.map_err(|error| Problem::io("write", &path, &error))?;
        Ok(bytes.len() as i64)
    }

    /// The sums by artifact.
    pub(super) fn sums(&self) -> BTreeMap<String, RunRecord> {
        let mut sums = BTreeMap::new();
        for (path, _) in self.files() {
            add(&mut sums, &path);
        }
        sums
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.files().iter().for_each(|(path, _)| remove(path));
    }

    /// Makes one record per artifact of each day that nobody appends to any more. Two processes
    /// that do it at once write the same.
    pub(super) fn compact(&self, now: SystemTime) -> Result<(), Problem> {
        for (path, file_day) in self.files() {
            if file_day + OPEN_DAYS > day(now) {
                continue;
            }
            let mut sums = BTreeMap::new();
            let count = add(&mut sums, &path);
            if count > sums.len() {
                let seal = |record: &RunRecord| seal(Kind::Run, &NO_KEY, &record.encode());
                let bytes: Vec<u8> = sums.values().flat_map(seal).collect();
                self.directory.replace(&path, &bytes)?;
            }
        }
        Ok(())
    }

    /// The files with their days, in order.
    fn files(&self) -> Vec<(PathBuf, u64)> {
        let entries = fs_err::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<(PathBuf, u64)> = entries
            .filter_map(|entry| {
                let day = entry.file_name().to_str()?.parse().ok()?;
                Some((entry.path(), day))
            })
            .collect();
        files.sort();
        files
    }
}

/// The name under which `input` is counted.
pub(super) fn artifact_name(input: &Path) -> String {
    let name = input.file_name().unwrap_or(input.as_os_str()).to_string_lossy();
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// Days since 1970.
fn day(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400)
}

/// Adds the records of a file to `sums`; gives how many there were.
fn add(sums: &mut BTreeMap<String, RunRecord>, path: &Path) -> usize {
    let mut bytes = Vec::new();
    let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    if is_file && let Ok(file) = fs_err::File::open(path) {
        // What could be read before an error counts.
        _ = file.take(LIMIT).read_to_end(&mut bytes);
    }
    let mut count = 0;
    let mut rest = &bytes[..];
    while let Some(start) = memchr::memmem::find(rest, MAGIC) {
        rest = &rest[start..];
        match first(rest) {
            Some((record, size)) => {
                let name = record.artifact.clone();
                sums.entry(name.clone()).or_insert_with(|| RunRecord::new(name)).merge(&record);
                rest = &rest[size..];
                count += 1;
            }
            // Damaged: the next one may be whole.
            None => rest = &rest[MAGIC.len()..],
        }
    }
    count
}

/// The record at the start of `bytes`, and its size.
fn first(bytes: &[u8]) -> Option<(RunRecord, usize)> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_SIZE>()?;
    let length = u64::from_le_bytes(*header[48..].first_chunk()?);
    let payload = rest.get(..usize::try_from(length).ok()?)?;
    let size = HEADER_SIZE + payload.len();
    let header = Header::parse(*header, Kind::Run, &NO_KEY, size as u64).ok()?;
    header.verify(payload).ok()?;
    Some((RunRecord::decode(payload).ok()?, size))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use btfcache_schema::Counter;

    use super::*;

    fn record(artifact: &str) -> RunRecord {
        let mut record = RunRecord::new(artifact.to_owned());
        record.add(Counter::Runs, 1);
        record
    }

    fn runs(log: &RunLog<'_>, artifact: &str) -> u64 {
        log.sums().get(artifact).map_or(0, |record| record.get(Counter::Runs))
    }

    #[test]
    fn records_add_up_over_days_and_damage() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap().unwrap();
        let log = RunLog::of(&directory);
        let start = SystemTime::UNIX_EPOCH;
        for days in [0, 0, 1, 9, 9] {
            let now = start + Duration::from_secs(days * 86_400);
            log.append(&record("vmlinux"), now).unwrap();
            log.append(&record("ext4.ko"), now).unwrap();
        }
        assert_eq!((runs(&log, "vmlinux"), runs(&log, "ext4.ko")), (5, 5));
        let first = log.folder.join("0");
        let mut bytes = fs_err::read(&first).unwrap();
        bytes[100] ^= 1;
        fs_err::write(&first, &bytes).unwrap();
        assert_eq!((runs(&log, "vmlinux"), runs(&log, "ext4.ko")), (4, 5));
        let size = |day: &str| log.folder.join(day).metadata().unwrap().len();
        let before = (size("0"), size("1"), size("9"));
        log.compact(start + Duration::from_secs(9 * 86_400)).unwrap();
        assert_eq!((runs(&log, "vmlinux"), runs(&log, "ext4.ko")), (4, 5));
        assert!(size("0") < before.0 && size("1") == before.1 && size("9") == before.2);
        log.clear();
        assert!(log.sums().is_empty());
    }

    #[test]
    fn names_of_artifacts() {
        assert_eq!(artifact_name(Path::new("a/b/ext4.ko")), "ext4.ko");
        assert_eq!(artifact_name(Path::new("/")), "/");
        let long = "é".repeat(200);
        assert_eq!(artifact_name(Path::new(&long)).len(), 128);
    }
}
