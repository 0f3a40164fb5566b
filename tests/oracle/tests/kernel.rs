//! `btfcache::btf::verify` judges as the running kernel does.

use std::io::Write as _;

use btfcache::btf::kind::Kind;
use btfcache::btf::read::Btf;
use btfcache::btf::verify::{Finding, verify};
use btfcache_oracle::kernel::{Judgement, judge};
use btfcache_oracle::mutant;
use btfcache_oracle::random::Random;
use btfcache_oracle::rules::{describe, references};

/// What is said about an image: by us, by the kernel.
#[derive(Debug, Default)]
struct Count {
    taken: usize,
    refused: usize,
    same_words: usize,
    /// What kernels take by accident.
    accidents: usize,
}

#[test]
fn verify_judges_as_the_kernel_does() {
    let factor = std::env::var("ORACLE_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    let mut count = Count::default();
    for seed in 0..10_000 * factor {
        let bytes = mutant::image(&mut Random::new(seed));
        let judgement = judge(&bytes);
        if judgement == Judgement::Unknown {
            let _ = writeln!(std::io::stderr(), "SKIPPED verify_judges_as_the_kernel_does: no bpf");
            return;
        }
        if let Err(difference) = count.add(&bytes, &judgement) {
            panic!("seed {seed}: {difference}, the kernel says {judgement:?}\n{}", dump(&bytes));
        }
    }
    let _ = writeln!(std::io::stderr(), "{count:?}");
    assert!(count.taken > 1000 && count.refused > 1000, "{count:?}");
}

impl Count {
    fn add(&mut self, bytes: &[u8], judgement: &Judgement) -> Result<(), String> {
        let findings = match Btf::parse(bytes, None) {
            Ok(btf) => {
                let findings = verify(&btf);
                if *judgement == Judgement::Taken
                    && findings.iter().all(|found| is_accident(&btf, found))
                {
                    self.accidents += findings.len();
                    self.taken += 1;
                    return Ok(());
                }
                findings.iter().map(|found| format!("{} {}", found.rule, found.message)).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        match judgement {
            Judgement::Refused(words) if !findings.is_empty() => {
                self.refused += 1;
                let message = findings[0].split_once(' ').map_or("", |(_, message)| message);
                self.same_words += usize::from(words.contains(message));
                Ok(())
            }
            _ => Err(format!("we find {findings:?}")),
        }
    }
}

/// Whether it is a reference to a function (rule KR1) or an entry of a section whose variable comes
/// later (rule KR9): the kernel does not look at all of those.
fn is_accident(btf: &Btf<'_>, found: &Finding) -> bool {
    let targets = references(btf.record(found.id));
    match found.rule {
        "KR1" => btf.kind(targets[0]) == Some(Kind::Func),
        "KR9" => targets.iter().any(|&variable| variable > found.id),
        _ => false,
    }
}

fn dump(bytes: &[u8]) -> String {
    match Btf::parse(bytes, None) {
        Ok(btf) => {
            let line = |id| format!("{} {:x?}\n", describe(&btf, id), btf.record(id));
            (1..btf.end_id()).map(line).collect()
        }
        Err(error) => error.to_string(),
    }
}
