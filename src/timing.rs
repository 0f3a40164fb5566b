//! Phase timing for `--time`: wall time of each stage, in the order they ran.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Collects how long each phase took. Cheap enough to be always on.
#[derive(Debug, Default)]
pub struct Timing {
    phases: Mutex<Vec<(&'static str, Duration)>>,
}

impl Timing {
    /// Runs `work` and records its wall time under `name`.
    pub fn phase<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        self.phases.lock().expect("no phase panics while recording").push((name, took));
        result
    }

    /// The phases so far, in the order they ended.
    #[must_use]
    pub fn phases(&self) -> Vec<(&'static str, Duration)> {
        self.phases.lock().expect("no phase panics while recording").clone()
    }
}
