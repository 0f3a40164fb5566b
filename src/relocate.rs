//! Relocates the debug sections of a relocatable file (`ET_REL`: .o, .ko) in memory.
//!
//! Allocated sections are laid out one after the other at made-up addresses, so that an address
//! tells its section; debug sections stay at 0, so that a section offset stays one
//! (spec/encoding 1.1.7).

mod on_demand;

use anyhow::{Result, bail, ensure};
use object::elf::{self, Machine, RelocationType};

use crate::elf::{ElfFile, Section, SectionData, Symbol, SymbolTable, unsigned};

pub use on_demand::{OnDemand, Relocated};

/// Where the made-up layout starts: above any section size, so that no address in it can be
/// mistaken for an offset into a section at address 0 (spec/encoding 5.3 rule 5).
const LAYOUT_START: u64 = 1 << 40;
/// The same for 32-bit files, whose relocated fields could not hold more.
const LAYOUT_START_32: u64 = 1 << 30;
/// How many bytes of a relocation section are read at once.
const CHUNK: u64 = 1 << 20;
/// Relocation sections that one section may have. Assemblers write one; many that share their bytes
/// would take longer than the file is long.
const MAX_TABLES: usize = 8;

/// The address that each section of `elf` is taken to have, by section index. Units that may be
/// dropped when files are linked have sections of their own, which are read as one: there it is the
/// place in that.
#[must_use]
pub fn layout(elf: &ElfFile) -> Vec<u64> {
    let sections = elf.sections();
    if !elf.target().is_relocatable() {
        return sections.iter().map(|section| section.address).collect();
    }
    let mut next = if elf.target().is_64 { LAYOUT_START } else { LAYOUT_START_32 };
    let mut joined: [(&[u8], u64); 2] = [(b".debug_info", 0), (b".debug_types", 0)];
    let place = |section: &Section| {
        if section.flags.0 & elf::SHF_ALLOC.0 == 0 {
            let end = joined.iter_mut().find(|(name, _)| *name == section.name);
            return end.map_or(0, |(_, end)| {
                let start = *end;
                let size = elf.unpacked_size(section);
                *end = end.saturating_add(size).min(u64::MAX >> 1);
                start
            });
        }
        let alignment = section.alignment.clamp(1, 1 << 16);
        let address = next.next_multiple_of(alignment);
        next = address.saturating_add(section.size.max(1)).min(u64::MAX >> 1);
        address
    };
    sections.iter().map(place).collect()
}

/// The contents of `section` with its relocations applied; as it stands if it has none.
///
/// # Errors
/// When a relocation is of an unknown type or reaches outside the section.
pub fn section(
    elf: &ElfFile,
    section: &Section,
    symbols: Option<&SymbolTable>,
    layout: &[u64],
) -> Result<SectionData> {
    let tables = tables_of(elf, section)?;
    if tables.is_empty() {
        return Ok(elf.data(section)?);
    }
    let mut bytes = elf.bytes(section)?;
    let values = symbol_values(symbols, layout);
    for table in tables {
        Relocator { elf, values: &values, format: Format::of(elf, table) }
            .apply(table, &mut bytes)?;
    }
    Ok(SectionData::Memory(bytes))
}

/// The same for a large section that is read piece by piece: relocated as it is read if possible.
///
/// # Errors
/// As [`section`]; what is relocated later is checked when it is.
pub fn in_pieces(
    elf: &ElfFile,
    section: &Section,
    symbols: Option<&SymbolTable>,
    layout: &[u64],
) -> Result<Relocated> {
    if let [table] = tables_of(elf, section)?[..]
        && let Some(pieces) = OnDemand::new(elf, section, table, symbols, layout)?
    {
        return Ok(Relocated::OnDemand(pieces));
    }
    self::section(elf, section, symbols, layout).map(Relocated::Ready)
}

