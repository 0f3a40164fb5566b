//! Archives of object files: all their units are encoded as one, whether the archive holds its members
//! or names them; what is no such archive is refused by name.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use super::encode::{UNITS, encode};
use super::languages::CLASSES;
use super::together::{mean_the_same, run};
use crate::harness::{Test, elf_without_sections, reference_pahole, skip};

/// Compiles some of [`UNITS`] and puts them into a plain and a thin archive; `None` with a message
/// where a tool is missing.
fn archives(test: &str, folder: &Path, compiler: &str, flags: &[&str]) -> Option<Vec<String>> {
    let mut objects = Vec::new();
    for (name, source) in UNITS.iter().chain(&[("classes.cpp", CLASSES)]) {
        // Type units are one for all units, so those that disagree about a name cannot be linked.
        let disagrees = *name == "fourth.c" && flags.contains(&"-fdebug-types-section");
        let is_wanted = name.ends_with(".cpp") == compiler.ends_with("++") && !disagrees;
        if is_wanted {
            fs::write(folder.join(name), source).unwrap();
            let object = format!("{name}.o");
            let arguments = [&["-g", "-O1", "-c", "-o", &object, name], flags].concat();
            let ran = run(test, folder, compiler, &arguments)?;
            assert!(ran.status.success(), "{ran:?}");
            objects.push(object);
        }
    }
    archive(test, folder, "plain.a", "rcs", &objects)?;
    archive(test, folder, "thin.a", "rcsT", &objects)?;
    Some(objects)
}

fn archive(test: &str, folder: &Path, name: &str, how: &str, objects: &[String]) -> Option<()> {
    let _ = fs::remove_file(folder.join(name));
    let objects = objects.iter().map(String::as_str);
    let arguments: Vec<&str> = [how, name].into_iter().chain(objects).collect();
    let ran = run(test, folder, "ar", &arguments)?;
    assert!(ran.status.success(), "{ran:?}");
    Some(())
}

#[test]
fn members_are_encoded_as_if_they_were_linked() {
    let test = "archives::members_are_encoded_as_if_they_were_linked";
    let folder = TempDir::new().unwrap();
    for (compiler, flags) in [
        ("gcc", &["-gdwarf-5"][..]),
        ("gcc", &["-gdwarf-4", "-gz=zlib"]),
        ("gcc", &["-gdwarf-5", "-gsplit-dwarf"]),
        ("gcc", &["-gdwarf-4", "-fdebug-types-section"]),
        ("gcc", &["-gdwarf64"]),
        ("gcc", &["-gdwarf-2", "-gstrict-dwarf"]),
        ("gcc", &["-flto", "-ffat-lto-objects"]),
        ("clang", &["-gdwarf-5"]),
        ("clang", &["-gdwarf-4"]),
        ("clang", &["-gdwarf-5", "--target=s390x-linux-gnu", "-ffreestanding"]),
        ("g++", &["-std=c++17"]),
    ] {
        let Some(objects) = archives(test, folder.path(), compiler, flags) else { continue };
        let image = encode(&folder.path().join("plain.a"), &["--features=default"]);
        assert!(!image.is_empty(), "{compiler} {flags:?}");
        for (name, jobs) in [("plain.a", "-j7"), ("thin.a", "-j1"), ("thin.a", "-j64")] {
            let other = encode(&folder.path().join(name), &["--features=default", jobs]);
            assert!(other == image, "{compiler} {flags:?} {name} {jobs}");
        }
        let objects = objects.iter().map(String::as_str);
        // The linker knows one target only.
        let arguments: Vec<&str> = ["-r", "-o", "all.o"].into_iter().chain(objects).collect();
        let Some(ran) = run(test, folder.path(), "ld", &arguments) else { continue };
        if ran.status.success() {
            let all = folder.path().join("all.o");
            encode(&all, &["--features=default"]);
            let (one, two) = (all.with_extension("btf"), folder.path().join("thin.btf"));
            let same = mean_the_same(test, &one, &two);
            assert_ne!(same, Some(false), "{compiler} {flags:?}");
        } else {
            assert!(flags.iter().any(|flag| flag.contains("s390x")));
        }
    }
}

/// An archive of one object is that object, variables included.
#[test]
fn one_member_gives_what_it_gives_by_itself() {
    let test = "archives::one_member_gives_what_it_gives_by_itself";
    let folder = TempDir::new().unwrap();
    let Some(objects) = archives(test, folder.path(), "gcc", &[]) else { return };
    for object in objects {
        archive(test, folder.path(), "one.a", "rcsT", std::slice::from_ref(&object));
        let features = "--features=default,global_var";
        let by_itself = encode(&folder.path().join(&object), &[features]);
        assert!(encode(&folder.path().join("one.a"), &[features]) == by_itself, "{object}");
    }
}

