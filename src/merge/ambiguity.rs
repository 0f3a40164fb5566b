//! Names with several definitions, and what depends on them.
//!
//! Almost every name of a kernel has one definition, and then a nominal reference leads there
//! from every unit. A dozen names have more: drivers define a `struct irq_info` each. Types are
//! then equal only if everything they lead to is (completed bisimulation, spec/btf-and-dedup
//! section 2.7), which depends on the unit.
//!
//! One definition of each name is its *completion*: the one that most units have, on a tie the
//! earliest. That is where a unit without a definition is led to. A class *deviates* in a unit if
//! it reaches there, through any references, a definition that is not the completion. In units
//! that define only completions nothing deviates, so only the few others are looked at:
//!
//! ```text
//! unit 1: struct s { int }   struct t { struct s *p }    s: completion
//! unit 2: struct s;          struct t { struct s *p }    t is t of unit 1
//! unit 3: struct s { int }   struct t { struct s *p }    so is this one
//! unit 4: struct s { long }  struct t { struct s *p }    s, s*, t deviate
//! ```
//!
//! A deviating class never equals the one that does not deviate, because what it reaches has other
//! contents. Deviating classes of different units may equal each other: that is worked out by
//! refining a partition of just those, which starts at "same class" and splits by where references
//! lead until nothing splits any more.

use hashbrown::HashMap;

use super::definitions::{Definitions, Occurrences, occurrences_of};
use super::evidence::{Evidence, containers_of};
use super::nodes::{Nodes, Users};
use crate::base::Matching;
use crate::fragment::Fragment;
use crate::pool::{ClassId, Key, Pool, is_definition, key_of};

/// A final type before it has an id: a class, or a block of equal deviating classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The class wherever it does not deviate.
    Class(ClassId),
    /// Deviating classes that are the same type.
    Block(u32),
    /// A type of the base that the units have no class of.
    Base(u32),
}

/// Where each class stands in each unit.
#[derive(Debug, Default)]
pub struct Deviations {
    /// For each unit with deviations, its classes that deviate.
    units: HashMap<u32, UnitDeviations>,
    /// For each block, its class and the first unit that has it.
    blocks: Vec<Block>,
    /// What a name stands for where the unit does not know better.
    completions: HashMap<Key, Place>,
    /// The FWD or empty enums of each name that has one. Compilers do not agree on the size of an
    /// enum that is only declared: the first declaration stands for all.
    forwards: HashMap<Key, Vec<ClassId>>,
}

/// The completion of each ambiguous name; `None` if forward declarations of it stay what they are.
pub(super) type Completions = HashMap<Key, Option<Place>>;

#[derive(Debug, Default)]
struct UnitDeviations {
    blocks: HashMap<ClassId, u32>,
    /// Definitions of the unit that deviate, by name.
    definitions: HashMap<Key, u32>,
}

/// Deviating classes that are the same type.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Their class.
    pub class: ClassId,
    /// The first unit that has them.
    pub unit: u32,
    /// How many units have them.
    pub(super) count: u32,
    /// The type of the base that they are, or 0.
    pub base_id: u32,
}

/// What all of it is found from.
struct Input<'a> {
    pool: &'a Pool,
    fragments: &'a [Fragment],
    users: Users,
    base: Option<&'a Matching<'a>>,
}

