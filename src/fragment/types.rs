//! Types: from the attributes of a DIE to a BTF record (spec/encoding section 2).

use gimli::constants as dw;

use super::local::{Shape, Tag, TypeIndex};
use super::notes::Note;
use super::walk::Walk;
use crate::btf::kind::{Info, Kind, MAX_VLEN};
use crate::dwarf::die::{DieError, DieRef};
use crate::dwarf::template::{DieKind, Slot, Template};
use crate::names::NameId;
use crate::options::Feature;

/// Name of an INT that stands for a base type INT cannot express (2.2.4).
pub(super) const SANITIZED_INT: &[u8] = b"__SANITIZED_FAKE_INT__";
/// As many dimensions of an array are read (2.3.5).
const MAX_DIMENSIONS: usize = 64;

/// A record with elements that is being written at the end of the words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub index: TypeIndex,
    /// Where its words start.
    pub start: usize,
    /// Where those of its words start that were set aside for a nested type.
    pub aside: usize,
    /// Where its entries of [`Walk::bit_sizes`] start.
    pub bit_sizes: usize,
    pub has_old_bitfields: bool,
}

/// The attributes of a struct, union or enumeration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub name: NameId,
    pub size: u64,
    pub underlying: DieRef,
    pub specification: DieRef,
    pub annotation: DieRef,
    pub is_declaration: bool,
    /// The type unit that has the type itself.
    pub signature: DieRef,
}

/// `BTF_INT_SIGNED`, `BTF_INT_BOOL` in the encoding byte of an INT.
const SIGNED: u32 = 1;
const BOOL: u32 = 4;

