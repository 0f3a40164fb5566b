//! Types that C knows and kernels seldom use: each is encoded as well as BTF can, and the kernel takes
//! it. Compared with pahole 1.32 where that does not give up.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::languages::{entry, kernel_takes_encoded};
use super::together::run;
use crate::harness::{reference_pahole, skip};

/// Compiles `source` to `a.o` in `folder`; whether there is such a compiler.
fn compile(test: &str, folder: &Path, source: &str, compiler: &str, flags: &[&str]) -> bool {
    fs::write(folder.join("a.c"), source).unwrap();
    let arguments = [&["-g", "-c", "-o", "a.o", "a.c", "-w"][..], flags].concat();
    let Some(ran) = run(test, folder, compiler, &arguments) else { return false };
    assert!(ran.status.success(), "{compiler} {flags:?}: {}", String::from_utf8_lossy(&ran.stderr));
    true
}

const FEATURES: [&str; 1] = ["--features=default,global_var"];

/// The dump of pahole's BTF of `a.o`, which must be the same as ours.
fn is_as_by_pahole(test: &str, folder: &Path, ours: &str) {
    let Some(pahole) = reference_pahole(test) else { return };
    let ran = Command::new(pahole)
        .args(["-J", "--btf_features=default,global_var", "--btf_encode_detached=r.btf", "a.o"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(ran.status.success() && folder.join("r.btf").exists(), "{ran:?}");
    let dump = ["btf", "dump", "file", "r.btf", "format", "raw"];
    let Some(ran) = run(test, folder, "bpftool", &dump) else { return };
    assert_eq!(ours, String::from_utf8(ran.stdout).unwrap());
}

#[test]
fn integers_floats_and_arrays_of_every_size() {
    let test = "kinds::integers_floats_and_arrays_of_every_size";
    let folder = TempDir::new().unwrap();
    let source = "
        typedef float four_floats __attribute__((vector_size(16)));
        struct odd { __int128 wide; unsigned __int128 wider; long double precise; __float128 quad;
                     four_floats vector; int none[0]; char many[1 << 20][3]; } odd;
        struct empty {}; struct empty nothing[4];
        struct flexible { int count; struct empty marker; long data[]; } *flexible;
        _Bool flag; signed char small; unsigned char byte; short word; wchar_t *text;
        enum negative { LOWEST = -0x7fffffff - 1, HIGHEST = 0x7fffffff } negative;
        enum positive { LARGE = 0xffffffffu } positive;
        enum wide { LARGEST = 0xffffffffffffffffull } wide;
        enum wide_negative { SMALLEST = -0x7fffffffffffffffll - 1 } wide_negative;
        enum tiny { ONE } __attribute__((packed)) tiny;
        int old_style(a, b) int a; char *b; { return a + b[0]; }
        int (*any_parameters)(); int (*no_parameters)(void); int (*more)(int, ...);
        int variable(int n) { int v[n][3]; return sizeof v; }";
    let source = format!("typedef __WCHAR_TYPE__ wchar_t;{source}");
    if !compile(test, folder.path(), &source, "gcc", &["-std=gnu11"]) {
        return;
    }
    let (dump, said) = kernel_takes_encoded(folder.path(), &FEATURES);
    assert_eq!(said, "");
    if dump.is_empty() {
        return skip(test, "no bpftool");
    }
    for line in [
        "INT '__int128' size=16 bits_offset=0 nr_bits=128 encoding=SIGNED",
        "INT '__int128 unsigned' size=16 bits_offset=0 nr_bits=128 encoding=(none)",
        "FLOAT 'long double' size=16",
        "FLOAT '_Float128' size=16",
        "ENUM 'negative' encoding=SIGNED size=4 vlen=2\n\t'LOWEST' val=-2147483648",
        "ENUM 'positive' encoding=UNSIGNED size=4 vlen=1\n\t'LARGE' val=4294967295",
        "ENUM64 'wide' encoding=UNSIGNED size=8 vlen=1\n\t'LARGEST' val=18446744073709551615ULL",
        "ENUM64 'wide_negative' encoding=SIGNED size=8 vlen=1\n\t'SMALLEST' val=-9223372036854775808LL",
        "ENUM 'tiny' encoding=UNSIGNED size=1 vlen=1",
        "STRUCT 'empty' size=0 vlen=0",
        "index_type_id=2 nr_elems=1048576",
        "FUNC 'old_style' ",
    ] {
        assert!(dump.contains(line), "{line}\n{dump}");
    }
    assert_eq!(entry(&dump, "STRUCT 'flexible'")[1..].len(), 3);
    is_as_by_pahole(test, folder.path(), &dump);
}

/// What ends pahole's run, or makes BTF that the kernel refuses.
#[test]
fn types_that_btf_has_no_kind_for() {
    let test = "kinds::types_that_btf_has_no_kind_for";
    let folder = TempDir::new().unwrap();
    let source = "
        struct odd { _Complex double pair; _Complex float small; _Complex int whole; _Atomic int
                     counted; _Atomic(struct two { int a, b; }) both; long double _Complex large; } odd;
        struct far { int first : 3; char padding[3 << 20]; unsigned second : 5, third : 4; int last; } far;
        int made(int n) { struct sized { int head; int body[n]; int tail; } s; return sizeof s; }";
    if !compile(test, folder.path(), source, "gcc", &["-std=gnu11"]) {
        return;
    }
    for version in ["-gdwarf-5", "-gdwarf-4", "-gdwarf-2"] {
        let flags = ["-std=gnu11", "-gstrict-dwarf", version];
        let flags = if version == "-gdwarf-2" { &flags[..] } else { &flags[..1] };
        assert!(compile(test, folder.path(), source, "gcc", &[flags, &[version]].concat()));
        let (dump, said) = kernel_takes_encoded(folder.path(), &FEATURES);
        assert!(
            said.contains("3 x complex number") || said.contains("4 x complex number"),
            "{said}"
        );
        assert!(said.contains("1 x struct too large for bitfields, which are left out"), "{said}");
        if dump.is_empty() {
            return skip(test, "no bpftool");
        }
        let far = entry(&dump, "STRUCT 'far'");
        let end = 8 * ((3 << 20) + 4);
        let expected = ["'padding' bits_offset=8".to_owned(), format!("'last' bits_offset={end}")];
        assert_eq!(far[1..], expected, "{version}");
        assert!(dump.contains("INT 'complex double' size=16"), "{dump}");
        assert_eq!(entry(&dump, "STRUCT 'odd'").len(), 7, "{version}");
        assert!(entry(&dump, "STRUCT 'sized'")[0].contains(" size=4 "), "{version} {dump}");
    }
}

#[test]
fn decimal_half_and_bit_precise_numbers() {
    let test = "kinds::decimal_half_and_bit_precise_numbers";
    let folder = TempDir::new().unwrap();
    let decimal = "_Decimal32 a; _Decimal64 b; _Decimal128 c; _Float16 half;";
    if compile(test, folder.path(), decimal, "gcc", &[]) {
        let (dump, said) = kernel_takes_encoded(folder.path(), &FEATURES);
        assert_eq!(said, "");
        if !dump.is_empty() {
            for line in
                ["INT '_Decimal32' size=4", "INT '_Decimal128' size=16", "FLOAT '_Float16' size=2"]
            {
                assert!(dump.contains(line), "{line}\n{dump}");
            }
            is_as_by_pahole(test, folder.path(), &dump);
        }
    }
    let precise = "_BitInt(7) a; unsigned _BitInt(24) b; _BitInt(128) c; struct s { _BitInt(7) f : 5; _BitInt(24) g; } s;";
    if compile(test, folder.path(), precise, "clang", &["-std=c2x"]) {
        let (dump, said) = kernel_takes_encoded(folder.path(), &FEATURES);
        assert_eq!(said, "");
        if !dump.is_empty() {
            assert!(dump.contains("size=16 bits_offset=0 nr_bits=128"), "{dump}");
            is_as_by_pahole(test, folder.path(), &dump);
        }
    }
}

/// More members and enumerators than a 16-bit number counts: those beyond are left out, and told.
#[test]
fn seventy_thousand_members() {
    let test = "kinds::seventy_thousand_members";
    let folder = TempDir::new().unwrap();
    let list = |form: &dyn Fn(u32) -> String| (0..70_000).map(form).collect::<String>();
    let source = format!(
        "struct large {{ {} }} large; enum many {{ {} }} many; struct small {{ int x; }} small;",
        list(&|number| format!("char m{number};")),
        list(&|number| format!("E{number},")),
    );
    if !compile(test, folder.path(), &source, "gcc", &[]) {
        return;
    }
    let (dump, said) = kernel_takes_encoded(folder.path(), &FEATURES);
    assert!(said.contains("x type of more than 65535 elements"), "{said}");
    if dump.is_empty() {
        return skip(test, "no bpftool");
    }
    assert!(dump.contains("STRUCT 'large' size=70000 vlen=65535\n\t'm0' "));
    assert!(dump.contains("ENUM 'many' encoding=UNSIGNED size=4 vlen=65535\n\t'E0' val=0\n"));
    assert!(
        dump.contains("\t'm65534' ") && !dump.contains("'m65535'") && !dump.contains("'E65535'")
    );
    assert!(dump.contains("STRUCT 'small' size=4 vlen=1"));
}

#[test]
fn attributes_of_clang() {
    let test = "kinds::attributes_of_clang";
    let folder = TempDir::new().unwrap();
    let source = "
        #define TYPE(text) __attribute__((btf_type_tag(text)))
        #define DECL(text) __attribute__((btf_decl_tag(text)))
        struct tagged { int plain; int TYPE(\"user\") TYPE(\"second\") *pointer DECL(\"member\"); } DECL(\"struct\");
        typedef struct tagged alias DECL(\"alias\");
        union both { int a DECL(\"a\"); long b; } DECL(\"union\") both;
        alias variable DECL(\"variable\");
        DECL(\"function\") int function(int first, int second DECL(\"parameter\")) { return first + second; }";
    if !compile(test, folder.path(), source, "clang", &["-O1"]) {
        return;
    }
    let (dump, said) = kernel_takes_encoded(folder.path(), &FEATURES);
    assert_eq!(said, "");
    if dump.is_empty() {
        return skip(test, "no bpftool");
    }
    for (tag, component) in [
        ("member", "1"),
        ("struct", "-1"),
        ("alias", "-1"),
        ("a", "0"),
        ("union", "-1"),
        ("variable", "-1"),
        ("function", "-1"),
        ("parameter", "1"),
    ] {
        let mut lines = dump.lines().filter(|line| line.contains(&format!("DECL_TAG '{tag}' ")));
        let line = lines.next().unwrap_or_else(|| panic!("no {tag}\n{dump}"));
        assert!(line.ends_with(&format!("component_idx={component}")), "{line}");
    }
    assert!(dump.contains("TYPE_TAG 'user'") && dump.contains("TYPE_TAG 'second'"));
    is_as_by_pahole(test, folder.path(), &dump);
}

/// LLVM puts several variables into one symbol and says how far each is from it; what is thread-local
/// or in a register has no address.
#[test]
fn places_of_variables() {
    let test = "kinds::places_of_variables";
    let folder = TempDir::new().unwrap();
    let source = "
        static int first = 1, second = 2; int third = 3; __thread int own = 4;
        extern int declared; static const int constant = 5;
        int function(void) { static int inner = 6; return first++ + second++ + third++ + own++ + declared + constant + inner++; }";
    let flags = [
        "--target=aarch64-linux-gnu",
        "-O2",
        "-mllvm",
        "-aarch64-enable-global-merge=true",
        "-mllvm",
        "-global-merge-on-external=true",
        "-mllvm",
        "-global-merge-ignore-single-use=false",
    ];
    if !compile(test, folder.path(), source, "clang", &flags) {
        return;
    }
    let (dump, _) = kernel_takes_encoded(folder.path(), &FEATURES);
    if dump.is_empty() {
        return skip(test, "no bpftool");
    }
    if let Some(ran) = run(test, folder.path(), "llvm-dwarfdump", &["a.o"]) {
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(text.contains("DW_OP_plus_uconst"), "{text}");
    }
    for name in ["first", "second", "third"] {
        assert!(dump.contains(&format!("VAR '{name}' ")), "{name}\n{dump}");
    }
    for name in ["own", "declared", "inner", "constant"] {
        assert!(!dump.contains(&format!("VAR '{name}' ")), "{name}\n{dump}");
    }
    let offsets: Vec<&str> =
        dump.lines().filter(|line| line.contains("offset=") && line.contains("(VAR '")).collect();
    assert_eq!(offsets.len(), 3, "{dump}");
    is_as_by_pahole(test, folder.path(), &dump);
}

/// gcc can be told to leave the types of headers to other units, even those that are members.
#[test]
fn types_that_are_only_declared() {
    let test = "kinds::types_that_are_only_declared";
    let folder = TempDir::new().unwrap();
    let header =
        "struct in_header { int a; long b; }; union other { int x; }; struct absent { int z; };";
    fs::write(folder.path().join("other.h"), header).unwrap();
    let source = "#include \"other.h\"
        typedef struct in_header alias; struct in_header objects[4]; struct absent *pointer;
        struct own { const alias member; union other array[3]; } own;
        int function(struct own *own, struct in_header by_value) { return own->member.a + by_value.a; }";
    if !compile(test, folder.path(), source, "gcc", &["-femit-struct-debug-baseonly"]) {
        return;
    }
    let (dump, said) = kernel_takes_encoded(folder.path(), &FEATURES);
    assert!(said.contains("2 x type that is used by value but only declared, so empty"), "{said}");
    if dump.is_empty() {
        return skip(test, "no bpftool");
    }
    assert!(dump.contains("STRUCT 'in_header' size=0 vlen=0"), "{dump}");
    assert!(dump.contains("UNION 'other' size=0 vlen=0"), "{dump}");
    assert!(dump.contains("FWD 'absent' fwd_kind=struct"), "{dump}");
    assert_eq!(entry(&dump, "STRUCT 'own'").len(), 3);
}

/// The kernel refuses arrays of 4 GiB and more, in one or more dimensions.
#[test]
fn huge_arrays() {
    let test = "kinds::huge_arrays";
    let folder = TempDir::new().unwrap();
    let source =
        "struct huge { int line[0x50000000]; int plane[0x8000][0x10000]; char far; } *huge;
                  struct plane { int plane[0x8000][0x10000]; } *plane;
                  struct large { int line[0x30000000]; } *large;";
    for compiler in ["gcc", "clang"] {
        if !compile(test, folder.path(), source, compiler, &[]) {
            continue;
        }
        let (dump, said) = kernel_takes_encoded(folder.path(), &[]);
        assert!(said.contains("2 x array of more than 4 GiB"), "{compiler} {said}");
        assert!(said.contains("1 x member beyond 512 MiB"), "{compiler} {said}");
        for count in [0x3fff_ffff, 0x3000_0000, 0x1_0000, 0x3fff] {
            let text = format!(" nr_elems={count}\n");
            assert!(dump.is_empty() || dump.contains(&text), "{compiler} {count} {dump}");
        }
    }
}
