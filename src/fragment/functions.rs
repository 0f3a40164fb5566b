//! Functions: prototypes, and what their parameters' locations say about them (spec/encoding 4.3
//! to 4.5). Whether a function is emitted depends on the ELF symbols too: see `select`.

use super::classes::{Classes, end_at_void};
use super::local::{Local, LocalFunction, ParameterLocation, Shape};
use super::{FunctionFlags, FunctionUse};
use crate::btf::kind::{Info, Kind, MAX_VLEN};
use crate::dwarf::die::DieRef;
use crate::dwarf::location::{Arrival, ListSections, Locations, Passing, Source};
use crate::dwarf::template::{DieKind, Encoding};
use crate::names::{NameId, Names};
use crate::options::{Feature, Options};
use crate::pool::{Pool, Ref};

/// What is known of a parameter. Facts of a concrete instance are shared with the abstract one.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    has_location: bool,
    has_constant: bool,
    arrival: Arrival,
    /// Size of its type in bytes; only worked out for parameters that need it.
    size: u32,
    in_memory: bool,
    /// The one member that arrives, name and type, of a struct that arrives in pieces (4.3.5).
    member: Option<(NameId, DieRef)>,
    is_optimized: bool,
    is_unexpected: bool,
    is_reduced: bool,
}

/// What judging depends on besides the unit's DIEs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judging<'a> {
    pub options: &'a Options,
    pub names: &'a Names,
    pub passing: Passing,
    pub is_clang: bool,
    pub encoding: Encoding,
    pub lists: ListSections<'a>,
    pub loclists_base: u64,
    /// The unit's bytes.
    pub bytes: &'a [u8],
}

/// Judges functions. Reused from unit to unit.
#[derive(Debug, Default)]
pub(super) struct Functions {
    facts: Vec<Facts>,
    locations: Locations,
    record: Vec<u32>,
    kept: Vec<usize>,
}

impl Functions {
    /// Interns every function of the unit that could be emitted, in order of completion.
    ///
    /// # Errors
    /// When a location list cannot be read from the file.
    pub fn judge(
        &mut self,
        local: &mut Local,
        classes: &Classes,
        pool: &mut Pool,
        judging: &Judging<'_>,
        uses: &mut Vec<FunctionUse>,
    ) -> std::io::Result<()> {
        self.read_facts(local, judging)?;
        let order = std::mem::take(&mut local.function_order);
        for &function in &order {
            self.share_with_origin(local, function);
        }
        for &function in &order {
            self.judge_one(local, function, classes, pool, judging, uses);
        }
        local.function_order = order;
        Ok(())
    }

    fn read_facts(&mut self, local: &Local, judging: &Judging<'_>) -> std::io::Result<()> {
        self.facts.clear();
        for parameter in &local.parameters {
            let mut facts = Facts { has_constant: parameter.has_constant, ..Facts::default() };
            let source = match parameter.location {
                ParameterLocation::None => {
                    self.facts.push(facts);
                    continue;
                }
                ParameterLocation::Expression(block) => Source::Expression(
                    &judging.bytes[block.start as usize..][..block.size as usize],
                ),
                ParameterLocation::List(offset) => Source::List(offset),
                ParameterLocation::Index(index) => Source::Index(index, judging.loclists_base),
            };
            facts.has_location = true;
            facts.size = parameter_size(local, parameter.ty, parameter.origin, judging);
            facts.in_memory = judging.passing.in_memory(facts.size);
            facts.arrival = self.locations.arrival(
                source,
                facts.size,
                &judging.passing,
                judging.encoding,
                judging.lists,
            )?;
            facts.member = single_member(local, parameter.ty, &facts.arrival, &judging.passing);
            if parameter.name.is_none() {
                facts.member = None;
            }
            self.facts.push(facts);
        }
        self.locations.settle(judging.lists)?;
        Ok(())
    }

    /// Completes the parameters of a concrete instance from the abstract one, and tells that one
    /// what the concrete one knows (4.3.6).
    fn share_with_origin(&mut self, local: &mut Local, function: u32) {
        let (first, end) = local.functions[function as usize].parameters;
        for index in first as usize..end as usize {
            let parameter = local.parameters[index];
            if parameter.function != function || parameter.ty != 0 || parameter.origin == 0 {
                continue;
            }
            let Some(origin) = local.parameter_at(parameter.origin) else {
                continue;
            };
            let abstracted = local.parameters[origin];
            local.parameters[index].name = abstracted.name;
            local.parameters[index].ty = abstracted.ty;
            if parameter.index != abstracted.index {
                local.functions[function as usize].reordered = true;
            }
            let facts = self.facts[index];
            self.facts[origin].take_in(&facts);
        }
    }

