//! One run of the program and its cache. Any number of threads may share a [`Session`]; each input
//! has an [`Inquiry`] of its own, which looks for its result, keeps what was made anew and counts.
//! Nothing here can fail a run: what goes wrong is collected, for one warning at its end.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use btfcache_schema::{
    Counter, FootingRecord, Key, KeyHasher, OutlineRecord, Purpose, ResultRecord, RunRecord,
};

use super::keys::result_fields;
use super::runs::artifact_name;
use super::{Cache, Fingerprint, Lookup, Problem, Reason, Stored};
use crate::base::Prepared;
use crate::elf::Input;
use crate::options::Options;
use crate::settings::Settings;

/// A run and its cache.
#[derive(Debug)]
pub struct Session<'a> {
    settings: &'a Settings,
    cache: Option<Cache>,
    problems: Mutex<Vec<Problem>>,
}

impl<'a> Session<'a> {
    /// Opens the cache that `settings` name.
    #[must_use]
    pub fn open(settings: &'a Settings) -> Self {
        let mut session = Self { settings, cache: None, problems: Mutex::default() };
        if settings.disable.value {
            return session;
        }
        for fault in &settings.faults {
            session.add(Problem::new(Reason::Setting, fault));
        }
        match Cache::open(settings) {
            Ok(cache) => session.cache = cache,
            Err(problem) => session.add(problem),
        }
        session
    }

    /// The cache, for what does not belong to one input.
    #[must_use]
    pub const fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// The key of the base at `path`; `read` makes it if the file must be read for that.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn base_key<E>(
        &self,
        path: &Path,
        read: impl FnOnce() -> Result<Key, E>,
    ) -> Result<Key, E> {
        let Some(cache) = &self.cache else {
            return read();
        };
        let print = || path.metadata().ok().map(|metadata| Fingerprint::of(&metadata));
        let before = print().filter(|_| self.trusts_times());
        let now = SystemTime::now();
        match before.map(|print| cache.known_content(&print, Purpose::Base)) {
            Some(Lookup::Known(key)) => return Ok(key),
            Some(Lookup::Unusable(problem)) => self.add(problem),
            Some(Lookup::Unknown) | None => {}
        }
        let key = read()?;
        let at_rest = before.filter(|before| before.is_at_rest(now) && print() == Some(*before));
        if let (Some(print), Some(cache)) = (at_rest, self.writable())
            && let Err(problem) = cache.remember(&print, Purpose::Base, key)
        {
            self.add(problem);
        }
        Ok(key)
    }

    /// The prepared form of the base of this key, if it is stored.
    #[must_use]
    pub fn prepared_base(&self, base: &Key) -> Option<Prepared> {
        match self.cache.as_ref()?.prepared_base(base) {
            Lookup::Known(prepared) => Some(prepared),
            Lookup::Unknown => None,
            Lookup::Unusable(problem) => {
                self.add(problem);
                None
            }
        }
    }

    /// Stores the prepared form of the base of this key.
    pub fn keep_prepared_base(&self, base: &Key, prepared: &Prepared) {
        let stored = self.writable().map(|cache| cache.put_prepared_base(base, prepared));
        if let Some(Err(problem)) = stored {
            self.add(problem);
        }
    }

    /// Stores the types of the base of this key as hashes; `make` makes them if they can be stored.
    pub fn keep_outline(&self, base: &Key, make: impl FnOnce() -> OutlineRecord) {
        let stored = self.writable().map(|cache| cache.put_outline(base, &make()));
        if let Some(Err(problem)) = stored {
            self.add(problem);
        }
    }

    /// Starts with an input.
    #[must_use]
    pub fn inquire(&self, input: &Path) -> Inquiry<'_> {
        let mut run = RunRecord::new(artifact_name(input));
        run.add(Counter::Runs, 1);
        Inquiry { session: self, run, started: Instant::now(), took: 0, outcome: "error" }
    }

    fn add(&self, problem: Problem) {
        self.problems.lock().expect("no thread panics while it adds").push(problem);
    }

    /// What went wrong, in one line.
    ///
    /// # Panics
    /// When a thread panicked while it told a problem.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let problems = self.problems.lock().expect("no thread panics while it adds");
        let first = &problems.first()?.message;
        let more = match problems.len() {
            1 => String::new(),
            2 => " (and one more problem)".to_owned(),
            count => format!(" (and {} more problems)", count - 1),
        };
        Some(format!("problem with the cache, the result is complete all the same: {first}{more}"))
    }

    /// Whether problems of the cache are to fail the run.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.settings.strict_cache.value
    }

    /// Whether what units give is to be kept.
    pub(super) const fn keeps_units(&self) -> bool {
        self.settings.units.value
    }

    /// Whether nothing that is stored is to be used.
    pub(super) const fn recaches(&self) -> bool {
        self.settings.recache.value
    }

    /// The cache if it may be written.
    pub(super) fn writable(&self) -> Option<&Cache> {
        self.cache.as_ref().filter(|cache| !cache.is_read_only())
    }

    fn trusts_times(&self) -> bool {
        self.settings.stat.value
    }
}

