//! DWARF in other files than the one that is encoded: `.dwo` files and packages of them, what `dwz -m`
//! puts aside, separate debug files. It must mean what it means in one file; what is missing must be
//! told; and no result that depends on another file may come from the cache.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::encode::{UNITS, encode};
use super::together::{FEATURES, mean_the_same, program, run};
use crate::harness::skip;

/// Runs the program in `folder` with a cache there.
fn cached(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_btfcache"));
    command.args(line.split_whitespace()).current_dir(folder);
    command.env("BTFCACHE_DIR", folder.join("cache")).env_remove("BTFCACHE_DISABLE");
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Removes the `.dwo` files; returns how many there were.
fn remove_split(folder: &Path) -> usize {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let split: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "dwo")).collect();
    split.iter().for_each(|path| fs::remove_file(path).unwrap());
    split.len()
}

#[test]
fn split_dwarf() {
    let test = "other_files::split_dwarf";
    let folder = TempDir::new().unwrap();
    let sources = UNITS.map(|unit| unit.0);
    for compiler in ["gcc", "clang"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            for types in ["-fno-debug-types-section", "-fdebug-types-section"] {
                let sources = match types {
                    // Units that disagree about a name would share one of its types.
                    "-fdebug-types-section" => &["-shared", "-fPIC", "first.c", "second.c"][..],
                    _ => &sources[..],
                };
                // Optimised, clang has base types for expressions, in one of both only.
                let flags = [&[version, "-O0"], sources].concat();
                let Some(plain) = program(test, folder.path(), "plain", compiler, &flags) else {
                    continue;
                };
                let flags = [&flags[..], &["-gsplit-dwarf", types]].concat();
                let split = program(test, folder.path(), "split", compiler, &flags).unwrap();
                encode(&plain, &["--features", FEATURES]);
                let image = encode(&split, &["--features", FEATURES]);
                let (one, two) = (plain.with_extension("btf"), split.with_extension("btf"));
                let same = mean_the_same(test, &one, &two);
                assert_ne!(same, Some(false), "{compiler} {version} {types}");
                assert!(image == encode(&split, &["--features", FEATURES, "-j9"]));
                // A package says the same.
                // llvm-dwp 14 does not come to an end on some type units.
                let pack = ["3", "llvm-dwp", "-e", "split", "-o", "split.dwp"];
                let packed = run(test, folder.path(), "timeout", &pack);
                assert!(remove_split(folder.path()) >= 2, "{compiler} {version} {types}");
                if !packed.is_some_and(|packed| packed.status.success()) {
                    skip(test, &format!("no llvm-dwp that packs {compiler} {flags:?}"));
                    let _ = fs::remove_file(folder.path().join("split.dwp"));
                    continue;
                }
                assert!(image == encode(&split, &["--features", FEATURES]), "{compiler} {flags:?}");
                fs::remove_file(folder.path().join("split.dwp")).unwrap();
            }
        }
    }
}

/// A module of a kernel that was built so (`CONFIG_DEBUG_INFO_SPLIT`) is relocatable itself.
#[test]
fn split_dwarf_of_objects() {
    let test = "other_files::split_dwarf_of_objects";
    let folder = TempDir::new().unwrap();
    for compiler in ["gcc", "clang"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let flags = [version, "-c", "first.c"];
            let Some(plain) = program(test, folder.path(), "plain.o", compiler, &flags) else {
                continue;
            };
            let flags = [version, "-gsplit-dwarf", "-c", "first.c"];
            let split = program(test, folder.path(), "split.o", compiler, &flags).unwrap();
            encode(&plain, &["--features", FEATURES]);
            encode(&split, &["--features", FEATURES]);
            let (one, two) = (plain.with_extension("btf"), split.with_extension("btf"));
            assert_ne!(mean_the_same(test, &one, &two), Some(false), "{compiler} {version}");
            assert!(remove_split(folder.path()) > 0);
        }
    }
}

