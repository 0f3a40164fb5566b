//! Location expressions and lists: where a parameter is at function entry, where a variable is.
//!
//! Only the facts that decide about functions are kept (spec/encoding 4.3), never an address of a
//! range: those move with every link.

use gimli::constants as dw;
use gimli::{
    DebugLoc, DebugLocLists, EndianSlice, Expression, LocationLists, LocationListsOffset,
    Operation, RawLocListEntry, RunTimeEndian,
};

use super::budget::{Budget, Exhausted};
use super::template::Encoding;
use crate::elf::{ElfFile, SectionData, unsigned};

/// How parameters are passed on the machine at hand (spec/encoding 4.4).
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// DWARF register of each argument slot; empty if unknown.
    pub registers: &'static [u16],
    /// Number of argument slots in registers.
    pub slots: u32,
    /// Whether an aggregate may take two registers.
    pub two_registers: bool,
    /// Bytes of a register.
    pub address_size: u32,
}

impl Passing {
    /// The convention of an ELF machine, as pahole's tables have it.
    #[must_use]
    pub fn of(machine: object::elf::Machine, address_size: u8) -> Self {
        use object::elf;
        let (slots, registers, two_registers): (u32, &'static [u16], bool) = match machine {
            elf::EM_X86_64 => (6, &[5, 4, 1, 2, 8, 9], true),
            elf::EM_AARCH64 | elf::EM_ARM => (8, &[0, 1, 2, 3, 4, 5, 6, 7], true),
            elf::EM_S390 => (5, &[2, 3, 4, 5, 6], false),
            elf::EM_SPARC | elf::EM_SPARCV9 => (6, &[], true),
            elf::EM_ARC
            | elf::EM_ARC_COMPACT2
            | elf::EM_MIPS
            | elf::EM_PPC
            | elf::EM_PPC64
            | elf::EM_RISCV => (8, &[], true),
            _ => (0, &[], true),
        };
        Self { registers, slots, two_registers, address_size: address_size.into() }
    }

    /// Argument slots that a value of `size` bytes takes (4.4.1).
    #[must_use]
    pub const fn slots_of(&self, size: u32) -> u32 {
        if !self.two_registers || size <= self.address_size {
            1
        } else {
            size.div_ceil(self.address_size)
        }
    }

    /// Whether a value of `size` bytes is passed in memory (4.3.2).
    #[must_use]
    pub const fn in_memory(&self, size: u32) -> bool {
        size > if self.two_registers { 2 * self.address_size } else { self.address_size }
    }
}

/// What the locations of a parameter say about how it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The DWARF register it arrives in, if known.
    pub register: Option<u16>,
    /// It is on the stack at entry.
    pub stack: bool,
    /// It is a constant at entry.
    pub constant: bool,
    /// Byte offsets that are present in the first register, as bits.
    pub first_pieces: u64,
    /// The same for the second register.
    pub second_pieces: u64,
}

impl Arrival {
    /// Takes in the `index`-th expression of a parameter of `size` bytes (4.3.3, 4.3.4).
    fn note(&mut self, operations: &[(u8, u64)], index: usize, size: u32, passing: &Passing) {
        let Some(&(last, _)) = operations.last() else {
            return;
        };
        let has_stack_value = dw::DwOp(last) == dw::DW_OP_stack_value;
        let operations =
            if operations.len() == 2 && has_stack_value { &operations[..1] } else { operations };
        match operations {
            [(operation, body)] => self.note_single(*operation, *body, has_stack_value, index),
            many => self.note_many(many, index, size, passing),
        }
    }

    fn note_single(&mut self, operation: u8, body: u64, has_stack_value: bool, index: usize) {
        match dw::DwOp(operation) {
            _ if is_constant(operation) => self.constant |= index == 0,
            dw::DW_OP_fbreg => self.stack |= index == 0,
            dw::DW_OP_entry_value | dw::DW_OP_GNU_entry_value if body != 0 => {
                self.set_register(body as u8);
            }
            _ if is_register(operation) && index == 0 => self.set_register(operation),
            _ if is_based(operation) && index == 0 && has_stack_value => {
                self.set_register(operation - dw::DW_OP_breg0.0 + dw::DW_OP_reg0.0);
            }
            _ => {}
        }
    }