/// The relocation tables of `section`.
fn tables_of<'a>(elf: &'a ElfFile, section: &Section) -> Result<Vec<&'a Section>> {
    let index = elf.sections().iter().position(|other| std::ptr::eq(other, section));
    let applies = |table: &&Section| {
        matches!(table.kind, elf::SHT_RELA | elf::SHT_REL)
            && Some(table.info as usize) == index
            && table.size > 0
    };
    let tables: Vec<&Section> = elf.sections().iter().filter(applies).collect();
    ensure!(tables.len() <= MAX_TABLES, "{} sections relocate it", tables.len());
    Ok(tables)
}

/// What a relocation does to its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Set,
    Add,
    Subtract,
    /// Replaces or subtracts from the low six bits of a byte.
    Set6,
    Subtract6,
    /// The field is a ULEB128 number of fixed length.
    SetUleb,
    SubtractUleb,
}

/// Action and field size in bytes of the types that occur in debug sections, from each
/// processor's ABI supplement; `None` for a type that has no business there.
fn action_of(machine: Machine, kind: RelocationType) -> Option<(Action, u8)> {
    use Action as A;
    Some(match (machine, kind) {
        (_, RelocationType(0)) => (A::Nothing, 0),
        (elf::EM_X86_64, elf::R_X86_64_64 | elf::R_X86_64_DTPOFF64) => (A::Set, 8),
        (
            elf::EM_X86_64,
            elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_DTPOFF32 | elf::R_X86_64_TPOFF32,
        ) => (A::Set, 4),
        (elf::EM_386, elf::R_386_32 | elf::R_386_TLS_LDO_32) => (A::Set, 4),
        (elf::EM_AARCH64, elf::R_AARCH64_ABS64 | elf::R_AARCH64_TLS_DTPREL) => (A::Set, 8),
        (elf::EM_AARCH64, elf::R_AARCH64_ABS32) => (A::Set, 4),
        (elf::EM_AARCH64, elf::R_AARCH64_ABS16) => (A::Set, 2),
        (elf::EM_ARM, elf::R_ARM_ABS32 | elf::R_ARM_TLS_LDO32) => (A::Set, 4),
        (elf::EM_ARM, elf::R_ARM_ABS16) => (A::Set, 2),
        (elf::EM_ARM, elf::R_ARM_ABS8) => (A::Set, 1),
        (elf::EM_PPC64, elf::R_PPC64_ADDR64 | elf::R_PPC64_DTPREL64) => (A::Set, 8),
        (elf::EM_PPC64, elf::R_PPC64_ADDR32 | elf::R_PPC64_UADDR32) => (A::Set, 4),
        (elf::EM_PPC, elf::R_PPC_ADDR32 | elf::R_PPC_UADDR32 | elf::R_PPC_DTPREL32) => (A::Set, 4),
        (elf::EM_S390, elf::R_390_64 | elf::R_390_TLS_LDO64) => (A::Set, 8),
        (elf::EM_S390, elf::R_390_32 | elf::R_390_TLS_LDO32) => (A::Set, 4),
        (elf::EM_SPARCV9, elf::R_SPARC_64 | elf::R_SPARC_UA64 | elf::R_SPARC_TLS_DTPOFF64) => {
            (A::Set, 8)
        }
        (
            elf::EM_SPARC | elf::EM_SPARCV9,
            elf::R_SPARC_32 | elf::R_SPARC_UA32 | elf::R_SPARC_TLS_DTPOFF32,
        ) => (A::Set, 4),
        (elf::EM_MIPS, elf::R_MIPS_64 | elf::R_MIPS_TLS_DTPREL64) => (A::Set, 8),
        (elf::EM_MIPS, elf::R_MIPS_32 | elf::R_MIPS_TLS_DTPREL32) => (A::Set, 4),
        (elf::EM_RISCV, elf::R_RISCV_64 | elf::R_RISCV_TLS_DTPREL64) => (A::Set, 8),
        (elf::EM_RISCV, elf::R_RISCV_32 | elf::R_RISCV_SET32 | elf::R_RISCV_TLS_DTPREL32) => {
            (A::Set, 4)
        }
        (elf::EM_RISCV, elf::R_RISCV_SET16) => (A::Set, 2),
        (elf::EM_RISCV, elf::R_RISCV_SET8) => (A::Set, 1),
        (elf::EM_RISCV, elf::R_RISCV_SET6) => (A::Set6, 1),
        (elf::EM_RISCV, elf::R_RISCV_SUB6) => (A::Subtract6, 1),
        (elf::EM_RISCV, elf::R_RISCV_ADD8) => (A::Add, 1),
        (elf::EM_RISCV, elf::R_RISCV_ADD16) => (A::Add, 2),
        (elf::EM_RISCV, elf::R_RISCV_ADD32) => (A::Add, 4),
        (elf::EM_RISCV, elf::R_RISCV_ADD64) => (A::Add, 8),
        (elf::EM_RISCV, elf::R_RISCV_SUB8) => (A::Subtract, 1),
        (elf::EM_RISCV, elf::R_RISCV_SUB16) => (A::Subtract, 2),
        (elf::EM_RISCV, elf::R_RISCV_SUB32) => (A::Subtract, 4),
        (elf::EM_RISCV, elf::R_RISCV_SUB64) => (A::Subtract, 8),
        (elf::EM_RISCV, elf::R_RISCV_SET_ULEB128) => (A::SetUleb, 0),
        (elf::EM_RISCV, elf::R_RISCV_SUB_ULEB128) => (A::SubtractUleb, 0),
        (elf::EM_LOONGARCH, elf::R_LARCH_64 | elf::R_LARCH_TLS_DTPREL64) => (A::Set, 8),
        (elf::EM_LOONGARCH, elf::R_LARCH_32 | elf::R_LARCH_TLS_DTPREL32) => (A::Set, 4),
        (elf::EM_LOONGARCH, elf::R_LARCH_ADD8) => (A::Add, 1),
        (elf::EM_LOONGARCH, elf::R_LARCH_ADD16) => (A::Add, 2),
        (elf::EM_LOONGARCH, elf::R_LARCH_ADD32) => (A::Add, 4),
        (elf::EM_LOONGARCH, elf::R_LARCH_ADD64) => (A::Add, 8),
        (elf::EM_LOONGARCH, elf::R_LARCH_SUB8) => (A::Subtract, 1),
        (elf::EM_LOONGARCH, elf::R_LARCH_SUB16) => (A::Subtract, 2),
        (elf::EM_LOONGARCH, elf::R_LARCH_SUB32) => (A::Subtract, 4),
        (elf::EM_LOONGARCH, elf::R_LARCH_SUB64) => (A::Subtract, 8),
        (elf::EM_LOONGARCH, elf::R_LARCH_ADD6) => (A::Set6, 1),
        (elf::EM_LOONGARCH, elf::R_LARCH_SUB6) => (A::Subtract6, 1),
        (elf::EM_LOONGARCH, elf::R_LARCH_ADD_ULEB128) => (A::SetUleb, 0),
        (elf::EM_LOONGARCH, elf::R_LARCH_SUB_ULEB128) => (A::SubtractUleb, 0),
        _ => return None,
    })
}

