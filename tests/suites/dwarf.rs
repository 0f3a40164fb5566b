//! The walk by templates (`dwarf::die`, `dwarf::template`) reads every DIE as gimli does: offset,
//! tag, children, and the value of every attribute that it keeps; and it keeps those it must.
//!
//! On what gcc and clang make of `tests/data/rich.c`, and with `BTFCACHE_TEST_VMLINUX=FILE` on every
//! DIE of that kernel.

use std::path::{Path, PathBuf};

use btfcache::dwarf::die::{DieReader, FOREIGN, Values};
use btfcache::dwarf::sections::Dwarf;
use btfcache::dwarf::table::Templates;
use btfcache::dwarf::template::{DieKind, Slot, Template};
use btfcache::dwarf::unit::UnitHeader;
use btfcache::elf::{ElfFile, Section, SectionData, SymbolTable};
use btfcache::names::{NameCache, NameId};
use btfcache::options::Options;
use btfcache::relocate;
use gimli::{AttributeValue, DwAt, DwTag, EndianSlice, RunTimeEndian, constants as dw};
use rayon::prelude::*;

use crate::dwarf_builder::compiled;
use crate::harness::skip;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

const COMPILERS: [&str; 2] = ["gcc", "clang"];
const VERSIONS: [u16; 4] = [2, 3, 4, 5];

#[test]
fn every_die_of_what_compilers_write() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in COMPILERS {
        for version in VERSIONS {
            for strictness in ["-gstrict-dwarf", "-gno-strict-dwarf"] {
                let flags = format!("-g -gdwarf-{version} {strictness} {LINKED}");
                let output = folder.path().join("linked.so");
                let Some(path) = compiled(&output, compiler, &flags) else {
                    skip("dwarf::every_die_of_what_compilers_write", &format!("no {compiler}"));
                    continue;
                };
                let dies = compare(&path);
                assert!(dies > 150, "{compiler} {flags}: only {dies} DIEs");
            }
        }
    }
}

/// Both byte orders, 32 and 64 bits.
#[test]
fn every_die_for_other_machines() {
    let folder = tempfile::tempdir().unwrap();
    for machine in ["s390x", "powerpc", "mips64", "armv7", "riscv64", "aarch64"] {
        let flags = format!("-g -c -ffreestanding --target={machine}-linux-gnu");
        let Some(path) = compiled(&folder.path().join("object.o"), "clang", &flags) else {
            return skip("dwarf::every_die_for_other_machines", "no clang");
        };
        assert!(compare(&path) > 150, "{machine}");
    }
}

#[test]
fn compressed_and_64_bit_dwarf() {
    let folder = tempfile::tempdir().unwrap();
    for flags in ["-gz=zlib", "-gdwarf64", "-fdebug-types-section", "-gdwarf64 -gdwarf-4"] {
        let output = folder.path().join("linked.so");
        let Some(path) = compiled(&output, "gcc", &format!("-g {flags} {LINKED}")) else {
            return skip("dwarf::compressed_and_64_bit_dwarf", "no gcc");
        };
        assert!(compare(&path) > 150, "{flags}");
    }
}

/// Relocating must give what the linker would have written.
#[test]
fn an_object_reads_as_when_it_is_linked() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in COMPILERS {
        for version in VERSIONS {
            let flags = |rest: &str| format!("-g -gdwarf-{version} {rest}");
            let object = folder.path().join("object.o");
            let linked = folder.path().join("linked.so");
            let object = compiled(&object, compiler, &flags("-fPIC -c"));
            let linked = compiled(&linked, compiler, &flags(LINKED));
            let (Some(object), Some(linked)) = (object, linked) else {
                skip("dwarf::an_object_reads_as_when_it_is_linked", &format!("no {compiler}"));
                continue;
            };
            assert_eq!(list(&object), list(&linked), "{compiler} {version}");
        }
    }
}

#[test]
fn every_die_of_a_kernel() {
    let Some(path) = std::env::var_os("BTFCACHE_TEST_VMLINUX") else {
        return skip("dwarf::every_die_of_a_kernel", "set BTFCACHE_TEST_VMLINUX");
    };
    assert!(compare(&PathBuf::from(path)) > 1_000_000);
}

const LINKED: &str = "-fPIC -shared -nostdlib";

