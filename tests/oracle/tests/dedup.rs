//! Our merge obeys the rules of deduplication on random programs, and agrees with libbpf.
//!
//! `ORACLE_FACTOR` multiplies the number of programs; `ORACLE_DUMP` prints the types of a program
//! that fails.

use std::fmt::Write as _;
use std::io::Write as _;

use btfcache_oracle::compare::{EXCUSES, Verdict};
use btfcache_oracle::examine::{dump, examine, examine_split};
use btfcache_oracle::libbpf;
use btfcache_oracle::program::Program;
use btfcache_oracle::random::Random;
use btfcache_oracle::surplus::Surplus;
use btfcache_oracle::types::Traits;

/// What programs with these traits gave.
#[derive(Debug, Default)]
struct Total {
    programs: usize,
    agreed: usize,
    excused: [usize; EXCUSES.len()],
    declarations: [usize; 4],
    failures: Vec<String>,
}

impl Total {
    fn run(traits: Traits, programs: u64) -> Self {
        let mut total = Self::default();
        for seed in 0..programs * factor() {
            let mut random = Random::new(seed);
            let program = Program::new(traits, &mut random);
            let before = total.failures.len();
            match examine(traits, &program, &mut random) {
                Ok(verdict) => total.add(seed, &verdict),
                Err(failure) => total.failures.push(format!("seed {seed}: {failure}")),
            }
            if total.failures.len() > before && std::env::var_os("ORACLE_DUMP").is_some() {
                total.failures.push(dump(&program, &mut random));
            }
        }
        total.report(traits);
        total
    }

    fn add(&mut self, seed: u64, verdict: &Verdict) {
        self.programs += 1;
        self.agreed += verdict.agreed;
        for (sum, count) in self.excused.iter_mut().zip(verdict.excused) {
            *sum += count;
        }
        for (sum, count) in self.declarations.iter_mut().zip(verdict.declarations) {
            *sum += count;
        }
        let disagreements = verdict.disagreements.iter();
        self.failures.extend(disagreements.map(|text| format!("seed {seed}: {text}")));
    }

    fn report(&self, traits: Traits) {
        let mut text = format!("{traits:?}: {} programs", self.programs);
        let _ = write!(text, ", {} types agreed", self.agreed);
        for (excuse, count) in EXCUSES.iter().zip(self.excused) {
            if count != 0 {
                let _ = write!(text, ", {count} excused by {excuse:?}");
            }
        }
        if self.declarations != [0; 4] {
            let [neither, ours, theirs, both] = self.declarations;
            let _ = write!(
                text,
                "; declarations of names with several definitions left: {both} by both, "
            );
            let _ = write!(text, "{ours} by us, {theirs} by libbpf, {neither} by neither");
        }
        self.failures.iter().take(10).for_each(|failure| text += &format!("\n  {failure}"));
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// Nothing failed, and at most so many types of a hundred differ.
    fn expect(&self, percent: usize) {
        assert!(self.failures.is_empty(), "{} failures, see above", self.failures.len());
        assert!(self.programs > 0 && self.agreed > self.programs * 5);
        let excused: usize = self.excused.iter().sum();
        assert!(excused * 100 <= (self.agreed + excused) * percent, "too much is excused");
    }

    /// The rule that some types differ by is met at all.
    fn expect_some(&self, percent: usize) {
        self.expect(percent);
        assert!(self.excused.iter().any(|&count| count > 0), "nothing is excused");
    }
}

fn factor() -> u64 {
    std::env::var("ORACLE_FACTOR").map_or(1, |factor| factor.parse().expect("it is a number"))
}

const COMPLETE: Traits = Traits {
    is_ambiguous: false,
    has_forwards: false,
    has_equal_arrays: false,
    has_repeats: false,
    has_clashes: false,
    has_empty_enums: false,
    has_local_duplicates: false,
};

const DECLARING: Traits = Traits { has_forwards: true, ..COMPLETE };

#[test]
fn complete_units() {
    Total::run(COMPLETE, 300).expect(0);
}

#[test]
fn declarations() {
    Total::run(DECLARING, 500).expect(0);
}

#[test]
fn several_definitions() {
    Total::run(Traits { is_ambiguous: true, ..COMPLETE }, 500).expect(0);
}

#[test]
fn declarations_of_several_definitions() {
    Total::run(Traits { is_ambiguous: true, ..DECLARING }, 500).expect_some(20);
}

#[test]
fn repeated_types() {
    Total::run(Traits { has_repeats: true, ..DECLARING }, 300).expect_some(5);
}

#[test]
fn equal_arrays() {
    let traits = Traits { has_equal_arrays: true, is_ambiguous: true, ..COMPLETE };
    Total::run(traits, 500).expect_some(2);
}

#[test]
fn structs_and_unions_of_one_name() {
    Total::run(Traits { has_clashes: true, ..DECLARING }, 300).expect_some(5);
}

#[test]
fn enums_without_name_and_value() {
    Total::run(Traits { has_empty_enums: true, ..DECLARING }, 300).expect_some(10);
}

/// Cuts so many programs with these traits into a kernel and a module upon that.
fn split(traits: Traits, programs: u64) -> Surplus {
    let mut total = Surplus::default();
    let mut failures = Vec::new();
    for seed in 0..programs * factor() {
        let mut random = Random::new(seed);
        let program = Program::new(traits, &mut random);
        match examine_split(&program, &mut random) {
            Ok(surplus) => total += surplus,
            Err(failure) => failures.push(format!("seed {seed}: {failure}")),
        }
    }
    let count = failures.len();
    failures.truncate(10);
    let text = failures.join("\n  ");
    let _ = writeln!(std::io::stderr(), "split, {traits:?}: {total:?}\n  {text}");
    assert_eq!(count, 0, "failures, see above");
    assert!(total.own as u64 > programs && total.shared as u64 > programs, "{total:?}");
    assert_eq!(total.above_typedef > 0, libbpf::repeats_typedefs());
    total
}

#[test]
fn split_of_complete_units() {
    assert_eq!(split(COMPLETE, 500).after_contact, 0);
}

#[test]
fn split_with_declarations() {
    assert!(split(DECLARING, 1000).after_contact > 0);
}

#[test]
fn split_with_several_definitions() {
    assert_eq!(split(Traits { is_ambiguous: true, ..COMPLETE }, 500).after_contact, 0);
}
