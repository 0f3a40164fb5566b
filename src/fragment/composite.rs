//! Structs, unions and classes: from their DIEs to BTF records with members (spec/encoding 2.4).

use gimli::constants as dw;
use hashbrown::HashMap;

use super::local::{OldBitfield, Shape, Tag, TypeIndex};
use super::notes::Note;
use super::types::{Draft, Head, clamp};
use super::walk::Walk;
use crate::btf::kind::{Info, Kind, MAX_VLEN};
use crate::dwarf::cursor::Cursor;
use crate::dwarf::die::{DieError, DieRef};
use crate::dwarf::template::{DieKind, Slot, Template};
use crate::names::NameId;
use crate::options::Feature;

/// Largest bit offset next to a bitfield size (rule T5).
const MAX_BITFIELD_OFFSET: u32 = 0xff_ffff;

/// Structs of fewer bytes have no member whose place in bits does not fit into 32 bits.
const FAR: u32 = u32::MAX / 8;

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

impl<const BIG: bool> Walk<'_, '_, BIG> {
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
        let is_within_byte = bit_offset % 8 != 0 && bit_offset != u32::MAX;
        if bit_size != 0 || is_within_byte {
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
        } else if self.local.words[start + 2] >= FAR {
            self.leave_out_far_members(&draft);
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
        if size == 0 && count > 0 {
            self.local.unsized_types.push(index);
        }
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
        self.keep_members(draft, &places);
        let start = since(&self.local.old_bitfields, draft.index, |field| field.owner);
        let mut fields = self.local.old_bitfields.split_off(start);
        fields.retain(|field| field.owner != draft.index);
        self.local.old_bitfields.append(&mut fields);
    }

    /// Leaves out members that lie so far out that BTF cannot say where. Bitfields are none of them:
    /// they have been left out before.
    fn leave_out_far_members(&mut self, draft: &Draft) {
        let members = self.local.words[draft.start + 3..].as_chunks::<3>().0;
        let is_near = |&place: &u32| members[place as usize][2] != u32::MAX;
        let places: Vec<u32> = (0..members.len() as u32).filter(is_near).collect();
        if places.len() < members.len() {
            self.note(Note::FarMember);
            self.keep_members(draft, &places);
        }
    }

    /// Leaves out all members but those at `places`, and their tags.
    fn keep_members(&mut self, draft: &Draft, places: &[u32]) {
        for (new, &old) in places.iter().enumerate() {
            let (from, to) = (draft.start + 3 + 3 * old as usize, draft.start + 3 + 3 * new);
            self.local.words.copy_within(from..from + 3, to);
        }
        self.local.words.truncate(draft.start + 3 + 3 * places.len());
        self.move_tags(draft.index, places);
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
