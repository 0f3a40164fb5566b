//! The walk over the DIEs of a unit: fills a [`Local`].
//!
//! Which scopes are entered, and in what order types complete, is pahole's (spec/encoding 3.1):
//! members and nested types before their container, types in the body of a function when the
//! function is walked. Everything that BTF does not depend on is passed over by size.

use super::local::{
    Local, LocalFunction, LocalParameter, LocalVariable, MAX_CHAIN, ParameterLocation, Tag,
};
use super::notes::{Note, Notes};
use super::variables::address_of;
use crate::dwarf::cursor::Cursor;
use crate::dwarf::die::{DieError, DieReader, DieRef, Values};
use crate::dwarf::foreign::FIRST_FOREIGN;
use crate::dwarf::template::{DieKind, Slot, Template};
use crate::names::NameId;
use crate::options::Feature;

/// Deeper nesting of types and namespaces than any compiler writes: only damage looks like that.
const MAX_DEPTH: u32 = 256;

/// What of a unit the walk depends on besides its DIEs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub options: &'a crate::options::Options,
    pub names: &'a crate::names::Names,
    /// Offset of the unit in `.debug_info`, for messages.
    pub unit_offset: u64,
    /// Members may not be in order of offset (2.4.10).
    pub sorts_members: bool,
    /// Symbols are called by `DW_AT_linkage_name`.
    pub has_linkage_names: bool,
    /// Base classes are members.
    pub has_base_members: bool,
    pub addresses: Addresses<'a>,
    /// Names of the annotations that become tags.
    pub type_tag: NameId,
    pub decl_tag: NameId,
    /// The name of the array index type.
    pub int: NameId,
    pub sanitized_int: NameId,
}

/// `.debug_addr` and the unit's place in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses<'a> {
    pub section: &'a [u8],
    pub base: u64,
    pub width: u8,
}

impl Addresses<'_> {
    /// The address of an index (DWARF 5, section 7.27); `None` if it is outside.
    pub fn get<const BIG: bool>(&self, index: u64) -> Option<u64> {
        let place = index.checked_mul(u64::from(self.width))?.checked_add(self.base)?;
        let place = usize::try_from(place).ok()?;
        Cursor::<BIG>::new(self.section, place).unsigned(self.width).ok()
    }
}

/// The walk's state.
#[derive(Debug)]
pub(super) struct Walk<'a, 'w, const BIG: bool> {
    pub reader: DieReader<'a, BIG>,
    pub context: Context<'a>,
    pub local: &'w mut Local,
    pub notes: &'w mut Notes,
    pub values: &'w mut Values,
    /// Words of the records that wait for the types nested in them, innermost last.
    pub aside: &'w mut Vec<u32>,
    /// Element and bit size of the members of incomplete records that are bitfields.
    pub bit_sizes: &'w mut Vec<(u32, u32)>,
    pub depth: u32,
}

impl<const BIG: bool> Walk<'_, '_, BIG> {
    /// Walks the children of the root DIE.
    pub fn unit(&mut self) -> Result<(), DieError> {
        self.scope(true)
    }

    /// Walks a list of children that are declarations.
    pub fn scope(&mut self, is_top_level: bool) -> Result<(), DieError> {
        // The list of the root's children may end with the unit instead of a null entry.
        while !(is_top_level && self.reader.at_end()) {
            let Some(template) = self.reader.next_die()? else {
                break;
            };
            self.any_declaration(template, is_top_level)?;
        }
        Ok(())
    }

    /// Walks one DIE that is a declaration; types that only refer to another on a path without
    /// branches, since there is no telling which of them comes next.
    #[inline(always)]
    pub fn any_declaration(
        &mut self,
        template: &Template,
        is_top_level: bool,
    ) -> Result<(), DieError> {
        if let Some(simple) = &template.simple
            && simple.reference_info != 0
        {
            let start = self.reader.cursor.position;
            let (name, target, _) = self.reader.read_simple(simple)?;
            if !(name.is_none() && template.kind == DieKind::Typedef) {
                let words = [name.0, simple.reference_info, target];
                self.local.add_target(self.reader.current, template.kind, words);
                return Ok(());
            }
            self.reader.cursor.position = start;
        }
        self.declaration(template, is_top_level)
    }

