//! Compares split BTF of ours with libbpf's, both upon one base, class by class.
//!
//! Types are compared with declarations completed: a reference to one leads to the definition of the
//! name if there is one. What the base has must not be in our split part, what it lacks must be there
//! once. libbpf must have all of that too. What it has besides are copies of such types, which rules
//! of spec/btf-and-dedup 2.5 must explain.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use btfcache::btf::kind::{Kind, map_refs};
use btfcache::btf::read::Btf;

use crate::libbpf;
use crate::ours::forward_key;
use crate::partition::{Node, Partition};
use crate::rules::{Key, definitions, describe, is_of_variable, key_of, references};
use crate::split::image_of;

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Surplus {
    /// Classes of types that both split parts have once.
    pub own: usize,
    /// Classes of types that the base has and neither repeats, though the module has them.
    pub shared: usize,
    /// Copies in libbpf's part of what is there already, because of a declaration in the base that
    /// the module defines (rule B4).
    pub after_contact: usize,
    /// Copies because of a typedef that the base has: a defect of older versions (rule B6).
    pub above_typedef: usize,
    /// Declarations that libbpf left because by those copies their name has two definitions, and
    /// copies of what leads to them.
    pub undecided: usize,
}

impl AddAssign for Surplus {
    fn add_assign(&mut self, other: Self) {
        self.own += other.own;
        self.shared += other.shared;
        self.after_contact += other.after_contact;
        self.above_typedef += other.above_typedef;
        self.undecided += other.undecided;
    }
}

/// Compares ours with libbpf's; ids from `first_own_id` on are not of the base.
///
/// # Errors
/// Says which class differs without excuse.
pub fn compare(first_own_id: u32, images: [&Btf<'_>; 2]) -> Result<Surplus, String> {
    let completed = images.map(completed);
    let [ours, theirs] = [&completed[0], &completed[1]]
        .map(|image| Btf::parse(image, None).expect("only references have changed"));
    let judge = Judge::new(first_own_id, images[1]);
    let mut surplus = Surplus::default();
    for members in Partition::new(&[&ours, &theirs]).members().into_iter().skip(1) {
        let own = members.iter().copied().filter(|node| node.1 >= first_own_id);
        let (ours, theirs): (Vec<Node>, Vec<Node>) = own.partition(|node| node.0 == 0);
        let is_in_base = ours.len() + theirs.len() < members.len();
        let (image, id) = members[0];
        let what = || {
            let (ours, theirs) = (ours.len(), theirs.len());
            let what = describe(images[image], id);
            format!("base {is_in_base}, ours {ours}, libbpf {theirs}: {what} in {image}")
        };
        if is_of_variable(images[image], id) {
            if ours.len() != theirs.len() {
                return Err(what());
            }
            continue;
        }
        let is_declaration = forward_key(images[image].record(id)).is_some();
        if is_declaration && !is_in_base && ours.is_empty() && judge.is_undecided(id) {
            surplus.undecided += theirs.len();
            continue;
        }
        let wanted = usize::from(!is_in_base);
        if ours.len() != wanted || theirs.len() < wanted {
            return Err(what());
        }
        if theirs.len() == wanted {
            *(if is_in_base { &mut surplus.shared } else { &mut surplus.own }) += 1;
        } else if judge.leads_to(theirs[0].1, |id| judge.is_completed(id)) {
            surplus.after_contact += theirs.len() - wanted;
        } else if judge.repeats_typedefs && judge.leads_to(theirs[0].1, |id| judge.is_typedef(id)) {
            surplus.above_typedef += theirs.len() - wanted;
        } else if judge.leads_to(theirs[0].1, |id| judge.is_undecided(id)) {
            surplus.undecided += theirs.len() - wanted;
        } else {
            return Err(what());
        }
    }
    Ok(surplus)
}

/// An image in which all references to a declaration lead to the first definition of the name.
fn completed(btf: &Btf<'_>) -> Vec<u8> {
    let mut definitions: BTreeMap<Key, u32> = BTreeMap::new();
    for (id, record) in btf.records() {
        if forward_key(record).is_none()
            && let Some(key) = key_of(btf, record)
        {
            definitions.entry(key).or_insert(id);
        }
    }
    let complete = |target: u32| {
        let record = btf.get(target).filter(|record| forward_key(record).is_some());
        let key = record.and_then(|record| key_of(btf, record));
        key.and_then(|key| definitions.get(&key).copied()).unwrap_or(target)
    };
    let mut words = Vec::new();
    for (_, record) in btf.records() {
        let mut record = record.to_vec();
        map_refs(&mut record, complete);
        words.extend(record);
    }
    image_of(&words, btf.strings(), btf.is_big_endian())
}

/// Knows why libbpf may have copies.
struct Judge<'a> {
    theirs: &'a Btf<'a>,
    /// Names that the base declares and the module defines.
    completed: BTreeSet<Key>,
    /// Names that libbpf left declared in the module although it has several definitions.
    undecided: BTreeSet<Key>,
    /// Typedefs of the base.
    typedefs: BTreeSet<&'a [u8]>,
    repeats_typedefs: bool,
}

impl<'a> Judge<'a> {
    fn new(first_own_id: u32, theirs: &'a Btf<'a>) -> Self {
        let (mut declared, mut defined) = (BTreeSet::new(), BTreeSet::new());
        let (mut left, mut typedefs) = (BTreeSet::new(), BTreeSet::new());
        for (id, record) in theirs.records() {
            let is_in_base = id < first_own_id;
            if let Some(key) = key_of(theirs, record) {
                match forward_key(record) {
                    Some(_) if is_in_base => _ = declared.insert(key),
                    Some(_) => _ = left.insert(key),
                    None if !is_in_base => _ = defined.insert(key),
                    _ => {}
                }
            } else if is_in_base && theirs.kind(id) == Some(Kind::Typedef) {
                typedefs.insert(theirs.name_of(id));
            }
        }
        let completed = declared.intersection(&defined).cloned().collect();
        left.retain(|key| definitions(theirs).get(key).is_some_and(|ids| ids.len() > 1));
        let repeats_typedefs = libbpf::repeats_typedefs();
        Self { theirs, completed, undecided: left, typedefs, repeats_typedefs }
    }

    fn is_completed(&self, id: u32) -> bool {
        key_of(self.theirs, self.theirs.record(id)).is_some_and(|key| self.completed.contains(&key))
    }

    /// Whether a type of the module is declared, and could be several definitions.
    fn is_undecided(&self, id: u32) -> bool {
        let record = self.theirs.record(id);
        let is_declaration = forward_key(record).is_some();
        is_declaration
            && key_of(self.theirs, record).is_some_and(|key| self.undecided.contains(&key))
    }

    fn is_typedef(&self, id: u32) -> bool {
        let is_typedef = self.theirs.kind(id) == Some(Kind::Typedef);
        is_typedef && self.typedefs.contains(self.theirs.name_of(id))
    }

    /// Whether a type is, or leads to, one that `is_cause`.
    fn leads_to(&self, id: u32, is_cause: impl Fn(u32) -> bool) -> bool {
        let (mut reached, mut waiting) = (BTreeSet::new(), vec![id]);
        while let Some(id) = waiting.pop() {
            if id == 0 || !reached.insert(id) {
                continue;
            }
            if is_cause(id) {
                return true;
            }
            waiting.extend(references(self.theirs.record(id)));
        }
        false
    }
}
