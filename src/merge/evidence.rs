//! When a forward declaration of an ambiguous name means its completion.

use hashbrown::HashMap;

use super::ambiguity::{Completions, Deviations, Place};
use super::definitions::{Occurrences, Places, base_definition};
use crate::base::Matching;
use crate::btf::kind::{Kind, for_each_ref, kind_of};
use crate::pool::{ClassId, Key, Pool, Ref, Target};

/// What shows that a forward declaration means the completion of its name: some type that two
/// units agree on in everything else leads to the declaration in one of them, to the completion
/// in the other (the evidence rule, spec/btf-and-dedup section 2.7). Without it the next best
/// definition is tried; if there is evidence for none, the declaration is left alone, as by libbpf.
pub(super) struct Evidence {
    /// For each ambiguous name that is also declared: the structs, unions and typedefs that lead
    /// to it with nothing but nameless types in between.
    containers: Vec<(Key, Vec<ClassId>)>,
    /// The units that have each container.
    units: HashMap<ClassId, Vec<u32>>,
}

impl Evidence {
    pub fn of(containers: Vec<(Key, Vec<ClassId>)>, places: &Places) -> Self {
        let mut units: HashMap<ClassId, Vec<u32>> = HashMap::new();
        for class in containers.iter().flat_map(|entry| &entry.1) {
            units.entry(*class).or_default();
        }
        for (unit, found) in places {
            for (_, class) in found {
                if let Some(units) = units.get_mut(class) {
                    units.push(*unit);
                }
            }
        }
        Self { containers, units }
    }

    /// Names whose completion nothing supports.
    pub fn missing(
        &self,
        found: &Deviations,
        occurrences: &Occurrences,
        completions: &Completions,
        base: Option<&Matching<'_>>,
    ) -> Vec<Key> {
        let is_baseless = |(key, containers): &&(Key, Vec<ClassId>)| {
            completions[key].is_some_and(|place| {
                let supports =
                    |&class: &ClassId| self.supports(*key, place, class, found, occurrences, base);
                !containers.iter().any(supports)
            })
        };
        self.containers.iter().filter(is_baseless).map(|entry| entry.0).collect()
    }

    fn supports(
        &self,
        key: Key,
        completion: Place,
        container: ClassId,
        found: &Deviations,
        occurrences: &Occurrences,
        base: Option<&Matching<'_>>,
    ) -> bool {
        let units = self.units.get(&container).map_or(&[][..], Vec::as_slice);
        let agreeing =
            units.iter().filter(|&&unit| found.place(unit, container) == Place::Class(container));
        let id_of = |class| base.map_or(0, |base| base.id(class));
        let means_base = match completion {
            Place::Base(_) => true,
            Place::Class(class) => {
                id_of(class) != 0 && base_definition(key, base) == Some(id_of(class))
            }
            Place::Block(_) => false,
        };
        let mut is_declared = false;
        let mut is_defined = means_base && id_of(container) != 0;
        for unit in agreeing {
            let defined = occurrences.by_unit.get(unit);
            let is_own = defined.is_some_and(|own| own.iter().any(|entry| entry.0 == key));
            is_defined |= is_own;
            is_declared |= !is_own;
        }
        is_declared && is_defined
    }
}

/// For each of `keys`, the structs, unions and typedefs that lead to it through nameless types.
pub(super) fn containers_of(pool: &Pool, keys: &[Key]) -> Vec<(Key, Vec<ClassId>)> {
    let mut found: Vec<(Key, Vec<ClassId>)> = keys.iter().map(|&key| (key, Vec::new())).collect();
    if found.is_empty() {
        return found;
    }
    let index: HashMap<Key, usize> =
        keys.iter().enumerate().map(|(place, &key)| (key, place)).collect();
    // Nameless classes come before those that refer to them, so one pass is enough.
    let mut through: HashMap<ClassId, Vec<usize>> = HashMap::new();
    let mut reached: Vec<usize> = Vec::new();
    for class in pool.ids() {
        let record = pool.record(class);
        reached.clear();
        for_each_ref(record, |reference| match Ref(reference) {
            Ref::INDEX => {}
            reference => match reference.target() {
                Target::Void => {}
                Target::Key(key) => reached.extend(index.get(&key)),
                Target::Class(target) => reached.extend(through.get(&target).into_iter().flatten()),
            },
        });
        if reached.is_empty() {
            continue;
        }
        reached.sort_unstable();
        reached.dedup();
        if matches!(kind_of(record), Kind::Struct | Kind::Union | Kind::Typedef) {
            reached.iter().for_each(|&place| found[place].1.push(class));
        } else {
            through.insert(class, reached.clone());
        }
    }
    found
}
