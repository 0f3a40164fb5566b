//! Encodes objects that real compilers made, in all DWARF versions, and compares with pahole 1.32
//! where that is installed.

#![expect(clippy::print_stdout, reason = "what is skipped must be seen")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Several units that share types, know some only by name, and disagree about others.
pub(super) const UNITS: [(&str, &str); 4] = [
    (
        "first.c",
        "struct later; union choice { int i; float f; struct later *l; };
         enum colour { RED, GREEN = 5, BLUE = -1 };
         enum wide { SMALL = 1, LARGE = 0x100000000ULL };
         typedef int (*callback)(struct later *, enum colour, ...);
         struct flags { unsigned a:3; unsigned b:5; long c:40; char d; };
         struct node { struct node *next; const volatile char *restrict name; union choice u; };
         struct table { callback calls[2][3]; struct flags flags; struct node nodes[0]; };
         struct table *table; enum wide wide; struct later *known;
         int first(struct table *t, const struct node *n) { return t && n; }",
    ),
    (
        "second.c",
        "struct later { int x; long double y; _Bool z; __int128 w; };
         struct node { struct node *next; const volatile char *restrict name;
                       union choice { int i; float f; struct later *l; } u; };
         static int same_name(struct later *l) { return l->x; }
         int second(struct later *l) { return same_name(l); }
         struct node *nodes;",
    ),
    (
        "third.c",
        "struct private { int a; }; struct user { struct private *p; };
         struct later; struct holder { struct later *l; struct user u; };
         static int same_name(struct holder *h) { return h != 0; }
         int third(struct holder *h) { return same_name(h); } struct user *user_a;",
    ),
    (
        "fourth.c",
        "struct private { long b; char c[4][5]; }; struct user { struct private *p; };
         int one(int x) { struct args { int a; struct args *n; } v = { x, 0 }; return v.a; }
         int two(int x) { struct args { long b; struct args *n; } v = { x, 0 }; return v.b; }
         struct user *user_b;
         int main(void) { return 0; }",
    ),
];

/// Compiles [`UNITS`] with `compiler` and links them; `None` with a message if it is missing.
fn program(directory: &Path, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    if Command::new(compiler).arg("--version").output().is_err() {
        println!("SKIPPED: no {compiler}");
        return None;
    }
    for (name, source) in UNITS {
        std::fs::write(directory.join(name), source).unwrap();
    }
    let sources = UNITS.iter().map(|unit| unit.0);
    let output = Command::new(compiler)
        .args(["-g", "-O1", "-o", "program"])
        .args(flags)
        .args(sources)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(directory.join("program"))
}

/// What the program makes of `input`, without a cache; it also lies beside it as `.btf`.
pub(super) fn encode(input: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = input.with_extension("btf");
    let ran = Command::new(env!("CARGO_BIN_EXE_btfcache"))
        .arg("encode")
        .args(arguments)
        .arg(input)
        .arg("-o")
        .arg(&output)
        .env("BTFCACHE_DISABLE", "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    std::fs::read(output).unwrap()
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let directory = TempDir::new().unwrap();
    let compiled = program(directory.path(), "gcc", &[]);
    let kernel = std::env::var_os("BTFCACHE_TEST_VMLINUX").map(PathBuf::from);
    for input in compiled.into_iter().chain(kernel) {
        let copy = directory.path().join("copy");
        std::os::unix::fs::symlink(&input, &copy).unwrap();
        let expected = encode(&copy, &["-j", "1"]);
        for jobs in ["2", "3", "8", "64"] {
            assert!(encode(&copy, &["-j", jobs]) == expected, "{} with -j{jobs}", input.display());
        }
        std::fs::remove_file(copy).unwrap();
    }
}

#[test]
fn every_dwarf_version_and_compression_gives_the_same_types() {
    let directory = TempDir::new().unwrap();
    let Some(plain) = program(directory.path(), "gcc", &["-gdwarf-5"]) else {
        return;
    };
    let expected = counts(&encode(&plain, &[]));
    for flags in [
        &["-gdwarf-3"][..],
        &["-gdwarf-4"],
        &["-gdwarf-5", "-gz=zlib"],
        &["-gdwarf-5", "-gdwarf64"],
        &["-gdwarf-4", "-gz=zlib-gnu"],
    ] {
        let program = program(directory.path(), "gcc", flags).unwrap();
        assert_eq!(counts(&encode(&program, &[])), expected, "{flags:?}");
    }
    let zstd = Command::new("objcopy")
        .args(["--compress-debug-sections=zstd", "program"])
        .current_dir(directory.path())
        .output();
    if zstd.is_ok_and(|output| output.status.success()) {
        assert_eq!(counts(&encode(&plain, &[])), expected, "zstd");
    } else {
        println!("SKIPPED: no objcopy that writes zstd");
    }
}

/// How many types there are of each kind.
fn counts(image: &[u8]) -> [u32; 32] {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let (start, size) = (word(4) as usize + word(8) as usize, word(12) as usize);
    let mut counts = [0; 32];
    let mut at = start;
    while at < start + size {
        let (kind, vlen) = (word(at + 4) >> 24 & 31, (word(at + 4) & 0xffff) as usize);
        counts[kind as usize] += 1;
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * vlen,
                6 | 13 => 8 * vlen,
                _ => 0,
            };
    }
    counts
}

