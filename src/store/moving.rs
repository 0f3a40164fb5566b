//! Results that move: those of a file's contents upon one base, found when they are wanted upon another
//! that differs in nothing they stand on. What that means says `footing`.

use btfcache_schema::{FootingRecord, Key, ResultRecord, StepRecord};

use super::session::{BaseAsked, Inquiry, Moved};
use super::{Cache, Lookup};
use crate::footing;

impl Inquiry<'_> {
    /// The last result of this footing, moved to `base`; `None` if there is none, or it has to be made
    /// anew.
    pub(super) fn moved(
        &mut self,
        cache: &Cache,
        key: &Key,
        base: &BaseAsked<'_>,
    ) -> Option<(ResultRecord, Moved)> {
        let footing = self.known(cache.footing(key))?;
        let changed = self.changed_names(cache, &footing, base)?;
        if !footing::is_untouched(&footing.mentions, &changed) {
            return None;
        }
        let record = self.known(cache.result(&footing.result))?;
        if record.base.is_some() || record.base_key != Some(footing.base) {
            return None;
        }
        let prepared = (base.prepared)()?;
        let btf = footing::moved(&record.btf, &footing, &prepared)?;
        Some((ResultRecord { btf, ..record }, Moved { mentions: footing.mentions }))
    }

    /// The names of the types that differ between the base of `footing` and `base`.
    fn changed_names(
        &mut self,
        cache: &Cache,
        footing: &FootingRecord,
        base: &BaseAsked<'_>,
    ) -> Option<Vec<u32>> {
        let (old, new) = (&footing.base, &base.key);
        if let Some(step) = self.known(cache.step(old, new)) {
            return step.changed;
        }
        // Its types are stored as hashes when it is prepared.
        (base.prepared)()?;
        let old_outline = self.known(cache.outline(old))?;
        let new_outline = self.known(cache.outline(new))?;
        let changed = footing::changed_names(&old_outline, &new_outline);
        if !cache.is_read_only() {
            let step = StepRecord { changed: changed.clone() };
            let stored = cache.put_step(old, new, &step);
            self.note(stored);
        }
        changed
    }

    fn known<T>(&mut self, lookup: Lookup<T>) -> Option<T> {
        match lookup {
            Lookup::Known(value) => Some(value),
            Lookup::Unknown => None,
            Lookup::Unusable(problem) => {
                self.problem(problem);
                None
            }
        }
    }
}
