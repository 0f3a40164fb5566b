//! Distilling: takes split BTF, gives a small base with only what the split part leans on, and the
//! split part on top of that (spec/btf-and-dedup 3.1). A module with such a pair can be used with
//! any kernel that still has those types.
//!
//! ```text
//! base   1 INT int   2 STRUCT device {17 members}   3 PTR -> 2   4 UNION {anonymous}   5 STRUCT unused
//! split  6 STRUCT mine { 3 parent; 4 either; 1 count }
//!
//! becomes
//!
//! base   1 INT int   2 STRUCT device, of the same size, without members
//! split  3 STRUCT mine { 4 parent; 5 either; 1 count }   4 PTR -> 2   5 UNION {anonymous}
//! ```
//!
//! What can be found again by its name stays in the base; what has none is copied into the split
//! part, and so are the links on the way to it. Both images are those of libbpf's
//! `btf__distill_base`, byte for byte.

use hashbrown::HashMap;

use crate::btf::kind::{Info, Kind, for_each_ref, kind_of, map_names, map_refs};
use crate::btf::read::Btf;
use crate::emit::{self, Format};

/// The two images that take the place of a split one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distilled {
    /// What goes into `.BTF.base`.
    pub base: Vec<u8>,
    /// What goes into `.BTF`, split on it.
    pub split: Vec<u8>,
}

/// Why split BTF cannot be distilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DistillError {
    /// It has no base (rule X1).
    #[error("only split BTF can be distilled, and this stands alone")]
    NotSplit,
    /// A kind that only the layout section knows: nothing says where its references are (rule Y4).
    #[error("type {id} is of unknown kind {kind}, so it cannot be moved")]
    UnknownKind {
        /// The type.
        id: u32,
        /// The number of its kind.
        kind: u32,
    },
    /// A reference to something in the base that is no type, such as the tag of a function that
    /// the base has (rule X3).
    #[error("type {id} refers to type {target} of the base, a {kind:?}, which cannot be distilled")]
    Unexpected {
        /// The type that refers.
        id: u32,
        /// What it refers to.
        target: u32,
        /// The kind of that.
        kind: Kind,
    },
    /// A named enumeration of the base of a size that no enumeration has.
    #[error("type {id} of the base is an enumeration of {size} bytes, which cannot be")]
    EnumSize {
        /// The enumeration.
        id: u32,
        /// Its size in bytes.
        size: u32,
    },
    /// Nothing refers to the base. The kernel miscounts on top of a base without types (rule X10).
    #[error("no type refers to the base, and the kernel does not take a base without types")]
    EmptyBase,
}

/// Distills a split image.
///
/// # Errors
/// See [`DistillError`].
pub fn distill(split: &Btf<'_>) -> Result<Distilled, DistillError> {
    if split.base().is_none() {
        return Err(DistillError::NotSplit);
    }
    if let Some((id, kind)) = split.first_unknown() {
        return Err(DistillError::UnknownKind { id, kind });
    }
    let used = used_base_types(split)?;
    let (kept, copied): (Vec<u32>, Vec<u32>) =
        used.into_iter().partition(|&id| place(split.record(id)) == Some(Place::Base));
    if kept.is_empty() {
        return Err(DistillError::EmptyBase);
    }
    if let Some(&id) = kept.iter().find(|&&id| is_odd_enum(split.record(id))) {
        return Err(DistillError::EnumSize { id, size: split.record(id)[2] });
    }
    let moved: Vec<u32> = (split.first_id()..split.end_id()).chain(copied).collect();
    Ok(write(split, &kept, &moved))
}

/// Where a type of the base goes (rule X4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Into the distilled base, as far as its name and size tell.
    Base,
    /// Into the split part, as a whole.
    Split,
}

/// Where a type of the base goes; `None` for what cannot be distilled.
fn place(record: &[u32]) -> Option<Place> {
    use Kind::{Array, Const, FuncProto, Ptr, Restrict, TypeTag, Typedef, Volatile};
    use Kind::{Datasec, DeclTag, Enum, Enum64, Float, Func, Fwd, Int, Struct, Union, Var};
    match kind_of(record) {
        Int | Float | Fwd => Some(Place::Base),
        Struct | Union | Enum | Enum64 if is_named(record) => Some(Place::Base),
        Struct | Union | Enum | Enum64 => Some(Place::Split),
        Array | Typedef | Ptr | Const | Restrict | Volatile | FuncProto | TypeTag => {
            Some(Place::Split)
        }
        Var | Datasec | Func | DeclTag => None,
    }
}

