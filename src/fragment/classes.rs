//! Interns the types of a unit: from records with DIE offsets to classes in the pool.
//!
//! A type can be interned once the classes of its structural references are known (nominal ones
//! need no class, see `pool`), so types are visited depth first. A cycle of structural references
//! does not occur in C; it is cut at a typedef by name, or with void.

use super::local::{Local, LocalType, MAX_CHAIN, Shape, TypeIndex, UNKNOWN};
use super::notes::{Note, Notes};
use crate::btf::kind::{Info, Kind, kind_of, map_refs};
use crate::dwarf::die::{DieRef, FOREIGN};
use crate::dwarf::foreign::FIRST_FOREIGN;
use crate::dwarf::template::DieKind;
use crate::names::NameId;
use crate::pool::{ClassId, Namespace, Pool, Ref, Target, key_of};

/// A type that waits for the types it refers to.
const WAITING: u32 = u32::MAX - 1;
/// Stands for the class of a type that has none.
const NO_CLASS: ClassId = ClassId(u32::MAX);
/// An array of fewer elements is taken to be smaller than 4 GiB: its elements would have more than 1 MiB.
const MANY: u32 = 1 << 12;
/// How far back on the stack the start of a cycle is looked for. Longer ones are only made to waste
/// time, and are cut with void.
const MAX_CYCLE: usize = 4096;

/// What stands for `...` in a prototype.
const ELLIPSIS: [u32; 2] = [0, Ref::VOID.0];

/// What the types of one unit became. Reused from unit to unit.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// What a reference to each type is.
    refs: Vec<u32>,
    /// The class of each type, [`NO_CLASS`] for those that have none.
    classes: Vec<ClassId>,
    /// Classes that one type DIE gives besides its own, in id order before it.
    extra: Vec<(TypeIndex, ClassId)>,
    stack: Vec<TypeIndex>,
    record: Vec<u32>,
}

impl Classes {
    /// Interns all types of `local`.
    pub fn intern(&mut self, local: &mut Local, pool: &mut Pool, notes: &mut Notes, base: u64) {
        copy_specified_names(local, notes, base);
        sign_foreign_enums(local);
        place_old_bitfields(local);
        measure_unsized_types(local);
        self.reset(local);
        // Structs last: their members refer to pointers and arrays that come later as often as not,
        // while those mostly lead to named types, which need not be waited for.
        for have_members in [false, true] {
            for &index in &local.order {
                let ty = local.types[index as usize];
                if (ty.shape == Shape::Members) == have_members
                    && self.classes[index as usize] == NO_CLASS
                    && !self.intern_now(index, ty, local, pool)
                {
                    self.visit(index, local, pool, notes, base);
                }
            }
        }
        self.extra.sort_by_key(|entry| entry.0);
    }

    fn reset(&mut self, local: &mut Local) {
        std::mem::swap(&mut self.refs, &mut local.refs);
        self.classes.clear();
        self.classes.resize(local.types.len(), NO_CLASS);
        self.extra.clear();
    }

    /// Puts back into `local` what references were before interning: known for named types only.
    pub fn give_back_nominal_refs(&mut self, local: &mut Local) {
        std::mem::swap(&mut self.refs, &mut local.refs);
        for (ty, reference) in local.types.iter().zip(&mut local.refs) {
            let is_known = ty.shape == Shape::Void
                || ty.kind.is_nominal()
                    && ty.shape != Shape::Alias
                    && matches!(Ref(*reference).target(), Target::Key(_));
            if !is_known {
                *reference = UNKNOWN;
            }
        }
    }

    /// The class of a type.
    #[inline]
    pub fn class(&self, index: TypeIndex) -> Option<ClassId> {
        let class = self.classes[index as usize];
        (class != NO_CLASS).then_some(class)
    }

    /// What a reference to the type is.
    pub fn reference(&self, index: TypeIndex) -> Ref {
        Ref(self.refs[index as usize])
    }

