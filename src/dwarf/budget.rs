//! How much of a file may be read again and again before it counts as made to waste time.
//!
//! DIEs are read once each, but many of them can refer to the same long list of locations, and
//! many units to the same long table of abbreviations. Compilers give each its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that any file may have read repeatedly.
const ALWAYS_ALLOWED: u64 = 64 << 20;
/// How often a file may have its bytes read on average.
const TIMES: u64 = 32;

/// What is left to be read, for all threads together: whether it suffices depends on the file
/// alone, not on who reads first.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
}

/// The budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is referred to again and again, more often than any compiler does")]
pub struct Exhausted;

impl From<Exhausted> for std::io::Error {
    fn from(exhausted: Exhausted) -> Self {
        Self::other(exhausted)
    }
}

impl Budget {
    /// The budget for sections of `size` bytes.
    #[must_use]
    pub const fn for_size(size: u64) -> Self {
        Self { left: AtomicU64::new(ALWAYS_ALLOWED.saturating_add(size.saturating_mul(TIMES))) }
    }

    /// Takes `bytes` off.
    ///
    /// # Errors
    /// When less is left.
    pub fn spend(&self, bytes: u64) -> Result<(), Exhausted> {
        let rest = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        taken.map(|_| ()).map_err(|_| Exhausted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let budget = Budget::for_size(1);
        assert_eq!(budget.spend(ALWAYS_ALLOWED + TIMES - 1), Ok(()));
        assert_eq!(budget.spend(2), Err(Exhausted));
        assert_eq!(budget.spend(1), Ok(()));
    }
}
