//! `btfcache install-pahole`: a link named `pahole`, through which kernel builds find btfcache.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::output::Output;

/// Where to put the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallRequest {
    /// The folder, made if it is not there.
    pub folder: PathBuf,
    /// Whether something else of that name is replaced.
    pub force: bool,
    /// Without notices.
    pub quiet: bool,
}

/// Makes the link and prints its path.
///
/// # Errors
/// When something else is there already, or the system refuses.
pub fn run(request: &InstallRequest, output: Output) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where btfcache itself is")?;
    fs_err::create_dir_all(&request.folder)?;
    let folder = fs_err::canonicalize(&request.folder)?;
    let link = folder.join("pahole");
    let failed = || format!("failed to make the link {}", link.display());
    match symlink(&program, &link) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if !request.force && !is_ours(&link) {
                bail!(
                    "{} is there already and is no link to btfcache; `--force` replaces it",
                    link.display()
                );
            }
            replace(&program, &link, &folder).with_context(failed)?;
        }
        Err(error) => return Err(error).with_context(failed),
    }
    let shown = link.display();
    let output = output.quiet(request.quiet);
    output
        .notice(&format!("`make PAHOLE={shown}` builds a kernel with it, or put it first in PATH"));
    output.data(format!("{shown}\n").as_bytes()).context("failed to write to stdout")
}

/// Whether it is a link that an earlier run made, maybe of a btfcache that is gone.
fn is_ours(link: &Path) -> bool {
    let target = std::fs::read_link(link);
    target.is_ok_and(|target| target.file_name() == Some(OsStr::new("btfcache")))
}

/// Puts a new link in the place of what is there, so that there is one at any time.
fn replace(program: &Path, link: &Path, folder: &Path) -> std::io::Result<()> {
    let made = tempfile::Builder::new()
        .prefix(".pahole-")
        .make_in(folder, |path| symlink(program, path))?;
    made.into_temp_path().persist(link).map_err(|error| error.error)
}