impl<const BIG: bool> Walk<'_, '_, BIG> {
    /// 2.2.
    pub(super) fn base_type(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Base);
        self.reader.read(template, self.values)?;
        let name = self.values.name();
        let size = self.values.number(Slot::ByteSize);
        let encoding = dw::DwAte(self.values.number(Slot::Encoding) as u8);
        let start = self.local.words.len();
        let is_float = encoding == dw::DW_ATE_float;
        let is_complex = matches!(encoding, dw::DW_ATE_complex_float | dw::DW_ATE_imaginary_float);
        if is_complex {
            self.note(Note::ComplexNumber);
        }
        if is_float && self.context.options.features.has(Feature::Float) && is_float_size(size) {
            let info = Info::new(Kind::Float, 0, false);
            self.local.words.extend([name.0, info.0, size as u32]);
        } else {
            self.integer(name, size, encoding);
        }
        self.local.finish(index, start, Shape::Plain, clamp(size));
        if self.local.first_int.is_none() && name == self.context.int {
            self.local.first_int = Some(index);
        }
        self.skip_rest(template)
    }

    fn integer(&mut self, name: NameId, size: u64, encoding: dw::DwAte) {
        let bits = match encoding {
            dw::DW_ATE_signed | dw::DW_ATE_signed_char => SIGNED,
            dw::DW_ATE_boolean => BOOL,
            _ => 0,
        };
        let is_expressible = matches!(size, 1 | 2 | 4 | 8 | 16);
        let (name, size) = if is_expressible {
            (name, size as u32)
        } else {
            // Such names clang gives to what only location expressions use.
            if !self.reader.names().bytes(name, &mut [0; 4]).starts_with(b"DW_ATE_") {
                self.note(Note::BaseTypeSize);
            }
            (self.context.sanitized_int, 4)
        };
        let info = Info::new(Kind::Int, 0, false);
        self.local.words.extend([name.0, info.0, size, (bits << 24) | (size * 8)]);
    }

    /// Pointers other than `*`, and everything that qualifies a type.
    pub(super) fn qualifier(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, template.kind);
        let (_, target) = self.named_type(template)?;
        let kind = match template.kind {
            DieKind::Const => Kind::Const,
            DieKind::Volatile => Kind::Volatile,
            DieKind::Restrict => Kind::Restrict,
            DieKind::Reference => Kind::Ptr,
            kind => {
                // Outside of arrays, a part of the values of another type (Ada).
                if kind != DieKind::Subrange {
                    self.note(Note::Qualifier);
                }
                self.alias(index, target);
                return self.skip_rest(template);
            }
        };
        let start = self.local.words.len();
        self.local.words.extend([0, Info::new(kind, 0, false).0, target]);
        self.local.finish(index, start, Shape::Target, 0);
        self.skip_rest(template)
    }

    pub(super) fn alias(&mut self, index: TypeIndex, target: DieRef) {
        let start = self.local.words.len();
        self.local.words.push(target);
        self.local.finish(index, start, Shape::Alias, 0);
    }

    /// A pointer with its type tags (2.8.2).
    pub(super) fn pointer(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Pointer);
        self.reader.read(template, self.values)?;
        let target = self.values.reference(Slot::Type);
        let annotation = self.values.reference(Slot::GnuAnnotation);
        let start = self.local.words.len();
        self.local.words.extend([0, Info::new(Kind::Ptr, 0, false).0, target]);
        if template.has_children {
            while let Some(child) = self.reader.next_die()? {
                if child.kind == DieKind::Annotation {
                    self.reader.read(child, self.values)?;
                    if let Some(value) = self.annotation(self.context.type_tag, Feature::TypeTag) {
                        self.local.words.push(value.0);
                    }
                    self.skip_rest(child)?;
                } else {
                    self.reader.skip_tree(child)?;
                }
            }
        }
        let has_child_tags = self.local.words.len() > start + 3;
        if !has_child_tags && annotation != 0 {
            let mut words = std::mem::take(&mut self.local.words);
            self.gnu_chain(annotation, self.context.type_tag, Feature::TypeTag, |value| {
                words.push(value.0);
                true
            })?;
            self.local.words = words;
            self.local.types[index as usize].outermost_first = true;
        }
        let is_tagged = self.local.words.len() > start + 3;
        let shape = if is_tagged { Shape::TaggedPointer } else { Shape::Target };
        self.local.finish(index, start, shape, 0);
        Ok(())
    }

    pub(super) fn typedef(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Typedef);
        let (name, target, specification) = match &template.simple {
            Some(simple) => {
                let (name, target, _) = self.reader.read_simple(simple)?;
                (name, target, 0)
            }
            None => {
                self.reader.read(template, self.values)?;
                let values = &*self.values;
                let specification = values.reference(Slot::Specification);
                (values.name(), values.reference(Slot::Type), specification)
            }
        };
        if name.is_none() && specification == 0 {
            self.note(Note::NamelessTypedef);
            self.alias(index, target);
            return self.skip_rest(template);
        }
        if name.is_none() {
            self.local.specified.push((index, specification));
        }
        let start = self.local.words.len();
        self.local.words.extend([name.0, Info::new(Kind::Typedef, 0, false).0, target]);
        if template.has_children {
            while let Some(child) = self.reader.next_die()? {
                self.type_annotation(child, index, -1)?;
            }
        }
        self.local.finish(index, start, Shape::Target, 0);
        Ok(())
    }

    /// Reads `child` as a tag of a type; anything else is passed over.
    pub(super) fn type_annotation(
        &mut self,
        child: &Template,
        index: TypeIndex,
        component: i32,
    ) -> Result<(), DieError> {
        if child.kind != DieKind::Annotation {
            return self.reader.skip_tree(child);
        }
        self.reader.read(child, self.values)?;
        self.add_type_tag(index, component);
        self.skip_rest(child)
    }

    fn add_type_tag(&mut self, index: TypeIndex, component: i32) {
        if let Some(value) = self.annotation(self.context.decl_tag, Feature::DeclTag) {
            self.local.type_tags.push((index, Tag { value, component }));
        }
    }

    /// 2.3: the dimensions are kept, outermost first.
    pub(super) fn array(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Array);
        let (_, element) = self.named_type(template)?;
        let start = self.local.words.len();
        let info = Info::new(Kind::Array, 0, false);
        self.local.words.extend([0, info.0, 0, element]);
        let first_dimension = self.local.words.len();
        if template.has_children {
            while let Some(child) = self.reader.next_die()? {
                let count = self.local.words.len() - first_dimension;
                if child.kind == DieKind::Subrange && count < MAX_DIMENSIONS {
                    let dimension = self.dimension(child)?;
                    self.local.words.push(dimension);
                    self.skip_rest(child)?;
                } else {
                    self.reader.skip_tree(child)?;
                }
            }
        }
        if self.local.words.len() == first_dimension {
            self.local.words.push(1);
        }
        self.local.has_array = true;
        self.local.finish(index, start, Shape::Array, 0);
        Ok(())
    }

    /// Number of elements of a dimension (2.3.1).
    fn dimension(&mut self, template: &Template) -> Result<u32, DieError> {
        if let Some(simple) = &template.simple {
            let (_, _, bound) = self.reader.read_simple(simple)?;
            return Ok(if simple.has_number { bound.wrapping_add(1) as u32 } else { 0 });
        }
        self.reader.read(template, self.values)?;
        let values = &*self.values;
        Ok(if let Some(bound) = values.get(Slot::UpperBound) {
            bound.wrapping_add(1) as u32
        } else if values.has(Slot::UpperBoundOther) {
            0
        } else {
            values.number(Slot::Count) as u32
        })
    }

    /// A type that BTF knows nothing like: only its size counts.
    pub(super) fn opaque(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Opaque);
        self.reader.read(template, self.values)?;
        let size = clamp(self.values.number(Slot::ByteSize));
        let start = self.local.words.len();
        if size == 0 {
            // A string whose length is known at run time only.
            self.local.finish(index, start, Shape::Void, 0);
        } else {
            self.note(Note::Opaque);
            self.local.words.extend([0, Info::new(Kind::Struct, 0, false).0, size]);
            self.local.finish(index, start, Shape::Plain, size);
        }
        self.skip_rest(template)
    }

    /// 2.9: there is no such type in BTF.
    pub(super) fn unspecified(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Unspecified);
        self.local.types[index as usize].shape = Shape::Void;
        self.reader.skip_tree(template)
    }

    /// Reads the attributes of a struct, union or enumeration.
    pub(super) fn head(&mut self, template: &Template) -> Result<Head, DieError> {
        if let Some(simple) = &template.simple {
            let (name, underlying, size) = self.reader.read_simple(simple)?;
            return Ok(Head { name, underlying, size, ..Head::default() });
        }
        self.reader.read(template, self.values)?;
        let values = &*self.values;
        Ok(Head {
            name: values.name(),
            size: values.number(Slot::ByteSize),
            underlying: values.reference(Slot::Type),
            specification: values.reference(Slot::Specification),
            annotation: values.reference(Slot::GnuAnnotation),
            is_declaration: values.number(Slot::Declaration) != 0,
            signature: values.reference(Slot::Signature),
        })
    }

    /// Starts the record of a type with elements.
    pub(super) fn draft(&mut self, index: TypeIndex, head: [u32; 3]) -> Draft {
        let start = self.local.words.len();
        self.local.words.extend(head);
        Draft {
            index,
            start,
            aside: self.aside.len(),
            bit_sizes: self.bit_sizes.len(),
            has_old_bitfields: false,
        }
    }

    /// Walks a declaration inside of a type whose record is not complete.
    pub(super) fn nested_declaration(
        &mut self,
        template: &Template,
        draft: &mut Draft,
    ) -> Result<(), DieError> {
        self.aside.extend(self.local.words.drain(draft.start..));
        self.any_declaration(template, false)?;
        draft.start = self.local.words.len();
        Ok(())
    }

    /// Puts the words that were set aside back before the others of the record.
    #[inline(always)]
    pub(super) fn put_together(&mut self, draft: &mut Draft) {
        if self.aside.len() > draft.aside {
            self.aside.extend(self.local.words.drain(draft.start..));
            self.local.words.extend(self.aside.drain(draft.aside..));
        }
    }

    /// Reads name and type of a DIE.
    #[inline]
    fn named_type(&mut self, template: &Template) -> Result<(NameId, DieRef), DieError> {
        if let Some(simple) = &template.simple {
            let (name, ty, _) = self.reader.read_simple(simple)?;
            return Ok((name, ty));
        }
        self.reader.read(template, self.values)?;
        Ok((self.values.name(), self.values.reference(Slot::Type)))
    }

    /// 2.7.
    pub(super) fn subroutine_type(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::SubroutineType);
        let (_, result) = self.named_type(template)?;
        // Only functions that are values have a size.
        let has_size = template.simple.is_none() && self.values.has(Slot::ByteSize);
        let size = if has_size { clamp(self.values.number(Slot::ByteSize)) } else { 0 };
        let mut draft = self.draft(index, [0, 0, result]);
        if template.has_children {
            self.parameters_of(&mut draft)?;
            self.put_together(&mut draft);
        }
        let start = draft.start;
        let count = ((self.local.words.len() - start - 3) / 2).min(MAX_VLEN as usize);
        if self.local.words.len() > start + 3 + 2 * count {
            self.note(Note::TooManyElements);
            self.local.words.truncate(start + 3 + 2 * count);
        }
        self.local.words[start + 1] = Info::new(Kind::FuncProto, count as u32, false).0;
        let shape = if size > 0 { Shape::FunctionValue } else { Shape::Prototype };
        self.local.finish(index, start, shape, size);
        Ok(())
    }

    fn parameters_of(&mut self, draft: &mut Draft) -> Result<(), DieError> {
        let mut is_variadic = false;
        while let Some(child) = self.reader.next_die()? {
            match child.kind {
                DieKind::Parameter => {
                    let (name, ty) = self.named_type(child)?;
                    self.local.words.extend([name.0, ty]);
                    self.skip_rest(child)?;
                }
                DieKind::UnspecifiedParameters => {
                    is_variadic = true;
                    self.reader.skip_tree(child)?;
                }
                _ => self.nested_declaration(child, draft)?,
            }
        }
        if is_variadic {
            self.local.words.extend([0, 0]);
        }
        Ok(())
    }
}

const fn is_float_size(size: u64) -> bool {
    matches!(size, 2 | 4 | 8 | 12 | 16)
}

/// A size or offset in 32 bits; all ones if it is larger.
pub(super) fn clamp(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