    fn note_many(&mut self, operations: &[(u8, u64)], index: usize, size: u32, passing: &Passing) {
        let (first, _) = operations[0];
        if is_constant(first) {
            self.constant |= index == 0;
        } else if size <= passing.address_size || !passing.two_registers {
            let stack_value = |entry: &(u8, u64)| dw::DwOp(entry.0) == dw::DW_OP_stack_value;
            if is_register(first) && index == 0 {
                self.set_register(first);
            } else if is_based(first) && index == 0 && operations[1..].iter().any(stack_value) {
                self.set_register(first - dw::DW_OP_breg0.0 + dw::DW_OP_reg0.0);
            }
        } else {
            self.note_pieces(operations, u64::from(passing.address_size));
        }
    }

    fn note_pieces(&mut self, operations: &[(u8, u64)], register_size: u64) {
        let mut offset = 0_u64;
        for (position, &(operation, size)) in operations.iter().enumerate() {
            if dw::DwOp(operation) == dw::DW_OP_piece {
                if position > 0 {
                    self.set_piece(offset, register_size);
                }
                offset = offset.saturating_add(size);
            } else if is_register(operation) {
                self.set_register(operation);
            }
        }
    }

    fn set_piece(&mut self, offset: u64, register_size: u64) {
        let bit = |offset: u64| 1_u64.checked_shl(offset.min(64) as u32).unwrap_or(0);
        if offset < register_size {
            self.first_pieces |= bit(offset);
        } else {
            self.second_pieces |= bit(offset - register_size);
        }
    }

    fn set_register(&mut self, operation: u8) {
        self.register.get_or_insert(u16::from(operation - dw::DW_OP_reg0.0));
    }
}

const fn is_register(operation: u8) -> bool {
    operation >= dw::DW_OP_reg0.0 && operation <= dw::DW_OP_reg31.0
}

const fn is_based(operation: u8) -> bool {
    operation >= dw::DW_OP_breg0.0 && operation <= dw::DW_OP_breg31.0
}

const fn is_constant(operation: u8) -> bool {
    (operation >= dw::DW_OP_lit0.0 && operation <= dw::DW_OP_lit31.0)
        || operation == dw::DW_OP_constu.0
        || operation == dw::DW_OP_consts.0
}

/// Where the location of a parameter stands.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// An expression in the DIE.
    Expression(&'a [u8]),
    /// Offset of a location list in its section.
    List(u64),
    /// Index of a location list, and `DW_AT_loclists_base`.
    Index(u64, u64),
}

/// Takes the expressions of a location, in order.
pub trait Expressions {
    /// Forgets what it took: the expressions come again from the first one.
    fn restart(&mut self);

    /// Takes the `index`-th expression: its opcodes, each with the one operand that matters.
    fn take(&mut self, operations: &[(u8, u64)], index: usize);
}

/// An [`Arrival`] in the making.
struct Arriving<'a> {
    arrival: Arrival,
    size: u32,
    passing: &'a Passing,
}

impl Expressions for Arriving<'_> {
    fn restart(&mut self) {
        self.arrival = Arrival::default();
    }

    fn take(&mut self, operations: &[(u8, u64)], index: usize) {
        self.arrival.note(operations, index, self.size, self.passing);
    }
}

/// Reads locations. Keeps a window of the location list section, which the units use in order.
#[derive(Debug, Default)]
pub struct Locations {
    window: Vec<u8>,
    /// Which bytes of which section (DWARF 5 or older) the window holds.
    window_start: u64,
    window_is_old: bool,
    operations: Vec<(u8, u64)>,
    /// Bytes of lists that were read and not yet taken off the budget.
    unpaid: u64,
}

