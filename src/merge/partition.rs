//! Which nodes of a graph are equal: the coarsest partition in which nodes of one block have the same
//! label and lead, place by place, to nodes of the same blocks.
//!
//! It starts with a block for each label. A block is looked at again only if something that its
//! nodes lead to has moved, and of a block that splits the largest part stays where it is (Hopcroft):
//! a chain of any length costs no more than it is long.
//!
//! ```text
//! labels  a -> b -> c     first blocks   {a a'} {b b'} {c c'}
//!         a'-> b'-> c'    c' leads elsewhere than c: {c} {c'}, then {b} {b'}, then {a} {a'}
//! ```

use std::ops::Range;

/// Where a place of a node leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lead {
    /// To something that is no node: equal if the numbers are.
    Fixed(u32),
    /// To a node, by number.
    Node(u32),
}

/// The nodes, numbered in order of [`Graph::add`].
#[derive(Debug, Default)]
pub(super) struct Graph {
    labels: Vec<u32>,
    /// End of each node's part of `leads`.
    ends: Vec<usize>,
    leads: Vec<Lead>,
}

impl Graph {
    /// Adds a node; [`Self::lead`] adds its places.
    pub fn add(&mut self, label: u32) {
        self.labels.push(label);
        self.ends.push(self.leads.len());
    }

    /// Adds a place to the last node.
    pub fn lead(&mut self, lead: Lead) {
        self.leads.push(lead);
        *self.ends.last_mut().expect("a node was added") = self.leads.len();
    }

    /// The number of each node's block, and how many blocks there are. They are numbered in order
    /// of their first nodes.
    pub fn partition(&self) -> (Vec<u32>, u32) {
        let users = self.users();
        let mut partition = Partition::by_label(&self.labels);
        let mut waiting: Vec<u32> = (0..partition.blocks.len() as u32).rev().collect();
        let mut is_waiting = vec![true; waiting.len()];
        while let Some(block) = waiting.pop() {
            is_waiting[block as usize] = false;
            let moved = partition.split(block, self);
            is_waiting.resize(partition.blocks.len(), false);
            for user in moved.into_iter().flat_map(|node| users.of(node)) {
                let block = partition.block_of[*user as usize];
                if !std::mem::replace(&mut is_waiting[block as usize], true) {
                    waiting.push(block);
                }
            }
        }
        partition.numbered()
    }

    fn leads(&self, node: u32) -> &[Lead] {
        let start = node.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.leads[start..self.ends[node as usize]]
    }

    /// The nodes that lead to each node.
    fn users(&self) -> Users {
        let targets = |node| self.leads(node).iter().filter_map(|lead| lead.node());
        let nodes = 0..self.labels.len() as u32;
        let mut starts = vec![0; self.labels.len() + 1];
        for target in nodes.clone().flat_map(targets) {
            starts[target as usize + 1] += 1;
        }
        for node in 0..self.labels.len() {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut users = vec![0; *starts.last().expect("there is one more than nodes")];
        for (user, target) in nodes.flat_map(|node| targets(node).map(move |target| (node, target)))
        {
            users[next[target as usize]] = user;
            next[target as usize] += 1;
        }
        Users { starts, users }
    }
}

impl Lead {
    const fn node(self) -> Option<u32> {
        match self {
            Self::Fixed(_) => None,
            Self::Node(node) => Some(node),
        }
    }
}

struct Users {
    starts: Vec<usize>,
    users: Vec<u32>,
}

impl Users {
    fn of(&self, node: u32) -> &[u32] {
        &self.users[self.starts[node as usize]..self.starts[node as usize + 1]]
    }
}

struct Partition {
    block_of: Vec<u32>,
    /// The nodes of each block.
    blocks: Vec<Vec<u32>>,
}

impl Partition {
    fn by_label(labels: &[u32]) -> Self {
        let mut nodes: Vec<u32> = (0..labels.len() as u32).collect();
        nodes.sort_by_key(|&node| labels[node as usize]);
        let blocks = nodes.chunk_by(|one, two| labels[*one as usize] == labels[*two as usize]);
        let mut partition = Self { block_of: vec![0; labels.len()], blocks: Vec::new() };
        for nodes in blocks {
            partition.add(nodes.to_vec());
        }
        partition
    }

    fn add(&mut self, nodes: Vec<u32>) {
        let block = self.blocks.len() as u32;
        nodes.iter().for_each(|&node| self.block_of[node as usize] = block);
        self.blocks.push(nodes);
    }

