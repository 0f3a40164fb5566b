//! Units that must be read together: link-time optimisation, `dwz`, type units. What they say together
//! must be what plain units say, and what pahole 1.32 says where it can.

#![expect(clippy::print_stdout, reason = "where two images differ must be seen")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::encode::{UNITS, encode};
use super::languages::CLASSES;
use crate::harness::{reference_pahole, skip};

/// Runs a program in `folder`; `None` with a message if it is missing.
pub(super) fn run(test: &str, folder: &Path, program: &str, arguments: &[&str]) -> Option<Output> {
    let ran = Command::new(program).args(arguments).current_dir(folder).output();
    if ran.is_err() {
        skip(test, &format!("no {program}"));
    }
    ran.ok()
}

/// Compiles and links some of [`UNITS`]; `None` with a message where the tools cannot.
pub(super) fn program(
    test: &str,
    folder: &Path,
    name: &str,
    compiler: &str,
    flags: &[&str],
) -> Option<PathBuf> {
    for (name, source) in UNITS {
        fs::write(folder.join(name), source).unwrap();
    }
    let arguments = [&["-g", "-O1", "-o", name][..], flags].concat();
    let ran = run(test, folder, compiler, &arguments)?;
    if !ran.status.success() {
        // Only a linker that is missing may be the reason.
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains("lld"), "{compiler} {flags:?}: {said}");
        skip(test, "no lld");
        return None;
    }
    Some(folder.join(name))
}

/// Whether two images mean the same; `None` with a message without python3.
pub(super) fn mean_the_same(test: &str, one: &Path, two: &Path) -> Option<bool> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/btfsame.py");
    let arguments = ["compare", one.to_str().unwrap(), two.to_str().unwrap()];
    let ran = run(test, Path::new("."), script.to_str().unwrap(), &arguments)?;
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(said.ends_with("EQUAL\n") || said.ends_with("DIFFERENT\n"), "{ran:?}");
    if !ran.status.success() {
        println!("{said}");
    }
    Some(ran.status.success())
}

/// What pahole makes of `input`.
pub(super) fn reference(test: &str, input: &Path, features: &str) -> Option<PathBuf> {
    let pahole = reference_pahole(test)?;
    let output = input.with_extension("reference");
    let _ = std::fs::remove_file(&output);
    let ran = Command::new(pahole)
        .arg("-J")
        .arg(format!("--btf_features={features}"))
        .arg(format!("--btf_encode_detached={}", output.display()))
        .arg(input)
        .output()
        .unwrap();
    assert!(ran.status.success() && output.exists(), "{ran:?}");
    Some(output)
}

pub(super) const FEATURES: &str = "default,global_var";

/// `dwz` moves what units have in common into partial units, which are parts of those that import
/// them: nothing of the result changes.
#[test]
fn units_without_duplicates_mean_the_same() {
    let test = "together::units_without_duplicates_mean_the_same";
    let folder = TempDir::new().unwrap();
    for compiler in ["gcc", "clang"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            without_duplicates(test, folder.path(), compiler, version);
        }
    }
}

fn without_duplicates(test: &str, folder: &Path, compiler: &str, version: &str) -> Option<()> {
    let source = include_str!("../data/rich.c");
    // What pahole cannot encode would end the comparison.
    let source = source.replace("_Atomic int", "int").replace("double _Complex", "double");
    fs::write(folder.join("rich.c"), source).unwrap();
    for object in ["a.o", "b.o", "c.o"] {
        let compile = ["-g", version, "-O2", "-fPIC", "-c", "-o", object, "rich.c"];
        let ran = run(test, folder, compiler, &compile)?;
        assert!(ran.status.success(), "{ran:?}");
    }
    let link = ["-shared", "-Wl,-z,muldefs", "-o", "plain", "a.o", "b.o", "c.o"];
    assert!(run(test, folder, compiler, &link)?.status.success());
    let ran = run(test, folder, "dwz", &["-o", "small", "plain"])?;
    if String::from_utf8_lossy(&ran.stderr).contains("Unknown debugging section") {
        skip(test, &format!("a dwz that knows what {compiler} {version} writes"));
        return None;
    }
    assert!(ran.status.success(), "{ran:?}");
    let plain = folder.join("plain");
    let small = folder.join("small");
    let dump = run(test, folder, "readelf", &["--debug-dump=info", "small"]).unwrap();
    assert!(String::from_utf8_lossy(&dump.stdout).contains("DW_TAG_imported_unit"));
    assert!(encode(&plain, &["--features=default"]) == encode(&small, &["--features=default"]));
    // Variables come in another order where they are part of a partial unit.
    encode(&plain, &["--features", FEATURES]);
    encode(&small, &["--features", FEATURES]);
    let (one, two) = (plain.with_extension("btf"), small.with_extension("btf"));
    assert_ne!(mean_the_same(test, &one, &two), Some(false), "{compiler} {version}");
    let (ours, jobs) = (encode(&small, &[]), encode(&small, &["-j7"]));
    assert!(ours == jobs);
    if let Some(theirs) = reference(test, &small, "default") {
        let same = mean_the_same(test, &theirs, &small.with_extension("btf"));
        assert_ne!(same, Some(false), "{compiler} {version}");
    }
    Some(())
}

