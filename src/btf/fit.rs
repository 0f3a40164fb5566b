//! Whether split BTF on a distilled base fits the BTF of a kernel: takes both, gives what the
//! kernel would refuse when the module is loaded (spec/btf-and-dedup 3.2).
//!
//! The kernel looks for each type of the distilled base, the *wanted* ones here, among its own, by
//! name, and by size where the size matters. It asks of each of its own types in order which wanted
//! ones it could be; a second candidate is an error. libbpf's `btf__relocate` is the same code.
//! Defects of it are judged as they are (rule R5), since the question is what happens, not what
//! should.

mod ends;
mod words;

use hashbrown::HashMap;

use super::kind::{Info, Kind, for_each_name};
use super::read::Btf;
use super::title::title;
use ends::Ends;

/// Something that keeps split BTF from fitting a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The type that it is about: of the split part for [`Reason::Name`], [`Reason::Unknown`] and
    /// [`Reason::Endless`], else of the distilled base; 0 for the base as a whole.
    pub id: u32,
    /// The type in words of C, such as ``struct `sock` ``.
    pub title: String,
    /// What is wrong with it.
    pub reason: Reason,
}

/// Why a type does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// There is no distilled base, or it has no type, on which the kernel miscounts (rule X10).
    NoTypes,
    /// A type without a name, which could never be found (rule R1).
    Nameless,
    /// A kind that a distilled base cannot have (rule R1).
    Kind,
    /// A kind that nobody knows the references of (rule Y4).
    Unknown,
    /// A member of a type that is made of itself, on which the kernel would hang.
    Endless,
    /// Two types of the base are as good (rule R6).
    Several([u32; 2]),
    /// No type of the base is good enough (rule R7); the nearest, if there is one of that name.
    Missing(Option<Near>),
    /// A name of the distilled base that no type of it has (rule R9).
    Name(String),
    /// So many types have the same names that the search was given up.
    Crowded,
}

/// A type of the base that has the wanted name, but is not it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Its id.
    pub id: u32,
    /// Its kind.
    pub kind: Kind,
    /// Why it is not the wanted one.
    pub why: Difference,
}

/// What keeps a type of the base from being the wanted one (rules R3 to R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It is of another kind.
    Kind,
    /// An integer of another encoding: signed, char or bool.
    Encoding,
    /// A definition of another size than the wanted one.
    Size {
        /// The size wanted, in bytes.
        wanted: u32,
        /// Its own.
        found: u32,
        /// Why the size matters.
        because: SizeMatters,
    },
    /// A definition that the kernel does not take for the declared type, because it asks whether
    /// the definition has bit fields, not whether it is a union (rule R5).
    BitFields,
}

/// Why the size of a type matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeMatters {
    /// It does for all types of the kind.
    Always,
    /// The base has several structs or unions of that name.
    Several,
    /// A struct of the split part has it as a member, not through a pointer (rule R2).
    Embedded,
}

/// Signed, char, bool: the part of an INT's last word that counts.
const ENCODING: u32 = 0x0f00_0000;
/// As many pairs of types of the same name are compared; a real module has a thousand.
const MAX_COMPARED: u32 = 50_000_000;

/// What keeps `split` from fitting `base` in place of the distilled base that it is on. Empty if it
/// fits.
#[must_use]
pub fn misfits(split: &Btf<'_>, base: &Btf<'_>) -> Vec<Misfit> {
    let Some(distilled) = split.base() else {
        return vec![Misfit::of_all(Reason::NoTypes)];
    };
    if let Some((id, _)) = split.first_unknown() {
        return vec![Misfit::new(split, id, Reason::Unknown)];
    }
    let mut misfits = faults(distilled);
    let embedded = embedded(split);
    misfits.extend(embedded.as_ref().err().cloned());
    if let (true, Ok(is_embedded)) = (misfits.is_empty(), embedded) {
        misfits = Search::new(distilled, base, is_embedded).misfits();
    }
    if misfits.is_empty() {
        misfits.extend(lost_name(split, distilled));
    }
    misfits
}

impl Misfit {
    fn new(btf: &Btf<'_>, id: u32, reason: Reason) -> Self {
        Self { id, title: title(btf, id), reason }
    }

