//! Volatile operands: the addresses of a fragment's functions and variables. They move with every link,
//! so whoever keeps a fragment keeps where they stand in the unit, and reads them again from the file at
//! hand.
//!
//! ```text
//! operands ::= operand*                  of functions, then of variables, in the fragment's order
//! operand  ::= head:uleb [size:uleb]     size of an expression
//! head     ::= 0                         there is none: the address is 0
//!            | form in the low three bits, distance from the last place in the others, zigzag
//! ```

use super::masks::Masks;
use super::{KeyMaker, masking};
use crate::dwarf::cursor::Cursor;
use crate::fragment::{Addresses, FunctionUse, VariableUse, address_of};

/// An address in a unit, as the walk over it found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPlace {
    /// Offset in the unit of the DIE that has it.
    pub die: u32,
    /// Offset of the address.
    pub place: u32,
    /// How it is written.
    pub form: AddressForm,
}

/// How an address is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressForm {
    /// In place.
    Address,
    /// An index into `.debug_addr` of this many bytes, or ULEB128 if 0.
    Index(u8),
    /// An expression of this many bytes.
    Expression(u32),
}

impl AddressForm {
    const fn code(self) -> u64 {
        match self {
            Self::Address => 1,
            Self::Index(width) => 2 + width as u64,
            Self::Expression(_) => 7,
        }
    }
}

/// Where the addresses of a fragment stand, encoded. The bytes are for nobody but this module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operands(pub Vec<u8>);

impl Operands {
    /// Finds the addresses of `functions` and `variables`, which a fragment has, among those that the
    /// walk over its unit has found. `None` if one is not there.
    #[must_use]
    pub fn find(
        functions: &[FunctionUse],
        variables: &[VariableUse],
        found: &[AddressPlace],
    ) -> Option<Self> {
        let mut operands = Self::default();
        let mut last = 0;
        for function in functions {
            operands.push(find(found, function.die), &mut last);
        }
        for variable in variables {
            operands.push(Some(find(found, variable.die)?), &mut last);
        }
        Some(operands)
    }

    fn push(&mut self, address: Option<AddressPlace>, last: &mut u32) {
        let Some(AddressPlace { place, form, .. }) = address else {
            return self.uleb(0);
        };
        let distance = i64::from(place) - i64::from(*last);
        *last = place;
        let zigzag = (distance << 1 ^ distance >> 63) as u64;
        self.uleb(zigzag << 3 | form.code());
        if let AddressForm::Expression(size) = form {
            self.uleb(size.into());
        }
    }

    fn uleb(&mut self, value: u64) {
        let mut rest = value;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }
}

/// The address of the DIE at `die`. Of several the decoder takes the last one in place, else the last
/// one.
fn find(found: &[AddressPlace], die: u32) -> Option<AddressPlace> {
    let start = found.partition_point(|address| address.die < die);
    let here = found[start..].iter().take_while(|address| address.die == die);
    here.copied().max_by_key(|address| address.form == AddressForm::Address)
}

impl KeyMaker<'_> {
    /// Reads the addresses of a kept fragment from the unit at this place in the file: of all its
    /// functions, then of all its variables. `masks` are those of the fragment's unit. `None` if one
    /// is not there.
    #[must_use]
    pub fn read_operands(
        &self,
        unit: u32,
        bytes: &[u8],
        masks: &Masks,
        operands: &Operands,
    ) -> Option<Vec<u64>> {
        if self.sources.dwarf.elf.target().big_endian {
            self.read::<true>(unit, bytes, masks, operands)
        } else {
            self.read::<false>(unit, bytes, masks, operands)
        }
    }

    fn read<const BIG: bool>(
        &self,
        unit: u32,
        bytes: &[u8],
        masks: &Masks,
        operands: &Operands,
    ) -> Option<Vec<u64>> {
        let header = self.header(unit, bytes)?;
        let (places, _) = masks.read()?;
        let bases = masking::bases::<BIG>(header, bytes, places)?;
        let addresses = bases.addresses(self.sources.dwarf, header);
        let mut list = Cursor::<false>::new(&operands.0, 0);
        let mut values = Vec::new();
        let mut last = 0_i64;
        while list.position < operands.0.len() {
            let head = list.uleb().ok()?;
            if head == 0 {
                values.push(0);
                continue;
            }
            let zigzag = head >> 3;
            last += (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            let place = usize::try_from(last).ok()?;
            let size = if head & 7 == 7 { list.uleb().ok()? } else { 0 };
            values.push(value::<BIG>(bytes, place, head & 7, size, &addresses)?);
        }
        Some(values)
    }
}

fn value<const BIG: bool>(
    bytes: &[u8],
    place: usize,
    code: u64,
    size: u64,
    addresses: &Addresses<'_>,
) -> Option<u64> {
    let mut cursor = Cursor::<BIG>::new(bytes, place);
    match code {
        1 => cursor.unsigned(addresses.width).ok(),
        7 => {
            let end = place.checked_add(usize::try_from(size).ok()?)?;
            address_of::<BIG>(bytes.get(place..end)?, addresses)
        }
        index => {
            let width = (index - 2) as u8;
            let index = if width == 0 { cursor.uleb() } else { cursor.unsigned(width) };
            // What the decoder takes for the address of a function whose index leads nowhere.
            Some(addresses.get::<BIG>(index.ok()?).unwrap_or(0))
        }
    }
}
