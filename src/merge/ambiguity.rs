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

use hashbrown::{HashMap, HashSet};

use super::partition::{Graph, Lead};
use crate::btf::kind::{Kind, for_each_ref, kind_of};
use crate::fragment::Fragment;
use crate::names::NameId;
use crate::pool::{ClassId, Key, Namespace, Pool, Ref, Target, is_definition, key_of};

/// A final type before it has an id: a class, or a block of equal deviating classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The class wherever it does not deviate.
    Class(ClassId),
    /// Deviating classes that are the same type.
    Block(u32),
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
type Completions = HashMap<Key, Option<ClassId>>;

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
    count: u32,
}

impl Deviations {
    /// Finds the names with several definitions and everything that deviates.
    #[must_use]
    pub fn find(pool: &Pool, fragments: &[Fragment]) -> Self {
        let mut names = Definitions::of(pool);
        names.sort_forwards(fragments);
        let mut found = Self {
            completions: names.unique(),
            forwards: names.forwards.clone(),
            ..Self::default()
        };
        let ambiguous = names.ambiguous();
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
        let mut completions: Completions = ambiguous
            .iter()
            .map(|(key, definitions)| (*key, Some(occurrences.most_common(definitions))))
            .collect();
        let evidence = Evidence::of(containers, &places);
        let mut nodes = loop {
            let nodes = found.deviate(pool, fragments, &occurrences, &completions);
            let baseless = evidence.missing(&found, &occurrences, &completions);
            if baseless.is_empty() {
                break nodes;
            }
            completions.extend(baseless.into_iter().map(|key| (key, None)));
        };
        for (&key, definition) in &completions {
            found.completions.extend(definition.map(|class| (key, Place::Class(class))));
        }
        while found.complete_with_blocks(pool, fragments, &mut nodes) {}
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
        let completion = self.completions.get(&key).copied();
        completion.or_else(|| self.forwards.get(&key).map(|forwards| Place::Class(forwards[0])))
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
        pool: &Pool,
        fragments: &[Fragment],
        occurrences: &Occurrences,
        completions: &Completions,
    ) -> Nodes {
        let mut nodes = Nodes::default();
        for fragment in fragments {
            let Some(definitions) = occurrences.by_unit.get(&fragment.unit) else {
                continue;
            };
            let others: Vec<ClassId> = definitions
                .iter()
                .filter(|(key, class)| completions[key] != Some(*class))
                .map(|&(_, class)| class)
                .collect();
            if !others.is_empty() {
                nodes.add_unit(pool, fragment, &others, &[]);
            }
        }
        self.set_nodes(pool, &mut nodes);
        nodes
    }

