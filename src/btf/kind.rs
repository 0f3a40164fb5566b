//! Kinds of BTF types and the shape of their records.
//!
//! A record is a slice of 32-bit words, as in the file: name, info, size or type, then what the
//! kind adds. The same shape is used for classes in the pool, where names are `NameId`s and
//! references are `Ref`s.

/// `BTF_KIND_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `BTF_KIND_INT`: one more word with encoding, offset and bits.
    Int = 1,
    /// `BTF_KIND_PTR`.
    Ptr = 2,
    /// `BTF_KIND_ARRAY`: element, index type, number of elements.
    Array = 3,
    /// `BTF_KIND_STRUCT`: name, type, offset per member.
    Struct = 4,
    /// `BTF_KIND_UNION`: as struct.
    Union = 5,
    /// `BTF_KIND_ENUM`: name, value per enumerator.
    Enum = 6,
    /// `BTF_KIND_FWD`: kflag tells a union.
    Fwd = 7,
    /// `BTF_KIND_TYPEDEF`.
    Typedef = 8,
    /// `BTF_KIND_VOLATILE`.
    Volatile = 9,
    /// `BTF_KIND_CONST`.
    Const = 10,
    /// `BTF_KIND_RESTRICT`.
    Restrict = 11,
    /// `BTF_KIND_FUNC`.
    Func = 12,
    /// `BTF_KIND_FUNC_PROTO`: name, type per parameter.
    FuncProto = 13,
    /// `BTF_KIND_VAR`: linkage.
    Var = 14,
    /// `BTF_KIND_DATASEC`: variable, offset, size per entry.
    Datasec = 15,
    /// `BTF_KIND_FLOAT`.
    Float = 16,
    /// `BTF_KIND_DECL_TAG`: component index.
    DeclTag = 17,
    /// `BTF_KIND_TYPE_TAG`.
    TypeTag = 18,
    /// `BTF_KIND_ENUM64`: name, low half, high half per enumerator.
    Enum64 = 19,
}

/// Number of kinds, the unused 0 included.
pub const KINDS: usize = 20;

/// Largest number of members, enumerators or parameters that every reader understands (rule T3).
pub const MAX_VLEN: u32 = 0xffff;

impl Kind {
    /// The kind of this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Int,
            2 => Self::Ptr,
            3 => Self::Array,
            4 => Self::Struct,
            5 => Self::Union,
            6 => Self::Enum,
            7 => Self::Fwd,
            8 => Self::Typedef,
            9 => Self::Volatile,
            10 => Self::Const,
            11 => Self::Restrict,
            12 => Self::Func,
            13 => Self::FuncProto,
            14 => Self::Var,
            15 => Self::Datasec,
            16 => Self::Float,
            17 => Self::DeclTag,
            18 => Self::TypeTag,
            19 => Self::Enum64,
            _ => return None,
        })
    }

    /// Words after the first three, before the elements (rule Y2).
    #[must_use]
    pub const fn info_words(self) -> usize {
        match self {
            Self::Int | Self::Var | Self::DeclTag => 1,
            Self::Array => 3,
            _ => 0,
        }
    }

    /// Words of each of `vlen` elements (rule Y2).
    #[must_use]
    pub const fn element_words(self) -> usize {
        match self {
            Self::Struct | Self::Union | Self::Datasec | Self::Enum64 => 3,
            Self::Enum | Self::FuncProto => 2,
            _ => 0,
        }
    }

    /// Whether the third word is a reference.
    #[must_use]
    pub const fn has_target(self) -> bool {
        matches!(
            self,
            Self::Ptr
                | Self::Typedef
                | Self::Volatile
                | Self::Const
                | Self::Restrict
                | Self::Func
                | Self::FuncProto
                | Self::Var
                | Self::DeclTag
                | Self::TypeTag
        )
    }

    /// Where the name is in an element, if elements have one.
    #[must_use]
    pub const fn element_name(self) -> Option<usize> {
        match self {
            Self::Struct | Self::Union | Self::FuncProto | Self::Enum | Self::Enum64 => Some(0),
            _ => None,
        }
    }
}

/// The second word of a record, in the wide layout of rule T2: vlen in bits 0-23, kind in 24-30,
/// kflag in 31. Up to [`MAX_VLEN`] elements it is the same as the classic layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info(pub u32);

