//! `btfcache relocate --check`: whether a distilled module fits another kernel.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::verify::{base_of, print};
use crate::btf::fit::misfits;
use crate::btf::load::{self, Images};
use crate::btf::read::Btf;
use crate::output::Output;

/// What to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelocateRequest {
    /// The module.
    pub input: PathBuf,
    /// The kernel, or its BTF.
    pub base: PathBuf,
    /// Without notices.
    pub quiet: bool,
}

/// Prints what keeps the module from fitting, one line each.
///
/// # Errors
/// When something does, and when either file has not the BTF that it should have.
pub fn run(request: &RelocateRequest, output: Output) -> Result<()> {
    let RelocateRequest { input, base, quiet } = request;
    let (name, base_name) = (input.display(), base.display());
    let images = load::module(input)?;
    let distilled = distilled_base(input, &images)?.with_context(|| {
        format!(
            "`{name}` has no distilled base, so it fits only the kernel that it was made for; \
             `btfcache verify --base` tells whether that is this one"
        )
    })?;
    let split = load::split(input, &images.btf, &images.base_path(input), &distilled)?;
    let base = load::base(base).with_context(|| base_of(input))?;
    let found = misfits_on(input, &split, &base, request.base.as_path())?;
    print(&found, output)?;
    if !found.is_empty() {
        bail!("`{name}` does not fit `{base_name}`: build it again for that kernel");
    }
    let count = distilled.type_count();
    output
        .quiet(*quiet)
        .notice(&format!("`{name}` fits `{base_name}`, which has all {count} types that it wants"));
    Ok(())
}

/// The distilled base in the images of a file; `None` if there is none.
pub(super) fn distilled_base(path: &Path, images: &Images) -> Result<Option<Btf<'static>>> {
    let parse = |image: &Vec<u8>| load::parse_alone(image);
    let parsed = images.distilled_base.as_ref().map(parse).transpose();
    parsed.with_context(|| format!("failed to read the distilled base of `{}`", path.display()))
}

/// What keeps `split`, of the file at `path`, from fitting `base`, of the one at `base_path`.
pub(super) fn misfits_on(
    path: &Path,
    split: &Btf<'_>,
    base: &Btf<'_>,
    base_path: &Path,
) -> Result<Vec<String>> {
    ensure!(
        split.is_big_endian() == base.is_big_endian(),
        "`{}` and `{}` are in different byte orders",
        path.display(),
        base_path.display()
    );
    Ok(misfits(split, base).iter().map(ToString::to_string).collect())
}
