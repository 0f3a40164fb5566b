//! Rules for how types refer to each other (4.4, 4.5), found the way the kernel does.
//!
//! The kernel follows references depth first with a stack of 32 entries, from each type in id
//! order, and remembers what it is done with. Which references it follows depends on a mode: until
//! it meets a pointer, struct or array all; behind a pointer only modifiers and pointers; behind a
//! struct or array only modifiers, structs and arrays. So a pointer to a struct ends the path, and
//! the loops that are left are those that C cannot have. The order decides what is too deep, so it
//! is kept:
//!
//! ```text
//! #1 CONST -> #2, #2 CONST -> #3, ... #34 INT     33 entries at once: too deep
//! #1 INT, #2 CONST -> #1, #3 CONST -> #2, ...     each finds the one before it done
//! ```

use std::borrow::Cow;

use super::member::Member;
use super::{Finding, Problem, demand, elements, is_modifier, is_regular, record};
use crate::btf::kind::{Info, Kind, kind_of};
use crate::btf::read::Btf;

/// Entries of the kernel's stack.
const MAX_DEPTH: usize = 32;
const TYPE_ID: &str = "Invalid type_id";
const MEMBER: &str = "Invalid member";
const ELEMENT: &str = "Invalid elem";
const INDEX: &str = "Invalid index";
const RESULT: &str = "Invalid return type";
/// The rule about what tags are about.
pub(super) const COMPONENT_RULE: &str = "KR10";
const COMPONENT: &str = "Invalid component_idx";

/// The types that have a finding, or depend on one that has.
#[derive(Debug)]
pub(super) struct Failed(Vec<State>);

impl Failed {
    pub(super) fn has(&self, id: u32) -> bool {
        self.0[id as usize] == State::Failed
    }
}

/// Checks all references but those of types that have findings; what is found about types of the
/// base is left out.
pub(super) fn check(btf: &Btf<'_>, findings: &mut Vec<Finding>) -> Failed {
    let mut resolver = Resolver::new(btf);
    for finding in findings.iter() {
        resolver.states[finding.id as usize] = State::Failed;
    }
    let mut report = |finding: Finding| {
        if finding.id >= btf.first_id() {
            findings.push(finding);
        }
    };
    for id in 1..btf.end_id() {
        if needs_resolve(btf.kind(id)) && resolver.states[id as usize] == State::New {
            resolver.resolve(id).into_iter().for_each(&mut report);
        }
        if btf.kind(id) == Some(Kind::FuncProto) && resolver.states[id as usize] == State::New {
            resolver.check_prototype(id, &mut report);
        }
    }
    Failed(resolver.states)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    /// On the stack.
    Open,
    Done,
    Failed,
}

/// What is behind the references that are being followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Undecided,
    Pointer,
    Composite,
}

/// A type being resolved, and which of its elements comes next.
#[derive(Clone, Copy, Debug)]
struct Vertex {
    id: u32,
    next: usize,
}

/// Why a type is not resolved.
#[derive(Debug)]
enum Stop {
    Problem(Problem),
    /// It depends on a type that has a finding.
    Known,
    Deep,
    Loop,
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Whether a type was pushed that must be resolved first.
type Step = Result<Pushed, Stop>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pushed(bool);

const WAIT: Pushed = Pushed(true);
const GO_ON: Pushed = Pushed(false);

struct Resolver<'a> {
    btf: &'a Btf<'a>,
    pointer_size: u32,
    states: Vec<State>,
    /// By id of a modifier, pointer, variable or array: what it leads to, and the size of arrays.
    resolved: Vec<(u32, u32)>,
    stack: Vec<Vertex>,
    mode: Mode,
}

impl<'a> Resolver<'a> {
    fn new(btf: &'a Btf<'a>) -> Self {
        let count = btf.end_id() as usize;
        Self {
            btf,
            pointer_size: btf.pointer_size().unwrap_or(8),
            states: vec![State::New; count],
            resolved: vec![(0, 0); count],
            stack: Vec::with_capacity(MAX_DEPTH),
            mode: Mode::Undecided,
        }
    }

    fn kind(&self, id: u32) -> Option<Kind> {
        self.btf.kind(id)
    }

