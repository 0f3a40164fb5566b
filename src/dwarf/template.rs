//! Abbreviations, compiled: for each a short list of steps that pulls out the attributes that BTF
//! depends on and passes over everything else.
//!
//! Most DIEs of a kernel have only fixed-width attributes, so that a run of uninteresting ones is
//! one addition. What is interesting depends on the tag ([`slot_of`]). The walk must agree with
//! gimli's reading of every DIE; `tests/suites/dwarf.rs` checks that on a real kernel.

use gimli::constants as dw;
use gimli::{DwAt, DwForm, DwTag};

use super::cursor::{Cursor, Eof};
use super::simple::Simple;

/// What the walk does with a DIE. Tags that it treats alike share a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DieKind {
    /// `DW_TAG_compile_unit` and the other roots.
    Root,
    /// `DW_TAG_base_type`.
    Base,
    /// `DW_TAG_pointer_type`.
    Pointer,
    /// `DW_TAG_reference_type`, `DW_TAG_rvalue_reference_type`, `DW_TAG_ptr_to_member_type`.
    Reference,
    /// `DW_TAG_const_type`.
    Const,
    /// `DW_TAG_volatile_type`.
    Volatile,
    /// `DW_TAG_restrict_type`.
    Restrict,
    /// `DW_TAG_atomic_type` and other qualifiers that BTF cannot express.
    Transparent,
    /// `DW_TAG_typedef`.
    Typedef,
    /// `DW_TAG_array_type`.
    Array,
    /// `DW_TAG_subrange_type`.
    Subrange,
    /// `DW_TAG_structure_type`.
    Struct,
    /// `DW_TAG_class_type`, `DW_TAG_interface_type`.
    Class,
    /// `DW_TAG_union_type`.
    Union,
    /// `DW_TAG_enumeration_type`.
    Enumeration,
    /// `DW_TAG_enumerator`.
    Enumerator,
    /// `DW_TAG_subroutine_type`.
    SubroutineType,
    /// `DW_TAG_string_type`, `DW_TAG_set_type`, `DW_TAG_file_type`: BTF knows no such type.
    Opaque,
    /// `DW_TAG_unspecified_type`.
    Unspecified,
    /// `DW_TAG_member`.
    Member,
    /// `DW_TAG_inheritance`.
    Inheritance,
    /// `DW_TAG_formal_parameter`.
    Parameter,
    /// `DW_TAG_unspecified_parameters`.
    UnspecifiedParameters,
    /// `DW_TAG_subprogram`.
    Subprogram,
    /// `DW_TAG_variable`.
    Variable,
    /// `DW_TAG_lexical_block`, `DW_TAG_inlined_subroutine`: code that may hold types.
    Block,
    /// `DW_TAG_namespace`, `DW_TAG_module`.
    Namespace,
    /// `DW_TAG_LLVM_annotation`.
    Annotation,
    /// `DW_TAG_GNU_annotation`.
    GnuAnnotation,
    /// `DW_TAG_imported_unit`.
    ImportedUnit,
    /// Anything else: passed over with its children.
    Other,
}

impl DieKind {
    /// A struct, class or union.
    #[inline]
    #[must_use]
    pub const fn has_members(self) -> bool {
        matches!(self, Self::Struct | Self::Class | Self::Union)
    }

    /// A type that C refers to by kind and name.
    #[inline]
    #[must_use]
    pub const fn is_nominal(self) -> bool {
        self.has_members() || matches!(self, Self::Enumeration)
    }
}

/// `DW_TAG_GNU_annotation` (gcc 16), not in gimli.
const GNU_ANNOTATION: DwTag = DwTag(0x6001);
/// `DW_AT_GNU_annotation` (gcc 16), not in gimli.
pub(crate) const AT_GNU_ANNOTATION: DwAt = DwAt(0x2139);
/// `DW_TAG_LLVM_annotation`.
const LLVM_ANNOTATION: DwTag = DwTag(0x6000);