/// What was made of a `.dwo` file is not known from the program that names it.
#[test]
fn split_dwarf_that_is_missing_or_of_another_build() {
    let test = "other_files::split_dwarf_that_is_missing_or_of_another_build";
    let folder = TempDir::new().unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.c", "struct one { int a; } x; int main(void) { return x.a; }");
        write("b.c", "struct two { long b; } y;");
        let tool = |program: &str, arguments: &[&str]| {
            let ran = run(test, folder.path(), program, arguments)?;
            assert!(ran.status.success(), "{ran:?}");
            Some(())
        };
        let compile = |name: &str| tool("gcc", &["-g", version, "-gsplit-dwarf", "-c", name]);
        if compile("a.c").and_then(|()| compile("b.c")).is_none() {
            return;
        }
        tool("gcc", &["-o", "program", "a.o", "b.o"]).unwrap();
        // At rest, or its times tell nothing.
        std::thread::sleep(std::time::Duration::from_millis(2100));
        let first = cached(folder.path(), "encode program -o out.btf");
        assert_eq!((first.status.code(), said(&first).as_str()), (Some(0), ""));
        let whole = fs::read(folder.path().join("out.btf")).unwrap();

        fs::rename(folder.path().join("b.dwo"), folder.path().join("b.away")).unwrap();
        let second = cached(folder.path(), "encode program -o out.btf");
        let part = fs::read(folder.path().join("out.btf")).unwrap();
        assert_eq!(second.status.code(), Some(0));
        assert!(said(&second).contains("1 x unit of split DWARF that is not there"), "{second:?}");
        assert!(said(&second).contains("/b.dwo`"), "{second:?}");
        assert!(part.len() < whole.len() && !part.windows(3).any(|bytes| bytes == b"two"));
        let strict = cached(folder.path(), "encode --strict program -o out.btf");
        assert_eq!(strict.status.code(), Some(2));

        // Back again: all of it is there again.
        fs::rename(folder.path().join("b.away"), folder.path().join("b.dwo")).unwrap();
        assert!(cached(folder.path(), "encode program -o out.btf").status.success());
        assert!(fs::read(folder.path().join("out.btf")).unwrap() == whole);

        // Another build of the same name.
        fs::copy(folder.path().join("a.dwo"), folder.path().join("b.dwo")).unwrap();
        let other = cached(folder.path(), "encode program -o out.btf");
        if version == "-gdwarf-5" {
            assert!(said(&other).contains("/b.dwo` is of another build"), "{other:?}");
        }
        remove_split(folder.path());
        fs::remove_file(folder.path().join("out.btf")).unwrap();
        let none = cached(folder.path(), "encode program -o out.btf");
        assert_eq!(none.status.code(), Some(2));
        assert!(said(&none).contains("none of its units is there: 2 x unit of split DWARF"));
        assert!(!folder.path().join("out.btf").exists());
        write("a.dwo", "no ELF file");
        let damaged = cached(folder.path(), "encode program -o out.btf");
        assert_eq!(damaged.status.code(), Some(2));
        assert!(said(&damaged).contains("a.dwo`") && said(&damaged).contains("not an ELF file"));
        remove_split(folder.path());
    }
}

#[test]
fn what_several_files_have_in_common() {
    let test = "other_files::what_several_files_have_in_common";
    let folder = TempDir::new().unwrap();
    let source = include_str!("../data/rich.c");
    fs::write(folder.path().join("rich.c"), source).unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for name in ["one", "two"] {
            let compile = ["-g", version, "-O2", "-fPIC", "-shared", "-o", name, "rich.c"];
            let Some(ran) = run(test, folder.path(), "gcc", &compile) else { return };
            assert!(ran.status.success(), "{ran:?}");
        }
        fs::copy(folder.path().join("one"), folder.path().join("plain")).unwrap();
        let arguments = ["-m", "common.debug", "-M", "common.debug", "one", "two"];
        let Some(ran) = run(test, folder.path(), "dwz", &arguments) else { return };
        assert!(ran.status.success(), "{ran:?}");
        let plain = encode(&folder.path().join("plain"), &["--features=default"]);
        for name in ["one", "two"] {
            let found = encode(&folder.path().join(name), &["--features=default"]);
            assert!(found == plain, "{version} {name}");
        }
        let first = cached(folder.path(), "encode one -o one.btf");
        assert!(first.status.success());
        let common = folder.path().join("common.debug");
        let bytes = fs::read(&common).unwrap();
        fs::remove_file(&common).unwrap();
        let missing = cached(folder.path(), "encode one -o new.btf");
        assert_eq!(missing.status.code(), Some(2));
        assert!(said(&missing).contains("there is no `common.debug`"), "{missing:?}");
        fs::copy(folder.path().join("plain"), &common).unwrap();
        let wrong = cached(folder.path(), "encode one -o new.btf");
        assert_eq!(wrong.status.code(), Some(2));
        assert!(said(&wrong).contains("is not the file that was put aside for it"), "{wrong:?}");
        assert!(!folder.path().join("new.btf").exists());
        fs::write(&common, bytes).unwrap();
    }
}