/// Compares the readings of all units; returns the number of DIEs.
fn compare(path: &Path) -> usize {
    let elf = ElfFile::open(path).unwrap();
    let symbols = elf.symbols().unwrap();
    let load = |id: gimli::SectionId| -> Result<Vec<u8>, gimli::Error> {
        let section = elf.section(id.name());
        Ok(section.map_or_else(Vec::new, |section| bytes_of(&elf, section, symbols.as_ref())))
    };
    let sections = gimli::DwarfSections::load(load).unwrap();
    let endian = if elf.target().big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
    let theirs = sections.borrow(|bytes| EndianSlice::new(bytes, endian));
    let ours = Dwarf::load(&elf, symbols.as_ref(), None, &Options::default()).unwrap().unwrap();
    let mut headers = Vec::new();
    let mut units = theirs.units();
    while let Some(header) = units.next().unwrap() {
        headers.push(header);
    }
    assert_eq!(headers.len(), ours.units.len(), "units");
    let pairs = headers.into_par_iter().zip(&ours.units);
    let count = |(header, unit)| match endian {
        RunTimeEndian::Big => compare_unit::<true>(&theirs, header, &ours, unit),
        RunTimeEndian::Little => compare_unit::<false>(&theirs, header, &ours, unit),
    };
    pairs.map(count).sum()
}

/// The bytes of a section, relocated if need be: that is not what is compared.
fn bytes_of(elf: &ElfFile, section: &Section, symbols: Option<&SymbolTable>) -> Vec<u8> {
    if elf.target().is_relocatable() {
        let layout = relocate::layout(elf);
        if let SectionData::Memory(bytes) =
            relocate::section(elf, section, symbols, &layout).unwrap()
        {
            return bytes;
        }
    }
    elf.bytes(section).unwrap()
}

fn compare_unit<const BIG: bool>(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    header: gimli::UnitHeader<Slice<'_>>,
    ours: &Dwarf<'_>,
    unit: &UnitHeader,
) -> usize {
    assert_eq!(header.debug_info_offset().unwrap().0 as u64, unit.offset);
    let theirs = dwarf.unit(header).unwrap();
    let templates = templates_of(ours, unit);
    let (mut buffer, mut cache, mut values) = (Vec::new(), NameCache::default(), Values::default());
    let bytes = ours.info.range(ours.elf, unit.offset, unit.size as usize, &mut buffer).unwrap();
    let mut reader = DieReader::<BIG>::new(ours, unit, bytes, &templates, &mut cache);
    reader.string_offsets_base = theirs.str_offsets_base.0 as u64;
    let mut entries = theirs.entries_raw(None).unwrap();
    let mut count = 0;
    while !entries.is_empty() {
        let start = entries.next_offset().0;
        assert_eq!(reader.cursor.position, start, "unit {:#x}", unit.offset);
        let abbreviation = entries.read_abbreviation().unwrap();
        let template = reader.next_die().unwrap();
        assert_eq!(template.is_some(), abbreviation.is_some(), "{start:#x}");
        let (Some(abbreviation), Some(template)) = (abbreviation, template) else {
            continue;
        };
        count += 1;
        let at = Place { unit: unit.offset, die: start, tag: abbreviation.tag() };
        assert_eq!(template.tag, abbreviation.tag(), "{at:?}");
        assert_eq!(template.has_children, abbreviation.has_children(), "{at:?}");
        let attributes: Vec<_> = abbreviation
            .attributes()
            .iter()
            .map(|specification| entries.read_attribute(*specification).unwrap())
            .collect();
        let end = entries.next_offset().0;
        read_every_way(&mut reader, template, &mut values, end, &at);
        let expected = Expected { dwarf, unit: &theirs, ours, at };
        expected.compare(&attributes, &values, bytes);
    }
    count
}

fn templates_of(ours: &Dwarf<'_>, unit: &UnitHeader) -> Templates {
    let mut templates = Templates::default();
    let budget = &ours.abbreviation_budget;
    templates.compile(&ours.abbreviations, unit.abbreviations, unit.encoding, budget).unwrap();
    templates
}

/// Where a comparison is, for messages.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are what Debug prints")]
struct Place {
    unit: u64,
    die: usize,
    tag: DwTag,
}

