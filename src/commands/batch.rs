//! Many inputs in one run: each is encoded by itself, several at a time.
//!
//! Large ones come first, one after the other on all threads; then each thread takes small ones. So
//! memory is bounded by one large input, or by as many small ones as there are threads. An input
//! that fails is reported in one line and does not stop the others.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use hashbrown::HashMap;
use rayon::ThreadPool;

use super::encode::{EncodeRequest, Job, Target};
use super::progress;
use crate::output::Output;
use crate::timing::Timing;

/// Inputs from this size on are encoded on all threads.
const LARGE: u64 = 24 << 20;
/// Longest path in a list, in bytes: more than any that the system takes.
const MAX_PATH: usize = 1 << 16;

/// The inputs of a request, in order, those of a list included.
pub(super) fn inputs(request: &EncodeRequest) -> Result<Vec<PathBuf>> {
    let mut inputs = request.inputs.clone();
    if let Some(list) = &request.files_from {
        let what = || format!("failed to read the list of files `{}`", list.display());
        if list.as_os_str() == "-" {
            read_list(std::io::stdin().lock(), &mut inputs).with_context(what)?;
        } else {
            let file = fs_err::File::open(list).with_context(what)?;
            read_list(BufReader::new(file), &mut inputs).with_context(what)?;
        }
    }
    if let Target::Folder(folder) = &request.target {
        check_names(folder, &inputs)?;
    }
    Ok(inputs)
}

/// One path a line; empty lines do not count.
fn read_list(mut list: impl BufRead, inputs: &mut Vec<PathBuf>) -> Result<()> {
    loop {
        let mut line = Vec::new();
        let size = list.by_ref().take(MAX_PATH as u64).read_until(b'\n', &mut line)?;
        ensure!(size < MAX_PATH, "a line has more than {MAX_PATH} bytes: not a list of paths");
        if size == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if !line.is_empty() {
            inputs.push(OsString::from_vec(line).into());
        }
    }
}

/// Two inputs of one name would have one output.
fn check_names(folder: &Path, inputs: &[PathBuf]) -> Result<()> {
    ensure!(folder.is_dir(), "`{}` is not a folder", folder.display());
    let mut outputs: HashMap<PathBuf, &Path> = HashMap::new();
    for input in inputs {
        let output = output_path(folder, input);
        if let Some(other) = outputs.insert(output, input) {
            let (one, two) = (other.display(), input.display());
            anyhow::bail!(
                "`{one}` and `{two}` have the same name: their BTF cannot go to one folder"
            );
        }
    }
    Ok(())
}

/// Where the BTF of `input` goes.
pub(super) fn output_path(folder: &Path, input: &Path) -> PathBuf {
    let mut name = input.file_name().unwrap_or_default().to_owned();
    name.push(".btf");
    folder.join(name)
}

/// Encodes all inputs.
///
/// # Errors
/// When any of them failed, after all others are written; at once when nothing can be built upon the
/// base.
pub(super) fn run(job: &Job<'_>, inputs: &[PathBuf]) -> Result<()> {
    let size = |input: &PathBuf| fs_err::metadata(input).map_or(0, |metadata| metadata.len());
    let (large, small): (Vec<&PathBuf>, Vec<&PathBuf>) =
        inputs.iter().partition(|input| size(input) >= LARGE);
    let tally = Tally { total: inputs.len(), ..Tally::default() };
    progress::during(!job.output.is_quiet(), &|| tally.state(), || {
        let pool = job.request.jobs.pool(u64::MAX)?;
        for input in large {
            if tally.goes_on() {
                tally.encode(job, input, &pool);
            }
        }
        let next = AtomicUsize::new(0);
        pool.broadcast(|_| work(job, &small, &next, &tally)).into_iter().collect::<Result<()>>()
    })?;
    if let Some(error) = tally.base_failure.into_inner() {
        return Err(error);
    }
    let failed = tally.failed.into_inner();
    ensure!(failed == 0, "{failed} of {} files failed; the others are done", inputs.len());
    Ok(())
}

/// Takes small inputs until none is left. A thread of its own for each makes what runs in parallel
/// inside of an input stay on it.
fn work(job: &Job<'_>, inputs: &[&PathBuf], next: &AtomicUsize, tally: &Tally) -> Result<()> {
    let pool = super::Jobs::from_count(1).pool(0)?;
    while tally.goes_on()
        && let Some(input) = inputs.get(next.fetch_add(1, Ordering::Relaxed))
    {
        tally.encode(job, input, &pool);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Tally {
    total: usize,
    done: AtomicUsize,
    failed: AtomicUsize,
    /// Why nothing can be built upon the base: told once, not for each input.
    base_failure: OnceLock<anyhow::Error>,
}

impl Tally {
    fn encode(&self, job: &Job<'_>, input: &Path, pool: &ThreadPool) {
        if let Err(error) = job.encode(input, pool, &Timing::default()) {
            if let Some(error) = job.base_failure() {
                self.base_failure.get_or_init(|| error);
                return;
            }
            self.failed.fetch_add(1, Ordering::Relaxed);
            report(&error, input, job.output);
        }
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        self.base_failure.get().is_none()
    }

    fn state(&self) -> String {
        format!(", {} of {} files", self.done.load(Ordering::Relaxed), self.total)
    }
}

/// One line for each failure, which names the file.
fn report(error: &anyhow::Error, input: &Path, output: Output) {
    let text = format!("{error:#}").replace('\n', " ");
    let name = input.display().to_string();
    if text.contains(&name) {
        output.message(&text);
    } else {
        output.message(&format!("`{name}`: {text}"));
    }
}