/// How entries of a relocation section are laid out.
#[derive(Clone, Copy)]
struct Format {
    is_64: bool,
    big_endian: bool,
    has_addend: bool,
    /// 64-bit little-endian MIPS stores the halves of `r_info` the other way round.
    is_mips64_little: bool,
}

struct Entry {
    offset: u64,
    symbol: u32,
    kind: u32,
    addend: Option<i64>,
}

impl Format {
    fn of(elf: &ElfFile, table: &Section) -> Self {
        let target = elf.target();
        Self {
            is_64: target.is_64,
            big_endian: target.big_endian,
            has_addend: table.kind == elf::SHT_RELA,
            is_mips64_little: target.machine == elf::EM_MIPS && target.is_64 && !target.big_endian,
        }
    }

    const fn word(self) -> usize {
        if self.is_64 { 8 } else { 4 }
    }

    const fn entry_size(self) -> usize {
        self.word() * if self.has_addend { 3 } else { 2 }
    }

    fn parse(self, entry: &[u8]) -> Entry {
        let word = |index: usize| {
            unsigned(&entry[index * self.word()..(index + 1) * self.word()], self.big_endian)
        };
        let info = word(1);
        let (symbol, kind) = match (self.is_64, self.is_mips64_little) {
            (true, true) => (info as u32, (info >> 56) as u32),
            (true, false) => ((info >> 32) as u32, info as u32),
            (false, _) => ((info >> 8) as u32, info as u32 & 0xff),
        };
        let addend = self.has_addend.then(|| match self.is_64 {
            true => word(2) as i64,
            false => i64::from(word(2) as u32 as i32),
        });
        Entry { offset: word(0), symbol, kind, addend }
    }
}

