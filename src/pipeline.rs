//! The one place that knows the order of the stages (DESIGN.md section 2).

use std::path::Path;

use anyhow::Result;

use crate::options::Options;
use crate::timing::Timing;

/// What one ELF file gave.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The BTF image; empty when there was nothing to encode, with the reason in `notices`.
    pub btf: Vec<u8>,
    /// One line per function or variable that was left out, in the words of pahole's `-V`
    /// (spec/encoding 4.7.3): for stdout, and only when asked for.
    pub skips: Vec<String>,
    /// Lines for stderr: what could not be expressed, why there was nothing to encode.
    pub notices: Vec<String>,
}

/// Turns the DWARF of the ELF file at `input` into BTF on the current rayon pool.
///
/// # Errors
/// Names file, section and unit when the input cannot be read (DESIGN.md section 6).
pub fn encode(input: &Path, options: &Options, timing: &Timing) -> Result<Encoded> {
    let _ = (input, options, timing);
    anyhow::bail!("the pipeline is being built")
}
