//! What the strings of a file say, as digests: made once for each string of `.debug_str`, for all
//! units that refer to it.

use rayon::prelude::*;

use crate::names::until_nul;

/// Stands for a string.
pub(super) type Digest = [u8; 16];

/// How many bytes are hashed at once.
const CHUNK: usize = 1 << 16;

/// The digests of the strings of a section, by offset.
#[derive(Debug)]
pub(super) struct StringDigests {
    /// A bit for each byte of the section: whether a string begins there.
    starts: Vec<u64>,
    /// For each word of `starts`, how many strings begin before it.
    ranks: Vec<u32>,
    digests: Vec<Digest>,
}

impl StringDigests {
    pub fn new(section: &[u8]) -> Self {
        let parts: Vec<(Vec<usize>, Vec<Digest>)> = chunks(section)
            .into_par_iter()
            .map(|(start, end)| {
                let ends = memchr::memchr_iter(0, &section[start..end]).map(|end| start + end + 1);
                let starts = std::iter::once(start).chain(ends).filter(|&start| start < end);
                let starts: Vec<usize> = starts.collect();
                let digests =
                    starts.iter().map(|&start| digest_at(section, start as u64)).collect();
                (starts, digests)
            })
            .collect();
        let words = section.len().div_ceil(64);
        let mut starts = vec![0_u64; words];
        let mut digests = Vec::new();
        for (places, part) in parts {
            places.iter().for_each(|&place| starts[place / 64] |= 1 << (place % 64));
            digests.extend_from_slice(&part);
        }
        let mut ranks = Vec::with_capacity(words);
        let mut rank = 0;
        for word in &starts {
            ranks.push(rank);
            rank += word.count_ones();
        }
        Self { starts, ranks, digests }
    }

    /// The digest of the string at `offset` of `section`, which this was made of.
    pub fn digest(&self, section: &[u8], offset: u64) -> Digest {
        // The linker makes strings the ends of others.
        self.get(offset).copied().unwrap_or_else(|| digest_at(section, offset))
    }

    fn get(&self, offset: u64) -> Option<&Digest> {
        let word = (offset / 64) as usize;
        let starts = *self.starts.get(word)?;
        let bit = 1_u64 << (offset % 64);
        if starts & bit == 0 {
            return None;
        }
        let before = self.ranks[word] + (starts & (bit - 1)).count_ones();
        self.digests.get(before as usize)
    }
}

/// Digests that were looked for before, found by their offsets alone. One per worker.
#[derive(Debug)]
pub(super) struct Remembered {
    /// (offset, digest) by a hash of the offset; a later one drives out an earlier one.
    slots: Vec<(u32, Digest)>,
}

impl Default for Remembered {
    fn default() -> Self {
        Self { slots: vec![(u32::MAX, Digest::default()); 1 << Self::BITS] }
    }
}

impl Remembered {
    /// A kernel has some hundred thousand strings, a unit some thousand of them.
    const BITS: u32 = 16;

    /// The digest that `look_up` gives for the string at `offset`.
    #[inline(always)]
    pub fn get(&mut self, offset: u64, look_up: impl FnOnce() -> Digest) -> &Digest {
        let short = offset as u32;
        let slot = short.wrapping_mul(0x9e37_79b1) >> (u32::BITS - Self::BITS);
        let slot = &mut self.slots[slot as usize];
        if u64::from(slot.0) != offset || slot.0 == u32::MAX {
            *slot = (u32::try_from(offset).unwrap_or(u32::MAX), look_up());
        }
        &slot.1
    }
}

/// The digest of the string at `start`, as far as a name is read; where there is none, that of none.
pub(super) fn digest_at(section: &[u8], offset: u64) -> Digest {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let string = section.get(start..).map_or(&b""[..], until_nul);
    let mut digest = Digest::default();
    digest.copy_from_slice(&blake3::hash(string).as_bytes()[..size_of::<Digest>()]);
    digest
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
