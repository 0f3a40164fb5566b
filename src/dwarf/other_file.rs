//! Files that have a part of the DWARF of the one being encoded: the `.dwo` files and `.dwp` packages of
//! split DWARF (DWARF 5, 7.3.2 and 7.3.5), and what `dwz -m` puts aside for several files.
//!
//! Their strings are not those of `.debug_str`: units say so in their [`Encoding`], and names are
//! looked up by their bytes.
//!
//! [`Encoding`]: super::template::Encoding

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use gimli::{EndianSlice, IndexSectionId, RunTimeEndian, UnitIndex};
use hashbrown::HashMap;

use super::budget::Budget;
use super::die::DieRef;
use super::foreign::{Space, UnitPlace, signatures_of};
use super::sections::Dwarf;
use super::unit::{self, UnitHeader};
use crate::elf::{ElfFile, SectionData};
use crate::relocate::Relocated;

/// The other file and its DWARF.
#[derive(Debug)]
pub struct OtherFile {
    /// The file itself.
    pub elf: ElfFile,
    info: Relocated,
    types: Relocated,
    /// The units of `.debug_info`.
    pub units: Vec<UnitHeader>,
    /// The units of `.debug_types`.
    pub type_units: Vec<UnitHeader>,
    signatures: OnceLock<HashMap<u64, (UnitPlace, DieRef)>>,
    /// `.debug_abbrev`.
    pub abbreviations: Vec<u8>,
    /// How much of the abbreviations may be read.
    pub abbreviation_budget: Budget,
    /// `.debug_str`.
    pub strings: Vec<u8>,
    /// `.debug_line_str`.
    pub line_strings: Vec<u8>,
    /// `.debug_str_offsets`.
    pub string_offsets: Vec<u8>,
    /// `.debug_loclists`.
    pub location_lists: SectionData,
    /// `.debug_loc`.
    pub old_location_lists: SectionData,
    /// How much of the location lists may be read.
    pub list_budget: Budget,
    /// Of a package: what each unit has, by where the unit starts.
    contributions: HashMap<(Space, u64), Contribution>,
    /// Of a package: `.debug_cu_index`.
    unit_index: Option<Vec<u8>>,
}

/// Where in the sections of a package those that a unit was made with begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contribution {
    abbreviations: u64,
    /// In `.debug_str_offsets`.
    pub string_offsets: u64,
    /// In `.debug_loclists`.
    pub location_lists: u64,
    /// In `.debug_loc`.
    pub old_location_lists: u64,
}

impl OtherFile {
    /// Opens the file that `dwz` put aside.
    ///
    /// # Errors
    /// When it cannot be read, or its DWARF is damaged.
    pub fn open_supplementary(path: &Path) -> Result<Self> {
        Self::open(path, "")
    }

    /// Opens a `.dwo` file or `.dwp` package.
    ///
    /// # Errors
    /// As [`Self::open_supplementary`].
    pub fn open_split(path: &Path) -> Result<Self> {
        let mut file = Self::open(path, ".dwo")?;
        file.unit_index = joined(&file.elf, "cu_index")?;
        let type_index = joined(&file.elf, "tu_index")?;
        let indices = [("cu_index", file.unit_index.clone()), ("tu_index", type_index)];
        for (name, bytes) in indices {
            let read = file.read_index(bytes.as_deref().unwrap_or(b""));
            read.with_context(|| format!("failed to read `.debug_{name}`"))?;
        }
        file.place_abbreviations();
        Ok(file)
    }