    /// Resolves a type and all that it depends on.
    fn resolve(&mut self, id: u32) -> Option<Finding> {
        self.mode = Mode::Undecided;
        let mut step = self.push(id);
        while step.is_ok()
            && let Some(&vertex) = self.stack.last()
        {
            step = self.step(vertex);
        }
        let at = self.stack.last().map_or(id, |vertex| vertex.id);
        for vertex in self.stack.drain(..) {
            self.states[vertex.id as usize] = State::Failed;
        }
        match step.err()? {
            Stop::Problem(problem) => Some(problem.at(at)),
            Stop::Known => None,
            Stop::Deep => Some(Problem::new("KR8", "Exceeded max resolving depth:32").at(id)),
            Stop::Loop => Some(Problem::new("KR7", "Loop detected").at(id)),
        }
    }

    fn push(&mut self, id: u32) -> Step {
        match self.states[id as usize] {
            _ if self.stack.len() == MAX_DEPTH => return Err(Stop::Deep),
            State::Failed => return Err(Stop::Known),
            State::Open | State::Done => return Err(Stop::Loop),
            State::New => {}
        }
        self.states[id as usize] = State::Open;
        self.stack.push(Vertex { id, next: 0 });
        if self.mode == Mode::Undecided {
            self.mode = match self.kind(id) {
                Some(Kind::Ptr) => Mode::Pointer,
                Some(Kind::Struct | Kind::Union | Kind::Array) => Mode::Composite,
                _ => Mode::Undecided,
            };
        }
        Ok(WAIT)
    }

    fn pop(&mut self, target: u32, size: u32) -> Pushed {
        let vertex = self.stack.pop().expect("a step is of the vertex on top");
        self.states[vertex.id as usize] = State::Done;
        self.resolved[vertex.id as usize] = (target, size);
        GO_ON
    }

    fn step(&mut self, vertex: Vertex) -> Step {
        let btf = self.btf;
        let record = btf.record(vertex.id);
        match kind_of(record) {
            Kind::Array => self.array(record),
            Kind::Struct | Kind::Union => self.composite(record, vertex.next),
            Kind::Var => self.variable(record),
            Kind::Datasec => self.section(record, vertex.next),
            Kind::Func => self.function(record),
            Kind::DeclTag => self.decl_tag(record),
            _ => self.link(record),
        }
    }

    fn is_done(&self, id: u32) -> bool {
        self.states[id as usize] == State::Done
    }

    /// Whether `id` is not followed in this mode.
    fn is_sink(&self, id: u32) -> bool {
        let kind = self.kind(id);
        let is_composite = matches!(kind, Some(Kind::Struct | Kind::Union | Kind::Array));
        match self.mode {
            Mode::Undecided => !needs_resolve(kind),
            Mode::Pointer => !is_modifier(kind) && kind != Some(Kind::Ptr),
            Mode::Composite => !is_modifier(kind) && !is_composite,
        }
    }

    /// Pushes `id` if it must be resolved first.
    fn follow(&mut self, id: u32) -> Step {
        if self.is_sink(id) || self.is_done(id) { Ok(GO_ON) } else { self.push(id) }
    }

    /// Follows what a modifier leads to if that is a pointer at which another mode stopped.
    fn follow_pointer(&mut self, id: u32) -> Step {
        let target = self.resolved[id as usize].0;
        if is_modifier(self.kind(id)) && self.kind(target) == Some(Kind::Ptr) {
            return self.follow(target);
        }
        Ok(GO_ON)
    }

    /// What a type with a size leads to, and the size.
    fn sized(&self, id: u32) -> Option<(u32, u32)> {
        match self.kind(id)? {
            Kind::Var => self.final_size(self.resolved[id as usize].0),
            kind if is_modifier(Some(kind)) => self.final_size(self.resolved[id as usize].0),
            _ => self.final_size(id),
        }
    }

    fn final_size(&self, id: u32) -> Option<(u32, u32)> {
        use Kind::{Datasec, Enum, Enum64, Float, Int, Struct, Union};
        let size = match self.kind(id)? {
            Int | Struct | Union | Enum | Enum64 | Float | Datasec => self.btf.record(id)[2],
            Kind::Array => self.resolved[id as usize].1,
            Kind::Ptr => self.pointer_size,
            _ => return None,
        };
        Some((id, size))
    }