/// One input and what is known of it. What was counted is written down when it is dropped, however
/// the input ended.
#[derive(Debug)]
pub struct Inquiry<'s> {
    session: &'s Session<'s>,
    run: RunRecord,
    started: Instant,
    /// How long it took to make the result, in microseconds.
    took: u64,
    outcome: &'static str,
}

/// The base that a result is wanted upon.
#[derive(Clone, Copy)]
pub struct BaseAsked<'a> {
    /// Its key.
    pub key: Key,
    /// Gives its prepared form, if it has one.
    pub prepared: &'a dyn Fn() -> Option<Arc<Prepared>>,
}

impl std::fmt::Debug for BaseAsked<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BaseAsked").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A hit that was one upon another base, and so has to be kept as that upon this one.
#[derive(Debug)]
pub struct Moved {
    /// See [`FootingRecord::mentions`].
    pub mentions: Vec<u32>,
}

/// What a result stands on in its base: see [`FootingRecord`].
#[derive(Debug)]
pub struct Footing {
    /// See [`FootingRecord::end_string`].
    pub end_string: u32,
    /// See [`FootingRecord::mentions`].
    pub mentions: Vec<u32>,
    /// See [`FootingRecord::names`].
    pub names: Vec<(u32, Vec<u8>)>,
}

/// What the cache knows of an input.
#[derive(Debug)]
pub struct Answer {
    /// The result of an earlier run.
    pub hit: Option<ResultRecord>,
    /// Whether that was one upon another base.
    pub moved: Option<Moved>,
    /// Whether to make the result again all the same, and to compare.
    pub check: bool,
    /// The right to store what is made.
    pub ticket: Ticket,
}

/// Names the result that an input will have; nothing if it has no name.
#[derive(Debug, Default)]
pub struct Ticket {
    keyed: Option<Keyed>,
}

#[derive(Debug)]
struct Keyed {
    key: Key,
    base: Option<Key>,
    /// What the result would be called if its base did not matter.
    footing: Key,
    content: Content,
}

/// The contents of a file.
#[derive(Clone, Copy, Debug)]
struct Content {
    key: Key,
    /// What the file looked like before it was read.
    print: Fingerprint,
    /// Whether a change since then would show in its times.
    shows_changes: bool,
    found_by: Counter,
}

impl Ticket {
    /// The ticket, if all that was made of `input` was made of what was hashed: to be asked before the
    /// result is put into it. `hash` makes its key again where its times cannot tell.
    #[must_use]
    pub fn confirm(self, input: &Input, hash: impl FnOnce() -> io::Result<Key>) -> Option<Self> {
        let is_unchanged =
            self.keyed.as_ref().is_some_and(|keyed| is_unchanged(&keyed.content, input, hash));
        is_unchanged.then_some(self)
    }
}

impl<'s> Inquiry<'s> {
    /// The run that the input is part of.
    pub(super) const fn session(&self) -> &'s Session<'s> {
        self.session
    }

