//! Which types of several BTF images are equal: what they say and all that they lead to.

use btfcache::btf::kind::{for_each_ref, map_names, map_refs};
use btfcache::btf::read::Btf;
use hashbrown::HashMap;

/// A type of an image: number of the image, id.
pub type Node = (usize, u32);

/// The coarsest partition of the types of all images in which equal types lead to equal types.
#[derive(Clone, Debug)]
pub struct Partition {
    /// For each image and id the class; void is class 0.
    classes: Vec<Vec<u32>>,
    count: usize,
}

impl Partition {
    /// Refines "says the same" by "leads to the same" until nothing changes.
    #[must_use]
    pub fn new(images: &[&Btf<'_>]) -> Self {
        let mut partition = Self::by_label(images);
        loop {
            let refined = partition.refined(images);
            if refined.count == partition.count {
                return partition;
            }
            partition = refined;
        }
    }

    /// The class of a type.
    #[must_use]
    pub fn class(&self, (image, id): Node) -> u32 {
        self.classes[image][id as usize]
    }

    /// By class its types, in order of images and ids. The first is void.
    #[must_use]
    pub fn members(&self) -> Vec<Vec<Node>> {
        let mut members = vec![Vec::new(); self.count];
        for (image, classes) in self.classes.iter().enumerate() {
            for (id, &class) in (0..).zip(classes) {
                members[class as usize].push((image, id));
            }
        }
        members
    }

    fn by_label(images: &[&Btf<'_>]) -> Self {
        let mut labels: HashMap<Vec<u32>, u32> = HashMap::new();
        labels.insert(Vec::new(), 0);
        let mut names = HashMap::new();
        let mut class = |btf: &Btf<'_>, record: &[u32]| {
            let label = label(btf, record, &mut names);
            let next = labels.len() as u32;
            *labels.entry(label).or_insert(next)
        };
        let mut classes = Vec::new();
        for &btf in images {
            let own = btf.records().map(|(_, record)| class(btf, record));
            classes.push(std::iter::once(0).chain(own).collect());
        }
        Self { classes, count: labels.len() }
    }

    fn refined(&self, images: &[&Btf<'_>]) -> Self {
        let mut signatures: HashMap<Vec<u32>, u32> = HashMap::new();
        signatures.insert(vec![0], 0);
        let mut classes = Vec::new();
        for (image, btf) in images.iter().enumerate() {
            let mut own = vec![0];
            for (id, record) in btf.records() {
                let mut signature = vec![self.class((image, id))];
                for_each_ref(record, |target| signature.push(self.class((image, target))));
                let next = signatures.len() as u32;
                own.push(*signatures.entry(signature).or_insert(next));
            }
            classes.push(own);
        }
        Self { classes, count: signatures.len() }
    }
}

/// What a record says besides references, with equal numbers for equal names.
fn label(btf: &Btf<'_>, record: &[u32], names: &mut HashMap<Vec<u8>, u32>) -> Vec<u32> {
    let mut label = record.to_vec();
    map_refs(&mut label, |_| 0);
    map_names(&mut label, |name| {
        let next = names.len() as u32;
        *names.entry_ref(btf.name(name)).or_insert(next)
    });
    label
}