    fn of_all(reason: Reason) -> Self {
        Self { id: 0, title: "the distilled base".to_owned(), reason }
    }
}

/// What keeps a distilled base from fitting any base: that it has no types (rule X10), or those it
/// cannot have (rule R1).
#[must_use]
pub fn faults(distilled: &Btf<'_>) -> Vec<Misfit> {
    if distilled.type_count() == 0 {
        return vec![Misfit::of_all(Reason::NoTypes)];
    }
    let reason = |record: &[u32]| match Info(record[1]).kind() {
        Some(kind) if !can_be_wanted(kind) => Some(Reason::Kind),
        _ if record[0] == 0 => Some(Reason::Nameless),
        _ => None,
    };
    let fault = |(id, record)| Some(Misfit::new(distilled, id, reason(record)?));
    distilled.records().filter_map(fault).collect()
}

const fn can_be_wanted(kind: Kind) -> bool {
    use Kind::{Enum, Float, Fwd, Int, Struct, Union};
    matches!(kind, Int | Float | Enum | Struct | Union | Fwd)
}

const fn is_composite(kind: Kind) -> bool {
    matches!(kind, Kind::Struct | Kind::Union)
}

/// Which types of the base the split part has members of, not through pointers (rule R2).
fn embedded(split: &Btf<'_>) -> Result<Vec<bool>, Misfit> {
    let mut ends = Ends::new(split);
    let mut is_embedded = vec![false; split.first_id() as usize];
    let is_composite = |id| split.kind(id).is_some_and(is_composite);
    for (id, record) in split.records().filter(|&(id, _)| is_composite(id)) {
        for member in record[3..].chunks_exact(Kind::Struct.element_words()) {
            let end = ends.of(member[1]).ok_or_else(|| Misfit::new(split, id, Reason::Endless))?;
            if end < split.first_id() && is_composite(end) {
                is_embedded[end as usize] = true;
            }
        }
    }
    Ok(is_embedded)
}

/// The search for the wanted types in the base.
struct Search<'a> {
    distilled: &'a Btf<'a>,
    base: &'a Btf<'a>,
    is_embedded: Vec<bool>,
    /// The wanted types of each name.
    wanted: HashMap<&'a [u8], Vec<u32>>,
    /// How many structs and unions of the base have the name at an offset.
    definitions: HashMap<u32, u32>,
    /// For each wanted type what was found for it.
    findings: Vec<Finding>,
}

/// What was found for a wanted type.
#[derive(Clone, Copy, Debug, Default)]
struct Finding {
    matches: [Option<u32>; 2],
    near: Option<Near>,
}

impl<'a> Search<'a> {
    fn new(distilled: &'a Btf<'_>, base: &'a Btf<'_>, is_embedded: Vec<bool>) -> Self {
        let mut wanted: HashMap<&[u8], Vec<u32>> = HashMap::new();
        for (id, record) in distilled.records() {
            wanted.entry(distilled.name(record[0])).or_default().push(id);
        }
        let mut definitions = HashMap::new();
        for (_, record) in base.records() {
            if Info(record[1]).kind().is_some_and(is_composite) {
                *definitions.entry(record[0]).or_default() += 1;
            }
        }
        let findings = vec![Finding::default(); distilled.end_id() as usize];
        Self { distilled, base, is_embedded, wanted, definitions, findings }
    }

    fn misfits(mut self) -> Vec<Misfit> {
        let mut budget = MAX_COMPARED;
        for (id, record) in self.base.records().filter(|(_, record)| record[0] != 0) {
            let Some(wanted) = self.wanted.get(self.base.name(record[0])) else {
                continue;
            };
            for &wanted in wanted {
                if budget == 0 {
                    return vec![Misfit::of_all(Reason::Crowded)];
                }
                budget -= 1;
                let difference = self.difference(wanted, record);
                self.findings[wanted as usize].add(id, record, difference);
            }
        }
        let reason = |id: u32| match self.findings[id as usize] {
            Finding { matches: [Some(first), Some(second)], .. } => {
                Some(Reason::Several([first, second]))
            }
            Finding { matches: [None, _], near } => Some(Reason::Missing(near)),
            Finding { .. } => None,
        };
        let misfit = |(id, _)| Some(Misfit::new(self.distilled, id, reason(id)?));
        self.distilled.records().filter_map(misfit).collect()
    }