/// Two functions of one name are told apart if they are local, and one if they are not.
#[test]
fn functions_and_variables_of_several_members() {
    let test = "archives::functions_and_variables_of_several_members";
    let folder = TempDir::new().unwrap();
    let objects = ["one", "two"].map(|name| {
        let source = format!(
            "static int local(int a) {{ return a; }} int (*keep_{name})(int) = local;
             __attribute__((weak)) int weak(long a) {{ return a; }}
             int of_{name}(struct {name} *s) {{ return s != 0; }} int data_{name} = 1;"
        );
        fs::write(folder.path().join(format!("{name}.c")), source).unwrap();
        let object = format!("{name}.o");
        let arguments = ["-g", "-w", "-c", "-o", &object, &format!("{name}.c")];
        run(test, folder.path(), "gcc", &arguments)
            .filter(|ran| ran.status.success())
            .map(|_| object)
    });
    let Some(objects) = objects.into_iter().collect::<Option<Vec<String>>>() else { return };
    let Some(()) = archive(test, folder.path(), "both.a", "rcs", &objects) else { return };
    encode(&folder.path().join("both.a"), &["--features=default,global_var"]);
    let dump = ["btf", "dump", "file", "both.btf", "format", "raw"];
    let Some(ran) = run(test, folder.path(), "bpftool", &dump) else { return };
    let text = String::from_utf8(ran.stdout).unwrap();
    for (name, count) in [("local", 0), ("weak", 1), ("of_one", 1), ("of_two", 1)] {
        assert_eq!(text.matches(&format!("FUNC '{name}'")).count(), count, "{name}\n{text}");
    }
    // Each member has a section of its own.
    assert_eq!(text.matches("DATASEC '.data'").count(), 2, "{text}");
    for name in ["data_one", "data_two"] {
        assert!(text.contains(&format!("offset=0 size=4 (VAR '{name}')")), "{text}");
    }
}

/// pahole 1.32 does nothing with an archive for most features, and nothing if its BTF is to go elsewhere.
/// Without, it puts the BTF of all members into each.
#[test]
fn types_are_those_of_pahole() {
    let test = "archives::types_are_those_of_pahole";
    let folder = TempDir::new().unwrap();
    let Some(pahole) = reference_pahole(test) else { return };
    let Some(objects) = archives(test, folder.path(), "gcc", &["-O2"]) else { return };
    let ran = btfcache(folder.path(), "pahole -J --btf_encode_detached=plain.btf plain.a");
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    let ran = run(test, folder.path(), pahole.to_str().unwrap(), &["-J", "plain.a"]).unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let ran = run(test, folder.path(), "ar", &["x", "plain.a", &objects[0]]).unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let arguments = ["--dump-section", ".BTF=theirs.btf", &objects[0]];
    let dumped = run(test, folder.path(), "objcopy", &arguments).unwrap();
    if !dumped.status.success() {
        return skip(test, "no llvm-objcopy, which pahole needs");
    }
    let (one, two) = (folder.path().join("theirs.btf"), folder.path().join("plain.btf"));
    assert_ne!(mean_the_same(test, &one, &two), Some(false));
}

#[test]
fn what_is_no_archive_of_objects_is_refused() {
    let test = "archives::what_is_no_archive_of_objects_is_refused";
    let folder = TempDir::new().unwrap();
    let Some(objects) = archives(test, folder.path(), "gcc", &[]) else { return };
    fs::write(folder.path().join("text"), "no object").unwrap();
    let mut executable = elf_without_sections();
    executable[16] = 2;
    fs::write(folder.path().join("executable"), executable).unwrap();
    let mut foreign = elf_without_sections();
    foreign[18] = 183;
    fs::write(folder.path().join("foreign"), foreign).unwrap();
    let fails = |members: &[&str], how: &str, message: &str| {
        let members: Vec<String> = members.iter().map(|&name| name.to_owned()).collect();
        archive(test, folder.path(), "bad.a", how, &members).unwrap();
        if members.iter().any(|member| member == "gone") {
            fs::remove_file(folder.path().join("gone")).unwrap();
        }
        let ran = btfcache(folder.path(), "encode --no-cache bad.a -o bad.btf");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(2) && said.contains(message), "{how}: {said}");
        assert!(!folder.path().join("bad.btf").exists());
    };
    let first = objects[0].as_str();
    for how in ["rcS", "rcST"] {
        fails(&[first, "text"], how, "its member `text`: not an ELF file");
        fails(&[first, "executable"], how, "its member `executable`: not an object file");
        fails(&[first, "foreign"], how, "its member `foreign`: for another processor");
    }
    fails(&["plain.a"], "rcS", "its member `plain.a`: not an ELF file");
    fs::write(folder.path().join("gone"), "").unwrap();
    fails(&[first, "gone"], "rcST", "its member `gone`: ");

    for line in ["encode --in-place plain.a", "pahole -J plain.a"] {
        let old = fs::read(folder.path().join("plain.a")).unwrap();
        let ran = btfcache(folder.path(), line);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && said.contains("is an archive: BTF cannot be put"),
            "{said}"
        );
        assert!(fs::read(folder.path().join("plain.a")).unwrap() == old);
    }
    Test::new()
        .file("none.a", b"!<arch>\n")
        .args("encode none.a -o none.btf")
        .succeeds()
        .stderr_has("there is no object file in it: nothing to encode");
}

