//! Decodes all units on the current rayon pool.
//!
//! Workers take units in file order from a counter and keep what they decode to themselves, so
//! that nothing is shared while DIEs are read. An error stops everybody: the lowest damaged unit
//! is reported, whatever the number of threads. Units whose fragments are known need not be decoded.

mod members;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Error, Result};

use crate::dwarf::sections::Dwarf;
use crate::fragment::Decoder;
use crate::kept::{Hit, Keeper, Kept, Known, Looked, MetNames};
use crate::merge::WorkerOutput;
use crate::options::Options;
use crate::unit_key::Sources;

pub use members::{MemberFacts, members};

/// What was decoded, and what need not be.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Of each worker.
    pub outputs: Vec<WorkerOutput>,
    /// The units whose fragments are known.
    pub hits: Vec<Hit>,
    /// The units that have a key, in order.
    pub kept: Vec<Kept>,
    /// The names that those with a key refer to.
    pub met: MetNames,
}

/// Decodes the units of `dwarf` that `options` admits, but for those whose fragments are `known`; makes
/// their keys if anything may be known.
///
/// # Errors
/// That of the first damaged unit in file order.
///
/// # Panics
/// When a worker panics.
pub fn units(dwarf: &Dwarf<'_>, options: &Options, known: Option<&Known>) -> Result<Decoded> {
    let progress = Progress::new(dwarf.units.len() as u32);
    let sources = known.map(|known| (known, Sources::new(dwarf, options)));
    let workers = rayon::broadcast(|_| worker(dwarf, options, sources.as_ref(), &progress));
    progress.result()?;
    let mut decoded = Decoded::default();
    for worker in workers {
        decoded.outputs.extend(worker.outputs);
        decoded.hits.extend(worker.hits);
        decoded.kept.extend(worker.kept);
        decoded.met.merge(&worker.met);
    }
    decoded.hits.sort_unstable_by_key(|hit| hit.unit);
    decoded.kept.sort_unstable_by_key(|kept| kept.unit);
    Ok(decoded)
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

fn worker<'a>(
    dwarf: &'a Dwarf<'a>,
    options: &'a Options,
    sources: Option<&'a (&'a Known, Sources<'a>)>,
    progress: &Progress,
) -> Decoded {
    let mut decoder = Decoder::new(dwarf, options);
    let mut keeper = sources.map(|(known, sources)| Keeper::new(dwarf, known, sources));
    let mut fragments = Vec::new();
    while let Some(unit) = progress.take() {
        let looked = keeper.as_mut().map_or(Looked::Nothing, |keeper| keeper.look(unit));
        if matches!(looked, Looked::Hit) {
            continue;
        }
        match decoder.decode(unit) {
            Ok(fragment) => {
                if let (Some(keeper), Looked::New(new), Some(fragment)) =
                    (&mut keeper, looked, &fragment)
                {
                    keeper.keep(new, fragment);
                }
                fragments.extend(fragment);
            }
            Err(error) => progress.fail(unit, error),
        }
    }
    let output = WorkerOutput { pool: decoder.pool, fragments, notes: decoder.notes };
    let mut decoded = Decoded { outputs: vec![output], ..Decoded::default() };
    if let Some(keeper) = keeper {
        (decoded.hits, decoded.kept) = (keeper.hits, keeper.kept);
        decoded.met = keeper.maker.into_met_names();
    }
    decoded
}
