//! Keeps the cache small: removes the entries that were not used for the longest time. An entry is
//! a file, or a folder of `work/` as a whole; its size is what it takes on disk.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::records::remove;
use super::runs::RunLog;
use super::size::SizeLog;
use super::{Directory, Problem};

/// Folders whose files, two levels down, are entries.
const FAN_OUT: [&str; 4] = ["results", "stat", "bases", "footings"];
/// The folder whose folders are entries.
const SHARDS: &str = "work";
/// How long somebody may be at making a file.
const IN_THE_MAKING: Duration = Duration::from_secs(3600);
/// A folder that is nested deeper is none of ours.
const MAX_DEPTH: u32 = 8;

/// How much may stay.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes on disk; entries are removed until no more are left.
    pub size: u64,
    /// How long an unused entry stays; 0: any time.
    pub age: Duration,
}

/// What is in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of entries.
    pub entries: u64,
    /// Bytes on disk, with everything that is not an entry.
    pub bytes: u64,
}

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// What it removed.
    pub removed: Usage,
    /// What is left.
    pub kept: Usage,
}

#[derive(Debug)]
struct Item {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// What is in the cache now.
pub(super) fn usage(directory: &Directory) -> Usage {
    let scan = Scan::of(directory);
    Usage { entries: scan.items.len() as u64, bytes: scan.bytes() }
}

/// Removes entries until `limits` are kept; `None` if somebody else is at it.
pub(super) fn collect(
    directory: &Directory,
    limits: Limits,
    now: SystemTime,
) -> Result<Option<Collected>, Problem> {
    let Some(_lock) = lock(directory)? else {
        return Ok(None);
    };
    remove_abandoned(&directory.join("tmp"), now);
    RunLog::of(directory).compact(now)?;
    let mut scan = Scan::of(directory);
    let mut total = scan.bytes();
    // Of two that were used at the same time the path decides, so that a run can be repeated.
    scan.items.sort_by(|one, two| (one.used, &one.path).cmp(&(two.used, &two.path)));
    let mut collected = Collected::default();
    for item in &scan.items {
        if total <= limits.size && !is_older(item, limits.age, now) {
            continue;
        }
        remove(&item.path);
        total -= item.bytes;
        collected.removed.entries += 1;
        collected.removed.bytes += item.bytes;
    }
    let entries = scan.items.len() as u64 - collected.removed.entries;
    collected.kept = Usage { entries, bytes: total };
    SizeLog::of(directory).reset(total)?;
    Ok(Some(collected))
}

fn is_older(item: &Item, age: Duration, now: SystemTime) -> bool {
    age > Duration::ZERO && now.duration_since(item.used).is_ok_and(|unused| unused > age)
}

/// The right to remove entries. The system takes it back when the process ends, however it ends.
struct Lock(File);

impl Drop for Lock {
    /// Closing would not do: a child that another thread is about to start has the file open as well.
    fn drop(&mut self) {
        // Without it the lock ends with the process.
        _ = self.0.unlock();
    }
}

/// `None` if somebody else has the right.
fn lock(directory: &Directory) -> Result<Option<Lock>, Problem> {
    let path = directory.join("gc.lock");
    let open = OpenOptions::new().create(true).append(true).open(&path);
    let file = open.map_err(|error| Problem::io("open", &path, &error))?;
    // A file system without locks has none to hold; two collections at once do no harm.
    match file.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        _ => Ok(Some(Lock(file))),
    }
}

/// Removes files that were in the making when their process was killed.
fn remove_abandoned(folder: &Path, now: SystemTime) {
    for (path, metadata) in entries(folder) {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let distance = match now.duration_since(modified) {
            Ok(age) => age,
            Err(ahead) => ahead.duration(),
        };
        if distance > IN_THE_MAKING {
            remove(&path);
        }
    }
}

/// All entries, and the size of what is not one.
struct Scan {
    items: Vec<Item>,
    other: u64,
}

impl Scan {
    fn of(directory: &Directory) -> Self {
        let mut scan = Self { items: Vec::new(), other: 0 };
        for (path, metadata) in entries(directory.root()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            if !metadata.is_dir() {
                scan.other += on_disk(&metadata);
            } else if FAN_OUT.contains(&name) {
                scan.fan_out(&path);
            } else if name == SHARDS {
                scan.items.extend(entries(&path).map(|(path, metadata)| item(path, &metadata)));
            } else {
                scan.other += item(path, &metadata).bytes;
            }
        }
        scan
    }