impl Deviations {
    /// Finds the names with several definitions, in the units or in what they have in common with
    /// the `base`, and everything that deviates.
    #[must_use]
    pub fn find(pool: &Pool, fragments: &[Fragment], base: Option<&Matching<'_>>) -> Self {
        let mut names = Definitions::of(pool);
        names.sort_forwards(fragments);
        let mut found = Self {
            completions: names.unique(base),
            forwards: names.forwards.clone(),
            ..Self::default()
        };
        let ambiguous = names.ambiguous(base);
        if ambiguous.is_empty() {
            found.complete_aliases(fragments);
            return found;
        }
        let declared: Vec<Key> = ambiguous
            .iter()
            .map(|entry| entry.0)
            .filter(|key| names.forwards.contains_key(key))
            .collect();
        let containers = containers_of(pool, &declared);
        let definitions = ambiguous.iter().flat_map(|entry| entry.1.iter().copied());
        let mut wanted: Vec<ClassId> = definitions
            .chain(containers.iter().flat_map(|entry| entry.1.iter().copied()))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let places = occurrences_of(&wanted, fragments);
        let occurrences = Occurrences::of(&ambiguous, &places);
        let mut candidates: HashMap<Key, Vec<Place>> = ambiguous
            .iter()
            .map(|(key, definitions)| (*key, occurrences.candidates(*key, definitions, base)))
            .collect();
        let mut completions: Completions =
            candidates.iter_mut().map(|(&key, places)| (key, places.pop())).collect();
        let evidence = Evidence::of(containers, &places);
        let all = Input { pool, fragments, users: Users::of(pool), base };
        let mut nodes = loop {
            let nodes = found.deviate(&all, &occurrences, &completions);
            let baseless = evidence.missing(&found, &occurrences, &completions, base);
            if baseless.is_empty() {
                break nodes;
            }
            let next = |key| (key, candidates.get_mut(&key).and_then(Vec::pop));
            completions.extend(baseless.into_iter().map(next));
        };
        found.set_completions(&completions);
        while found.complete_with_blocks(&all, &mut nodes) {}
        found.complete_aliases(fragments);
        found
    }

    /// An alias means one definition of one unit.
    fn complete_aliases(&mut self, fragments: &[Fragment]) {
        for fragment in fragments {
            for &(alias, class) in &fragment.aliases {
                let place = self.place(fragment.unit, class);
                self.completions.insert(alias, place);
            }
        }
    }

    /// Where `class` stands in `unit`.
    #[must_use]
    #[inline]
    pub fn place(&self, unit: u32, class: ClassId) -> Place {
        if self.units.is_empty() {
            return Place::Class(class);
        }
        let block = self.units.get(&unit).and_then(|unit| unit.blocks.get(&class));
        block.map_or(Place::Class(class), |&block| Place::Block(block))
    }

    /// Whether any class deviates in `unit`.
    #[must_use]
    pub fn has_unit(&self, unit: u32) -> bool {
        self.units.contains_key(&unit)
    }

    /// What `key` stands for in `unit`; `None` if nothing of that name exists at all.
    #[must_use]
    pub fn resolve(&self, unit: u32, key: Key) -> Option<Place> {
        let own = self.units.get(&unit).and_then(|unit| unit.definitions.get(&key));
        if let Some(&block) = own {
            return Some(Place::Block(block));
        }
        self.completion(key)
    }

    /// Whether a class is a FWD or empty enum that is replaced by a definition of its name, or by
    /// another declaration.
    #[must_use]
    pub fn is_completed(&self, class: ClassId, record: &[u32]) -> bool {
        key_of(record).is_some_and(|key| {
            let is_first = || self.forwards.get(&key).is_some_and(|forwards| forwards[0] == class);
            !is_definition(record) && (self.completions.contains_key(&key) || !is_first())
        })
    }

    /// The blocks, by number.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Finds what deviates from these completions.
    fn deviate(
        &mut self,
        all: &Input<'_>,
        occurrences: &Occurrences,
        completions: &Completions,
    ) -> Nodes {
        let &Input { pool, fragments, ref users, base } = all;
        self.set_completions(completions);
        let mut nodes = Nodes::default();
        for fragment in fragments {
            let Some(definitions) = occurrences.by_unit.get(&fragment.unit) else {
                continue;
            };
            let others: Vec<ClassId> = definitions
                .iter()
                .filter(|(key, class)| completions[key] != Some(Place::Class(*class)))
                .map(|&(_, class)| class)
                .collect();
            if !others.is_empty() {
                nodes.add_unit(pool, users, fragment, &others, &[]);
            }
        }
        self.set_nodes(pool, &mut nodes, base);
        nodes
    }

    fn set_completions(&mut self, completions: &Completions) {
        for (key, place) in completions {
            match place {
                Some(place) => self.completions.insert(*key, *place),
                None => self.completions.remove(key),
            };
        }
    }

    /// What `key` stands for where the unit does not know better.
    pub(super) fn completion(&self, key: Key) -> Option<Place> {
        let completion = self.completions.get(&key).copied();
        completion.or_else(|| self.forwards.get(&key).map(|forwards| Place::Class(forwards[0])))
    }

