//! Which functions are emitted, and in whose words (spec/encoding 4.2, 4.6 to 4.8).
//!
//! Every unit that has a function of some name in it contributes a *state*. All states of one
//! base name together decide whether the name is emitted at all; one of them, the canonical one,
//! gives the prototype.

use rayon::prelude::*;

use super::matching::difference;
use super::symbols::{FunctionSymbol, FunctionTable, Group, GroupId, is_ambiguous};
use crate::fragment::{Fragment, FunctionFlags};
use crate::names::{NameId, Names};
use crate::options::{Feature, Options};
use crate::pool::{ClassId, Pool};

/// A function to be emitted.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Name of the FUNC.
    pub name: &'a [u8],
    /// The unit that gives the prototype.
    pub unit: u32,
    /// The FUNC class that gives prototype and tags.
    pub class: ClassId,
    /// The FUNC_PROTO class.
    pub prototype: ClassId,
    /// Flags of the kfunc set entry, if the function is a kfunc.
    pub kfunc_flags: Option<u32>,
}

/// What was decided.
#[derive(Debug, Default)]
pub struct Selection<'a> {
    /// The functions to emit, in byte order of their base names.
    pub chosen: Vec<Chosen<'a>>,
    /// Why others are not, in pahole's words.
    pub skips: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    unit: u32,
    class: ClassId,
    address: u64,
}

/// Chooses among the functions of all fragments.
#[must_use]
pub fn functions<'a>(
    pool: &Pool,
    fragments: &[Fragment],
    names: &Names,
    table: &FunctionTable<'a>,
    options: &Options,
    is_relocatable: bool,
) -> Selection<'a> {
    let groups = group_of_classes(pool, fragments, names, table);
    let states = States::collect(fragments, &groups, table.groups.len());
    let last = options.compat_pahole.then(|| table.last()).flatten();
    let judge = Judge { pool, names, table, last, options, is_relocatable };
    let present = (0..table.groups.len() as GroupId).filter(|&group| !states.of(group).is_empty());
    let sorted = table.sorted(present.collect());
    let decisions: Vec<Decision> =
        sorted.par_iter().map(|&group| judge.decide(group, states.of(group))).collect();
    let mut selection = Selection::default();
    for decision in decisions {
        selection.skips.extend(decision.lines);
        selection.chosen.extend(decision.chosen);
    }
    selection
}

const NO_GROUP: GroupId = GroupId::MAX;

/// The symbol group of each FUNC class.
fn group_of_classes(
    pool: &Pool,
    fragments: &[Fragment],
    names: &Names,
    table: &FunctionTable<'_>,
) -> Vec<GroupId> {
    let mut is_used = vec![false; pool.len()];
    for fragment in fragments {
        for function in &fragment.functions {
            is_used[function.class.0 as usize] = true;
        }
    }
    let group = |(class, &used): (usize, &bool)| {
        if !used {
            return NO_GROUP;
        }
        let name = NameId(pool.record(ClassId(class as u32))[0]);
        table.group(names.bytes(name, &mut [0; 4])).unwrap_or(NO_GROUP)
    };
    is_used.par_iter().enumerate().with_min_len(4096).map(group).collect()
}

/// The states of all groups, those of one group in order of units.
struct States {
    states: Vec<State>,
    starts: Vec<u32>,
}