/// The sections that location lists are in.
#[derive(Clone, Copy, Debug)]
pub struct ListSections<'a> {
    /// The file.
    pub elf: &'a ElfFile,
    /// `.debug_loclists`.
    pub new: &'a SectionData,
    /// `.debug_loc`.
    pub old: &'a SectionData,
    /// Where in `.debug_loc` the lists of the unit begin.
    pub old_base: u64,
    /// They are those of a `.dwo` file, which until DWARF 4 had lists of their own form.
    pub is_split: bool,
    /// How much of them may be read.
    pub budget: &'a Budget,
}

const WINDOW: u64 = 1 << 16;
/// About how many bytes an entry of a list takes besides its expression.
const ENTRY_SIZE: u64 = 4;
/// So many bytes are taken off the budget at once: all threads share it.
const PAYMENT: u64 = 1 << 20;

impl Locations {
    /// How a parameter of `size` bytes arrives, by all its locations.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn arrival(
        &mut self,
        source: Source<'_>,
        size: u32,
        passing: &Passing,
        encoding: Encoding,
        sections: ListSections<'_>,
    ) -> std::io::Result<Arrival> {
        let mut arriving = Arriving { arrival: Arrival::default(), size, passing };
        self.read(source, encoding, sections, &mut arriving)?;
        Ok(arriving.arrival)
    }

    /// Hands all expressions of a location to `expressions`.
    ///
    /// A damaged expression or list ends the walk: what was seen so far counts.
    ///
    /// # Errors
    /// When the file cannot be read, or its lists are read over and over.
    pub fn read(
        &mut self,
        source: Source<'_>,
        encoding: Encoding,
        sections: ListSections<'_>,
        expressions: &mut impl Expressions,
    ) -> std::io::Result<()> {
        match source {
            Source::Expression(bytes) => {
                if self.parse(bytes, encoding, sections).is_some() {
                    expressions.take(&self.operations, 0);
                }
                Ok(())
            }
            Source::List(offset) => {
                let offset = offset.saturating_add(sections.old_base);
                self.list(offset, encoding, sections, expressions)
            }
            Source::Index(index, base) => {
                let width = u64::from(encoding.offset_size);
                let place = index.checked_mul(width).and_then(|entry| entry.checked_add(base));
                let Some(entry) = place.filter(|place| *place < sections.new.len()) else {
                    return Ok(());
                };
                let mut buffer = Vec::new();
                let Ok(bytes) =
                    sections.new.range(sections.elf, entry, width as usize, &mut buffer)
                else {
                    return Ok(());
                };
                let distance = unsigned(bytes, sections.elf.target().big_endian);
                let offset = base.saturating_add(distance);
                self.list(offset, encoding, sections, expressions)
            }
        }
    }

    /// Takes what the unit has read off the budget.
    ///
    /// # Errors
    /// When the budget is used up.
    pub fn settle(&mut self, sections: ListSections<'_>) -> Result<(), Exhausted> {
        sections.budget.spend(std::mem::take(&mut self.unpaid))
    }

    fn pay(&mut self, bytes: u64, sections: ListSections<'_>) -> Result<(), Exhausted> {
        self.unpaid += bytes;
        if self.unpaid < PAYMENT { Ok(()) } else { self.settle(sections) }
    }

    fn list(
        &mut self,
        offset: u64,
        encoding: Encoding,
        sections: ListSections<'_>,
        expressions: &mut impl Expressions,
    ) -> std::io::Result<()> {
        let is_old = encoding.version < 5;
        let section = if is_old { sections.old } else { sections.new };
        let mut wanted = WINDOW;
        loop {
            let window = self.window(section, is_old, offset, wanted, sections.elf)?;
            let rest = section.len().saturating_sub(offset);
            let complete = window.len() as u64 >= rest;
            let finished = self.walk(encoding, sections, offset, expressions)?;
            if finished || complete {
                return Ok(());
            }
            expressions.restart();
            wanted = wanted.saturating_mul(4);
            self.pay(wanted.min(rest), sections)?;
        }
    }

    /// Makes the window hold at least `wanted` bytes from `offset` on, or all there are, and
    /// returns what it holds from there on.
    fn window(
        &mut self,
        section: &SectionData,
        is_old: bool,
        offset: u64,
        wanted: u64,
        elf: &ElfFile,
    ) -> std::io::Result<&[u8]> {
        let end = section.len().min(offset.saturating_add(wanted));
        let held = self.window_start..self.window_start + self.window.len() as u64;
        // A list that ends near the window's end is found incomplete and asked for again.
        let usable = wanted == WINDOW && held.contains(&offset) && self.window_is_old == is_old;
        if !usable {
            let size = end.saturating_sub(offset) as usize;
            let mut buffer = std::mem::take(&mut self.window);
            if size == 0 {
                buffer.clear();
            } else if let SectionData::Memory(bytes) = section {
                buffer.clear();
                buffer.extend_from_slice(&bytes[offset as usize..end as usize]);
            } else {
                section.range(elf, offset, size, &mut buffer)?;
                buffer.truncate(size);
            }
            self.window = buffer;
            self.window_start = offset;
            self.window_is_old = is_old;
        }
        let start = (offset - self.window_start) as usize;
        Ok(&self.window[start.min(self.window.len())..])
    }

    /// Walks the list at `offset`; returns whether its end was reached.
    fn walk(
        &mut self,
        encoding: Encoding,
        sections: ListSections<'_>,
        offset: u64,
        expressions: &mut impl Expressions,
    ) -> Result<bool, Exhausted> {
        let window = std::mem::take(&mut self.window);
        let bytes = &window[(offset - self.window_start) as usize..];
        let finished = self.walk_bytes(bytes, encoding, sections, expressions);
        self.window = window;
        finished
    }

    fn walk_bytes(
        &mut self,
        bytes: &[u8],
        encoding: Encoding,
        sections: ListSections<'_>,
        expressions: &mut impl Expressions,
    ) -> Result<bool, Exhausted> {
        let slice = EndianSlice::new(bytes, endian(sections.elf));
        let lists = LocationLists::new(DebugLoc::from(slice), DebugLocLists::from(slice));
        let encoding_of_lists = gimli_encoding(encoding);
        let entries = if sections.is_split {
            lists.raw_locations_dwo(LocationListsOffset(0), encoding_of_lists)
        } else {
            lists.raw_locations(LocationListsOffset(0), encoding_of_lists)
        };
        let Ok(mut entries) = entries else {
            return Ok(false);
        };
        let mut index = 0;
        // Where the next entry begins. A list that the window cuts off between two entries looks as if
        // it ended there.
        let mut position = 0;
        loop {
            match entries.next() {
                Ok(None) => return Ok(position < bytes.len()),
                Err(_) => return Ok(false),
                Ok(Some(entry)) => {
                    let Some(Expression(expression)) = expression_of(&entry) else {
                        position += base_entry_size(&entry, &bytes[position..], encoding);
                        self.pay(ENTRY_SIZE, sections)?;
                        continue;
                    };
                    position = expression.offset_from(slice) + expression.len();
                    let expression = expression.slice();
                    self.pay(ENTRY_SIZE + expression.len() as u64, sections)?;
                    if self.parse(expression, encoding, sections).is_none() {
                        return Ok(true);
                    }
                    expressions.take(&self.operations, index);
                    index += 1;
                }
            }
        }
    }

    /// Splits an expression into opcodes with the one operand that matters: the size of a piece,
    /// or the opcode that is the whole body of an entry value.
    fn parse(
        &mut self,
        bytes: &[u8],
        encoding: Encoding,
        sections: ListSections<'_>,
    ) -> Option<()> {
        self.operations.clear();
        let endian = endian(sections.elf);
        let encoding = gimli_encoding(encoding);
        let expression = Expression(EndianSlice::new(bytes, endian));
        let mut operations = expression.operations(encoding);
        let mut position = 0;
        loop {
            let opcode = bytes.get(position).copied();
            let operation = operations.next().ok()?;
            let (Some(opcode), Some(operation)) = (opcode, operation) else {
                return Some(());
            };
            let operand = match operation {
                Operation::Piece { size_in_bits, .. } => size_in_bits / 8,
                Operation::EntryValue { expression } => match expression.slice() {
                    [register] if is_register(*register) => u64::from(*register),
                    _ => 0,
                },
                _ => 0,
            };
            self.operations.push((opcode, operand));
            position = operations.offset_from(&expression);
        }
    }
}