pub(crate) fn kind_of(tag: DwTag) -> DieKind {
    match tag {
        dw::DW_TAG_compile_unit
        | dw::DW_TAG_partial_unit
        | dw::DW_TAG_type_unit
        | dw::DW_TAG_skeleton_unit => DieKind::Root,
        dw::DW_TAG_base_type => DieKind::Base,
        dw::DW_TAG_pointer_type => DieKind::Pointer,
        dw::DW_TAG_reference_type
        | dw::DW_TAG_rvalue_reference_type
        | dw::DW_TAG_ptr_to_member_type => DieKind::Reference,
        dw::DW_TAG_const_type => DieKind::Const,
        dw::DW_TAG_volatile_type => DieKind::Volatile,
        dw::DW_TAG_restrict_type => DieKind::Restrict,
        dw::DW_TAG_atomic_type
        | dw::DW_TAG_immutable_type
        | dw::DW_TAG_packed_type
        | dw::DW_TAG_shared_type
        | dw::DW_TAG_dynamic_type => DieKind::Transparent,
        dw::DW_TAG_typedef => DieKind::Typedef,
        dw::DW_TAG_array_type => DieKind::Array,
        dw::DW_TAG_subrange_type => DieKind::Subrange,
        dw::DW_TAG_structure_type => DieKind::Struct,
        dw::DW_TAG_class_type | dw::DW_TAG_interface_type => DieKind::Class,
        dw::DW_TAG_union_type => DieKind::Union,
        dw::DW_TAG_enumeration_type => DieKind::Enumeration,
        dw::DW_TAG_enumerator => DieKind::Enumerator,
        dw::DW_TAG_subroutine_type => DieKind::SubroutineType,
        dw::DW_TAG_string_type | dw::DW_TAG_set_type | dw::DW_TAG_file_type => DieKind::Opaque,
        dw::DW_TAG_unspecified_type => DieKind::Unspecified,
        dw::DW_TAG_member => DieKind::Member,
        dw::DW_TAG_inheritance => DieKind::Inheritance,
        dw::DW_TAG_formal_parameter => DieKind::Parameter,
        dw::DW_TAG_unspecified_parameters => DieKind::UnspecifiedParameters,
        dw::DW_TAG_subprogram => DieKind::Subprogram,
        dw::DW_TAG_variable => DieKind::Variable,
        dw::DW_TAG_lexical_block | dw::DW_TAG_inlined_subroutine => DieKind::Block,
        dw::DW_TAG_namespace | dw::DW_TAG_module => DieKind::Namespace,
        dw::DW_TAG_imported_unit => DieKind::ImportedUnit,
        LLVM_ANNOTATION => DieKind::Annotation,
        GNU_ANNOTATION => DieKind::GnuAnnotation,
        _ => DieKind::Other,
    }
}

/// Where a value of a DIE is kept while it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Slot {
    /// `DW_AT_name`: a `NameId`.
    Name,
    /// `DW_AT_type`: a reference.
    Type,
    /// `DW_AT_byte_size`.
    ByteSize,
    /// `DW_AT_bit_size`.
    BitSize,
    /// `DW_AT_bit_offset` (DWARF 2 and 3).
    BitOffset,
    /// `DW_AT_data_bit_offset`.
    DataBitOffset,
    /// `DW_AT_data_member_location` as a constant.
    MemberLocation,
    /// `DW_AT_data_member_location` as an expression: a [`Block`].
    MemberLocationExpression,
    /// `DW_AT_encoding`.
    Encoding,
    /// `DW_AT_const_value`, sign-extended where the form says so.
    ConstValue,
    /// `DW_AT_const_value` as a string: a `NameId`.
    ConstString,
    /// `DW_AT_const_value` of an enumerator of more than eight bytes: a [`Block`](super::die::Block).
    ConstBlock,
    /// `DW_AT_upper_bound` as a constant.
    UpperBound,
    /// `DW_AT_upper_bound` in any other form.
    UpperBoundOther,
    /// `DW_AT_count` as a constant.
    Count,
    /// `DW_AT_declaration`.
    Declaration,
    /// `DW_AT_external`.
    External,
    /// `DW_AT_artificial`.
    Artificial,
    /// `DW_AT_low_pc`.
    LowPc,
    /// `DW_AT_low_pc` as an index into `.debug_addr`.
    LowPcIndex,
    /// `DW_AT_location` as an expression: a [`Block`].
    Location,
    /// `DW_AT_location` as an offset of a location list.
    LocationList,
    /// `DW_AT_location` as an index of a location list.
    LocationListIndex,
    /// `DW_AT_abstract_origin`: a reference.
    AbstractOrigin,
    /// `DW_AT_specification`: a reference.
    Specification,
    /// `DW_AT_inline`.
    Inline,
    /// `DW_AT_calling_convention`.
    CallingConvention,
    /// `DW_AT_GNU_annotation`: a reference.
    GnuAnnotation,
    /// `DW_AT_language`.
    Language,
    /// `DW_AT_producer`: a `NameId`.
    Producer,
    /// `DW_AT_str_offsets_base`.
    StrOffsetsBase,
    /// `DW_AT_addr_base`.
    AddrBase,
    /// `DW_AT_loclists_base`.
    LoclistsBase,
    /// `DW_AT_linkage_name`: a `NameId`.
    LinkageName,
    /// `DW_AT_import`: a reference.
    Import,
    /// `DW_AT_dwo_name`: a `NameId`.
    DwoName,
    /// `DW_AT_comp_dir`: a `NameId`.
    CompDir,
    /// `DW_AT_GNU_dwo_id`.
    DwoId,
    /// `DW_AT_signature`: a reference to the type that the DIE stands for.
    Signature,
}

