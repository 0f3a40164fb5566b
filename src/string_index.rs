//! What each string of a string section is, by its offset.
//!
//! In relocatable files every unit brings its own strings, most of them the same as those of the unit
//! before. All are looked up once, in the order in which they lie in memory, which is several times
//! faster than one by one as they are used; what is left to do then is to count strings before an
//! offset, which needs little memory that is near.

use rayon::prelude::*;

use crate::names::NameId;

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
    /// each, and gives the id of each. `None` if there are too many.
    pub fn new(section: &[u8], look_up: impl Fn(&[u32], &mut Vec<NameId>) + Sync) -> Option<Self> {
        let count = memchr::memchr_iter(0, section).count();
        if section.len() > u32::MAX as usize || count > section.len() / LEAST_AVERAGE {
            return None;
        }
        let parts: Vec<(Vec<u32>, Vec<NameId>)> = chunks(section)
            .into_par_iter()
            .map(|(start, end)| {
                let ends = memchr::memchr_iter(0, &section[start..end]).map(|end| start + end + 1);
                let starts = std::iter::once(start).chain(ends).filter(|&start| start < end);
                let starts: Vec<u32> = starts.map(|start| start as u32).collect();
                let mut ids = Vec::with_capacity(starts.len());
                look_up(&starts, &mut ids);
                (starts, ids)
            })
            .collect();
        let mut index = Self {
            starts: vec![0; section.len().div_ceil(64)],
            ranks: Vec::with_capacity(section.len().div_ceil(64)),
            ids: Vec::with_capacity(count + 1),
        };
        for (starts, ids) in parts {
            for start in starts {
                index.starts[start as usize / 64] |= 1 << (start % 64);
            }
            index.ids.extend(ids);
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
            expected.push((section.len() as u64, NameId(number)));
            section.extend(format!("name_{}\0", number % 1000).bytes());
        }
        section.extend(b"without an end");
        let index = StringIndex::new(&section, |starts, ids| {
            ids.extend(starts.iter().map(|&start| {
                NameId(expected.partition_point(|entry| entry.0 < u64::from(start)) as u32)
            }));
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