impl Info {
    /// Puts the three fields together. `vlen` is cut to 24 bits.
    #[must_use]
    pub const fn new(kind: Kind, vlen: u32, kflag: bool) -> Self {
        Self((vlen & 0xff_ffff) | (kind as u32) << 24 | (kflag as u32) << 31)
    }

    /// The kind; `None` for a number that is no kind.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        Kind::from_number(self.0 >> 24 & 0x7f)
    }

    /// Number of elements.
    #[must_use]
    pub const fn vlen(self) -> u32 {
        self.0 & 0xff_ffff
    }

    /// The flag.
    #[must_use]
    pub const fn kflag(self) -> bool {
        self.0 >> 31 != 0
    }
}

/// The kind of a well-formed record.
///
/// # Panics
/// If the record is not one: records come from our own encoder or a checked reader.
#[must_use]
#[inline]
pub const fn kind_of(record: &[u32]) -> Kind {
    Info(record[1]).kind().expect("records hold only known kinds")
}

/// Calls `visit` with every reference of `record`, in order: target, array element and index,
/// then those of the elements.
///
/// # Panics
/// On a record of unknown kind.
#[inline]
pub fn for_each_ref(record: &[u32], mut visit: impl FnMut(u32)) {
    let kind = kind_of(record);
    if kind.has_target() {
        visit(record[2]);
    }
    match kind {
        Kind::Array => {
            visit(record[3]);
            visit(record[4]);
        }
        Kind::Struct | Kind::Union => {
            elements::<3>(record).iter().for_each(|words| visit(words[1]));
        }
        Kind::FuncProto => elements::<2>(record).iter().for_each(|words| visit(words[1])),
        Kind::Datasec => elements::<3>(record).iter().for_each(|words| visit(words[0])),
        _ => {}
    }
}

/// Replaces every reference of `record` by what `change` makes of it, in the order of
/// [`for_each_ref`].
#[inline]
pub fn map_refs(record: &mut [u32], mut change: impl FnMut(u32) -> u32) {
    let kind = kind_of(record);
    let mut replace = |word: &mut u32| *word = change(*word);
    if kind.has_target() {
        replace(&mut record[2]);
    }
    match kind {
        Kind::Array => {
            replace(&mut record[3]);
            replace(&mut record[4]);
        }
        Kind::Struct | Kind::Union => {
            elements_mut::<3>(record).iter_mut().for_each(|words| replace(&mut words[1]));
        }
        Kind::FuncProto => {
            elements_mut::<2>(record).iter_mut().for_each(|words| replace(&mut words[1]));
        }
        Kind::Datasec => {
            elements_mut::<3>(record).iter_mut().for_each(|words| replace(&mut words[0]));
        }
        _ => {}
    }
}

/// Calls `visit` with every name of a record of a known kind: its own, then its elements'.
///
/// # Panics
/// On a record of unknown kind.
#[inline]
pub fn for_each_name(record: &[u32], mut visit: impl FnMut(u32)) {
    visit(record[0]);
    match kind_of(record) {
        Kind::Struct | Kind::Union | Kind::Enum64 => {
            elements::<3>(record).iter().for_each(|words| visit(words[0]));
        }
        Kind::Enum | Kind::FuncProto => {
            elements::<2>(record).iter().for_each(|words| visit(words[0]));
        }
        _ => {}
    }
}

/// Replaces every name of `record` by what `change` makes of it: its own, then its elements'.
#[inline]
pub fn map_names(record: &mut [u32], mut change: impl FnMut(u32) -> u32) {
    record[0] = change(record[0]);
    match kind_of(record) {
        Kind::Struct | Kind::Union | Kind::Enum64 => {
            elements_mut::<3>(record).iter_mut().for_each(|words| words[0] = change(words[0]));
        }
        Kind::Enum | Kind::FuncProto => {
            elements_mut::<2>(record).iter_mut().for_each(|words| words[0] = change(words[0]));
        }
        _ => {}
    }
}

/// The elements of a record of a kind whose elements are of so many words.
fn elements<const WORDS: usize>(record: &[u32]) -> &[[u32; WORDS]] {
    record[3..].as_chunks().0
}

fn elements_mut<const WORDS: usize>(record: &mut [u32]) -> &mut [[u32; WORDS]] {
    record[3..].as_chunks_mut().0
}
