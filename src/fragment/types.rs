//! Types: from the attributes of a DIE to a BTF record (spec/encoding section 2).

use gimli::constants as dw;
use hashbrown::HashMap;

use super::local::{OldBitfield, Shape, Tag, TypeIndex};
use super::notes::Note;
use super::walk::Walk;
use crate::btf::kind::{Info, Kind, MAX_VLEN};
use crate::dwarf::cursor::Cursor;
use crate::dwarf::die::{DieError, DieRef};
use crate::dwarf::foreign::FIRST_FOREIGN;
use crate::dwarf::template::{DieKind, Slot, Template};
use crate::elf::unsigned;
use crate::names::NameId;
use crate::options::Feature;

/// Name of an INT that stands for a base type INT cannot express (2.2.4).
pub(super) const SANITIZED_INT: &[u8] = b"__SANITIZED_FAKE_INT__";
/// Largest bit offset next to a bitfield size (rule T5).
const MAX_BITFIELD_OFFSET: u32 = 0xff_ffff;
/// As many dimensions of an array are read (2.3.5).
const MAX_DIMENSIONS: usize = 64;

/// A record with elements that is being written at the end of the words.
#[derive(Clone, Copy, Debug)]
struct Draft {
    index: TypeIndex,
    /// Where its words start.
    start: usize,
    /// Where those of its words start that were set aside for a nested type.
    aside: usize,
    /// Where its entries of [`Walk::bit_sizes`] start.
    bit_sizes: usize,
    has_old_bitfields: bool,
}

/// A member and where it lies.
#[derive(Clone, Copy, Debug)]
struct Member {
    name: NameId,
    ty: DieRef,
    /// From the start of the struct; of an old bitfield, that of its storage.
    bit_offset: u32,
    bit_size: u32,
}

/// What else is known of a bitfield in the style of DWARF 2 and 3.
#[derive(Clone, Copy, Debug)]
struct OldPlace {
    bit_offset: u64,
    byte_size: u64,
}