/// Number of [`Slot`]s.
pub const SLOTS: usize = Slot::Signature as usize + 1;

/// Which slot an attribute of a DIE of this kind fills, if it matters there (spec/encoding 2-5).
fn slot_of(kind: DieKind, attribute: DwAt, class: Class) -> Option<Slot> {
    use DieKind as K;
    let slot = match (attribute, class) {
        // The DIE itself tells the form, and with it the class.
        (_, Class::Indirect) => return None,
        (dw::DW_AT_name, Class::String) => Slot::Name,
        (dw::DW_AT_type, Class::Reference) => Slot::Type,
        (dw::DW_AT_byte_size, Class::Constant) => Slot::ByteSize,
        (dw::DW_AT_bit_size, Class::Constant) => Slot::BitSize,
        (dw::DW_AT_bit_offset, Class::Constant) => Slot::BitOffset,
        (dw::DW_AT_data_bit_offset, Class::Constant) => Slot::DataBitOffset,
        (dw::DW_AT_data_member_location, Class::Constant) => Slot::MemberLocation,
        (dw::DW_AT_data_member_location, Class::Block) => Slot::MemberLocationExpression,
        (dw::DW_AT_encoding, Class::Constant) => Slot::Encoding,
        (dw::DW_AT_const_value, Class::String) if is_annotation(kind) => Slot::ConstString,
        (dw::DW_AT_const_value, Class::Constant) => Slot::ConstValue,
        (dw::DW_AT_const_value, Class::Block) if kind == K::Enumerator => Slot::ConstBlock,
        // A parameter with a constant of whatever form has no location (4.5.4 rule 2).
        (dw::DW_AT_const_value, _) if kind == K::Parameter => Slot::ConstValue,
        (dw::DW_AT_upper_bound, Class::Constant) => Slot::UpperBound,
        (dw::DW_AT_upper_bound, _) => Slot::UpperBoundOther,
        (dw::DW_AT_count, Class::Constant) => Slot::Count,
        (dw::DW_AT_declaration, Class::Flag) => Slot::Declaration,
        (dw::DW_AT_external, Class::Flag) => Slot::External,
        (dw::DW_AT_artificial, Class::Flag) => Slot::Artificial,
        (dw::DW_AT_low_pc, Class::Address) => Slot::LowPc,
        (dw::DW_AT_low_pc, Class::AddressIndex) => Slot::LowPcIndex,
        (dw::DW_AT_location, Class::Block) => Slot::Location,
        (dw::DW_AT_location, Class::ListIndex) => Slot::LocationListIndex,
        // DWARF 2 and 3 write a location list offset as data4 or data8.
        (dw::DW_AT_location, Class::Offset | Class::Constant) => Slot::LocationList,
        (dw::DW_AT_abstract_origin, Class::Reference) => Slot::AbstractOrigin,
        (dw::DW_AT_specification, Class::Reference) => Slot::Specification,
        (dw::DW_AT_dwo_name | dw::DW_AT_GNU_dwo_name, Class::String) => Slot::DwoName,
        (dw::DW_AT_comp_dir, Class::String) => Slot::CompDir,
        (dw::DW_AT_GNU_dwo_id, Class::Constant) => Slot::DwoId,
        (dw::DW_AT_import, Class::Reference) => Slot::Import,
        (dw::DW_AT_signature, Class::Reference) => Slot::Signature,
        (dw::DW_AT_inline, Class::Constant) => Slot::Inline,
        (dw::DW_AT_calling_convention, Class::Constant) => Slot::CallingConvention,
        (AT_GNU_ANNOTATION, Class::Reference) => Slot::GnuAnnotation,
        (dw::DW_AT_language, Class::Constant) => Slot::Language,
        (dw::DW_AT_producer, Class::String) => Slot::Producer,
        (dw::DW_AT_str_offsets_base, Class::Offset) => Slot::StrOffsetsBase,
        (dw::DW_AT_addr_base | dw::DW_AT_GNU_addr_base, Class::Offset) => Slot::AddrBase,
        (dw::DW_AT_loclists_base, Class::Offset) => Slot::LoclistsBase,
        (dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name, Class::String) => Slot::LinkageName,
        _ => return None,
    };
    matters(kind, slot).then_some(slot)
}

