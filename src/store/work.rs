//! An input and the partial work of earlier runs on the artifact of its name.

use btfcache_schema::Counter;

use super::Problem;
use super::session::Inquiry;
use super::shard::Shard;
use crate::elf::Input;
use crate::kept::Known;
use crate::pipeline::Work;

impl Inquiry<'_> {
    /// What is known of the units of `input`; `None` if nothing is to be kept of them.
    pub fn known_work(&mut self, input: &Input) -> Option<Known> {
        let cache = self.session().writable().filter(|_| self.session().keeps_units())?;
        // Units of archives are in other files.
        if !matches!(input, Input::File(_)) {
            return None;
        }
        if self.session().recaches() {
            return Some(Known::default());
        }
        let shard = Shard::of(cache.directory(), self.artifact());
        let read = shard.read().and_then(|whole| {
            let Some(whole) = whole else {
                return Ok(Known::default());
            };
            Known::read(&whole.pool, whole.units).map_err(|error| {
                shard.remove();
                Problem::format(shard.path(), &error)
            })
        });
        Some(read.unwrap_or_else(|problem| {
            self.problem(problem);
            Known::default()
        }))
    }

    /// Counts what became of the units, and stores what is new.
    pub fn worked(&mut self, work: Work) {
        self.count(Counter::UnitHits, work.hits as u64);
        self.count(Counter::UnitMisses, work.misses as u64);
        let Some(cache) = self.session().writable() else {
            return;
        };
        let shard = Shard::of(cache.directory(), self.artifact());
        if let Some(error) = work.problem {
            self.problem(Problem::format(shard.path(), &error));
        }
        let Some(whole) = work.whole else {
            return;
        };
        let stored = shard.write(&whole).and_then(|grown| cache.note_size(grown));
        if let Err(problem) = stored {
            self.problem(problem);
        }
    }
}
