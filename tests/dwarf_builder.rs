//! Writes DWARF by hand, right or wrong, and puts it into a small ELF file (x86-64, linked).
//!
//! Nothing is checked here: a form may not fit its value, a reference may lead nowhere, a section
//! may be cut off. That is the point.
//!
//! ```ignore
//! let mut unit = Unit::new();
//! let int = unit.base("int", 4, DW_ATE_signed);
//! unit.add(die(DW_TAG_typedef).name("number").refers(int));
//! let bytes = unit.elf();
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gimli::{DwAt, DwAte, DwForm, DwTag, constants as dw};

/// A DIE that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(usize);

/// The value of an attribute, as its bytes go into `.debug_info`.
#[derive(Clone, Debug)]
enum Value {
    Bytes(Vec<u8>),
    /// Four bytes that become the offset of a DIE from the unit's header.
    Label(Label),
}

/// One DIE with everything below it.
#[derive(Clone, Debug)]
pub struct Die {
    tag: DwTag,
    attributes: Vec<(DwAt, DwForm, Value)>,
    label: Option<Label>,
    children: Option<Vec<Self>>,
    code: Option<u64>,
}

/// A DIE without attributes.
pub fn die(tag: DwTag) -> Die {
    Die { tag, attributes: Vec::new(), label: None, children: None, code: None }
}

impl Die {
    /// An attribute with these bytes.
    pub fn raw(mut self, attribute: DwAt, form: DwForm, bytes: &[u8]) -> Self {
        self.attributes.push((attribute, form, Value::Bytes(bytes.to_vec())));
        self
    }

    /// `DW_AT_name`, in place.
    pub fn name(self, name: &str) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        self.raw(dw::DW_AT_name, dw::DW_FORM_string, &bytes)
    }

    /// A number of eight bytes.
    pub fn number(self, attribute: DwAt, value: u64) -> Self {
        self.raw(attribute, dw::DW_FORM_data8, &value.to_le_bytes())
    }

    /// `DW_AT_byte_size`.
    pub fn size(self, size: u64) -> Self {
        self.number(dw::DW_AT_byte_size, size)
    }

    /// `DW_AT_declaration`.
    pub fn declaration(self) -> Self {
        self.raw(dw::DW_AT_declaration, dw::DW_FORM_flag_present, &[])
    }

    /// `DW_AT_type`.
    pub fn refers(self, target: Label) -> Self {
        self.reference(dw::DW_AT_type, target)
    }

    /// A reference to a DIE of the unit.
    pub fn reference(mut self, attribute: DwAt, target: Label) -> Self {
        self.attributes.push((attribute, dw::DW_FORM_ref4, Value::Label(target)));
        self
    }

    /// `DW_AT_type` with any offset.
    pub fn refers_to_offset(self, offset: u32) -> Self {
        self.raw(dw::DW_AT_type, dw::DW_FORM_ref4, &offset.to_le_bytes())
    }

    /// Makes the DIE the one that `label` means.
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// Children; a list of none is one too.
    pub fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.get_or_insert_default().extend(children);
        self
    }

    /// Another abbreviation code than the one that is defined.
    pub fn code(mut self, code: u64) -> Self {
        self.code = Some(code);
        self
    }
}

/// One compile unit and the sections around it.
#[derive(Debug, Default)]
pub struct Unit {
    dies: Vec<Die>,
    labels: usize,
    /// Function symbols: name and address.
    functions: Vec<(String, u64)>,
    /// Sections after all others.
    extra: Vec<Section>,
}

/// Address of `.text`.
pub const TEXT: u64 = 0x1000;
/// Address of `.data`.
pub const DATA: u64 = 0x2000;

impl Unit {
    /// A unit without DIEs.
    pub fn new() -> Self {
        Self::default()
    }

    /// A label for a DIE that comes later.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Adds a child of the root.
    pub fn add(&mut self, die: Die) -> Label {
        let label = die.label.unwrap_or_else(|| self.label());
        self.dies.push(die.label(label));
        label
    }

    /// Adds a base type.
    pub fn base(&mut self, name: &str, size: u64, encoding: DwAte) -> Label {
        let base = die(dw::DW_TAG_base_type).name(name).size(size);
        self.add(base.raw(dw::DW_AT_encoding, dw::DW_FORM_data1, &[encoding.0]))
    }