/// With LTO the functions of one unit are instances of those of another.
#[test]
fn link_time_optimisation() {
    let test = "together::link_time_optimisation";
    let folder = TempDir::new().unwrap();
    for (compiler, flags) in [
        ("gcc", &["-flto"][..]),
        ("gcc", &["-flto", "-gdwarf-4"]),
        ("gcc", &["-flto", "-ffat-lto-objects", "-O2"]),
        ("clang", &["-flto", "-fuse-ld=lld"]),
        ("clang", &["-flto", "-fuse-ld=lld", "-gdwarf-4"]),
        ("clang", &["-flto=thin", "-fuse-ld=lld"]),
    ] {
        let flags = [flags, &UNITS.map(|unit| unit.0)].concat();
        let Some(input) = program(test, folder.path(), "lto", compiler, &flags) else {
            continue;
        };
        let image = encode(&input, &["--features=default"]);
        assert!(image == encode(&input, &["--features=default", "-j5"]), "{compiler} {flags:?}");
        if let Some(theirs) = reference(test, &input, "default") {
            let same = mean_the_same(test, &theirs, &input.with_extension("btf"));
            assert_ne!(same, Some(false), "{compiler} {flags:?}");
        }
    }
}

/// The address of a variable is in another unit than its type; pahole does not find it.
#[test]
fn variables_of_link_time_optimisation() {
    let test = "together::variables_of_link_time_optimisation";
    let folder = TempDir::new().unwrap();
    fs::write(
        folder.path().join("a.c"),
        "struct counter { long hits; } shared = { 1 };
         int main(void) { return shared.hits++; }",
    )
    .unwrap();
    let Some(ran) = run(test, folder.path(), "gcc", &["-g", "-flto", "-o", "a", "a.c"]) else {
        return;
    };
    assert!(ran.status.success(), "{ran:?}");
    let image = encode(&folder.path().join("a"), &["--features=default,global_var"]);
    fs::write(folder.path().join("a.btf"), image).unwrap();
    let dump = ["btf", "dump", "file", "a.btf", "format", "raw"];
    let Some(ran) = run(test, folder.path(), "bpftool", &dump) else { return };
    let text = String::from_utf8(ran.stdout).unwrap();
    let id = text.lines().find(|line| line.contains("STRUCT 'counter' size=8")).unwrap();
    let id = id[1..].split(']').next().unwrap();
    assert!(text.contains(&format!("VAR 'shared' type_id={id}, linkage=global")), "{text}");
    assert!(text.contains("DATASEC '.data'"), "{text}");
}

