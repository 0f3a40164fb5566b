//! Encodes BTF: takes an [`EncodeRequest`], runs the pipeline on each input and puts the result
//! where it belongs. Nothing is written unless the whole of it is there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use rayon::ThreadPool;

use super::base::Base;
use super::batch;
use super::cached::{self, Asked};
use super::destination::Destination;
use super::pool::Jobs;
use super::progress;
use crate::elf::Input;
use crate::kept::Known;
use crate::options::{Feature, Options};
use crate::output::Output;
use crate::pipeline::{self, Encoded};
use crate::settings::{Flags, Settings};
use crate::store::Session;
use crate::timing::Timing;

/// Where the BTF goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into the input, as section `.BTF`.
    InPlace,
    /// Into a file of its own.
    File(PathBuf),
    /// To stdout.
    Stdout,
    /// Into files of this folder that are named after the inputs, with `.btf` added.
    Folder(PathBuf),
}

/// Everything that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct EncodeRequest {
    /// The ELF files; several only with [`Target::InPlace`] and [`Target::Folder`].
    pub inputs: Vec<PathBuf>,
    /// A file that names more of them, one a line; `-` is stdin.
    pub files_from: Option<PathBuf>,
    /// Where the BTF goes.
    pub target: Target,
    /// Whether a signed module loses its signature; else it is not written to.
    pub strip_signature: bool,
    /// The BTF to build upon.
    pub base: Option<PathBuf>,
    /// Whether a section of an input that the BTF is put into tells the digest of the base.
    pub base_note: bool,
    /// What can change the result.
    pub options: Options,
    /// Settings that were typed.
    pub flags: Flags,
    /// How many threads.
    pub jobs: Jobs,
    /// Print what was left out.
    pub verbose: bool,
    /// No notices.
    pub quiet: bool,
    /// Fail if something could not be expressed.
    pub strict: bool,
    /// Print how long each phase took.
    pub time: bool,
    /// What the command line itself gives occasion to say.
    pub notices: Vec<String>,
}

/// Encodes each input, by itself.
pub(super) fn run(request: &EncodeRequest, settings: &Settings, output: Output) -> Result<()> {
    let output = output.quiet(request.quiet);
    report(&request.notices, request.strict, output)?;
    let inputs = batch::inputs(request)?;
    let session = Session::open(settings);
    let result = encode_all(request, &inputs, &session, output);
    cached::report(&session, result, output)
}

fn encode_all(
    request: &EncodeRequest,
    inputs: &[PathBuf],
    session: &Session<'_>,
    output: Output,
) -> Result<()> {
    let is_for_one = inputs.len() == 1 && request.files_from.is_none();
    let open =
        |path| Base::open(path, session, is_for_one).with_context(|| failed_upon(inputs, path));
    let base = request.base.as_deref().map(open).transpose()?;
    let job = Job { request, session, base: base.as_ref(), output };
    match inputs {
        [input] if request.files_from.is_none() => {
            let timing = Timing::default();
            let state = || progress::last_phase(&timing);
            progress::during(!output.is_quiet(), &state, || {
                let input_size = fs_err::metadata(input).map_or(0, |metadata| metadata.len());
                let input_size = input_size + base.as_ref().map_or(0, Base::size_to_prepare);
                job.encode(input, &request.jobs.pool_here(input_size)?, &timing)
            })
        }
        _ => batch::run(&job, inputs),
    }
}

fn failed_upon(inputs: &[PathBuf], base: &Path) -> String {
    match inputs {
        [input] => format!("failed to encode `{}` upon `{}`", input.display(), base.display()),
        _ => format!("failed to encode {} files upon `{}`", inputs.len(), base.display()),
    }
}

/// What is the same for every input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub request: &'a EncodeRequest,
    session: &'a Session<'a>,
    base: Option<&'a Base<'a>>,
    pub output: Output,
}

