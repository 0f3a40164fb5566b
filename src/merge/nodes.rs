//! The classes that deviate in a unit, as a graph.

use hashbrown::HashMap;

use super::NO_UNIT;
use super::ambiguity::{Block, Deviations, Place};
use super::partition::{Graph, Lead};
use crate::base::Matching;
use crate::btf::kind::{Kind, for_each_ref, kind_of};
use crate::fragment::Fragment;
use crate::names::NameId;
use crate::pool::{ClassId, Key, Namespace, Pool, Ref, Target, is_definition, key_of};

/// Deviating classes of all units, and the partition of them into equal ones.
#[derive(Default)]
pub(super) struct Nodes {
    pub nodes: Vec<(u32, ClassId)>,
    pub index: HashMap<(u32, ClassId), u32>,
    /// Deviating definitions by unit and name.
    pub definitions: HashMap<(u32, Key), u32>,
    /// What names stand for in units that do not define them, if that deviates.
    pub completions: HashMap<Key, u32>,
    /// By node; after the nodes come the types of the base that could equal one of them.
    pub block_of: Vec<u32>,
    /// Those types, by id.
    base_types: Vec<u32>,
    /// By class: the last unit that was added and has it.
    members: Vec<u32>,
}

impl Nodes {
    /// Adds every class of `fragment` that reaches one of `others` or `keys`.
    pub fn add_unit(
        &mut self,
        pool: &Pool,
        users: &Users,
        fragment: &Fragment,
        others: &[ClassId],
        keys: &[Key],
    ) {
        self.members.resize(pool.len(), NO_UNIT);
        let prototypes = fragment.functions.iter().map(|function| pool.prototype(function.class));
        for class in fragment.types.iter().chain(&fragment.tags).copied().chain(prototypes) {
            self.members[class.0 as usize] = fragment.unit;
        }
        let members = std::mem::take(&mut self.members);
        let is_own = |class: &&ClassId| members[class.0 as usize] == fragment.unit;
        let mut aliases = fragment.aliases.clone();
        aliases.sort_by_key(|alias| alias.1);
        let mut waiting: Vec<ClassId> = others.to_vec();
        keys.iter().for_each(|&key| waiting.extend(users.of_key(key).iter().filter(is_own)));
        while let Some(class) = waiting.pop() {
            let node = self.nodes.len() as u32;
            if self.index.contains_key(&(fragment.unit, class)) {
                continue;
            }
            self.index.insert((fragment.unit, class), node);
            self.nodes.push((fragment.unit, class));
            waiting.extend(users.of_class(class).iter().filter(is_own));
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
                waiting.extend(users.of_key(key).iter().filter(is_own));
            }
        }
        self.members = members;
    }

    /// Sorts equal nodes into blocks. `found` tells what names stand for.
    pub fn refine(&mut self, pool: &Pool, found: &Deviations, base: Option<&Matching<'_>>) {
        let base = base.map(|base| BaseNodes::new(base, self, found));
        let base = base.as_ref();
        let mut graph = Graph::default();
        for &(unit, class) in &self.nodes {
            graph.add(class.0);
            for_each_ref(pool.record(class), |reference| {
                graph.lead(self.lead(unit, Ref(reference), found, base));
            });
        }
        if let Some(base) = base {
            base.add_to(&mut graph);
        }
        self.block_of = graph.partition().0;
        self.base_types = base.map_or_else(Vec::new, |base| base.types.clone());
    }

    /// Where a reference leads: to a node, a class that does not deviate, a type of the base, or a
    /// name.
    fn lead(
        &self,
        unit: u32,
        reference: Ref,
        found: &Deviations,
        base: Option<&BaseNodes<'_>>,
    ) -> Lead {
        if reference == Ref::INDEX {
            return base.map_or(Lead::Fixed(reference.0), BaseNodes::lead_of_index);
        }
        let (node, place) = match reference.target() {
            Target::Void => (None, None),
            Target::Class(class) => (self.index.get(&(unit, class)), Some(Place::Class(class))),
            Target::Key(key) => {
                let own = self.definitions.get(&(unit, key));
                (own.or_else(|| self.completions.get(&key)), found.completion(key))
            }
        };
        match (node, place, base) {
            (Some(&node), ..) => Lead::Node(node),
            (None, Some(place), Some(base)) => base.lead_of_place(place, reference),
            (None, ..) => Lead::Fixed(reference.0),
        }
    }

    /// The blocks by number, numbered in order of their first node.
    pub fn blocks(&self) -> Vec<Block> {
        let own = &self.block_of[..self.nodes.len()];
        // The types of the base come last: blocks of nothing else have the highest numbers.
        let count = own.iter().max().map_or(0, |last| *last as usize + 1);
        let mut blocks: Vec<Option<Block>> = vec![None; count];
        for (&(unit, class), &block) in self.nodes.iter().zip(own) {
            let block =
                blocks[block as usize].get_or_insert(Block { class, unit, count: 0, base_id: 0 });
            block.count += 1;
            block.unit = block.unit.min(unit);
        }
        for (&id, &block) in self.base_types.iter().zip(&self.block_of[self.nodes.len()..]) {
            if let Some(Some(block)) = blocks.get_mut(block as usize)
                && block.base_id == 0
            {
                block.base_id = id;
            }
        }
        blocks.into_iter().map(|block| block.expect("every block has a node")).collect()
    }
}