    /// Classes that precede that of the type, in id order.
    pub fn extra(&self, index: TypeIndex) -> impl Iterator<Item = ClassId> + '_ {
        let start = self.extra.partition_point(|entry| entry.0 < index);
        let rest = self.extra[start..].iter();
        rest.take_while(move |entry| entry.0 == index).map(|entry| entry.1)
    }

    /// Whether any type has [`Self::extra`] classes.
    pub fn has_extra(&self) -> bool {
        !self.extra.is_empty()
    }

    /// What a reference to the DIE at `offset` is: void if that is no type.
    pub fn resolve(&self, local: &Local, offset: DieRef) -> Ref {
        if offset == 0 || offset == FOREIGN {
            return Ref::VOID;
        }
        local.index_of(offset).map_or(Ref::VOID, |index| self.reference(index))
    }

    /// Interns a type that need not wait for any other, as most; returns whether it did.
    #[inline(always)]
    fn intern_now(
        &mut self,
        index: TypeIndex,
        ty: LocalType,
        local: &Local,
        pool: &mut Pool,
    ) -> bool {
        let words = local.record(ty);
        let known = Known { refs: &self.refs, local };
        let class = match ty.shape {
            Shape::Plain => Some(pool.intern(words)),
            Shape::Target => {
                let target = known.reference(words[2]);
                (target < WAITING).then(|| pool.intern(&[words[0], words[1], target]))
            }
            Shape::Members => {
                let record = first_words(&mut self.record, words.len());
                known.copy_members(words, record).then(|| pool.intern(record))
            }
            Shape::Prototype => {
                let record = first_words(&mut self.record, words.len());
                known.copy_prototype(words, record).then(|| pool.intern(record))
            }
            Shape::Array if words.len() == 5 => {
                let element = known.reference(words[3]);
                let record = [0, words[1], 0, element, Ref::INDEX.0, words[4]];
                let is_usual = element < WAITING && element != Ref::VOID.0 && words[4] < MANY;
                is_usual.then(|| pool.intern(&record))
            }
            Shape::Void
            | Shape::Alias
            | Shape::Array
            | Shape::FunctionValue
            | Shape::TaggedPointer => None,
        };
        class.inspect(|&class| self.set(index, class)).is_some()
    }

    /// Interns a type after those that it must wait for.
    fn visit(
        &mut self,
        root: TypeIndex,
        local: &Local,
        pool: &mut Pool,
        notes: &mut Notes,
        base: u64,
    ) {
        debug_assert!(self.stack.is_empty());
        self.stack.push(root);
        self.attempt(root, local, pool, notes, base);
        if self.stack.len() == 1 {
            self.stack.clear();
        }
        while let Some(&index) = self.stack.last() {
            let is_known = !matches!(self.refs[index as usize], UNKNOWN | WAITING);
            // A nominal type is visited for its class, never for its reference.
            if is_known && (index != root || self.classes[index as usize] != NO_CLASS) {
                self.stack.pop();
                continue;
            }
            let waiting = self.stack.len();
            if !self.intern_now(index, local.types[index as usize], local, pool) {
                self.attempt(index, local, pool, notes, base);
            }
            if self.stack.len() == waiting {
                self.stack.pop();
            }
        }
    }

    /// Interns a type that [`Self::intern_now`] did not, or pushes the types that it must wait for.
    fn attempt(
        &mut self,
        index: TypeIndex,
        local: &Local,
        pool: &mut Pool,
        notes: &mut Notes,
        base: u64,
    ) {
        let ty = local.types[index as usize];
        let waiting = self.stack.len();
        if self.refs[index as usize] == UNKNOWN {
            self.refs[index as usize] = WAITING;
        }
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.extend_from_slice(local.record(ty));
        let at = base + u64::from(ty.offset);
        let mut resolve = |offset| self.resolve_or_wait(offset, local, notes, at).0;
        match ty.shape {
            Shape::Void => {}
            Shape::Alias => record[0] = resolve(record[0]),
            Shape::Array => record[3] = resolve(record[3]),
            Shape::TaggedPointer => record[2] = resolve(record[2]),
            Shape::Plain
            | Shape::Target
            | Shape::Members
            | Shape::Prototype
            | Shape::FunctionValue => {
                map_refs(&mut record, resolve);
            }
        }
        self.record = record;
        if self.stack.len() == waiting {
            self.complete(index, local, pool, notes, at);
        }
    }

    fn resolve_or_wait(
        &mut self,
        offset: DieRef,
        local: &Local,
        notes: &mut Notes,
        at: u64,
    ) -> Ref {
        let known = Known { refs: &self.refs, local }.reference(offset);
        if known < WAITING {
            return Ref(known);
        }
        let Some(index) = local.index_of(offset) else {
            return dangling(offset, notes, at);
        };
        if known == WAITING {
            return self.cut(index, local, notes, at);
        }
        self.stack.push(index);
        Ref::VOID
    }

    /// Breaks the cycle that `index` closes: at a typedef in it by name, else with void.
    fn cut(&mut self, index: TypeIndex, local: &Local, notes: &mut Notes, at: u64) -> Ref {
        let Some((typedef, name)) =
            self.cycle_of(index).and_then(|cycle| typedef_in(&cycle, local))
        else {
            notes.add(Note::EndlessCycle, at);
            return Ref::VOID;
        };
        let by_name = Ref::key(Namespace::Typedef, name);
        self.refs[typedef as usize] = by_name.0;
        if typedef == index { by_name } else { self.retry(index, typedef) }
    }

    /// The types that wait for each other, from the first on the stack, which is `index`.
    fn cycle_of(&self, index: TypeIndex) -> Option<impl Iterator<Item = TypeIndex> + Clone + '_> {
        let near = &self.stack[self.stack.len().saturating_sub(MAX_CYCLE)..];
        let start = near.iter().position(|&other| other == index)?;
        let waits = |other: &TypeIndex| self.refs[*other as usize] == WAITING;
        Some(near[start..].iter().copied().filter(waits))
    }

    /// Makes the type at hand be attempted again, after `index` and everything between it and
    /// `typedef`, which is known by now.
    fn retry(&mut self, index: TypeIndex, typedef: TypeIndex) -> Ref {
        let start = self.stack.iter().rposition(|&other| other == index).unwrap_or(0);
        for &other in self.stack[start..].iter().take_while(|&&other| other != typedef) {
            let reference = &mut self.refs[other as usize];
            if *reference == WAITING {
                *reference = UNKNOWN;
            }
        }
        self.stack.push(index);
        Ref::VOID
    }

    fn complete(
        &mut self,
        index: TypeIndex,
        local: &Local,
        pool: &mut Pool,
        notes: &mut Notes,
        at: u64,
    ) {
        let ty = local.types[index as usize];
        match ty.shape {
            Shape::Void => {}
            Shape::Alias => self.refs[index as usize] = self.record[0],
            Shape::Members => {
                if leave_out_void_members(&mut self.record) {
                    notes.add(Note::Void, at);
                }
                let class = pool.intern(&self.record);
                self.set(index, class);
            }
            Shape::Prototype | Shape::FunctionValue => {
                if end_at_void(&mut self.record) {
                    notes.add(Note::Void, at);
                }
                let mut class = pool.intern(&self.record);
                if ty.shape == Shape::FunctionValue {
                    self.extra.push((index, class));
                    let info = Info::new(Kind::Ptr, 0, false);
                    class = pool.intern(&[0, info.0, Ref::class(class).0]);
                }
                self.set(index, class);
            }
            Shape::Plain | Shape::Target => {
                let class = pool.intern(&self.record);
                self.set(index, class);
            }
            Shape::Array if self.record[3] == Ref::VOID.0 => {
                notes.add(Note::Void, at);
                self.refs[index as usize] = Ref::VOID.0;
            }
            Shape::Array => {
                if self.bound_array(ty, local) {
                    notes.add(Note::HugeArray, at);
                }
                self.complete_array(index, pool);
            }
            Shape::TaggedPointer => self.complete_tagged(index, ty, pool),
        }
    }

    fn set(&mut self, index: TypeIndex, class: ClassId) {
        self.classes[index as usize] = class;
        let reference = &mut self.refs[index as usize];
        if matches!(*reference, UNKNOWN | WAITING) {
            *reference = Ref::class(class).0;
        }
    }

    /// Takes elements from an array of 4 GiB or more until it is smaller: the kernel refuses it.
    /// Returns whether it was that large.
    fn bound_array(&mut self, ty: LocalType, local: &Local) -> bool {
        let mut size = size_of(local, local.record(ty)[3]);
        let mut is_huge = false;
        for count in self.record[4..].iter_mut().rev() {
            if u64::from(*count).saturating_mul(size) > u64::from(u32::MAX) {
                *count = (u64::from(u32::MAX) / size) as u32;
                is_huge = true;
            }
            size = size.saturating_mul((*count).into());
        }
        is_huge
    }

    /// One ARRAY per dimension, innermost first (2.3.4).
    fn complete_array(&mut self, index: TypeIndex, pool: &mut Pool) {
        let mut element = self.record[3];
        for dimension in (4..self.record.len()).rev() {
            let record = [0, self.record[1], 0, element, Ref::INDEX.0, self.record[dimension]];
            let class = pool.intern(&record);
            element = Ref::class(class).0;
            if dimension > 4 {
                self.extra.push((index, class));
            } else {
                self.set(index, class);
            }
        }
    }

    /// TYPE_TAGs between a PTR and its target (2.8.2, 2.8.3).
    fn complete_tagged(&mut self, index: TypeIndex, ty: LocalType, pool: &mut Pool) {
        let info = Info::new(Kind::TypeTag, 0, false).0;
        let first_extra = self.extra.len();
        let mut target = self.record[2];
        let count = self.record.len() - 3;
        for step in 0..count {
            let tag = if ty.outermost_first { count - 1 - step } else { step };
            let class = pool.intern(&[self.record[3 + tag], info, target]);
            target = Ref::class(class).0;
            self.extra.push((index, class));
        }
        if ty.outermost_first {
            self.extra[first_extra..].reverse();
        }
        let class = pool.intern(&[0, self.record[1], target]);
        self.set(index, class);
    }
}

