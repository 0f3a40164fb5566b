//! Small programs that once came out wrong.

use btfcache::btf::kind::{Info, Kind};
use btfcache::btf::read::Btf;
use btfcache_oracle::examine::examine;
use btfcache_oracle::ours;
use btfcache_oracle::program::{Program, Record, Unit};
use btfcache_oracle::random::Random;
use btfcache_oracle::types::Traits;

/// Places of names in a program.
const A: u32 = 1;
const B: u32 = 2;
const MEMBER: u32 = 3;
const CHAR: u32 = 4;
const LONG: u32 = 5;

const TRAITS: Traits = Traits {
    is_ambiguous: true,
    has_forwards: true,
    has_equal_arrays: false,
    has_repeats: false,
    has_clashes: false,
    has_empty_enums: false,
    has_local_duplicates: false,
};

fn program(units: Vec<Vec<Record>>) -> Program {
    let names = ["", "a", "b", "member", "char", "long", "int"].map(str::to_owned).to_vec();
    let unit = |types| Unit { types, ..Unit::default() };
    Program { names, units: units.into_iter().map(unit).collect() }
}

fn record(name: u32, kind: Kind, third: u32, rest: &[u32]) -> Record {
    let vlen = rest.len().checked_div(kind.element_words()).unwrap_or_default();
    let mut record = vec![name, Info::new(kind, vlen as u32, false).0, third];
    record.extend(rest);
    record
}

fn pointer(target: u32) -> Record {
    record(0, Kind::Ptr, target, &[])
}

/// A struct with one member.
fn structure(name: u32, member: u32) -> Record {
    record(name, Kind::Struct, 8, &[MEMBER, member, 0])
}

fn int(name: u32, size: u32) -> Record {
    record(name, Kind::Int, size, &[size * 8])
}

/// The number of types that a program ends up with, all rules obeyed.
fn types_of(program: &Program) -> u32 {
    let mut random = Random::new(0);
    let verdict = examine(TRAITS, program, &mut random).unwrap();
    assert_eq!(verdict.disagreements, [""; 0]);
    let output = ours::encode(program, None, 1, &mut random);
    Btf::parse(&output.bytes, None).unwrap().type_count()
}

/// Two units declare `enum a`, and do not agree on its size.
#[test]
fn declarations_of_an_enum_are_one_whatever_their_size() {
    let declaring = |size| vec![record(A, Kind::Enum, size, &[]), pointer(1)];
    assert_eq!(types_of(&program(vec![declaring(1), declaring(4)])), 2);
}

/// `struct a` is defined once, in a unit whose `struct b` is not the one that most units have. A
/// pointer to it is the same whether or not its unit has the definition.
#[test]
fn a_declaration_may_mean_a_definition_that_deviates_everywhere() {
    let declaring = vec![record(A, Kind::Fwd, 0, &[]), pointer(1)];
    let rare = vec![structure(A, 2), pointer(3), structure(B, 4), int(CHAR, 1), pointer(1)];
    let common = || vec![structure(B, 2), int(LONG, 8)];
    let units = vec![declaring, rare, common(), common()];
    assert_eq!(types_of(&program(units)), 7);
}