    /// Splits a block by where its nodes lead; returns the nodes that are in another block now.
    fn split(&mut self, block: u32, graph: &Graph) -> Vec<u32> {
        if self.blocks[block as usize].len() < 2 {
            return Vec::new();
        }
        let mut nodes = std::mem::take(&mut self.blocks[block as usize]);
        let place = |lead: &Lead| match lead {
            Lead::Node(node) => Lead::Node(self.block_of[*node as usize]),
            fixed @ Lead::Fixed(_) => *fixed,
        };
        let leads = |node: &u32| graph.leads(*node).iter().map(place);
        nodes.sort_by(|one, two| leads(one).cmp(leads(two)));
        let parts = nodes.chunk_by(|one, two| leads(one).eq(leads(two)));
        let ends = parts.scan(0, |end, part| {
            let start = *end;
            *end += part.len();
            Some(start..*end)
        });
        let parts: Vec<Range<usize>> = ends.collect();
        let largest = parts.iter().max_by_key(|part| part.len()).expect("there are nodes").clone();
        let mut moved = Vec::new();
        for part in parts.into_iter().filter(|part| *part != largest) {
            moved.extend_from_slice(&nodes[part.clone()]);
            self.add(nodes[part].to_vec());
        }
        self.blocks[block as usize] = nodes[largest].to_vec();
        moved
    }

    fn numbered(mut self) -> (Vec<u32>, u32) {
        let mut numbers = vec![u32::MAX; self.blocks.len()];
        let mut count = 0;
        for block in &mut self.block_of {
            let number = &mut numbers[*block as usize];
            if *number == u32::MAX {
                *number = count;
                count += 1;
            }
            *block = *number;
        }
        (self.block_of, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: &[(u32, &[Lead])]) -> Graph {
        let mut graph = Graph::default();
        for (label, leads) in nodes {
            graph.add(*label);
            leads.iter().for_each(|&lead| graph.lead(lead));
        }
        graph
    }

    #[test]
    fn what_a_chain_ends_in_tells_its_nodes_apart() {
        use Lead::{Fixed, Node};
        let chains = [
            (1, &[Node(1)][..]),
            (2, &[Fixed(7)]),
            (1, &[Node(3)]),
            (2, &[Fixed(8)]),
            (1, &[Node(5)]),
            (2, &[Fixed(7)]),
        ];
        assert_eq!(graph(&chains).partition(), (vec![0, 1, 2, 3, 0, 1], 4));
    }

    #[test]
    fn cycles_that_look_alike_are_equal() {
        use Lead::Node;
        // A cycle of one node, one of two, and one of two in which something else hangs.
        let cycles = [
            (1, &[Node(0)][..]),
            (1, &[Node(2)]),
            (1, &[Node(1)]),
            (1, &[Node(4)]),
            (1, &[Node(3), Lead::Fixed(0)]),
        ];
        assert_eq!(graph(&cycles).partition(), (vec![0, 0, 0, 1, 2], 3));
        assert_eq!(graph(&[]).partition(), (vec![], 0));
    }

    /// The definition itself, round by round.
    fn slow(graph: &Graph) -> (Vec<u32>, u32) {
        let mut blocks = graph.labels.clone();
        loop {
            let mut seen = Vec::new();
            let next: Vec<u32> = (0..blocks.len() as u32)
                .map(|node| {
                    let place = |lead: &Lead| match lead {
                        Lead::Node(node) => Lead::Node(blocks[*node as usize]),
                        Lead::Fixed(_) => *lead,
                    };
                    let leads: Vec<Lead> = graph.leads(node).iter().map(place).collect();
                    let signature = (blocks[node as usize], leads);
                    let known = seen.iter().position(|other| *other == signature);
                    known.unwrap_or_else(|| {
                        seen.push(signature);
                        seen.len() - 1
                    }) as u32
                })
                .collect();
            let count = |blocks: &[u32]| blocks.iter().max().map_or(0, |last| last + 1);
            if count(&next) == count(&blocks) && next == blocks {
                return (next.clone(), count(&next));
            }
            blocks = next;
        }
    }

    #[test]
    fn it_is_the_partition_that_the_definition_gives() {
        let mut state = 1_u32;
        let mut random = |end: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % end
        };
        for _ in 0..300 {
            let count = 1 + random(30);
            let mut graph = Graph::default();
            for _ in 0..count {
                graph.add(random(3));
                for _ in 0..random(3) {
                    let is_fixed = random(6) == 0;
                    graph.lead(if is_fixed {
                        Lead::Fixed(random(2))
                    } else {
                        Lead::Node(random(count))
                    });
                }
            }
            assert_eq!(graph.partition(), slow(&graph), "{graph:?}");
        }
    }
}
