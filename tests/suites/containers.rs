//! What DWARF comes in: modules compressed as a whole, archives, files with more sections than a
//! 16-bit number counts, 64-bit DWARF, sections that were compressed in the older way.

use std::fs;

use tempfile::TempDir;

use super::encode::{UNITS, encode};
use super::together::{program, run};
use crate::harness::{Test, skip};

/// Installed modules are compressed; their BTF is that of what comes out of them.
#[test]
fn compressed_modules() {
    let test = "containers::compressed_modules";
    let folder = TempDir::new().unwrap();
    let flags = [&["-r", "-nostdlib"][..], &UNITS.map(|unit| unit.0)].concat();
    let Some(plain) = program(test, folder.path(), "module.ko", "gcc", &flags) else { return };
    let expected = encode(&plain, &[]);
    for (tool, flags, ending) in [
        ("gzip", &["-kf"][..], "gz"),
        ("xz", &["-kf", "--check=crc32", "--lzma2=dict=1MiB"], "xz"),
        ("xz", &["-kf", "-9e"], "xz"),
        ("zstd", &["-qkf"], "zst"),
    ] {
        let arguments = [flags, &["module.ko"]].concat();
        let Some(ran) = run(test, folder.path(), tool, &arguments) else { continue };
        assert!(ran.status.success(), "{ran:?}");
        let name = format!("module.ko.{ending}");
        let packed = folder.path().join(&name);
        assert!(encode(&packed, &[]) == expected, "{tool} {flags:?}");
        let bytes = fs::read(&packed).unwrap();
        // Not into it.
        let line = format!("encode --in-place {name}");
        let part = "BTF can only be put into a plain one";
        Test::new()
            .file(&name, &bytes)
            .args(&line)
            .fails(2)
            .stderr_has(part)
            .content(&name, &bytes);
        let line = format!("encode {name} -o out.btf");
        let cut = &bytes[..bytes.len() / 2];
        let failed = Test::new().file(&name, cut).args(&line).fails(2);
        failed.stderr_has("cannot be decompressed").absent("out.btf");
        let mut changed = bytes.clone();
        let middle = changed.len() / 2;
        changed[middle..middle + 16].fill(0xa5);
        Test::new().file(&name, &changed).args(&line).fails(2).absent("out.btf");
    }
    // The cache knows both by what is in them.
    if folder.path().join("module.ko.gz").exists() {
        let bytes = fs::read(folder.path().join("module.ko.gz")).unwrap();
        let first = Test::new().file("module.ko.gz", &bytes).args("encode module.ko.gz -o a.btf");
        let second = first.succeeds().again().args("encode module.ko.gz -o b.btf");
        let stats = second.succeeds().content("b.btf", &expected).again().args("stats --json");
        stats.succeeds().stdout_has("\"hits_by_content\"");
    }
}

/// A compressed file may be several, one after the other, as `cat` or a parallel compressor make it.
#[test]
fn modules_compressed_in_two_parts() {
    let test = "containers::modules_compressed_in_two_parts";
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("module.c"), "int one(long two) { return two; }").unwrap();
    let flags = ["-g", "-c", "module.c", "-o", "module.ko"];
    let Some(ran) = run(test, folder.path(), "gcc", &flags) else { return };
    assert!(ran.status.success(), "{ran:?}");
    let plain = fs::read(folder.path().join("module.ko")).unwrap();
    let expected = encode(&folder.path().join("module.ko"), &[]);
    for tool in ["gzip", "xz", "zstd"] {
        let mut joined = Vec::new();
        for part in plain.chunks(plain.len() / 2 + 1) {
            fs::write(folder.path().join("part"), part).unwrap();
            let Some(ran) = run(test, folder.path(), tool, &["-c", "part"]) else { break };
            assert!(ran.status.success(), "{ran:?}");
            joined.extend(ran.stdout);
        }
        if !joined.is_empty() {
            let packed = folder.path().join("joined");
            fs::write(&packed, &joined).unwrap();
            assert!(encode(&packed, &[]) == expected, "{tool}");
        }
    }
}

