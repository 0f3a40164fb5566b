//! Where the masked fields of a unit are: what makes its key again without looking at its DIEs.
//!
//! ```text
//! masks ::= base base base mask*
//! base  ::= uleb                       place in the unit of an offset that indices count from, or 0
//! mask  ::= gap:uleb head:u8 [zeros:uleb]
//! head  ::= field in the low half, zeros in the high half (15: they follow)
//! ```
//! A gap counts bytes from the end of the mask before.

use super::plan::Field;
use crate::dwarf::cursor::Cursor;

/// More zeros than this do not fit into the head.
const MANY: u32 = 15;

/// The masks of a unit, encoded. The bytes are for nobody but this module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masks(pub Vec<u8>);

/// Where the offsets are that indices of a unit count from; 0 if it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BasePlaces {
    pub strings: u32,
    pub addresses: u32,
    pub lists: u32,
}

/// One masked field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask {
    /// Bytes since the last one.
    pub gap: u32,
    pub field: Field,
    /// Bytes behind the field that are masked, too.
    pub zeros: u32,
}

impl Masks {
    /// Starts a list.
    pub(super) fn start(&mut self, bases: BasePlaces) {
        self.0.clear();
        for place in [bases.strings, bases.addresses, bases.lists] {
            self.uleb(place);
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, mask: Mask) {
        self.uleb(mask.gap);
        let zeros = mask.zeros.min(MANY);
        self.0.push(mask.field as u8 | (zeros as u8) << 4);
        if zeros == MANY {
            self.uleb(mask.zeros);
        }
    }

    #[inline(always)]
    fn uleb(&mut self, value: u32) {
        let mut rest = value;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    /// Reads the list.
    pub(super) fn read(&self) -> Option<(BasePlaces, Reader<'_>)> {
        let mut reader = Reader(Cursor::new(&self.0, 0));
        let bases = BasePlaces {
            strings: reader.uleb()?,
            addresses: reader.uleb()?,
            lists: reader.uleb()?,
        };
        Some((bases, reader))
    }
}

/// Reads masks one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(Cursor<'a, false>);

impl Reader<'_> {
    #[inline(always)]
    fn uleb(&mut self) -> Option<u32> {
        self.0.uleb().ok().and_then(|value| u32::try_from(value).ok())
    }

    /// Whether all were read.
    #[inline(always)]
    pub fn at_end(&self) -> bool {
        self.0.position >= self.0.bytes.len()
    }

    /// The next one.
    #[inline(always)]
    pub fn next(&mut self) -> Option<Mask> {
        let gap = self.uleb()?;
        let head = self.0.u8().ok()?;
        let zeros = match u32::from(head >> 4) {
            MANY => self.uleb()?,
            few => few,
        };
        Some(Mask { gap, field: Field::ALL[usize::from(head & 15)], zeros })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_come_back() {
        let bases = BasePlaces { strings: 200, addresses: 0, lists: 70_000 };
        let mut masks = Masks::default();
        masks.start(bases);
        let mut expected = Vec::new();
        for (index, &field) in Field::ALL.iter().enumerate() {
            for zeros in [0, 1, 14, 15, 16, u32::MAX] {
                let mask = Mask { gap: (index as u32).pow(7), field, zeros };
                masks.push(mask);
                expected.push(mask);
            }
        }
        let (found, mut reader) = masks.read().unwrap();
        assert_eq!(found, bases);
        for mask in expected {
            assert_eq!(reader.next(), Some(mask));
        }
        assert!(reader.at_end());
        assert!(Masks(vec![0, 0]).read().is_none());
        let cut = Masks(vec![0, 0, 0, 0x80]);
        let (_, mut cut) = cut.read().unwrap();
        assert_eq!(cut.next(), None);
    }
}
