//! Strings of a section that are met again and again: takes where one begins, gives its number.
//!
//! Each unit of a relocatable file brings the strings of the headers that it includes, in nearly the
//! same order as the unit before. So each string remembers which two came after it, and three out of
//! four strings of a large module are found by one comparison, without a hash or even a search for
//! their end.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::pool::spread;

/// The strings that were met so far, numbered from 0. The number means nothing but which is which.
#[derive(Debug, Default)]
pub struct Repeated {
    strings: Vec<Entry>,
    /// (half of the hash, number) of each.
    table: HashTable<(u32, u32)>,
    hasher: RandomState,
    /// The string that was met last.
    last: Option<u32>,
}

#[derive(Debug)]
struct Entry {
    /// Where it was first met.
    start: u32,
    /// Its size in bytes without the NUL.
    size: u32,
    /// The numbers of two strings that came after it, the later one first.
    next: [u32; 2],
}

impl Entry {
    /// Where the string ends, if it is what begins at `start`.
    fn end_if_at(&self, section: &[u8], start: usize) -> Option<usize> {
        let size = self.size as usize + 1;
        let here = section.get(start..)?.get(..size)?;
        let first = section.get(self.start as usize..)?.get(..size)?;
        // Another string seldom ends at the same place.
        (here[size - 1] == 0 && first == here).then_some(start + size - 1)
    }
}

/// No string has this number.
const NONE: u32 = u32::MAX;

impl Repeated {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.strings.len()
    }

    /// Where a string was first met.
    #[must_use]
    pub fn start(&self, number: u32) -> u32 {
        self.strings[number as usize].start
    }

    /// The number of the string that begins at `start` of `section`, and where it ends, its NUL or the
    /// end of the section. All calls are to give the same section.
    pub fn meet(&mut self, section: &[u8], start: usize) -> (u32, usize) {
        let expected = self.last.map_or([NONE; 2], |last| self.strings[last as usize].next);
        for (place, number) in expected.into_iter().enumerate() {
            if let Some(entry) = self.strings.get(number as usize)
                && let Some(end) = entry.end_if_at(section, start)
            {
                if let (Some(last), 1) = (self.last, place) {
                    self.strings[last as usize].next.swap(0, 1);
                }
                self.last = Some(number);
                return (number, end);
            }
        }
        let rest = &section[start..];
        let bytes = &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())];
        let number = self.find_or_add(section, start, bytes);
        if let Some(last) = self.last.replace(number) {
            let next = &mut self.strings[last as usize].next;
            *next = [number, next[0]];
        }
        (number, start + bytes.len())
    }

    fn find_or_add(&mut self, section: &[u8], start: usize, bytes: &[u8]) -> u32 {
        let Self { strings, table, hasher, .. } = self;
        let tag = hasher.hash_one(bytes) as u32;
        let is_same = |entry: &(u32, u32)| {
            let string = &strings[entry.1 as usize];
            let text = &section[string.start as usize..][..string.size as usize];
            entry.0 == tag && text == bytes
        };
        if let Some(found) = table.find(spread(tag), is_same) {
            return found.1;
        }
        let number = strings.len() as u32;
        table.insert_unique(spread(tag), (tag, number), |entry| spread(entry.0));
        let (start, size) = (start as u32, bytes.len() as u32);
        strings.push(Entry { start, size, next: [NONE; 2] });
        number
    }
}

#[cfg(test)]
mod tests {
    use hashbrown::HashMap;

    use super::*;

    /// Meets all strings of a section, and compares with looking at each by itself.
    fn check(section: &[u8]) -> usize {
        let mut repeated = Repeated::default();
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut start = 0;
        while start < section.len() {
            let (number, end) = repeated.meet(section, start);
            let text = &section[start..end];
            assert!(!text.contains(&0) && section.get(end).is_none_or(|&byte| byte == 0));
            assert_eq!(*numbers.entry(text).or_insert(number), number);
            let first = &section[repeated.start(number) as usize..];
            assert!(first.starts_with(text));
            start = end + 1;
        }
        let mut distinct: Vec<u32> = numbers.into_values().collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), repeated.len());
        repeated.len()
    }

    #[test]
    fn strings_are_told_apart_whatever_was_expected() {
        assert_eq!(check(b""), 0);
        assert_eq!(check(b"\0\0a\0\0ab\0a\0ab"), 3);
        assert_eq!(check(b"one\0two\0three\0one\0two\0one\0twofold\0one\0tw\0one\0two"), 5);
        // The end of the section cuts a string that is expected.
        assert_eq!(check(b"one\0two\0one\0tw"), 3);
        let mut section = Vec::new();
        for unit in 0..20 {
            for name in 0..1000 {
                if (name * 7 + unit * 13) % 11 != 0 {
                    section.extend(format!("name_{name}\0").bytes());
                }
            }
            section.extend(format!("own_{unit}\0").bytes());
        }
        assert_eq!(check(&section), 1020);
    }
}
