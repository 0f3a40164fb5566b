//! Encodes through the cache: finds the result of an earlier run, or makes it and has it kept once
//! it is written. The only place where the pipeline and the store meet.

use std::io;
use std::path::Path;

use anyhow::{Result, ensure};
use btfcache_schema::{Key, ResultRecord};
use rayon::ThreadPool;

use super::base::Base;
use crate::elf::Input;
use crate::footing;
use crate::kept::Known;
use crate::options::Options;
use crate::output::Output;
use crate::pipeline::Encoded;
use crate::store::{Answer, BaseAsked, Footing, Inquiry, Moved, Session, Ticket, input_key};
use crate::timing::Timing;

/// What a result depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The file.
    pub input: &'a Path,
    /// The options.
    pub options: &'a Options,
    /// The base.
    pub base: Option<&'a Base<'a>>,
    /// The threads to work on.
    pub pool: &'a ThreadPool,
}

/// A result that may have to be kept.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    inquiry: Inquiry<'a>,
    ticket: Option<Ticket>,
}

/// The result of an earlier run, or what `make` makes.
pub(super) fn encode<'a>(
    session: &'a Session<'_>,
    asked: Asked<'a>,
    timing: &Timing,
    make: impl FnOnce(&Input, Option<&Known>) -> Result<Encoded> + Send,
) -> Result<(Encoded, Pending<'a>)> {
    let pool = asked.pool;
    let input = timing.phase("open", || Input::open(asked.input))?;
    let mut inquiry = session.inquire(asked.input);
    let hash = || hash(&input, pool);
    // If it cannot be had, whoever encodes upon it will say why.
    let prepared = || asked.base.and_then(|base| base.prepared().ok().cloned());
    let base = asked.base.filter(|_| session.cache().is_some());
    let base = base.map(|base| BaseAsked { key: base.key(), prepared: &prepared });
    let Answer { hit, moved, check, ticket } =
        timing.phase("cache", || inquiry.find(&input, asked.options, base, hash));
    let is_moved = moved.is_some();
    let hit = hit.map(|record| encoded(record, moved));
    let (encoded, ticket) = match hit {
        Some(hit) if !check => (hit, Some(ticket).filter(|_| is_moved)),
        hit => {
            let known = inquiry.known_work(&input);
            let mut fresh = pool.install(|| make(&input, known.as_ref()))?;
            if let Some(work) = fresh.work.take() {
                inquiry.worked(work);
            }
            let agrees = hit.as_ref().map(|hit| is_same(hit, &fresh));
            inquiry.made(agrees);
            (fresh, Some(ticket).filter(|_| is_moved || agrees != Some(true)))
        }
    };
    let confirm = |ticket: Ticket| timing.phase("confirm", || ticket.confirm(&input, hash));
    let ticket = ticket.and_then(confirm);
    Ok((encoded, Pending { inquiry, ticket }))
}

impl Pending<'_> {
    /// Has the result, which is upon `base`, kept, now that it is where it belongs.
    pub(super) fn keep(mut self, mut encoded: Encoded, base: Option<&Base<'_>>, timing: &Timing) {
        let Some(ticket) = self.ticket.take().filter(|_| !encoded.draws_on_files) else {
            return;
        };
        timing.phase("store", || {
            let footing = base.and_then(|base| footing_of(&mut encoded, base));
            self.inquiry.keep(ticket, record(encoded), footing);
        });
    }
}

fn hash(input: &Input, pool: &ThreadPool) -> io::Result<Key> {
    pool.install(|| input_key(input))
}

fn encoded(record: ResultRecord, moved: Option<Moved>) -> Encoded {
    let ResultRecord { btf, base, notices, skips, .. } = record;
    let mentions = moved.map_or_else(Vec::new, |moved| moved.mentions);
    Encoded {
        btf,
        distilled_base: base,
        skips,
        notices,
        draws_on_files: false,
        mentions,
        work: None,
    }
}

fn record(encoded: Encoded) -> ResultRecord {
    let Encoded { btf, distilled_base: base, skips, notices, .. } = encoded;
    ResultRecord { btf, base, skips, notices, ..ResultRecord::default() }
}

/// Whether a hit is what has been made now.
fn is_same(hit: &Encoded, fresh: &Encoded) -> bool {
    hit.btf == fresh.btf
        && hit.distilled_base == fresh.distilled_base
        && hit.skips == fresh.skips
        && hit.notices == fresh.notices
}

/// What `encoded` stands on in `base`. One with a distilled base carries that with it.
fn footing_of(encoded: &mut Encoded, base: &Base<'_>) -> Option<Footing> {
    if encoded.btf.is_empty() || encoded.distilled_base.is_some() {
        return None;
    }
    let base = base.prepared().ok()?;
    let names = footing::names_in_base(&encoded.btf, base)?;
    let mentions = std::mem::take(&mut encoded.mentions);
    Some(Footing { end_string: base.end_string(), mentions, names })
}

/// Tells at the end of a run what went wrong with the cache; an error if that was asked for.
pub(super) fn report(session: &Session<'_>, result: Result<()>, output: Output) -> Result<()> {
    let Some(warning) = session.warning() else {
        return result;
    };
    let output = output.quiet(output.is_quiet() && !session.is_strict());
    output.notice(&warning);
    result?;
    ensure!(
        !session.is_strict(),
        "the output is written, but `--strict-cache` makes this an error"
    );
    Ok(())
}