    /// What is encoded, in statistics.
    pub(super) fn artifact(&self) -> &str {
        &self.run.artifact
    }

    pub(super) fn count(&mut self, counter: Counter, amount: u64) {
        self.run.add(counter, amount);
    }

    /// Looks for the result of `input` with `options` and upon `base`; `hash` makes the key of its
    /// contents if the file must be read for that.
    pub fn find(
        &mut self,
        input: &Input,
        options: &Options,
        base: Option<BaseAsked<'_>>,
        hash: impl FnOnce() -> io::Result<Key>,
    ) -> Answer {
        let session = self.session;
        // If a file cannot be hashed, whoever decodes it will say what is wrong with it.
        let content = session.cache.as_ref().and_then(|cache| self.content(cache, input, hash));
        let (Some(cache), Some(content)) = (&session.cache, content) else {
            return self.miss(Counter::MissesUnusable, Ticket::default());
        };
        let name = |purpose, base: Option<&Key>| {
            let mut hasher = KeyHasher::new(purpose);
            result_fields(options, &content.key, base, &mut hasher);
            hasher.finish()
        };
        let base_key = base.map(|base| base.key);
        let key = name(Purpose::Result, base_key.as_ref());
        let footing = name(Purpose::Footing, None);
        let ticket = Ticket { keyed: Some(Keyed { key, base: base_key, footing, content }) };
        if session.settings.recache.value {
            return self.miss(Counter::MissesRecache, ticket);
        }
        match cache.result(&key) {
            Lookup::Known(record) => self.hit(record, content.found_by, ticket),
            Lookup::Unknown => match base.and_then(|base| self.moved(cache, &footing, &base)) {
                Some((record, moved)) => {
                    self.took = record.microseconds;
                    let answer = self.hit(record, Counter::HitsByFooting, ticket);
                    Answer { moved: Some(moved), ..answer }
                }
                None => self.miss(Counter::MissesNew, ticket),
            },
            Lookup::Unusable(problem) => {
                let is_damaged = matches!(problem.reason, Reason::Damaged | Reason::Version);
                self.problem(problem);
                let damaged = Counter::MissesDamaged;
                self.miss(if is_damaged { damaged } else { Counter::MissesUnusable }, ticket)
            }
        }
    }

    /// The contents of `input`, by its times or by its bytes. `None` if it changes while it is read.
    fn content(
        &mut self,
        cache: &Cache,
        input: &Input,
        hash: impl FnOnce() -> io::Result<Key>,
    ) -> Option<Content> {
        let print = Fingerprint::of(&input.metadata().ok()?);
        let now = SystemTime::now();
        let shows_changes = input.is_one_file() && print.shows_changes(now);
        let trusts_times = input.is_one_file() && self.session.trusts_times();
        if trusts_times {
            let found_by = Counter::HitsByStat;
            match cache.known_content(&print, Purpose::Content) {
                Lookup::Known(key) => return Some(Content { key, print, shows_changes, found_by }),
                Lookup::Unknown => {}
                Lookup::Unusable(problem) => self.problem(problem),
            }
        }
        let key = hash().ok()?;
        if Fingerprint::of(&input.metadata().ok()?) != print {
            return None;
        }
        if print.is_at_rest(now) && trusts_times && !cache.is_read_only() {
            let remembered = cache.remember(&print, Purpose::Content, key);
            self.note(remembered);
        }
        Some(Content { key, print, shows_changes, found_by: Counter::HitsByContent })
    }

    fn hit(&mut self, record: ResultRecord, found_by: Counter, ticket: Ticket) -> Answer {
        self.run.add(found_by, 1);
        self.outcome = match found_by {
            Counter::HitsByStat => "hit-stat",
            Counter::HitsByFooting => "hit-moved",
            _ => "hit-content",
        };
        let check = is_chosen(self.session.settings.check.value);
        if check {
            self.run.add(Counter::Checked, 1);
        } else {
            let spent = microseconds(self.started.elapsed());
            let saved = record.microseconds.saturating_sub(spent);
            self.run.add(Counter::SavedMicroseconds, saved);
        }
        Answer { hit: Some(record), moved: None, check, ticket }
    }