    /// Modifiers and pointers (rule KR1).
    fn link(&mut self, record: &[u32]) -> Step {
        let target = record[2];
        // The kernel takes a FUNC here if it has a lower id, by accident.
        let is_type = !is_source(self.kind(target)) && self.kind(target) != Some(Kind::Func);
        demand(is_type, "KR1", TYPE_ID)?;
        if self.follow(target)? == WAIT {
            return Ok(WAIT);
        }
        if kind_of(record) == Kind::Ptr && self.follow_pointer(target)? == WAIT {
            return Ok(WAIT);
        }
        if let Some((id, _)) = self.sized(target) {
            return Ok(self.pop(id, 0));
        }
        let end = if self.is_done(target) { self.resolved[target as usize].0 } else { target };
        let may_end = matches!(self.kind(end), None | Some(Kind::Fwd | Kind::FuncProto));
        demand(may_end, "KR1", TYPE_ID)?;
        Ok(self.pop(end, 0))
    }

    /// Rule KR2.
    fn variable(&mut self, record: &[u32]) -> Step {
        let target = record[2];
        demand(!is_source(self.kind(target)), "KR2", TYPE_ID)?;
        if self.follow(target)? == WAIT || self.follow_pointer(target)? == WAIT {
            return Ok(WAIT);
        }
        let (id, size) = self.sized(target).ok_or(Problem::new("KR2", TYPE_ID))?;
        Ok(self.pop(id, size))
    }

    /// Rule KR3.
    fn array(&mut self, record: &[u32]) -> Step {
        let [element, index, count] = [record[3], record[4], record[5]];
        demand(has_size(self.kind(index)), "KR3", INDEX)?;
        if self.follow(index)? == WAIT {
            return Ok(WAIT);
        }
        let is_index = self.sized(index).is_some_and(|(id, _)| self.is_regular_int(id));
        demand(is_index, "KR3", INDEX)?;
        demand(has_size(self.kind(element)), "KR3", ELEMENT)?;
        if self.follow(element)? == WAIT {
            return Ok(WAIT);
        }
        let (id, size) = self.sized(element).ok_or(Problem::new("KR3", ELEMENT))?;
        let is_regular = self.kind(id) != Some(Kind::Int) || self.is_regular_int(id);
        demand(is_regular, "KR3", "Invalid array of int")?;
        let size = size.checked_mul(count);
        Ok(self.pop(id, size.ok_or(Problem::new("KR3", "Array size overflows U32_MAX"))?))
    }

    fn is_regular_int(&self, id: u32) -> bool {
        self.kind(id) == Some(Kind::Int) && is_regular(self.btf.record(id))
    }

    /// Rules KR4 to KR6.
    fn composite(&mut self, record: &[u32], next: usize) -> Step {
        if let Some(last) = next.checked_sub(1) {
            let member = elements(record).nth(last).expect("the vertex counts members");
            self.member(record, member)?;
        }
        for (place, member) in elements(record).enumerate().skip(next) {
            demand(has_size(self.kind(member[1])), "KR4", MEMBER)?;
            self.set_next(place + 1);
            if self.follow(member[1])? == WAIT {
                return Ok(WAIT);
            }
            self.member(record, member)?;
        }
        Ok(self.pop(0, 0))
    }

    fn member(&self, structure: &[u32], member: &[u32]) -> Result<(), Problem> {
        let (id, size) = self.sized(member[1]).ok_or(Problem::new("KR4", MEMBER))?;
        let ty = self.btf.record(id);
        let placed = Member {
            struct_size: structure[2],
            offset: member[2],
            kind: kind_of(ty),
            ty,
            size,
            pointer_size: self.pointer_size,
        };
        placed.check(Info(structure[1]).kflag())
    }

    /// Remembers which element comes next, for when what is pushed now is done.
    fn set_next(&mut self, next: usize) {
        self.stack.last_mut().expect("a step is of the vertex on top").next = next;
    }

