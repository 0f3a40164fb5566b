//! `btfcache::btf::verify` judges as the running kernel does.

use std::io::Write as _;

use btfcache::btf::kind::Kind;
use btfcache::btf::read::Btf;
use btfcache::btf::verify::{Finding, verify};
use btfcache_oracle::kernel::{Judgement, judge};
use btfcache_oracle::mutant;
use btfcache_oracle::random::Random;
use btfcache_oracle::rules::{describe, references};

/// What the kernel said about all images.
#[derive(Debug, Default)]
struct Count {
    taken: usize,
    refused: usize,
    /// Images with something that kernels only take by accident, on which no more is compared.
    accidents: usize,
}

#[test]
fn verify_judges_as_the_kernel_does() {
    if !knows_enum64() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED verify_judges_as_the_kernel_does: no BTF of today"
        );
        return;
    }
    let factor = std::env::var("ORACLE_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    let mut count = Count::default();
    for seed in 0..10_000 * factor {
        let bytes = mutant::image(&mut Random::new(seed));
        let judgement = judge(&bytes);
        if let Err(difference) = count.add(&bytes, &judgement) {
            panic!("seed {seed}: {difference}, the kernel says {judgement:?}\n{}", dump(&bytes));
        }
    }
    let _ = writeln!(std::io::stderr(), "{count:?}");
    assert!(count.taken > 1000 && count.refused > 1000, "{count:?}");
    assert!(count.accidents * 20 < count.taken + count.refused, "{count:?}");
}

/// Whether the kernel may be asked, and knows the newest kind.
fn knows_enum64() -> bool {
    let words = [0xeb9f | 1 << 16, 24, 0, 12, 12, 1, 0, (Kind::Enum64 as u32) << 24, 8];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    bytes.push(0);
    judge(&bytes) == Judgement::Taken
}

impl Count {
    fn add(&mut self, bytes: &[u8], judgement: &Judgement) -> Result<(), String> {
        let findings = match Btf::parse(bytes, None) {
            Ok(btf) => verify(&btf),
            Err(_) if *judgement != Judgement::Taken => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let btf = Btf::parse(bytes, None).expect("it was read before");
        let is_same = match (findings.first(), judgement) {
            _ if findings.iter().any(|found| is_accident(&btf, found)) => {
                self.accidents += 1;
                true
            }
            (None, Judgement::Taken) => {
                self.taken += 1;
                true
            }
            (Some(found), Judgement::Refused(words)) => {
                self.refused += 1;
                words.contains(&*found.message)
            }
            _ => false,
        };
        if is_same { Ok(()) } else { Err(format!("we find {findings:?}")) }
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
