//! Whether a struct is packed, which DWARF does not say: inferred from where its members lie
//! (spec/encoding 2.5).

use std::collections::BTreeMap;

use super::local::{Local, Shape, TypeIndex};
use crate::btf::kind::Info;
use crate::dwarf::location::Passing;
use crate::dwarf::template::DieKind;

/// Structs nest in each other at most this deep before damage is assumed.
const MAX_NESTING: u32 = 32;

/// What was found out about types of the unit at hand. Each is looked at once, so that structs
/// that nest in many ways, or are asked about for many parameters, cost no more than they are long.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    packed: BTreeMap<TypeIndex, bool>,
    alignments: BTreeMap<TypeIndex, u64>,
}

impl Layouts {
    /// Forgets the last unit.
    pub fn reset(&mut self) {
        self.packed.clear();
        self.alignments.clear();
    }
}

/// Whether `index` is a named struct or class that has no hole or padding, but members or a size
/// off their natural alignment.
pub(super) fn is_packed(local: &Local, index: TypeIndex, passing: &Passing) -> bool {
    let known = local.layouts.borrow().packed.get(&index).copied();
    known.unwrap_or_else(|| {
        let is_packed = lies_packed(local, index, passing);
        local.layouts.borrow_mut().packed.insert(index, is_packed);
        is_packed
    })
}

fn lies_packed(local: &Local, index: TypeIndex, passing: &Passing) -> bool {
    let ty = local.types[index as usize];
    if !matches!(ty.kind, DieKind::Struct | DieKind::Class) || ty.shape != Shape::Members {
        return false;
    }
    let record = local.record(ty);
    if record[0] == 0 {
        return false;
    }
    let mask = if Info(record[1]).kflag() { 0xff_ffff } else { u32::MAX };
    let mut end = 0_u64;
    let mut largest = 1;
    let mut is_unaligned = false;
    for member in record[3..].chunks_exact(3) {
        let bit_offset = u64::from(member[2] & mask);
        let bits = match member[2] >> 24 {
            width if Info(record[1]).kflag() && width != 0 => u64::from(width),
            _ => size_of(local, member[1], passing, 0).saturating_mul(8),
        };
        if bit_offset > end {
            return false;
        }
        end = end.max(bit_offset.saturating_add(bits));
        let alignment = alignment_of(local, member[1], passing, 0);
        largest = largest.max(alignment);
        is_unaligned |= bit_offset / 8 % alignment != 0;
    }
    let has_padding = end < u64::from(ty.size) * 8;
    !has_padding && (is_unaligned || u64::from(ty.size) % largest != 0)
}

/// Size in bytes of the type at `offset`, all dimensions of an array included.
pub(super) fn size_of(local: &Local, offset: u32, passing: &Passing, depth: u32) -> u64 {
    let Some(index) = local.strip(offset).filter(|_| depth < MAX_NESTING) else {
        return 0;
    };
    let ty = local.types[index as usize];
    match ty.kind {
        DieKind::Pointer | DieKind::Reference => u64::from(passing.address_size),
        DieKind::Array => {
            let words = local.record(ty);
            let element = size_of(local, words[3], passing, depth + 1);
            words[4..].iter().fold(element, |size, &count| size.saturating_mul(u64::from(count)))
        }
        _ => u64::from(ty.size),
    }
}

fn alignment_of(local: &Local, offset: u32, passing: &Passing, depth: u32) -> u64 {
    let Some(index) = local.strip(offset).filter(|_| depth < MAX_NESTING) else {
        return 1;
    };
    let known = local.layouts.borrow().alignments.get(&index).copied();
    known.unwrap_or_else(|| {
        let alignment = natural_alignment(local, index, passing, depth);
        local.layouts.borrow_mut().alignments.insert(index, alignment);
        alignment
    })
}

fn natural_alignment(local: &Local, index: TypeIndex, passing: &Passing, depth: u32) -> u64 {
    let ty = local.types[index as usize];
    let natural = match ty.kind {
        DieKind::Pointer | DieKind::Reference => u64::from(passing.address_size),
        DieKind::Base | DieKind::Enumeration => u64::from(ty.size),
        DieKind::Array => alignment_of(local, local.record(ty)[3], passing, depth + 1),
        DieKind::Struct | DieKind::Class | DieKind::Union if ty.shape == Shape::Members => {
            let members = local.record(ty)[3..].chunks_exact(3);
            let alignments =
                members.map(|member| alignment_of(local, member[1], passing, depth + 1));
            alignments.max().unwrap_or(1)
        }
        _ => 1,
    };
    natural.max(1)
}
