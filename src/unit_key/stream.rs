//! The bytes that a key is made of, hashed as they come.

/// As much is collected before it is hashed: enough for the hash to work on several blocks at once.
const SIZE: usize = 1 << 15;
/// Short pieces are copied whole, whatever their length.
const SHORT: usize = 32;

/// Collects bytes for a digest. Reused from unit to unit.
#[derive(Debug)]
pub(super) struct Stream {
    bytes: Box<[u8]>,
    filled: usize,
    hasher: blake3::Hasher,
}

impl Default for Stream {
    fn default() -> Self {
        Self { bytes: vec![0; SIZE].into(), filled: 0, hasher: blake3::Hasher::new() }
    }
}

impl Stream {
    /// Forgets everything.
    pub fn restart(&mut self) {
        self.filled = 0;
        self.hasher.reset();
    }

    /// Takes `start..end` of `source`, if that is inside.
    #[inline(always)]
    pub fn copy(&mut self, source: &[u8], start: usize, end: usize) -> Option<()> {
        let size = end.checked_sub(start)?;
        let filled = self.filled;
        if size <= SHORT
            && let Some(from) = source.get(start..start + SHORT)
            && let Some(to) = self.bytes.get_mut(filled..filled + SHORT)
        {
            to.copy_from_slice(from);
            self.filled = filled + size;
            return Some(());
        }
        self.push(source.get(start..end)?);
        Some(())
    }

    /// Takes so many bytes.
    #[inline(always)]
    pub fn array<const N: usize>(&mut self, bytes: &[u8; N]) {
        match self.bytes.get_mut(self.filled..self.filled + N) {
            Some(to) => {
                to.copy_from_slice(bytes);
                self.filled += N;
            }
            None => self.push(bytes),
        }
    }

    /// Takes bytes.
    #[cold]
    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.len() > SIZE - self.filled {
            self.hasher.update(&self.bytes[..self.filled]);
            self.filled = 0;
        }
        if bytes.len() > SIZE {
            self.hasher.update(bytes);
            return;
        }
        self.bytes[self.filled..][..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// The digest of all bytes.
    pub fn finish(&mut self) -> [u8; 32] {
        self.hasher.update(&self.bytes[..self.filled]);
        self.filled = 0;
        self.hasher.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_it_comes_it_is_the_same() {
        let bytes: Vec<u8> =
            (0..300_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
        let expected: [u8; 32] = blake3::hash(&bytes).into();
        let mut stream = Stream::default();
        for step in [1, 7, 31, 32, 33, 5000, SIZE - 1, SIZE, SIZE + 1, bytes.len()] {
            stream.restart();
            for start in (0..bytes.len()).step_by(step) {
                stream.copy(&bytes, start, (start + step).min(bytes.len())).unwrap();
            }
            assert_eq!(stream.finish(), expected, "{step}");
        }
        stream.restart();
        let (chunks, rest) = bytes.as_chunks::<16>();
        chunks.iter().for_each(|chunk| stream.array(chunk));
        stream.push(rest);
        assert_eq!(stream.finish(), expected);
        assert_eq!(stream.copy(&bytes, 5, 4), None);
        assert_eq!(stream.copy(&bytes, 5, bytes.len() + 1), None);
    }
}