#[test]
fn separate_debug_files() {
    let test = "other_files::separate_debug_files";
    let folder = TempDir::new().unwrap();
    for id in ["-Wl,--build-id=sha1", "-Wl,--build-id=none"] {
        let flags = [&[id][..], &UNITS.map(|unit| unit.0)].concat();
        let Some(plain) = program(test, folder.path(), "plain", "gcc", &flags) else { return };
        let expected = encode(&plain, &["--features", FEATURES]);
        let copy = |arguments: &[&str]| {
            let ran = run(test, folder.path(), "objcopy", arguments).unwrap();
            assert!(ran.status.success(), "{ran:?}");
        };
        copy(&["--only-keep-debug", "plain", "plain.debug"]);
        copy(&["--strip-all", "--add-gnu-debuglink=plain.debug", "plain", "bare"]);
        // Sections without bytes: only their headers count.
        let debug = encode(&folder.path().join("plain.debug"), &["--features", FEATURES]);
        assert!(debug == expected, "{id}");
        let bare = encode(&folder.path().join("bare"), &["--features", FEATURES]);
        assert!(bare == expected, "{id}");
        fs::create_dir_all(folder.path().join(".debug")).unwrap();
        let (here, there) = (folder.path().join("plain.debug"), folder.path().join(".debug"));
        fs::rename(&here, there.join("plain.debug")).unwrap();
        let line = format!("encode --features={FEATURES} bare -o out.btf");
        let found = cached(folder.path(), &line);
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        assert!(fs::read(folder.path().join("out.btf")).unwrap() == expected);
        fs::remove_file(folder.path().join("out.btf")).unwrap();
        // One of another program does not count.
        let other = program(test, folder.path(), "other", "gcc", &[&flags[..], &["-O2"]].concat());
        fs::copy(other.unwrap(), there.join("plain.debug")).unwrap();
        let wrong = cached(folder.path(), &line);
        assert_eq!(wrong.status.code(), Some(0), "{wrong:?}");
        assert!(said(&wrong).contains("there is no DWARF in it"), "{wrong:?}");
        assert!(said(&wrong).contains("`plain.debug` is not there"), "{wrong:?}");
        assert!(!folder.path().join("out.btf").exists());
        fs::remove_dir_all(there).unwrap();
    }
    // Into the file that is delivered, from the one that is not.
    let Some(ran) = run(test, folder.path(), "gcc", &["-g", "-o", "in", "fourth.c"]) else {
        return;
    };
    assert!(ran.status.success(), "{ran:?}");
    let expected = encode(&folder.path().join("in"), &[]);
    for arguments in [&["--only-keep-debug", "in", "in.debug"][..], &["--strip-debug", "in"]] {
        run(test, folder.path(), "objcopy", arguments).unwrap();
    }
    copy_link(test, folder.path());
    let ran = cached(folder.path(), "encode --in-place in");
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let bytes = fs::read(folder.path().join("in")).unwrap();
    assert!(bytes.windows(expected.len()).any(|window| window == expected));
    if run(test, folder.path(), "./in", &[]).is_none() {
        skip(test, "what it was put into does not run");
    }
}

fn copy_link(test: &str, folder: &Path) {
    let arguments = ["--add-gnu-debuglink=in.debug", "in"];
    assert!(run(test, folder, "objcopy", &arguments).unwrap().status.success());
}