    fn judge_one(
        &mut self,
        local: &mut Local,
        function: u32,
        classes: &Classes,
        pool: &mut Pool,
        judging: &Judging<'_>,
        uses: &mut Vec<FunctionUse>,
    ) {
        let mut facts_of = local.functions[function as usize];
        let origin = (facts_of.origin != 0).then(|| local.function_at(facts_of.origin).copied());
        if facts_of.result == 0 && facts_of.origin | facts_of.specification != 0 {
            let result = sources(local, facts_of).map(|source| source.result).find(|&it| it != 0);
            facts_of.result = result.unwrap_or(0);
            local.functions[function as usize].result = facts_of.result;
        }
        if facts_of.is_declaration {
            return;
        }
        facts_of.name = symbol_name(local, facts_of);
        let mut kept = std::mem::take(&mut self.kept);
        kept.clear();
        kept.extend(local.parameters_of(function));
        let has_names = kept.iter().all(|&index| !local.parameters[index].name.is_none());
        if has_names && !facts_of.name.is_none() && kept.len() < MAX_VLEN as usize {
            let is_changed = judging.is_clang && signature_changed(&facts_of, origin.flatten());
            let mut flags = self.flags(local, &kept, is_changed, judging);
            flags.set(FunctionFlags::REORDERED, facts_of.reordered);
            flags.set(FunctionFlags::SIGNATURE_CHANGED, is_changed);
            let is_reduced = judging.options.features.has(Feature::TrueSignature) && is_changed;
            kept.retain(|&index| {
                let facts = &self.facts[index];
                let is_gone = facts_of.reordered && (!facts.has_location || facts.is_optimized);
                !(is_gone || is_reduced && facts.is_optimized)
            });
            self.write_prototype(local, &kept, facts_of.is_variadic, is_reduced, classes, judging);
            self.record[2] = classes.resolve(local, facts_of.result).0;
            end_at_void(&mut self.record);
            let prototype = pool.intern(&self.record);
            let (first_tag, tags_end) = facts_of.tags;
            self.record.clear();
            let info = Info::new(Kind::Func, 0, false).0;
            self.record.extend([facts_of.name.0, info, Ref::class(prototype).0, flags.0]);
            for tag in &local.tags[first_tag as usize..tags_end as usize] {
                self.record.extend([tag.value.0, tag.component as u32]);
            }
            let class = pool.intern(&self.record);
            uses.push(FunctionUse { class, address: facts_of.address, die: facts_of.offset });
        }
        self.kept = kept;
    }

    fn write_prototype(
        &mut self,
        local: &Local,
        kept: &[usize],
        is_variadic: bool,
        is_reduced: bool,
        classes: &Classes,
        judging: &Judging<'_>,
    ) {
        self.record.clear();
        let count = kept.len() as u32 + u32::from(is_variadic);
        self.record.extend([0, Info::new(Kind::FuncProto, count, false).0, 0]);
        for &index in kept {
            let parameter = &local.parameters[index];
            let facts = &self.facts[index];
            let mut name = parameter.name;
            let mut ty = parameter.ty;
            if let (true, Some((member, member_type))) = (is_reduced, facts.member) {
                name = joined(judging.names, name, member);
                ty = if facts.is_reduced { member_type } else { ty };
            }
            self.record.extend([name.0, classes.resolve(local, ty).0]);
        }
        if is_variadic {
            self.record.extend([0, 0]);
        }
    }

    /// Judges the parameters (4.5).
    fn flags(
        &mut self,
        local: &Local,
        parameters: &[usize],
        is_changed: bool,
        judging: &Judging<'_>,
    ) -> FunctionFlags {
        let mut flags = FunctionFlags::default();
        let has_evidence = |&index: &usize| {
            let facts = &self.facts[index];
            facts.has_location || facts.has_constant || facts.arrival.register.is_some()
        };
        if is_changed || parameters.iter().any(has_evidence) {
            for &index in parameters {
                let parameter = local.parameters[index];
                let size = type_size(local, parameter.ty, judging.passing.address_size);
                if self.facts[index].size == 0 {
                    self.facts[index].size = size;
                    self.facts[index].in_memory = judging.passing.in_memory(size);
                }
            }
            if judging.is_clang && !is_changed {
                self.match_clang(parameters, judging);
            } else {
                self.match_slots(parameters, is_changed, judging);
            }
        }
        let optimized =
            |&index: &usize| self.facts[index].is_optimized || !self.facts[index].has_location;
        flags.set(FunctionFlags::OPTIMIZED, parameters.iter().any(optimized));
        let unexpected = parameters.iter().any(|&index| self.facts[index].is_unexpected);
        if unexpected {
            let is_struct = |&index: &usize| is_struct(local, local.parameters[index].ty);
            flags.set(FunctionFlags::UNEXPECTED, !parameters.iter().any(is_struct));
        }
        let is_uncertain = is_uncertain(local, parameters, &judging.passing);
        flags.set(FunctionFlags::UNCERTAIN, is_uncertain);
        flags
    }

