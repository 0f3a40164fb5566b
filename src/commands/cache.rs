//! The commands about the cache itself: settings, statistics, size, contents.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use btfcache_schema::{FieldList, Fields, Key, Purpose, Tag};

use super::{stats, transfer};
use crate::elf::ElfFile;
use crate::output::Output;
use crate::settings::{Flags, Settings, human_bytes};
use crate::store::{Cache, Collected, Lookup, content_fields, content_key, section_digests};

/// What is asked of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRequest {
    /// Settings that were typed.
    pub flags: Flags,
    /// What about.
    pub subject: Subject,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The settings.
    Config,
    /// What runs counted.
    Stats {
        /// As JSON.
        json: bool,
        /// Forget it then.
        zero: bool,
    },
    /// Entries above the limits.
    Collect,
    /// All entries.
    Clear,
    /// Results to be put into an archive.
    Export {
        /// The archive.
        archive: PathBuf,
        /// Only those used since the last export or import.
        since_last_run: bool,
    },
    /// The results of an archive.
    Import(PathBuf),
    /// A file or a key.
    Inspect(PathBuf),
}

/// Carries out `request`.
pub(super) fn run(request: &CacheRequest, settings: &Settings, output: Output) -> Result<()> {
    for fault in &settings.faults {
        output.notice(&format!("setting is ignored: {fault}"));
    }
    let text = match &request.subject {
        Subject::Config => config(settings),
        Subject::Stats { json, zero } => statistics(settings, *json, *zero)?,
        Subject::Collect => collect(settings, Cache::limit)?,
        Subject::Clear => collect(settings, |_| 0)?,
        Subject::Export { archive, since_last_run } => {
            let cache = open(settings)?.context("there is no cache yet: nothing to export")?;
            transfer::export(&cache, archive, *since_last_run, !settings.readonly.value)?
        }
        Subject::Import(archive) => import(settings, archive)?,
        Subject::Inspect(path) => inspect(path, settings)?,
    };
    output.data(text.as_bytes()).context("failed to write to stdout")
}

/// One line for each setting; those that nobody set are comments, so that the text is a
/// configuration file.
fn config(settings: &Settings) -> String {
    let file = settings.file.as_ref().map(|path| format!("# file: {}\n", path.display()));
    let mut text = file.unwrap_or_default();
    for (name, value, source) in settings.rows() {
        let line = format!("{} = \"{value}\"", name.in_file());
        text.push_str(&format!("{line:48} # {source}\n"));
    }
    text
}

fn open(settings: &Settings) -> Result<Option<Cache>> {
    ensure_enabled(settings)?;
    let mut settings = settings.clone();
    // Looking at a cache does not make one.
    settings.readonly.value = true;
    Cache::open(&settings).map_err(|problem| anyhow!(problem.message))
}

fn ensure_enabled(settings: &Settings) -> Result<()> {
    let is_off = settings.disable.value;
    ensure!(!is_off, "the cache is switched off by BTFCACHE_DISABLE or the configuration file");
    Ok(())
}

fn import(settings: &Settings, archive: &Path) -> Result<String> {
    ensure_enabled(settings)?;
    ensure!(!settings.readonly.value, "the cache is set to be read only: nothing is imported");
    let cache = Cache::open(settings).map_err(|problem| anyhow!(problem.message))?;
    let cache = cache.context("there is no folder for a cache: name one with `--cache-dir`")?;
    transfer::import(&cache, archive)
}

fn statistics(settings: &Settings, json: bool, zero: bool) -> Result<String> {
    let cache = open(settings)?;
    let report = stats::Report::of(cache.as_ref(), settings);
    if let Some(cache) = cache.filter(|_| zero) {
        cache.forget_counted();
    }
    Ok(if json { report.json() } else { report.text() })
}

fn collect(settings: &Settings, limit: impl FnOnce(&Cache) -> u64) -> Result<String> {
    ensure!(!settings.readonly.value, "the cache is set to be read only: nothing is removed");
    let Some(cache) = open(settings)? else {
        return Ok("there is no cache yet\n".to_owned());
    };
    match cache.collect(limit(&cache)).map_err(|problem| anyhow!(problem.message))? {
        Some(Collected { removed, kept }) => Ok(format!(
            "removed {} entries ({}), kept {} ({})\n",
            removed.entries,
            human_bytes(removed.bytes),
            kept.entries,
            human_bytes(kept.bytes)
        )),
        None => bail!("another process removes entries right now: try again in a moment"),
    }
}

fn inspect(subject: &Path, settings: &Settings) -> Result<String> {
    match subject.to_str().and_then(|text| text.parse().ok()) {
        Some(key) => inspect_key(&key, settings),
        None => inspect_file(subject),
    }
}

/// The fields of the key of a file's contents.
fn inspect_file(path: &Path) -> Result<String> {
    let failed = || format!("failed to read `{}`", path.display());
    let elf = ElfFile::open(path).with_context(failed)?;
    let mut list = FieldList::new(Purpose::Content);
    content_fields(&elf, &section_digests(&elf).with_context(failed)?, &mut list);
    list.key(Tag::Content, &content_key(&elf).with_context(failed)?);
    let mut text = String::new();
    for field in list.fields() {
        // What belongs to a section stands on its line.
        let starts_line = field.tag <= Tag::SectionIndex && !text.is_empty();
        text.push_str(if starts_line { "\n" } else { " " });
        text.push_str(&format!("{}={}", field.tag.name(), field.text));
    }
    Ok(text.trim_start().to_owned() + "\n")
}

fn inspect_key(key: &Key, settings: &Settings) -> Result<String> {
    let cache = open(settings)?.context("there is no cache yet")?;
    let record = match cache.result(key) {
        Lookup::Known(record) => record,
        Lookup::Unknown => bail!("nothing is stored under {key}"),
        Lookup::Unusable(problem) => bail!(problem.message),
    };
    let size = |bytes: &[u8]| human_bytes(bytes.len() as u64);
    let mut text = format!(".BTF: {}\n", size(&record.btf));
    if let Some(base) = &record.base {
        text.push_str(&format!(".BTF.base: {}\n", size(base)));
    }
    if let Some(base) = &record.base_key {
        text.push_str(&format!("base: {base}\n"));
    }
    text.push_str(&format!("made in: {:.1} ms\n", record.microseconds as f64 / 1000.0));
    record.notices.iter().for_each(|line| text.push_str(&format!("notice: {line}\n")));
    record.skips.iter().for_each(|line| text.push_str(&format!("left out: {line}\n")));
    Ok(text)
}
