//! Object files for the machines that Linux runs on: their debug sections are relocated as the machine's
//! linker would do it, and parameters are judged by its calling convention (spec/encoding 4.4).

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::encode::encode;
use super::together::run;
use crate::harness::{reference_pahole, skip};

/// `tests/data/rich.c`, and variables of threads, which have relocations of their own.
const SOURCE: &str = concat!(
    include_str!("../data/rich.c"),
    "__thread int per_thread = 5;
     static __thread struct pair pairs[3];
     long sum_of_thread(int place) { return per_thread + pairs[place].first; }\n"
);

/// Two types that pahole cannot encode become others.
const COMMON: [&str; 8] =
    ["-c", "-w", "-ffreestanding", "-fPIC", "-gz=none", "-D_Atomic=", "-D_Complex=", "source.c"];

const VARIANTS: [&[&str]; 3] = [
    &["-O2", "-gdwarf-4"],
    &["-O2", "-gdwarf-5"],
    &["-Os", "-gdwarf-5", "-ffunction-sections", "-fdata-sections"],
];

/// Compilers that can also link.
const COMPILERS: [&str; 14] = [
    "gcc",
    "aarch64-linux-gnu-gcc",
    "arm-linux-gnueabihf-gcc",
    "i686-linux-gnu-gcc",
    "mips-linux-gnu-gcc",
    "mips64-linux-gnuabi64-gcc",
    "mips64el-linux-gnuabi64-gcc",
    "powerpc-linux-gnu-gcc",
    "powerpc64-linux-gnu-gcc",
    "powerpc64le-linux-gnu-gcc",
    "riscv64-linux-gnu-gcc",
    "s390x-linux-gnu-gcc",
    "sparc64-linux-gnu-gcc",
    "loongarch64-linux-gnu-gcc",
];

/// clang for machines that gcc has another DWARF for, or that Debian 12 has no gcc for. Lists of
/// RISC-V have pairs of relocations for numbers of variable length.
const TARGETS: [&str; 4] = [
    "--target=loongarch64-linux-gnu",
    "--target=riscv64-linux-gnu",
    "--target=s390x-linux-gnu",
    "--target=aarch64-linux-gnu",
];
const CLANG: &str = "clang-19";

const FEATURES: &str = "default,global_var";

/// Without variables: linkers move them from one section to another.
const WITHOUT_VARIABLES: &str =
    "--features=float,decl_tag,type_tag,enum64,optimized_func,consistent_func";

/// Compiles [`SOURCE`]; `None` with a message if the compiler is missing.
fn object(test: &str, folder: &Path, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    fs::write(folder.join("source.c"), SOURCE).unwrap();
    let arguments = [&COMMON[..], &["-o", "object.o"], flags].concat();
    let ran = run(test, folder, compiler, &arguments)?;
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{compiler} {flags:?}: {said}");
    Some(folder.join("object.o"))
}

/// The text of an image; `None` with a message without bpftool.
fn dump(test: &str, folder: &Path, name: &str) -> Option<String> {
    let ran = run(test, folder, "bpftool", &["btf", "dump", "file", name, "format", "raw"])?;
    assert!(ran.status.success(), "{ran:?}");
    Some(String::from_utf8(ran.stdout).unwrap())
}

/// What this compiler makes is encoded as by pahole.
fn compare_with_pahole(test: &str, pahole: &Path, compiler: &str, target: &[&str]) {
    for variant in VARIANTS {
        let folder = TempDir::new().unwrap();
        let flags = [target, variant].concat();
        let Some(input) = object(test, folder.path(), compiler, &flags) else { return };
        let features = format!("--btf_features={FEATURES}");
        let arguments = ["-J", &features, "--btf_encode_detached=r.btf", "object.o"];
        let ran = run(test, folder.path(), pahole.to_str().unwrap(), &arguments).unwrap();
        assert!(ran.status.success() && folder.path().join("r.btf").exists(), "{ran:?}");
        encode(&input, &["--compat=pahole", "--features", FEATURES]);
        let Some(expected) = dump(test, folder.path(), "r.btf") else { return };
        let ours = dump(test, folder.path(), "object.btf").unwrap();
        assert_eq!(ours, expected, "{compiler} {flags:?}");
        for part in ["STRUCT 'everything'", " FUNC '", "VAR 'per_cpu'"] {
            assert!(ours.contains(part), "{compiler} {flags:?} lacks {part}\n{ours}");
        }
    }
}

#[test]
fn objects_are_encoded_as_by_pahole() {
    let test = "architectures::objects_are_encoded_as_by_pahole";
    let Some(pahole) = reference_pahole(test) else { return };
    for compiler in COMPILERS {
        // The elfutils that pahole reads DWARF with does not relocate these.
        if compiler.starts_with("mips64el") {
            continue;
        }
        compare_with_pahole(test, &pahole, compiler, &[]);
    }
    for target in TARGETS {
        compare_with_pahole(test, &pahole, CLANG, &[target, "-mno-relax"]);
    }
}

/// Relocating must give what the linker gives.
#[test]
fn objects_say_what_linked_files_say() {
    let test = "architectures::objects_say_what_linked_files_say";
    for compiler in COMPILERS {
        for variant in VARIANTS {
            let folder = TempDir::new().unwrap();
            let Some(input) = object(test, folder.path(), compiler, variant) else { break };
            let link = ["-shared", "-nostdlib", "-o", "linked", "object.o"];
            let ran = run(test, folder.path(), compiler, &link).unwrap();
            if !ran.status.success() {
                skip(test, &format!("{compiler} cannot link"));
                break;
            }
            let found = encode(&input, &[WITHOUT_VARIABLES]);
            let linked = encode(&folder.path().join("linked"), &[WITHOUT_VARIABLES]);
            assert!(found == linked, "{compiler} {variant:?}");
            assert!(found.windows(10).any(|window| window == b"everything"));
        }
    }
}