    fn open(path: &Path, suffix: &str) -> Result<Self> {
        let elf = ElfFile::open(path)?;
        let read = |name: &str| joined(&elf, &format!("{name}{suffix}"));
        let bytes = |name: &str| read(name).map(|bytes| bytes.unwrap_or_default());
        let list = |name: &str| bytes(name).map(SectionData::Memory);
        let section = |name: &str| list(name).map(Relocated::Ready);
        let (info, types) = (section("info")?, section("types")?);
        let mut units = unit::list(&elf, &info, false)?;
        let mut type_units = unit::list(&elf, &types, true)?;
        for header in units.iter_mut().chain(&mut type_units) {
            header.encoding.is_elsewhere = true;
        }
        let (abbreviations, line_strings) = (bytes("abbrev")?, bytes("line_str")?);
        let (strings, string_offsets) = (bytes("str")?, bytes("str_offsets")?);
        let (location_lists, old_location_lists) = (list("loclists")?, list("loc")?);
        let lists = location_lists.len().saturating_add(old_location_lists.len());
        Ok(Self {
            info,
            types,
            units,
            type_units,
            signatures: OnceLock::new(),
            abbreviation_budget: Budget::for_size(abbreviations.len() as u64),
            abbreviations,
            strings,
            line_strings,
            string_offsets,
            location_lists,
            old_location_lists,
            list_budget: Budget::for_size(lists),
            contributions: HashMap::new(),
            unit_index: None,
            elf,
        })
    }

    /// Reads an index of a package: which parts of its sections belong to which unit.
    fn read_index(&mut self, bytes: &[u8]) -> Result<()> {
        let index = index(&self.elf, bytes)?;
        for row in 1..=index.unit_count() {
            self.add_row(&index, row)?;
        }
        Ok(())
    }

    fn add_row(&mut self, index: &Index<'_>, row: u32) -> Result<()> {
        let mut contribution = Contribution::default();
        for section in index.sections(row)? {
            let offset = u64::from(section.offset);
            match section.section {
                IndexSectionId::DebugAbbrev => contribution.abbreviations = offset,
                IndexSectionId::DebugStrOffsets => contribution.string_offsets = offset,
                IndexSectionId::DebugLocLists => contribution.location_lists = offset,
                IndexSectionId::DebugLoc => contribution.old_location_lists = offset,
                _ => {}
            }
        }
        self.contributions.insert(start_of(index, row)?, contribution);
        Ok(())
    }

    fn place_abbreviations(&mut self) {
        let Self { units, type_units, contributions, .. } = self;
        for (space, units) in [(Space::Info, units), (Space::Types, type_units)] {
            for header in units {
                if let Some(contribution) = contributions.get(&(space, header.offset)) {
                    header.abbreviations =
                        header.abbreviations.saturating_add(contribution.abbreviations);
                }
            }
        }
    }

    /// What the unit at `offset` was made with.
    #[must_use]
    pub fn contribution(&self, space: Space, offset: u64) -> Contribution {
        self.contributions.get(&(space, offset)).copied().unwrap_or_default()
    }

    /// Bytes of all units.
    #[must_use]
    pub fn size_of_units(&self) -> u64 {
        self.info.len().saturating_add(self.types.len())
    }

    /// The units of a section.
    #[must_use]
    pub fn units_of(&self, space: Space) -> &[UnitHeader] {
        match space {
            Space::Types => &self.type_units,
            Space::Info | Space::Supplementary => &self.units,
        }
    }

    /// The bytes of a unit.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn unit_bytes<'a>(
        &'a self,
        place: UnitPlace,
        buffer: &'a mut Vec<u8>,
    ) -> std::io::Result<&'a [u8]> {
        let header = &self.units_of(place.space)[place.index as usize];
        let section = if place.space == Space::Types { &self.types } else { &self.info };
        section.range(&self.elf, header.offset, header.size as usize, buffer)
    }

    /// Where the type of each signature is.
    #[must_use]
    pub fn signatures(&self) -> &HashMap<u64, (UnitPlace, DieRef)> {
        self.signatures.get_or_init(|| signatures_of(&self.type_units, &self.units))
    }

    /// The split unit of this identifier. Up to DWARF 4 only the unit's root tells its own, so that
    /// the only unit of a file is taken for it.
    #[must_use]
    pub fn split_unit(&self, identifier: Option<u64>) -> Option<u32> {
        let place = |is_it: &dyn Fn(&UnitHeader) -> bool| {
            self.units.iter().position(is_it).map(|index| index as u32)
        };
        if let Some(identifier) = identifier {
            let index = self.unit_index.as_ref().map(|bytes| index(&self.elf, bytes).ok());
            if let Some(index) = index.flatten() {
                let (_, start) = start_of(&index, index.find(identifier)?).ok()?;
                return place(&|header| header.offset == start);
            }
            let own = place(&|header| header.split_id == Some(identifier));
            if own.is_some() {
                return own;
            }
        }
        let is_plain =
            |header: &UnitHeader| header.type_head.is_none() && header.split_id.is_none();
        let mut plain = (0..).zip(&self.units).filter(|(_, header)| is_plain(header));
        let only = plain.next().map(|(index, _)| index);
        only.filter(|_| plain.next().is_none())
    }
}