/// What references are, as far as that is known and nothing is odd about them.
#[derive(Clone, Copy)]
struct Known<'a> {
    refs: &'a [u32],
    local: &'a Local,
}

impl Known<'_> {
    /// What a reference to the DIE at `offset` is; else [`UNKNOWN`] or [`WAITING`].
    #[inline(always)]
    fn reference(self, offset: DieRef) -> u32 {
        match self.local.own_index_of(offset) {
            Some(index) => self.refs[index as usize],
            None if offset == 0 => Ref::VOID.0,
            None => self.foreign(offset),
        }
    }

    #[cold]
    fn foreign(self, offset: DieRef) -> u32 {
        self.local.index_of(offset).map_or(UNKNOWN, |index| self.refs[index as usize])
    }

    /// Copies a struct or union to `record`; returns whether all its members have a known type.
    #[inline(always)]
    fn copy_members(self, words: &[u32], record: &mut [u32]) -> bool {
        record[..3].copy_from_slice(&words[..3]);
        let (members, _) = words[3..].as_chunks::<3>();
        let (places, _) = record[3..].as_chunks_mut::<3>();
        let mut is_known = true;
        for (place, &[name, ty, offset]) in places.iter_mut().zip(members) {
            let ty = self.reference(ty);
            is_known &= ty < WAITING && ty != Ref::VOID.0;
            *place = [name, ty, offset];
        }
        is_known
    }

    /// Copies a prototype to `record`; returns whether all its types are known.
    #[inline(always)]
    fn copy_prototype(self, words: &[u32], record: &mut [u32]) -> bool {
        let result = self.reference(words[2]);
        record[..3].copy_from_slice(&[words[0], words[1], result]);
        let (parameters, _) = words[3..].as_chunks::<2>();
        let (places, _) = record[3..].as_chunks_mut::<2>();
        let mut is_known = result < WAITING;
        let mut void_count = 0;
        for (place, &[name, ty]) in places.iter_mut().zip(parameters) {
            let ty = self.reference(ty);
            is_known &= ty < WAITING;
            void_count += usize::from(ty == Ref::VOID.0);
            *place = [name, ty];
        }
        is_known && (void_count == 0 || void_count == 1 && places.last() == Some(&ELLIPSIS))
    }
}

