//! Split DWARF: a skeleton says which file has the unit.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Decoder, Fragment, Root, Scratch, Subject};
use crate::dwarf::foreign::{Space, UnitPlace, View};
use crate::dwarf::other_file::{OtherFile, places_of};
use crate::dwarf::unit::UnitHeader;
use crate::names::NameId;

impl Decoder<'_> {
    /// Decodes the unit that the skeleton `root` of `header` stands for: from the package beside the
    /// file, or from its own `.dwo` file. Without one it has nothing, which is told.
    ///
    /// # Errors
    /// When that file is damaged.
    pub(super) fn decode_split<const BIG: bool>(
        &mut self,
        unit: u32,
        header: &UnitHeader,
        root: &Root,
    ) -> Result<Option<Fragment>> {
        self.notes.draws_on_files = true;
        let identifier = header.split_id.or(root.dwo_id);
        if let Some(package) = self.dwarf.package()?
            && let Some(index) = package.split_unit(identifier)
        {
            return self.decode_in::<BIG>(package, index, unit, root);
        }
        let places =
            places_of(&self.path(root.dwo_name), &self.path(root.folder), self.dwarf.elf.path());
        let Some(place) = places.iter().find(|place| place.is_file()) else {
            let first = places.first().map_or(Path::new(""), PathBuf::as_path);
            self.notes.add_missing(header.offset, format!("no `{}`", first.display()));
            return Ok(None);
        };
        let failed = || format!("failed to read `{}`", place.display());
        let file = OtherFile::open_split(place).with_context(failed)?;
        let Some(index) = file.split_unit(identifier) else {
            let text = format!("`{}` is of another build", place.display());
            self.notes.add_missing(header.offset, text);
            return Ok(None);
        };
        self.decode_in::<BIG>(&file, index, unit, root).with_context(failed)
    }

    fn path(&self, name: NameId) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(self.dwarf.names.bytes(name, &mut [0; 4])))
    }

    fn decode_in<const BIG: bool>(
        &mut self,
        file: &OtherFile,
        index: u32,
        unit: u32,
        skeleton: &Root,
    ) -> Result<Option<Fragment>> {
        let header = &file.units[index as usize];
        let place = UnitPlace { space: Space::Info, index };
        let subject = Subject { unit, place, header, skeleton: Some(skeleton) };
        let view = View { dwarf: self.dwarf, split: Some(file) };
        // What is kept from unit to unit belongs to the sections of one file.
        self.decode_bytes::<BIG>(subject, view, &mut Scratch::default(), &mut Vec::new())
            .with_context(|| format!("at the unit at {:#x}", header.offset))
    }
}