/// The reference tools, if `BTFCACHE_TEST_PAHOLE` or the path has pahole 1.32 with a bpftool.
fn dump(btf: &Path) -> Option<String> {
    let mut command = Command::new("bpftool");
    command.args(["btf", "dump", "file"]).arg(btf).args(["format", "raw"]);
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn programs_are_encoded_as_by_pahole() {
    let pahole = std::env::var("BTFCACHE_TEST_PAHOLE").unwrap_or_else(|_| "pahole".to_owned());
    let version = Command::new(&pahole).arg("--version").output();
    if !version.is_ok_and(|output| output.stdout.starts_with(b"v1.32")) {
        println!("SKIPPED: no pahole 1.32");
        return;
    }
    let directory = TempDir::new().unwrap();
    for (compiler, flags) in [
        ("gcc", &["-gdwarf-5"][..]),
        ("gcc", &["-gdwarf-4"]),
        ("gcc", &["-gdwarf-3", "-gstrict-dwarf"]),
        ("gcc", &["-gdwarf-2", "-gstrict-dwarf"]),
        ("gcc", &["-gdwarf-5", "-gz=zlib"]),
        ("clang", &["-gdwarf-5"]),
        ("clang", &["-gdwarf-4"]),
    ] {
        let Some(program) = program(directory.path(), compiler, flags) else {
            continue;
        };
        let reference = directory.path().join("reference.btf");
        for features in ["default", "all", "var,decl_tag,type_tag,enum64", "float,consistent_func"]
        {
            let ran = Command::new(&pahole)
                .arg("-J")
                .arg(format!("--btf_features={features}"))
                .arg(format!("--btf_encode_detached={}", reference.display()))
                .arg(&program)
                .output()
                .unwrap();
            assert!(ran.status.success() && reference.exists(), "{ran:?}");
            encode(&program, &["--features", features]);
            let Some(expected) = dump(&reference) else {
                println!("SKIPPED: no bpftool that reads BTF");
                return;
            };
            let ours = dump(&program.with_extension("btf")).unwrap();
            assert_eq!(ours, expected, "{compiler} {flags:?} with {features}");
            std::fs::remove_file(&reference).unwrap();
        }
    }
}

/// Two functions of one file may each have a `struct args`: members must not get the other's.
#[test]
fn definitions_of_one_name_in_one_unit_stay_apart() {
    let directory = TempDir::new().unwrap();
    let Some(program) = program(directory.path(), "gcc", &[]) else {
        return;
    };
    encode(&program, &[]);
    let Some(text) = dump(&program.with_extension("btf")) else {
        println!("SKIPPED: no bpftool");
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut seen = 0;
    for (place, line) in lines.iter().enumerate() {
        if !line.contains("STRUCT 'args'") {
            continue;
        }
        let id = line[1..].split(']').next().unwrap();
        let pointer = lines[place + 2].split("type_id=").nth(1).unwrap().split(' ').next().unwrap();
        let expected = format!("[{pointer}] PTR '(anon)' type_id={id}");
        assert!(lines.contains(&expected.as_str()), "{expected}\n{text}");
        seen += 1;
    }
    assert_eq!(seen, 2, "{text}");
}

/// A section that is not loaded has address 0 in its header. A `.BTF` that was moved out of its
/// segment once came before the per-CPU section and took its variables.
#[test]
fn a_section_that_is_not_loaded_has_no_variables() {
    let directory = TempDir::new().unwrap();
    let source = "__attribute__((section(\".data..percpu\"))) int counter = 1;
                  int main(void) { return counter; }";
    std::fs::write(directory.path().join("percpu.c"), source).unwrap();
    let script = "SECTIONS { .data..percpu 0x10000 : { *(.data..percpu) } } INSERT AFTER .bss;";
    std::fs::write(directory.path().join("percpu.lds"), script).unwrap();
    let ran = Command::new("gcc")
        .args(["-g", "-no-pie", "-Wl,-T,percpu.lds", "percpu.c"])
        .args(["-o", "program"])
        .current_dir(directory.path())
        .output();
    let Some(ran) = ran.ok() else {
        println!("SKIPPED: no gcc");
        return;
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let program = directory.path().join("program");
    let before = encode(&program, &[]);
    const VAR: usize = 14;
    assert_eq!(counts(&before)[VAR], 1);
    let mut bytes = std::fs::read(&program).unwrap();
    // The first section now claims to be unloaded, at 0, and larger than the variable's address.
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let first = word(&bytes, 40) as usize + 64;
    bytes.resize(0x20_0000, 0);
    for (at, value) in [(8, 0), (16, 0), (32, 0x10_0000_u64)] {
        bytes[first + at..first + at + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes[first + 4] = 1;
    std::fs::write(&program, bytes).unwrap();
    assert!(encode(&program, &[]) == before);
}

/// Compiles `source` to assembler with comments, changes it, and encodes what it assembles to;
/// gives what is said on stderr and the exit code with `flags`. `None` without gcc.
fn encode_changed(
    change: impl Fn(&str) -> String,
    flags: &[&str],
) -> Option<(Option<i32>, String)> {
    let directory = TempDir::new().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).current_dir(directory.path()).output()
    };
    let source = "struct outer { long first; int plain_member; } object;\n";
    std::fs::write(directory.path().join("a.c"), source).unwrap();
    if run("gcc", &["-g", "-dA", "-S", "a.c"]).is_err() {
        crate::harness::skip("encode::encode_changed", "no gcc");
        return None;
    }
    let path = directory.path().join("a.s");
    let changed = change(&std::fs::read_to_string(&path).unwrap());
    std::fs::write(path, changed).unwrap();
    assert!(run("gcc", &["-c", "a.s"]).unwrap().status.success());
    let arguments = [&["encode", "--no-cache", "a.o", "-o", "a.btf"], flags].concat();
    let ran = run(env!("CARGO_BIN_EXE_btfcache"), &arguments).unwrap();
    assert_eq!(directory.path().join("a.btf").exists(), ran.status.success());
    if ran.status.success() {
        let verified = run(env!("CARGO_BIN_EXE_btfcache"), &["verify", "a.btf"]).unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(verified.status.success(), !said.contains("refuse"), "{ran:?} {verified:?}");
    }
    Some((ran.status.code(), String::from_utf8(ran.stderr).unwrap()))
}

/// What comes of names of other languages, and of damage, is not kept secret.
#[test]
fn btf_that_the_kernel_will_refuse_is_told() {
    let renamed = |text: &str| text.replace("plain_member", "plain<membe>");
    let moved = |text: &str| {
        let is_place = |line: &&str| line.ends_with("# DW_AT_data_member_location");
        let last = text.lines().rfind(is_place).unwrap();
        text.replace(last, "\t.byte\t0x64")
    };
    let nested = |text: &str| {
        let die = text.lines().find(|line| line.contains("DW_TAG_structure_type")).unwrap();
        let offset = die.split("(DIE (").nth(1).unwrap().split(')').next().unwrap();
        // The type of the member before the last place of one.
        let start = text.rfind("# DW_AT_data_member_location").unwrap();
        let end = text[..start].rfind("# DW_AT_type").unwrap();
        let line = text[..end].rfind('\n').unwrap();
        format!("{}\n\t.long\t{offset}\t{}", &text[..line], &text[end..])
    };
    type Change<'a> = &'a dyn Fn(&str) -> String;
    let misplaced =
        "1 x struct with members out of order, beyond its end or of its own type (first `outer`)";
    let cases: [(Change<'_>, &str); 4] = [
        (&str::to_owned, ""),
        (
            &renamed,
            "1 x name that is none in C, so spelt otherwise (first `plain<membe>` as `plain_membe_`)",
        ),
        (&moved, misplaced),
        (&nested, misplaced),
    ];
    for (change, part) in cases {
        let Some((code, said)) = encode_changed(change, &[]) else { return };
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(part) && said.lines().count() == usize::from(!part.is_empty()),
            "{said}"
        );
        let (code, said) = encode_changed(change, &["--strict"]).unwrap();
        assert_eq!(code, Some(if part.is_empty() { 0 } else { 2 }), "{said}");
    }
}
