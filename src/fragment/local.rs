//! The types, functions and variables of one unit as the walk over its DIEs finds them.
//!
//! Records already have the shape of BTF records, but references are still DIE offsets, because
//! many lead forward. Everything here is reused from unit to unit.

use std::cell::RefCell;
use std::ops::Range;

use super::notes::Note;
use super::packed::Layouts;
use crate::btf::kind::{Kind, kind_of};
use crate::dwarf::die::{Block, DieRef, FOREIGN};
use crate::dwarf::foreign::number_of;
use crate::dwarf::template::DieKind;
use crate::names::NameId;
use crate::pool::{Ref, key_of};

/// A type whose [`Ref`] is not known yet.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// Index of a type in [`Local::types`].
pub(super) type TypeIndex = u32;

/// What the words of a [`LocalType`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Not finished, or nothing BTF can express: references to it are void.
    Void,
    /// A BTF record without references.
    Plain,
    /// A BTF record of three words, the last of which is a DIE offset.
    Target,
    /// A BTF struct or union whose members' types are DIE offsets.
    Members,
    /// A BTF prototype whose types are DIE offsets.
    Prototype,
    /// The same of a function that is a value (Go): what has this type is a pointer to it.
    FunctionValue,
    /// An ARRAY head and element, then one word per dimension, outermost first.
    Array,
    /// A PTR record, then one word per type tag, in id order.
    TaggedPointer,
    /// One word: the DIE that references really lead to.
    Alias,
}

/// One type DIE.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalType {
    pub start: u32,
    pub len: u32,
    /// Offset of the DIE.
    pub offset: u32,
    /// `DW_AT_byte_size`, 0 if absent.
    pub size: u32,
    pub kind: DieKind,
    pub shape: Shape,
    /// A tagged pointer of gcc: tags in id order are outermost first, in clang's innermost first.
    pub outermost_first: bool,
}

impl LocalType {
    /// Whether its words are a BTF record, references aside.
    pub const fn is_record(&self) -> bool {
        matches!(self.shape, Shape::Plain | Shape::Target | Shape::Members | Shape::Prototype)
    }

    /// Whether it may become more than one class.
    pub fn has_several_classes(&self) -> bool {
        matches!(self.shape, Shape::TaggedPointer | Shape::FunctionValue)
            || self.shape == Shape::Array && self.len > 5
    }
}

/// A subprogram DIE.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalFunction {
    pub offset: u32,
    pub name: NameId,
    /// `DW_AT_linkage_name`: what the symbol table calls it, in languages other than C.
    pub linkage_name: NameId,
    pub result: DieRef,
    pub origin: DieRef,
    pub specification: DieRef,
    pub address: u64,
    pub is_declaration: bool,
    pub is_inline: bool,
    /// `DW_AT_calling_convention` is `DW_CC_nocall`.
    pub is_nocall: bool,
    pub is_variadic: bool,
    pub reordered: bool,
    /// First and one past the last parameter; those of nested functions may lie in between.
    pub parameters: (u32, u32),
    pub tags: (u32, u32),
}

/// A formal parameter of a subprogram that is no declaration.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalParameter {
    pub offset: u32,
    pub function: u32,
    /// Place among the parameters of its function.
    pub index: u32,
    pub name: NameId,
    pub ty: DieRef,
    pub origin: DieRef,
    pub has_constant: bool,
    pub location: ParameterLocation,
}

/// Where the location of a parameter stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum ParameterLocation {
    None,
    Expression(Block),
    List(u64),
    Index(u64),
}

/// A variable DIE outside of functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalVariable {
    pub offset: u32,
    pub name: NameId,
    pub ty: DieRef,
    pub specification: DieRef,
    /// Where it is, if that is a fixed place.
    pub address: Option<u64>,
    pub is_declaration: bool,
    pub is_external: bool,
    pub is_artificial: bool,
    pub is_top_level: bool,
    pub tags: (u32, u32),
}

/// A `btf_decl_tag`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub value: NameId,
    /// Index of the member or parameter, or -1.
    pub component: i32,
}