const fn is_annotation(kind: DieKind) -> bool {
    matches!(kind, DieKind::Annotation | DieKind::GnuAnnotation)
}

fn matters(kind: DieKind, slot: Slot) -> bool {
    use DieKind as K;
    use Slot as S;
    match kind {
        K::Base => matches!(slot, S::Name | S::ByteSize | S::Encoding),
        K::Pointer => matches!(slot, S::Type | S::GnuAnnotation),
        K::Reference | K::Const | K::Volatile | K::Restrict | K::Transparent => slot == S::Type,
        K::Typedef => matches!(slot, S::Name | S::Type | S::Specification | S::GnuAnnotation),
        K::Array => slot == S::Type,
        K::SubroutineType => matches!(slot, S::Type | S::ByteSize),
        K::Subrange => {
            matches!(slot, S::Type | S::UpperBound | S::UpperBoundOther | S::Count)
        }
        K::Opaque => slot == S::ByteSize,
        K::Struct | K::Class | K::Union => matches!(
            slot,
            S::Name
                | S::ByteSize
                | S::Declaration
                | S::Specification
                | S::GnuAnnotation
                | S::Signature
        ),
        K::Enumeration => {
            matches!(
                slot,
                S::Name | S::ByteSize | S::Type | S::Declaration | S::Specification | S::Signature
            )
        }
        K::Enumerator => matches!(slot, S::Name | S::ConstValue | S::ConstBlock),
        K::Member => matches!(
            slot,
            S::Name
                | S::Type
                | S::ByteSize
                | S::BitSize
                | S::BitOffset
                | S::DataBitOffset
                | S::MemberLocation
                | S::MemberLocationExpression
                | S::External
                | S::Declaration
                | S::GnuAnnotation
        ),
        K::Inheritance => {
            matches!(slot, S::Type | S::MemberLocation | S::MemberLocationExpression)
        }
        K::Parameter => matches!(
            slot,
            S::Name
                | S::Type
                | S::ConstValue
                | S::Location
                | S::LocationList
                | S::LocationListIndex
                | S::AbstractOrigin
                | S::GnuAnnotation
        ),
        K::Subprogram => matches!(
            slot,
            S::Name
                | S::Type
                | S::LowPc
                | S::LowPcIndex
                | S::Declaration
                | S::External
                | S::AbstractOrigin
                | S::Specification
                | S::Inline
                | S::CallingConvention
                | S::GnuAnnotation
                | S::LinkageName
        ),
        K::Variable => matches!(
            slot,
            S::Name
                | S::Type
                | S::Location
                | S::Declaration
                | S::External
                | S::Artificial
                | S::Specification
                | S::AbstractOrigin
        ),
        K::Annotation => matches!(slot, S::Name | S::ConstString),
        K::GnuAnnotation => matches!(slot, S::Name | S::ConstString | S::GnuAnnotation),
        K::Root => matches!(
            slot,
            S::Name
                | S::Language
                | S::Producer
                | S::StrOffsetsBase
                | S::AddrBase
                | S::LoclistsBase
                | S::DwoName
                | S::CompDir
                | S::DwoId
                | S::LowPc
                | S::LowPcIndex
        ),
        K::ImportedUnit => slot == S::Import,
        K::Namespace | K::Unspecified | K::UnspecifiedParameters | K::Block | K::Other => false,
    }
}