    /// What keeps a type of the base, which has the wanted name, from being the wanted one.
    fn difference(&self, wanted: u32, found: &[u32]) -> Option<Difference> {
        let wanted_record = self.distilled.record(wanted);
        let (Some(wanted_kind), Some(kind)) =
            (Info(wanted_record[1]).kind(), Info(found[1]).kind())
        else {
            return Some(Difference::Kind);
        };
        let difference = kind_difference(wanted_kind, wanted_record, kind, found);
        if difference.is_some() || wanted_record[2] == found[2] {
            return difference;
        }
        let because = self.size_matters(wanted, kind, found)?;
        Some(Difference::Size { wanted: wanted_record[2], found: found[2], because })
    }

    /// Why the size of a type of the base matters, if it does (rules R2, R3).
    fn size_matters(&self, wanted: u32, kind: Kind, found: &[u32]) -> Option<SizeMatters> {
        match kind {
            Kind::Int | Kind::Float | Kind::Enum | Kind::Enum64 => Some(SizeMatters::Always),
            Kind::Struct | Kind::Union if self.definitions[&found[0]] > 1 => {
                Some(SizeMatters::Several)
            }
            // The mark of an embedded type gives way to the id of its match, so that the kernel
            // takes whatever comes later for another match, of whatever size.
            _ => {
                let is_open = self.findings[wanted as usize].matches[0].is_none();
                (is_open && self.is_embedded[wanted as usize]).then_some(SizeMatters::Embedded)
            }
        }
    }
}

/// The difference that is not one of size (rules R4, R5). For a wanted struct or union, any type
/// of that name that can be looked for is good enough.
fn kind_difference(
    wanted_kind: Kind,
    wanted: &[u32],
    kind: Kind,
    found: &[u32],
) -> Option<Difference> {
    use Kind::{Enum, Enum64, Float, Fwd, Int, Struct, Union};
    let flag = Info(found[1]).kflag();
    let demand = |holds: bool, difference| (!holds).then_some(difference);
    match (wanted_kind, kind) {
        (Int, Int) => demand((wanted[3] ^ found[3]) & ENCODING == 0, Difference::Encoding),
        (Float, Float) | (Enum, Enum | Enum64) => None,
        (Struct | Union, Int | Float | Enum | Enum64 | Fwd | Struct | Union) => None,
        (Fwd, Fwd) => demand(Info(wanted[1]).kflag() == flag, Difference::Kind),
        (Fwd, Struct) => demand(!flag, Difference::BitFields),
        (Fwd, Union) => demand(flag, Difference::BitFields),
        _ => Some(Difference::Kind),
    }
}

impl Finding {
    fn add(&mut self, id: u32, record: &[u32], difference: Option<Difference>) {
        let Some(why) = difference else {
            let place = usize::from(self.matches[0].is_some());
            self.matches[place].get_or_insert(id);
            return;
        };
        let is_nearer = self.near.is_none_or(|near| near.why == Difference::Kind);
        if let (true, Some(kind)) = (is_nearer, Info(record[1]).kind()) {
            self.near = Some(Near { id, kind, why });
        }
    }
}

/// The first name of the split part that is in the strings of the distilled base, but is not the
/// name of a type of it: nothing tells where it is in the other base (rule R9).
fn lost_name(split: &Btf<'_>, distilled: &Btf<'_>) -> Option<Misfit> {
    let mut known: Vec<u32> = distilled.records().map(|(_, record)| record[0]).collect();
    known.sort_unstable();
    split.records().find_map(|(id, record)| {
        let mut lost = None;
        for_each_name(record, |name| {
            let is_known = name == 0 || name >= split.first_string();
            if !is_known && known.binary_search(&name).is_err() {
                lost.get_or_insert(name);
            }
        });
        let name = String::from_utf8_lossy(split.name(lost?)).into_owned();
        Some(Misfit::new(split, id, Reason::Name(name)))
    })
}