    /// Forward declarations of the base whose name stands for a definition of the units.
    pub(super) fn completed_forwards(&self, base: &Matching<'_>) -> HashMap<u32, Key> {
        let own = self.completions.iter().filter(|(_, place)| match **place {
            Place::Class(class) => base.id(class) == 0,
            Place::Block(_) => true,
            Place::Base(_) => false,
        });
        own.filter_map(|(&key, _)| match base.named(key) {
            Some((id, false)) => Some((id, key)),
            _ => None,
        })
        .collect()
    }

    /// Takes over what deviates, sorted into blocks.
    fn set_nodes(&mut self, pool: &Pool, nodes: &mut Nodes, base: Option<&Matching<'_>>) {
        nodes.refine(pool, self, base);
        self.blocks = nodes.blocks();
        self.units.clear();
        for (node, &(unit, class)) in nodes.nodes.iter().enumerate() {
            let block = nodes.block_of[node];
            let own = self.units.entry(unit).or_default();
            own.blocks.insert(class, block);
            let record = pool.record(class);
            if is_definition(record) {
                own.definitions.insert(key_of(record).expect("definitions have a name"), block);
            }
        }
        let completions = nodes.completions.iter();
        self.completions.extend(
            completions.map(|(&key, &node)| (key, Place::Block(nodes.block_of[node as usize]))),
        );
    }

    /// A name whose every definition deviates has no completion that exists: the most common block
    /// takes its place. What leads there from a declaration then deviates as well, by which other
    /// names may get into the same situation: returns whether this must be done again.
    fn complete_with_blocks(&mut self, all: &Input<'_>, nodes: &mut Nodes) -> bool {
        let &Input { pool, fragments, ref users, base } = all;
        let lost = self.lost_completions(pool, fragments, base);
        if lost.is_empty() {
            return false;
        }
        let mut declared = Vec::new();
        for &(key, block) in &lost {
            let block = self.blocks[block as usize];
            nodes.completions.insert(key, nodes.index[&(block.unit, block.class)]);
            let forwards = self.forwards.get(&key).into_iter().flatten();
            declared.extend(forwards.map(|&forward| (key, forward)));
        }
        let forwards: Vec<ClassId> = declared.iter().map(|entry| entry.1).collect();
        let places = occurrences_of(&forwards, fragments);
        for (fragment, (unit, found)) in fragments.iter().zip(&places) {
            let is_declared = |(key, forward): &&(Key, ClassId)| {
                let is_defined = nodes.definitions.contains_key(&(*unit, *key));
                !is_defined && found.iter().any(|(_, class)| class == forward)
            };
            let keys: Vec<Key> = declared.iter().filter(is_declared).map(|entry| entry.0).collect();
            if !keys.is_empty() {
                nodes.add_unit(pool, users, fragment, &[], &keys);
            }
        }
        self.set_nodes(pool, nodes, base);
        !declared.is_empty()
    }

    /// Names whose completion is a class that deviates in every unit, and the most common of its
    /// blocks.
    fn lost_completions(
        &self,
        pool: &Pool,
        fragments: &[Fragment],
        base: Option<&Matching<'_>>,
    ) -> Vec<(Key, u32)> {
        let mut candidates: HashMap<ClassId, Vec<u32>> = HashMap::new();
        for (number, block) in self.blocks.iter().enumerate() {
            let record = pool.record(block.class);
            let is_completion = key_of(record)
                .is_some_and(|key| self.completions.get(&key) == Some(&Place::Class(block.class)));
            let is_in_base = base.is_some_and(|base| base.id(block.class) != 0);
            if is_definition(record) && is_completion && !is_in_base {
                candidates.entry(block.class).or_default().push(number as u32);
            }
        }
        let classes: Vec<ClassId> = candidates.keys().copied().collect();
        for (unit, found) in occurrences_of(&classes, fragments) {
            for (_, class) in found {
                if self.place(unit, class) == Place::Class(class) {
                    candidates.remove(&class);
                }
            }
        }
        let mut candidates: Vec<_> = candidates.into_iter().collect();
        candidates.sort_unstable_by_key(|entry| entry.0);
        let best = |(class, blocks): (ClassId, Vec<u32>)| {
            let key = key_of(pool.record(class)).expect("definitions have a name");
            let order = |&number: &u32| {
                let block = self.blocks[number as usize];
                (std::cmp::Reverse(block.count), block.unit)
            };
            (key, blocks.into_iter().min_by_key(order).expect("there is one"))
        };
        candidates.into_iter().map(best).collect()
    }
}