fn expression_of<'a>(
    entry: &RawLocListEntry<EndianSlice<'a, RunTimeEndian>>,
) -> Option<Expression<EndianSlice<'a, RunTimeEndian>>> {
    match *entry {
        RawLocListEntry::AddressOrOffsetPair { data, .. }
        | RawLocListEntry::StartxEndx { data, .. }
        | RawLocListEntry::StartxLength { data, .. }
        | RawLocListEntry::OffsetPair { data, .. }
        | RawLocListEntry::DefaultLocation { data }
        | RawLocListEntry::StartEnd { data, .. }
        | RawLocListEntry::StartLength { data, .. } => Some(data),
        RawLocListEntry::BaseAddress { .. } | RawLocListEntry::BaseAddressx { .. } => None,
    }
}

/// Bytes of an entry that only gives what the addresses after it count from; `bytes` begin with it.
fn base_entry_size(
    entry: &RawLocListEntry<EndianSlice<'_, RunTimeEndian>>,
    bytes: &[u8],
    encoding: Encoding,
) -> usize {
    let address = usize::from(encoding.address_size);
    match entry {
        // Until DWARF 4 a pair of addresses, the first of which is all ones.
        RawLocListEntry::BaseAddress { .. } if encoding.version < 5 => 2 * address,
        RawLocListEntry::BaseAddressx { .. } => {
            let index = bytes.iter().skip(1).take_while(|byte| **byte >= 0x80).count();
            1 + index + 1
        }
        _ => 1 + address,
    }
}