/// Each struct is a unit of its own, named by a signature; pahole makes empty structs of them, or fails.
#[test]
fn type_units() {
    let test = "together::type_units";
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("classes.cpp"), CLASSES).unwrap();
    // Not units that disagree about a name: type units are one for all that look alike. clang
    // makes them in C++ only.
    for (compiler, sources) in [
        ("gcc", &["first.c", "second.c"][..]),
        ("g++", &["-std=c++17", "classes.cpp"]),
        ("clang++", &["-std=c++17", "classes.cpp"]),
    ] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let split = "-fdebug-types-section";
            for kind in [&["-shared", "-fPIC"][..], &["-r", "-nostdlib"], &["-c"]] {
                // Several objects cannot have one name.
                let is_one = kind[0] == "-c" && compiler == "gcc";
                let sources = if is_one { &sources[..1] } else { sources };
                let flags = [&[version], kind, sources].concat();
                let Some(plain) = program(test, folder.path(), "plain", compiler, &flags) else {
                    continue;
                };
                let flags = [&[split], &flags[..]].concat();
                let types = program(test, folder.path(), "types", compiler, &flags).unwrap();
                let section = if version == "-gdwarf-4" { ".debug_types" } else { "DW_UT_type" };
                let arguments = ["-S", "--debug-dump=info", "types"];
                let dump = run(test, folder.path(), "readelf", &arguments).unwrap();
                assert!(String::from_utf8_lossy(&dump.stdout).contains(section), "{compiler}");
                encode(&plain, &["--features", FEATURES]);
                encode(&types, &["--features", FEATURES]);
                let (one, two) = (plain.with_extension("btf"), types.with_extension("btf"));
                let same = mean_the_same(test, &one, &two);
                assert_ne!(same, Some(false), "{compiler} {version} {kind:?}");
                if kind[0] == "-c" {
                    let flags = [&["-gz=zlib"], &flags[..]].concat();
                    let small = program(test, folder.path(), "small", compiler, &flags).unwrap();
                    let image = fs::read(&two).unwrap();
                    assert!(encode(&small, &["--features", FEATURES]) == image, "{compiler}");
                }
            }
        }
    }
}

/// A library of twenty files, which the oracle is built of anyway, linked with and without link-time
/// optimisation: the types are the same, and all of it is as pahole says.
#[test]
fn a_library_with_link_time_optimisation() {
    let test = "together::a_library_with_link_time_optimisation";
    let Some(sources) = libbpf() else { return skip(test, "no sources of libbpf") };
    let folder = TempDir::new().unwrap();
    for (compiler, flags) in
        [("gcc", ["-flto", "-fuse-ld=bfd"]), ("clang", ["-flto=thin", "-fuse-ld=lld"])]
    {
        let build = |name: &str, flags: &[&str]| {
            library(test, folder.path(), &sources, compiler, name, flags)
        };
        let Some(plain) = build("plain", &[]) else { continue };
        let Some(optimised) = build("optimised", &flags) else { continue };
        for input in [&plain, &optimised] {
            encode(input, &["--features=default"]);
            if let Some(theirs) = reference(test, input, "default") {
                let same = mean_the_same(test, &theirs, &input.with_extension("btf"));
                assert_ne!(same, Some(false), "{compiler} {}", input.display());
            }
            // Which functions are left differs: without symbols there are only types.
            let arguments = ["--strip-all", "--keep-section=.debug*", input.to_str().unwrap()];
            assert!(run(test, folder.path(), "objcopy", &arguments).unwrap().status.success());
            encode(input, &[]);
        }
        let (one, two) = (plain.with_extension("btf"), optimised.with_extension("btf"));
        assert_ne!(mean_the_same(test, &one, &two), Some(false), "{compiler}");
    }
}

/// Builds libbpf as a shared library; `None` with a message without its headers or a linker.
fn library(
    test: &str,
    folder: &Path,
    sources: &Path,
    compiler: &str,
    name: &str,
    flags: &[&str],
) -> Option<PathBuf> {
    let names = fs::read_dir(sources.join("src")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        names.filter(|path| path.extension().is_some_and(|ending| ending == "c")).collect();
    files.sort();
    let mut arguments = vec!["-g", "-O1", "-w", "-fPIC", "-shared", "-D_LARGEFILE64_SOURCE"];
    arguments.extend(["-D_FILE_OFFSET_BITS=64", "-o", name]);
    arguments.extend(flags);
    let includes = ["src", "include", "include/uapi"].map(|below| sources.join(below));
    let includes = includes.map(|include| format!("-I{}", include.display()));
    arguments.extend(includes.iter().map(String::as_str));
    arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
    arguments.extend(["-lelf", "-lz"]);
    let ran = run(test, folder, compiler, &arguments)?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains("libelf.h") || said.contains("lld"), "{compiler} {flags:?}: {said}");
        skip(test, "no libelf or lld");
        return None;
    }
    Some(folder.join(name))
}

/// Where cargo has the sources of libbpf.
fn libbpf() -> Option<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO")?);
    command.args(["metadata", "--format-version=1", "--offline", "--locked"]);
    let ran = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8(ran.stdout).ok()?;
    let mut paths =
        text.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let manifest = paths.find(|path| path.contains("/libbpf-sys-"))?;
    Some(Path::new(manifest).parent()?.join("libbpf")).filter(|path| path.join("src").is_dir())
}
