//! One run of the program and its cache: looks for the result of each input, keeps what was made
//! anew, counts, and collects what went wrong. Nothing here can fail a run, except at its end and
//! only if that was asked for.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use btfcache_schema::{Counter, Key, KeyHasher, Purpose, ResultRecord, RunRecord};

use super::keys::result_fields;
use super::runs::artifact_name;
use super::{Cache, Fingerprint, Lookup, Problem, Reason, Stored};
use crate::elf::ElfFile;
use crate::options::Options;
use crate::settings::Settings;

/// A run and its cache.
#[derive(Debug)]
pub struct Session<'a> {
    settings: &'a Settings,
    cache: Option<Cache>,
    problems: Vec<Problem>,
    run: RunRecord,
    started: Instant,
    outcome: &'static str,
}

/// What a session knows of an input.
#[derive(Debug)]
pub struct Answer {
    /// The result of an earlier run.
    pub hit: Option<ResultRecord>,
    /// Whether to make the result again all the same, and to compare.
    pub check: bool,
    /// The right to store what is made.
    pub ticket: Ticket,
}

/// Names the result that an input will have.
#[derive(Debug, Default)]
pub struct Ticket {
    keyed: Option<Keyed>,
}

#[derive(Debug)]
struct Keyed {
    key: Key,
    content: Key,
    print: Fingerprint,
    base: Option<Key>,
    /// Whether a change of the file from when it was hashed on would show in its times.
    shows_changes: bool,
}

impl<'a> Session<'a> {
    /// Opens the cache that `settings` name.
    #[must_use]
    pub fn open(settings: &'a Settings) -> Self {
        let mut session = Self {
            settings,
            cache: None,
            problems: Vec::new(),
            run: RunRecord::default(),
            started: Instant::now(),
            outcome: "",
        };
        if settings.disable.value {
            return session;
        }
        for fault in &settings.faults {
            session.problem(Problem::new(Reason::Setting, fault));
        }
        match Cache::open(settings) {
            Ok(cache) => session.cache = cache,
            Err(problem) => session.problem(problem),
        }
        session
    }

    /// Looks for the result of `elf`; `hash` makes the key of its contents if it must be read.
    /// Every question is followed by [`Self::finish`].
    pub fn find(
        &mut self,
        elf: &ElfFile,
        options: &Options,
        base: Option<Key>,
        hash: impl FnOnce() -> io::Result<Key>,
    ) -> Answer {
        self.begin(elf.path());
        let Some(cache) = self.cache.take() else {
            return self.miss(Counter::MissesUnusable, Ticket::default());
        };
        let answer = self.ask(&cache, elf, options, base, hash);
        self.cache = Some(cache);
        answer
    }

    fn begin(&mut self, input: &Path) {
        self.run = RunRecord::new(artifact_name(input));
        self.run.add(Counter::Runs, 1);
        self.started = Instant::now();
    }

    fn ask(
        &mut self,
        cache: &Cache,
        elf: &ElfFile,
        options: &Options,
        base: Option<Key>,
        hash: impl FnOnce() -> io::Result<Key>,
    ) -> Answer {
        let Some((content, print, counter)) = self.content(cache, elf, hash) else {
            // Whoever decodes the file will say what is wrong with it.
            return self.miss(Counter::MissesUnusable, Ticket::default());
        };
        let mut hasher = KeyHasher::new(Purpose::Result);
        result_fields(options, &content, base.as_ref(), &mut hasher);
        let shows_changes = print.shows_changes(self.hashed_since());
        let key = hasher.finish();
        let ticket = Ticket { keyed: Some(Keyed { key, content, print, base, shows_changes }) };
        if self.settings.recache.value {
            return self.miss(Counter::MissesRecache, ticket);
        }
        match cache.result(&key) {
            Lookup::Known(record) => self.hit(record, counter, ticket),
            Lookup::Unknown => self.miss(Counter::MissesNew, ticket),
            Lookup::Unusable(problem) => {
                let is_damaged = matches!(problem.reason, Reason::Damaged | Reason::Version);
                self.problem(problem);
                let damaged = Counter::MissesDamaged;
                self.miss(if is_damaged { damaged } else { Counter::MissesUnusable }, ticket)
            }
        }
    }

    /// The key of the contents, what the file looked like when it was made, and how it was found.
    fn content(
        &mut self,
        cache: &Cache,
        elf: &ElfFile,
        hash: impl FnOnce() -> io::Result<Key>,
    ) -> Option<(Key, Fingerprint, Counter)> {
        let print = Fingerprint::of(&elf.metadata().ok()?);
        if self.settings.stat.value {
            match cache.known_content(&print, Purpose::Content) {
                Lookup::Known(content) => return Some((content, print, Counter::HitsByStat)),
                Lookup::Unknown => {}
                Lookup::Unusable(problem) => self.problem(problem),
            }
        }
        let was_at_rest = print.is_at_rest(SystemTime::now());
        let content = hash().ok()?;
        let is_same = Fingerprint::of(&elf.metadata().ok()?) == print;
        if was_at_rest && is_same && self.settings.stat.value && !cache.is_read_only() {
            let remembered = cache.remember(&print, Purpose::Content, content);
            self.note(remembered);
        }
        is_same.then_some((content, print, Counter::HitsByContent))
    }

    /// When this input was first looked at.
    fn hashed_since(&self) -> SystemTime {
        SystemTime::now() - self.started.elapsed()
    }