/// The address of each symbol in the made-up layout.
fn symbol_values(symbols: Option<&SymbolTable>, layout: &[u64]) -> Vec<u64> {
    let value = |symbol: &Symbol| {
        let base = layout.get(symbol.section as usize).copied().unwrap_or(0);
        base.wrapping_add(symbol.value)
    };
    symbols.map_or(&[][..], SymbolTable::symbols).iter().map(value).collect()
}

/// Which bytes of a section are at hand.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// All of them.
    All,
    /// Some, from this offset on. A field at their end may be cut: who reads a header of unknown size
    /// asks for more than he looks at.
    From(u64),
}

struct Relocator<'a> {
    elf: &'a ElfFile,
    /// By symbol.
    values: &'a [u64],
    format: Format,
}

/// Whether entries are those of x86-64, aarch64 or riscv64.
const fn is_plain(format: Format) -> bool {
    let Format { is_64, big_endian, has_addend, is_mips64_little } = format;
    is_64 && has_addend && !big_endian && !is_mips64_little
}

impl<'a> Relocator<'a> {
    fn apply(&self, table: &Section, bytes: &mut [u8]) -> Result<()> {
        let data = self.elf.data(table)?;
        let entry_size = self.format.entry_size();
        let chunk = CHUNK - CHUNK % entry_size as u64;
        let mut buffer = Vec::new();
        let mut start = 0;
        while start < data.len() {
            let size = chunk.min(data.len() - start);
            let part = data.range(self.elf, start, size as usize, &mut buffer)?;
            if is_plain(self.format) {
                self.apply_within(part, Piece::All, bytes)?;
            } else {
                for entry in part.chunks_exact(entry_size) {
                    self.apply_one(&self.format.parse(entry), bytes)?;
                }
            }
            start += size;
        }
        Ok(())
    }

    /// One for tables of the common shape.
    fn plain(elf: &'a ElfFile, values: &'a [u64]) -> Self {
        let format =
            Format { is_64: true, big_endian: false, has_addend: true, is_mips64_little: false };
        Self { elf, values, format }
    }

    /// Applies entries of the common shape to the bytes of a piece, and skips those for what lies
    /// outside of it. A module has millions that set four or eight bytes.
    fn apply_within(&self, entries: &[u8], piece: Piece, bytes: &mut [u8]) -> Result<()> {
        let word = |entry: &[u8; 24], at: usize| {
            u64::from_le_bytes(entry[at..at + 8].try_into().expect("of eight bytes"))
        };
        let machine = self.elf.target().machine;
        let mut last = (u32::MAX, None);
        for entry in entries.as_chunks::<24>().0 {
            let info = word(entry, 8);
            if last.0 != info as u32 {
                last = (info as u32, action_of(machine, RelocationType(info as u32)));
            }
            let mut place = word(entry, 0);
            if let Piece::From(base) = piece {
                let size = last.1.map_or(1, |(_, size)| u64::from(size.max(1)));
                place = place.wrapping_sub(base);
                if place.checked_add(size).is_none_or(|end| end > bytes.len() as u64) {
                    continue;
                }
            }
            let value = self.symbol_value((info >> 32) as u32).wrapping_add(word(entry, 16));
            let start = usize::try_from(place).unwrap_or(usize::MAX);
            let field = bytes.get_mut(start..).unwrap_or(&mut []);
            let is_done = match last.1 {
                Some((Action::Set, 4)) => {
                    set(field.first_chunk_mut(), (value as u32).to_le_bytes())
                }
                Some((Action::Set, 8)) => set(field.first_chunk_mut(), value.to_le_bytes()),
                _ => false,
            };
            if !is_done {
                let entry = Entry { offset: place, ..self.format.parse(entry) };
                self.apply_one(&entry, bytes)?;
            }
        }
        Ok(())
    }

