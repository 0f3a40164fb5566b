//! Carries out a plan. Takes a path and an edit, gives the rewritten file; touches the original
//! only by renaming a finished file over it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::check::{check, is_carried_out};
use super::image::{self, Image, ReadError};
use super::plan::{Plan, plan};
use super::signature::unsigned_length;
use super::{Edit, EmbedError, Placement, Signature};
use crate::write_file::{Replacement, follow_links};

/// Applies `edit` to the file at `path`.
pub(super) fn apply(
    path: &Path,
    edit: &Edit<'_>,
    signature: Signature,
) -> Result<Vec<Placement>, EmbedError> {
    let failed_to = |action| move |source| EmbedError::Io { action, path: path.into(), source };
    // A fifo would block in `open`, so look first.
    let metadata = path.metadata().map_err(failed_to("open"))?;
    if !metadata.is_file() {
        return Err(EmbedError::NotAFile(path.into()));
    }
    let target = follow_links(path).map_err(failed_to("open"))?;
    let source = File::open(&target).map_err(failed_to("open"))?;
    let metadata = source.metadata().map_err(failed_to("read"))?;

    let not_read = |error| match error {
        ReadError::Io(source) => failed_to("read")(source),
        ReadError::Elf(error) => error,
    };
    let length = match signature {
        Signature::Refuse => metadata.len(),
        Signature::Remove => unsigned_length(&source, metadata.len()).map_err(not_read)?,
    };
    let headers = image::read_headers(&source, length).map_err(not_read)?;
    let plan = match plan(&Image::parse(&headers)?, edit)? {
        Some(plan) => plan,
        None if length == metadata.len() => return Ok(Vec::new()),
        None => Plan::of_start(length),
    };
    check(&source, edit, &plan).map_err(not_read)?;
    let is_done = is_carried_out(&source, metadata.len(), &plan).map_err(failed_to("read"))?;
    // Writing into a set-user-id program would take that bit from it.
    let may_touch = is_done && metadata.mode() & 0o6000 == 0;
    if !(may_touch && touch(&target).is_ok()) {
        let copied = rewrite(&target, source, &metadata, &plan).map_err(failed_to("write"))?;
        if copied < plan.keep {
            return Err(EmbedError::Changed(path.into()));
        }
    }
    Ok(plan.placements)
}

/// Gives the file a new modification time without changing it: build systems take a file that is
/// older than its inputs for one that was not made. Writing a byte that is there already asks for
/// no clock, and leaves the file whole whenever we are killed.
fn touch(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut first = [0];
    file.read_exact_at(&mut first, 0)?;
    file.write_all_at(&first, 0)
}

/// Makes the new file beside `target` and renames it. Gives the number of bytes that could be
/// copied; if they are fewer than the plan keeps, `target` was left alone.
fn rewrite(target: &Path, source: File, old: &Metadata, plan: &Plan<'_>) -> io::Result<u64> {
    let mut new = Replacement::beside(target, 0o600)?;
    // Between files, this copy is made by the kernel and shares blocks where the file system can.
    let copied = io::copy(&mut source.take(plan.keep), new.file())?;
    if copied < plan.keep {
        return Ok(copied);
    }
    new.file().set_len(plan.length)?;
    for patch in &plan.patches {
        new.file().write_all_at(&patch.bytes, patch.offset)?;
    }
    new.keep_attributes(old)?;
    new.commit(target)?;
    Ok(copied)
}