/// A file of zeros is no way to fill the disk.
#[test]
fn modules_that_become_too_large() {
    let test = "containers::modules_that_become_too_large";
    let folder = TempDir::new().unwrap();
    let file = fs::File::create(folder.path().join("zeros")).unwrap();
    file.set_len(80 << 20).unwrap();
    for (tool, ending) in [("gzip", "gz"), ("zstd", "zst"), ("xz", "xz")] {
        let Some(ran) = run(test, folder.path(), tool, &["-6", "-kf", "zeros"]) else { continue };
        assert!(ran.status.success(), "{ran:?}");
        let bytes = fs::read(folder.path().join(format!("zeros.{ending}"))).unwrap();
        let ran = Test::new().file("zeros", &bytes).args("encode zeros -o out.btf").fails(2);
        ran.stderr_has("bytes come out of it").absent("out.btf");
    }
}

/// Section numbers beyond 65 279 stand elsewhere than others, in headers and in symbols.
#[test]
fn more_sections_than_16_bits_count() {
    let test = "containers::more_sections_than_16_bits_count";
    let folder = TempDir::new().unwrap();
    let mut source = String::from(
        "struct counter { long hits; };
         __attribute__((section(\".data..percpu\"))) struct counter last = { 1 };
         int function(struct counter *counter) { return counter->hits; }\n",
    );
    fs::write(folder.path().join("a.c"), &source).unwrap();
    let Some(ran) = run(test, folder.path(), "gcc", &["-g", "-O1", "-S", "a.c"]) else { return };
    assert!(ran.status.success(), "{ran:?}");
    let features = ["--features=default"];
    let assemble = |name: &str| {
        let ran = run(test, folder.path(), "gcc", &["-c", "-o", name, "a.s"]).unwrap();
        assert!(ran.status.success(), "{ran:?}");
        encode(&folder.path().join(name), &features)
    };
    let expected = assemble("few.o");
    source = fs::read_to_string(folder.path().join("a.s")).unwrap();
    let many: String =
        (0..66_000).map(|number| format!(".section s{number},\"a\"\n.byte 0\n")).collect();
    fs::write(folder.path().join("a.s"), many + &source).unwrap();
    let found = assemble("many.o");
    assert!(found == expected);
    assert!(found.windows(5).any(|window| window == b"last\0"));
}

/// Both sizes of offsets, in one file and by itself.
#[test]
fn dwarf_with_64_bit_offsets() {
    let test = "containers::dwarf_with_64_bit_offsets";
    let folder = TempDir::new().unwrap();
    for compiler in ["gcc", "clang"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let make = |name: &str, size: &str| {
                let flags = [&[version, size][..], &UNITS.map(|unit| unit.0)].concat();
                program(test, folder.path(), name, compiler, &flags)
            };
            let Some(short) = make("short", "-gdwarf32") else { continue };
            let long = make("long", "-gdwarf64").unwrap();
            assert!(encode(&short, &[]) == encode(&long, &[]), "{compiler} {version}");
            let objects = [("-gdwarf32", "first.c", "a.o"), ("-gdwarf64", "second.c", "b.o")];
            for (size, source, object) in objects {
                let compile = ["-g", version, size, "-fPIC", "-c", "-o", object, source];
                assert!(run(test, folder.path(), compiler, &compile).unwrap().status.success());
            }
            let link = ["-shared", "-nostdlib", "-o", "mixed", "a.o", "b.o"];
            let ran = run(test, folder.path(), compiler, &link).unwrap();
            if !ran.status.success() {
                skip(test, "a linker that mixes both");
                continue;
            }
            let mixed = encode(&folder.path().join("mixed"), &[]);
            for name in [&b"\0table\0"[..], b"\0second\0"] {
                assert!(mixed.windows(name.len()).any(|window| window == name), "{compiler}");
            }
        }
    }
}