    /// Clang whose signature is as written: each parameter against its register (4.5.3).
    fn match_clang(&mut self, parameters: &[usize], judging: &Judging<'_>) {
        let passing = &judging.passing;
        // Without a table nothing can be judged; pahole calls everything unexpected (10.2.4).
        if passing.registers.is_empty() && !judging.options.compat_pahole {
            return;
        }
        let mut slot = 0;
        for &index in parameters {
            let facts = &mut self.facts[index];
            let slots = passing.slots_of(facts.size);
            if facts.in_memory {
                continue;
            }
            if slot >= passing.slots {
                break;
            }
            let window = slot..(slot + slots).min(passing.slots);
            let expected = window.filter_map(|slot| passing.registers.get(slot as usize)).copied();
            if let Some(register) = facts.arrival.register
                && !expected.into_iter().any(|expected| expected == register)
            {
                facts.is_unexpected = true;
            }
            slot += slots;
        }
    }

    /// Everything else: each parameter against the slot it should arrive in (4.5.4).
    fn match_slots(&mut self, parameters: &[usize], is_changed: bool, judging: &Judging<'_>) {
        let passing = &judging.passing;
        let is_true = is_changed && judging.options.features.has(Feature::TrueSignature);
        let mut slot = 0_u32;
        for (position, &index) in parameters.iter().enumerate() {
            let next = parameters.get(position + 1).map(|&next| self.facts[next].arrival.register);
            let facts = &mut self.facts[index];
            let slots = passing.slots_of(facts.size);
            let has_slot = slot < passing.slots;
            let expected = passing.registers.get(slot as usize).filter(|_| has_slot).copied();
            let next_slot = slot.saturating_add(slots);
            let next_expected =
                passing.registers.get(next_slot as usize).filter(|_| next_slot < passing.slots);
            let next_keeps_slots =
                next.flatten().is_some_and(|register| next_expected == Some(&register));
            let mut consumed = if facts.in_memory { 1 } else { slots };
            if facts.has_location {
                if is_true && facts.arrival.constant {
                    facts.is_optimized = true;
                    consumed = 0;
                } else if !has_slot {
                    consumed = 0;
                } else if is_true && facts.arrival.stack {
                    if facts.in_memory {
                        consumed = 0;
                    } else {
                        facts.is_unexpected = true;
                    }
                } else if let Some(register) = facts.arrival.register {
                    if expected.is_some_and(|expected| expected != register) {
                        facts.is_unexpected = true;
                    } else if is_true {
                        consumed = facts.arrival_in_pieces(slots, next_keeps_slots, consumed);
                    }
                } else if is_true {
                    facts.is_unexpected = true;
                } else {
                    facts.is_optimized = true;
                }
            } else if facts.has_constant && !judging.is_clang {
                facts.is_optimized = true;
            } else if is_true {
                if has_slot && next_keeps_slots {
                    consumed = slots;
                } else {
                    facts.is_optimized = true;
                    consumed = 0;
                }
            }
            slot = slot.saturating_add(consumed);
        }
    }
}

impl Facts {
    fn take_in(&mut self, concrete: &Self) {
        self.has_location |= concrete.has_location;
        self.has_constant |= concrete.has_constant;
        self.arrival.constant |= concrete.arrival.constant;
        self.arrival.stack |= concrete.arrival.stack;
        self.arrival.register = concrete.arrival.register.or(self.arrival.register);
        if concrete.size != 0 {
            self.size = concrete.size;
        }
        self.in_memory |= concrete.in_memory;
        self.arrival.first_pieces |= concrete.arrival.first_pieces;
        self.arrival.second_pieces |= concrete.arrival.second_pieces;
        self.member = self.member.or(concrete.member);
    }

    /// How many slots an aggregate that arrives in pieces takes; it may turn out to be reduced to
    /// one member (4.5.4 rule 1f).
    fn arrival_in_pieces(&mut self, slots: u32, next_keeps_slots: bool, consumed: u32) -> u32 {
        let (first, second) = (self.arrival.first_pieces, self.arrival.second_pieces);
        if first == 0 && second == 0 {
            return consumed;
        }
        if first != 0 && second != 0 {
            return slots;
        }
        if next_keeps_slots {
            self.member = None;
            return slots;
        }
        if self.member.is_some() {
            self.is_reduced = true;
            return 1;
        }
        consumed
    }
}

