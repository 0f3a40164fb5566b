//! Which names have several definitions, and where those are.

use hashbrown::{HashMap, HashSet};

use super::ambiguity::Place;
use crate::base::Matching;
use crate::btf::kind::{Kind, for_each_ref, kind_of};
use crate::fragment::Fragment;
use crate::names::NameId;
use crate::pool::{ClassId, Key, Namespace, Pool, Ref, Target, is_definition, key_of};

/// How many definitions of one name are tried as what its declarations mean: each costs a round over
/// all that deviates. Changes the output where a name has more definitions.
const MAX_CANDIDATES: usize = 8;

/// By unit: places in its list of types, and the classes there.
pub(super) type Places = Vec<(u32, Vec<(u32, ClassId)>)>;

/// Which of `classes` each unit lists, in order of `fragments`.
pub(super) fn occurrences_of(classes: &[ClassId], fragments: &[Fragment]) -> Places {
    use rayon::prelude::*;
    if classes.is_empty() {
        return fragments.iter().map(|fragment| (fragment.unit, Vec::new())).collect();
    }
    let largest = classes.iter().map(|class| class.0).max().map_or(0, |last| last as usize + 1);
    let mut is_wanted = vec![false; largest];
    for class in classes {
        is_wanted[class.0 as usize] = true;
    }
    let find = |fragment: &Fragment| {
        let listed = fragment.types.iter().copied().enumerate();
        let wanted = listed
            .filter(|(_, class)| is_wanted.get(class.0 as usize).is_some_and(|&wanted| wanted));
        (fragment.unit, wanted.map(|(place, class)| (place as u32, class)).collect())
    };
    fragments.par_iter().map(find).collect()
}

/// Which classes define or mention each name.
pub(super) struct Definitions {
    /// Definitions by name, in order of class id.
    definitions: HashMap<Key, Vec<ClassId>>,
    pub forwards: HashMap<Key, Vec<ClassId>>,
}

impl Definitions {
    pub fn of(pool: &Pool) -> Self {
        let cut_typedefs = cut_typedefs(pool);
        let mut found = Self { definitions: HashMap::new(), forwards: HashMap::new() };
        for class in pool.ids() {
            let record = pool.record(class);
            if is_definition(record) {
                let key = key_of(record).expect("definitions have a name");
                found.definitions.entry(key).or_default().push(class);
            } else if let Some(key) = key_of(record) {
                found.forwards.entry(key).or_default().push(class);
            } else if !cut_typedefs.is_empty() && kind_of(record) == Kind::Typedef {
                let key = Key { namespace: Namespace::Typedef, name: NameId(record[0]) };
                if cut_typedefs.contains(&key) {
                    found.definitions.entry(key).or_default().push(class);
                }
            }
        }
        found
    }

    /// Puts the declaration that occurs first before others of the same name.
    pub fn sort_forwards(&mut self, fragments: &[Fragment]) {
        let several = self.forwards.values().filter(|classes| classes.len() > 1);
        let several: Vec<ClassId> = several.flatten().copied().collect();
        if several.is_empty() {
            return;
        }
        let mut first: HashMap<ClassId, (u32, u32)> = HashMap::new();
        for (unit, found) in occurrences_of(&several, fragments) {
            for (place, class) in found {
                first.entry(class).or_insert((unit, place));
            }
        }
        let several = self.forwards.values_mut().filter(|classes| classes.len() > 1);
        several.for_each(|classes| classes.sort_by_key(|class| first.get(class)));
    }

    /// What names stand for that have one definition, in the units and the base together; and
    /// names that only the base defines or declares.
    pub fn unique(&self, base: Option<&Matching<'_>>) -> HashMap<Key, Place> {
        let own =
            self.definitions.iter().filter(|(key, classes)| !is_ambiguous(**key, classes, base));
        let mut unique: HashMap<Key, Place> =
            own.map(|(&key, classes)| (key, Place::Class(classes[0]))).collect();
        if let Some(base) = base {
            let declared = self.forwards.keys().filter(|key| !self.definitions.contains_key(*key));
            let known = declared.filter_map(|&key| Some((key, Place::Base(base.named(key)?.0))));
            unique.extend(known);
        }
        unique
    }

