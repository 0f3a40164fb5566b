//! Statistics of the cache for people and for programs: takes what runs counted, gives text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use btfcache_schema::{Counter, RunRecord, SCHEMA_VERSION};

use crate::settings::{Settings, human_bytes, human_duration};
use crate::store::{Cache, Usage};

/// Hits by how they were found, with what to call them.
const HITS: [(Counter, &str); 3] = [
    (Counter::HitsByStat, "by times"),
    (Counter::HitsByContent, "by content"),
    (Counter::HitsByFooting, "moved to another base"),
];
/// Misses by reason, with what to call them.
const MISSES: [(Counter, &str); 4] = [
    (Counter::MissesNew, "new"),
    (Counter::MissesRecache, "recached"),
    (Counter::MissesDamaged, "damaged"),
    (Counter::MissesUnusable, "cache not usable"),
];
const PROBLEMS: [(Counter, &str); 8] = [
    (Counter::ProblemDamaged, "damaged"),
    (Counter::ProblemVersion, "other version"),
    (Counter::ProblemFull, "disk full"),
    (Counter::ProblemDenied, "permission"),
    (Counter::ProblemOwner, "other owner"),
    (Counter::ProblemIo, "system"),
    (Counter::ProblemDiffers, "differs"),
    (Counter::ProblemSetting, "setting"),
];

/// What there is to say.
#[derive(Debug)]
pub(super) struct Report {
    directory: Option<PathBuf>,
    usage: Usage,
    max_bytes: u64,
    total: RunRecord,
    artifacts: BTreeMap<String, RunRecord>,
}

impl Report {
    /// What `cache` has counted; zeros if there is none.
    pub(super) fn of(cache: Option<&Cache>, settings: &Settings) -> Self {
        let artifacts = cache.map(Cache::counted).unwrap_or_default();
        let mut total = RunRecord::default();
        artifacts.values().for_each(|record| total.merge(record));
        let usage = cache.map(Cache::usage).unwrap_or_default();
        let directory = settings.dir.value.clone();
        Self { directory, usage, max_bytes: settings.max_size.value, total, artifacts }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let total = &self.total;
        let directory = self.directory.as_ref().map(|path| path.display().to_string());
        let (hits, misses) = (hits(total), misses(total));
        let rate = hits as f64 * 100.0 / (hits + misses).max(1) as f64;
        let limit = match self.max_bytes {
            0 => "no limit".to_owned(),
            bytes => human_bytes(bytes),
        };
        let Usage { entries, bytes } = self.usage;
        let rows = [
            ("cache", directory.unwrap_or_else(|| "none".to_owned())),
            ("size", format!("{} of {limit}, {entries} entries", human_bytes(bytes))),
            ("hits", format!("{hits} ({rate:.1} %): {}", hit_kinds(total))),
            ("misses", with_reasons(misses, &reasons(total, &MISSES))),
            ("units", units(total)),
            ("time saved", human_duration(saved(total))),
            ("time spent", human_duration(spent(total))),
            ("checked", total.get(Counter::Checked).to_string()),
            ("removed", evicted(total)),
            ("problems", with_reasons(problems(total), &reasons(total, &PROBLEMS))),
        ];
        let mut text = String::new();
        for (name, value) in rows {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{name:<12}{value}");
        }
        text + &self.table()
    }

    /// A line for each artifact.
    fn table(&self) -> String {
        if self.artifacts.is_empty() {
            return String::new();
        }
        let width =
            self.artifacts.keys().map(|name| name.chars().count()).max().unwrap_or(0).max(8);
        let mut text = format!(
            "\n{:width$} {:>7} {:>7} {:>10} {:>10}\n",
            "artifact", "hits", "misses", "saved", "spent"
        );
        for (name, record) in &self.artifacts {
            let (hits, misses) = (hits(record), misses(record));
            let (saved, spent) = (human_duration(saved(record)), human_duration(spent(record)));
            let name = name.escape_debug().to_string();
            _ = writeln!(text, "{name:width$} {hits:>7} {misses:>7} {saved:>10} {spent:>10}");
        }
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let mut groups: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
        for &counter in Counter::ALL {
            if let Some((group, name)) = counter.name().split_once('.') {
                let value = self.total.get(counter).to_string();
                groups.entry(group).or_default().push((name.to_owned(), value));
            }
        }
        let results = groups.entry("results").or_default();
        results.insert(0, ("misses".to_owned(), misses(&self.total).to_string()));
        results.insert(0, ("hits".to_owned(), hits(&self.total).to_string()));
        let directory = self.directory.as_ref().map(|path| string(&path.to_string_lossy()));
        groups.entry("cache").or_default().extend([
            ("bytes".to_owned(), self.usage.bytes.to_string()),
            ("max_bytes".to_owned(), self.max_bytes.to_string()),
            ("entries".to_owned(), self.usage.entries.to_string()),
            ("dir".to_owned(), directory.unwrap_or_else(|| "null".to_owned())),
        ]);
        let mut members = vec![
            ("schema".to_owned(), SCHEMA_VERSION.to_string()),
            ("runs".to_owned(), self.total.get(Counter::Runs).to_string()),
        ];
        members.extend(groups.into_iter().map(|(name, group)| (name.to_owned(), object(&group))));
        let artifacts: Vec<String> = self.artifacts.iter().map(artifact).collect();
        members.push(("artifacts".to_owned(), format!("[{}]", artifacts.join(", "))));
        object(&members) + "\n"
    }
}

