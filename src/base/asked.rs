//! What one module can ask of its base: takes the module's strings, tells which strings and types of
//! a base need not be prepared for it.
//!
//! A run without a cache prepares the base for one module only, which knows a twentieth of its names.
//! Types with other names cannot be types of the module, and are left out of the tables. Names that
//! a module gets from elsewhere than its string section are looked for in the base itself; if one of
//! them is that of a type, the base was prepared for too little, and says so.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::prepared::string_hash;
use crate::btf::kind::{for_each_name, for_each_ref};
use crate::pool::{Key, Ref, Target};

/// Names that the encoder itself asks for. A missing one costs time, nothing else.
const OWN: [&[u8]; 5] =
    [b"btf_type_tag", b"btf_decl_tag", b"bpf_kfunc", b"bpf_fastcall", b"address_space(1)"];
/// Shorter strings are in every table: compilers put them elsewhere than into the string section.
const ALWAYS: usize = 4;
/// How often the base is searched for a string before it is better prepared as a whole.
const MAX_SEARCHES: u32 = 32;

/// The strings of a module, with some more that hash alike.
#[derive(Debug)]
pub struct Asked {
    bits: Bits,
    mask: u64,
}

impl Asked {
    /// The strings of sections of strings that each end with NUL.
    #[must_use]
    pub fn of(sections: &[&[u8]]) -> Self {
        let count = |section: &&[u8]| memchr::memchr_iter(0, section).count();
        let count = sections.iter().map(count).sum::<usize>() + OWN.len();
        // At least sixteen bits for each string: one of sixteen others is let through.
        let size = (count as u64 * 16).next_power_of_two().max(64);
        let mut asked = Self { bits: Bits::new(size as usize), mask: size - 1 };
        let strings = sections.iter().flat_map(|section| section.split(|&byte| byte == 0));
        for string in strings.chain(OWN) {
            asked.bits.set((string_hash(string) & asked.mask) as usize);
        }
        asked
    }

    /// Whether the module may know `string`, which has this hash.
    pub(super) fn has(&self, string: &[u8], hash: u64) -> bool {
        string.len() < ALWAYS || self.bits.get((hash & self.mask) as usize)
    }
}

/// A set of small numbers.
#[derive(Debug)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub fn new(end: usize) -> Self {
        Self(vec![0; end.div_ceil(64)])
    }

    pub fn set(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub fn get(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

/// What a base was prepared for, if not for everything.
#[derive(Debug)]
pub(super) struct Restriction {
    asked: Asked,
    /// Offsets of the names that are in its tables.
    names: Bits,
    /// Whether records have names that begin within a string.
    has_names_within: bool,
    /// How often the strings were searched.
    searches: AtomicU32,
    is_insufficient: AtomicBool,
}

impl Restriction {
    pub fn new(asked: Asked, names: Bits, has_names_within: bool) -> Self {
        Self {
            asked,
            names,
            has_names_within,
            searches: AtomicU32::new(0),
            is_insufficient: AtomicBool::new(false),
        }
    }

    /// Whether something was asked that the tables cannot answer.
    pub fn is_insufficient(&self) -> bool {
        self.is_insufficient.load(Relaxed)
    }

    /// Looks for a string that is not in the table, with this hash: gives where it begins in `strings`.
    pub fn search(&self, strings: &[u8], wanted: &[u8], hash: u64) -> Option<u32> {
        if self.asked.has(wanted, hash) {
            return None;
        }
        if self.has_names_within || self.searches.fetch_add(1, Relaxed) >= MAX_SEARCHES {
            self.is_insufficient.store(true, Relaxed);
            return None;
        }
        let text = [b"\0", wanted, b"\0"].concat();
        memchr::memmem::find(strings, &text).map(|start| start as u32 + 1)
    }

    /// Takes note that no type with this record was found.
    pub fn missed(&self, record: &[u32]) {
        let mut is_known = true;
        for_each_name(record, |name| is_known &= self.has_name(name));
        for_each_ref(record, |reference| {
            if let Target::Key(Key { name, .. }) = Ref(reference).target() {
                is_known &= self.has_name(name.0);
            }
        });
        if !is_known {
            self.is_insufficient.store(true, Relaxed);
        }
    }

    /// Whether types with this name are in the tables.
    pub fn has_name(&self, name: u32) -> bool {
        name == 0 || self.names.get(name as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_the_section_and_short_ones_are_asked_for() {
        let asked = Asked::of(&[b"\0first\0", b"second\0"]);
        let has = |string: &[u8]| asked.has(string, string_hash(string));
        assert!(has(b"first") && has(b"second") && has(b"bpf_kfunc") && has(b"int"));
        let others = (0..1000).filter(|number| has(format!("other_{number}").as_bytes()));
        assert!(others.count() < 200);
    }

    #[test]
    fn strings_are_searched_for_a_few_times() {
        let restriction = Restriction::new(Asked::of(&[]), Bits::new(64), false);
        let strings = b"\0one_more\0more\0";
        let search = |string: &[u8]| {
            let unlike_others = restriction.asked.mask ^ string_hash(OWN[0]);
            restriction.search(strings, string, unlike_others)
        };
        for _ in 0..MAX_SEARCHES / 2 {
            assert_eq!(search(b"more"), Some(10));
            assert_eq!(search(b"one_"), None);
        }
        assert!(!restriction.is_insufficient());
        assert_eq!(search(b"more"), None);
        assert!(restriction.is_insufficient());
    }
}