    /// Names with several definitions, each with those of the units, in no particular order.
    pub fn ambiguous(&self, base: Option<&Matching<'_>>) -> Vec<(Key, Vec<ClassId>)> {
        let several =
            self.definitions.iter().filter(|(key, classes)| is_ambiguous(**key, classes, base));
        several.map(|(&key, classes)| (key, classes.clone())).collect()
    }
}

/// Whether the units, or they and the base, do not agree on what a name means.
fn is_ambiguous(key: Key, classes: &[ClassId], base: Option<&Matching<'_>>) -> bool {
    classes.len() > 1
        || base_definition(key, base)
            .is_some_and(|id| Some(id) != base.map(|base| base.id(classes[0])))
}

/// What a name stands for in the base, if that is a definition.
pub(super) fn base_definition(key: Key, base: Option<&Matching<'_>>) -> Option<u32> {
    let (id, is_definition) = base?.named(key)?;
    is_definition.then_some(id)
}

/// Typedefs that are referred to by name because they are part of a cycle.
fn cut_typedefs(pool: &Pool) -> HashSet<Key> {
    let mut keys = HashSet::new();
    for class in pool.ids() {
        for_each_ref(pool.record(class), |reference| {
            if reference != Ref::INDEX.0
                && let Target::Key(key) = Ref(reference).target()
                && key.namespace == Namespace::Typedef
            {
                keys.insert(key);
            }
        });
    }
    keys
}

/// In which units the definitions of ambiguous names are.
pub(super) struct Occurrences {
    pub by_unit: HashMap<u32, Vec<(Key, ClassId)>>,
    /// For each definition: number of units, first unit, place in it.
    by_class: HashMap<ClassId, (u32, u32, u32)>,
}

impl Occurrences {
    pub fn of(ambiguous: &[(Key, Vec<ClassId>)], places: &Places) -> Self {
        let mut keys: HashMap<ClassId, Key> = HashMap::new();
        for (key, classes) in ambiguous {
            keys.extend(classes.iter().map(|&class| (class, *key)));
        }
        let mut occurrences = Self { by_unit: HashMap::new(), by_class: HashMap::new() };
        for &(unit, ref found) in places {
            for &(place, class) in found {
                let Some(&key) = keys.get(&class) else {
                    continue;
                };
                occurrences.by_unit.entry(unit).or_default().push((key, class));
                let first = (0, unit, place);
                occurrences.by_class.entry(class).or_insert(first).0 += 1;
            }
        }
        occurrences
    }

    /// What an ambiguous name may stand for, the best last: what it does in the base, if that
    /// defines it, then the definitions that most units have.
    pub fn candidates(
        &self,
        key: Key,
        definitions: &[ClassId],
        base: Option<&Matching<'_>>,
    ) -> Vec<Place> {
        let in_base = base_definition(key, base);
        let is_same = |class: ClassId| in_base.is_some() && base.map(|b| b.id(class)) == in_base;
        let order = |class: &ClassId| {
            let (count, unit, place) =
                self.by_class.get(class).copied().unwrap_or((0, u32::MAX, 0));
            (!is_same(*class), std::cmp::Reverse(count), unit, place)
        };
        let mut definitions = definitions.to_vec();
        definitions.sort_by_key(order);
        let is_listed = definitions.first().is_some_and(|&class| is_same(class));
        let base_alone = in_base.filter(|_| !is_listed).map(Place::Base);
        let mut best: Vec<Place> =
            base_alone.into_iter().chain(definitions.into_iter().map(Place::Class)).collect();
        best.truncate(MAX_CANDIDATES);
        best.reverse();
        best
    }
}