    /// Rule KR9. The kernel forgets to look at the size of a variable that comes after the section.
    fn section(&mut self, record: &[u32], next: usize) -> Step {
        self.mode = Mode::Undecided;
        for (place, entry) in elements(record).enumerate().skip(next) {
            let variable = entry[0];
            let is_variable = self.kind(variable) == Some(Kind::Var);
            demand(is_variable, "KR9", "Not a VAR kind member")?;
            if self.follow(variable)? == WAIT {
                return Ok(WAIT);
            }
            let ty = self.btf.record(variable)[2];
            let (_, size) = self.sized(ty).ok_or(Problem::new("KR9", "Invalid type"))?;
            demand(entry[2] >= size, "KR9", "Invalid size")?;
            self.set_next(place + 1);
        }
        Ok(self.pop(0, 0))
    }

    /// Rule KR11.
    fn function(&mut self, record: &[u32]) -> Step {
        let prototype = self.btf.record(record[2]);
        for (place, parameter) in (1..).zip(elements(prototype)) {
            if parameter[0] == 0 && parameter[1] != 0 {
                return Err(argument("KR11", place).into());
            }
        }
        Ok(self.pop(record[2], 0))
    }

    /// Rule KR10.
    fn decl_tag(&mut self, record: &[u32]) -> Step {
        use Kind::{Func, Struct, Typedef, Union, Var};
        let (target, component) = (record[2], record[3]);
        let kind = self.kind(target);
        let is_target = matches!(kind, Some(Func | Struct | Union | Var | Typedef));
        demand(is_target, COMPONENT_RULE, TYPE_ID)?;
        if self.follow(target)? == WAIT {
            return Ok(WAIT);
        }
        let parts = match kind {
            Some(Struct | Union) => Info(self.btf.record(target)[1]).vlen(),
            Some(Func) => Info(self.btf.record(self.btf.record(target)[2])[1]).vlen(),
            _ => 0,
        };
        demand(component == u32::MAX || component < parts, COMPONENT_RULE, COMPONENT)?;
        Ok(self.pop(target, 0))
    }

    /// Rules of 4.5. What its parts depend on is resolved on the way.
    fn check_prototype(&mut self, id: u32, report: &mut impl FnMut(Finding)) {
        let btf = self.btf;
        let record = btf.record(id);
        let result = Problem::new("4.5", RESULT);
        if record[2] != 0 && !self.part_is_sized(record[2], report) {
            return report(result.at(id));
        }
        let mut parameters: Vec<&[u32]> = elements(record).collect();
        if let Some(&[name, 0]) = parameters.last().copied() {
            if name != 0 {
                return report(argument("4.5", parameters.len()).at(id));
            }
            parameters.pop();
        }
        for (place, parameter) in (1..).zip(parameters) {
            let name = btf.name(parameter[0]);
            let is_named = parameter[0] == 0 || record::is_identifier(name);
            if parameter[1] == 0 || !is_named || !self.part_is_sized(parameter[1], report) {
                return report(argument("4.5", place).at(id));
            }
        }
    }

    /// Whether a parameter or result has a size; so it is taken to have if that is not known
    /// because of another finding.
    fn part_is_sized(&mut self, id: u32, report: &mut impl FnMut(Finding)) -> bool {
        if is_source(self.kind(id)) {
            return false;
        }
        if needs_resolve(self.kind(id)) && self.states[id as usize] == State::New {
            self.resolve(id).into_iter().for_each(report);
        }
        self.states[id as usize] == State::Failed || self.sized(id).is_some()
    }
}

fn argument(rule: &'static str, place: usize) -> Problem {
    Problem { rule, message: Cow::Owned(format!("Invalid arg#{place}")) }
}

/// Whether the kernel looks at what such a type refers to.
const fn needs_resolve(kind: Option<Kind>) -> bool {
    use Kind::{Array, Datasec, DeclTag, Func, Ptr, Struct, Union, Var};
    is_modifier(kind)
        || matches!(kind, Some(Ptr | Struct | Union | Array | Var | Func | DeclTag | Datasec))
}

/// Whether nothing can refer to such a type, but for what is made for that.
const fn is_source(kind: Option<Kind>) -> bool {
    matches!(kind, Some(Kind::Var | Kind::DeclTag | Kind::Datasec))
}

/// Whether such a type may have a size.
const fn has_size(kind: Option<Kind>) -> bool {
    !matches!(kind, None | Some(Kind::Fwd | Kind::Func | Kind::FuncProto)) && !is_source(kind)
}
