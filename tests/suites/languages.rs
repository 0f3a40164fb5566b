//! Units in other languages than C: what they have that C has not is encoded so that the kernel takes
//! it, or left out and told (spec/encoding 2.10, 2.11).

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{kernel_takes, skip};

/// Classes of every kind that C++ programs have.
pub(super) const CLASSES: &str = r#"
#include <stddef.h>
namespace outer {
    namespace { struct hidden { int h; }; }
    enum class Colour : unsigned char { red, green = 7 };
    struct Base { int b; static int shared; int method(int x) const { return x + b; } };
    int Base::shared = 3;
    struct Other { long o; };
    struct Derived : Base, Other { char d; Derived &self; hidden inner; Colour colour; };
    struct Plain { int plain; };
    struct Virtual : Plain { virtual ~Virtual(); virtual void f(); int v; };
    Virtual::~Virtual() {}
    void Virtual::f() {}
    struct Left : virtual Plain { int left; } left_object;
}
template <typename T, int N> struct Stack { T items[N]; T &&moved; void push(T &&item); Stack &operator=(const Stack &); };
typedef int outer::Base::*data_member;
union Both { int i; float f; Both() {} };
struct Uses {
    Stack<int, 3> small; Stack<outer::Base *, 2> pointers; data_member member;
    int (outer::Base::*function)(int) const; decltype(nullptr) none; bool flag; wchar_t wide;
};
int mangled(const Uses &uses, outer::Derived *derived) { return uses.flag + derived->d; }
extern "C" int plain_name(outer::Left *left, Both *both) { return left->left + both->i; }
int operator+(const outer::Other &one, int two) { return (int)one.o + two; }
"#;

/// Compiles `source` to an object; `None` with a message without the compiler.
fn object(folder: &Path, name: &str, source: &str, compiler: &str, flags: &[&str]) -> Option<()> {
    std::fs::write(folder.join(name), source).unwrap();
    let ran = Command::new(compiler)
        .args(["-g", "-c", "-o", "a.o", name])
        .args(flags)
        .current_dir(folder)
        .output();
    let Ok(ran) = ran else {
        skip("languages", &format!("no {compiler}"));
        return None;
    };
    assert!(ran.status.success(), "{compiler}: {}", String::from_utf8_lossy(&ran.stderr));
    Some(())
}

/// Encodes `a.o`; gives the dump, if there is a bpftool, and what was said. The kernel must take it.
pub(super) fn kernel_takes_encoded(folder: &Path, flags: &[&str]) -> (String, String) {
    let run = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).current_dir(folder).output()
    };
    let arguments = [&["encode", "--no-cache", "a.o", "-o", "a.btf"], flags].concat();
    let ran = run(env!("CARGO_BIN_EXE_btfcache"), &arguments).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let verified = run(env!("CARGO_BIN_EXE_btfcache"), &["verify", "a.btf"]).unwrap();
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stdout));
    kernel_takes(&folder.join("a.btf"));
    let dump = run("bpftool", &["btf", "dump", "file", "a.btf", "format", "raw"]);
    let dump = dump.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default();
    (dump, String::from_utf8(ran.stderr).unwrap())
}

/// The lines of the type that starts with `head`, its own and its members', without ids.
pub(super) fn entry(dump: &str, head: &str) -> Vec<String> {
    let mut lines = dump
        .lines()
        .skip_while(|line| line.split_once("] ").is_none_or(|(_, text)| !text.starts_with(head)));
    let first = lines.next().unwrap_or_else(|| panic!("no {head}\n{dump}"));
    let members = lines.take_while(|line| line.starts_with('\t')).map(|line| {
        let (name, rest) = line.trim().split_once(" type_id=").unwrap_or((line.trim(), ""));
        format!("{name} {}", rest.split_once(' ').map_or("", |(_, place)| place)).trim().to_owned()
    });
    let first = first.split_once("] ").unwrap().1.to_owned();
    std::iter::once(first).chain(members).collect()
}

