//! The symbol table `.symtab`, with extended section indices.

use object::elf::SymbolType;

use super::{ElfError, ElfFile, Section};

/// Longer names are cut, so that a table of symbols that all share one endless name costs no more
/// than it is long. The kernel knows names of up to 512 bytes.
const MAX_NAME: usize = 4096;

/// One symbol, in native byte order.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Offset of the name in the table's strings.
    name: u32,
    /// `st_info & 15`: `STT_FUNC`, `STT_OBJECT`...
    pub kind: SymbolType,
    /// Whether only its own file knows it.
    pub is_local: bool,
    /// Index of the section it is defined in, extended; 0 if undefined. Special indices
    /// (`SHN_ABS`...) as they are.
    pub section: u32,
    /// `st_value`.
    pub value: u64,
    /// `st_size`.
    pub size: u64,
}

/// All symbols in table order with their names.
#[derive(Debug, Default)]
pub struct SymbolTable {
    symbols: Vec<Symbol>,
    strings: Vec<u8>,
}

impl SymbolTable {
    /// The symbols, in table order.
    #[must_use]
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Whether there is no table.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.symbols.is_empty() && self.strings.is_empty()
    }

    /// The name of `symbol`, at most [`MAX_NAME`] bytes of it; empty if it lies outside the strings.
    #[must_use]
    pub fn name(&self, symbol: &Symbol) -> &[u8] {
        let rest = self.strings.get(symbol.name as usize..).unwrap_or(b"");
        let rest = &rest[..rest.len().min(MAX_NAME)];
        &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())]
    }
}

/// Reads `.symtab` by name, as pahole does (spec/encoding 4.1.1).
pub(super) fn read(elf: &ElfFile) -> Result<Option<SymbolTable>, ElfError> {
    let Some(index) = elf.sections().iter().position(is_symbol_table) else {
        return Ok(None);
    };
    let section = &elf.sections()[index];
    let bytes = elf.bytes(section)?;
    let strings = match elf.sections().get(section.link as usize) {
        Some(strings) => elf.bytes(strings)?,
        None => return Err(section.error("has no string table")),
    };
    let extended = match elf.sections().iter().find(|other| is_extension_of(other, index)) {
        Some(extension) => elf.bytes(extension)?,
        None => Vec::new(),
    };
    let layout = Layout { is_64: elf.target().is_64, big_endian: elf.target().big_endian };
    let symbols = bytes
        .chunks_exact(layout.entry_size())
        .enumerate()
        .map(|(number, entry)| layout.parse(entry, &extended, number))
        .collect();
    Ok(Some(SymbolTable { symbols, strings }))
}

/// Indices of the sections that [`read`] reads.
pub(super) fn sections(sections: &[Section]) -> Vec<usize> {
    let Some(table) = sections.iter().position(is_symbol_table) else {
        return Vec::new();
    };
    let strings = usize::try_from(sections[table].link).ok().filter(|&link| link < sections.len());
    let extension = sections.iter().position(|other| is_extension_of(other, table));
    [Some(table), strings, extension].into_iter().flatten().collect()
}

fn is_symbol_table(section: &Section) -> bool {
    section.name == b".symtab" && section.kind == object::elf::SHT_SYMTAB
}

fn is_extension_of(section: &Section, table: usize) -> bool {
    section.kind == object::elf::SHT_SYMTAB_SHNDX && section.link as usize == table
}

/// How symbols are laid out in the file at hand.
#[derive(Clone, Copy)]
struct Layout {
    is_64: bool,
    big_endian: bool,
}

impl Layout {
    const fn entry_size(self) -> usize {
        if self.is_64 { 24 } else { 16 }
    }

    fn parse(self, entry: &[u8], extended: &[u8], number: usize) -> Symbol {
        let (name, info, section, value, size) = if self.is_64 {
            (
                self.u32(entry, 0),
                entry[4],
                self.u16(entry, 6),
                self.u64(entry, 8),
                self.u64(entry, 16),
            )
        } else {
            let (value, size) = (self.u32(entry, 4).into(), self.u32(entry, 8).into());
            (self.u32(entry, 0), entry[12], self.u16(entry, 14), value, size)
        };
        let section = match section {
            0xffff => self.extended_index(extended, number),
            index => u32::from(index),
        };
        Symbol { name, kind: SymbolType(info & 15), is_local: info >> 4 == 0, section, value, size }
    }

    fn u16(self, entry: &[u8], at: usize) -> u16 {
        let bytes = entry[at..at + 2].try_into().expect("two bytes");
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn u32(self, entry: &[u8], at: usize) -> u32 {
        let bytes = entry[at..at + 4].try_into().expect("four bytes");
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn u64(self, entry: &[u8], at: usize) -> u64 {
        let bytes = entry[at..at + 8].try_into().expect("eight bytes");
        if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
    }

    fn extended_index(self, extended: &[u8], number: usize) -> u32 {
        let Some(bytes) = extended.get(number * 4..number * 4 + 4) else {
            return 0;
        };
        let bytes = bytes.try_into().expect("four bytes");
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}