    fn fan_out(&mut self, folder: &Path) {
        for (first, _) in entries(folder) {
            for (second, _) in entries(&first) {
                self.items.extend(entries(&second).map(|(path, metadata)| item(path, &metadata)));
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.other + self.items.iter().map(|item| item.bytes).sum::<u64>()
    }
}

/// A file, or a folder with all that is in it.
fn item(path: PathBuf, metadata: &Metadata) -> Item {
    fn add(item: &mut Item, folder: &Path, depth: u32) {
        for (path, metadata) in entries(folder) {
            item.bytes += on_disk(&metadata);
            item.used = item.used.max(modified(&metadata));
            if metadata.is_dir() && depth > 0 {
                add(item, &path, depth - 1);
            }
        }
    }
    let mut item = Item { bytes: on_disk(metadata), used: modified(metadata), path };
    if metadata.is_dir() {
        let folder = item.path.clone();
        add(&mut item, &folder, MAX_DEPTH);
    }
    item
}

/// Bytes on disk of a file or folder; 0 if it is not there.
pub(super) fn size_of(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |metadata| item(path.to_owned(), &metadata).bytes)
}

fn on_disk(metadata: &Metadata) -> u64 {
    metadata.blocks() * 512
}

fn modified(metadata: &Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// What is in a folder; nothing if it cannot be read, and without what others remove meanwhile.
fn entries(folder: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let entries = fs_err::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry: io::Result<_>| {
        let entry = entry.ok()?;
        let metadata = entry.path().symlink_metadata().ok()?;
        Some((entry.path(), metadata))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A cache with entries that were used 1, 2, 3... days ago, each of 4096 bytes.
    fn with_entries(count: u64, check: impl FnOnce(&Directory, &dyn Fn() -> Vec<u64>)) {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap().unwrap();
        let path = |day: u64| directory.join("results").join("a").join("b").join(day.to_string());
        fs::create_dir_all(path(0).parent().unwrap()).unwrap();
        for day in 1..=count {
            fs::write(path(day), [1; 4096]).unwrap();
            let used = SystemTime::now() - Duration::from_secs(day * 86_400);
            File::open(path(day)).unwrap().set_modified(used).unwrap();
        }
        check(&directory, &|| (1..=count).filter(|&day| path(day).exists()).collect());
    }

    fn run(directory: &Directory, size: u64, days: u64) -> Collected {
        let age = Duration::from_secs(days * 86_400);
        collect(directory, Limits { size, age }, SystemTime::now()).unwrap().unwrap()
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        with_entries(8, |directory, left| {
            let before = usage(directory);
            assert_eq!(before.entries, 8);
            let collected = run(directory, before.bytes - 2 * 4096, 0);
            assert!(collected.removed.entries >= 2, "{collected:?}");
            assert_eq!(left(), (1..=8 - collected.removed.entries).collect::<Vec<_>>());
            assert_eq!(SizeLog::of(directory).estimate(), Some(collected.kept.bytes));
        });
    }

    #[test]
    fn what_is_too_old_goes() {
        with_entries(4, |directory, left| {
            run(directory, u64::MAX, 0);
            assert_eq!(left(), [1, 2, 3, 4]);
            run(directory, u64::MAX, 3);
            assert_eq!(left(), [1, 2]);
        });
    }

    #[test]
    fn a_shard_is_one_entry() {
        with_entries(2, |directory, left| {
            let shard = directory.join("work").join("vmlinux");
            fs::create_dir_all(shard.join("blobs")).unwrap();
            fs::write(shard.join("blobs/db"), [1; 9000]).unwrap();
            File::open(&shard).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(usage(directory).entries, 3);
            run(directory, usage(directory).bytes - 4096, 0);
            assert!(shard.exists(), "its newest file counts");
            assert_eq!(left(), [1]);
            run(directory, 0, 0);
            assert!(!shard.exists() && left().is_empty());
        });
    }

    #[test]
    fn only_one_process_collects() {
        with_entries(1, |directory, left| {
            let lock = lock(directory).unwrap();
            let limits = Limits { size: 0, age: Duration::ZERO };
            assert_eq!(collect(directory, limits, SystemTime::now()), Ok(None));
            assert_eq!(left(), [1]);
            drop(lock);
            run(directory, 0, 0);
            assert!(left().is_empty());
        });
    }

    #[test]
    fn what_killed_processes_left_goes_after_an_hour() {
        with_entries(0, |directory, _| {
            let folder = directory.temporary().unwrap();
            for (name, age) in [("new", 60), ("old", 7200)] {
                let file = File::create(folder.join(name)).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            }
            run(directory, u64::MAX, 0);
            assert!(folder.join("new").exists() && !folder.join("old").exists());
        });
    }
}