type Index<'a> = UnitIndex<EndianSlice<'a, RunTimeEndian>>;

fn index<'a>(elf: &ElfFile, bytes: &'a [u8]) -> gimli::Result<Index<'a>> {
    let is_big = elf.target().big_endian;
    let endian = if is_big { RunTimeEndian::Big } else { RunTimeEndian::Little };
    gimli::DebugCuIndex::from(EndianSlice::new(bytes, endian)).index()
}

/// Where the unit of a row starts.
fn start_of(index: &Index<'_>, row: u32) -> Result<(Space, u64)> {
    for section in index.sections(row)? {
        match section.section {
            IndexSectionId::DebugInfo => return Ok((Space::Info, section.offset.into())),
            IndexSectionId::DebugTypes => return Ok((Space::Types, section.offset.into())),
            _ => {}
        }
    }
    anyhow::bail!("row {row} names no unit")
}

/// The bytes of all debug sections of this name; `None` if there is none.
fn joined(elf: &ElfFile, name: &str) -> Result<Option<Vec<u8>>> {
    let (plain, compressed) = (format!(".debug_{name}"), format!(".zdebug_{name}"));
    let is_it = |found: &[u8]| found == plain.as_bytes() || found == compressed.as_bytes();
    let mut bytes: Option<Vec<u8>> = None;
    for section in elf.sections().iter().filter(|section| is_it(&section.name)) {
        bytes.get_or_insert_default().extend(elf.bytes(section)?);
    }
    Ok(bytes)
}

/// Where a file that a name of another leads to may be: as it is named, from the folder in which it
/// was compiled, and beside the file that names it.
#[must_use]
pub fn places_of(name: &Path, folder: &Path, referrer: &Path) -> Vec<PathBuf> {
    let beside = referrer.parent().unwrap_or(Path::new(""));
    let mut places = vec![folder.join(name), beside.join(name)];
    places.extend(name.file_name().map(|name| beside.join(name)));
    places.dedup();
    places
}

/// Opens the supplementary file that `.gnu_debugaltlink` of `elf` names; `None` without that section.
///
/// # Errors
/// When there is no such file with the identifier that the section says.
pub fn supplementary(elf: &ElfFile) -> Result<Option<OtherFile>> {
    let Some(link) = elf.link(".gnu_debugaltlink")? else {
        return Ok(None);
    };
    let mut places = places_of(&link.name, Path::new(""), elf.path());
    places.extend(crate::elf::build_id_path(&link.rest));
    for place in &places {
        if place.is_file() {
            let file = OtherFile::open_supplementary(place)
                .with_context(|| format!("failed to read `{}`", place.display()))?;
            let is_it = file.elf.build_id()?.is_some_and(|id| id == link.rest);
            ensure!(is_it, "`{}` is not the file that was put aside for it", place.display());
            return Ok(Some(file));
        }
    }
    anyhow::bail!("there is no `{}`, which has a part of its DWARF", link.name.display())
}

impl Dwarf<'_> {
    /// The package of `.dwo` files beside the file, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn package(&self) -> Result<Option<&OtherFile>> {
        let open = || {
            let mut path = self.elf.path().as_os_str().to_owned();
            path.push(".dwp");
            let path = Path::new(&path);
            if !path.is_file() {
                return Ok(None);
            }
            let failed = |error| format!("failed to read `{}`: {error:#}", path.display());
            OtherFile::open_split(path).map(Some).map_err(failed)
        };
        match self.package.get_or_init(open) {
            Ok(file) => Ok(file.as_ref()),
            Err(error) => anyhow::bail!("{error}"),
        }
    }
}
