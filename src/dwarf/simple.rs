//! The short way to read a DIE of the common shape: where its few values lie is known beforehand, so
//! that all of them are in one window of bytes, whose bounds are checked once.

use super::template::{DieKind, Op, Slot, Step};
use crate::btf::kind::{Info, Kind};

/// Values begin in the first so many bytes of a window, a power of two.
const REACH: usize = 32;
/// Bytes of a window: the widest value may begin in the last place.
pub const WINDOW: usize = REACH + 8;

/// A DIE that has nothing of interest but a name, a type and one number, the name first and all
/// else of fixed width: most members, enumerators, typedefs, pointers and prototypes.
#[derive(Clone, Copy, Debug)]
pub struct Simple {
    /// How the name is written.
    pub name: SimpleName,
    /// Whether there is a number.
    pub has_number: bool,
    /// Place in the window of an [`SimpleName::Offset`].
    name_at: u8,
    /// Place of the type reference.
    type_at: u8,
    /// Place of the number.
    number_at: u8,
    /// Bytes of the number, 0 if it does not stand in the DIE.
    number_width: u8,
    /// All ones if there is a type.
    type_mask: u32,
    /// Ones where the number has bits.
    number_mask: u64,
    /// The number that all DIEs of the abbreviation have, or 0.
    number: u64,
    /// Bytes before a name in place. The window starts behind it.
    pub before_name: u32,
    /// Bytes from the start of the window to the end of the DIE's attributes.
    pub size: u32,
    /// Second word of the BTF record if the type is no more than a reference, else 0.
    pub reference_info: u32,
}

/// How the name of a [`Simple`] DIE is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimpleName {
    /// There is none.
    Absent,
    /// A four-byte offset into `.debug_str`.
    Offset,
    /// In place.
    InPlace,
}

impl Simple {
    /// The short way for DIEs with these steps, `after` which come that many bytes, if there is one.
    pub(super) fn of(
        kind: DieKind,
        has_children: bool,
        steps: &[Step],
        after: u32,
    ) -> Option<Self> {
        let mut simple = Self {
            name: SimpleName::Absent,
            has_number: false,
            name_at: 0,
            type_at: 0,
            number_at: 0,
            number_width: 0,
            type_mask: 0,
            number_mask: 0,
            number: 0,
            before_name: 0,
            size: 0,
            reference_info: if has_children { 0 } else { reference_info(kind) },
        };
        for (index, step) in steps.iter().enumerate() {
            let at = simple.size.checked_add(step.before)?;
            simple.size = at.checked_add(u32::from(step.op.fixed_size().unwrap_or(0)))?;
            let place = (at < REACH as u32).then_some(at as u8);
            match (step.slot?, step.op) {
                (Slot::Name, Op::Strp(4)) if index == 0 => {
                    (simple.name, simple.name_at) = (SimpleName::Offset, place?);
                }
                (Slot::Name, Op::String) if index == 0 => {
                    (simple.name, simple.before_name) = (SimpleName::InPlace, step.before);
                    simple.size = 0;
                }
                (Slot::Type, Op::LocalReference(4)) => {
                    (simple.type_at, simple.type_mask) = (place?, u32::MAX);
                }
                (
                    Slot::MemberLocation | Slot::ConstValue | Slot::ByteSize | Slot::UpperBound,
                    op,
                ) if !simple.has_number => {
                    simple.has_number = true;
                    match op {
                        Op::Preset => simple.number = step.value as u64,
                        Op::Unsigned(width @ 1..=8) => {
                            (simple.number_at, simple.number_width) = (place?, width);
                            simple.number_mask = u64::MAX >> (64 - 8 * u32::from(width));
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        simple.size = simple.size.checked_add(after)?;
        Some(simple)
    }

    /// The offset of the name.
    #[inline(always)]
    pub(super) fn name_in<const BIG: bool>(&self, window: &[u8; WINDOW]) -> u32 {
        word::<BIG>(window, self.name_at)
    }

    /// The type reference, or 0.
    #[inline(always)]
    pub(super) fn type_in<const BIG: bool>(&self, window: &[u8; WINDOW]) -> u32 {
        word::<BIG>(window, self.type_at) & self.type_mask
    }

    /// The number, or 0.
    #[inline(always)]
    pub(super) fn number_in<const BIG: bool>(&self, window: &[u8; WINDOW]) -> u64 {
        let bytes = bytes(window, self.number_at);
        let word = if BIG {
            u64::from_be_bytes(bytes).rotate_left(8 * u32::from(self.number_width))
        } else {
            u64::from_le_bytes(bytes)
        };
        word & self.number_mask | self.number
    }
}

#[inline(always)]
fn word<const BIG: bool>(window: &[u8; WINDOW], place: u8) -> u32 {
    let bytes = bytes(window, place);
    if BIG { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The bytes at `place`, which is below [`REACH`]; that the compiler can see it makes every check
/// of bounds go away.
#[inline(always)]
fn bytes<const N: usize>(window: &[u8; WINDOW], place: u8) -> [u8; N] {
    let start = usize::from(place) % REACH;
    window[start..start + N].try_into().expect("as many bytes as were asked for")
}

/// Second word of the BTF record of a kind of type that only refers to another; 0 for the rest.
fn reference_info(kind: DieKind) -> u32 {
    let btf_kind = match kind {
        DieKind::Pointer | DieKind::Reference => Kind::Ptr,
        DieKind::Const => Kind::Const,
        DieKind::Volatile => Kind::Volatile,
        DieKind::Restrict => Kind::Restrict,
        DieKind::Typedef => Kind::Typedef,
        _ => return 0,
    };
    Info::new(btf_kind, 0, false).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(before: u32, op: Op, slot: Slot) -> Step {
        Step { before, op, slot: Some(slot), value: 0 }
    }

    #[test]
    fn values_of_every_width_in_both_byte_orders() {
        let mut window = [0; WINDOW];
        window.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
        for (width, little, big) in [(1, 6, 6), (2, 0x0706, 0x0607), (4, 0x0908_0706, 0x0607_0809)]
        {
            let steps = [
                step(1, Op::LocalReference(4), Slot::Type),
                step(0, Op::Unsigned(width), Slot::MemberLocation),
            ];
            let simple = Simple::of(DieKind::Member, false, &steps, 3).unwrap();
            assert_eq!(simple.number_in::<false>(&window), little);
            assert_eq!(simple.number_in::<true>(&window), big);
            assert_eq!(simple.type_in::<false>(&window), 0x0504_0302);
            assert_eq!(simple.type_in::<true>(&window), 0x0203_0405);
            assert_eq!(simple.size, 1 + 4 + u32::from(width) + 3);
        }
    }

    #[test]
    fn values_out_of_reach_or_of_other_shapes_are_read_the_long_way() {
        let of = |steps: &[Step]| Simple::of(DieKind::Member, false, steps, 0);
        assert!(of(&[step(31, Op::Unsigned(8), Slot::ByteSize)]).is_some());
        assert!(of(&[step(32, Op::Unsigned(8), Slot::ByteSize)]).is_none());
        assert!(of(&[step(0, Op::Uleb, Slot::ByteSize)]).is_none());
        let number = step(0, Op::Unsigned(1), Slot::ByteSize);
        assert!(of(&[number, number]).is_none());
        assert!(of(&[number, step(0, Op::Strp(4), Slot::Name)]).is_none());
    }
}
