//! The DWARF of one ELF file: which sections there are, and their bytes, relocated if need be.

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};

use hashbrown::HashMap;

use super::budget::Budget;
use super::die::DieRef;
use super::foreign::UnitPlace;
use super::other_file::{self, OtherFile};
use super::unit::{self, UnitHeader};
use crate::base::Prepared;
use crate::elf::{ElfFile, Section, SectionData, SymbolTable};
use crate::names::Names;
use crate::options::Options;
use crate::relocate::{self, Relocated};

/// Everything that decoding a unit reads from. `.debug_info` and the location lists stay in the
/// file and are read piece by piece, so that memory does not grow with their size.
#[derive(Debug)]
pub struct Dwarf<'a> {
    /// The file itself.
    pub elf: &'a ElfFile,
    /// `.debug_info`.
    pub info: Relocated,
    /// The units of `.debug_info`, in file order.
    pub units: Vec<UnitHeader>,
    /// `.debug_types` (DWARF 4).
    pub types: Relocated,
    /// The units of `.debug_types`, in file order.
    pub type_units: Vec<UnitHeader>,
    /// Where the type of each signature is, once that was asked for.
    pub(super) signatures: OnceLock<HashMap<u64, (UnitPlace, DieRef)>>,
    /// The supplementary file (`dwz -m`), if there is one.
    pub supplementary: Option<OtherFile>,
    /// The package of `.dwo` files, once that was asked for.
    pub(super) package: OnceLock<Result<Option<OtherFile>, String>>,
    /// How much of other units may be read because of references out of a unit.
    pub import_budget: Budget,
    /// `.debug_abbrev`.
    pub abbreviations: Vec<u8>,
    /// The strings of `.debug_str`, and all others.
    pub names: Arc<Names>,
    /// `.debug_str` of a member of an archive: members share their names, not their strings.
    pub own_strings: Option<Vec<u8>>,
    /// `.debug_line_str`.
    pub line_strings: Vec<u8>,
    /// `.debug_str_offsets`.
    pub string_offsets: Vec<u8>,
    /// `.debug_addr`.
    pub addresses: Vec<u8>,
    /// `.debug_loclists` (DWARF 5).
    pub location_lists: SectionData,
    /// `.debug_loc` (DWARF 2 to 4).
    pub old_location_lists: SectionData,
    /// How much of the location lists may be read.
    pub list_budget: Budget,
    /// How much of the abbreviations may be read.
    pub abbreviation_budget: Budget,
    /// Address that each section is taken to have: its own, or in a relocatable file one made up
    /// so that allocated sections do not overlap (spec/encoding 1.1.7).
    pub section_addresses: Vec<u64>,
}

impl<'a> Dwarf<'a> {
    /// Reads the DWARF of `elf`, whose types will be looked up in `base`; `None` if there is no
    /// `.debug_info`.
    ///
    /// # Errors
    /// When a section or unit header is damaged.
    pub fn load(
        elf: &'a ElfFile,
        symbols: Option<&SymbolTable>,
        base: Option<&Arc<Prepared>>,
        options: &Options,
    ) -> Result<Option<Self>> {
        let linked = !elf.target().is_relocatable();
        Self::load_with(elf, symbols, |loader| {
            Ok((Arc::new(loader.names(linked, base, options)?), None))
        })
    }

    /// Reads the DWARF of a member of an archive, all of which share `names`; `None` if there is no
    /// `.debug_info`.
    ///
    /// # Errors
    /// When a section or unit header is damaged.
    pub fn load_member(
        elf: &'a ElfFile,
        symbols: Option<&SymbolTable>,
        names: &Arc<Names>,
    ) -> Result<Option<Self>> {
        Self::load_with(elf, symbols, |loader| Ok((names.clone(), Some(loader.bytes("str")?))))
    }

    fn load_with(
        elf: &'a ElfFile,
        symbols: Option<&SymbolTable>,
        names: impl FnOnce(&Loader<'_>) -> Result<(Arc<Names>, Option<Vec<u8>>)> + Send,
    ) -> Result<Option<Self>> {
        let Some(info_section) = find(elf, "info") else {
            return Ok(None);
        };
        let loader = Loader { layout: relocate::layout(elf), elf, symbols };
        let ((names, info), rest) =
            rayon::join(|| (names(&loader), loader.info(info_section)), || loader.rest());
        let ((names, own_strings), (info, mut units), rest) = (names?, info?, rest?);
        let (types, mut type_units) = loader.types()?;
        for header in units.iter_mut().chain(&mut type_units) {
            header.encoding.is_elsewhere = own_strings.is_some();
        }
        let supplementary = other_file::supplementary(elf)?;
        let [abbreviations, line_strings, string_offsets, addresses] = rest.small;
        let [location_lists, old_location_lists] = rest.lists;
        let section_addresses = loader.layout;
        let lists = location_lists.len().saturating_add(old_location_lists.len());
        Ok(Some(Self {
            import_budget: Budget::for_size(
                info.len()
                    .saturating_add(types.len())
                    .saturating_add(supplementary.as_ref().map_or(0, OtherFile::size_of_units)),
            ),
            info,
            units,
            types,
            type_units,
            signatures: OnceLock::new(),
            supplementary,
            package: OnceLock::new(),
            abbreviation_budget: Budget::for_size(abbreviations.len() as u64),
            abbreviations,
            names,
            own_strings,
            line_strings,
            string_offsets,
            addresses,
            location_lists,
            old_location_lists,
            list_budget: Budget::for_size(lists),
            section_addresses,
            elf,
        }))
    }
}

struct Rest {
    small: [Vec<u8>; 4],
    lists: [SectionData; 2],
}

struct Loader<'a> {
    elf: &'a ElfFile,
    symbols: Option<&'a SymbolTable>,
    layout: Vec<u64>,
}