/// Reads the attributes of a DIE into `values`; passing over them, and the short way where there is
/// one, must lead to the same.
fn read_every_way<const BIG: bool>(
    reader: &mut DieReader<'_, BIG>,
    template: &Template,
    values: &mut Values,
    end: usize,
    at: &Place,
) {
    let start = reader.cursor.position;
    reader.skip(template).unwrap();
    assert_eq!(reader.cursor.position, end, "passing over {at:?}");
    reader.cursor.position = start;
    reader.read(template, values).unwrap();
    assert_eq!(reader.cursor.position, end, "reading {at:?}");
    if let Some(simple) = &template.simple {
        reader.cursor.position = start;
        let (name, ty, number) = reader.read_simple(simple).unwrap();
        assert_eq!(reader.cursor.position, end, "reading the short way {at:?}");
        assert_eq!(name, values.name(), "{at:?}");
        assert_eq!(ty, values.reference(Slot::Type), "{at:?}");
        let numbers = [Slot::MemberLocation, Slot::ConstValue, Slot::ByteSize, Slot::UpperBound];
        let found = numbers.into_iter().find_map(|slot| values.get(slot));
        assert_eq!(number, found.unwrap_or(0), "{at:?}");
        assert_eq!(simple.has_number, found.is_some(), "{at:?}");
    }
}

/// What one DIE should have given.
struct Expected<'a> {
    dwarf: &'a gimli::Dwarf<Slice<'a>>,
    unit: &'a gimli::Unit<Slice<'a>>,
    ours: &'a Dwarf<'a>,
    at: Place,
}

/// The value of an attribute.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Text(Vec<u8>),
    Number(u64),
    Bytes(Vec<u8>),
    /// Only that it is there matters.
    Anything,
}

impl Expected<'_> {
    fn compare(&self, attributes: &[gimli::Attribute<Slice<'_>>], values: &Values, bytes: &[u8]) {
        let mut seen = Vec::new();
        for attribute in attributes {
            let Some((slot, content)) = self.slot(attribute) else {
                continue;
            };
            if values.has(slot) {
                let found = self.found(slot, &content, values, bytes);
                assert_eq!(found, content, "{:?} {:?}", self.at, attribute.name());
                seen.push(slot);
            } else {
                let is_wanted = is_wanted(self.at.tag, attribute.name());
                assert!(!is_wanted, "{:?} lacks {:?}", self.at, attribute.name());
            }
        }
        for slot in SLOTS {
            assert!(!values.has(slot) || seen.contains(&slot), "{:?} has {slot:?}", self.at);
        }
    }

    fn found(&self, slot: Slot, content: &Content, values: &Values, bytes: &[u8]) -> Content {
        match content {
            Content::Text(_) => {
                let name = NameId(values.number(slot) as u32);
                Content::Text(self.ours.names.to_vec(name))
            }
            Content::Number(_) => Content::Number(values.number(slot)),
            Content::Bytes(_) => {
                let block = values.block(slot).unwrap();
                Content::Bytes(bytes[block.start as usize..][..block.size as usize].to_vec())
            }
            Content::Anything => Content::Anything,
        }
    }

    /// The slot that an attribute fills, if it fills one, and with what.
    fn slot(&self, attribute: &gimli::Attribute<Slice<'_>>) -> Option<(Slot, Content)> {
        let content = self.content(attribute)?;
        let is_number = matches!(content, Content::Number(_));
        let is_offset = matches!(attribute.raw_value(), AttributeValue::SecOffset(_));
        let is_list_index = matches!(attribute.raw_value(), AttributeValue::DebugLocListsIndex(_));
        let is_address_index = matches!(attribute.raw_value(), AttributeValue::DebugAddrIndex(_));
        let slot = match attribute.name() {
            dw::DW_AT_name => Slot::Name,
            dw::DW_AT_type => Slot::Type,
            dw::DW_AT_byte_size if is_number => Slot::ByteSize,
            dw::DW_AT_bit_size => Slot::BitSize,
            dw::DW_AT_bit_offset => Slot::BitOffset,
            dw::DW_AT_data_bit_offset => Slot::DataBitOffset,
            dw::DW_AT_data_member_location if is_number => Slot::MemberLocation,
            dw::DW_AT_data_member_location => Slot::MemberLocationExpression,
            dw::DW_AT_encoding => Slot::Encoding,
            dw::DW_AT_const_value if matches!(content, Content::Text(_)) => Slot::ConstString,
            dw::DW_AT_const_value if is_number => Slot::ConstValue,
            dw::DW_AT_const_value if self.at.tag == dw::DW_TAG_enumerator => Slot::ConstBlock,
            dw::DW_AT_const_value => return Some((Slot::ConstValue, Content::Anything)),
            dw::DW_AT_upper_bound if is_number && !is_offset => Slot::UpperBound,
            dw::DW_AT_upper_bound => return Some((Slot::UpperBoundOther, Content::Anything)),
            dw::DW_AT_count if is_number => Slot::Count,
            dw::DW_AT_declaration => Slot::Declaration,
            dw::DW_AT_external => Slot::External,
            dw::DW_AT_artificial => Slot::Artificial,
            dw::DW_AT_low_pc if is_address_index => Slot::LowPcIndex,
            dw::DW_AT_low_pc => Slot::LowPc,
            dw::DW_AT_location if is_list_index => Slot::LocationListIndex,
            dw::DW_AT_location if is_number => Slot::LocationList,
            dw::DW_AT_location => Slot::Location,
            dw::DW_AT_abstract_origin => Slot::AbstractOrigin,
            dw::DW_AT_specification => Slot::Specification,
            dw::DW_AT_inline => Slot::Inline,
            dw::DW_AT_calling_convention => Slot::CallingConvention,
            dw::DW_AT_language => Slot::Language,
            dw::DW_AT_producer => Slot::Producer,
            dw::DW_AT_str_offsets_base => Slot::StrOffsetsBase,
            dw::DW_AT_addr_base | dw::DW_AT_GNU_addr_base => Slot::AddrBase,
            dw::DW_AT_loclists_base => Slot::LoclistsBase,
            dw::DW_AT_import => Slot::Import,
            dw::DW_AT_dwo_name | dw::DW_AT_GNU_dwo_name => Slot::DwoName,
            dw::DW_AT_comp_dir => Slot::CompDir,
            dw::DW_AT_GNU_dwo_id => Slot::DwoId,
            dw::DW_AT_signature => Slot::Signature,
            dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name => Slot::LinkageName,
            _ => return None,
        };
        Some((slot, content))
    }

    fn content(&self, attribute: &gimli::Attribute<Slice<'_>>) -> Option<Content> {
        use AttributeValue as V;
        Some(match attribute.raw_value() {
            V::Addr(value) | V::Data8(value) | V::Udata(value) => Content::Number(value),
            V::Data1(value) => Content::Number(value.into()),
            V::Data2(value) => Content::Number(value.into()),
            V::Data4(value) => Content::Number(value.into()),
            V::Sdata(value) => Content::Number(value as u64),
            V::Flag(value) => Content::Number(value.into()),
            V::SecOffset(value) => Content::Number(value as u64),
            V::DebugAddrIndex(index) => Content::Number(index.0 as u64),
            V::DebugLocListsIndex(index) => Content::Number(index.0 as u64),
            V::UnitRef(offset) => Content::Number(offset.0 as u64),
            V::DebugInfoRef(offset) => Content::Number(self.local_offset(offset.0)),
            V::DebugTypesRef(_) => Content::Number(u64::from(FOREIGN)),
            V::Block(bytes) => Content::Bytes(bytes.slice().to_vec()),
            V::Exprloc(expression) => Content::Bytes(expression.0.slice().to_vec()),
            value @ (V::String(_)
            | V::DebugStrRef(_)
            | V::DebugLineStrRef(_)
            | V::DebugStrOffsetsIndex(_)) => {
                let text = self.dwarf.attr_string(self.unit, value).unwrap();
                Content::Text(text.slice().to_vec())
            }
            _ => return None,
        })
    }

    /// An offset in `.debug_info` as one in the unit.
    fn local_offset(&self, offset: usize) -> u64 {
        let start = self.unit.header.debug_info_offset().unwrap().0;
        let size = self.unit.header.length_including_self();
        match offset.checked_sub(start) {
            Some(local) if local < size => local as u64,
            _ => u64::from(FOREIGN),
        }
    }
}