    /// Walks one DIE that is a declaration: a type, function, variable or namespace.
    fn declaration(&mut self, template: &Template, is_top_level: bool) -> Result<(), DieError> {
        match template.kind {
            DieKind::Base => self.base_type(template),
            DieKind::Const
            | DieKind::Volatile
            | DieKind::Restrict
            | DieKind::Reference
            | DieKind::Transparent
            | DieKind::Subrange => self.qualifier(template),
            DieKind::Opaque => self.opaque(template),
            DieKind::Pointer => self.pointer(template),
            DieKind::Typedef => self.typedef(template),
            DieKind::Array => self.array(template),
            DieKind::Struct | DieKind::Class | DieKind::Union => {
                self.nested(|walk| walk.composite(template))
            }
            DieKind::Enumeration => self.enumeration(template),
            DieKind::SubroutineType => self.nested(|walk| walk.subroutine_type(template)),
            DieKind::Unspecified => self.unspecified(template),
            DieKind::Subprogram => self.nested(|walk| walk.subprogram(template)),
            DieKind::Variable => self.variable(template, is_top_level),
            DieKind::Namespace => {
                self.reader.skip(template)?;
                if template.has_children { self.nested(|walk| walk.scope(false)) } else { Ok(()) }
            }
            DieKind::ImportedUnit => {
                self.reader.read(template, self.values)?;
                self.local.imported_units.push(self.values.reference(Slot::Import));
                self.skip_rest(template)
            }
            DieKind::Root
            | DieKind::Enumerator
            | DieKind::Member
            | DieKind::Inheritance
            | DieKind::Parameter
            | DieKind::UnspecifiedParameters
            | DieKind::Block
            | DieKind::Annotation
            | DieKind::GnuAnnotation
            | DieKind::Other => self.reader.skip_tree(template),
        }
    }

    fn nested(
        &mut self,
        walk: impl FnOnce(&mut Self) -> Result<(), DieError>,
    ) -> Result<(), DieError> {
        if self.depth >= MAX_DEPTH {
            return Err(DieError::TooDeep(MAX_DEPTH));
        }
        self.depth += 1;
        let result = walk(self);
        self.depth -= 1;
        result
    }

    /// Counts something that BTF cannot express, at the DIE being read.
    pub fn note(&mut self, note: Note) {
        self.notes.add(note, self.context.unit_offset + u64::from(self.reader.current));
    }

    fn subprogram(&mut self, template: &Template) -> Result<(), DieError> {
        let offset = self.reader.current;
        self.reader.read(template, self.values)?;
        let function = self.local.functions.len() as u32;
        let parameters = self.local.parameters.len() as u32;
        let is_declaration = self.values.number(Slot::Declaration) != 0;
        let annotation = self.values.reference(Slot::GnuAnnotation);
        self.local.functions.push(LocalFunction {
            offset,
            name: self.values.name(),
            linkage_name: self.linkage_name(),
            result: self.values.reference(Slot::Type),
            origin: self.values.reference(Slot::AbstractOrigin),
            specification: self.values.reference(Slot::Specification),
            address: self.low_pc(),
            is_declaration,
            is_inline: self.values.number(Slot::Inline) != 0,
            is_nocall: self.values.number(Slot::CallingConvention)
                == u64::from(gimli::DW_CC_nocall.0),
            is_variadic: false,
            reordered: false,
            parameters: (parameters, parameters),
            tags: (0, 0),
        });
        let first_tag = self.local.tags.len() as u32;
        if template.has_children {
            self.body(function)?;
        }
        self.gnu_tags(annotation, -1)?;
        let (parameters_end, tags_end) = (self.local.parameters.len(), self.local.tags.len());
        let record = &mut self.local.functions[function as usize];
        record.parameters.1 = parameters_end as u32;
        record.tags = (first_tag, tags_end as u32);
        self.local.function_order.push(function);
        Ok(())
    }