    fn hit(&mut self, record: ResultRecord, counter: Counter, ticket: Ticket) -> Answer {
        self.run.add(counter, 1);
        self.outcome = if counter == Counter::HitsByStat { "hit-stat" } else { "hit-content" };
        let check = is_chosen(self.settings.check.value);
        if check {
            self.run.add(Counter::Checked, 1);
        } else {
            let spent = microseconds(self.started.elapsed());
            let saved = record.microseconds.saturating_sub(spent);
            self.run.add(Counter::SavedMicroseconds, saved);
        }
        Answer { hit: Some(record), check, ticket }
    }

    fn miss(&mut self, counter: Counter, ticket: Ticket) -> Answer {
        self.run.add(counter, 1);
        self.outcome = match counter {
            Counter::MissesNew => "miss-new",
            Counter::MissesRecache => "miss-recache",
            Counter::MissesDamaged => "miss-damaged",
            _ => "miss-unusable",
        };
        Answer { hit: None, check: false, ticket }
    }

    /// Takes what was made for `elf`, to be stored once it has been written where it belongs.
    /// `earlier` is the hit that it is compared with, if it was made to be checked. Gives what is to
    /// be kept.
    pub fn made(
        &mut self,
        mut record: ResultRecord,
        earlier: Option<ResultRecord>,
    ) -> ResultRecord {
        record.microseconds = microseconds(self.started.elapsed());
        self.run.add(Counter::SpentMicroseconds, record.microseconds);
        if let Some(earlier) = earlier {
            let (microseconds, base_key) = (record.microseconds, record.base_key);
            if (ResultRecord { microseconds, base_key, ..earlier }) != record {
                let artifact = &self.run.artifact;
                let message = format!("what is stored for `{artifact}` is not what it gives");
                self.problem(Problem::new(Reason::Differs, message));
            }
        }
        record
    }

    /// Stores `record` under the name that `ticket` has for it, unless `elf` has changed since it
    /// was hashed. `hash` makes its key again where its times cannot tell.
    pub fn keep(
        &mut self,
        ticket: Ticket,
        mut record: ResultRecord,
        elf: &ElfFile,
        hash: impl FnOnce() -> io::Result<Key>,
    ) {
        let Some(cache) = self.cache.as_ref().filter(|cache| !cache.is_read_only()) else {
            return;
        };
        if let Some(keyed) = ticket.keyed.filter(|keyed| is_unchanged(keyed, elf, hash)) {
            record.base_key = keyed.base;
            let stored = cache.put_result(&keyed.key, &record);
            if self.note(stored) {
                self.run.add(Counter::Stores, 1);
            }
        }
    }

    /// Counts what became of a value; whether it was stored.
    fn note(&mut self, stored: Result<Stored, Problem>) -> bool {
        match stored {
            Ok(stored) => {
                self.run.add(Counter::Evictions, stored.evicted.entries);
                self.run.add(Counter::EvictedBytes, stored.evicted.bytes);
                stored.is_stored
            }
            Err(problem) => {
                self.problem(problem);
                false
            }
        }
    }

    /// Writes down what was counted for this input.
    pub fn finish(&mut self) {
        if self.settings.disable.value {
            return;
        }
        if let Some(cache) = self.cache.as_ref().filter(|cache| !cache.is_read_only())
            && let Err(problem) = cache.count(&self.run)
        {
            self.problem(problem);
        }
        if let Some(path) = &self.settings.stats_log.value
            && let Err(error) = self.log(path)
        {
            self.problem(Problem::io("write", path, &error));
        }
        self.run = RunRecord::default();
    }

    /// Adds a line to the log that the user wants.
    fn log(&self, path: &Path) -> io::Result<()> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = format!(
            "time={} outcome={} ms={:.1} saved_ms={:.1} problems={} file={}\n",
            since.as_secs(),
            self.outcome,
            self.started.elapsed().as_secs_f64() * 1000.0,
            self.run.get(Counter::SavedMicroseconds) as f64 / 1000.0,
            self.problems.len(),
            self.run.artifact.escape_debug(),
        );
        let mut file = fs_err::OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(line.as_bytes())
    }

    fn problem(&mut self, problem: Problem) {
        self.run.add(problem.reason.counter(), 1);
        self.problems.push(problem);
    }

    /// What went wrong, in one line.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let first = self.problems.first()?;
        let more = match self.problems.len() {
            1 => String::new(),
            2 => " (and one more problem)".to_owned(),
            count => format!(" (and {} more problems)", count - 1),
        };
        let message = &first.message;
        Some(format!(
            "the cache could not be used as it should: {message}{more}; the result is right all the same"
        ))
    }

    /// Whether problems of the cache are to fail the run.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.settings.strict_cache.value
    }
}

/// Whether `elf` is still what the key was made of.
fn is_unchanged(keyed: &Keyed, elf: &ElfFile, hash: impl FnOnce() -> io::Result<Key>) -> bool {
    let is_same = elf.metadata().is_ok_and(|metadata| Fingerprint::of(&metadata) == keyed.print);
    is_same && (keyed.shows_changes || hash().is_ok_and(|content| content == keyed.content))
}

/// True for so many of a hundred.
fn is_chosen(percent: u8) -> bool {
    // Randomly seeded, so that the same file is not always spared.
    percent > 0 && RandomState::new().hash_one(percent) % 100 < percent.into()
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
