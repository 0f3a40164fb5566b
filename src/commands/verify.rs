//! `btfcache verify`: whether the kernel would take the BTF of a file, and whether that belongs to
//! a base.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::relocate::{distilled_base, misfits_on};
use crate::btf::fit::faults;
use crate::btf::load::{self, Images};
use crate::btf::read::Btf;
use crate::btf::title::title;
use crate::btf::verify::{Finding, verify, verify_on_distilled};
use crate::embed::note;
use crate::output::Output;

/// What to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyRequest {
    /// The file.
    pub input: PathBuf,
    /// What its BTF is split on, or should fit.
    pub base: Option<PathBuf>,
    /// Without notices.
    pub quiet: bool,
}

/// Prints what the kernel would refuse, one line each.
///
/// # Errors
/// When there is any, when the file does not belong to the base, and when either has not the BTF
/// that it should have.
pub fn run(request: &VerifyRequest, output: Output) -> Result<()> {
    let VerifyRequest { input, base, quiet } = request;
    let images = load::module(input)?;
    let base = base.as_deref();
    let (found, belongs) = match (distilled_base(input, &images)?, base) {
        (Some(distilled), _) => (on_distilled(input, &images, &distilled, base)?, "fits"),
        (None, Some(base)) => (on_base(input, &images, base)?, "belongs to"),
        (None, None) => (alone(input, &images)?, ""),
    };
    print(&found, output)?;
    let name = input.display();
    ensure!(found.is_empty(), "`{name}` has BTF that the kernel would refuse, see stdout");
    let belongs = base.map(|base| format!(", and {belongs} `{}`", base.display()));
    let belongs = belongs.unwrap_or_default();
    output.quiet(*quiet).notice(&format!("`{name}` obeys the kernel's rules{belongs}"));
    Ok(())
}

fn alone(input: &Path, images: &Images) -> Result<Vec<String>> {
    let btf = load::base_of(input, images)?;
    Ok(lines(&btf, &verify(&btf)))
}

fn on_base(input: &Path, images: &Images, base_path: &Path) -> Result<Vec<String>> {
    let (name, base_name) = (input.display(), base_path.display());
    let base_images = load::images(base_path).with_context(|| base_of(input))?;
    let base = load::base_of(base_path, &base_images).with_context(|| base_of(input))?;
    let digest = note::base_digest(&base_images.btf);
    if let Some(recorded) = images.base_digest.filter(|&recorded| recorded != digest) {
        bail!(
            "`{name}` does not belong to `{base_name}`: it was split on a base with the digest \
             {recorded}, this one has {digest}"
        );
    }
    // Split BTF need not repeat the empty name that all other BTF begins with.
    ensure!(
        load::parse_alone(&images.btf).is_err(),
        "`{name}` has BTF that stands alone, so it is not split on `{base_name}`"
    );
    let split = load::split(input, &images.btf, base_path, &base)?;
    Ok(lines(&split, &verify(&split)))
}

fn on_distilled(
    input: &Path,
    images: &Images,
    distilled: &Btf<'_>,
    base_path: Option<&Path>,
) -> Result<Vec<String>> {
    let split = load::split(input, &images.btf, &images.base_path(input), distilled)?;
    let of_base = |line: String| format!(".BTF.base: {line}");
    let mut found: Vec<String> =
        lines(distilled, &verify(distilled)).into_iter().map(of_base).collect();
    found.extend(lines(&split, &verify_on_distilled(&split)));
    match base_path {
        Some(path) => {
            let base = load::base(path).with_context(|| base_of(input))?;
            found.extend(misfits_on(input, &split, &base, path)?);
        }
        None => found.extend(faults(distilled).iter().map(ToString::to_string)),
    }
    Ok(found)
}

/// What failed when a base cannot be read.
pub(super) fn base_of(input: &Path) -> String {
    format!("failed to read the base of `{}`", input.display())
}

fn lines(btf: &Btf<'_>, findings: &[Finding]) -> Vec<String> {
    let line = |Finding { id, message, .. }: &Finding| match id {
        0 => message.to_string(),
        id => format!("{} (type {id}): {message}", title(btf, *id)),
    };
    findings.iter().map(line).collect()
}

/// Prints lines on stdout.
pub(super) fn print(lines: &[String], output: Output) -> Result<()> {
    let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    output.data(text.as_bytes()).context("failed to write to stdout")
}
