//! Compares our result with libbpf's, type by type.
//!
//! A type that only one of them has, or that libbpf has twice, is a disagreement unless a rule of
//! spec/btf-and-dedup says that libbpf errs there. Each excuse holds only for programs made to have
//! what it is about, and only for types that lead there; each use is counted.

use std::collections::BTreeSet;

use btfcache::btf::kind::{Kind, kind_of};
use btfcache::btf::read::Btf;

use crate::ours::forward_key;
use crate::partition::{Node, Partition};
use crate::rules::{Key, definitions, describe, is_of_variable, key_of, references};
use crate::types::Traits;

/// Why libbpf's result may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excuse {
    /// Rules G4 and L8, and the order dependence of 2.3: a declaration of a name with several
    /// definitions goes to the one that libbpf met first, ours to the most common one.
    Ambiguity,
    /// Rule G7: arrays of equal length count as equal where libbpf compares types of one unit.
    EqualArrays,
    /// Rule G8: libbpf keeps copies of types that a unit repeats, and of what leads to them; then
    /// a declaration has two definitions to choose from, and stays.
    Repeats,
    /// Rule G9: a declaration stays one if a struct and a union have the name.
    Clash,
    /// Rule L7: an enum with neither name nor values becomes any other without name.
    EmptyEnum,
}

/// All excuses.
pub const EXCUSES: [Excuse; 5] =
    [Excuse::Ambiguity, Excuse::EqualArrays, Excuse::Repeats, Excuse::Clash, Excuse::EmptyEnum];

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Classes of types that both have.
    pub agreed: usize,
    /// For each of [`EXCUSES`], how many classes differ by it.
    pub excused: [usize; EXCUSES.len()],
    /// Declarations of names with several definitions that stayed: in neither result, in ours only,
    /// in libbpf's only, in both.
    pub declarations: [usize; 4],
    /// What differs and cannot be excused.
    pub disagreements: Vec<String>,
}

/// Compares two results for one input.
#[must_use]
pub fn compare(traits: Traits, input: &Btf<'_>, ours: &Btf<'_>, theirs: &Btf<'_>) -> Verdict {
    let images = [ours, theirs];
    let judge = Judge { traits, images, suspects: Suspects::new(traits, input, images) };
    let mut verdict = Verdict::default();
    for key in &judge.suspects.ambiguous {
        let stays = images.map(|btf| usize::from(is_declared(btf, key)));
        verdict.declarations[stays[0] + 2 * stays[1]] += 1;
    }
    for members in Partition::new(&images).members().into_iter().skip(1) {
        match judge.difference(&members) {
            None => verdict.agreed += 1,
            Some(Ok(excuse)) => verdict.excused[excuse as usize] += 1,
            Some(Err(disagreement)) => verdict.disagreements.push(disagreement),
        }
    }
    verdict
}

struct Judge<'a> {
    traits: Traits,
    images: [&'a Btf<'a>; 2],
    suspects: Suspects,
}

impl Judge<'_> {
    /// How a class differs, if it does.
    fn difference(&self, members: &[Node]) -> Option<Result<Excuse, String>> {
        let ours = members.iter().filter(|node| node.0 == 0).count();
        let theirs = members.len() - ours;
        let (image, id) = members[0];
        let is_variable = is_of_variable(self.images[image], id);
        if ours == theirs && (ours == 1 || is_variable) {
            return None;
        }
        let excuse = match (ours, theirs) {
            // Types that we have twice are our fault, whatever libbpf does.
            (2.., _) if !is_variable => None,
            (1, 2..) if self.traits.has_repeats => Some(Excuse::Repeats),
            _ => self.excuse(image, id),
        };
        Some(excuse.ok_or_else(|| {
            let what = describe(self.images[image], id);
            format!("ours {ours}, libbpf {theirs}: {what} in {image}")
        }))
    }

    /// The first excuse for a type that only one has, or libbpf twice.
    fn excuse(&self, image: usize, id: u32) -> Option<Excuse> {
        let btf = self.images[image];
        let reached = reachable(btf, id);
        let leads_to = |keys: &BTreeSet<Key>| {
            reached
                .iter()
                .any(|&id| key_of(btf, btf.record(id)).is_some_and(|key| keys.contains(&key)))
        };
        let suspects = &self.suspects;
        if leads_to(&suspects.ambiguous) {
            Some(Excuse::Ambiguity)
        } else if leads_to(&suspects.repeated) {
            Some(Excuse::Repeats)
        } else if leads_to(&suspects.clashes) {
            Some(Excuse::Clash)
        } else if reached.iter().any(|&id| suspects.is_nameless_enum(btf, id)) {
            Some(Excuse::EmptyEnum)
        } else if reached.iter().any(|&id| suspects.is_equal_array(btf, id)) {
            Some(Excuse::EqualArrays)
        } else {
            None
        }
    }
}

