//! `btfcache export` and `btfcache import`: results for another cache, in a file.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Error, Result, anyhow, ensure};
use btfcache_schema::ResultRecord;

use crate::archive::{self, Item};
use crate::btf::load::parse_alone;
use crate::btf::read::{Btf, Header};
use crate::settings::human_bytes;
use crate::store::{Cache, Imported, Problem};
use crate::write_file::write_in_pieces;

/// Writes the results of `cache` to `path`, or those that were used since the last export or import;
/// gives what to say. `mark`: this is the last export from now on.
pub(super) fn export(cache: &Cache, path: &Path, since: bool, mark: bool) -> Result<String> {
    let now = SystemTime::now();
    let keys = cache.result_keys(since);
    let (count, bytes) = write_in_pieces(path, |file| {
        let (mut count, mut bytes) = (0_u64, 0_u64);
        let mut write = |part: &[u8]| {
            bytes += part.len() as u64;
            file.write_all(part)
        };
        // What was removed meanwhile, or is damaged, does not go with them.
        for (key, sealed) in keys.iter().filter_map(|key| Some((key, cache.sealed_result(key)?))) {
            write(&archive::entry(key, &sealed)?)?;
            count += 1;
        }
        write(&archive::end())?;
        Ok((count, bytes))
    })?;
    if mark {
        // Without it, as on a read-only file system, the next export holds more than it must.
        _ = cache.mark_transfer(now);
    }
    let (bytes, path) = (human_bytes(bytes), path.display());
    Ok(format!("exported {count} results to `{path}` ({bytes})\n"))
}

/// What became of the items of an archive.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    stored: u64,
    known: u64,
    no_room: u64,
    skipped: u64,
}

impl Tally {
    /// For the end of a sentence.
    fn text(self) -> String {
        let mut text = format!("imported {} results", self.stored);
        for (count, what) in [
            (self.known, "were there already"),
            (self.no_room, "found no room within the limit"),
            (self.skipped, "skipped: damaged, or not results of this version"),
        ] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text
    }
}

/// Puts the results of the archive at `path` into `cache`; gives what to say.
pub(super) fn import(cache: &Cache, path: &Path) -> Result<String> {
    let now = SystemTime::now();
    let mut tally = Tally::default();
    let result =
        open(path).and_then(|file| archive::read(file, |item| take(cache, item, now, &mut tally)));
    result.with_context(|| {
        format!("failed to import `{}`; before that, {}", path.display(), tally.text())
    })?;
    cache.mark_transfer(now).map_err(message)?;
    Ok(tally.text() + "\n")
}

fn open(path: &Path) -> Result<File> {
    // A fifo would block in `open`, so look first.
    ensure!(path.metadata()?.is_file(), "it is not a regular file");
    Ok(File::open(path)?)
}

fn take(cache: &Cache, item: Item, now: SystemTime, tally: &mut Tally) -> Result<()> {
    let count = match item {
        Item::Result(key, record) if is_sound(&record) => {
            match cache.import_result(&key, &record, now).map_err(message)? {
                Imported::Stored => &mut tally.stored,
                Imported::Known => &mut tally.known,
                Imported::NoRoom => &mut tally.no_room,
            }
        }
        Item::Result(..) | Item::Other => &mut tally.skipped,
    };
    *count += 1;
    Ok(())
}

/// Whether the images of `record` are BTF, as far as that can be told without the base.
fn is_sound(record: &ResultRecord) -> bool {
    let ResultRecord { btf, base, base_key, .. } = record;
    if btf.is_empty() {
        return true;
    }
    match (base, base_key) {
        (Some(base), _) => parse_alone(base).is_ok_and(|base| Btf::parse(btf, Some(&base)).is_ok()),
        (None, Some(_)) => Header::parse(btf).is_ok(),
        (None, None) => parse_alone(btf).is_ok(),
    }
}

fn message(problem: Problem) -> Error {
    anyhow!(problem.message)
}
