//! Our merge obeys the rules of deduplication on random programs, and agrees with libbpf.

use std::fmt::Write as _;
use std::io::Write as _;

use btfcache::btf::read::Btf;
use btfcache_oracle::compare::{EXCUSES, Verdict, compare};
use btfcache_oracle::image::Input;
use btfcache_oracle::program::Program;
use btfcache_oracle::random::Random;
use btfcache_oracle::rules::{Case, describe};
use btfcache_oracle::types::Traits;
use btfcache_oracle::{libbpf, ours};

/// What programs with these traits gave.
#[derive(Debug, Default)]
struct Total {
    programs: usize,
    agreed: usize,
    excused: [usize; EXCUSES.len()],
    failures: Vec<String>,
}

impl Total {
    fn run(traits: Traits, programs: u64) -> Self {
        let mut total = Self::default();
        for seed in 0..programs {
            match examine(traits, seed) {
                Ok(verdict) => total.add(seed, &verdict),
                Err(failure) => total.failures.push(format!("seed {seed}: {failure}")),
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
        let disagreements = verdict.disagreements.iter();
        self.failures.extend(disagreements.map(|text| format!("seed {seed}: {text}")));
    }

    fn report(&self, traits: Traits) {
        let counts = EXCUSES.iter().zip(self.excused).filter(|(_, count)| *count != 0);
        let excused = counts.fold(String::new(), |mut text, (excuse, count)| {
            let _ = write!(text, ", {count} excused by {excuse:?}");
            text
        });
        let (programs, agreed, failures) = (self.programs, self.agreed, &self.failures);
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "{traits:?}: {programs} programs, {agreed} types agreed{excused}");
        for failure in failures.iter().take(10) {
            let _ = writeln!(stderr, "  {failure}");
        }
    }

    /// Nothing failed, and at most so many types of a hundred differ.
    fn expect(&self, percent: usize) {
        assert!(self.failures.is_empty(), "{} failures, see above", self.failures.len());
        assert!(self.programs > 0 && self.agreed > self.programs * 5);
        let excused: usize = self.excused.iter().sum();
        assert!(excused * 100 <= (self.agreed + excused) * percent, "too much is excused");
    }
}

/// Puts one program through both, and checks the rules.
fn examine(traits: Traits, seed: u64) -> Result<Verdict, String> {
    let mut random = Random::new(seed);
    let program = Program::new(traits, &mut random);
    let input = Input::new(&program);
    let whole = Btf::parse(&input.bytes, None).expect("the input is sound");
    let output = ours::encode(&program, 1, &mut random);
    for workers in 2..=3 {
        let other = ours::encode(&program, workers, &mut random);
        if other.bytes != output.bytes {
            return Err(format!("{workers} workers give another result"));
        }
    }
    let own = Btf::parse(&output.bytes, None).map_err(|error| error.to_string())?;
    let case = Case { input: &whole, first_ids: &input.first_ids, output: &own, ours: &output };
    case.check()?;
    let theirs = libbpf::dedup(&input.bytes);
    let theirs = Btf::parse(&theirs, None).expect("libbpf gives sound BTF");
    let verdict = compare(traits, &whole, &own, &theirs);
    if !verdict.disagreements.is_empty() && std::env::var_os("ORACLE_DUMP").is_some() {
        for btf in [&whole, &own, &theirs] {
            let _ = writeln!(std::io::stderr(), "----");
            for id in 1..btf.end_id() {
                let _ = writeln!(std::io::stderr(), "{}", describe(btf, id));
            }
        }
    }
    Ok(verdict)
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

#[test]
fn complete_units() {
    Total::run(COMPLETE, 60).expect(0);
}

#[test]
fn declarations() {
    Total::run(Traits { has_forwards: true, ..COMPLETE }, 60).expect(0);
}

#[test]
fn several_definitions() {
    Total::run(Traits { is_ambiguous: true, ..COMPLETE }, 60).expect(0);
}

#[test]
fn declarations_of_several_definitions() {
    Total::run(Traits { is_ambiguous: true, has_forwards: true, ..COMPLETE }, 60).expect(30);
}

#[test]
fn repeated_types() {
    Total::run(Traits { has_forwards: true, has_repeats: true, ..COMPLETE }, 30).expect(10);
}

#[test]
fn equal_arrays() {
    let traits = Traits { has_equal_arrays: true, has_forwards: true, ..COMPLETE };
    Total::run(traits, 30).expect(10);
}

#[test]
fn structs_and_unions_of_one_name() {
    Total::run(Traits { has_clashes: true, has_forwards: true, ..COMPLETE }, 30).expect(10);
}

#[test]
fn enums_without_name_and_value() {
    let traits = Traits { has_empty_enums: true, has_forwards: true, ..COMPLETE };
    Total::run(traits, 30).expect(10);
}
