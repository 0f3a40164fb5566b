//! Whether distilled BTF fits a base is judged as libbpf's `btf__relocate` does, which is the code
//! of the kernel.

use std::collections::BTreeMap;
use std::io::Write as _;

use btfcache::btf::fit::{Reason, misfits};
use btfcache::btf::load;
use btfcache::btf::read::Btf;
use btfcache::distill::distill;
use btfcache_oracle::image::Input;
use btfcache_oracle::libbpf::{self, Refusal};
use btfcache_oracle::modules::{factor, modules};
use btfcache_oracle::mutant;
use btfcache_oracle::program::Program;
use btfcache_oracle::random::Random;
use btfcache_oracle::split::{cut, image_of, mutate};
use btfcache_oracle::types::Traits;

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;

/// How many pairs fit, and how many do not for which first reason.
#[derive(Debug, Default)]
struct Count(BTreeMap<&'static str, usize>);

impl Count {
    /// Judges a pair both ways, and compares.
    fn add(&mut self, distilled: &[u8], split: &[u8], base: &[u8]) -> Result<(), String> {
        let parsed = |image, base| Btf::parse(image, base).map_err(|error| error.to_string());
        let distilled_btf = parsed(distilled, None)?;
        let found = misfits(&parsed(split, Some(&distilled_btf))?, &parsed(base, None)?);
        let reason = found.first().map(|misfit| &misfit.reason);
        // libbpf would never come back.
        if reason != Some(&Reason::Endless) {
            let expected = match reason {
                // The kernel miscounts, libbpf does not.
                None | Some(Reason::NoTypes) => Ok(()),
                Some(Reason::Name(_)) => Err(Refusal::Error(ENOENT)),
                Some(_) => Err(Refusal::Error(EINVAL)),
            };
            let theirs = libbpf::relocate(distilled, split, base).map(|_| ());
            if theirs != expected {
                return Err(format!("we: {found:?}\nlibbpf: {theirs:?}"));
            }
        }
        *self.0.entry(word(reason)).or_default() += 1;
        Ok(())
    }

    fn report(&self, what: &str) {
        let _ = writeln!(std::io::stderr(), "{what}: {:?}", self.0);
    }

    fn of(&self, word: &str) -> usize {
        self.0.get(word).copied().unwrap_or_default()
    }
}

fn word(reason: Option<&Reason>) -> &'static str {
    match reason {
        None => "fits",
        Some(Reason::NoTypes) => "no types",
        Some(Reason::Nameless) => "nameless",
        Some(Reason::Kind) => "kind",
        Some(Reason::Endless) => "endless",
        Some(Reason::Several(_)) => "several",
        Some(Reason::Missing(None)) => "missing",
        Some(Reason::Missing(Some(_))) => "different",
        Some(Reason::Name(_)) => "name",
        Some(_) => "other",
    }
}

/// Distills what is on `base`; what cannot be distilled stays as it is.
fn distilled(base: &[u8], split: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let base_btf = Btf::parse(base, None).unwrap();
    match distill(&Btf::parse(split, Some(&base_btf)).unwrap()) {
        Ok(pair) => (pair.base, pair.split),
        Err(_) => (base.to_vec(), split.to_vec()),
    }
}

/// Makes so many pairs, and puts each on its own base, changed here and there.
fn judge_all(what: &str, count: u64, image: impl Fn(&mut Random) -> Vec<u8>) -> Count {
    let mut total = Count::default();
    for seed in 0..count * factor() as u64 {
        let mut random = Random::new(seed);
        let image = image(&mut random);
        if Btf::parse(&image, None).is_ok_and(|btf| btf.type_count() > 1) {
            let (base, split) = cut(&image, false, &mut random);
            let (mut distilled, mut split) = distilled(&base, &split);
            let changed = mutate(&base, random.below(4), true, &mut random);
            if random.percent(20) {
                distilled = mutate(&distilled, 1, false, &mut random);
            }
            if random.percent(5) {
                split = with_other_names(&distilled, &split, &mut random);
            }
            let result = total.add(&distilled, &split, &changed);
            result.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
    total.report(what);
    total
}

/// The same split part with one name moved to somewhere in the strings of its base.
fn with_other_names(base: &[u8], split: &[u8], random: &mut Random) -> Vec<u8> {
    let base = Btf::parse(base, None).unwrap();
    let split = Btf::parse(split, Some(&base)).unwrap();
    let mut words: Vec<u32> = split.records().flat_map(|(_, record)| record.to_vec()).collect();
    if let Some(name) = words.first_mut() {
        *name = random.below(base.strings().len()) as u32;
    }
    image_of(&words, split.strings(), false)
}

#[test]
fn programs_fit_as_libbpf_says() {
    let total = judge_all("programs", 1000, |random| {
        libbpf::dedup(&Input::new(&Program::new(Traits::of_all(), random)).bytes)
    });
    assert!(total.of("fits") > 20 && total.of("several") > 20, "{total:?}");
    assert!(total.of("missing") > 20 && total.of("different") > 20, "{total:?}");
}

#[test]
fn images_of_all_kinds_fit_as_libbpf_says() {
    let total = judge_all("images of all kinds", 20_000, mutant::image);
    let words = ["fits", "nameless", "kind", "several", "missing", "different", "name"];
    assert!(words.iter().all(|word| total.of(word) > 10), "{total:?}");
}

#[test]
fn real_modules_fit_as_libbpf_says() {
    let Some((base, modules)) = modules("real_modules_fit_as_libbpf_says") else {
        return;
    };
    let others = std::env::var("BTFCACHE_TEST_OTHER_VMLINUX").unwrap_or_default();
    let other = |path: &str| load::images(path.as_ref()).unwrap().btf;
    let others: Vec<Vec<u8>> =
        others.split(':').filter(|path| !path.is_empty()).map(other).collect();
    let (mut own, mut total) = (Count::default(), Count::default());
    for (seed, module) in modules.iter().enumerate() {
        let named = |error| panic!("`{}`: {error}", module.path.display());
        let (distilled, split) = distilled(&base, &module.split);
        own.add(&distilled, &split, &base).unwrap_or_else(named);
        for other in &others {
            total.add(&distilled, &split, other).unwrap_or_else(named);
        }
        let mut random = Random::new(seed as u64);
        let changed = mutate(&base, 2000, true, &mut random);
        total.add(&distilled, &split, &changed).unwrap_or_else(named);
    }
    own.report("modules on their own base");
    total.report("modules on other bases");
    assert_eq!(own.of("fits"), modules.len(), "{own:?}");
}