/// What excuses are about.
struct Suspects {
    /// Names with several definitions of which some unit has none.
    ambiguous: BTreeSet<Key>,
    /// Declared names of which libbpf kept two equal definitions, so that it left declarations.
    repeated: BTreeSet<Key>,
    /// Names of structs and unions that are declared, and stand for both.
    clashes: BTreeSet<Key>,
    /// Whether there are enums with neither name nor value.
    has_empty_enums: bool,
    /// Lengths that arrays of different elements have.
    equal_arrays: BTreeSet<u32>,
}

impl Suspects {
    fn new(traits: Traits, input: &Btf<'_>, images: [&Btf<'_>; 2]) -> Self {
        let declared: BTreeSet<Key> = input
            .records()
            .filter(|(_, record)| forward_key(record).is_some())
            .filter_map(|(_, record)| key_of(input, record))
            .collect();
        let mut several: BTreeSet<Key> = images
            .iter()
            .flat_map(|btf| definitions(btf))
            .filter(|(_, ids)| ids.len() > 1)
            .map(|(key, _)| key)
            .collect();
        several.retain(|key| declared.contains(key));
        let mut suspects = Self {
            ambiguous: BTreeSet::new(),
            repeated: BTreeSet::new(),
            clashes: BTreeSet::new(),
            has_empty_enums: traits.has_empty_enums,
            equal_arrays: BTreeSet::new(),
        };
        if traits.is_ambiguous && traits.has_forwards {
            suspects.ambiguous = several;
        } else if traits.has_repeats {
            suspects.repeated = several;
        }
        if traits.has_clashes {
            suspects.clashes = clashes(images[0], &declared);
        }
        if traits.has_equal_arrays {
            suspects.equal_arrays = equal_arrays(images[0]);
        }
        suspects
    }

    fn is_nameless_enum(&self, btf: &Btf<'_>, id: u32) -> bool {
        let is_enum = matches!(btf.kind(id), Some(Kind::Enum | Kind::Enum64));
        self.has_empty_enums && is_enum && btf.name_of(id).is_empty()
    }

    fn is_equal_array(&self, btf: &Btf<'_>, id: u32) -> bool {
        let record = btf.record(id);
        kind_of(record) == Kind::Array && self.equal_arrays.contains(&record[5])
    }
}

/// Whether a declaration of this name is left.
fn is_declared(btf: &Btf<'_>, key: &Key) -> bool {
    let mut declarations = btf.records().filter(|(_, record)| forward_key(record).is_some());
    declarations.any(|(_, record)| key_of(btf, record).as_ref() == Some(key))
}

/// Declared structs and unions whose names both a struct and a union have.
fn clashes(btf: &Btf<'_>, declared: &BTreeSet<Key>) -> BTreeSet<Key> {
    use btfcache::pool::Namespace::{Struct, Union};
    let definitions = definitions(btf);
    let is_clash = |(namespace, name): &&Key| {
        let has = |namespace| definitions.contains_key(&(namespace, name.clone()));
        matches!(namespace, Struct | Union) && has(Struct) && has(Union)
    };
    declared.iter().filter(is_clash).cloned().collect()
}

/// Lengths that several arrays have.
fn equal_arrays(btf: &Btf<'_>) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    let arrays = btf.records().filter(|(_, record)| kind_of(record) == Kind::Array);
    arrays.map(|(_, record)| record[5]).filter(|&length| !seen.insert(length)).collect()
}

/// All that a type leads to, and itself.
fn reachable(btf: &Btf<'_>, id: u32) -> BTreeSet<u32> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![id];
    while let Some(id) = waiting.pop() {
        if id != 0 && reached.insert(id) {
            waiting.extend(references(btf.record(id)));
        }
    }
    reached
}