    /// Adds `int`.
    pub fn int(&mut self) -> Label {
        self.base("int", 4, dw::DW_ATE_signed)
    }

    /// Adds a struct.
    pub fn structure(
        &mut self,
        name: &str,
        size: u64,
        members: impl IntoIterator<Item = Die>,
    ) -> Label {
        self.add(die(dw::DW_TAG_structure_type).name(name).size(size).children(members))
    }

    /// Adds a function symbol.
    pub fn symbol(&mut self, name: &str, address: u64) {
        self.functions.push((name.to_owned(), address));
    }

    /// Adds a section.
    pub fn section(&mut self, section: Section) {
        self.extra.push(section);
    }

    /// `.debug_abbrev` and `.debug_info`.
    pub fn sections(&self) -> (Vec<u8>, Vec<u8>) {
        let mut writer = Writer::default();
        writer.info.extend([0; 4]);
        writer.info.extend(4_u16.to_le_bytes());
        writer.info.extend([0; 4]);
        writer.info.push(8);
        let root = die(dw::DW_TAG_compile_unit).name("unit.c").children(self.dies.clone());
        writer.die(&root.raw(dw::DW_AT_language, dw::DW_FORM_data1, &[0x0c]));
        writer.finish()
    }

    /// The ELF file, all sections at their place.
    pub fn elf(&self) -> Vec<u8> {
        let (abbreviations, info) = self.sections();
        self.elf_of(&abbreviations, &info)
    }

    /// The ELF file with other debug sections.
    pub fn elf_of(&self, abbreviations: &[u8], info: &[u8]) -> Vec<u8> {
        let (symbols, strings) = self.symbol_table();
        let debug =
            |name, bytes: &[u8]| Section { name, bytes: bytes.to_vec(), ..Section::debug() };
        let mut text = Section { name: ".text", bytes: vec![0xc3; 64], ..Section::debug() };
        (text.flags, text.address) = (6, TEXT);
        let mut data = Section { name: ".data", bytes: vec![0; 64], ..Section::debug() };
        (data.flags, data.address) = (3, DATA);
        let mut table = debug(".symtab", &symbols);
        (table.kind, table.link, table.entry_size) = (2, 4, 24);
        let mut names = debug(".strtab", &strings);
        names.kind = 3;
        let info = debug(".debug_info", info);
        let mut sections = vec![text, data, table, names];
        sections.extend([debug(".debug_abbrev", abbreviations), info]);
        sections.extend_from_slice(&self.extra);
        write_elf(&sections)
    }

    fn symbol_table(&self) -> (Vec<u8>, Vec<u8>) {
        let (mut symbols, mut strings) = (vec![0; 24], vec![0]);
        for (name, address) in &self.functions {
            symbols.extend((strings.len() as u32).to_le_bytes());
            // A global function in section 1.
            symbols.extend([0x12, 0, 1, 0]);
            symbols.extend(address.to_le_bytes());
            symbols.extend(1_u64.to_le_bytes());
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        (symbols, strings)
    }
}

/// Tag, whether there are children, attributes with forms.
type Abbreviation = (u16, bool, Vec<(u16, u16)>);

#[derive(Default)]
struct Writer {
    abbreviations: BTreeMap<Abbreviation, u64>,
    table: Vec<u8>,
    info: Vec<u8>,
    places: BTreeMap<Label, u32>,
    references: Vec<(usize, Label)>,
}

impl Writer {
    fn die(&mut self, die: &Die) {
        if let Some(label) = die.label {
            self.places.insert(label, self.info.len() as u32);
        }
        let known = self.code_of(die);
        uleb(&mut self.info, die.code.unwrap_or(known));
        for (_, _, value) in &die.attributes {
            match value {
                Value::Bytes(bytes) => self.info.extend(bytes),
                Value::Label(label) => {
                    self.references.push((self.info.len(), *label));
                    self.info.extend([0; 4]);
                }
            }
        }
        if let Some(children) = &die.children {
            children.iter().for_each(|child| self.die(child));
            self.info.push(0);
        }
    }

