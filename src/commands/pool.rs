//! The worker pool: takes how many jobs were asked for, gives the one rayon pool of a run. The
//! number of threads never changes a result.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Without an explicit number, one thread for each so many bytes of input: in a kernel build
/// several small modules are encoded at the same time, and idle threads only cost.
const BYTES_PER_THREAD: u64 = 2 << 20;

/// A larger number is taken for a slip of the keyboard, unless there are as many cores.
const MOST_THREADS: usize = 256;

/// How many threads to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jobs {
    /// As many as there are cores, fewer for a small input.
    #[default]
    Auto,
    /// So many.
    Exactly(NonZeroUsize),
}

impl Jobs {
    /// So many threads; 0 counts as 1.
    #[must_use]
    pub fn from_count(count: usize) -> Self {
        Self::Exactly(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN))
    }

    /// The pool for an input of `input_size` bytes.
    pub(super) fn pool(self, input_size: u64) -> Result<ThreadPool> {
        build(self.threads(cores, input_size), false)
    }

    /// The same for the only input of a run: if one thread is enough, it is the calling one, which
    /// must not belong to a pool already. Most runs in a kernel build are so short that starting a
    /// thread would be felt.
    pub(super) fn pool_here(self, input_size: u64) -> Result<ThreadPool> {
        let threads = self.threads(cores, input_size);
        build(threads, threads == 1)
    }

    /// How many threads; asks for the number of cores, which takes some twenty system calls, only if
    /// that matters.
    fn threads(self, cores: impl FnOnce() -> usize, input_size: u64) -> usize {
        let (wanted, most) = match self {
            Self::Exactly(count) => (count.get(), MOST_THREADS),
            Self::Auto => {
                let useful = usize::try_from(1 + input_size / BYTES_PER_THREAD);
                (useful.unwrap_or(usize::MAX), 1)
            }
        };
        if wanted <= most { wanted } else { wanted.min(cores().max(most)) }
    }
}

fn cores() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

fn build(threads: usize, is_here: bool) -> Result<ThreadPool> {
    let mut builder = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("worker-{index}"));
    if is_here {
        builder = builder.use_current_thread();
    }
    builder.build().context("failed to start the worker threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads() {
        for (jobs, cores, input_size, expected) in [
            (Jobs::Auto, 8, 0, 1),
            (Jobs::Auto, 8, 5 << 20, 3),
            (Jobs::Auto, 8, 1 << 30, 8),
            (Jobs::Auto, 8, u64::MAX, 8),
            (Jobs::from_count(0), 8, 1 << 30, 1),
            (Jobs::from_count(4), 2, 0, 4),
            (Jobs::from_count(usize::MAX), 2, 0, 256),
            (Jobs::from_count(usize::MAX), 512, 0, 512),
        ] {
            assert_eq!(
                jobs.threads(|| cores, input_size),
                expected,
                "{jobs:?} {cores} {input_size}"
            );
        }
    }
}
