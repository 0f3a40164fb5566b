//! Encodes through the cache: finds the result of an earlier run, or makes it and has it kept once
//! it is written. The only place where the pipeline and the store meet.

use std::io;
use std::path::Path;

use anyhow::{Result, ensure};
use btfcache_schema::{Key, ResultRecord};
use rayon::ThreadPool;

use crate::elf::ElfFile;
use crate::options::Options;
use crate::output::Output;
use crate::pipeline::Encoded;
use crate::store::{Inquiry, Session, Ticket, content_key};
use crate::timing::Timing;

/// What a result depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The file.
    pub input: &'a Path,
    /// The options.
    pub options: &'a Options,
    /// The key of the base.
    pub base: Option<Key>,
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
    make: impl FnOnce(&ElfFile) -> Result<Encoded> + Send,
) -> Result<(Encoded, Pending<'a>)> {
    let pool = asked.pool;
    let elf = timing.phase("open", || ElfFile::open_to_encode(asked.input))?;
    let mut inquiry = session.inquire(asked.input);
    let hash = || hash(&elf, pool);
    let answer = timing.phase("cache", || inquiry.find(&elf, asked.options, asked.base, hash));
    let hit = answer.hit.map(encoded);
    let (encoded, ticket) = match hit {
        Some(hit) if !answer.check => (hit, None),
        hit => {
            let fresh = pool.install(|| make(&elf))?;
            let agrees = hit.map(|hit| hit == fresh);
            inquiry.made(agrees);
            let ticket = Some(answer.ticket).filter(|_| agrees != Some(true));
            (
                fresh,
                ticket.and_then(|ticket| timing.phase("confirm", || ticket.confirm(&elf, hash))),
            )
        }
    };
    Ok((encoded, Pending { inquiry, ticket }))
}

impl Pending<'_> {
    /// Has the result kept, now that it is where it belongs.
    pub(super) fn keep(mut self, encoded: Encoded, timing: &Timing) {
        let Some(ticket) = self.ticket.take().filter(|_| !encoded.draws_on_files) else {
            return;
        };
        timing.phase("store", || self.inquiry.keep(ticket, record(encoded)));
    }
}

fn hash(elf: &ElfFile, pool: &ThreadPool) -> io::Result<Key> {
    pool.install(|| content_key(elf))
}

fn encoded(record: ResultRecord) -> Encoded {
    let ResultRecord { btf, base, notices, skips, .. } = record;
    Encoded { btf, distilled_base: base, skips, notices, draws_on_files: false }
}

fn record(encoded: Encoded) -> ResultRecord {
    let Encoded { btf, distilled_base: base, skips, notices, draws_on_files: _ } = encoded;
    ResultRecord { btf, base, skips, notices, ..ResultRecord::default() }
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