/// A bitfield in the style of DWARF 2 and 3: its place depends on the size of its storage, which
/// may be that of a type not seen yet (spec/encoding 2.4.5).
#[derive(Clone, Copy, Debug)]
pub(super) struct OldBitfield {
    pub owner: TypeIndex,
    /// Index of the member's element in the record.
    pub element: u32,
    pub byte_offset: u64,
    pub bit_offset: u64,
    pub bit_size: u64,
    pub byte_size: u64,
    pub ty: DieRef,
}

/// Which of 64 bytes of a unit start a type DIE, and how many types start before the first of them.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    starts: u64,
    before: u32,
}

/// Everything found in one unit.
#[derive(Debug, Default)]
pub(super) struct Local {
    pub types: Vec<LocalType>,
    /// What a reference to each type is, as far as it is known: `classes` fills in the rest.
    pub refs: Vec<u32>,
    pub words: Vec<u32>,
    /// Types in the order in which their DIEs were completed: pahole's core ids (3.1).
    pub order: Vec<TypeIndex>,
    pub functions: Vec<LocalFunction>,
    /// Functions in the order of completion.
    pub function_order: Vec<u32>,
    pub parameters: Vec<LocalParameter>,
    pub variables: Vec<LocalVariable>,
    pub layouts: RefCell<Layouts>,
    /// Tags of functions and variables, by range.
    pub tags: Vec<Tag>,
    /// Tags of types.
    pub type_tags: Vec<(TypeIndex, Tag)>,
    pub old_bitfields: Vec<OldBitfield>,
    /// Structs and unions with members, but without a size: it is known at run time only, or nothing.
    pub unsized_types: Vec<TypeIndex>,
    /// Size of an address in bytes.
    pub address_size: u32,
    /// Links of annotation chains that may still be followed. Chains can be shared, so that a unit
    /// could ask for more than it has bytes.
    pub chain_links: usize,
    /// Nameless types that take their name from another DIE (2.4.11).
    pub specified: Vec<(TypeIndex, DieRef)>,
    /// ENUM64s whose sign is that of a type in another unit.
    pub foreign_enums: Vec<(TypeIndex, DieRef)>,
    /// Units that are to be read as parts of this one (dwz).
    pub imported_units: Vec<DieRef>,
    /// What foreign references lead to, by number.
    pub imports: Vec<Import>,
    /// How many functions, parameters and variables are the unit's own; those of others follow.
    pub own: Option<Counts>,
    /// How many of the variables are its own or of partial units.
    pub end_of_parts: usize,
    /// The first base type named `int`.
    pub first_int: Option<TypeIndex>,
    pub has_array: bool,
    pub is_big_endian: bool,
    /// Where type DIEs start, for 64 bytes of the unit each.
    marks: Vec<Marks>,
    /// The same of another unit that is being read; nobody asks for them.
    other_marks: Vec<Marks>,
}

/// What a foreign reference leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Import {
    /// Nothing that was read yet, or that can be.
    #[default]
    Unknown,
    Type(TypeIndex),
    Function(u32),
    Parameter(u32),
    Variable(u32),
    /// A whole unit that is part of this one.
    Unit,
}

/// How many there are of what a unit has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub functions: usize,
    pub parameters: usize,
    pub variables: usize,
}

impl Local {
    /// Forgets the last unit and makes room for one of `size` bytes.
    pub fn reset(&mut self, size: usize) {
        self.types.clear();
        self.refs.clear();
        self.words.clear();
        self.order.clear();
        self.functions.clear();
        self.function_order.clear();
        self.parameters.clear();
        self.variables.clear();
        self.layouts.get_mut().reset();
        self.tags.clear();
        self.type_tags.clear();
        self.old_bitfields.clear();
        self.unsized_types.clear();
        self.chain_links = MAX_CHAIN + 4 * size;
        self.specified.clear();
        self.foreign_enums.clear();
        self.imported_units.clear();
        self.imports.clear();
        self.own = None;
        self.end_of_parts = 0;
        self.first_int = None;
        self.has_array = false;
        self.marks.clear();
        self.marks.resize(size / 64 + 1, Marks::default());
    }