/// The first `count` words of a buffer that only grows.
#[inline(always)]
fn first_words(buffer: &mut Vec<u32>, count: usize) -> &mut [u32] {
    if buffer.len() < count {
        buffer.resize(count, 0);
    }
    &mut buffer[..count]
}

#[cold]
fn dangling(offset: DieRef, notes: &mut Notes, at: u64) -> Ref {
    let is_foreign = offset >= FIRST_FOREIGN;
    notes.add(if is_foreign { Note::ForeignReference } else { Note::DanglingReference }, at);
    Ref::VOID
}

/// The typedef at which a cycle can be cut by name: the first of its DIEs, from wherever the cycle
/// was entered. A cycle that neither a prototype nor a pointer to a struct is part of has no meaning,
/// and the kernel refuses it.
fn typedef_in(
    cycle: &(impl Iterator<Item = TypeIndex> + Clone),
    local: &Local,
) -> Option<(TypeIndex, NameId)> {
    let has = |is_kind: fn(DieKind) -> bool| {
        cycle.clone().any(|index| is_kind(local.types[index as usize].kind))
    };
    let is_sound = has(|kind| kind == DieKind::SubroutineType)
        || has(DieKind::has_members)
            && has(|kind| matches!(kind, DieKind::Pointer | DieKind::Reference));
    let name = |index| Some((index, typedef_name(local, local.types[index as usize])?));
    let first = cycle.clone().filter_map(name).min_by_key(|entry| entry.0);
    first.filter(|_| is_sound)
}

