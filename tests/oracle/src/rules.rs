//! What any deduplicator must obey (spec/btf-and-dedup 2.6), checked on our result: with the map
//! from input to output at hand each rule is a matter of looking.

use std::collections::{BTreeMap, BTreeSet};

use btfcache::btf::kind::{Kind, for_each_ref, kind_of, map_names, map_refs};
use btfcache::btf::read::Btf;
use btfcache::pool::{ClassId, Namespace};

use crate::ours::{Output, forward_key, key};
use crate::partition::Partition;

/// A named struct, union or enum.
pub type Key = (Namespace, Vec<u8>);

/// The input, what became of it, and how.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What went in, undeduplicated.
    pub input: &'a Btf<'a>,
    /// For each unit the id of its first type in the input.
    pub first_ids: &'a [u32],
    /// What came out, as an image.
    pub output: &'a Btf<'a>,
    /// What came out.
    pub ours: &'a Output,
    /// The first id, in input and output, that is not of a base.
    pub first_own_id: u32,
}

impl Case<'_> {
    /// Checks all rules but that of choices.
    ///
    /// # Errors
    /// Says which rule is broken, and where.
    pub fn check(&self) -> Result<(), String> {
        assert_eq!(self.ours.map.len(), self.input.end_id() as usize);
        for (id, record) in self.input.records() {
            self.check_record(id, record)?;
        }
        self.check_origin()?;
        self.check_completeness()?;
        self.check_forwards()
    }

    fn image(&self, id: u32) -> u32 {
        self.ours.map[id as usize]
    }

    /// D1 and D2: a type says what it said, and leads where what it led to went.
    fn check_record(&self, id: u32, record: &[u32]) -> Result<(), String> {
        let image = self.image(id);
        let found = self.output.get(image).ok_or(format!("D1: input {id} became {image}"))?;
        if forward_key(record).is_some() {
            let is_same_key = Self::key(self.input, record) == Self::key(self.output, found);
            return demand(is_same_key, || format!("D1: declaration {id} became {image}"));
        }
        let is_same = says(self.input, record) == says(self.output, found);
        demand(is_same, || format!("D1: input {id} became {image}, which says something else"))?;
        let targets: Vec<u32> =
            references(record).iter().map(|&target| self.image(target)).collect();
        let is_right = targets.len() == references(found).len()
            && targets
                .iter()
                .zip(references(found))
                .all(|(&target, found)| target == found || self.is_declared_in_base(found, target));
        demand(is_right, || {
            format!(
                "D2: input {id} became {image}, which leads to {:?}, not to {targets:?}",
                references(found)
            )
        })
    }

    /// Whether a type is a declaration in the base of what another one of the output defines.
    fn is_declared_in_base(&self, id: u32, definition: u32) -> bool {
        let [Some(record), Some(other)] = [id, definition].map(|id| self.output.get(id)) else {
            return false;
        };
        id < self.first_own_id
            && forward_key(record).is_some()
            && key_of(self.output, record) == key_of(self.output, other)
    }

    /// D3: nothing comes from nowhere.
    fn check_origin(&self) -> Result<(), String> {
        let images: BTreeSet<u32> = self.ours.map.iter().copied().collect();
        let stranger = (1..self.output.end_id()).find(|id| !images.contains(id));
        demand(stranger.is_none(), || format!("D3: output {stranger:?} comes from nowhere"))
    }

    /// D4 and D8: no two types are equal, unless both are in the base. A second round would change nothing.
    fn check_completeness(&self) -> Result<(), String> {
        for members in Partition::new(&[self.output]).members() {
            let has_own = members.iter().any(|node| node.1 >= self.first_own_id);
            let copies = has_own && members.len() > 1 && !is_of_variable(self.output, members[0].1);
            demand(!copies, || format!("D4: equal types {members:?}"))?;
        }
        Ok(())
    }

    /// D5: no declaration is left where there is just one definition, unless the declaration is in the
    /// base.
    fn check_forwards(&self) -> Result<(), String> {
        let definitions = definitions(self.output);
        for (id, record) in self.output.records() {
            if id >= self.first_own_id && forward_key(record).is_some() {
                let key = Self::key(self.output, record).expect("declarations have a name");
                let count = definitions.get(&key).map_or(0, BTreeSet::len);
                demand(count != 1, || format!("D5: declaration {id} has a definition"))?;
            }
        }
        Ok(())
    }

    /// Declarations of one name became the same in units that do not define it. If that is a
    /// definition, it is the one that most units have, on a tie the earliest; or else some type that
    /// became one with another leads to it there, and to a declaration here (the evidence rule). For
    /// a program without a base.
    ///
    /// # Errors
    /// Says what became of such a declaration.
    pub fn check_choices(&self) -> Result<(), String> {
        let mut choices: BTreeMap<Key, u32> = BTreeMap::new();
        for (id, record) in self.input.records() {
            if forward_key(record).is_none() {
                continue;
            }
            let key = Self::key(self.input, record).expect("declarations have a name");
            let image = self.image(id);
            if self.is_defined(self.unit(id), &key) {
                continue;
            }
            let choice = *choices.entry(key.clone()).or_insert(image);
            demand(choice == image, || format!("declarations became {choice} and {image}"))?;
            let is_definition = forward_key(self.output.record(image)).is_none();
            let is_right =
                !is_definition || self.is_best(&key, image) || self.has_evidence(&key, image);
            demand(is_right, || {
                format!("declaration {id} became {image}, which is not the most common")
            })?;
        }
        Ok(())
    }

    fn is_best(&self, wanted: &Key, image: u32) -> bool {
        // By class: the units that have it, and its first id.
        let mut classes: BTreeMap<ClassId, (BTreeSet<usize>, u32)> = BTreeMap::new();
        let mut chosen = None;
        for (id, record) in self.input.records() {
            let is_definition = forward_key(record).is_none();
            if !is_definition || Self::key(self.input, record).as_ref() != Some(wanted) {
                continue;
            }
            let class = self.ours.classes[id as usize].expect("units have classes");
            classes.entry(class).or_insert((BTreeSet::new(), id)).0.insert(self.unit(id));
            if self.image(id) == image {
                chosen = Some(class);
            }
        }
        let order = |(_, (units, first)): &(&ClassId, &(BTreeSet<usize>, u32))| {
            (std::cmp::Reverse(units.len()), *first)
        };
        let best = classes.iter().min_by_key(order).map(|entry| *entry.0);
        best.is_some() && best == chosen
    }

    /// Whether two types became one of which one leads to the definition that became `image`, the
    /// other to a declaration of the name.
    fn has_evidence(&self, wanted: &Key, image: u32) -> bool {
        let mut seen: BTreeMap<u32, [bool; 2]> = BTreeMap::new();
        for (id, record) in self.input.records() {
            let is_container =
                matches!(kind_of(record), Kind::Struct | Kind::Union | Kind::Typedef);
            if is_container {
                let found = seen.entry(self.image(id)).or_default();
                for target in self.named_targets(record, wanted) {
                    let is_declaration = forward_key(self.input.record(target)).is_some();
                    found[usize::from(is_declaration)] |= self.image(target) == image;
                }
            }
        }
        seen.values().any(|found| *found == [true; 2])
    }

    /// The types named `wanted` that a record leads to with nothing but references in between.
    fn named_targets(&self, record: &[u32], wanted: &Key) -> Vec<u32> {
        let (mut waiting, mut found) = (references(record), Vec::new());
        while let Some(id) = waiting.pop() {
            let Some(record) = self.input.get(id) else { continue };
            if key_of(self.input, record).as_ref() == Some(wanted) {
                found.push(id);
            } else if !matches!(kind_of(record), Kind::Struct | Kind::Union | Kind::Typedef) {
                waiting.extend(references(record));
            }
        }
        found
    }

    /// The unit that an input type is of, counted from 1.
    fn unit(&self, id: u32) -> usize {
        self.first_ids.partition_point(|&first| first <= id)
    }

    fn is_defined(&self, unit: usize, wanted: &Key) -> bool {
        let mut own = self.input.records().filter(|(id, _)| self.unit(*id) == unit);
        own.any(|(_, record)| {
            forward_key(record).is_none() && key_of(self.input, record).as_ref() == Some(wanted)
        })
    }

    fn key(btf: &Btf<'_>, record: &[u32]) -> Option<Key> {
        key_of(btf, record)
    }
}

