//! Where the BTF of one input goes: refuses, before any work, what would do harm, and then puts
//! everything there at once.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::base::Base;
use super::batch;
use super::encode::{EncodeRequest, Target};
use crate::btf::fit::faults;
use crate::btf::load;
use crate::elf::is_archive;
use crate::embed::{Edit, Placement, note};
use crate::options::Feature;
use crate::output::Output;
use crate::pipeline::Encoded;
use crate::write_file::write_files;

/// Where the BTF of one input goes.
pub(super) enum Destination<'a> {
    /// Into the input.
    InPlace(&'a Path),
    /// Into a file of its own; a distilled base into another, with `.base` at the end of its name.
    File {
        /// The file.
        path: Cow<'a, Path>,
        /// The one of the base, which may be left from an earlier run.
        base_path: PathBuf,
    },
    /// To stdout.
    Stdout,
}

impl<'a> Destination<'a> {
    /// Where the BTF of `input` goes.
    ///
    /// # Errors
    /// If that would replace the input or its base.
    pub(super) fn of(
        input: &'a Path,
        base: Option<&Base<'_>>,
        request: &'a EncodeRequest,
    ) -> Result<Self> {
        let is_base = |path: &Path| base.is_some_and(|base| same_file(path, base.path()));
        let name = input.display();
        ensure!(!is_base(input), "`{name}` is the base itself: it cannot be built upon itself");
        let path = match &request.target {
            Target::InPlace => {
                ensure!(
                    !is_archive(input),
                    "`{name}` is an archive: BTF cannot be put into it, give it a file of its own"
                );
                return Ok(Self::InPlace(input));
            }
            Target::Stdout => {
                let terminal = io::stdout().is_terminal();
                ensure!(!terminal, "stdout is a terminal: redirect it, or name a file");
                return Ok(Self::Stdout);
            }
            Target::File(path) => Cow::Borrowed(path.as_path()),
            Target::Folder(folder) => Cow::Owned(batch::output_path(folder, input)),
        };
        let base_path = load::distilled_base_path(&path);
        let distills = request.options.features.has(Feature::DistilledBase);
        for path in [Some(&*path), Some(&*base_path).filter(|_| distills)].into_iter().flatten() {
            let name = path.display();
            ensure!(!same_file(input, path), "`{name}` is the input: its BTF cannot replace it");
            ensure!(!is_base(path), "`{name}` is the base: the BTF of `{}` cannot replace it", {
                input.display()
            });
        }
        ensure!(
            !distills || path.metadata().map_or(true, |metadata| metadata.is_file()),
            "`{}` is not a file: a distilled base cannot be put beside it",
            path.display()
        );
        Ok(Self::File { path, base_path })
    }

    /// Puts there what was encoded.
    ///
    /// # Errors
    /// Names what could not be written; it is then as it was.
    pub(super) fn store(
        &self,
        encoded: &Encoded,
        base: Option<&Base<'_>>,
        request: &EncodeRequest,
        output: Output,
    ) -> Result<()> {
        match self {
            Self::InPlace(input) => {
                let base = base.filter(|_| request.base_note);
                let note = base.map(|base| base.note(encoded.is_big_endian()));
                store_in_place(encoded, note.as_deref(), input, request.strip_signature, output)
            }
            Self::File { path, base_path } => {
                let Some(distilled) = &encoded.distilled_base else {
                    write_files(&[(path, &encoded.btf)])?;
                    return remove_distilled_base(base_path, base);
                };
                write_files(&[(base_path, distilled), (path, &encoded.btf)])
            }
            Self::Stdout => output.data(&encoded.btf).context("failed to write to stdout"),
        }
    }
}

/// Removes the distilled base that an earlier run put beside the file just written: readers of the
/// pair would take what is split on the kernel as split on that. Anything else of its name stays.
fn remove_distilled_base(path: &Path, base: Option<&Base<'_>>) -> Result<()> {
    let is_base = base.is_some_and(|base| same_file(path, base.path()));
    let is_distilled =
        || path.is_file() && load::base(path).is_ok_and(|btf| faults(&btf).is_empty());
    if is_base || !is_distilled() {
        return Ok(());
    }
    let name = path.display();
    fs_err::remove_file(path)
        .with_context(|| format!("failed to remove `{name}`, the distilled base of an earlier run"))
}

fn same_file(left: &Path, right: &Path) -> bool {
    match (fs_err::metadata(left), fs_err::metadata(right)) {
        (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
        _ => false,
    }
}

/// Puts the sections into the input. What an earlier run put there and this one does not make would
/// contradict them.
fn store_in_place(
    encoded: &Encoded,
    note: Option<&[u8]>,
    input: &Path,
    strip_signature: bool,
    output: Output,
) -> Result<()> {
    let mut edit = (vec![(".BTF", &encoded.btf[..])], Vec::new());
    for (section, bytes) in
        [(".BTF.base", encoded.distilled_base.as_deref()), (note::SECTION, note)]
    {
        match bytes {
            Some(bytes) => edit.0.push((section, bytes)),
            None => edit.1.push(section),
        }
    }
    let edit = Edit { sections: &edit.0, remove: &edit.1 };
    let name = input.display();
    let placed = if strip_signature { edit.apply_unsigned(input) } else { edit.apply(input) };
    let placements = placed.with_context(|| format!("failed to put .BTF into `{name}`"))?;
    if placements.contains(&Placement::Detached) {
        output.notice(&format!(
            "`{name}` is linked with BTF of another size inside: its running program will see the \
             old BTF, only readers of the file see the new one"
        ));
    }
    Ok(())
}