pub(crate) fn endian(elf: &ElfFile) -> RunTimeEndian {
    if elf.target().big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little }
}

pub(crate) fn gimli_encoding(encoding: Encoding) -> gimli::Encoding {
    gimli::Encoding {
        address_size: encoding.address_size,
        format: if encoding.offset_size == 8 {
            gimli::Format::Dwarf64
        } else {
            gimli::Format::Dwarf32
        },
        version: encoding.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86_64() -> Passing {
        Passing::of(object::elf::EM_X86_64, 8)
    }

    fn arrival(expressions: &[&[(gimli::DwOp, u64)]], size: u32) -> Arrival {
        let mut arrival = Arrival::default();
        for (index, expression) in expressions.iter().enumerate() {
            let operations: Vec<_> = expression.iter().map(|(op, body)| (op.0, *body)).collect();
            arrival.note(&operations, index, size, &x86_64());
        }
        arrival
    }

    #[test]
    fn only_the_first_location_gives_a_register() {
        let found = arrival(&[&[(dw::DW_OP_reg5, 0)], &[(dw::DW_OP_reg3, 0)]], 8);
        assert_eq!(found.register, Some(5));
        assert_eq!(arrival(&[&[], &[(dw::DW_OP_reg3, 0)]], 8).register, None);
    }

    #[test]
    fn an_entry_value_counts_wherever_it_stands() {
        let entry = (dw::DW_OP_entry_value, u64::from(dw::DW_OP_reg4.0));
        let later = [entry, (dw::DW_OP_stack_value, 0)];
        assert_eq!(arrival(&[&[(dw::DW_OP_fbreg, 0)], &later], 8).register, Some(4));
    }

    #[test]
    fn a_based_register_needs_a_stack_value() {
        let based = (dw::DW_OP_breg2, 0);
        assert_eq!(arrival(&[&[based]], 8).register, None);
        assert_eq!(arrival(&[&[based, (dw::DW_OP_stack_value, 0)]], 8).register, Some(2));
    }

    #[test]
    fn pieces_tell_which_bytes_arrive() {
        let pieces =
            [(dw::DW_OP_reg5, 0), (dw::DW_OP_piece, 8), (dw::DW_OP_reg4, 0), (dw::DW_OP_piece, 8)];
        let found = arrival(&[&pieces], 16);
        assert_eq!((found.register, found.first_pieces, found.second_pieces), (Some(5), 1, 1));
    }
}