/// What a record defines or declares.
#[must_use]
pub fn key_of(btf: &Btf<'_>, record: &[u32]) -> Option<Key> {
    key(record).map(|namespace| (namespace, btf.name(record[0]).to_vec()))
}

/// The ids of all definitions by name.
#[must_use]
pub fn definitions(btf: &Btf<'_>) -> BTreeMap<Key, BTreeSet<u32>> {
    let mut found: BTreeMap<Key, BTreeSet<u32>> = BTreeMap::new();
    for (id, record) in btf.records() {
        if forward_key(record).is_none()
            && let Some(key) = key_of(btf, record)
        {
            found.entry(key).or_default().insert(id);
        }
    }
    found
}

/// Whether it is a variable or the tag of one: those are never merged.
#[must_use]
pub fn is_of_variable(btf: &Btf<'_>, id: u32) -> bool {
    match btf.kind(id) {
        Some(Kind::Var) => true,
        Some(Kind::DeclTag) => btf.kind(btf.record(id)[2]) == Some(Kind::Var),
        _ => false,
    }
}

/// What a record refers to.
#[must_use]
pub fn references(record: &[u32]) -> Vec<u32> {
    let mut references = Vec::new();
    for_each_ref(record, |target| references.push(target));
    references
}

/// A record without references, and its names.
fn says(btf: &Btf<'_>, record: &[u32]) -> (Vec<u32>, Vec<Vec<u8>>) {
    let mut words = record.to_vec();
    let mut names = Vec::new();
    map_refs(&mut words, |_| 0);
    map_names(&mut words, |name| {
        names.push(btf.name(name).to_vec());
        0
    });
    (words, names)
}

fn demand(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// One line about a type.
#[must_use]
pub fn describe(btf: &Btf<'_>, id: u32) -> String {
    let Some(record) = btf.get(id) else {
        return "void".to_owned();
    };
    let name = String::from_utf8_lossy(btf.name_of(id));
    format!("[{id}] {:?} '{name}' -> {:?}", kind_of(record), references(record))
}