/// There are no members of type void in BTF: for one of them the kernel refuses everything.
/// Returns whether there were any.
fn leave_out_void_members(record: &mut Vec<u32>) -> bool {
    let mut end = 3;
    for start in (3..record.len()).step_by(3) {
        if record[start + 1] != Ref::VOID.0 {
            record.copy_within(start..start + 3, end);
            end += 3;
        }
    }
    let is_shorter = end < record.len();
    let info = Info(record[1]);
    let kind = kind_of(record);
    record.truncate(end);
    record[1] = Info::new(kind, (end as u32 - 3) / 3, info.kflag()).0;
    is_shorter
}

/// There are no parameters of type void in BTF: for one of them the kernel refuses everything. From the
/// first on the parameters of a prototype are unknown, as after `...`. Returns whether there was any.
pub(super) fn end_at_void(record: &mut Vec<u32>) -> bool {
    let parameters = record[3..].as_chunks::<2>().0;
    let first = parameters.iter().position(|parameter| parameter[1] == Ref::VOID.0);
    let Some(first) = first.filter(|&first| parameters[first..] != [ELLIPSIS]) else {
        return false;
    };
    record.truncate(3 + 2 * first);
    record.extend(ELLIPSIS);
    record[1] = Info::new(Kind::FuncProto, first as u32 + 1, false).0;
    true
}

fn typedef_name(local: &Local, ty: LocalType) -> Option<NameId> {
    let is_record = ty.shape == Shape::Target;
    let words = is_record.then(|| local.record(ty))?;
    (kind_of(words) == Kind::Typedef).then_some(NameId(words[0]))
}

/// Gives nameless types the name of the DIE they specify (2.4.11).
fn copy_specified_names(local: &mut Local, notes: &mut Notes, base: u64) {
    for (index, specification) in std::mem::take(&mut local.specified) {
        let target = local.types[index as usize];
        if !target.is_record() {
            continue;
        }
        let source = local.index_of(specification).map(|index| local.types[index as usize]);
        if let Some(source) = source.filter(LocalType::is_record) {
            local.words[target.start as usize] = local.words[source.start as usize];
            if let Some(key) = key_of(local.record(target)) {
                local.refs[index as usize] = Ref::from(key).0;
            }
        }
        if local.words[target.start as usize] == 0 {
            let note = local.do_without_name(index);
            note.into_iter().for_each(|note| notes.add(note, base + u64::from(target.offset)));
        }
    }
}