    /// Starts a type at the DIE `offset`; types must come in order of offset.
    #[inline]
    pub fn begin(&mut self, offset: u32, kind: DieKind) -> TypeIndex {
        self.refs.push(Ref::VOID.0);
        self.add_type(LocalType {
            start: 0,
            len: 0,
            offset,
            size: 0,
            kind,
            shape: Shape::Void,
            outermost_first: false,
        })
    }

    /// Starts and completes a type of three words, the last of which is a reference.
    #[inline(always)]
    pub fn add_target(&mut self, offset: u32, kind: DieKind, words: [u32; 3]) {
        let index = self.add_type(LocalType {
            start: self.words.len() as u32,
            len: 3,
            offset,
            size: 0,
            kind,
            shape: Shape::Target,
            outermost_first: false,
        });
        self.refs.push(UNKNOWN);
        self.words.extend_from_slice(&words);
        self.order.push(index);
    }

    #[inline(always)]
    fn add_type(&mut self, ty: LocalType) -> TypeIndex {
        let index = self.types.len() as u32;
        let marks = &mut self.marks[ty.offset as usize / 64];
        if marks.starts == 0 {
            marks.before = index;
        }
        marks.starts |= 1 << (ty.offset % 64);
        self.types.push(ty);
        index
    }

    /// Completes a type: `words` from `start` on are its own.
    #[inline]
    pub fn finish(&mut self, index: TypeIndex, start: usize, shape: Shape, size: u32) {
        let len = (self.words.len() - start) as u32;
        let ty = &mut self.types[index as usize];
        (ty.start, ty.len, ty.shape, ty.size) = (start as u32, len, shape, size);
        self.refs[index as usize] = match shape {
            Shape::Void => Ref::VOID.0,
            Shape::Plain | Shape::Members if ty.kind.is_nominal() => {
                key_of(&self.words[start..]).map_or(UNKNOWN, |key| Ref::from(key).0)
            }
            _ => UNKNOWN,
        };
        self.order.push(index);
    }

    /// What becomes of a type that has no name after all, if it needs one.
    pub fn do_without_name(&mut self, index: TypeIndex) -> Option<Note> {
        let ty = &mut self.types[index as usize];
        match kind_of(&self.words[ty.start as usize..]) {
            Kind::Typedef => {
                (ty.start, ty.len, ty.shape) = (ty.start + 2, 1, Shape::Alias);
                Some(Note::NamelessTypedef)
            }
            Kind::Fwd => {
                (ty.len, ty.shape) = (0, Shape::Void);
                self.refs[index as usize] = Ref::VOID.0;
                Some(Note::NamelessForward)
            }
            _ => None,
        }
    }

    /// The type whose DIE is at `offset`, or that a foreign reference leads to.
    #[inline]
    pub fn index_of(&self, offset: DieRef) -> Option<TypeIndex> {
        self.own_index_of(offset).or_else(|| self.imported_type(offset))
    }

    /// The same, for references that are not foreign: most.
    #[inline]
    pub fn own_index_of(&self, offset: DieRef) -> Option<TypeIndex> {
        let marks = self.marks.get(offset as usize / 64)?;
        let bit = offset % 64;
        if marks.starts >> bit & 1 == 0 {
            return None;
        }
        let below = marks.starts & ((1 << bit) - 1);
        Some(marks.before + below.count_ones())
    }

    /// The words of a type.
    #[inline]
    pub fn record(&self, ty: LocalType) -> &[u32] {
        &self.words[ty.start as usize..][..ty.len as usize]
    }

    #[cold]
    fn imported_type(&self, reference: DieRef) -> Option<TypeIndex> {
        match self.import(reference) {
            Import::Type(index) => Some(index),
            _ => None,
        }
    }

    fn import(&self, reference: DieRef) -> Import {
        let number = number_of(reference);
        let import = number.and_then(|number| self.imports.get(number));
        import.copied().unwrap_or_default()
    }