    /// What the symbol table calls the function in `values`. In C that is its name, and where it is
    /// not (`__asm__` labels), pahole looks for the name all the same.
    fn linkage_name(&self) -> NameId {
        match self.values.get(Slot::LinkageName) {
            Some(name) if self.context.has_linkage_names => NameId(name as u32),
            _ => NameId::NONE,
        }
    }

    fn low_pc(&self) -> u64 {
        match (self.values.get(Slot::LowPc), self.values.get(Slot::LowPcIndex)) {
            (Some(address), _) => address,
            (None, Some(index)) => self.context.addresses.get::<BIG>(index).unwrap_or(0),
            (None, None) => 0,
        }
    }

    /// Walks the body of a function with all its blocks; only types and nested functions matter
    /// there, and the parameters on its first level.
    fn body(&mut self, function: u32) -> Result<(), DieError> {
        let mut level = 1_u32;
        let mut index = 0;
        while level > 0 {
            let Some(template) = self.reader.next_die()? else {
                level -= 1;
                continue;
            };
            match template.kind {
                DieKind::Other | DieKind::Variable => self.reader.skip_tree(template)?,
                DieKind::Block => {
                    self.reader.skip(template)?;
                    level += u32::from(template.has_children);
                }
                DieKind::Parameter if level == 1 => {
                    self.parameter(template, function, index)?;
                    index += 1;
                }
                DieKind::UnspecifiedParameters => {
                    self.local.functions[function as usize].is_variadic |= level == 1;
                    self.reader.skip_tree(template)?;
                }
                DieKind::Annotation if level == 1 => {
                    self.reader.read(template, self.values)?;
                    self.decl_tag(-1);
                    self.skip_rest(template)?;
                }
                _ => self.any_declaration(template, false)?,
            }
        }
        Ok(())
    }

    fn parameter(
        &mut self,
        template: &Template,
        function: u32,
        index: u32,
    ) -> Result<(), DieError> {
        if self.local.functions[function as usize].is_declaration {
            return self.reader.skip_tree(template);
        }
        let offset = self.reader.current;
        if let (Some(simple), false) = (&template.simple, template.has_children)
            && !simple.has_number
        {
            let (name, ty, _) = self.reader.read_simple(simple)?;
            self.local.parameters.push(LocalParameter {
                offset,
                function,
                index,
                name,
                ty,
                origin: 0,
                has_constant: false,
                location: ParameterLocation::None,
            });
            return Ok(());
        }
        self.reader.read(template, self.values)?;
        let values = &*self.values;
        let location = match (
            values.block(Slot::Location),
            values.get(Slot::LocationList),
            values.get(Slot::LocationListIndex),
        ) {
            (Some(block), _, _) => ParameterLocation::Expression(block),
            (None, Some(offset), _) => ParameterLocation::List(offset),
            (None, None, Some(index)) => ParameterLocation::Index(index),
            (None, None, None) => ParameterLocation::None,
        };
        self.local.parameters.push(LocalParameter {
            offset,
            function,
            index,
            name: values.name(),
            ty: values.reference(Slot::Type),
            origin: values.reference(Slot::AbstractOrigin),
            has_constant: values.has(Slot::ConstValue),
            location,
        });
        let annotation = values.reference(Slot::GnuAnnotation);
        self.child_tags(template, index as i32)?;
        self.gnu_tags(annotation, index as i32)
    }

    fn variable(&mut self, template: &Template, is_top_level: bool) -> Result<(), DieError> {
        let features = self.context.options.features;
        if !features.has(Feature::Var) && !features.has(Feature::GlobalVar) {
            return self.reader.skip_tree(template);
        }
        let offset = self.reader.current;
        self.reader.read(template, self.values)?;
        let values = &*self.values;
        let mut variable = LocalVariable {
            offset,
            name: values.name(),
            ty: values.reference(Slot::Type),
            // LTO has the variable in one unit, its place in another.
            specification: match values.reference(Slot::Specification) {
                0 => values.reference(Slot::AbstractOrigin),
                specification => specification,
            },
            address: values.block(Slot::Location).and_then(|block| {
                address_of::<BIG>(self.reader.block(block), &self.context.addresses)
            }),
            is_declaration: values.has(Slot::Declaration),
            is_external: values.has(Slot::External),
            is_artificial: values.has(Slot::Artificial),
            is_top_level,
            tags: (0, 0),
        };
        let first_tag = self.local.tags.len() as u32;
        self.child_tags(template, -1)?;
        variable.tags = (first_tag, self.local.tags.len() as u32);
        self.local.variables.push(variable);
        Ok(())
    }