impl Job<'_> {
    /// Encodes one input on the threads of `pool`.
    pub fn encode(&self, input: &Path, pool: &ThreadPool, timing: &Timing) -> Result<()> {
        let Self { request, session, base, output } = *self;
        let options = &request.options;
        let target = Destination::of(input, base, request)?;
        let asked = Asked { input, options, base, pool };
        let make = |input: &Input, known: Option<&Known>| {
            let prepared = base.map(|base| base.prepared_for(input)).transpose()?;
            let encode = |base| pipeline::encode_input(input, base, options, known, timing);
            let mut encoded = encode(prepared.as_ref())?;
            let is_insufficient = prepared.as_ref().is_some_and(|base| base.is_insufficient());
            if let Some(base) = base.filter(|_| is_insufficient) {
                encoded = encode(Some(base.prepared()?))?;
            }
            match base.filter(|_| options.features.has(Feature::DistilledBase)) {
                Some(base) => pipeline::distill(encoded, base.whole()?, timing),
                None => Ok(encoded),
            }
        };
        let (encoded, pending) = cached::encode(session, asked, timing, make)
            .with_context(|| format!("failed to encode {}", self.title(input)))?;
        if request.verbose {
            print_skips(&encoded, &request.target, output)?;
        }
        if encoded.btf.is_empty() {
            report_nothing(input, &encoded, output);
        } else {
            report(&about(input, &encoded.notices), request.strict, output)?;
            let distills = options.features.has(Feature::DistilledBase);
            ensure!(!distills || base.is_some(), "feature `distilled_base` needs a base");
            timing.phase("write", || target.store(&encoded, base, request, output))?;
        }
        pending.keep(encoded, base, timing);
        if request.time {
            output.plain(time_table(timing).trim_end());
        }
        Ok(())
    }

    /// Why no input can be encoded upon the base, if that has been found out.
    pub fn base_failure(&self) -> Option<Error> {
        self.base.and_then(Base::failure)
    }

    /// What is encoded, in messages.
    fn title(&self, input: &Path) -> String {
        let name = input.display();
        match self.base {
            Some(base) => format!("`{name}` upon `{}`", base.path().display()),
            None => format!("`{name}`"),
        }
    }
}

/// Reports what could not be done as asked; an error if `strict` and there is any.
fn report(notices: &[String], strict: bool, output: Output) -> Result<()> {
    let output = output.quiet(output.is_quiet() && !strict);
    for notice in notices {
        output.notice(notice);
    }
    ensure!(!strict || notices.is_empty(), "stopped, because `--strict` makes this an error");
    Ok(())
}

fn report_nothing(input: &Path, encoded: &Encoded, output: Output) {
    for notice in about(input, &encoded.notices) {
        output.notice(&notice);
    }
    if encoded.notices.is_empty() {
        output.notice(&format!("`{}`: nothing to encode", input.display()));
    }
}

/// The notices with the file they are about.
fn about(input: &Path, notices: &[String]) -> Vec<String> {
    notices.iter().map(|notice| format!("`{}`: {notice}", input.display())).collect()
}

/// Prints what was left out: data, so on stdout, unless that carries the BTF.
fn print_skips(encoded: &Encoded, target: &Target, output: Output) -> Result<()> {
    let mut text = encoded.skips.join("\n");
    if *target == Target::Stdout {
        if !text.is_empty() {
            output.plain(&text);
        }
        return Ok(());
    }
    if !text.is_empty() {
        text.push('\n');
    }
    output.data(text.as_bytes()).context("failed to write to stdout")
}

/// The phases in the order they ended, in milliseconds.
fn time_table(timing: &Timing) -> String {
    let phases = timing.phases();
    let width = phases.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("total".len());
    let total: Duration = phases.iter().map(|&(_, took)| took).sum();
    let mut table = String::new();
    for (name, took) in phases.into_iter().chain([("total", total)]) {
        let milliseconds = took.as_secs_f64() * 1000.0;
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{name:width$} {milliseconds:10.1} ms");
    }
    table
}
