//! Languages other than C, C++ and Rust, of which Debian has compilers: what they compile is encoded, and
//! what C has nothing like does not make the kernel refuse the rest.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::encode::encode;
use super::languages::{entry, kernel_takes_encoded};
use super::together::run;
use crate::harness::skip;

/// Compiles `files`, the last of which is named on the command line, to `a.o`; what it is encoded to
/// as text, and what was said. `None` with a message if the compiler is missing.
fn encoded(
    test: &str,
    compiler: &str,
    flags: &[&str],
    files: &[(&str, &str)],
) -> Option<(String, String)> {
    let folder = TempDir::new().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    let source = files.last().unwrap().0;
    compile(test, folder.path(), compiler, &[&["-g", "-c"], flags, &[source]].concat())?;
    // Ada has a name of its own for it.
    let _ = fs::rename(folder.path().join("shapes.o"), folder.path().join("a.o"));
    let (dump, said) = kernel_takes_encoded(folder.path(), &["--features=default,global_var"]);
    let one = encode(&folder.path().join("a.o"), &["-j1"]);
    assert!(one == encode(&folder.path().join("a.o"), &["-j9"]), "{compiler}");
    if dump.is_empty() {
        skip(test, "no bpftool");
        return None;
    }
    Some((dump, said))
}

fn compile(test: &str, folder: &Path, compiler: &str, arguments: &[&str]) -> Option<()> {
    let ran = run(test, folder, compiler, arguments)?;
    let said = String::from_utf8_lossy(&ran.stderr);
    // `gcc` finds the compilers proper of all languages, if they are installed.
    if said.contains("cannot execute") || said.contains("compiler not installed") {
        skip(test, &format!("{compiler} lacks a compiler proper"));
        return None;
    }
    assert!(ran.status.success(), "{said}");
    Some(())
}

fn at(offset: u32) -> String {
    format!("bits_offset={offset}")
}

/// Modules are no more than namespaces; a string is as long as it is.
#[test]
fn fortran() {
    let files = [("shapes.f90", include_str!("../data/languages/shapes.f90"))];
    let flags = ["-o", "a.o"];
    let Some((dump, said)) = encoded("other_languages::fortran", "gfortran", &flags, &files) else {
        return;
    };
    let circle = entry(&dump, "STRUCT 'circle' size=144");
    assert_eq!(circle[2..6].join(" "), {
        let names = ["'radius'", "'centre'", "'filled'", "'label'"];
        let members = names.iter().zip([64, 128, 256, 288]);
        members.map(|(name, place)| format!("{name} {}", at(place))).collect::<Vec<_>>().join(" ")
    });
    assert!(dump.contains("STRUCT '(anon)' size=12 vlen=0"), "the label\n{dump}");
    assert!(dump.contains("FUNC '__shapes_MOD_resize' "), "{dump}");
    assert!(said.contains("1 x type that C has nothing like"), "{said}");
}

/// A part of the values of a type is that type; a record of a size that is known at run time only ends
/// with what has a place.
#[test]
fn ada() {
    let files = [
        ("shapes.ads", include_str!("../data/languages/shapes.ads")),
        ("shapes.adb", include_str!("../data/languages/shapes.adb")),
    ];
    let Some((dump, _)) = encoded("other_languages::ada", "gcc", &[], &files) else { return };
    assert_eq!(
        entry(&dump, "STRUCT 'shapes__variant'"),
        [
            "STRUCT 'shapes__variant' size=8 vlen=2".to_owned(),
            format!("'kind' {}", at(0)),
            format!("'common' {}", at(32)),
        ]
    );
    let circle = entry(&dump, "STRUCT 'shapes__circle' size=64");
    assert!(circle.contains(&format!("'price' {}", at(128))), "{circle:?}");
    assert!(dump.contains("'by' type_id"), "{dump}");
    assert!(dump.contains("\t'shapes__blue' val=200"), "{dump}");
    assert!(dump.contains("FUNC 'circle_area' "), "{dump}");
    assert!(dump.contains("VAR 'shapes__table' "), "{dump}");
}