/// Classes of attribute forms (DWARF 5, section 7.5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Address,
    AddressIndex,
    Block,
    Constant,
    Flag,
    String,
    Reference,
    Offset,
    ListIndex,
    Indirect,
}

pub(crate) fn class_of(form: DwForm) -> Class {
    match form {
        dw::DW_FORM_addr => Class::Address,
        dw::DW_FORM_addrx
        | dw::DW_FORM_addrx1
        | dw::DW_FORM_addrx2
        | dw::DW_FORM_addrx3
        | dw::DW_FORM_addrx4
        | dw::DW_FORM_GNU_addr_index => Class::AddressIndex,
        dw::DW_FORM_block
        | dw::DW_FORM_block1
        | dw::DW_FORM_block2
        | dw::DW_FORM_block4
        | dw::DW_FORM_exprloc
        | dw::DW_FORM_data16 => Class::Block,
        dw::DW_FORM_flag | dw::DW_FORM_flag_present => Class::Flag,
        dw::DW_FORM_string
        | dw::DW_FORM_strp
        | dw::DW_FORM_line_strp
        | dw::DW_FORM_strp_sup
        | dw::DW_FORM_GNU_strp_alt
        | dw::DW_FORM_strx
        | dw::DW_FORM_strx1
        | dw::DW_FORM_strx2
        | dw::DW_FORM_strx3
        | dw::DW_FORM_strx4
        | dw::DW_FORM_GNU_str_index => Class::String,
        dw::DW_FORM_ref1
        | dw::DW_FORM_ref2
        | dw::DW_FORM_ref4
        | dw::DW_FORM_ref8
        | dw::DW_FORM_ref_udata
        | dw::DW_FORM_ref_addr
        | dw::DW_FORM_ref_sig8
        | dw::DW_FORM_ref_sup4
        | dw::DW_FORM_ref_sup8
        | dw::DW_FORM_GNU_ref_alt => Class::Reference,
        dw::DW_FORM_sec_offset => Class::Offset,
        dw::DW_FORM_loclistx | dw::DW_FORM_rnglistx => Class::ListIndex,
        dw::DW_FORM_indirect => Class::Indirect,
        _ => Class::Constant,
    }
}

/// How the bytes of one attribute are read or passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing in the DIE: the value is in [`Step::value`].
    Preset,
    /// An unsigned number of this many bytes.
    Unsigned(u8),
    /// A number of one byte, 0 or not.
    Flag,
    /// An unsigned LEB128 number.
    Uleb,
    /// A signed LEB128 number.
    Sleb,
    /// A reference of this many bytes, relative to the unit.
    LocalReference(u8),
    /// A reference as ULEB128, relative to the unit.
    LocalReferenceUleb,
    /// A reference of this many bytes into `.debug_info`.
    SectionReference(u8),
    /// A type signature.
    Signature,
    /// A reference of this many bytes into the supplementary file.
    AltReference(u8),
    /// An offset of this many bytes into `.debug_str`.
    Strp(u8),
    /// An offset of this many bytes into `.debug_line_str`.
    LineStrp(u8),
    /// An offset of this many bytes into the strings of another file.
    AltStrp(u8),
    /// An index of this many bytes (0: ULEB128) into `.debug_str_offsets`.
    Strx(u8),
    /// A string in place.
    String,
    /// A block whose length is a number of this many bytes (0: ULEB128).
    Block(u8),
    /// 16 bytes, as a block.
    Data16,
    /// The form is in the DIE.
    Indirect,
}

