//! The function symbols of an ELF file, grouped by base name (spec/encoding 4.1).

use hashbrown::HashMap;
use object::elf::STT_FUNC;
use rayon::prelude::*;

use super::kfuncs;
use crate::elf::{ElfError, ElfFile, SymbolTable};

/// Index of a group of symbols with one base name.
pub type GroupId = u32;

/// One function symbol.
#[derive(Clone, Copy, Debug)]
pub struct FunctionSymbol<'a> {
    /// Full name.
    pub name: &'a [u8],
    /// `st_value`.
    pub address: u64,
}

impl FunctionSymbol<'_> {
    /// From the first dot on: what the compiler added to the name.
    #[must_use]
    pub fn suffix(&self) -> &[u8] {
        suffix_of(self.name)
    }

    /// A clone whose parameters may differ from the source's (4.5.7).
    #[must_use]
    pub fn is_optimized_clone(&self) -> bool {
        contains(self.suffix(), b".constprop") || contains(self.suffix(), b".isra")
    }
}

/// All symbols of one base name.
#[derive(Debug)]
pub struct Group<'a> {
    /// Text before the first dot.
    pub base: &'a [u8],
    /// In symbol table order.
    pub symbols: Vec<FunctionSymbol<'a>>,
    /// Flags of the kfunc set entry, if it is a kfunc (6.3).
    pub kfunc_flags: Option<u32>,
}

impl Group<'_> {
    /// Whether there are two addresses for the name (4.1.4). A 0 is no address, but after one it
    /// counts as another.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        let pairs = self.symbols.windows(2);
        pairs.into_iter().any(|pair| pair[0].address != 0 && pair[0].address != pair[1].address)
    }
}

/// The groups by base name.
#[derive(Debug)]
pub struct FunctionTable<'a> {
    /// The groups, in order of first symbol.
    pub groups: Vec<Group<'a>>,
    by_name: HashMap<&'a [u8], GroupId>,
    /// Group of the greatest base name: pahole never sees that it is ambiguous (10.2.6).
    pub last: Option<GroupId>,
}

impl<'a> FunctionTable<'a> {
    /// Groups the function symbols of `symbols`; undefined ones take part.
    #[must_use]
    pub fn new(symbols: &'a SymbolTable) -> Self {
        let mut table = Self { groups: Vec::new(), by_name: HashMap::new(), last: None };
        for symbol in symbols.symbols() {
            if symbol.kind != STT_FUNC {
                continue;
            }
            let name = symbols.name(symbol);
            let suffix = suffix_of(name);
            if contains(suffix, b".cold") || contains(suffix, b".part") {
                continue;
            }
            let base = &name[..name.len() - suffix.len()];
            let next = table.groups.len() as GroupId;
            let group = *table.by_name.entry(base).or_insert(next);
            if group == next {
                table.groups.push(Group { base, symbols: Vec::new(), kfunc_flags: None });
            }
            let symbol = FunctionSymbol { name, address: symbol.value };
            table.groups[group as usize].symbols.push(symbol);
        }
        let last = table.groups.iter().enumerate().max_by_key(|(_, group)| group.base);
        table.last = last.map(|(index, _)| index as GroupId);
        table
    }

    /// Marks the kfuncs that `.BTF_ids` lists (6.1 to 6.3).
    ///
    /// # Errors
    /// When the section cannot be read or a set lies outside of it.
    pub fn mark_kfuncs(&mut self, elf: &ElfFile, symbols: &SymbolTable) -> Result<(), ElfError> {
        for (name, flags) in kfuncs::collect(elf, symbols)? {
            if let Some(&group) = self.by_name.get(name.as_slice()) {
                self.groups[group as usize].kfunc_flags = Some(flags);
            }
        }
        Ok(())
    }

    /// The group of a base name.
    #[must_use]
    pub fn group(&self, base: &[u8]) -> Option<GroupId> {
        self.by_name.get(base).copied()
    }

    /// The given groups in byte order of their base names.
    #[must_use]
    pub fn sorted(&self, mut groups: Vec<GroupId>) -> Vec<GroupId> {
        groups.par_sort_unstable_by_key(|&group| self.groups[group as usize].base);
        groups
    }
}

fn suffix_of(name: &[u8]) -> &[u8] {
    let dot = memchr::memchr(b'.', name).unwrap_or(name.len());
    &name[dot..]
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !text.is_empty() && memchr::memmem::find(text, part).is_some()
}