#[test]
fn classes_are_structs_with_their_bases() {
    let folder = TempDir::new().unwrap();
    for compiler in ["g++", "clang++"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let flags = ["-std=c++17", version, "-fstandalone-debug"];
            let flags = if compiler == "g++" { &flags[..2] } else { &flags[..] };
            if object(folder.path(), "a.cpp", CLASSES, compiler, flags).is_none() {
                continue;
            }
            let (dump, said) = kernel_takes_encoded(folder.path(), &[]);
            if dump.is_empty() {
                return skip("languages::classes_are_structs_with_their_bases", "no bpftool");
            }
            let at = |offset: u32| format!("bits_offset={offset}");
            let expected = [
                "STRUCT 'Derived' size=40 vlen=6".to_owned(),
                format!("'(anon)' {}", at(0)),
                format!("'(anon)' {}", at(64)),
                format!("'d' {}", at(128)),
                format!("'self' {}", at(192)),
                format!("'inner' {}", at(256)),
                format!("'colour' {}", at(288)),
            ];
            assert_eq!(entry(&dump, "STRUCT 'Derived'"), expected, "{compiler} {version}");
            // The base comes before the table in DWARF, and after it in the object.
            let virtual_class = entry(&dump, "STRUCT 'Virtual'");
            assert!(virtual_class[1].starts_with("'_vptr"), "{virtual_class:?}");
            assert_eq!(virtual_class[2..], ["'(anon)' bits_offset=64", "'v' bits_offset=96"]);
            let left = entry(&dump, "STRUCT 'Left'");
            assert_eq!((left.len(), left[0].as_str()), (3, "STRUCT 'Left' size=16 vlen=2"));
            assert_eq!(
                entry(&dump, "STRUCT 'Base'"),
                ["STRUCT 'Base' size=4 vlen=1", "'b' bits_offset=0"]
            );
            let stack = entry(&dump, "STRUCT 'Stack_int__3_'");
            assert_eq!(
                stack,
                [
                    "STRUCT 'Stack_int__3_' size=24 vlen=2",
                    "'items' bits_offset=0",
                    "'moved' bits_offset=128"
                ]
            );
            assert!(dump.contains("STRUCT 'Stack_outer__Base_"), "{dump}");
            assert!(dump.contains("ENUM 'Colour' encoding=UNSIGNED size=1 vlen=2"), "{dump}");
            assert!(dump.contains("STRUCT 'hidden' size=4"));
            let uses = entry(&dump, "STRUCT 'Uses'");
            let members = uses.iter().map(|line| line.split(' ').next().unwrap());
            let members: Vec<&str> = members.skip(1).collect();
            assert_eq!(members[..3], ["'small'", "'pointers'", "'member'"]);
            assert!(!members.contains(&"'none'"), "a member without a size: {uses:?}");
            // By the names that symbols have.
            let functions = |name: &str| dump.contains(&format!("] FUNC '{name}' "));
            assert!(functions("_Z7mangledRK4UsesPN5outer7DerivedE"), "{dump}");
            assert!(functions("plain_name") && !functions("mangled") && !functions("operator_"));
            assert!(functions("_ZplRKN5outer5OtherEi"), "{dump}");
            assert!(said.contains("name that is none in C, so spelt otherwise"), "{said}");
            assert!(said.contains("member at a computed place"), "{said}");
            let said = encode_nothing(folder.path(), "--lang-exclude=c++");
            assert!(said.contains("no unit that the options admit"), "{said}");
        }
    }
}

/// Enums with contents, members in an order of the compiler's own, names with signs, 128 bits.
pub(super) const RUST: &str = r#"
#![crate_type = "lib"]
pub enum Shape { Circle(f64), Square { side: u32, name: &'static str }, Nothing }
pub struct Unsorted { a: u8, b: u64, c: u16, d: Option<Box<Shape>> }
pub struct Generic<T>(T, u8);
pub union Both { a: u32, b: f32 }
#[repr(u128)] pub enum Wide { One = 1, Two = 2 }
#[repr(i64)] pub enum Signed { Less = -1, More = 2 }
#[no_mangle] pub extern "C" fn exported(u: &Unsorted, g: Generic<u32>) -> u64 {
    u.b + g.0 as u64 + g.1 as u64 + u.a as u64 + u.c as u64 + u.d.is_some() as u64
}
pub fn mangled(s: &Shape, u: &Both, w: Wide, c: char, t: (u8, u32), n: Signed) -> u8 {
    match s { Shape::Circle(_) => unsafe { u.a as u8 }, _ => w as u8 + c as u8 + t.0 + n as u8 }
}
"#;

#[test]
fn rust_is_encoded_or_left_out() {
    let test = "languages::rust_is_encoded_or_left_out";
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("a.rs"), RUST).unwrap();
    let arguments = ["-g", "--emit=obj", "-Adead_code", "-Awarnings", "-o", "a.o", "a.rs"];
    let ran = Command::new("rustc").args(arguments).current_dir(folder.path()).output();
    let Ok(ran) = ran else { return skip(test, "no rustc") };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let (dump, said) = kernel_takes_encoded(folder.path(), &[]);
    assert!(said.contains("1 x enumeration of an odd size"), "{said}");
    assert!(said.contains("name that is none in C, so spelt otherwise"), "{said}");
    if !dump.is_empty() {
        assert!(
            dump.contains(
                "ENUM64 'Wide' encoding=UNSIGNED size=8 vlen=2\n\t'One' val=1ULL\n\t'Two' val=2ULL"
            ),
            "{dump}"
        );
        assert!(
            dump.contains("ENUM64 'Signed' encoding=SIGNED size=8 vlen=2\n\t'Less' val=-1LL"),
            "{dump}"
        );
        assert!(dump.contains("STRUCT 'Generic_u32_' size=8 vlen=2"), "{dump}");
        assert!(dump.contains("STRUCT 'Shape' size=24"), "{dump}");
        assert!(dump.contains("FUNC 'exported' "), "{dump}");
        assert!(
            dump.lines().any(|line| line.contains("FUNC '_") && line.contains("mangled")),
            "{dump}"
        );
        let members = entry(&dump, "STRUCT 'Unsorted'");
        let places = members[1..].iter().map(|line| line.rsplit('=').next().unwrap());
        let places: Vec<u32> = places.map(|place| place.parse().unwrap()).collect();
        assert!(places.len() == 4 && places.is_sorted(), "{members:?}");
    }
    let said = encode_nothing(folder.path(), "--lang-exclude=rust");
    assert!(said.contains("it has no unit that the options admit: nothing to encode"), "{said}");
}

/// Encodes `a.o` with `flag`, of which nothing must come; gives what was said.
fn encode_nothing(folder: &Path, flag: &str) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_btfcache"))
        .args(["encode", "--no-cache", flag, "a.o", "-o", "none.btf"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(!folder.join("none.btf").exists());
    String::from_utf8(ran.stderr).unwrap()
}