    /// Takes over what deviates, sorted into blocks.
    fn set_nodes(&mut self, pool: &Pool, nodes: &mut Nodes) {
        nodes.refine(pool);
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
    fn complete_with_blocks(
        &mut self,
        pool: &Pool,
        fragments: &[Fragment],
        nodes: &mut Nodes,
    ) -> bool {
        let lost = self.lost_completions(pool, fragments);
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
        for fragment in fragments {
            let is_declared = |(key, forward): &&(Key, ClassId)| {
                let is_defined = nodes.definitions.contains_key(&(fragment.unit, *key));
                !is_defined && fragment.types.contains(forward)
            };
            let keys: Vec<Key> = declared.iter().filter(is_declared).map(|entry| entry.0).collect();
            if !keys.is_empty() {
                nodes.add_unit(pool, fragment, &[], &keys);
            }
        }
        self.set_nodes(pool, nodes);
        !declared.is_empty()
    }

    /// Names whose completion is a class that deviates in every unit, and the most common of its
    /// blocks.
    fn lost_completions(&self, pool: &Pool, fragments: &[Fragment]) -> Vec<(Key, u32)> {
        let mut candidates: HashMap<ClassId, Vec<u32>> = HashMap::new();
        for (number, block) in self.blocks.iter().enumerate() {
            let record = pool.record(block.class);
            let is_completion = key_of(record)
                .is_some_and(|key| self.completions.get(&key) == Some(&Place::Class(block.class)));
            if is_definition(record) && is_completion {
                candidates.entry(block.class).or_default().push(number as u32);
            }
        }
        for fragment in fragments {
            if candidates.is_empty() {
                break;
            }
            let own = self.units.get(&fragment.unit);
            candidates.retain(|class, _| {
                let deviates = own.is_some_and(|unit| unit.blocks.contains_key(class));
                deviates || !fragment.types.contains(class)
            });
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

/// What shows that a forward declaration means the completion of its name: some type that two
/// units agree on in everything else leads to the declaration in one of them, to the completion
/// in the other (the evidence rule, spec/btf-and-dedup section 2.7). Without it the declaration
/// is left alone, as libbpf does.
struct Evidence {
    /// For each ambiguous name that is also declared: the structs, unions and typedefs that lead
    /// to it with nothing but nameless types in between.
    containers: Vec<(Key, Vec<ClassId>)>,
    /// The units that have each container.
    units: HashMap<ClassId, Vec<u32>>,
}

impl Evidence {
    fn of(containers: Vec<(Key, Vec<ClassId>)>, places: &Places) -> Self {
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
    fn missing(
        &self,
        found: &Deviations,
        occurrences: &Occurrences,
        completions: &Completions,
    ) -> Vec<Key> {
        let is_baseless = |(key, containers): &&(Key, Vec<ClassId>)| {
            completions[key].is_some()
                && !containers.iter().any(|&class| self.supports(*key, class, found, occurrences))
        };
        self.containers.iter().filter(is_baseless).map(|entry| entry.0).collect()
    }

    fn supports(
        &self,
        key: Key,
        container: ClassId,
        found: &Deviations,
        occurrences: &Occurrences,
    ) -> bool {
        let units = self.units.get(&container).map_or(&[][..], Vec::as_slice);
        let agreeing =
            units.iter().filter(|&&unit| found.place(unit, container) == Place::Class(container));
        let (mut is_declared, mut is_defined) = (false, false);
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
fn containers_of(pool: &Pool, keys: &[Key]) -> Vec<(Key, Vec<ClassId>)> {
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

/// By unit: places in its list of types, and the classes there.
type Places = Vec<(u32, Vec<(u32, ClassId)>)>;

/// Which of `classes` each unit lists.
fn occurrences_of(classes: &[ClassId], fragments: &[Fragment]) -> Places {
    use rayon::prelude::*;
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
struct Definitions {
    /// Definitions by name, in order of class id.
    definitions: HashMap<Key, Vec<ClassId>>,
    forwards: HashMap<Key, Vec<ClassId>>,
}

impl Definitions {
    fn of(pool: &Pool) -> Self {
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
    fn sort_forwards(&mut self, fragments: &[Fragment]) {
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

    fn unique(&self) -> HashMap<Key, Place> {
        let single = self.definitions.iter().filter(|(_, classes)| classes.len() == 1);
        single.map(|(&key, classes)| (key, Place::Class(classes[0]))).collect()
    }

    /// Names with several definitions, in no particular order.
    fn ambiguous(&self) -> Vec<(Key, Vec<ClassId>)> {
        let several = self.definitions.iter().filter(|(_, classes)| classes.len() > 1);
        several.map(|(&key, classes)| (key, classes.clone())).collect()
    }
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
struct Occurrences {
    by_unit: HashMap<u32, Vec<(Key, ClassId)>>,
    /// For each definition: number of units, first unit, place in it.
    by_class: HashMap<ClassId, (u32, u32, u32)>,
}

impl Occurrences {
    fn of(ambiguous: &[(Key, Vec<ClassId>)], places: &Places) -> Self {
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

    fn most_common(&self, definitions: &[ClassId]) -> ClassId {
        let order = |class: &&ClassId| {
            let (count, unit, place) =
                self.by_class.get(*class).copied().unwrap_or((0, u32::MAX, 0));
            (std::cmp::Reverse(count), unit, place)
        };
        *definitions.iter().min_by_key(order).expect("an ambiguous name has definitions")
    }
}

/// Deviating classes of all units, and the partition of them into equal ones.
#[derive(Default)]
struct Nodes {
    nodes: Vec<(u32, ClassId)>,
    index: HashMap<(u32, ClassId), u32>,
    /// Deviating definitions by unit and name.
    definitions: HashMap<(u32, Key), u32>,
    /// What names stand for in units that do not define them, if that deviates.
    completions: HashMap<Key, u32>,
    block_of: Vec<u32>,
    block_count: u32,
}

impl Nodes {
    /// Adds every class of `fragment` that reaches one of `others` or `keys`.
    fn add_unit(&mut self, pool: &Pool, fragment: &Fragment, others: &[ClassId], keys: &[Key]) {
        let mut classes = fragment.types.clone();
        classes.extend_from_slice(&fragment.tags);
        classes.extend(fragment.functions.iter().map(|function| pool.prototype(function.class)));
        classes.sort_unstable();
        classes.dedup();
        let users = Users::of(pool, &classes);
        let mut aliases = fragment.aliases.clone();
        aliases.sort_by_key(|alias| alias.1);
        let mut waiting: Vec<ClassId> = others.to_vec();
        keys.iter().for_each(|&key| waiting.extend_from_slice(users.of_key(key)));
        while let Some(class) = waiting.pop() {
            let node = self.nodes.len() as u32;
            if self.index.contains_key(&(fragment.unit, class)) {
                continue;
            }
            self.index.insert((fragment.unit, class), node);
            self.nodes.push((fragment.unit, class));
            waiting.extend_from_slice(users.of_class(class));
            let record = pool.record(class);
            let is_typedef = kind_of(record) == Kind::Typedef;
            let key = match key_of(record) {
                Some(key) if is_definition(record) => Some(key),
                _ if is_typedef => {
                    Some(Key { namespace: Namespace::Typedef, name: NameId(record[0]) })
                }
                _ => None,
            };
            let first = aliases.partition_point(|alias| alias.1 < class);
            let aliases = aliases[first..].iter().take_while(|alias| alias.1 == class);
            for key in key.into_iter().chain(aliases.map(|alias| alias.0)) {
                self.definitions.insert((fragment.unit, key), node);
                waiting.extend_from_slice(users.of_key(key));
            }
        }
    }

    /// Sorts equal nodes into blocks.
    fn refine(&mut self, pool: &Pool) {
        let mut graph = Graph::default();
        for &(unit, class) in &self.nodes {
            graph.add(class.0);
            for_each_ref(pool.record(class), |reference| {
                graph.lead(self.lead(unit, Ref(reference)));
            });
        }
        (self.block_of, self.block_count) = graph.partition();
    }

    /// Where a reference leads: to a node, a class that does not deviate, or a name.
    fn lead(&self, unit: u32, reference: Ref) -> Lead {
        if reference == Ref::INDEX {
            return Lead::Fixed(reference.0);
        }
        let node = match reference.target() {
            Target::Void => None,
            Target::Class(class) => self.index.get(&(unit, class)),
            Target::Key(key) => {
                self.definitions.get(&(unit, key)).or_else(|| self.completions.get(&key))
            }
        };
        node.map_or(Lead::Fixed(reference.0), |&node| Lead::Node(node))
    }

    /// The blocks by number, numbered in order of their first node.
    fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Option<Block>> = vec![None; self.block_count as usize];
        for (&(unit, class), &block) in self.nodes.iter().zip(&self.block_of) {
            let block = blocks[block as usize].get_or_insert(Block { class, unit, count: 0 });
            block.count += 1;
            block.unit = block.unit.min(unit);
        }
        blocks.into_iter().map(|block| block.expect("every block has a node")).collect()
    }
}

/// Who refers to a class or a name within one unit.
struct Users {
    of_classes: HashMap<ClassId, Vec<ClassId>>,
    of_keys: HashMap<Key, Vec<ClassId>>,
}

impl Users {
    fn of(pool: &Pool, classes: &[ClassId]) -> Self {
        let mut users = Self { of_classes: HashMap::new(), of_keys: HashMap::new() };
        for &class in classes {
            for_each_ref(pool.record(class), |reference| {
                if reference == Ref::INDEX.0 {
                    return;
                }
                match Ref(reference).target() {
                    Target::Void => {}
                    Target::Class(target) => {
                        users.of_classes.entry(target).or_default().push(class);
                    }
                    Target::Key(key) => users.of_keys.entry(key).or_default().push(class),
                }
            });
        }
        users
    }

    fn of_class(&self, class: ClassId) -> &[ClassId] {
        self.of_classes.get(&class).map_or(&[], Vec::as_slice)
    }

    fn of_key(&self, key: Key) -> &[ClassId] {
        self.of_keys.get(&key).map_or(&[], Vec::as_slice)
    }
}