/// Whether an encoder of BTF needs the attribute.
fn is_wanted(tag: DwTag, attribute: DwAt) -> bool {
    let find = WANTED.iter().find(|entry| entry.0 == tag);
    find.is_some_and(|(_, attributes)| attributes.contains(&attribute))
}

/// What must not be passed over.
const WANTED: &[(DwTag, &[DwAt])] = &[
    (
        dw::DW_TAG_compile_unit,
        &[
            dw::DW_AT_name,
            dw::DW_AT_language,
            dw::DW_AT_producer,
            dw::DW_AT_str_offsets_base,
            dw::DW_AT_addr_base,
            dw::DW_AT_loclists_base,
        ],
    ),
    (dw::DW_TAG_base_type, &[dw::DW_AT_name, dw::DW_AT_byte_size, dw::DW_AT_encoding]),
    (dw::DW_TAG_pointer_type, &[dw::DW_AT_type]),
    (dw::DW_TAG_const_type, &[dw::DW_AT_type]),
    (dw::DW_TAG_volatile_type, &[dw::DW_AT_type]),
    (dw::DW_TAG_restrict_type, &[dw::DW_AT_type]),
    (dw::DW_TAG_atomic_type, &[dw::DW_AT_type]),
    (dw::DW_TAG_typedef, &[dw::DW_AT_name, dw::DW_AT_type]),
    (dw::DW_TAG_array_type, &[dw::DW_AT_type]),
    (dw::DW_TAG_subrange_type, &[dw::DW_AT_upper_bound, dw::DW_AT_count]),
    (dw::DW_TAG_structure_type, &COMPOSITE),
    (dw::DW_TAG_union_type, &COMPOSITE),
    (dw::DW_TAG_enumeration_type, &[dw::DW_AT_name, dw::DW_AT_byte_size, dw::DW_AT_type]),
    (dw::DW_TAG_enumerator, &[dw::DW_AT_name, dw::DW_AT_const_value]),
    (
        dw::DW_TAG_member,
        &[
            dw::DW_AT_name,
            dw::DW_AT_type,
            dw::DW_AT_byte_size,
            dw::DW_AT_bit_size,
            dw::DW_AT_bit_offset,
            dw::DW_AT_data_bit_offset,
            dw::DW_AT_data_member_location,
        ],
    ),
    (dw::DW_TAG_subroutine_type, &[dw::DW_AT_type]),
    (
        dw::DW_TAG_formal_parameter,
        &[
            dw::DW_AT_name,
            dw::DW_AT_type,
            dw::DW_AT_location,
            dw::DW_AT_const_value,
            dw::DW_AT_abstract_origin,
        ],
    ),
    (
        dw::DW_TAG_subprogram,
        &[
            dw::DW_AT_name,
            dw::DW_AT_type,
            dw::DW_AT_low_pc,
            dw::DW_AT_declaration,
            dw::DW_AT_abstract_origin,
            dw::DW_AT_specification,
            dw::DW_AT_inline,
        ],
    ),
    (
        dw::DW_TAG_variable,
        &[
            dw::DW_AT_name,
            dw::DW_AT_type,
            dw::DW_AT_declaration,
            dw::DW_AT_external,
            dw::DW_AT_specification,
        ],
    ),
];

