//! What each string of a string section is, by its offset.
//!
//! In relocatable files every unit brings its own strings, most of them the same as those of the unit
//! before. All are looked at once, in the order in which they lie in memory, which is several times
//! faster than one by one as they are used, and only those that were not met before are looked up;
//! what is left to do then is to count strings before an offset, which needs little memory that is
//! near.

use std::sync::Mutex;

use rayon::prelude::*;

use crate::names::NameId;
use crate::repeated::Repeated;

/// Strings by offset.
#[derive(Debug)]
pub struct StringIndex {
    /// A bit for each byte of the section: whether a string begins there.
    starts: Vec<u64>,
    /// For each word of `starts`, how many strings begin before it.
    ranks: Vec<u32>,
    /// By string.
    ids: Vec<NameId>,
}

/// How many bytes are looked up at once.
const CHUNK: usize = 1 << 18;
/// The index is not worth its memory for strings that are shorter on average, with their NUL.
const LEAST_AVERAGE: usize = 4;

impl StringIndex {
    /// Looks up all strings of a section with `look_up`, which gets some of them with the offset of
    /// each, and gives the id of each; the same string always has the same. `None` if there are too
    /// many.
    pub fn new(section: &[u8], look_up: impl Fn(&[u32], &mut Vec<NameId>) + Sync) -> Option<Self> {
        let count = memchr::memchr_iter(0, section).count();
        if section.len() > u32::MAX as usize || count > section.len() / LEAST_AVERAGE {
            return None;
        }
        // No more scanners than threads: each has to look up all strings.
        let idle: Mutex<Vec<Scanner>> = Mutex::default();
        let waiting = || idle.lock().expect("no thread panics while it holds a scanner's place");
        let scan = |chunk| {
            let mut scanner = waiting().pop().unwrap_or_default();
            let part = scanner.scan(section, chunk, &look_up);
            waiting().push(scanner);
            part
        };
        let parts: Vec<Part> = chunks(section).into_par_iter().map(scan).collect();
        let mut index = Self {
            starts: vec![0; section.len().div_ceil(64)],
            ranks: Vec::with_capacity(section.len().div_ceil(64)),
            ids: Vec::with_capacity(count + 1),
        };
        for part in parts {
            let words = &mut index.starts[part.first_word..];
            words.iter_mut().zip(&part.starts).for_each(|(word, starts)| *word |= starts);
            index.ids.extend_from_slice(&part.ids);
        }
        let mut rank = 0;
        for word in &index.starts {
            index.ranks.push(rank);
            rank += word.count_ones();
        }
        Some(index)
    }

    /// The string that begins at `offset`; `None` if none does.
    #[inline]
    pub fn get(&self, offset: u64) -> Option<NameId> {
        let word = usize::try_from(offset / 64).ok()?;
        let starts = *self.starts.get(word)?;
        let bit = 1_u64 << (offset % 64);
        let before = self.ranks[word] + (starts & (bit - 1)).count_ones();
        if starts & bit == 0 { None } else { self.ids.get(before as usize).copied() }
    }
}

/// The strings of a chunk.
struct Part {
    /// Which of [`StringIndex::starts`] is the first of `starts`.
    first_word: usize,
    starts: Vec<u64>,
    ids: Vec<NameId>,
}

/// One of several that share the chunks of a section.
#[derive(Default)]
struct Scanner {
    repeated: Repeated,
    /// The id of each string that was met.
    ids: Vec<NameId>,
    /// By string of the chunk: which one it is.
    numbers: Vec<u32>,
}

impl Scanner {
    fn scan(
        &mut self,
        section: &[u8],
        (mut start, end): (usize, usize),
        look_up: impl Fn(&[u32], &mut Vec<NameId>),
    ) -> Part {
        let first_word = start / 64;
        let mut starts = vec![0_u64; end.div_ceil(64) - first_word];
        self.numbers.clear();
        while start < end {
            starts[start / 64 - first_word] |= 1 << (start % 64);
            let (number, text_end) = self.repeated.meet(section, start);
            self.numbers.push(number);
            start = text_end + 1;
        }
        let new = self.ids.len() as u32..self.repeated.len() as u32;
        let new: Vec<u32> = new.map(|number| self.repeated.start(number)).collect();
        look_up(&new, &mut self.ids);
        let ids = self.numbers.iter().map(|&number| self.ids[number as usize]).collect();
        Part { first_word, starts, ids }
    }
}

/// Parts of the section, each from the start of a string to that of another.
fn chunks(section: &[u8]) -> Vec<(usize, usize)> {
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < section.len() {
        let least = (start + CHUNK).min(section.len());
        let nul = memchr::memchr(0, &section[least..]);
        let end = nul.map_or(section.len(), |nul| least + nul + 1);
        chunks.push((start, end));
        start = end;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_is_found_where_it_begins_and_nowhere_else() {
        let mut section = Vec::new();
        let mut expected = Vec::new();
        for number in 0..100_000_u32 {
            let number = number * 7 % 1000;
            expected.push((section.len() as u64, NameId(number)));
            section.extend(format!("name_{number}\0").bytes());
        }
        section.extend(b"without an end");
        let index = StringIndex::new(&section, |starts, ids| {
            let place = |start| expected.partition_point(|entry| entry.0 < u64::from(start));
            let id =
                |&start: &u32| expected.get(place(start)).map_or(NameId::NONE, |entry| entry.1);
            ids.extend(starts.iter().map(id));
        });
        let index = index.unwrap();
        for (offset, id) in expected {
            assert_eq!(index.get(offset), Some(id));
            assert_eq!(index.get(offset + 1), None);
        }
        assert_eq!(index.get(section.len() as u64), None);
        assert_eq!(index.get(u64::MAX), None);
    }

    #[test]
    fn too_many_strings_are_not_indexed() {
        assert!(StringIndex::new(&[0; 1000], |_, _| unreachable!()).is_none());
        let empty = StringIndex::new(b"", |_, _| unreachable!()).unwrap();
        assert_eq!(empty.get(0), None);
    }
}