/// A function, and those whose instance or definition it is: an instance leads to the definition, and
/// that of a method to its declaration in the class.
fn sources(local: &Local, function: LocalFunction) -> impl Iterator<Item = LocalFunction> + '_ {
    let next = |function: &LocalFunction| {
        let source = if function.origin == 0 { function.specification } else { function.origin };
        if source == 0 { None } else { local.function_at(source).copied() }
    };
    std::iter::successors(Some(function), next).take(3)
}

/// What the symbol table calls a function (4.2.3).
fn symbol_name(local: &Local, function: LocalFunction) -> NameId {
    let names = |source: LocalFunction| [source.linkage_name, source.name];
    let mut names = sources(local, function).flat_map(names);
    names.find(|name| !name.is_none()).unwrap_or(NameId::NONE)
}

/// Size of a parameter's type (4.3.2): that of its origin if it has one.
fn parameter_size(local: &Local, ty: DieRef, origin: DieRef, judging: &Judging<'_>) -> u32 {
    let ty = match origin {
        0 => ty,
        origin => local.parameter_at(origin).map_or(0, |index| local.parameters[index].ty),
    };
    type_size(local, ty, judging.passing.address_size)
}

/// The parameter's name and the member's, joined (4.8.2).
fn joined(names: &Names, parameter: NameId, member: NameId) -> NameId {
    let mut text = names.to_vec(parameter);
    text.extend_from_slice(b"__");
    text.extend_from_slice(&names.to_vec(member));
    names.inline(&text)
}

/// Whether clang says that the function is not called as it is written (4.5.1).
fn signature_changed(function: &LocalFunction, origin: Option<LocalFunction>) -> bool {
    if function.is_inline {
        return false;
    }
    if function.origin == 0 {
        function.is_nocall
    } else {
        origin.is_some_and(|origin| origin.is_nocall)
    }
}

/// Byte size of a type: of a pointer that of an address, else what the DIE says, else what the
/// type it leads to says (4.3.2).
fn type_size(local: &Local, offset: DieRef, address_size: u32) -> u32 {
    let mut offset = offset;
    for _ in 0..super::local::MAX_CHAIN {
        let Some(index) = local.index_of(offset).filter(|_| offset != 0) else {
            return 0;
        };
        let ty = local.types[index as usize];
        if ty.kind == DieKind::Pointer {
            return address_size;
        }
        if ty.size != 0 {
            return ty.size;
        }
        offset = local.target_of(ty);
    }
    0
}

/// Whether a parameter is a struct, directly or behind const and typedefs (4.5.6).
fn is_struct(local: &Local, offset: DieRef) -> bool {
    let mut offset = offset;
    for _ in 0..super::local::MAX_CHAIN {
        let Some(index) = local.index_of(offset).filter(|_| offset != 0) else {
            return false;
        };
        let ty = local.types[index as usize];
        match ty.kind {
            DieKind::Struct => return true,
            DieKind::Const | DieKind::Typedef => offset = local.target_of(ty),
            _ => return false,
        }
    }
    false
}

/// The member that a parameter with exactly one known piece stands for (4.3.5).
fn single_member(
    local: &Local,
    ty: DieRef,
    arrival: &Arrival,
    passing: &Passing,
) -> Option<(NameId, DieRef)> {
    let offset = match (arrival.first_pieces, arrival.second_pieces) {
        (first, 0) if first.count_ones() == 1 => first.trailing_zeros(),
        (0, second) if second.count_ones() == 1 => passing.address_size + second.trailing_zeros(),
        _ => return None,
    };
    let index = local.strip(ty)?;
    let ty = local.types[index as usize];
    if ty.kind != DieKind::Struct || ty.shape != Shape::Members {
        return None;
    }
    let record = local.record(ty);
    let mask = if Info(record[1]).kflag() { 0xff_ffff } else { u32::MAX };
    let mut members = record[3..].chunks_exact(3);
    let found = members.find(|member| member[2] & mask == offset * 8)?;
    (found[0] != 0 && found[1] != 0).then_some((NameId(found[0]), found[1]))
}

/// Whether a parameter beyond the registers is a packed struct by value (4.5.2).
fn is_uncertain(local: &Local, parameters: &[usize], passing: &Passing) -> bool {
    let on_stack = parameters.get(passing.slots as usize..).unwrap_or(&[]);
    on_stack.iter().any(|&index| {
        let ty = local.parameters[index].ty;
        local.index_of(ty).is_some_and(|ty| super::packed::is_packed(local, ty, passing))
    })
}