pub(crate) fn op_of(form: DwForm, encoding: Encoding) -> Option<Op> {
    let word = encoding.offset_size;
    Some(match form {
        dw::DW_FORM_addr => Op::Unsigned(encoding.address_size),
        dw::DW_FORM_data1 | dw::DW_FORM_addrx1 => Op::Unsigned(1),
        dw::DW_FORM_data2 | dw::DW_FORM_addrx2 => Op::Unsigned(2),
        dw::DW_FORM_addrx3 => Op::Unsigned(3),
        dw::DW_FORM_data4 | dw::DW_FORM_addrx4 => Op::Unsigned(4),
        dw::DW_FORM_data8 => Op::Unsigned(8),
        dw::DW_FORM_sec_offset => Op::Unsigned(word),
        dw::DW_FORM_flag => Op::Flag,
        dw::DW_FORM_flag_present | dw::DW_FORM_implicit_const => Op::Preset,
        dw::DW_FORM_udata
        | dw::DW_FORM_addrx
        | dw::DW_FORM_GNU_addr_index
        | dw::DW_FORM_loclistx
        | dw::DW_FORM_rnglistx => Op::Uleb,
        dw::DW_FORM_sdata => Op::Sleb,
        dw::DW_FORM_ref1 => Op::LocalReference(1),
        dw::DW_FORM_ref2 => Op::LocalReference(2),
        dw::DW_FORM_ref4 => Op::LocalReference(4),
        dw::DW_FORM_ref8 => Op::LocalReference(8),
        dw::DW_FORM_ref_udata => Op::LocalReferenceUleb,
        // DWARF 2 made it the size of an address (section 7.5.4 there).
        dw::DW_FORM_ref_addr if encoding.version <= 2 => {
            Op::SectionReference(encoding.address_size)
        }
        dw::DW_FORM_ref_addr => Op::SectionReference(word),
        dw::DW_FORM_ref_sig8 => Op::Signature,
        dw::DW_FORM_ref_sup4 => Op::AltReference(4),
        dw::DW_FORM_ref_sup8 => Op::AltReference(8),
        dw::DW_FORM_GNU_ref_alt => Op::AltReference(word),
        dw::DW_FORM_strp if encoding.is_elsewhere => Op::AltStrp(word),
        dw::DW_FORM_strp => Op::Strp(word),
        dw::DW_FORM_line_strp => Op::LineStrp(word),
        dw::DW_FORM_strp_sup | dw::DW_FORM_GNU_strp_alt => Op::AltStrp(word),
        dw::DW_FORM_strx | dw::DW_FORM_GNU_str_index => Op::Strx(0),
        dw::DW_FORM_strx1 => Op::Strx(1),
        dw::DW_FORM_strx2 => Op::Strx(2),
        dw::DW_FORM_strx3 => Op::Strx(3),
        dw::DW_FORM_strx4 => Op::Strx(4),
        dw::DW_FORM_string => Op::String,
        dw::DW_FORM_block | dw::DW_FORM_exprloc => Op::Block(0),
        dw::DW_FORM_block1 => Op::Block(1),
        dw::DW_FORM_block2 => Op::Block(2),
        dw::DW_FORM_block4 => Op::Block(4),
        dw::DW_FORM_data16 => Op::Data16,
        dw::DW_FORM_indirect => Op::Indirect,
        _ => return None,
    })
}

impl Op {
    /// Bytes in the DIE, if that does not depend on the DIE.
    pub(crate) const fn fixed_size(self) -> Option<u8> {
        match self {
            Self::Preset => Some(0),
            Self::Flag => Some(1),
            Self::Unsigned(size)
            | Self::LocalReference(size)
            | Self::SectionReference(size)
            | Self::AltReference(size)
            | Self::Strp(size)
            | Self::LineStrp(size)
            | Self::AltStrp(size) => Some(size),
            Self::Signature => Some(8),
            Self::Data16 => Some(16),
            Self::Strx(0) => None,
            Self::Strx(size) => Some(size),
            Self::Uleb
            | Self::Sleb
            | Self::LocalReferenceUleb
            | Self::String
            | Self::Block(_)
            | Self::Indirect => None,
        }
    }
}

/// One attribute to read, after passing over `before` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Bytes of uninteresting attributes in front.
    pub before: u32,
    /// How to read it.
    pub op: Op,
    /// Where the value goes; `None` when a variable-width attribute is only passed over.
    pub slot: Option<Slot>,
    /// The value of [`Op::Preset`]. For [`Op::Indirect`], the attribute.
    pub value: i64,
}

/// One abbreviation, compiled.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// What the walk does with the DIE.
    pub kind: DieKind,
    /// The tag itself.
    pub tag: DwTag,
    /// Whether a list of children follows.
    pub has_children: bool,
    /// Size of all attributes, if it is the same for every DIE.
    pub fixed_size: Option<u32>,
    /// Steps that fill slots.
    pub(super) steps: (u32, u32),
    /// Bytes after the last step.
    pub after: u32,
    /// The short way to read the DIE, if it is of the common shape.
    pub simple: Option<Simple>,
}

