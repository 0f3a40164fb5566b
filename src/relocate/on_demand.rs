//! Relocates pieces of a section when they are read, so that a large `.debug_info` is neither held in
//! memory nor relocated by one thread.
//!
//! That needs the entries of a relocation table in order of their places, which is how assemblers
//! write them. It is checked for the whole table; a section with another one is relocated at once.

use std::io;

use anyhow::Result;
use rayon::prelude::*;

use super::{Format, Piece, Relocator, is_plain, symbol_values};
use crate::elf::{ElfFile, Section, SectionData, SymbolTable};

/// A section whose bytes are relocated by the time they are seen.
#[derive(Debug)]
pub enum Relocated {
    /// All of it is ready.
    Ready(SectionData),
    /// Each piece is relocated when it is read.
    OnDemand(OnDemand),
}

/// A section in the file and its relocation table.
#[derive(Debug)]
pub struct OnDemand {
    data: SectionData,
    table: SectionData,
    /// Address of each symbol.
    values: Vec<u64>,
    /// Place that the first entry of each block of the table relocates.
    blocks: Vec<u64>,
}

/// Bytes of an entry.
const ENTRY: usize = 24;
/// Entries of a block: few, because a piece that nothing relocates still looks at one.
const BLOCK: usize = 128;
/// Blocks that are read at once: so few that they stay in the processor's nearest caches, and that
/// the allocator does not ask the system for the memory of each read.
const READ: usize = 16;

impl Relocated {
    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self {
            Self::Ready(data) => data.len(),
            Self::OnDemand(section) => section.data.len(),
        }
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes `start..start + size`, read into `buffer` if they lie in the file.
    ///
    /// # Errors
    /// When the range is not inside the section, the file cannot be read, or a relocation in it is
    /// of an unknown type.
    pub fn range<'a>(
        &'a self,
        elf: &ElfFile,
        start: u64,
        size: usize,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        match self {
            Self::Ready(data) => data.range(elf, start, size, buffer),
            Self::OnDemand(section) => section.range(elf, start, size, buffer),
        }
    }
}

impl OnDemand {
    /// Prepares for `section`, which `table` alone relocates; `None` if that cannot be done piece by
    /// piece.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn new(
        elf: &ElfFile,
        section: &Section,
        table: &Section,
        symbols: Option<&SymbolTable>,
        layout: &[u64],
    ) -> Result<Option<Self>> {
        let (data, table_data) = (elf.data(section)?, elf.data(table)?);
        let is_in_file = matches!(data, SectionData::InFile { .. });
        if !is_in_file || !is_plain(Format::of(elf, table)) {
            return Ok(None);
        }
        let Some(blocks) = blocks(elf, &table_data)? else {
            return Ok(None);
        };
        let values = symbol_values(symbols, layout);
        Ok(Some(Self { data, table: table_data, values, blocks }))
    }

    fn range<'a>(
        &'a self,
        elf: &ElfFile,
        start: u64,
        size: usize,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        self.data.range(elf, start, size, buffer)?;
        // `data` lies in the file, so that its bytes were read into the buffer.
        let bytes = &mut buffer[..size];
        let relocator = Relocator::plain(elf, &self.values);
        let mut entries = Vec::new();
        let end = start + size as u64;
        let first = self.blocks.partition_point(|&place| place < start).saturating_sub(1);
        let last = self.blocks.partition_point(|&place| place < end);
        for block in (first..last).step_by(READ) {
            let part = blocks_range(&self.table, block, READ.min(last - block));
            let part = self.table.range(elf, part.0, part.1, &mut entries)?;
            relocator.apply_within(part, Piece::From(start), bytes).map_err(io::Error::other)?;
        }
        Ok(bytes)
    }
}

/// Where some blocks of a table lie in it, and their size in bytes.
fn blocks_range(table: &SectionData, block: usize, count: usize) -> (u64, usize) {
    let start = (block * BLOCK * ENTRY) as u64;
    let rest = table.len() / ENTRY as u64 * ENTRY as u64 - start;
    (start, rest.min((count * BLOCK * ENTRY) as u64) as usize)
}

/// The place of the first entry of each block; `None` if entries are not in order of places.
fn blocks(elf: &ElfFile, table: &SectionData) -> Result<Option<Vec<u64>>> {
    let count = (table.len() as usize / ENTRY).div_ceil(BLOCK);
    let starts: Vec<usize> = (0..count).step_by(READ).collect();
    let run = |buffer: &mut Vec<u8>, start: usize| -> io::Result<Option<Run>> {
        let range = blocks_range(table, start, READ.min(count - start));
        Ok(Run::of(table.range(elf, range.0, range.1, buffer)?))
    };
    let runs: io::Result<Vec<Option<Run>>> =
        starts.into_par_iter().map_init(Vec::new, run).collect();
    let mut blocks = Vec::with_capacity(count);
    let mut end = 0;
    for run in runs? {
        let Some(run) = run.filter(|run| run.firsts.first().is_none_or(|&first| first >= end))
        else {
            return Ok(None);
        };
        blocks.extend(run.firsts);
        end = run.last;
    }
    Ok(Some(blocks))
}

/// Consecutive blocks whose entries are in order.
struct Run {
    /// Place of the first entry of each block.
    firsts: Vec<u64>,
    /// Place of the last entry of all.
    last: u64,
}

impl Run {
    fn of(entries: &[u8]) -> Option<Self> {
        let entries = entries.as_chunks::<ENTRY>().0;
        let is_ordered = entries.is_sorted_by_key(place_of);
        let firsts = entries.iter().step_by(BLOCK).map(place_of).collect();
        is_ordered.then(|| Self { firsts, last: entries.last().map_or(0, place_of) })
    }
}

fn place_of(entry: &[u8; ENTRY]) -> u64 {
    u64::from_le_bytes(entry[..8].try_into().expect("of eight bytes"))
}
