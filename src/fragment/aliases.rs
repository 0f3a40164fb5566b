//! Names that one unit defines twice: two functions of a file may each have their own
//! `struct args`. There a nominal reference would not say which one is meant.
//!
//! References to such a definition go by an alias instead: its name, a NUL that no real name has,
//! and what makes it unique. The definitions themselves keep their name. Types that reach an alias
//! are not shared with other units; that is a lost chance to deduplicate, never a wrong type.

use hashbrown::HashMap;

use super::classes::Classes;
use super::local::{Local, TypeIndex};
use crate::names::Names;
use crate::pool::{ClassId, Key, Namespace, Pool, Ref, Target, is_definition, key_of};

/// Which classes a unit has listed, and whether it defines a name twice; one per worker.
#[derive(Debug, Default)]
pub(super) struct Listed {
    classes: Vec<Listing>,
    /// Numbers of the names that classes define.
    numbers: HashMap<Key, u32>,
    /// By number: the last unit that defines the name.
    last_unit: Vec<u32>,
    /// Whether the unit at hand defines a name twice.
    pub has_duplicates: bool,
}

#[derive(Clone, Copy, Debug)]
struct Listing {
    /// The last unit that has the class.
    last_unit: u32,
    /// Number of the name that the class defines, or [`NO_NAME`].
    name: u32,
}

const NO_UNIT: u32 = u32::MAX;
const NO_NAME: u32 = u32::MAX;

impl Listed {
    /// Starts the list of a unit, whose classes are in `pool`.
    pub fn start(&mut self, pool: &Pool) {
        self.has_duplicates = false;
        for class in self.classes.len()..pool.len() {
            let record = pool.record(ClassId(class as u32));
            let name = key_of(record).filter(|_| is_definition(record));
            let number = name.map_or(NO_NAME, |name| {
                let next = self.last_unit.len() as u32;
                let number = *self.numbers.entry(name).or_insert(next);
                if number == next {
                    self.last_unit.push(NO_UNIT);
                }
                number
            });
            self.classes.push(Listing { last_unit: NO_UNIT, name: number });
        }
    }

    /// Lists `class`; returns whether it is new in `unit`.
    #[inline(always)]
    pub fn add(&mut self, unit: u32, class: ClassId) -> bool {
        let listing = &mut self.classes[class.0 as usize];
        if std::mem::replace(&mut listing.last_unit, unit) == unit {
            return false;
        }
        if listing.name != NO_NAME {
            let last_unit = &mut self.last_unit[listing.name as usize];
            self.has_duplicates |= std::mem::replace(last_unit, unit) == unit;
        }
        true
    }

    /// Forgets what the unit has listed, so that it can be listed again.
    pub fn forget(&mut self, classes: &[ClassId]) {
        for class in classes {
            let listing = &mut self.classes[class.0 as usize];
            listing.last_unit = NO_UNIT;
            if listing.name != NO_NAME {
                self.last_unit[listing.name as usize] = NO_UNIT;
            }
        }
    }
}

/// Gives an alias to every definition whose name `unit` defines more than once, and makes all
/// references of the unit go by it.
///
/// `local.refs` must hold what references are before interning. A definition is told from another
/// by its class; forward declarations mean the first.
pub(super) fn assign(
    unit: u32,
    round: u32,
    local: &mut Local,
    classes: &Classes,
    pool: &Pool,
    names: &Names,
) {
    let mut definitions: HashMap<u32, Vec<ClassId>> = HashMap::new();
    for (index, class) in classed(local, classes) {
        let known = definitions.entry(local.refs[index as usize]).or_default();
        if is_definition(pool.record(class)) && !known.contains(&class) {
            known.push(class);
        }
    }
    let indices: Vec<(TypeIndex, ClassId)> = classed(local, classes).collect();
    for (index, class) in indices {
        let reference = local.refs[index as usize];
        let known = definitions.get(&reference).map_or(&[][..], Vec::as_slice);
        let Target::Key(key) = Ref(reference).target() else {
            continue;
        };
        if known.len() > 1 {
            let place = known.iter().position(|&other| other == class).unwrap_or(0);
            local.refs[index as usize] = alias(key, unit, round, place, names).0;
        }
    }
}

/// The types that have a nominal reference, with their class, in id order.
fn classed<'a>(
    local: &'a Local,
    classes: &'a Classes,
) -> impl Iterator<Item = (TypeIndex, ClassId)> + 'a {
    local.order.iter().filter_map(|&index| {
        let is_nominal = local.types[index as usize].kind.is_nominal();
        classes.class(index).filter(|_| is_nominal).map(|class| (index, class))
    })
}

fn alias(key: Key, unit: u32, round: u32, place: usize, names: &Names) -> Ref {
    let mut text = names.to_vec(key.name);
    text.extend_from_slice(format!("\0{unit}.{round}.{place}").as_bytes());
    Ref::key(key.namespace, names.inline(&text))
}

/// The aliases that references of the unit go by, each with its definition.
pub(super) fn list(
    local: &Local,
    classes: &Classes,
    pool: &Pool,
    names: &Names,
) -> Vec<(Key, ClassId)> {
    let mut aliases: Vec<(Key, ClassId)> = Vec::new();
    for (index, class) in classed(local, classes) {
        let Target::Key(key) = classes.reference(index).target() else {
            continue;
        };
        let is_alias =
            key.namespace != Namespace::Typedef && names.bytes(key.name, &mut [0; 4]).contains(&0);
        if is_alias
            && is_definition(pool.record(class))
            && !aliases.iter().any(|entry| entry.0 == key)
        {
            aliases.push((key, class));
        }
    }
    aliases
}

/// Whether some reference still finds more than one definition.
pub(super) fn has_ambiguous(local: &Local, classes: &Classes, pool: &Pool) -> bool {
    let mut definitions: HashMap<u32, ClassId> = HashMap::new();
    classed(local, classes).any(|(index, class)| {
        let reference = classes.reference(index).0;
        is_definition(pool.record(class)) && *definitions.entry(reference).or_insert(class) != class
    })
}
