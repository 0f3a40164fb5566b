//! Whether two prototypes are the same to a caller, as pahole judges it (spec/encoding 4.6).

use hashbrown::HashSet;

use crate::btf::kind::{Info, Kind, kind_of};
use crate::names::{NameId, Names};
use crate::pool::{ClassId, Key, Namespace, Pool, Ref, Target};

/// Steps of one comparison before it gives up and says no: only nested function pointers multiply
/// steps, and no source nests them that deep.
const MAX_STEPS: u32 = 100_000;

/// The first difference of two prototypes, in pahole's words; `None` if they match.
pub(super) fn difference(
    pool: &Pool,
    names: &Names,
    left: ClassId,
    right: ClassId,
) -> Option<String> {
    if left == right {
        return None;
    }
    let (first, second) = (pool.record(left), pool.record(right));
    let (count, other) = (Info(first[1]).vlen(), Info(second[1]).vlen());
    if count != other {
        return Some(format!("param count mismatch; {count} params != {other} params"));
    }
    let mut matcher = Matcher { pool, steps: 0, matched: HashSet::new() };
    if !matcher.equal(Ref(first[2]), Ref(second[2])) {
        return Some("return type mismatch".to_owned());
    }
    let pairs = first[3..].chunks_exact(2).zip(second[3..].chunks_exact(2));
    for (number, (one, two)) in pairs.enumerate() {
        if !matcher.equal(Ref(one[1]), Ref(two[1])) {
            let name =
                |word: u32| String::from_utf8_lossy(&names.to_vec(NameId(word))).into_owned();
            let (one, two) = (name(one[0]), name(two[0]));
            return Some(format!("param type mismatch for param#{} {one} != {two}", number + 1));
        }
    }
    None
}

struct Matcher<'a> {
    pool: &'a Pool,
    steps: u32,
    /// Prototypes that were found to match, or are being compared: a difference ends everything.
    matched: HashSet<(Ref, Ref)>,
}

/// A type as the comparison sees it: what is named counts by kind and name alone.
enum View<'a> {
    Void,
    Named(Kind, NameId),
    Record(&'a [u32]),
}

impl<'a> Matcher<'a> {
    fn view(&self, reference: Ref) -> View<'a> {
        match reference.target() {
            Target::Void => View::Void,
            Target::Key(Key { namespace, name }) => {
                let kind = match namespace {
                    Namespace::Struct => Kind::Struct,
                    Namespace::Union => Kind::Union,
                    Namespace::Enum => Kind::Enum,
                    Namespace::Typedef => Kind::Typedef,
                };
                View::Named(kind, name)
            }
            Target::Class(class) => {
                let record = self.pool.record(class);
                match kind_of(record) {
                    kind @ (Kind::Struct | Kind::Union | Kind::Typedef) => {
                        View::Named(kind, NameId(record[0]))
                    }
                    Kind::Enum | Kind::Enum64 => View::Named(Kind::Enum, NameId(record[0])),
                    _ => View::Record(record),
                }
            }
        }
    }

    fn equal(&mut self, left: Ref, right: Ref) -> bool {
        let (mut left, mut right) = (left, right);
        loop {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return false;
            }
            if left == right {
                return true;
            }
            match (self.view(left), self.view(right)) {
                (View::Void, _) | (_, View::Void) => return false,
                (View::Named(kind, name), View::Named(other, other_name)) => {
                    return kind == other && name == other_name;
                }
                (View::Record(one), View::Record(two)) if kind_of(one) == kind_of(two) => {
                    let is_prototype = kind_of(one) == Kind::FuncProto;
                    if is_prototype && !self.matched.insert((left, right)) {
                        return true;
                    }
                    match self.same_kind(one, two) {
                        Step::Decided(answer) => return answer,
                        Step::Follow(next, other) => (left, right) = (next, other),
                    }
                }
                // const does not matter to a caller, at any depth.
                (View::Record(one), _) if kind_of(one) == Kind::Const => left = Ref(one[2]),
                (_, View::Record(two)) if kind_of(two) == Kind::Const => right = Ref(two[2]),
                _ => return false,
            }
        }
    }

    fn same_kind(&mut self, one: &[u32], two: &[u32]) -> Step {
        match kind_of(one) {
            Kind::Int | Kind::Float => Step::Decided(one == two),
            Kind::Ptr | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                let index = 2;
                Step::Follow(Ref(one[index]), Ref(two[index]))
            }
            Kind::Array if one[5] == two[5] => Step::Follow(Ref(one[3]), Ref(two[3])),
            Kind::FuncProto => Step::Decided(self.same_prototypes(one, two)),
            _ => Step::Decided(false),
        }
    }

    fn same_prototypes(&mut self, one: &[u32], two: &[u32]) -> bool {
        one.len() == two.len() && self.equal(Ref(one[2]), Ref(two[2])) && {
            let mut pairs = one[3..].chunks_exact(2).zip(two[3..].chunks_exact(2));
            pairs.all(|(one, two)| self.equal(Ref(one[1]), Ref(two[1])))
        }
    }
}

enum Step {
    Decided(bool),
    Follow(Ref, Ref),
}