impl Loader<'_> {
    fn names(
        &self,
        linked: bool,
        base: Option<&Arc<Prepared>>,
        options: &Options,
    ) -> Result<Names> {
        let strings = self.bytes("str")?;
        let prefix = options.kabi_prefix.as_deref();
        let names = Names::new(strings, linked, prefix).with_base(base);
        Ok(if linked { names } else { names.indexed() })
    }

    fn info(&self, section: &Section) -> Result<(Relocated, Vec<UnitHeader>)> {
        let info = self.joined(section)?;
        let units = unit::list(self.elf, &info, false)?;
        Ok((info, units))
    }

    fn types(&self) -> Result<(Relocated, Vec<UnitHeader>)> {
        let Some(section) = find(self.elf, "types") else {
            return Ok((Relocated::Ready(SectionData::Memory(Vec::new())), Vec::new()));
        };
        let types = self.joined(section)?;
        let units = unit::list(self.elf, &types, true).context("in `.debug_types`")?;
        Ok((types, units))
    }

    fn rest(&self) -> Result<Rest> {
        Ok(Rest {
            small: [
                self.bytes("abbrev")?,
                self.bytes("line_str")?,
                self.bytes("str_offsets")?,
                self.bytes("addr")?,
            ],
            lists: [self.list("loclists")?, self.list("loc")?],
        })
    }

    fn list(&self, name: &str) -> Result<SectionData> {
        match find(self.elf, name) {
            Some(section) => self.data(section),
            None => Ok(SectionData::Memory(Vec::new())),
        }
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        match self.list(name)? {
            SectionData::Memory(bytes) => Ok(bytes),
            SectionData::InFile { .. } => {
                let section = find(self.elf, name).expect("it was just found");
                Ok(self.elf.bytes(section)?)
            }
        }
    }

    /// The bytes of all sections that are called like `section`, the first of them.
    fn joined(&self, section: &Section) -> Result<Relocated> {
        let same = |other: &&Section| other.name == section.name && other.has_bytes();
        let all = || self.elf.sections().iter().filter(same);
        if !self.elf.target().is_relocatable() || all().nth(1).is_none() {
            return self.pieces(section);
        }
        let mut bytes = Vec::new();
        for (index, part) in self.elf.sections().iter().enumerate().filter(|(_, part)| same(part)) {
            let data = self.data(part)?;
            let mut buffer = Vec::new();
            let size = usize::try_from(data.len()).unwrap_or(usize::MAX);
            bytes.extend_from_slice(data.range(self.elf, 0, size, &mut buffer)?);
            let next = self.layout[index].saturating_add(self.elf.unpacked_size(part));
            ensure!(
                bytes.len() as u64 == next,
                "a section of several has another size than it says"
            );
        }
        Ok(Relocated::Ready(SectionData::Memory(bytes)))
    }

    fn pieces(&self, section: &Section) -> Result<Relocated> {
        if !self.elf.target().is_relocatable() {
            return self.data(section).map(Relocated::Ready);
        }
        let name = String::from_utf8_lossy(&section.name);
        relocate::in_pieces(self.elf, section, self.symbols, &self.layout)
            .with_context(|| format!("failed to relocate `{name}`"))
    }

    fn data(&self, section: &Section) -> Result<SectionData> {
        let name = String::from_utf8_lossy(&section.name).into_owned();
        if !self.elf.target().is_relocatable() {
            return self.elf.data(section).with_context(|| format!("failed to read `{name}`"));
        }
        relocate::section(self.elf, section, self.symbols, &self.layout)
            .with_context(|| format!("failed to relocate `{name}`"))
    }
}

/// The debug section of this name, plain or in the older compressed form.
fn find<'a>(elf: &'a ElfFile, name: &str) -> Option<&'a Section> {
    elf.section(&format!(".debug_{name}"))
        .filter(|section| section.has_bytes())
        .or_else(|| elf.section(&format!(".zdebug_{name}")))
}