/// How a unit writes offsets and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// DWARF version, 2 to 5.
    pub version: u16,
    /// 4 in 32-bit DWARF, 8 in 64-bit DWARF.
    pub offset_size: u8,
    /// Bytes of an address.
    pub address_size: u8,
    /// Its strings are those of another file than the one that is encoded.
    pub is_elsewhere: bool,
}

/// The forms with small codes, looked up for one encoding.
#[derive(Debug, Default)]
pub(super) struct Forms {
    known: Vec<Option<(Class, Op)>>,
    encoding: Option<Encoding>,
}

impl Forms {
    /// Prepares for units of this encoding.
    pub fn look_up(&mut self, encoding: Encoding) {
        if self.encoding != Some(encoding) {
            let forms = (0..=dw::DW_FORM_addrx4.0).map(DwForm);
            let look_up = |form| Some((class_of(form), op_of(form, encoding)?));
            self.known = forms.map(look_up).collect();
            self.encoding = Some(encoding);
        }
    }

    #[inline]
    fn get(&self, form: DwForm) -> Option<(Class, Op)> {
        match self.known.get(usize::from(form.0)) {
            Some(known) => *known,
            None => Some((class_of(form), op_of(form, self.encoding?)?)),
        }
    }
}

/// Why a declaration could not be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeclarationError {
    /// It is cut off.
    Eof,
    /// No DWARF version up to 5 defines the form.
    UnknownForm(u64),
}

impl From<Eof> for DeclarationError {
    fn from(_: Eof) -> Self {
        Self::Eof
    }
}

impl Template {
    /// Compiles the declaration of an abbreviation, its code left out. Appends to `steps`.
    pub(super) fn compile(
        declaration: &[u8],
        forms: &Forms,
        steps: &mut Vec<Step>,
    ) -> Result<Self, DeclarationError> {
        let mut cursor = Cursor::<false>::new(declaration, 0);
        let tag = DwTag(u16::try_from(cursor.uleb()?).unwrap_or(u16::MAX));
        let has_children = cursor.u8()? != 0;
        let kind = kind_of(tag);
        let first = steps.len() as u32;
        let mut pending = 0_u32;
        let mut fixed = Some(0_u32);
        loop {
            let attribute = DwAt(u16::try_from(cursor.uleb()?).unwrap_or(u16::MAX));
            let code = cursor.uleb()?;
            let form = DwForm(u16::try_from(code).unwrap_or(0));
            let constant = match form {
                dw::DW_FORM_implicit_const => cursor.sleb()?,
                dw::DW_FORM_flag_present => 1,
                dw::DW_FORM_indirect => i64::from(attribute.0),
                _ => 0,
            };
            if attribute.0 == 0 && code == 0 {
                break;
            }
            let (class, op) = forms.get(form).ok_or(DeclarationError::UnknownForm(code))?;
            let slot = slot_of(kind, attribute, class);
            let size = op.fixed_size().map(u32::from);
            fixed = fixed.zip(size).map(|(sum, size)| sum.saturating_add(size));
            match (size, slot) {
                (Some(size), None) => pending = pending.saturating_add(size),
                _ => {
                    steps.push(Step { before: pending, op, slot, value: constant });
                    pending = 0;
                }
            }
        }
        Ok(Self {
            simple: Simple::of(kind, has_children, &steps[first as usize..], pending),
            kind,
            tag,
            has_children,
            fixed_size: fixed,
            steps: (first, steps.len() as u32),
            after: pending,
        })
    }
}

/// How to read an attribute whose form stands in the DIE (`DW_FORM_indirect`).
#[must_use]
pub fn indirect_step(
    kind: DieKind,
    attribute: i64,
    form: u64,
    encoding: Encoding,
) -> Option<(Op, Option<Slot>)> {
    let form = DwForm(u16::try_from(form).ok()?);
    if matches!(form, dw::DW_FORM_indirect | dw::DW_FORM_implicit_const) {
        return None;
    }
    let attribute = DwAt(u16::try_from(attribute).ok()?);
    Some((op_of(form, encoding)?, slot_of(kind, attribute, class_of(form))))
}