    fn miss(&mut self, counter: Counter, ticket: Ticket) -> Answer {
        self.run.add(counter, 1);
        self.outcome = match counter {
            Counter::MissesNew => "miss-new",
            Counter::MissesRecache => "miss-recache",
            Counter::MissesDamaged => "miss-damaged",
            _ => "miss-unusable",
        };
        Answer { hit: None, moved: None, check: false, ticket }
    }

    /// Takes note that the result has been made anew; `agrees` says whether it is the hit that it
    /// was made to check.
    pub fn made(&mut self, agrees: Option<bool>) {
        self.took = microseconds(self.started.elapsed());
        self.run.add(Counter::SpentMicroseconds, self.took);
        if agrees == Some(false) {
            let artifact = &self.run.artifact;
            let message = format!("what was stored for `{artifact}` is not what it gives");
            self.problem(Problem::new(Reason::Differs, message));
        }
    }

    /// Stores what was made under the name that `ticket` has for it, which must be confirmed, and what
    /// it stands on.
    pub fn keep(&mut self, ticket: Ticket, mut record: ResultRecord, footing: Option<Footing>) {
        let (Some(cache), Some(keyed)) = (self.session.writable(), ticket.keyed) else {
            return;
        };
        record.base_key = keyed.base;
        record.microseconds = self.took;
        let stored = cache.put_result(&keyed.key, &record);
        if !self.note(stored) {
            return;
        }
        self.run.add(Counter::Stores, 1);
        if let (Some(base), Some(footing)) = (keyed.base, footing) {
            let Footing { end_string, mentions, names } = footing;
            let footing = FootingRecord { base, result: keyed.key, end_string, mentions, names };
            let stored = cache.put_footing(&keyed.footing, &footing);
            self.note(stored);
        }
    }

    /// Counts what became of a value; whether it was stored.
    pub(super) fn note(&mut self, stored: Result<Stored, Problem>) -> bool {
        match stored {
            Ok(stored) => {
                if stored.evicted.entries > 0 {
                    self.run.add(Counter::Evictions, stored.evicted.entries);
                    self.run.add(Counter::EvictedBytes, stored.evicted.bytes);
                }
                stored.is_stored
            }
            Err(problem) => {
                self.problem(problem);
                false
            }
        }
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        self.run.add(problem.reason.counter(), 1);
        self.session.add(problem);
    }

    /// Adds a line to the log that the user wants.
    fn log(&self, path: &Path) -> io::Result<()> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = format!(
            "time={} outcome={} ms={:.1} saved_ms={:.1} file={}\n",
            since.as_secs(),
            self.outcome,
            self.started.elapsed().as_secs_f64() * 1000.0,
            self.run.get(Counter::SavedMicroseconds) as f64 / 1000.0,
            self.run.artifact.escape_debug(),
        );
        let mut file = fs_err::OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(line.as_bytes())
    }
}

impl Drop for Inquiry<'_> {
    fn drop(&mut self) {
        let session = self.session;
        if session.settings.disable.value {
            return;
        }
        if let Some(cache) = session.writable()
            && let Err(problem) = cache.count(&self.run)
        {
            session.add(problem);
        }
        if let Some(path) = &session.settings.stats_log.value
            && let Err(error) = self.log(path)
        {
            session.add(Problem::io("write", path, &error));
        }
    }
}

/// Whether `input` is still what the key was made of.
fn is_unchanged(content: &Content, input: &Input, hash: impl FnOnce() -> io::Result<Key>) -> bool {
    let is_same =
        input.metadata().is_ok_and(|metadata| Fingerprint::of(&metadata) == content.print);
    is_same && (content.shows_changes || hash().is_ok_and(|key| key == content.key))
}

/// True for so many of a hundred.
fn is_chosen(percent: u8) -> bool {
    // Randomly seeded, so that the same file is not always spared.
    percent > 0 && RandomState::new().hash_one(percent) % 100 < percent.into()
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