    fn code_of(&mut self, die: &Die) -> u64 {
        let attributes = die.attributes.iter();
        let pairs: Vec<_> = attributes.map(|entry| (entry.0.0, entry.1.0)).collect();
        let abbreviation = (die.tag.0, die.children.is_some(), pairs);
        let next = self.abbreviations.len() as u64 + 1;
        if let Some(&code) = self.abbreviations.get(&abbreviation) {
            return code;
        }
        uleb(&mut self.table, next);
        uleb(&mut self.table, die.tag.0.into());
        self.table.push(die.children.is_some().into());
        for &(attribute, form) in abbreviation.2.iter().chain([&(0, 0)]) {
            uleb(&mut self.table, attribute.into());
            uleb(&mut self.table, form.into());
        }
        self.abbreviations.insert(abbreviation, next);
        next
    }

    fn finish(mut self) -> (Vec<u8>, Vec<u8>) {
        self.table.push(0);
        for (place, label) in self.references {
            let target = self.places.get(&label).copied().expect("the label is a DIE's");
            self.info[place..place + 4].copy_from_slice(&target.to_le_bytes());
        }
        let length = self.info.len() as u32 - 4;
        self.info[..4].copy_from_slice(&length.to_le_bytes());
        (self.table, self.info)
    }
}

/// Compiles `tests/data/rich.c`, which has one of everything; `None` if the compiler is missing.
pub fn compiled(output: &Path, compiler: &str, flags: &str) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rich.c");
    let mut command = Command::new(compiler);
    // clang puts `.dwo` files into the folder that it runs in.
    command.current_dir(output.parent().expect("a file lies in a folder"));
    command.args(["-O2", "-w"]).args(flags.split_whitespace()).arg("-o").arg(output).arg(source);
    let found = command.output().ok()?;
    assert!(found.status.success(), "{command:?}: {}", String::from_utf8_lossy(&found.stderr));
    Some(output.to_owned())
}

/// Appends an unsigned LEB128 number.
pub fn uleb(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A section of the file to be written.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// `sh_addr`.
    pub address: u64,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// `sh_link`.
    pub link: u32,
    /// `sh_entsize`.
    pub entry_size: u64,
}

impl Section {
    /// A section that is not loaded.
    pub const fn debug() -> Self {
        Self { name: "", kind: 1, flags: 0, address: 0, bytes: Vec::new(), link: 0, entry_size: 0 }
    }
}

/// An executable of these sections, after section 0 and before the names of sections.
pub fn write_elf(sections: &[Section]) -> Vec<u8> {
    let (mut bytes, mut names, mut headers) = (vec![0; 64], vec![0], vec![0; 64]);
    for section in sections {
        let name = names.len() as u32;
        names.extend(section.name.as_bytes());
        names.push(0);
        headers.extend(section_header(section, name, bytes.len() as u64));
        bytes.extend(&section.bytes);
    }
    let table = Section { kind: 3, bytes: names, ..Section::debug() };
    headers.extend(section_header(&table, 0, bytes.len() as u64));
    bytes.extend(&table.bytes);
    let start = bytes.len() as u64;
    bytes.extend(headers);
    let count = sections.len() as u16 + 2;
    let header = elf_header(start, count);
    bytes[..64].copy_from_slice(&header);
    bytes
}

fn section_header(section: &Section, name: u32, offset: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(64);
    header.extend(name.to_le_bytes());
    header.extend(section.kind.to_le_bytes());
    header.extend(section.flags.to_le_bytes());
    header.extend(section.address.to_le_bytes());
    header.extend(offset.to_le_bytes());
    header.extend((section.bytes.len() as u64).to_le_bytes());
    header.extend(section.link.to_le_bytes());
    header.extend(0_u32.to_le_bytes());
    header.extend(1_u64.to_le_bytes());
    header.extend(section.entry_size.to_le_bytes());
    header
}

fn elf_header(section_headers: u64, count: u16) -> [u8; 64] {
    let mut header = [0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[16] = 2; // ET_EXEC
    header[18] = 62; // EM_X86_64
    header[20] = 1; // EV_CURRENT
    header[40..48].copy_from_slice(&section_headers.to_le_bytes());
    header[52] = 64; // e_ehsize
    header[58] = 64; // e_shentsize
    header[60..62].copy_from_slice(&count.to_le_bytes());
    header[62..64].copy_from_slice(&(count - 1).to_le_bytes());
    header
}
