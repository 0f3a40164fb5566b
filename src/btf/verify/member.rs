//! Where members may lie in their struct (rules KR5, KR6).

use super::{Problem, bytes_of, demand, is_regular};
use crate::btf::kind::Kind;

const EXCEEDS: &str = "Member exceeds struct_size";
const UNALIGNED: &str = "Member is not byte aligned";
const FIELD_SIZE: &str = "Invalid member bitfield_size";
/// Bits that the kernel copies at once.
const MAX_COPY: u32 = 128;
/// Bits that the kernel takes an enumeration in a struct with bitfields to have.
const ENUM_BITS: u32 = 32;

/// A member, its type followed to something with a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    /// Size of the struct in bytes.
    pub(super) struct_size: u32,
    /// The third word of the member.
    pub(super) offset: u32,
    /// The kind of its type.
    pub(super) kind: Kind,
    /// The record of its type.
    pub(super) ty: &'a [u32],
    /// Size of its type in bytes.
    pub(super) size: u32,
    /// Size of pointers.
    pub(super) pointer_size: u32,
}

impl Member<'_> {
    /// Checks the member of a struct with bitfields, or one without.
    pub(super) fn check(self, has_bitfields: bool) -> Result<(), Problem> {
        if !has_bitfields {
            return self.check_plain();
        }
        match self.kind {
            Kind::Int => self.check_int_field(),
            Kind::Enum | Kind::Enum64 => self.check_enum_field(),
            _ => {
                demand(self.field_size() == 0, "KR6", FIELD_SIZE)?;
                self.check_plain()
            }
        }
    }

    const fn field_offset(self) -> u32 {
        self.offset & 0xff_ffff
    }

    const fn field_size(self) -> u32 {
        self.offset >> 24
    }

    fn check_plain(self) -> Result<(), Problem> {
        match self.kind {
            Kind::Int => self.check_int(),
            Kind::Float => self.check_float(),
            _ => {
                demand(self.offset.is_multiple_of(8), "KR5", UNALIGNED)?;
                self.fits(u64::from(self.size))
            }
        }
    }

    fn check_int(self) -> Result<(), Problem> {
        let word = self.ty[3];
        let start = self.offset.checked_add(word >> 16 & 0xff);
        let start = start.ok_or(Problem::new("KR5", "bits_offset exceeds U32_MAX"))?;
        self.copies("KR5", start, word & 0xff)
    }

    fn check_float(self) -> Result<(), Problem> {
        let alignment = self.pointer_size.min(self.size).max(1) * 8;
        demand(self.offset.is_multiple_of(alignment), "KR5", "Member is not properly aligned")?;
        self.fits(u64::from(self.size))
    }

    /// So many bytes at the member's byte lie within the struct.
    fn fits(self, size: u64) -> Result<(), Problem> {
        let end = u64::from(self.offset / 8) + size;
        demand(end <= u64::from(self.struct_size), "KR5", EXCEEDS)
    }

    /// The bytes with these bits lie within the struct.
    fn copies(self, rule: &'static str, start: u32, bits: u32) -> Result<(), Problem> {
        let copied = bits + start % 8;
        demand(copied <= MAX_COPY, rule, "nr_copy_bits exceeds 128")?;
        let end = u64::from(start / 8) + u64::from(bytes_of(copied));
        demand(end <= u64::from(self.struct_size), rule, EXCEEDS)
    }

    fn check_int_field(self) -> Result<(), Problem> {
        let (start, int_bits) = (self.field_offset(), self.ty[3] & 0xff);
        demand(is_regular(self.ty), "KR6", "Invalid member base type")?;
        demand(self.field_size() <= int_bits, "KR6", FIELD_SIZE)?;
        if self.field_size() != 0 {
            return self.copies("KR6", start, self.field_size());
        }
        demand(start.is_multiple_of(8), "KR6", "Invalid member offset")?;
        self.copies("KR6", start, int_bits)
    }

    fn check_enum_field(self) -> Result<(), Problem> {
        let (start, mut bits) = (self.field_offset(), self.field_size());
        if bits == 0 {
            demand(start.is_multiple_of(8), "KR6", UNALIGNED)?;
            bits = ENUM_BITS;
        }
        demand(bits <= ENUM_BITS, "KR6", FIELD_SIZE)?;
        demand(bytes_of(start + bits) <= self.struct_size, "KR6", EXCEEDS)
    }
}
