//! Encodes BTF: takes an [`EncodeRequest`], runs the pipeline on each input and puts the result
//! where it belongs. Nothing is written unless the whole of it is there.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::pool::Jobs;
use super::progress;
use crate::embed::{Edit, Placement};
use crate::options::{Feature, Options};
use crate::output::Output;
use crate::pipeline::{self, Encoded};
use crate::settings::Settings;
use crate::timing::Timing;
use crate::write_file::write_file;

/// Where the BTF goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into the input, as section `.BTF`.
    InPlace,
    /// Into a file of its own.
    File(PathBuf),
    /// To stdout.
    Stdout,
}

/// Everything that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct EncodeRequest {
    /// The ELF files; more than one only with [`Target::InPlace`].
    pub inputs: Vec<PathBuf>,
    /// Where the BTF goes.
    pub target: Target,
    /// The BTF to build upon.
    pub base: Option<PathBuf>,
    /// What can change the result.
    pub options: Options,
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

/// Encodes each input in turn and stops at the first that fails.
pub(super) fn run(request: &EncodeRequest, settings: &Settings, output: Output) -> Result<()> {
    let output = output.quiet(request.quiet);
    report(&request.notices, request.strict, output)?;
    refuse_base(request)?;
    // There is no cache yet that could be disabled.
    let _ = settings.disable;
    request.inputs.iter().try_for_each(|input| encode_file(input, request, output))
}

/// Until split BTF can be encoded.
fn refuse_base(request: &EncodeRequest) -> Result<()> {
    match &request.base {
        Some(base) => bail!(
            "encoding against a base (`{}`) is not implemented yet: nothing was written",
            base.display()
        ),
        None => Ok(()),
    }
}

fn encode_file(input: &Path, request: &EncodeRequest, output: Output) -> Result<()> {
    check_target(input, &request.target)?;
    let timing = Timing::default();
    let encoded = progress::during(!output.is_quiet(), &timing, || {
        let input_size = fs_err::metadata(input)?.len();
        let pool = request.jobs.pool(input_size)?;
        pool.install(|| pipeline::encode(input, &request.options, &timing))
    })
    .with_context(|| format!("failed to encode `{}`", input.display()))?;
    if request.verbose {
        print_skips(&encoded, &request.target, output)?;
    }
    if encoded.btf.is_empty() {
        report_nothing(input, &encoded, output);
    } else {
        report(&about(input, &encoded.notices), request.strict, output)?;
        ensure_base_for_distilling(request)?;
        timing.phase("write", || store(&encoded.btf, input, &request.target, output))?;
    }
    if request.time {
        output.plain(time_table(&timing).trim_end());
    }
    Ok(())
}

/// Refuses targets that would do harm, before any work.
fn check_target(input: &Path, target: &Target) -> Result<()> {
    match target {
        Target::InPlace => Ok(()),
        Target::File(path) => {
            let same = same_file(input, path);
            ensure!(!same, "`{}` is the input: its BTF cannot replace it", path.display());
            Ok(())
        }
        Target::Stdout => {
            let terminal = io::stdout().is_terminal();
            ensure!(!terminal, "stdout is a terminal: redirect it, or name a file");
            Ok(())
        }
    }
}

fn same_file(left: &Path, right: &Path) -> bool {
    match (fs_err::metadata(left), fs_err::metadata(right)) {
        (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
        _ => false,
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

/// `.BTF.base` is only written beside a `.BTF` in the input itself (spec/encoding 7.4.1).
fn ensure_base_for_distilling(request: &EncodeRequest) -> Result<()> {
    let distills = request.options.features.has(Feature::DistilledBase);
    let needs_base = distills && request.target == Target::InPlace;
    ensure!(!needs_base || request.base.is_some(), "feature `distilled_base` needs a base");
    Ok(())
}

fn store(btf: &[u8], input: &Path, target: &Target, output: Output) -> Result<()> {
    match target {
        Target::InPlace => store_in_place(btf, input, output),
        Target::File(path) => write_file(path, btf),
        Target::Stdout => output.data(btf).context("failed to write to stdout"),
    }
}

/// Puts the section `.BTF` into the input. A `.BTF.base` of an earlier run would contradict it.
fn store_in_place(btf: &[u8], input: &Path, output: Output) -> Result<()> {
    let edit = Edit { sections: &[(".BTF", btf)], remove: &[".BTF.base"] };
    let name = input.display();
    let placements =
        edit.apply(input).with_context(|| format!("failed to put .BTF into `{name}`"))?;
    if placements.contains(&Placement::Detached) {
        output.notice(&format!(
            "`{name}` is linked with BTF of another size inside: its running program will see the \
             old BTF, only readers of the file see the new one"
        ));
    }
    Ok(())
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