#[test]
fn d() {
    let test = "other_languages::d";
    let files = [("shapes.d", include_str!("../data/languages/shapes.d"))];
    for (compiler, flag) in [("gdc", &["-o", "a.o"][..]), ("ldc2", &["-of=a.o"])] {
        let Some((dump, _)) = encoded(test, compiler, flag, &files) else { continue };
        let point = entry(&dump, "STRUCT 'Point' size=56");
        assert_eq!(
            point[1..4],
            ["'x' bits_offset=0", "'y' bits_offset=32", "'colour' bits_offset=64"]
        );
        assert!(dump.contains("Generic_int' size=20"), "{compiler} {dump}");
        assert!(dump.contains("FUNC 'c_name' "), "{compiler} {dump}");
    }
}

#[test]
fn modula() {
    let files = [("Sets.mod", include_str!("../data/languages/Sets.mod"))];
    let flags = ["-o", "a.o"];
    let Some((dump, _)) = encoded("other_languages::modula", "gm2", &flags, &files) else { return };
    assert!(dump.contains("FUNC 'Use' ") && dump.contains("VAR 'r' "), "{dump}");
    assert!(dump.contains("STRUCT '(anon)' size=40 vlen=6\n\t'a' "), "{dump}");
}

#[test]
fn go() {
    let files = [("shapes.go", include_str!("../data/languages/shapes.go"))];
    let flags = ["-o", "a.o"];
    let Some((dump, _)) = encoded("other_languages::go", "gccgo", &flags, &files) else { return };
    assert!(dump.contains("'Radius' ") && dump.contains("'names' "), "{dump}");
}

/// Functions are values there, and the runtime has arrays that are larger than the kernel takes.
#[test]
fn a_go_program() {
    let test = "other_languages::a_go_program";
    let folder = TempDir::new().unwrap();
    let source = "package main
        type Handler struct { call func(int, ...string) error; next map[string]Handler }
        var handler Handler
        func main() { handler.call(1); println(len(handler.next)) }";
    fs::write(folder.path().join("main.go"), source).unwrap();
    let cache = format!("GOCACHE={}", folder.path().join("cache").display());
    let arguments = [&cache, "GO111MODULE=off", "go", "build", "-o", "a.o", "main.go"];
    let Some(ran) = run(test, folder.path(), "env", &arguments) else { return };
    if ran.status.code() == Some(127) {
        return skip(test, "no go");
    }
    assert!(ran.status.success(), "{ran:?}");
    let (dump, said) = kernel_takes_encoded(folder.path(), &[]);
    assert!(said.contains("array of more than 4 GiB"), "{said}");
    if dump.is_empty() {
        return skip(test, "no bpftool");
    }
    let handler = entry(&dump, "STRUCT 'main.Handler' size=16 vlen=2");
    assert_eq!(handler[1..], ["'call' bits_offset=0", "'next' bits_offset=64"]);
}

#[test]
fn objective_c() {
    let test = "other_languages::objective_c";
    let files = [("shapes.m", include_str!("../data/languages/shapes.m"))];
    for compiler in ["gcc", "clang"] {
        let flags = ["-o", "a.o", "-w"];
        let Some((dump, _)) = encoded(test, compiler, &flags, &files) else { continue };
        assert!(dump.contains("STRUCT 'point' size=8 vlen=2"), "{compiler} {dump}");
        assert!(dump.contains("FUNC 'use' "), "{compiler} {dump}");
    }
}

/// gas makes functions of labels; clang does not.
#[test]
fn assembler() {
    let test = "other_languages::assembler";
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.s"), include_str!("../data/languages/shapes.s")).unwrap();
    for compiler in ["gcc", "clang"] {
        let Some(()) = compile(test, folder.path(), compiler, &["-g", "-c", "a.s"]) else {
            continue;
        };
        let _ = fs::remove_file(folder.path().join("a.btf"));
        let Some(ran) = run(
            test,
            folder.path(),
            env!("CARGO_BIN_EXE_btfcache"),
            &["encode", "--no-cache", "a.o", "-o", "a.btf"],
        ) else {
            return;
        };
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{compiler} {said}");
        let is_there = folder.path().join("a.btf").exists();
        assert_ne!(is_there, said.contains("nothing to encode"), "{compiler} {said}");
    }
}