    fn apply_one(&self, entry: &Entry, bytes: &mut [u8]) -> Result<()> {
        // The two high bytes of a MIPS64 type and of a SPARC type hold more types or data.
        let machine = self.elf.target().machine;
        let kind = match machine {
            elf::EM_MIPS | elf::EM_SPARCV9 => entry.kind & 0xff,
            _ => entry.kind,
        };
        let Some((action, size)) = action_of(machine, RelocationType(kind)) else {
            bail!("unknown relocation type {kind} at {:#x}", entry.offset);
        };
        if action == Action::Nothing {
            return Ok(());
        }
        let start = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let size =
            if size == 0 { uleb_size(bytes.get(start..).unwrap_or(&[])) } else { size.into() };
        let end = start.saturating_add(size);
        ensure!(end <= bytes.len(), "relocation at {:#x} is outside the section", entry.offset);
        let field = &mut bytes[start..end];
        self.change(action, field, entry);
        Ok(())
    }

    fn change(&self, action: Action, field: &mut [u8], entry: &Entry) {
        let big = self.format.big_endian;
        let is_uleb = matches!(action, Action::SetUleb | Action::SubtractUleb);
        let old = if is_uleb { read_uleb(field) } else { unsigned(field, big) };
        let addend = entry.addend.unwrap_or(old as i64);
        let value = self.symbol_value(entry.symbol).wrapping_add_signed(addend);
        match action {
            Action::Nothing => {}
            Action::Set => store(field, value, big),
            Action::Add => store(field, old.wrapping_add(value), big),
            Action::Subtract => store(field, old.wrapping_sub(value), big),
            Action::Set6 => store(field, (old & 0xc0) | (value & 0x3f), big),
            Action::Subtract6 => {
                store(field, (old & 0xc0) | ((old & 0x3f).wrapping_sub(value) & 0x3f), big);
            }
            Action::SetUleb => store_uleb(field, value),
            Action::SubtractUleb => store_uleb(field, old.wrapping_sub(value)),
        }
    }

    fn symbol_value(&self, index: u32) -> u64 {
        self.values.get(index as usize).copied().unwrap_or(0)
    }
}

/// Sets a field; whether there is one.
fn set<const SIZE: usize>(field: Option<&mut [u8; SIZE]>, value: [u8; SIZE]) -> bool {
    field.map(|field| *field = value).is_some()
}

fn store(field: &mut [u8], value: u64, big_endian: bool) {
    let size = field.len();
    if big_endian {
        field.copy_from_slice(&value.to_be_bytes()[8 - size..]);
    } else {
        field.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

fn uleb_size(bytes: &[u8]) -> usize {
    bytes.iter().take(10).position(|byte| byte & 0x80 == 0).map_or(usize::MAX, |last| last + 1)
}

fn read_uleb(field: &[u8]) -> u64 {
    let fold = |value: u64, byte: &u8| value << 7 | u64::from(byte & 0x7f);
    field.iter().rev().fold(0, fold)
}

/// Writes a number in as many bytes as the field has, padded with continuation bytes.
fn store_uleb(field: &mut [u8], mut value: u64) {
    for byte in field {
        *byte = (*byte & 0x80) | (value & 0x7f) as u8;
        value >>= 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_stored_in_both_byte_orders() {
        let mut field = [0; 4];
        store(&mut field, 0x0102_0304, true);
        assert_eq!(field, [1, 2, 3, 4]);
        store(&mut field, 0x0102_0304, false);
        assert_eq!(field, [4, 3, 2, 1]);
        assert_eq!(unsigned(&field, false), 0x0102_0304);
    }

    #[test]
    fn a_uleb_field_keeps_its_length() {
        let mut field = [0x80, 0x80, 0x00];
        assert_eq!(uleb_size(&field), 3);
        store_uleb(&mut field, 300);
        assert_eq!(field, [0xac, 0x82, 0x00]);
        assert_eq!(read_uleb(&field), 300);
    }
}
