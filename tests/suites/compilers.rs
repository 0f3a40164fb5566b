//! Every version of gcc and clang that is installed: what it compiles, the kernel takes, and it means what
//! pahole 1.32 makes of it. `apt-get install gcc-11 clang-19` adds to what is tested.

use std::fs;

use tempfile::TempDir;

use super::languages::kernel_takes_encoded;
use super::together::{mean_the_same, reference, run};
use crate::harness::skip;

/// Versions that kernels of the last years can be built with, and some to come.
const VERSIONS: [(&str, std::ops::RangeInclusive<u32>); 2] = [("gcc", 8..=17), ("clang", 11..=24)];

#[test]
fn all_that_are_installed() {
    let test = "compilers::all_that_are_installed";
    let folder = TempDir::new().unwrap();
    let source = include_str!("../data/rich.c");
    // What pahole cannot encode would end the comparison.
    let plain = source.replace("_Atomic int", "int").replace("double _Complex", "double");
    fs::write(folder.path().join("rich.c"), source).unwrap();
    fs::write(folder.path().join("plain.c"), plain).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|at| at.join(name).is_file());
    let names = VERSIONS.into_iter().flat_map(|(compiler, versions)| {
        versions.rev().map(move |version| format!("{compiler}-{version}"))
    });
    let found: Vec<String> = names.filter(|name| is_there(name)).collect();
    if found.is_empty() {
        return skip(test, "no compiler has its version in its name");
    }
    for compiler in &found {
        for flags in [
            ["-gdwarf-4", "-O0"],
            ["-gdwarf-4", "-O2"],
            ["-gdwarf-5", "-O0"],
            ["-gdwarf-5", "-O2"],
            ["-gdwarf-5", "-Os"],
        ] {
            for source in ["rich.c", "plain.c"] {
                let arguments = ["-w", "-c", flags[0], flags[1], "-ffreestanding", "-o", "a.o"];
                let arguments = [&arguments[..], &[source]].concat();
                let ran = run(test, folder.path(), compiler, &arguments).unwrap();
                assert!(ran.status.success(), "{compiler} {flags:?}: {ran:?}");
                let _ = kernel_takes_encoded(folder.path(), &["--features=default,global_var"]);
            }
            let input = folder.path().join("a.o");
            let Some(theirs) = reference(test, &input, "default,global_var") else { continue };
            let same = mean_the_same(test, &theirs, &input.with_extension("btf"));
            assert_ne!(same, Some(false), "{compiler} {flags:?}");
        }
    }
}