const fn is_named(record: &[u32]) -> bool {
    record[0] != 0
}

/// The types of the base that the split part leans on, in ascending order (rules X2, X3).
fn used_base_types(split: &Btf<'_>) -> Result<Vec<u32>, DistillError> {
    let mut is_used = vec![false; split.first_id() as usize];
    let mut open = Vec::new();
    for id in split.first_id()..split.end_id() {
        open.push(id);
        while let Some(id) = open.pop() {
            let mut unexpected = None;
            for_each_ref(split.record(id), |target| {
                // Void, which has no record, is in no base either.
                if target == 0 || target >= split.first_id() || is_used[target as usize] {
                    return;
                }
                let record = split.record(target);
                if place(record).is_none() {
                    let kind = kind_of(record);
                    unexpected.get_or_insert(DistillError::Unexpected { id, target, kind });
                    return;
                }
                is_used[target as usize] = true;
                if !keeps_members_out(record) {
                    open.push(target);
                }
            });
            unexpected.map_or(Ok(()), Err)?;
        }
    }
    let used = (0..).zip(is_used).filter(|&(_, is_used)| is_used);
    Ok(used.map(|(id, _)| id).collect())
}

fn is_odd_enum(record: &[u32]) -> bool {
    matches!(kind_of(record), Kind::Enum | Kind::Enum64) && !matches!(record[2], 1 | 2 | 4 | 8)
}

/// Whether what the type refers to is of no interest, because its members are not kept.
fn keeps_members_out(record: &[u32]) -> bool {
    is_named(record) && matches!(kind_of(record), Kind::Struct | Kind::Union)
}

/// Writes both images: `kept` of the base, and `moved` on top of it (rules X5 to X7).
fn write(split: &Btf<'_>, kept: &[u32], moved: &[u32]) -> Distilled {
    let mut new_ids = vec![0; split.end_id() as usize];
    for (new, &old) in (1..).zip(kept.iter().chain(moved)) {
        new_ids[old as usize] = new;
    }
    let mut strings = Strings::default();
    let mut base_words = Vec::new();
    for &id in kept {
        let start = base_words.len();
        base_words.extend(shell(split.record(id)));
        map_names(&mut base_words[start..], |name| strings.offset(split.name(name)));
    }
    let base_strings = strings.bytes.len();
    let mut words = Vec::new();
    for &id in moved {
        let start = words.len();
        words.extend_from_slice(split.record(id));
        map_refs(&mut words[start..], |target| new_ids[target as usize]);
        map_names(&mut words[start..], |name| strings.offset(split.name(name)));
    }
    let (base_strings, split_strings) = strings.bytes.split_at(base_strings);
    let format = Format { big_endian: split.is_big_endian(), ..Format::default() };
    Distilled {
        base: emit::image_of_words(&base_words, base_strings, format),
        split: emit::image_of_words(&words, split_strings, format),
    }
}

/// What the distilled base has of a type: an enumeration of any width becomes an ENUM.
fn shell(record: &[u32]) -> Vec<u32> {
    let without_elements = |kind| vec![record[0], Info::new(kind, 0, false).0, record[2]];
    match kind_of(record) {
        kind @ (Kind::Struct | Kind::Union) => without_elements(kind),
        Kind::Enum | Kind::Enum64 => without_elements(Kind::Enum),
        _ => record.to_vec(),
    }
}

/// The strings of both images, each once, in order of first use.
struct Strings<'a> {
    bytes: Vec<u8>,
    offsets: HashMap<&'a [u8], u32>,
}

impl Default for Strings<'_> {
    fn default() -> Self {
        Self { bytes: vec![0], offsets: HashMap::from_iter([(&b""[..], 0)]) }
    }
}

impl<'a> Strings<'a> {
    fn offset(&mut self, name: &'a [u8]) -> u32 {
        let Self { bytes, offsets } = self;
        *offsets.entry(name).or_insert_with(|| {
            let offset = bytes.len() as u32;
            bytes.extend_from_slice(name);
            bytes.push(0);
            offset
        })
    }
}
