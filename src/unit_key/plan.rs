//! Which bytes of a DIE the key of its unit takes as they stand, and which are masked, by
//! abbreviation.
//!
//! Masked is what changes without changing the fragment: addresses, offsets into other sections, line
//! numbers. Strings and location lists are masked too, but what they lead to takes their place.
//! Whatever is not known to be volatile is taken as it stands.

use gimli::constants as dw;
use gimli::{DwAt, DwForm, DwTag};

use crate::dwarf::cursor::{Cursor, Eof};
use crate::dwarf::template::{
    AT_GNU_ANNOTATION, Class, DieKind, Encoding, Op, class_of, kind_of, op_of,
};

/// What is masked, and what takes its place. Zeros, which nothing takes the place of, can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Field {
    /// Nothing but the zeros.
    Zeros,
    /// An offset of four bytes into `.debug_str`: the string.
    String4,
    /// The same of eight bytes.
    String8,
    /// An offset of four bytes into `.debug_line_str`: the string.
    LineString4,
    /// The same of eight bytes.
    LineString8,
    /// An index into `.debug_str_offsets` as ULEB128: the string.
    Index,
    /// The same in one byte.
    Index1,
    /// In two.
    Index2,
    /// In three.
    Index3,
    /// In four.
    Index4,
    /// A LEB128 number: how long it is.
    Number,
    /// An index into `.debug_addr` as ULEB128: how long it is, and whether it leads anywhere.
    AddressIndex,
    /// A string in place: how long it is.
    InPlace,
    /// An offset of four bytes of the location list of a parameter: its operations.
    List4,
    /// The same of eight bytes.
    List8,
    /// An index of such a list as ULEB128: how long it is, and the operations.
    ListIndex,
}

impl Field {
    pub const ALL: [Self; 16] = [
        Self::Zeros,
        Self::String4,
        Self::String8,
        Self::LineString4,
        Self::LineString8,
        Self::Index,
        Self::Index1,
        Self::Index2,
        Self::Index3,
        Self::Index4,
        Self::Number,
        Self::AddressIndex,
        Self::InPlace,
        Self::List4,
        Self::List8,
        Self::ListIndex,
    ];

    const fn string(width: u8) -> Self {
        if width == 8 { Self::String8 } else { Self::String4 }
    }

    const fn line_string(width: u8) -> Self {
        if width == 8 { Self::LineString8 } else { Self::LineString4 }
    }

    const fn index(width: u8) -> Self {
        match width {
            1 => Self::Index1,
            2 => Self::Index2,
            3 => Self::Index3,
            4 => Self::Index4,
            _ => Self::Index,
        }
    }
}

/// What to do with the bytes behind those that are taken as they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Mask a field and as many bytes behind it.
    Mask(Field, u32),
    /// Mask the offset of a location list if the DIE is a parameter of a function, and as many bytes.
    List(Field, u32),
    /// Mask an offset that the unit's indices count from.
    Base(Base, u32),
    /// Mask the address of a function, and what zeros follow.
    Address(u32),
    /// Mask the address of a function, an index in so many bytes (0: ULEB128).
    AddressIndex(u8),
    /// Take a LEB128 number as it stands.
    Number,
    /// Take a string as it stands.
    InPlace,
    /// Take a block as it stands, whose length is a number of this many bytes (0: ULEB128).
    Block(u8),
    /// The same, but mask addresses in the expression that it is.
    Expression(u8),
    /// The same for the place of a variable.
    Place(u8),
    /// A reference of this many bytes (0: ULEB128) to an annotation: take it as it stands.
    Annotation(u8),
    /// Something that leads out of the unit: it has no key.
    Refuse,
}

/// What indices count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Strings,
    Addresses,
    Lists,
}

/// One thing to do after passing over `before` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub before: u32,
    pub action: Action,
}

/// One abbreviation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub kind: DieKind,
    pub has_children: bool,
    /// Range of its steps.
    pub steps: (u32, u32),
    /// Bytes after the last step.
    pub after: u32,
}

/// What attributes are volatile besides those that are by their form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Volatile {
    /// The names of units decide nothing.
    pub unit_names: bool,
}