/// Gives ENUM64s the sign of a type in another unit (2.6.4).
fn sign_foreign_enums(local: &mut Local) {
    for (index, underlying) in std::mem::take(&mut local.foreign_enums) {
        let start = local.types[index as usize].start as usize;
        let underlying = local.index_of(underlying).map(|index| local.types[index as usize]);
        let is_int = |ty: &LocalType| ty.kind == DieKind::Base && ty.len == 4;
        let is_signed = |ty: LocalType| local.record(ty)[3] >> 24 & 1 != 0;
        if underlying.filter(is_int).is_some_and(is_signed) {
            local.words[start + 1] |= 1 << 31;
        }
    }
}

/// Gives structs and unions whose size is known at run time only (Ada) the size of what has a known
/// place in them, which the kernel requires. In C, members of those that have no size have none either.
fn measure_unsized_types(local: &mut Local) {
    for index in std::mem::take(&mut local.unsized_types) {
        let ty = local.types[index as usize];
        let record = local.record(ty);
        let has_bitfields = Info(record[1]).kflag();
        let end = |&[_, ty, place]: &[u32; 3]| {
            let (bit_size, bits) =
                if has_bitfields { (place >> 24, place & 0xff_ffff) } else { (0, place) };
            let bits = u64::from(bits);
            match bit_size {
                0 => (bits / 8).saturating_add(size_of(local, ty)),
                size => (bits + u64::from(size)).div_ceil(8),
            }
        };
        let size = record[3..].as_chunks::<3>().0.iter().map(end).max().unwrap_or(0);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        local.words[ty.start as usize + 2] = size;
        local.types[index as usize].size = size;
    }
}

/// Size of a type in bytes; 0 if it has none.
fn size_of(local: &Local, offset: DieRef) -> u64 {
    let (mut offset, mut count) = (offset, 1_u64);
    for _ in 0..MAX_CHAIN {
        let Some(index) = local.strip(offset) else {
            return 0;
        };
        let ty = local.types[index as usize];
        match ty.kind {
            DieKind::Pointer | DieKind::Reference => {
                return count.saturating_mul(u64::from(local.address_size));
            }
            DieKind::Array if ty.shape == Shape::Array => {
                let record = local.record(ty);
                let dimensions = record[4..].iter().map(|&count| u64::from(count));
                count = dimensions.fold(count, u64::saturating_mul);
                offset = record[3];
            }
            _ => return count.saturating_mul(u64::from(ty.size)),
        }
    }
    0
}

/// Works out where bitfields in the style of DWARF 2 and 3 lie (2.4.5).
fn place_old_bitfields(local: &mut Local) {
    for field in std::mem::take(&mut local.old_bitfields) {
        let storage = match field.byte_size {
            0 => local.strip(field.ty).map_or(0, |ty| u64::from(local.types[ty as usize].size)),
            size => size,
        };
        let storage_bits = storage.saturating_mul(8);
        let within = if local.is_big_endian {
            field.bit_offset as i64
        } else {
            storage_bits.wrapping_sub(field.bit_offset).wrapping_sub(field.bit_size) as i64
        };
        let within = if storage == 0 { 0 } else { within };
        let offset = field.byte_offset.wrapping_mul(8).wrapping_add_signed(within);
        let start = local.types[field.owner as usize].start as usize;
        let info = Info(local.words[start + 1]);
        if field.element >= info.vlen() {
            continue;
        }
        let has_bitfields = info.kflag();
        let place = start + 3 + 3 * field.element as usize + 2;
        local.words[place] = if has_bitfields {
            (field.bit_size as u32) << 24 | (offset as u32 & 0xff_ffff)
        } else {
            offset as u32
        };
    }
}