fn artifact((name, record): (&String, &RunRecord)) -> String {
    let number = |name: &str, value: u64| (name.to_owned(), value.to_string());
    object(&[
        ("name".to_owned(), string(name)),
        number("hits", hits(record)),
        number("misses", misses(record)),
        number("unit_hits", record.get(Counter::UnitHits)),
        number("unit_misses", record.get(Counter::UnitMisses)),
        number("saved_us", record.get(Counter::SavedMicroseconds)),
        number("spent_us", record.get(Counter::SpentMicroseconds)),
    ])
}

fn hits(record: &RunRecord) -> u64 {
    HITS.iter().map(|&(counter, _)| record.get(counter)).sum()
}

fn misses(record: &RunRecord) -> u64 {
    MISSES.iter().map(|&(counter, _)| record.get(counter)).sum()
}

fn problems(record: &RunRecord) -> u64 {
    PROBLEMS.iter().map(|&(counter, _)| record.get(counter)).sum()
}

fn saved(record: &RunRecord) -> Duration {
    Duration::from_micros(record.get(Counter::SavedMicroseconds))
}

fn spent(record: &RunRecord) -> Duration {
    Duration::from_micros(record.get(Counter::SpentMicroseconds))
}

fn hit_kinds(record: &RunRecord) -> String {
    let kinds = HITS.map(|(counter, name)| format!("{} {name}", record.get(counter)));
    kinds.join(", ")
}

fn units(record: &RunRecord) -> String {
    let (hits, misses) = (record.get(Counter::UnitHits), record.get(Counter::UnitMisses));
    format!("{hits} found, {misses} decoded")
}

fn evicted(record: &RunRecord) -> String {
    let bytes = human_bytes(record.get(Counter::EvictedBytes));
    format!("{} entries, {bytes}, to keep the size", record.get(Counter::Evictions))
}

/// The reasons that occurred.
fn reasons(record: &RunRecord, names: &[(Counter, &str)]) -> Vec<String> {
    let counted = names.iter().filter(|(counter, _)| record.get(*counter) > 0);
    counted.map(|&(counter, name)| format!("{} {name}", record.get(counter))).collect()
}

fn with_reasons(count: u64, reasons: &[String]) -> String {
    if reasons.is_empty() { count.to_string() } else { format!("{count}: {}", reasons.join(", ")) }
}

fn object(members: &[(String, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}: {value}", string(name))).collect();
    format!("{{{}}}", members.join(", "))
}

/// A JSON string.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Writing to a string cannot fail.
            '\0'..' ' => _ = write!(quoted, "\\u{:04x}", u32::from(letter)),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use crate::settings::{ConfigFile, Flags};

    #[test]
    fn reports() {
        let settings =
            Settings::of(&Flags::default(), &Environment::default(), ConfigFile::default());
        let mut report = Report::of(None, &settings);
        assert!(report.json().contains("\"results\": {\"hits\": 0, \"misses\": 0, "));
        let mut record = RunRecord::new("odd\"name\n".to_owned());
        for (counter, amount) in [
            (Counter::HitsByStat, 2),
            (Counter::HitsByContent, 1),
            (Counter::MissesNew, 1),
            (Counter::ProblemDamaged, 4),
            (Counter::SavedMicroseconds, 1_500_000),
        ] {
            record.add(counter, amount);
        }
        report.total.merge(&record);
        report.artifacts.insert(record.artifact.clone(), record);
        let text = report.text();
        for part in [
            "hits        3 (75.0 %): 2 by times, 1 by content, 0 moved to another base\n",
            "misses      1: 1 new\n",
            "problems    4: 4 damaged\n",
            "time saved  1.5 s\n",
            "odd\\\"name\\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let json = report.json();
        for part in [
            "\"results\": {\"hits\": 3, \"misses\": 1, ",
            "\"max_bytes\": 5000000000",
            "\"name\": \"odd\\\"name\\u000a\"",
        ] {
            assert!(json.contains(part), "{json}");
        }
    }
}
