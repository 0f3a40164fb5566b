//! What ELF files say about the functions and variables of their units: the one that is encoded, or the
//! members of an archive.

use std::borrow::Cow;

use super::kfuncs;
use crate::elf::{ElfError, ElfFile, Section, SymbolTable, Target};
use crate::fragment::Fragment;
use crate::names::Names;

/// Name and flags of a kfunc.
pub type Kfunc = (Vec<u8>, u32);

/// All that is encoded, as far as it is more than its units.
#[derive(Debug)]
pub struct Objects<'a> {
    /// What names stand for.
    pub names: &'a Names,
    /// What all objects are for.
    pub target: Target,
    /// The ELF files, in order of units. One, but for archives.
    pub all: Vec<Object<'a>>,
}

/// An ELF file, as far as its units' functions and variables depend on it.
#[derive(Debug)]
pub struct Object<'a> {
    /// Its sections.
    pub sections: &'a [Section],
    /// Address that each of them is taken to have.
    pub addresses: &'a [u64],
    /// Its symbols.
    pub symbols: &'a SymbolTable,
    /// Its kfuncs.
    pub kfuncs: Kfuncs<'a>,
    /// No unit of it has a smaller number, no unit of those before it has a larger one.
    pub first_unit: u32,
    /// How many sections those before it have.
    pub first_section: u32,
}

/// The kfuncs of a file, or where they can be read.
#[derive(Debug)]
pub enum Kfuncs<'a> {
    /// They were read.
    Read(&'a [Kfunc]),
    /// They are in `elf`, which may be the debug file of `main`.
    In {
        /// The file with the DWARF.
        elf: &'a ElfFile,
        /// The file that is encoded.
        main: &'a ElfFile,
    },
}

impl Object<'_> {
    /// Name and flags of every kfunc, in symbol order: a later entry of a name wins.
    ///
    /// # Errors
    /// When `.BTF_ids` cannot be read or a set lies outside of it.
    pub fn kfuncs(&self) -> Result<Cow<'_, [Kfunc]>, ElfError> {
        match self.kfuncs {
            Kfuncs::Read(kfuncs) => Ok(Cow::Borrowed(kfuncs)),
            Kfuncs::In { elf, main } => kfuncs::collect(elf, main, self.symbols).map(Cow::Owned),
        }
    }
}

/// Each object with its fragments, which are in order of units.
pub(super) fn with_fragments<'b, 'a>(
    objects: &'b [Object<'a>],
    mut fragments: &'b [Fragment],
) -> impl Iterator<Item = (&'b Object<'a>, &'b [Fragment])> {
    let ends = objects.iter().skip(1).map(|object| object.first_unit).chain([u32::MAX]);
    objects.iter().zip(ends).map(move |(object, end)| {
        let (own, rest) =
            fragments.split_at(fragments.partition_point(|fragment| fragment.unit < end));
        fragments = rest;
        (object, own)
    })
}

impl Objects<'_> {
    /// The name of a section, by its number counted through all objects.
    ///
    /// # Panics
    /// When there is no section of this number.
    #[must_use]
    pub fn section_name(&self, section: u32) -> &[u8] {
        let after = self.all.partition_point(|object| object.first_section <= section);
        let object = &self.all[after - 1];
        &object.sections[(section - object.first_section) as usize].name
    }
}
