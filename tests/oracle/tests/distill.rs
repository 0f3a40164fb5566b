//! Distilling gives what libbpf's `btf__distill_base` gives, byte for byte.

use std::io::Write as _;
use std::sync::Arc;

use btfcache::base::prepare;
use btfcache::btf::read::Btf;
use btfcache::btf::verify::{Finding, verify, verify_on_distilled};
use btfcache::distill::{DistillError, distill};
use btfcache::options::Options;
use btfcache::pipeline;
use btfcache::timing::Timing;
use btfcache_oracle::image::Input;
use btfcache_oracle::libbpf::{self, Refusal};
use btfcache_oracle::modules::{Module, factor, modules};
use btfcache_oracle::mutant;
use btfcache_oracle::program::Program;
use btfcache_oracle::random::Random;
use btfcache_oracle::split::cut;
use btfcache_oracle::types::Traits;

const EINVAL: i32 = 22;

#[derive(Debug, Default)]
struct Count {
    equal: usize,
    refused: usize,
    /// Pairs that only we refuse, since the kernel does (rule X10).
    without_base: usize,
}

impl Count {
    /// Distills both ways, and compares.
    fn add(&mut self, base: &[u8], split: &[u8]) -> Result<(), String> {
        let theirs = libbpf::distill(base, split);
        let base = Btf::parse(base, None).map_err(|error| error.to_string())?;
        let split = Btf::parse(split, Some(&base)).map_err(|error| error.to_string())?;
        let place = match (distill(&split), theirs) {
            (Ok(ours), Ok((base, split))) if (&ours.base, &ours.split) == (&base, &split) => {
                &mut self.equal
            }
            (
                Err(DistillError::Unexpected { .. } | DistillError::EnumSize { .. }),
                Err(Refusal::Error(EINVAL)),
            ) => &mut self.refused,
            (Err(DistillError::EmptyBase), Ok((base, _))) if is_without_types(&base) => {
                &mut self.without_base
            }
            (ours, theirs) => return Err(format!("we: {ours:x?}\nlibbpf: {theirs:x?}")),
        };
        *place += 1;
        Ok(())
    }

    fn report(&self, what: &str) {
        let _ = writeln!(std::io::stderr(), "distilling {what}: {self:?}");
    }
}

fn is_without_types(image: &[u8]) -> bool {
    Btf::parse(image, None).is_ok_and(|btf| btf.type_count() == 0)
}

/// Makes so many images and distills them, cut in two.
fn distill_all(what: &str, count: u64, image: impl Fn(&mut Random) -> Vec<u8>) -> Count {
    let mut total = Count::default();
    for seed in 0..count * factor() as u64 {
        let mut random = Random::new(seed);
        let image = image(&mut random);
        if Btf::parse(&image, None).is_ok_and(|btf| btf.type_count() > 1) {
            let (base, split) = cut(&image, random.percent(30), &mut random);
            total.add(&base, &split).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
    total.report(what);
    total
}

/// What the kernel would not like of a module that is distilled.
fn findings(base: &[u8], split: &[u8]) -> Vec<Finding> {
    let base = Btf::parse(base, None).unwrap();
    let pair = distill(&Btf::parse(split, Some(&base)).unwrap()).unwrap();
    let base = Btf::parse(&pair.base, None).unwrap();
    let split = Btf::parse(&pair.split, Some(&base)).unwrap();
    [verify(&base), verify_on_distilled(&split)].concat()
}

#[test]
fn programs_are_distilled_as_by_libbpf() {
    let image = |random: &mut Random| {
        let program = Program::new(Traits::of_all(), random);
        Input::new(&program).bytes
    };
    let total = distill_all("programs", 500, image);
    assert!(total.equal > 100, "{total:?}");
}

#[test]
fn images_of_all_kinds_are_distilled_as_by_libbpf() {
    let total = distill_all("images of all kinds", 20_000, mutant::image);
    assert!(total.equal > 1000 && total.refused > 100 && total.without_base > 10, "{total:?}");
}

#[test]
fn real_modules_are_distilled_as_by_libbpf() {
    let Some((base, modules)) = modules("real_modules_are_distilled_as_by_libbpf") else {
        return;
    };
    let mut total = Count::default();
    for Module { path, split } in &modules {
        total.add(&base, split).unwrap_or_else(|_| panic!("`{}` differs", path.display()));
    }
    for Module { path, split } in &modules {
        let found = findings(&base, split);
        assert!(found.is_empty(), "`{}`, distilled: {found:?}", path.display());
    }
    total.report("modules");
    assert_eq!(total.equal, modules.len(), "{total:?}");
}

/// What the program itself makes of those modules, distilled by the pipeline.
#[test]
fn modules_that_are_encoded_distilled_are_as_by_libbpf() {
    let Some((image, modules)) = modules("modules_that_are_encoded_distilled_are_as_by_libbpf")
    else {
        return;
    };
    let base = Btf::parse(&image, None).unwrap();
    let prepared = Arc::new(prepare(Btf::parse(&image, None).unwrap()).unwrap());
    let (options, timing) = (Options::default(), Timing::default());
    for Module { path, .. } in &modules {
        let encoded = pipeline::encode(path, Some(&prepared), &options, &timing).unwrap();
        let theirs = libbpf::distill(&image, &encoded.btf).unwrap();
        let ours = pipeline::distill(encoded, &base, &timing).unwrap();
        let ours = (ours.distilled_base.unwrap(), ours.btf);
        assert!(ours == theirs, "`{}` differs", path.display());
    }
}