/// The attributes of a struct, union or enumeration.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    name: NameId,
    size: u64,
    underlying: DieRef,
    specification: DieRef,
    annotation: DieRef,
    is_declaration: bool,
    /// The type unit that has the type itself.
    signature: DieRef,
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
            _ => {
                self.note(Note::Qualifier);
                self.alias(index, target);
                return self.skip_rest(template);
            }
        };
        let start = self.local.words.len();
        self.local.words.extend([0, Info::new(kind, 0, false).0, target]);
        self.local.finish(index, start, Shape::Target, 0);
        self.skip_rest(template)
    }

    fn alias(&mut self, index: TypeIndex, target: DieRef) {
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
    fn type_annotation(
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

    /// 2.9: there is no such type in BTF.
    pub(super) fn unspecified(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Unspecified);
        self.local.types[index as usize].shape = Shape::Void;
        self.reader.skip_tree(template)
    }

    /// Reads the attributes of a struct, union or enumeration.
    fn head(&mut self, template: &Template) -> Result<Head, DieError> {
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
    fn draft(&mut self, index: TypeIndex, head: [u32; 3]) -> Draft {
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
    fn nested_declaration(
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
    fn put_together(&mut self, draft: &mut Draft) {
        if self.aside.len() > draft.aside {
            self.aside.extend(self.local.words.drain(draft.start..));
            self.local.words.extend(self.aside.drain(draft.aside..));
        }
    }

    /// 2.4.
    pub(super) fn composite(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, template.kind);
        let head = self.head(template)?;
        let Head { name, size, specification, annotation, is_declaration, .. } = head;
        if name.is_none() && specification != 0 {
            self.local.specified.push((index, specification));
        }
        let mut draft = self.draft(index, [name.0, 0, clamp(size)]);
        if template.has_children {
            self.members_of(&mut draft)?;
            self.put_together(&mut draft);
        }
        if annotation != 0 {
            self.gnu_type_tags(annotation, index, -1)?;
        }
        if is_declaration || head.signature != 0 {
            self.local.words.truncate(draft.start);
            self.bit_sizes.truncate(draft.bit_sizes);
        }
        if head.signature != 0 {
            self.alias(index, head.signature);
        } else if is_declaration {
            self.forward(index, name, specification, template.kind == DieKind::Union);
        } else {
            self.complete(draft);
        }
        Ok(())
    }

    /// Adds the tags of a chain of `DW_AT_GNU_annotation` to a type (2.8.4).
    fn gnu_type_tags(
        &mut self,
        first: DieRef,
        index: TypeIndex,
        component: i32,
    ) -> Result<(), DieError> {
        let mut tags = std::mem::take(&mut self.local.type_tags);
        let result = self.gnu_chain(first, self.context.decl_tag, Feature::DeclTag, |value| {
            tags.push((index, Tag { value, component }));
            true
        });
        self.local.type_tags = tags;
        result
    }

    fn forward(&mut self, index: TypeIndex, name: NameId, specification: DieRef, is_union: bool) {
        let start = self.local.words.len();
        if name.is_none() && specification == 0 {
            self.note(Note::NamelessForward);
            self.local.finish(index, start, Shape::Void, 0);
            return;
        }
        self.local.words.extend([name.0, Info::new(Kind::Fwd, 0, is_union).0, 0]);
        self.local.finish(index, start, Shape::Plain, 0);
    }

    fn members_of(&mut self, draft: &mut Draft) -> Result<(), DieError> {
        let mut component = 0;
        while let Some(child) = self.reader.next_die()? {
            if let (DieKind::Member, Some(simple), false) =
                (child.kind, &child.simple, child.has_children)
            {
                let (name, ty, bytes) = self.reader.read_simple(simple)?;
                let bit_offset = clamp(bytes.saturating_mul(8));
                self.local.words.extend([name.0, ty, bit_offset]);
                component += 1;
                continue;
            }
            match child.kind {
                DieKind::Member => {
                    let is_counted = self.complex_member(child, draft, component)?;
                    component += i32::from(is_counted);
                }
                DieKind::Inheritance if self.context.has_base_members => {
                    component += i32::from(self.base_class(child, draft)?);
                }
                DieKind::Inheritance => {
                    self.reader.skip_tree(child)?;
                    component += 1;
                }
                DieKind::Annotation => self.type_annotation(child, draft.index, -1)?,
                _ => self.nested_declaration(child, draft)?,
            }
        }
        Ok(())
    }

    fn member_annotations(
        &mut self,
        template: &Template,
        owner: TypeIndex,
        component: i32,
    ) -> Result<(), DieError> {
        if template.has_children {
            while let Some(child) = self.reader.next_die()? {
                self.type_annotation(child, owner, component)?;
            }
        }
        Ok(())
    }

    /// A member with more than a name, a type and a place, or with tags; returns whether it counts as
    /// one.
    fn complex_member(
        &mut self,
        template: &Template,
        draft: &mut Draft,
        component: i32,
    ) -> Result<bool, DieError> {
        self.reader.read(template, self.values)?;
        let annotation = self.values.reference(Slot::GnuAnnotation);
        // A static data member is no part of the object (2.4.3).
        let values = &*self.values;
        let is_static = values.has(Slot::External) || values.has(Slot::Declaration);
        if is_static || !self.add_placed_member(draft) {
            self.skip_rest(template)?;
            // pahole counts what it drops, so that tags of later members are off by one (2.8.4).
            return Ok(self.context.options.compat_pahole);
        }
        self.member_annotations(template, draft.index, component)?;
        if annotation != 0 {
            self.gnu_type_tags(annotation, draft.index, component)?;
        }
        Ok(true)
    }

    /// A base class: a member without a name, unless it is a virtual one, whose place is computed.
    fn base_class(&mut self, template: &Template, draft: &mut Draft) -> Result<bool, DieError> {
        self.reader.read(template, self.values)?;
        let is_added = self.add_placed_member(draft);
        self.skip_rest(template)?;
        Ok(is_added)
    }

    /// Adds the member in `values`; returns whether its place is known.
    fn add_placed_member(&mut self, draft: &mut Draft) -> bool {
        let placed = self.placed_member();
        match placed {
            Some((member, old)) => self.add_member(member, old, draft),
            None => self.note(Note::MemberLocation),
        }
        placed.is_some()
    }

    fn add_member(&mut self, member: Member, old: Option<OldPlace>, draft: &mut Draft) {
        let Member { name, ty, bit_offset, bit_size } = member;
        let own_words = self.aside.len() - draft.aside + self.local.words.len() - draft.start;
        let element = (own_words as u32 - 3) / 3;
        if bit_size != 0 || bit_offset % 8 != 0 {
            self.bit_sizes.push((element, bit_size));
        }
        if let Some(old) = old {
            draft.has_old_bitfields = true;
            self.local.old_bitfields.push(OldBitfield {
                owner: draft.index,
                element,
                byte_offset: u64::from(bit_offset / 8),
                bit_offset: old.bit_offset,
                bit_size: u64::from(bit_size),
                byte_size: old.byte_size,
                ty,
            });
        }
        self.local.words.extend([name.0, ty, bit_offset]);
    }

    /// Where the member in `values` lies (2.4.4, 2.4.5); `None` if that is computed.
    fn placed_member(&self) -> Option<(Member, Option<OldPlace>)> {
        let values = &*self.values;
        let bit_size = clamp(values.number(Slot::BitSize));
        let (name, ty) = (values.name(), values.reference(Slot::Type));
        if let Some(bits) = values.get(Slot::DataBitOffset) {
            return Some((Member { name, ty, bit_offset: clamp(bits), bit_size }, None));
        }
        let bytes = match values.block(Slot::MemberLocationExpression) {
            Some(block) => constant_offset::<BIG>(self.reader.block(block))?,
            None => values.number(Slot::MemberLocation),
        };
        let member = Member { name, ty, bit_offset: clamp(bytes.checked_mul(8)?), bit_size };
        let old = (bit_size != 0).then(|| OldPlace {
            bit_offset: values.number(Slot::BitOffset),
            byte_size: values.number(Slot::ByteSize),
        });
        Some((member, old))
    }

    /// Completes a struct or union whose members have been read.
    fn complete(&mut self, draft: Draft) {
        let Draft { index, start, mut has_old_bitfields, .. } = draft;
        let is_union = self.local.types[index as usize].kind == DieKind::Union;
        let kind = if is_union { Kind::Union } else { Kind::Struct };
        let mut has_bitfields = self.bit_sizes.len() > draft.bit_sizes;
        if has_bitfields && !self.can_have_bit_sizes(&draft, is_union) {
            self.leave_out_bitfields(&draft);
            (has_bitfields, has_old_bitfields) = (false, false);
        }
        if is_union && !has_old_bitfields {
            self.keep_at_start(start);
        }
        let (members, _) = self.local.words[start + 3..].as_chunks_mut::<3>();
        if has_bitfields {
            for &(element, bit_size) in &self.bit_sizes[draft.bit_sizes..] {
                members[element as usize][2] |= bit_size << 24;
            }
        }
        self.bit_sizes.truncate(draft.bit_sizes);
        if self.context.sorts_members && !has_old_bitfields {
            let mask = if has_bitfields { MAX_BITFIELD_OFFSET } else { u32::MAX };
            let order = |member: &[u32; 3]| member[2] & mask;
            if !members.is_sorted_by_key(order) {
                self.sort_members(start, index, order);
            }
        }
        let (members, _) = self.local.words[start + 3..].as_chunks::<3>();
        let count = members.len().min(MAX_VLEN as usize);
        if count < members.len() {
            self.note(Note::TooManyElements);
            self.local.words.truncate(start + 3 + 3 * count);
        }
        self.local.words[start + 1] = Info::new(kind, count as u32, has_bitfields).0;
        let size = self.local.words[start + 2];
        self.local.finish(index, start, Shape::Members, size);
    }

    /// Puts members in order, and keeps their tags with them.
    fn sort_members(&mut self, start: usize, index: TypeIndex, key: impl Fn(&[u32; 3]) -> u32) {
        let (members, _) = self.local.words[start + 3..].as_chunks_mut::<3>();
        let mut places: Vec<u32> = (0..members.len() as u32).collect();
        places.sort_by_key(|&place| key(&members[place as usize]));
        members.sort_by_key(key);
        if self.context.options.compat_pahole {
            return;
        }
        self.move_tags(index, &places);
    }

    /// Lets the tags of members follow them: `places` says where each member was before. Those of
    /// members that are gone are dropped.
    fn move_tags(&mut self, index: TypeIndex, places: &[u32]) {
        let start = since(&self.local.type_tags, index, |entry| entry.0);
        if start == self.local.type_tags.len() {
            return;
        }
        let mut new_places: HashMap<i32, i32> = HashMap::with_capacity(places.len());
        new_places.extend(places.iter().map(|&old| old as i32).zip(0..));
        let tags = self.local.type_tags.split_off(start);
        self.local.type_tags.extend(tags.into_iter().filter_map(|(owner, mut tag)| {
            if owner == index && tag.component >= 0 {
                tag.component = *new_places.get(&tag.component)?;
            }
            Some((owner, tag))
        }));
    }

    /// Leaves out all bitfields of a struct that cannot say how wide they are.
    fn leave_out_bitfields(&mut self, draft: &Draft) {
        let fields = &self.bit_sizes[draft.bit_sizes..];
        let is_field = |place: &u32| fields.binary_search_by_key(place, |field| field.0).is_ok();
        let members = self.local.words[draft.start + 3..].as_chunks::<3>().0;
        let places: Vec<u32> = (0..members.len() as u32).filter(|place| !is_field(place)).collect();
        for (new, &old) in places.iter().enumerate() {
            let (from, to) = (draft.start + 3 + 3 * old as usize, draft.start + 3 + 3 * new);
            self.local.words.copy_within(from..from + 3, to);
        }
        self.local.words.truncate(draft.start + 3 + 3 * places.len());
        let start = since(&self.local.old_bitfields, draft.index, |field| field.owner);
        let mut fields = self.local.old_bitfields.split_off(start);
        fields.retain(|field| field.owner != draft.index);
        self.local.old_bitfields.append(&mut fields);
        self.move_tags(draft.index, &places);
    }

    /// BTF requires that the members of a union are at its start.
    fn keep_at_start(&mut self, start: usize) {
        let mut bits = 0;
        for [_, _, offset] in self.local.words[start + 3..].as_chunks_mut::<3>().0 {
            bits |= std::mem::take(offset);
        }
        if bits != 0 {
            self.note(Note::UnionOffset);
        }
    }

    /// Whether the type, which has bitfields, gets kflag (2.4.7). Not if a member lies too far out
    /// for a bitfield size next to its offset, or a field is too wide.
    fn can_have_bit_sizes(&mut self, draft: &Draft, is_union: bool) -> bool {
        let (members, _) = self.local.words[draft.start + 3..].as_chunks::<3>();
        let is_far = |member: &[u32; 3]| !is_union && member[2] > MAX_BITFIELD_OFFSET;
        let is_wide = |entry: &(u32, u32)| entry.1 > 0xff;
        if members.iter().any(is_far) || self.bit_sizes[draft.bit_sizes..].iter().any(is_wide) {
            self.note(Note::Bitfield);
            return false;
        }
        true
    }

    /// 2.6.
    pub(super) fn enumeration(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Enumeration);
        let Head { name, size, underlying, specification, signature, .. } = self.head(template)?;
        if signature != 0 {
            self.alias(index, signature);
            return self.skip_rest(template);
        }
        let size = self.enum_size(size);
        if name.is_none() && specification != 0 {
            self.local.specified.push((index, specification));
        }
        let has_enum64 = self.context.options.features.has(Feature::Enum64);
        let kind = if size <= 4 || !has_enum64 { Kind::Enum } else { Kind::Enum64 };
        let start = self.local.words.len();
        self.local.words.extend([name.0, 0, size]);
        let mut is_negative = false;
        let mut count = 0_u32;
        if template.has_children {
            while let Some(child) = self.reader.next_die()? {
                if child.kind == DieKind::Enumerator {
                    let (name, value) = match &child.simple {
                        Some(simple) => {
                            let (name, _, value) = self.reader.read_simple(simple)?;
                            (name, value)
                        }
                        None => {
                            self.reader.read(child, self.values)?;
                            (self.values.name(), self.enumerator_value())
                        }
                    };
                    if self.enumerator(kind, name, value, count, &mut is_negative) {
                        count += 1;
                    }
                    self.skip_rest(child)?;
                } else {
                    self.reader.skip_tree(child)?;
                }
            }
        }
        if kind == Kind::Enum64 && underlying >= FIRST_FOREIGN {
            self.local.foreign_enums.push((index, underlying));
        }
        let kflag = match kind {
            Kind::Enum64 => self.is_signed(underlying),
            _ => is_negative && has_enum64,
        };
        self.local.words[start + 1] = Info::new(kind, count, kflag).0;
        self.local.finish(index, start, Shape::Plain, size);
        Ok(())
    }

    /// The value of the enumerator in `values`: the low half of one of 128 bits (Rust).
    fn enumerator_value(&self) -> u64 {
        let Some(block) = self.values.block(Slot::ConstBlock) else {
            return self.values.number(Slot::ConstValue);
        };
        let bytes = self.reader.block(block);
        let low = if BIG { bytes.rchunks(8).next() } else { bytes.chunks(8).next() };
        unsigned(low.unwrap_or(&[]), BIG)
    }

    fn enum_size(&mut self, size: u64) -> u32 {
        match size {
            0 => 4,
            1 | 2 | 4 | 8 => size as u32,
            _ => {
                self.note(Note::EnumSize);
                if size < 4 { 4 } else { 8 }
            }
        }
    }

    /// Adds an enumerator; returns whether it was added.
    fn enumerator(
        &mut self,
        kind: Kind,
        name: NameId,
        value: u64,
        count: u32,
        is_negative: &mut bool,
    ) -> bool {
        if name.is_none() || count >= MAX_VLEN {
            self.note(if name.is_none() {
                Note::NamelessEnumerator
            } else {
                Note::TooManyElements
            });
            return false;
        }
        self.local.words.extend([name.0, value as u32]);
        if kind == Kind::Enum64 {
            self.local.words.push((value >> 32) as u32);
            return true;
        }
        let signed = value as i64;
        *is_negative |= signed < 0;
        let fits = (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&signed);
        if !fits && self.context.options.features.has(Feature::Enum64) {
            self.note(Note::EnumValue);
        }
        true
    }

    /// Whether the type DIE at `offset` has a signed encoding (2.6.4). It is a base type that
    /// may come later, so it is read here and now.
    fn is_signed(&mut self, offset: DieRef) -> bool {
        let position = std::mem::replace(&mut self.reader.cursor.position, offset as usize);
        let mut encoding = 0;
        if offset != 0
            && let Ok(Some(template)) = self.reader.next_die()
            && template.kind == DieKind::Base
            && self.reader.read(template, self.values).is_ok()
        {
            encoding = self.values.number(Slot::Encoding) as u8;
        }
        self.reader.cursor.position = position;
        matches!(dw::DwAte(encoding), dw::DW_ATE_signed | dw::DW_ATE_signed_char)
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
        self.local.finish(index, start, Shape::Prototype, 0);
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

/// Where in a list that grows as types are read that begins which was added since the type `index`
/// began: entries of types that began earlier come before.
fn since<T>(list: &[T], index: TypeIndex, owner: impl Fn(&T) -> TypeIndex) -> usize {
    list.len() - list.iter().rev().take_while(|entry| owner(entry) >= index).count()
}

/// The offset that a member location expression adds: only the two shapes compilers write for a
/// constant (2.4.4).
fn constant_offset<const BIG: bool>(expression: &[u8]) -> Option<u64> {
    let mut cursor = Cursor::<BIG>::new(expression, 0);
    let operation = gimli::DwOp(cursor.u8().ok()?);
    match operation {
        dw::DW_OP_plus_uconst | dw::DW_OP_constu => cursor.uleb().ok(),
        _ => None,
    }
}

const fn is_float_size(size: u64) -> bool {
    matches!(size, 2 | 4 | 8 | 12 | 16)
}

fn clamp(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