impl Plan {
    /// Plans a declaration, its code left out. Appends to `steps`. `None` if no key can be made of
    /// units that use it.
    pub fn new(
        declaration: &[u8],
        encoding: Encoding,
        volatile: Volatile,
        steps: &mut Vec<Step>,
    ) -> Result<Option<Self>, Eof> {
        let mut cursor = Cursor::<false>::new(declaration, 0);
        let tag = DwTag(u16::try_from(cursor.uleb()?).unwrap_or(u16::MAX));
        let has_children = cursor.u8()? != 0;
        let kind = kind_of(tag);
        let first = steps.len();
        let mut kept = 0_u32;
        if kind == DieKind::Root && tag != dw::DW_TAG_compile_unit {
            steps.push(Step { before: 0, action: Action::Refuse });
        }
        loop {
            let attribute = DwAt(u16::try_from(cursor.uleb()?).unwrap_or(u16::MAX));
            let code = cursor.uleb()?;
            if code == u64::from(dw::DW_FORM_implicit_const.0) {
                cursor.sleb()?;
            }
            if attribute.0 == 0 && code == 0 {
                break;
            }
            let form = DwForm(u16::try_from(code).unwrap_or(0));
            let Some(op) = op_of(form, encoding) else {
                return Ok(None);
            };
            match treatment(kind, attribute, form, op, encoding, volatile) {
                Treatment::Keep(size) => kept = kept.saturating_add(size),
                Treatment::Act(action) => {
                    if kept > 0 || !joined(&mut steps[first..], action) {
                        steps.push(Step { before: kept, action });
                    }
                    kept = 0;
                }
            }
        }
        let steps = (first as u32, steps.len() as u32);
        Ok(Some(Self { kind, has_children, steps, after: kept }))
    }
}

/// Adds zeros to the step before them, if that is one which they can follow.
fn joined(steps: &mut [Step], action: Action) -> bool {
    let Action::Mask(Field::Zeros, more) = action else {
        return false;
    };
    let last = steps.last_mut().map(|step| &mut step.action);
    let (Some(Action::Mask(_, zeros) | Action::List(_, zeros)) | Some(Action::Address(zeros))) =
        last
    else {
        return false;
    };
    *zeros = zeros.saturating_add(more);
    true
}

enum Treatment {
    /// Take so many bytes as they stand.
    Keep(u32),
    Act(Action),
}

const fn zeros(size: u8) -> Treatment {
    Treatment::Act(Action::Mask(Field::Zeros, size as u32))
}

fn treatment(
    kind: DieKind,
    attribute: DwAt,
    form: DwForm,
    op: Op,
    encoding: Encoding,
    volatile: Volatile,
) -> Treatment {
    let class = class_of(form);
    let act = Treatment::Act;
    let is_list = kind == DieKind::Parameter && attribute == dw::DW_AT_location;
    let is_volatile_string = kind == DieKind::Root
        && (attribute == dw::DW_AT_comp_dir || volatile.unit_names && attribute == dw::DW_AT_name);
    if leads_elsewhere(kind, attribute) {
        return act(Action::Refuse);
    }
    match (class, op) {
        (Class::Address, Op::Unsigned(width)) if is_entry(kind, attribute) => {
            act(Action::Address(width.into()))
        }
        (Class::AddressIndex, Op::Unsigned(width)) if is_entry(kind, attribute) => {
            act(Action::AddressIndex(width))
        }
        (Class::AddressIndex, Op::Uleb) if is_entry(kind, attribute) => {
            act(Action::AddressIndex(0))
        }
        (Class::Address | Class::AddressIndex, Op::Unsigned(width)) => zeros(width),
        (Class::Offset, Op::Unsigned(width)) => match base_of(kind, attribute) {
            Some(base) => act(Action::Base(base, width.into())),
            None if is_list => list(width),
            None => zeros(width),
        },
        (Class::ListIndex, _) if is_list => act(Action::List(Field::ListIndex, 0)),
        (Class::AddressIndex | Class::ListIndex, _) => act(Action::Mask(Field::Number, 0)),
        (Class::Constant, Op::Unsigned(width @ (4 | 8))) if is_list => list(width),
        (Class::Constant, _) if is_list => act(Action::Refuse),
        (Class::Constant, Op::Unsigned(width)) if is_volatile(attribute) => zeros(width),
        (Class::Constant, Op::Uleb | Op::Sleb) if is_volatile(attribute) => {
            act(Action::Mask(Field::Number, 0))
        }
        (Class::String, Op::Strp(width) | Op::LineStrp(width)) if is_volatile_string => {
            zeros(width)
        }
        (Class::String, Op::Strx(width @ 1..)) if is_volatile_string => zeros(width),
        (Class::String, Op::Strx(_)) if is_volatile_string => act(Action::Mask(Field::Number, 0)),
        (Class::String, Op::String) if is_volatile_string => act(Action::Mask(Field::InPlace, 0)),
        (_, Op::Strp(width)) => act(Action::Mask(Field::string(width), 0)),
        (_, Op::LineStrp(width)) => act(Action::Mask(Field::line_string(width), 0)),
        (_, Op::Strx(width)) => act(Action::Mask(Field::index(width), 0)),
        (_, Op::String) => act(Action::InPlace),
        (_, Op::Block(width)) => act(match expression_of(kind, attribute, form, encoding) {
            Expression::None => Action::Block(width),
            Expression::Any => Action::Expression(width),
            Expression::Place => Action::Place(width),
        }),
        (
            _,
            Op::SectionReference(_)
            | Op::Signature
            | Op::AltReference(_)
            | Op::AltStrp(_)
            | Op::Indirect,
        ) => act(Action::Refuse),
        (_, Op::LocalReference(width)) if attribute == AT_GNU_ANNOTATION => {
            act(Action::Annotation(width))
        }
        (_, Op::LocalReferenceUleb) if attribute == AT_GNU_ANNOTATION => act(Action::Annotation(0)),
        (_, Op::Uleb | Op::Sleb | Op::LocalReferenceUleb) => act(Action::Number),
        (_, op) => Treatment::Keep(op.fixed_size().unwrap_or(0).into()),
    }
}