/// Leads to types of the base are numbered from here: above all references to classes, below those
/// by name.
const BASE: u32 = 1 << 30;

/// The types of the base that could equal a node: they have its class, and reach a name that the
/// base does not use for one type only.
struct BaseNodes<'a> {
    base: &'a Matching<'a>,
    /// Their ids, in order, and their classes.
    types: Vec<u32>,
    labels: Vec<ClassId>,
    /// Number of the first one among all nodes.
    first: u32,
    /// Forward declarations of the base that a definition of a unit completes (the last deviation
    /// of D2).
    completed: HashMap<u32, Key>,
}

impl<'a> BaseNodes<'a> {
    fn new(base: &'a Matching<'a>, nodes: &Nodes, found: &Deviations) -> Self {
        let classes = nodes.nodes.iter().map(|node| (base.nominal(node.1), node.1));
        let classes: HashMap<u32, ClassId> = classes.filter(|(id, _)| *id != 0).collect();
        let prepared = base.base();
        let label = |id| classes.get(&prepared.canonical(id).unwrap_or(id)).copied();
        let (types, labels) =
            prepared.tainted().filter_map(|(id, _)| Some((id, label(id)?))).unzip();
        Self {
            base,
            types,
            labels,
            first: nodes.nodes.len() as u32,
            completed: found.completed_forwards(base),
        }
    }

    fn add_to(&self, graph: &mut Graph) {
        let mut own = self.types.iter().zip(&self.labels).peekable();
        for (id, record) in self.base.base().tainted() {
            if let Some((_, label)) = own.next_if(|(own, _)| **own == id) {
                graph.add(label.0);
                for_each_ref(record, |target| graph.lead(self.lead(target)));
            }
        }
    }

    /// Where a reference to a type of the base leads.
    fn lead(&self, id: u32) -> Lead {
        if id == 0 {
            return Lead::Fixed(Ref::VOID.0);
        }
        match (self.types.binary_search(&id), self.completed.get(&id)) {
            (Ok(place), _) => Lead::Node(self.first + place as u32),
            (Err(_), Some(&key)) => Lead::Fixed(Ref::from(key).0),
            (Err(_), None) => Lead::Fixed(BASE + id),
        }
    }

    fn lead_of_index(&self) -> Lead {
        match self.base.index_type() {
            0 => Lead::Fixed(Ref::INDEX.0),
            id => self.lead(id),
        }
    }

    /// Where a reference to something that does not deviate leads.
    fn lead_of_place(&self, place: Place, reference: Ref) -> Lead {
        let id = match place {
            Place::Base(id) => id,
            Place::Class(class) => self.base.id(class),
            Place::Block(_) => 0,
        };
        if id == 0 { Lead::Fixed(reference.0) } else { self.lead(id) }
    }
}

/// Who refers to each class and name, in all units together.
pub(super) struct Users {
    of_classes: Lists,
    /// By reference by kind and name: which of `of_keys`.
    keys: HashMap<u32, u32>,
    of_keys: Lists,
}

/// A list of classes for each number.
struct Lists {
    starts: Vec<u32>,
    classes: Vec<ClassId>,
}

impl Users {
    pub fn of(pool: &Pool) -> Self {
        let mut keys: HashMap<u32, u32> = HashMap::new();
        let mut by_class: Vec<(u32, ClassId)> = Vec::new();
        let mut by_key: Vec<(u32, ClassId)> = Vec::new();
        for class in pool.ids() {
            for_each_ref(pool.record(class), |reference| {
                if reference == Ref::INDEX.0 {
                    return;
                }
                match Ref(reference).target() {
                    Target::Void => {}
                    Target::Class(target) => by_class.push((target.0, class)),
                    Target::Key(_) => {
                        let next = keys.len() as u32;
                        by_key.push((*keys.entry(reference).or_insert(next), class));
                    }
                }
            });
        }
        let of_keys = Lists::new(keys.len(), &by_key);
        Self { of_classes: Lists::new(pool.len(), &by_class), keys, of_keys }
    }

    fn of_class(&self, class: ClassId) -> &[ClassId] {
        self.of_classes.get(class.0)
    }

    fn of_key(&self, key: Key) -> &[ClassId] {
        self.keys.get(&Ref::from(key).0).map_or(&[], |&key| self.of_keys.get(key))
    }
}

impl Lists {
    /// Sorts (number, class) by number, of which there are so many.
    fn new(count: usize, entries: &[(u32, ClassId)]) -> Self {
        let mut starts = vec![0; count + 1];
        for (number, _) in entries {
            starts[*number as usize + 1] += 1;
        }
        for number in 0..count {
            starts[number + 1] += starts[number];
        }
        let mut next = starts.clone();
        let mut classes = vec![ClassId(0); entries.len()];
        for (number, class) in entries {
            let place = &mut next[*number as usize];
            classes[*place as usize] = *class;
            *place += 1;
        }
        Self { starts, classes }
    }

    fn get(&self, number: u32) -> &[ClassId] {
        let range = self.starts.get(number as usize..number as usize + 2);
        range.map_or(&[], |range| &self.classes[range[0] as usize..range[1] as usize])
    }
}
