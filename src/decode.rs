//! Decodes all units on the current rayon pool.
//!
//! Workers take units in file order from a counter and keep what they decode to themselves, so
//! that nothing is shared while DIEs are read. An error stops everybody: the lowest damaged unit
//! is reported, whatever the number of threads.

mod members;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Error, Result};

use crate::dwarf::sections::Dwarf;
use crate::fragment::Decoder;
use crate::merge::WorkerOutput;
use crate::options::Options;

pub use members::{MemberFacts, members};

/// Decodes the units of `dwarf` that `options` admits.
///
/// # Errors
/// That of the first damaged unit in file order.
///
/// # Panics
/// When a worker panics.
pub fn units(dwarf: &Dwarf<'_>, options: &Options) -> Result<Vec<WorkerOutput>> {
    let progress = Progress::new(dwarf.units.len() as u32);
    let outputs = rayon::broadcast(|_| worker(dwarf, options, &progress));
    progress.result()?;
    Ok(outputs)
}

struct Progress {
    next: AtomicU32,
    /// Units from here on need not be decoded.
    end: AtomicU32,
    error: Mutex<Option<(u32, Error)>>,
}

impl Progress {
    const fn new(units: u32) -> Self {
        Self { next: AtomicU32::new(0), end: AtomicU32::new(units), error: Mutex::new(None) }
    }

    fn take(&self) -> Option<u32> {
        let unit = self.next.fetch_add(1, Ordering::Relaxed);
        (unit < self.end.load(Ordering::Relaxed)).then_some(unit)
    }

    fn fail(&self, unit: u32, error: Error) {
        self.end.fetch_min(unit, Ordering::Relaxed);
        let mut first = self.error.lock().expect("no worker panics while it reports");
        if first.as_ref().is_none_or(|(other, _)| unit < *other) {
            *first = Some((unit, error));
        }
    }

    /// The error of the lowest unit that failed.
    fn result(self) -> Result<()> {
        let error = self.error.into_inner().expect("no worker panics while it reports");
        error.map_or(Ok(()), |(_, error)| Err(error))
    }
}

fn worker(dwarf: &Dwarf<'_>, options: &Options, progress: &Progress) -> WorkerOutput {
    let mut decoder = Decoder::new(dwarf, options);
    let mut fragments = Vec::new();
    while let Some(unit) = progress.take() {
        match decoder.decode(unit) {
            Ok(fragment) => fragments.extend(fragment),
            Err(error) => progress.fail(unit, error),
        }
    }
    WorkerOutput { pool: decoder.pool, fragments, notes: decoder.notes }
}