const COMPOSITE: [DwAt; 4] =
    [dw::DW_AT_name, dw::DW_AT_byte_size, dw::DW_AT_declaration, dw::DW_AT_specification];

const SLOTS: [Slot; 39] = [
    Slot::Name,
    Slot::Type,
    Slot::ByteSize,
    Slot::BitSize,
    Slot::BitOffset,
    Slot::DataBitOffset,
    Slot::MemberLocation,
    Slot::MemberLocationExpression,
    Slot::Encoding,
    Slot::ConstValue,
    Slot::ConstString,
    Slot::UpperBound,
    Slot::UpperBoundOther,
    Slot::Count,
    Slot::Declaration,
    Slot::External,
    Slot::Artificial,
    Slot::LowPc,
    Slot::LowPcIndex,
    Slot::Location,
    Slot::LocationList,
    Slot::LocationListIndex,
    Slot::AbstractOrigin,
    Slot::Specification,
    Slot::Inline,
    Slot::CallingConvention,
    Slot::GnuAnnotation,
    Slot::Language,
    Slot::Producer,
    Slot::StrOffsetsBase,
    Slot::AddrBase,
    Slot::LoclistsBase,
    Slot::LinkageName,
    Slot::Import,
    Slot::Signature,
    Slot::ConstBlock,
    Slot::DwoName,
    Slot::CompDir,
    Slot::DwoId,
];

/// Tag, name, type and size of every DIE.
fn list(path: &Path) -> Vec<(DwTag, Vec<u8>, u32, u64)> {
    let elf = ElfFile::open(path).unwrap();
    let symbols = elf.symbols().unwrap();
    let dwarf = Dwarf::load(&elf, symbols.as_ref(), None, &Options::default()).unwrap().unwrap();
    let (mut dies, mut buffer, mut values) = (Vec::new(), Vec::new(), Values::default());
    for unit in &dwarf.units {
        let templates = templates_of(&dwarf, unit);
        let bytes = dwarf.info.range(&elf, unit.offset, unit.size as usize, &mut buffer).unwrap();
        let mut cache = NameCache::default();
        let mut reader = DieReader::<false>::new(&dwarf, unit, bytes, &templates, &mut cache);
        while !reader.at_end() {
            let Some(template) = reader.next_die().unwrap() else {
                continue;
            };
            reader.read(template, &mut values).unwrap();
            if template.kind == DieKind::Root && reader.current == unit.first_die {
                continue;
            }
            let size = values.number(Slot::ByteSize);
            let name = dwarf.names.to_vec(values.name());
            dies.push((template.tag, name, values.reference(Slot::Type), size));
        }
    }
    dies
}