    /// Takes note of how much is the unit's own, before others are read.
    pub fn end_own(&mut self) {
        self.own = Some(Counts {
            functions: self.functions.len(),
            parameters: self.parameters.len(),
            variables: self.variables.len(),
        });
    }

    /// Makes room for the types of a unit of `size` bytes, whose offsets are its own, or goes back.
    pub fn switch_marks(&mut self, size: usize) {
        std::mem::swap(&mut self.marks, &mut self.other_marks);
        if self.marks.len() <= size / 64 {
            self.marks.resize(size / 64 + 1, Marks::default());
        }
    }

    /// The function whose DIE is at `offset`.
    pub fn function_at(&self, offset: DieRef) -> Option<&LocalFunction> {
        if let Import::Function(index) = self.import(offset) {
            return Some(&self.functions[index as usize]);
        }
        let own = self.own.map_or(self.functions.len(), |own| own.functions);
        let own = &self.functions[..own];
        let find = own.binary_search_by_key(&offset, |function| function.offset);
        find.ok().map(|index| &own[index])
    }

    /// The index of the parameter whose DIE is at `offset`.
    pub fn parameter_at(&self, offset: DieRef) -> Option<usize> {
        if let Import::Parameter(index) = self.import(offset) {
            return Some(index as usize);
        }
        let own = self.own.map_or(self.parameters.len(), |own| own.parameters);
        self.parameters[..own].binary_search_by_key(&offset, |parameter| parameter.offset).ok()
    }

    /// The variable whose DIE is at `offset`.
    pub fn variable_at(&self, offset: DieRef) -> Option<&LocalVariable> {
        if let Import::Variable(index) = self.import(offset) {
            return Some(&self.variables[index as usize]);
        }
        let own = self.own.map_or(self.variables.len(), |own| own.variables);
        let own = &self.variables[..own];
        let find = own.binary_search_by_key(&offset, |variable| variable.offset);
        find.ok().map(|index| &own[index])
    }

    /// The variables that may be the unit's: those of partial units, then its own.
    pub fn variables_here(&self) -> impl Iterator<Item = &LocalVariable> {
        let own = self.own.map_or(self.variables.len(), |own| own.variables);
        self.variables[own..self.end_of_parts.max(own)].iter().chain(&self.variables[..own])
    }

    /// Indices of the parameters of `function`, in order.
    pub fn parameters_of(&self, function: u32) -> impl Iterator<Item = usize> + '_ {
        let (first, end) = self.functions[function as usize].parameters;
        let range: Range<usize> = first as usize..end as usize;
        range.filter(move |&index| self.parameters[index].function == function)
    }

    /// What a reference of a type leads to next: its target or element. 0 if it has none.
    pub fn target_of(&self, ty: LocalType) -> DieRef {
        let words = self.record(ty);
        match ty.shape {
            Shape::Void | Shape::Plain | Shape::Members => 0,
            Shape::Alias => words[0],
            Shape::Array => words[3],
            Shape::Target | Shape::Prototype | Shape::FunctionValue | Shape::TaggedPointer => {
                words[2]
            }
        }
    }

    /// Follows typedefs, qualifiers and aliases from `offset` to what they stand for.
    pub fn strip(&self, offset: DieRef) -> Option<TypeIndex> {
        let mut offset = offset;
        // Longer chains exist only in damaged files, where they may be endless.
        for _ in 0..MAX_CHAIN {
            if offset == 0 || offset == FOREIGN {
                return None;
            }
            let index = self.index_of(offset)?;
            let ty = self.types[index as usize];
            match ty.kind {
                // A stub of a type unit.
                _ if ty.shape == Shape::Alias => offset = self.target_of(ty),
                DieKind::Typedef
                | DieKind::Const
                | DieKind::Volatile
                | DieKind::Restrict
                | DieKind::Transparent
                | DieKind::Subrange => offset = self.target_of(ty),
                _ => return Some(index),
            }
        }
        None
    }
}

/// How many references are followed in a row before a chain counts as endless. Sources stay below
/// ten; the kernel refuses chains of more than 32 (spec/btf-and-dedup KO1).
pub(super) const MAX_CHAIN: usize = 128;