const fn list(width: u8) -> Treatment {
    let field = if width == 8 { Field::List8 } else { Field::List4 };
    Treatment::Act(Action::List(field, 0))
}

/// Whether the attribute says that the DIE is not all there is.
fn leads_elsewhere(kind: DieKind, attribute: DwAt) -> bool {
    kind == DieKind::Root && matches!(attribute, dw::DW_AT_dwo_name | dw::DW_AT_GNU_dwo_name)
}

/// Whether the attribute says where a function is.
fn is_entry(kind: DieKind, attribute: DwAt) -> bool {
    kind == DieKind::Subprogram && attribute == dw::DW_AT_low_pc
}

fn base_of(kind: DieKind, attribute: DwAt) -> Option<Base> {
    match attribute {
        _ if kind != DieKind::Root => None,
        dw::DW_AT_str_offsets_base => Some(Base::Strings),
        dw::DW_AT_addr_base | dw::DW_AT_GNU_addr_base => Some(Base::Addresses),
        dw::DW_AT_loclists_base => Some(Base::Lists),
        _ => None,
    }
}

/// Numbers that say where something is in the source, in the code or in another section, in whatever
/// form. Nothing of a fragment depends on them.
pub(super) const fn is_volatile(attribute: DwAt) -> bool {
    matches!(
        attribute,
        dw::DW_AT_decl_file
            | dw::DW_AT_decl_line
            | dw::DW_AT_decl_column
            | dw::DW_AT_call_file
            | dw::DW_AT_call_line
            | dw::DW_AT_call_column
            | dw::DW_AT_high_pc
            | dw::DW_AT_entry_pc
            | dw::DW_AT_ranges
            | dw::DW_AT_stmt_list
            | dw::DW_AT_macro_info
            // Where it is a number, it is an offset of a list (DWARF 2 and 3).
            | dw::DW_AT_location
            | dw::DW_AT_frame_base
    )
}

enum Expression {
    None,
    Any,
    /// That of the place of a variable.
    Place,
}

/// Whether a block is an expression whose addresses decide nothing.
fn expression_of(kind: DieKind, attribute: DwAt, form: DwForm, encoding: Encoding) -> Expression {
    match attribute {
        dw::DW_AT_location if kind == DieKind::Variable => Expression::Place,
        dw::DW_AT_location
        | dw::DW_AT_frame_base
        | dw::DW_AT_call_value
        | dw::DW_AT_call_data_value
        | dw::DW_AT_call_target
        | dw::DW_AT_call_origin
        | dw::DW_AT_GNU_call_site_value
        | dw::DW_AT_GNU_call_site_data_value
        | dw::DW_AT_GNU_call_site_target
            if form == dw::DW_FORM_exprloc || encoding.version < 4 =>
        {
            Expression::Any
        }
        _ => Expression::None,
    }
}
