//! The function symbols of an ELF file, grouped by base name (spec/encoding 4.1).

use hashbrown::HashMap;
use object::elf::STT_FUNC;
use rayon::prelude::*;

use super::object::Object;
use crate::elf::{ElfError, Symbol};

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
    /// Range of its symbols in the table, in symbol table order.
    symbols: (u32, u32),
    /// Flags of the kfunc set entry, if it is a kfunc (6.3).
    pub kfunc_flags: Option<u32>,
}

/// Whether there are two addresses for the name (4.1.4). A 0 is no address, but after one it
/// counts as another.
#[must_use]
pub fn is_ambiguous(symbols: &[FunctionSymbol<'_>]) -> bool {
    symbols.windows(2).any(|pair| pair[0].address != 0 && pair[0].address != pair[1].address)
}

/// The groups by base name.
#[derive(Debug)]
pub struct FunctionTable<'a> {
    /// The groups, in order of first symbol.
    pub groups: Vec<Group<'a>>,
    /// The symbols of all groups, group after group.
    symbols: Vec<FunctionSymbol<'a>>,
    by_name: HashMap<&'a [u8], GroupId>,
}

impl<'a> FunctionTable<'a> {
    /// Groups the function symbols of `objects`; undefined ones take part.
    #[must_use]
    pub fn new(objects: &[Object<'a>]) -> Self {
        let of_object = |(object, number): (&Object<'a>, u64)| {
            let number = (objects.len() > 1).then_some(number);
            let symbols = object.symbols;
            symbols.symbols().iter().map(move |symbol| (symbols, symbol, number))
        };
        let functions = || {
            let all = objects.iter().zip(1..).flat_map(of_object);
            all.filter(|(_, symbol, _)| symbol.kind == STT_FUNC)
        };
        let count = functions().count();
        let mut table = Self {
            groups: Vec::with_capacity(count),
            symbols: Vec::new(),
            by_name: HashMap::with_capacity(count),
        };
        let mut found: Vec<(GroupId, FunctionSymbol<'a>)> = Vec::with_capacity(count);
        for (symbols, symbol, number) in functions() {
            let name = symbols.name(symbol);
            let suffix = suffix_of(name);
            if contains(suffix, b".cold") || contains(suffix, b".part") {
                continue;
            }
            let base = &name[..name.len() - suffix.len()];
            let next = table.groups.len() as GroupId;
            let group = *table.by_name.entry(base).or_insert(next);
            if group == next {
                table.groups.push(Group { base, symbols: (0, 0), kfunc_flags: None });
            }
            table.groups[group as usize].symbols.1 += 1;
            found.push((group, FunctionSymbol { name, address: address_of(symbol, number) }));
        }
        table.place(&found);
        table
    }

    /// Puts the symbols of each group together, in symbol table order. The groups hold their
    /// number of symbols yet.
    fn place(&mut self, found: &[(GroupId, FunctionSymbol<'a>)]) {
        let mut start = 0;
        for group in &mut self.groups {
            let count = group.symbols.1;
            group.symbols = (start, start);
            start += count;
        }
        self.symbols.resize(found.len(), FunctionSymbol { name: b"", address: 0 });
        for &(group, symbol) in found {
            let end = &mut self.groups[group as usize].symbols.1;
            self.symbols[*end as usize] = symbol;
            *end += 1;
        }
    }

    /// The symbols of a group, in symbol table order.
    #[must_use]
    pub fn symbols(&self, group: &Group<'_>) -> &[FunctionSymbol<'a>] {
        &self.symbols[group.symbols.0 as usize..group.symbols.1 as usize]
    }

    /// The group of the greatest base name: pahole never sees that it is ambiguous (10.2.6).
    #[must_use]
    pub fn last(&self) -> Option<GroupId> {
        let groups = self.groups.iter().enumerate();
        groups.max_by_key(|(_, group)| group.base).map(|(index, _)| index as GroupId)
    }

    /// Marks the kfuncs that `.BTF_ids` of `object` lists (6.1 to 6.3).
    ///
    /// # Errors
    /// When the section cannot be read or a set lies outside of it.
    pub fn mark_kfuncs(&mut self, object: &Object<'_>) -> Result<(), ElfError> {
        for (name, flags) in &*object.kfuncs()? {
            if let Some(&group) = self.by_name.get(name.as_slice()) {
                self.groups[group as usize].kfunc_flags = Some(*flags);
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
    pub fn sorted(&self, groups: Vec<GroupId>) -> Vec<GroupId> {
        let mut keyed: Vec<(u64, GroupId)> = groups
            .into_iter()
            .map(|group| (prefix(self.groups[group as usize].base), group))
            .collect();
        // Most names differ in their first eight bytes, which are at hand.
        keyed.par_sort_unstable_by(|one, two| {
            let names = || (self.groups[one.1 as usize].base, self.groups[two.1 as usize].base);
            one.0.cmp(&two.0).then_with(|| {
                let (one, two) = names();
                one.cmp(two)
            })
        });
        keyed.into_iter().map(|entry| entry.1).collect()
    }
}

/// Where a function is; `number` is that of its object, if there are several. Addresses of several
/// objects say nothing together: what is local to one is told from that of another, and what is not
/// is one function.
fn address_of(symbol: &Symbol, number: Option<u64>) -> u64 {
    const FAR: u32 = 40;
    match number {
        None => symbol.value,
        Some(_) if symbol.section == 0 => 0,
        Some(_) if !symbol.is_local => 1,
        Some(number) => symbol.value.wrapping_add(number << FAR),
    }
}

/// The first eight bytes, padded with 0, as a number that compares as they do.
fn prefix(name: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = name.len().min(8);
    bytes[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(bytes)
}

fn suffix_of(name: &[u8]) -> &[u8] {
    let dot = memchr::memchr(b'.', name).unwrap_or(name.len());
    &name[dot..]
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !text.is_empty() && memchr::memmem::find(text, part).is_some()
}
