//! Addresses and section offsets in location expressions.

use gimli::constants as dw;
use gimli::{EndianSlice, Expression, RunTimeEndian};

use super::plan::Field;
use crate::dwarf::location::gimli_encoding;
use crate::dwarf::template::Encoding;

/// Finds what is volatile in an expression and hands out place, field and zeros of each. What follows
/// damage is left as it stands.
pub(super) fn addresses(
    bytes: &[u8],
    encoding: Encoding,
    is_big_endian: bool,
    mut mask: impl FnMut(usize, Field, u32) -> Option<()>,
) -> Option<()> {
    if !bytes.iter().any(|&byte| operand_of(byte, encoding).is_some()) {
        return Some(());
    }
    let endian = if is_big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
    let expression = Expression(EndianSlice::new(bytes, endian));
    let mut operations = expression.operations(gimli_encoding(encoding));
    let mut place = 0;
    while let Some(&opcode) = bytes.get(place) {
        let Ok(Some(_)) = operations.next() else {
            break;
        };
        if let Some((field, zeros)) = operand_of(opcode, encoding) {
            mask(place + 1, field, zeros)?;
        }
        place = operations.offset_from(&expression);
    }
    Some(())
}

/// How the first operand of an operation is masked.
const fn operand_of(opcode: u8, encoding: Encoding) -> Option<(Field, u32)> {
    let zeros = match dw::DwOp(opcode) {
        dw::DW_OP_addr => encoding.address_size,
        dw::DW_OP_addrx | dw::DW_OP_GNU_addr_index => return Some((Field::AddressIndex, 0)),
        dw::DW_OP_implicit_pointer | dw::DW_OP_GNU_implicit_pointer if encoding.version <= 2 => {
            encoding.address_size
        }
        dw::DW_OP_implicit_pointer
        | dw::DW_OP_GNU_implicit_pointer
        | dw::DW_OP_call_ref
        | dw::DW_OP_GNU_variable_value => encoding.offset_size,
        _ => return None,
    };
    Some((Field::Zeros, zeros as u32))
}
