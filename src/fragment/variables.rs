//! Variables that could be emitted: everything that does not depend on where they were linked to
//! (spec/encoding 5.3). Sections and symbols decide the rest: see `select`.

use super::VariableUse;
use super::classes::Classes;
use super::local::Local;
use super::packed::size_of;
use super::walk::Addresses;
use crate::dwarf::cursor::Cursor;
use crate::dwarf::location::Passing;
use crate::names::{NameId, Names};

/// Names that are generated in numbers and help nobody (5.3 rule 6).
const USELESS_PREFIXES: [&[u8]; 5] = [
    b"__UNIQUE_ID",
    b"__tpstrtab_",
    b"__exitcall_",
    b"__gendwarfksyms_ptr_",
    b"__func_stack_frame_non_standard_",
];

/// Collects the variables of a unit in DIE order.
pub(super) fn collect(
    local: &Local,
    classes: &Classes,
    names: &Names,
    passing: &Passing,
    uses: &mut Vec<VariableUse>,
) {
    for variable in local.variables_here() {
        let specification =
            (variable.specification != 0).then(|| local.variable_at(variable.specification));
        let specification = specification.flatten();
        if variable.is_declaration && specification.is_none() {
            continue;
        }
        if !variable.is_top_level || variable.is_artificial {
            continue;
        }
        let Some(address) = variable.address else {
            continue;
        };
        // Name, type and linkage come from the declaration (5.5).
        let described = specification.unwrap_or(variable);
        if described.name.is_none() || is_useless(names, described.name) {
            continue;
        }
        let (first_tag, tags_end) = described.tags;
        let tags = &local.tags[first_tag as usize..tags_end as usize];
        uses.push(VariableUse {
            name: described.name,
            ty: classes.resolve(local, described.ty),
            is_external: described.is_external,
            size: size_of(local, described.ty, passing, 0),
            tags: tags.iter().map(|tag| tag.value).collect(),
            address,
            die: variable.offset,
        });
    }
}

fn is_useless(names: &Names, name: NameId) -> bool {
    let mut buffer = [0; 4];
    let bytes = names.bytes(name, &mut buffer);
    bytes.first() == Some(&b'_') && USELESS_PREFIXES.iter().any(|prefix| bytes.starts_with(prefix))
}

/// The address that a location expression gives: `DW_OP_addr` or `DW_OP_addrx` as first
/// operation, with an offset if the expression is exactly that (LLVM's GlobalMerge, 5.3 rule 4).
pub(crate) fn address_of<const BIG: bool>(
    expression: &[u8],
    addresses: &Addresses<'_>,
) -> Option<u64> {
    let mut cursor = Cursor::<BIG>::new(expression, 0);
    let address = match gimli::DwOp(cursor.u8().ok()?) {
        gimli::DW_OP_addr => cursor.unsigned(addresses.width).ok()?,
        gimli::DW_OP_addrx | gimli::DW_OP_GNU_addr_index => {
            addresses.get::<BIG>(cursor.uleb().ok()?)?
        }
        _ => return None,
    };
    let mut rest = cursor;
    let offset = match rest.u8().map(gimli::DwOp) {
        Ok(gimli::DW_OP_plus_uconst) => rest.uleb().ok(),
        _ => None,
    };
    let is_whole = rest.position == expression.len();
    Some(address.wrapping_add(offset.filter(|_| is_whole).unwrap_or(0)))
}