fn btfcache(folder: &Path, line: &str) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_btfcache"));
    command.args(line.split_whitespace()).current_dir(folder).env_remove("BTFCACHE_DISABLE");
    command.env("BTFCACHE_STATS_LOG", folder.join("log"));
    command.env("BTFCACHE_DIR", folder.join("cache")).output().unwrap()
}

/// Every cut and every changed byte of the headers is an error, or an archive of what is left.
#[test]
fn damaged_archives() {
    let test = "archives::damaged_archives";
    let folder = TempDir::new().unwrap();
    let Some(objects) = archives(test, folder.path(), "gcc", &[]) else { return };
    archive(test, folder.path(), "two.a", "rcs", &objects[2..]).unwrap();
    let check = |bytes: &[u8], what: &str| {
        fs::write(folder.path().join("bad.a"), bytes).unwrap();
        let _ = fs::remove_file(folder.path().join("bad.btf"));
        let ran = btfcache(folder.path(), "encode --no-cache bad.a -o bad.btf");
        let said = String::from_utf8_lossy(&ran.stderr);
        match ran.status.code() {
            Some(0) => assert!(
                folder.path().join("bad.btf").exists() || said.contains("nothing to encode"),
                "{what}: {said}"
            ),
            Some(2) => assert!(!folder.path().join("bad.btf").exists(), "{what}: {said}"),
            code => panic!("{what}: {code:?} {said}"),
        }
    };
    for name in ["thin.a", "two.a"] {
        let bytes = fs::read(folder.path().join(name)).unwrap();
        let header = |window: &[u8]| window == b"`\n";
        let headers: Vec<usize> =
            bytes.windows(2).enumerate().filter(|(_, two)| header(two)).map(|(at, _)| at).collect();
        assert!(headers.len() >= 3);
        for &end in &headers {
            let start = end + 2 - 60;
            for at in (start..end + 2).step_by(7) {
                check(&bytes[..at], &format!("{name} cut at {at}"));
            }
            // Name, size and terminator.
            for (at, value) in [(0, b'/'), (1, b'9'), (48, b'9'), (50, b'-'), (57, b'9'), (58, 0)] {
                let mut damaged = bytes.clone();
                damaged[start + at] = value;
                check(&damaged, &format!("{name} with {value} at {}", start + at));
            }
        }
    }
}

/// A thin archive stays as it is when a file that it names changes; its result must not.
#[test]
fn the_cache_knows_the_members() {
    let test = "archives::the_cache_knows_the_members";
    let folder = TempDir::new().unwrap();
    let compile = |name: &str, source: &str| {
        fs::write(folder.path().join("a.c"), source).unwrap();
        let ran = run(test, folder.path(), "gcc", &["-g", "-c", "-o", name, "a.c"])?;
        assert!(ran.status.success(), "{ran:?}");
        Some(name.to_owned())
    };
    let first = compile("one.o", "struct one { int a; } one;");
    let Some(objects) = first
        .into_iter()
        .chain(compile("two.o", "struct two { int a; } two;"))
        .map(Some)
        .collect::<Option<Vec<String>>>()
        .filter(|objects| objects.len() == 2)
    else {
        return;
    };
    for (name, how, hits) in [("plain.a", "rcs", "hit-stat"), ("thin.a", "rcsT", "hit-content")] {
        compile("two.o", "struct two { int a; } two;");
        archive(test, folder.path(), name, how, &objects).unwrap();
        // At rest, or its times tell nothing.
        std::thread::sleep(std::time::Duration::from_millis(2100));
        let encode = || {
            let log = folder.path().join("log");
            let _ = fs::remove_file(&log);
            let line = format!("encode {name} -o out.btf");
            let ran = btfcache(folder.path(), &line);
            assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
            (fs::read(folder.path().join("out.btf")).unwrap(), fs::read_to_string(log).unwrap())
        };
        let (image, _) = encode();
        let (again, log) = encode();
        assert!(again == image && log.contains(hits), "{name}: {log}");
        compile("two.o", "struct other { int a; } two;");
        let (changed, log) = encode();
        assert_eq!(changed == image, name == "plain.a", "{log}");
        assert_eq!(log.contains("miss-new"), name == "thin.a", "{log}");
    }
}
