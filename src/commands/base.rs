//! The base of split BTF: takes the path of a kernel image or of BTF, gives its prepared form.

use std::path::Path;

use anyhow::{Context, Result};

use crate::base::{Prepared, prepare};
use crate::btf::load;

/// Loads and prepares the base at `path`.
pub(super) fn load(path: &Path) -> Result<Prepared> {
    let base = load::base(path)?;
    prepare(&base, [0; 32]).with_context(|| format!("failed to build upon `{}`", path.display()))
}
