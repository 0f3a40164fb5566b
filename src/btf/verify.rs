//! What the kernel demands of BTF beyond what any reader does (spec/btf-and-dedup section 4).
//!
//! The rules are those of `BPF_BTF_LOAD`, the strictest way in. The kernel applies only some of
//! them to its own and to modules' BTF, but all that those have obey all of them, so that any
//! finding is a mistake of an encoder. A split image is judged as the continuation of its base
//! (rule P3), whose own faults are not reported again.
//!
//! Unlike the kernel this goes on after a finding, and says nothing about what depends on a type
//! that already has one. It takes time linear in the image, and never recurses.

mod member;
mod record;
mod resolve;
mod special;

use std::borrow::Cow;

pub use record::is_identifier;

use super::kind::{Info, Kind};
use super::read::{Btf, Section};

/// Something the kernel would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The type that is wrong, or 0 for the image as a whole.
    pub id: u32,
    /// The rule of the specification.
    pub rule: &'static str,
    /// What the kernel would say.
    pub message: Cow<'static, str>,
}

/// A rule that something breaks, and what the kernel says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    rule: &'static str,
    message: Cow<'static, str>,
}

impl Problem {
    const fn new(rule: &'static str, message: &'static str) -> Self {
        Self { rule, message: Cow::Borrowed(message) }
    }

    fn at(self, id: u32) -> Finding {
        Finding { id, rule: self.rule, message: self.message }
    }
}

/// Returns the problem with this message unless `holds`.
fn demand(holds: bool, rule: &'static str, message: &'static str) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err(Problem::new(rule, message)) }
}

/// Largest type id in a reference, and largest number of types.
const MAX_ID: u32 = 0xf_ffff;
/// Largest offset of a name.
const MAX_NAME: u32 = 0xff_ffff;
/// Largest image.
const MAX_IMAGE: usize = 16 << 20;
/// Modifiers that follow each other.
const MAX_CHAIN: usize = 32;

/// Checks an image against the kernel's rules; returns all findings, those of the image first,
/// then those of single records, then those of how they refer to each other.
#[must_use]
pub fn verify(btf: &Btf<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        image_problems(btf).into_iter().map(|problem| problem.at(0)).collect();
    for (id, words) in btf.records() {
        findings.extend(record::check(btf, words).err().map(|problem| problem.at(id)));
    }
    if btf.first_unknown().is_none() {
        let failed = resolve::check(btf, &mut findings);
        chains(btf, &failed, &mut findings);
        special::check(btf, &mut findings);
    }
    findings
}

/// Checks an image that is split on a distilled base, whose structs have no members that a tag could
/// be about (rule X4).
#[must_use]
pub fn verify_on_distilled(btf: &Btf<'_>) -> Vec<Finding> {
    let mut findings = verify(btf);
    findings.retain(|found| {
        found.rule != resolve::COMPONENT_RULE || btf.record(found.id)[2] >= btf.first_id()
    });
    findings
}

/// The first type that is out of the order that kernels from 7.2 on take for granted in their own
/// BTF (rule KO3): types without a name first, then by name.
#[must_use]
pub fn first_unsorted(btf: &Btf<'_>) -> Option<u32> {
    let mut last: &[u8] = b"";
    for (id, words) in btf.records() {
        let name = btf.name(words[0]);
        if name < last {
            return Some(id);
        }
        last = name;
    }
    None
}

/// Rules of 4.1 and 4.2 that the reader does not demand.
fn image_problems(btf: &Btf<'_>) -> Vec<Problem> {
    let header = btf.header();
    let is_alone = btf.base().is_none();
    let strings = header.strings.length;
    let mut problems = Vec::new();
    let mut check = |holds, rule, message| problems.extend(demand(holds, rule, message).err());
    check(header.image_size <= MAX_IMAGE, "KH1", "BTF is larger than 16 MiB");
    check(!header.has_unknown_fields, "KH4", "Unsupported btf_header");
    check(gap(btf).is_none(), "KS1", "Unsupported section found");
    check(strings <= MAX_NAME + 1, "KS5", "Invalid string section");
    check(header.types.length != 0 || !is_alone, "KS8", "No type found");
    check(btf.end_id() - 1 <= MAX_ID, "KO6", "Too many BTF types");
    problems
}

/// The section before which there is a gap, or the last one if bytes remain after it.
fn gap(btf: &Btf<'_>) -> Option<Section> {
    let header = btf.header();
    let mut end = 0;
    for (section, extent) in [
        (Section::Types, header.types),
        (Section::Layout, header.layout),
        (Section::Strings, header.strings),
    ] {
        let is_absent = section == Section::Layout && extent.length == 0;
        if !is_absent && u64::from(extent.start) != end {
            return Some(section);
        }
        end += u64::from(extent.length);
    }
    let space = (header.image_size - header.size as usize) as u64;
    (end != space).then_some(Section::Strings)
}

/// Rule KO1, and that a TYPE_TAG comes before all other modifiers of its chain: the kernel finds
/// tags right behind a pointer only.
fn chains(btf: &Btf<'_>, failed: &resolve::Failed, findings: &mut Vec<Finding>) {
    for (id, _) in btf.records() {
        if is_modifier(btf.kind(id)) && !failed.has(id) {
            findings.extend(check_chain(btf, id).err().map(|problem| problem.at(id)));
        }
    }
}

/// Follows a chain up to a modifier with a lower id: what comes after that was checked before.
fn check_chain(btf: &Btf<'_>, id: u32) -> Result<(), Problem> {
    let (mut link, mut links) = (id, 0);
    let mut may_be_tag = true;
    while is_modifier(btf.kind(link)) {
        demand(links < MAX_CHAIN, "KO1", "Max chain length or cycle detected")?;
        let is_tag = btf.kind(link) == Some(Kind::TypeTag);
        demand(may_be_tag || !is_tag, "KO1", "Type tags don't precede modifiers")?;
        if link < id {
            break;
        }
        may_be_tag = is_tag;
        links += 1;
        link = btf.record(link)[2];
    }
    Ok(())
}

const fn is_modifier(kind: Option<Kind>) -> bool {
    use Kind::{Const, Restrict, TypeTag, Typedef, Volatile};
    matches!(kind, Some(Typedef | Const | Volatile | Restrict | TypeTag))
}

/// The elements of a record: members, parameters or entries.
fn elements(record: &[u32]) -> impl Iterator<Item = &[u32]> {
    let kind = Info(record[1]).kind();
    let width = kind.map_or(0, Kind::element_words).max(1);
    let start = 3 + kind.map_or(0, Kind::info_words);
    record[start..].chunks_exact(width)
}

/// Whole bytes that hold so many bits.
const fn bytes_of(bits: u32) -> u32 {
    bits.div_ceil(8)
}

/// Whether an INT has one of the sizes that C has, and no bits before it (rule KR3).
fn is_regular(int: &[u32]) -> bool {
    let word = int[3];
    word >> 16 & 0xff == 0 && matches!(word & 0xff, 8 | 16 | 32 | 64 | 128)
}