    /// Reads the children of a parameter or variable for tags; everything else is passed over.
    pub fn child_tags(&mut self, template: &Template, component: i32) -> Result<(), DieError> {
        if !template.has_children {
            return Ok(());
        }
        while let Some(child) = self.reader.next_die()? {
            if child.kind == DieKind::Annotation {
                self.reader.read(child, self.values)?;
                self.decl_tag(component);
                self.skip_rest(child)?;
            } else {
                self.reader.skip_tree(child)?;
            }
        }
        Ok(())
    }

    /// Passes over the children of a DIE whose attributes have been read.
    pub fn skip_rest(&mut self, template: &Template) -> Result<(), DieError> {
        if template.has_children { self.reader.skip_children() } else { Ok(()) }
    }

    /// Adds the annotation in `values` as a tag, if it is one.
    fn decl_tag(&mut self, component: i32) {
        if let Some(value) = self.annotation(self.context.decl_tag, Feature::DeclTag) {
            self.local.tags.push(Tag { value, component });
        }
    }

    /// The text of the annotation in `values`, if it has this name and the feature is on.
    pub fn annotation(&self, name: NameId, feature: Feature) -> Option<NameId> {
        // By bytes: a linker may have made this name the tail of another string.
        let is_named = || {
            let names = self.context.names;
            names.bytes(self.values.name(), &mut [0; 4]) == names.bytes(name, &mut [0; 4])
        };
        let wanted = self.context.options.features.has(feature) && is_named();
        let value = NameId(self.values.number(Slot::ConstString) as u32);
        (wanted && !value.is_none()).then_some(value)
    }

    /// Adds the tags of a chain of `DW_AT_GNU_annotation` (2.8.4).
    fn gnu_tags(&mut self, first: DieRef, component: i32) -> Result<(), DieError> {
        if first == 0 {
            return Ok(());
        }
        let mut tags = std::mem::take(&mut self.local.tags);
        let result = self.gnu_chain(first, self.context.decl_tag, Feature::DeclTag, |value| {
            tags.push(Tag { value, component });
            true
        });
        self.local.tags = tags;
        result
    }

    /// Walks a chain of `DW_TAG_GNU_annotation` DIEs and hands out the text of those called
    /// `name`; `visit` may stop the walk. Annotations of other names are passed over, except that
    /// for type tags pahole stops at the first (2.8.2).
    pub fn gnu_chain(
        &mut self,
        first: DieRef,
        name: NameId,
        feature: Feature,
        visit: impl FnMut(NameId) -> bool,
    ) -> Result<(), DieError> {
        let position = self.reader.cursor.position;
        let result = self.follow_gnu_chain(first, name, feature, visit);
        self.reader.cursor.position = position;
        result
    }

    fn follow_gnu_chain(
        &mut self,
        first: DieRef,
        name: NameId,
        feature: Feature,
        mut visit: impl FnMut(NameId) -> bool,
    ) -> Result<(), DieError> {
        let mut next = first;
        for _ in 0..MAX_CHAIN {
            if next == 0 || next >= FIRST_FOREIGN {
                return Ok(());
            }
            let links = self.local.chain_links.checked_sub(1);
            self.local.chain_links = links.ok_or(DieError::EndlessAnnotations)?;
            self.reader.cursor.position = next as usize;
            let Ok(Some(template)) = self.reader.next_die() else {
                return Ok(());
            };
            if template.kind != DieKind::GnuAnnotation
                || self.reader.read(template, self.values).is_err()
            {
                return Ok(());
            }
            let goes_on = match self.annotation(name, feature) {
                Some(value) => visit(value),
                None => feature == Feature::DeclTag,
            };
            if !goes_on {
                return Ok(());
            }
            next = self.values.reference(Slot::GnuAnnotation);
        }
        Err(DieError::EndlessAnnotations)
    }
}
