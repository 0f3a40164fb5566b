//! Members of the kernel's special types (rule KO2): only their number and their tags.

use hashbrown::HashSet;

use super::{Finding, Problem, elements};
use crate::btf::kind::{Info, Kind, kind_of};
use crate::btf::read::Btf;

/// A struct can have one of these.
const LOCKS: [&[u8]; 2] = [b"bpf_spin_lock", b"bpf_res_spin_lock"];
/// A tag must say what is in one of these.
const ROOTS: [&[u8]; 2] = [b"bpf_list_head", b"bpf_rb_root"];

/// Checks all structs with special members.
pub(super) fn check(btf: &Btf<'_>, findings: &mut Vec<Finding>) {
    let mut contents = None;
    for (id, record) in btf.records() {
        if kind_of(record) != Kind::Struct {
            continue;
        }
        let count = |names: &[&[u8]]| special_members(btf, record, names).count();
        if count(&LOCKS) > 1 {
            findings.push(Problem::new("KO2", "more than one bpf_spin_lock").at(id));
        }
        if count(&ROOTS) == 0 {
            continue;
        }
        let contents = contents.get_or_insert_with(|| contents_of(btf));
        let mut roots = special_members(btf, record, &ROOTS);
        if roots.any(|member| !contents.contains(&(id, member))) {
            findings.push(Problem::new("KO2", "root without a `contains:` tag").at(id));
        }
    }
}

/// Indices of the members that are structs with one of these names.
fn special_members<'a>(
    btf: &'a Btf<'_>,
    record: &'a [u32],
    names: &'a [&[u8]],
) -> impl Iterator<Item = u32> + 'a {
    let is_special = move |member: &[u32]| {
        btf.kind(member[1]) == Some(Kind::Struct) && names.contains(&btf.name_of(member[1]))
    };
    (0..).zip(elements(record)).filter(move |(_, member)| is_special(member)).map(|entry| entry.0)
}

/// The members that have a tag which says what is in them.
fn contents_of(btf: &Btf<'_>) -> HashSet<(u32, u32)> {
    let tags = btf.records().filter(|(_, record)| {
        Info(record[1]).kind() == Some(Kind::DeclTag)
            && btf.name(record[0]).starts_with(b"contains:")
    });
    tags.map(|(_, record)| (record[2], record[3])).collect()
}