impl States {
    fn collect(fragments: &[Fragment], groups: &[GroupId], group_count: usize) -> Self {
        let all = || {
            fragments.iter().flat_map(|fragment| {
                let state = |function: &crate::fragment::FunctionUse| {
                    let state = State {
                        unit: fragment.unit,
                        class: function.class,
                        address: function.address,
                    };
                    (groups[function.class.0 as usize], state)
                };
                fragment.functions.iter().map(state).filter(|entry| entry.0 != NO_GROUP)
            })
        };
        let mut starts = vec![0_u32; group_count + 1];
        for (group, _) in all() {
            starts[group as usize + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let placeholder = State { unit: 0, class: ClassId(0), address: 0 };
        let mut states = vec![placeholder; starts[group_count] as usize];
        for (group, state) in all() {
            let place = &mut next[group as usize];
            states[*place as usize] = state;
            *place += 1;
        }
        Self { states, starts }
    }

    fn of(&self, group: GroupId) -> &[State] {
        let (start, end) = (self.starts[group as usize], self.starts[group as usize + 1]);
        &self.states[start as usize..end as usize]
    }
}

#[derive(Debug, Default)]
struct Decision<'a> {
    chosen: Option<Chosen<'a>>,
    lines: Vec<String>,
}

struct Judge<'a, 'b> {
    pool: &'b Pool,
    names: &'b Names,
    table: &'b FunctionTable<'a>,
    /// The group whose ambiguity is overlooked.
    last: Option<GroupId>,
    options: &'b Options,
    is_relocatable: bool,
}

impl<'a> Judge<'a, '_> {
    fn decide(&self, group: GroupId, states: &[State]) -> Decision<'a> {
        let last = self.last == Some(group);
        let group = &self.table.groups[group as usize];
        let symbols = self.table.symbols(group);
        let mut decision = Decision::default();
        let (flags, is_inconsistent) = self.combine(group, states, &mut decision);
        if self.has(Feature::TrueSignature)
            && let Some(chosen) = self.true_signature(symbols, states, &flags)
        {
            decision.chosen = Some(chosen);
            return decision;
        }
        let canonical = self.canonical(symbols, states);
        let is_ambiguous = is_ambiguous(symbols) && !last;
        match self.skip_reason(flags[0], is_inconsistent, is_ambiguous, symbols, canonical) {
            Some(reason) => decision.lines.push(skip_line(group, reason)),
            None => decision.chosen = Some(self.choose(group.base, group.kfunc_flags, canonical)),
        }
        decision
    }

    fn has(&self, feature: Feature) -> bool {
        self.options.features.has(feature)
    }

    fn choose(&self, name: &'a [u8], kfunc_flags: Option<u32>, state: &State) -> Chosen<'a> {
        let prototype = self.pool.prototype(state.class);
        Chosen { name, unit: state.unit, class: state.class, prototype, kfunc_flags }
    }

    fn own_flags(&self, state: &State) -> FunctionFlags {
        FunctionFlags(self.pool.record(state.class)[3])
    }

    /// Compares the first state with each later one and shares what is wrong (4.6.1). Returns the
    /// flags of each state, and whether prototypes differ.
    fn combine(
        &self,
        group: &Group<'_>,
        states: &[State],
        decision: &mut Decision<'a>,
    ) -> (Vec<FunctionFlags>, bool) {
        const SHARED: u32 =
            FunctionFlags::UNEXPECTED | FunctionFlags::UNCERTAIN | FunctionFlags::REORDERED;
        const HOPELESS: u32 = FunctionFlags::UNEXPECTED | FunctionFlags::REORDERED;
        let mut flags: Vec<FunctionFlags> =
            states.iter().map(|state| self.own_flags(state)).collect();
        let mut is_inconsistent = false;
        for later in 1..states.len() {
            let shared = (flags[0].0 | flags[later].0) & SHARED;
            flags[0].0 |= shared;
            flags[later].0 |= shared;
            if shared & HOPELESS != 0 || is_inconsistent {
                continue;
            }
            let (first, other) =
                (self.pool.prototype(states[0].class), self.pool.prototype(states[later].class));
            if let Some(difference) = difference(self.pool, self.names, first, other) {
                is_inconsistent = true;
                decision.lines.push(skip_line(group, &difference));
            }
        }
        (flags, is_inconsistent)
    }

    /// Whether the state is that of the symbol. Addresses of a relocatable file are made up, those
    /// of its symbols are not: they never match (4.2.7), except that no address is symbol value 0.
    fn is_at(&self, state: &State, address: u64) -> bool {
        state.address == address && !(self.is_relocatable && state.address != 0)
    }

    /// Whether parameters the compiler removed make the state useless (4.7.3 rule 5).
    fn is_reduced(&self, symbols: &[FunctionSymbol<'_>], state: &State) -> bool {
        let flags = self.own_flags(state);
        let is_clone = || {
            let own = symbols.iter().filter(|symbol| self.is_at(state, symbol.address));
            state.address != 0 && own.into_iter().any(|symbol| symbol.is_optimized_clone())
        };
        !self.has(Feature::TrueSignature)
            && flags.has(FunctionFlags::OPTIMIZED)
            && (flags.has(FunctionFlags::SIGNATURE_CHANGED) || is_clone())
    }

    /// The state that speaks for all: the one the symbol belongs to (4.7.2). Where none is (the
    /// real one may have ranges instead of an address), pahole 1.32 takes the first that has an
    /// address.
    fn canonical<'s>(&self, symbols: &[FunctionSymbol<'_>], states: &'s [State]) -> &'s State {
        if states.len() == 1 {
            return &states[0];
        }
        let is_real =
            |state: &&State| symbols.iter().any(|symbol| self.is_at(state, symbol.address));
        let mut real = states.iter().filter(is_real);
        let best = real.clone().find(|state| !self.is_reduced(symbols, state));
        let placed = || states.iter().find(|state| state.address != 0);
        best.or_else(|| real.next()).or_else(placed).unwrap_or(&states[0])
    }

    /// The last reason that holds (4.7.3).
    fn skip_reason(
        &self,
        flags: FunctionFlags,
        is_inconsistent: bool,
        is_ambiguous: bool,
        symbols: &[FunctionSymbol<'_>],
        canonical: &State,
    ) -> Option<&'static str> {
        let is_inconsistent = is_inconsistent && self.has(Feature::ConsistentFunc);
        if is_ambiguous {
            Some("ambiguous address")
        } else if self.is_reduced(symbols, canonical) {
            Some("optimized parameters")
        } else if flags.has(FunctionFlags::REORDERED) {
            Some("reordered parameters")
        } else if flags.has(FunctionFlags::UNCERTAIN) {
            Some("uncertain parameter location")
        } else if is_inconsistent {
            Some("inconsistet prototype")
        } else if flags.has(FunctionFlags::UNEXPECTED) {
            Some("unexpected register usage for parameter")
        } else {
            None
        }
    }

    /// The first state that is exactly a symbol with a suffix, under that name (4.8.1).
    fn true_signature(
        &self,
        symbols: &[FunctionSymbol<'a>],
        states: &[State],
        flags: &[FunctionFlags],
    ) -> Option<Chosen<'a>> {
        states.iter().zip(flags).find_map(|(state, flags)| {
            let own = symbols
                .iter()
                .find(|symbol| self.is_at(state, symbol.address) && !symbol.suffix().is_empty());
            let symbol = own.filter(|_| state.address != 0)?;
            let is_trusted =
                !flags.has(FunctionFlags::UNEXPECTED) && !flags.has(FunctionFlags::UNCERTAIN);
            is_trusted.then(|| self.choose(symbol.name, None, state))
        })
    }
}

fn skip_line(group: &Group<'_>, reason: &str) -> String {
    let name = String::from_utf8_lossy(group.base);
    format!("{name} : skipping BTF encoding of function due to {reason}")
}
