//! Keys of units: the same for what means the same, another for what gives another fragment, and the
//! same by both ways; and the addresses of a fragment are found again.
//!
//! On what gcc and clang make of small programs and of `tests/data/rich.c`, and with
//! `BTFCACHE_TEST_VMLINUX=FILE` on every unit of that kernel.

mod mutation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use btfcache::dwarf::foreign::{Space, UnitPlace, View};
use btfcache::dwarf::sections::Dwarf;
use btfcache::elf::ElfFile;
use btfcache::fragment::{Decoder, Fragment};
use btfcache::options::{Feature, Features, Options};
use btfcache::unit_key::operands::Operands;
use btfcache::unit_key::{KeyMaker, Sources, UnitKey};
use rayon::prelude::*;

use crate::dwarf_builder::compiled;
use crate::harness::skip;

fn options() -> Options {
    let features = Features::DEFAULT.with(Feature::GlobalVar, true);
    Options { features, ..Options::default() }
}

/// Opens a file and hands out its DWARF.
fn with_dwarf<T>(path: &Path, options: &Options, work: impl FnOnce(&Dwarf<'_>) -> T) -> T {
    let elf = ElfFile::open(path).unwrap();
    let symbols = elf.symbols().unwrap();
    let dwarf = Dwarf::load(&elf, symbols.as_ref(), None, options).unwrap().unwrap();
    work(&dwarf)
}

fn unit_bytes<'a>(dwarf: &'a Dwarf<'a>, unit: u32, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    let place = UnitPlace { space: Space::Info, index: unit };
    View { dwarf, split: None }.unit_bytes(place, buffer).unwrap()
}

/// Makes the key of a unit both ways, and reads the addresses of its fragment again.
fn keyed(
    dwarf: &Dwarf<'_>,
    unit: u32,
    maker: &mut KeyMaker<'_>,
    decoder: &mut Decoder<'_>,
) -> Option<UnitKey> {
    let mut buffer = Vec::new();
    let bytes = unit_bytes(dwarf, unit, &mut buffer);
    let fragment = decoder.decode(unit).unwrap();
    let walked = maker.by_walk(unit, bytes)?;
    let (key, masks) = (walked.key, walked.masks.clone());
    if let Some(fragment) = fragment {
        let Fragment { functions, variables, .. } = &fragment;
        let operands = Operands::find(functions, variables, walked.addresses).unwrap();
        let read = maker.read_operands(unit, bytes, &masks, &operands);
        let functions = functions.iter().map(|function| function.address);
        let variables = variables.iter().map(|variable| variable.address);
        assert_eq!(read, Some(functions.chain(variables).collect()), "unit {unit}");
        assert!(!fragment.draws_on_others);
    }
    assert_eq!(maker.by_positions(unit, bytes, &masks), Some(key), "unit {unit}");
    Some(key)
}

/// The keys of all units of a file.
fn keys(path: &Path) -> Vec<UnitKey> {
    let options = options();
    with_dwarf(path, &options, |dwarf| {
        let sources = Sources::new(dwarf, &options);
        let units = (0..dwarf.units.len() as u32).into_par_iter();
        let workers = || (KeyMaker::new(&sources), Decoder::new(dwarf, &options));
        let keyed = units.map_init(workers, |(maker, decoder), unit| {
            keyed(dwarf, unit, maker, decoder).unwrap_or_else(|| panic!("no key for unit {unit}"))
        });
        keyed.collect()
    })
}

#[test]
fn every_unit_of_a_kernel() {
    let Some(path) = std::env::var_os("BTFCACHE_TEST_VMLINUX") else {
        return skip("unit_key::every_unit_of_a_kernel", "set BTFCACHE_TEST_VMLINUX");
    };
    let mut keys = keys(Path::new(&path));
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert!(keys.len() * 10 > count * 9, "{} of {count} units differ", keys.len());
}

/// What the tests change.
const SUBJECT: &str = r"
struct pair { long first; int second : 3; char text[8]; };
enum colour { RED, GREEN = 5 };
typedef int (*operation)(struct pair *, enum colour);
extern int shared(long value);
int counter = 1;
static struct pair pairs[4];
operation operations[2];
__attribute__((noinline)) static int apply(operation operation, struct pair *pair, int unused)
{
    return operation(pair, GREEN) + shared(pair->first);
}
int subject(int index, struct pair by_value)
{
    pairs[index] = by_value;
    return apply(operations[counter], &pairs[index], counter) + index;
}
";

/// Another unit of the same program.
const OTHER: &str = r"
struct other { double number; };
struct other global_other = { 1.0 };
int shared(long value) { return value * (int)global_other.number; }
";

/// A folder to compile in, and how.
struct Builder<'a> {
    folder: tempfile::TempDir,
    compiler: &'a str,
    flags: String,
}

impl Builder<'_> {
    fn run(&self, folder: &str, arguments: &str) -> bool {
        let folder = self.folder.path().join(folder);
        let mut command = Command::new(self.compiler);
        command.args(arguments.split_whitespace()).current_dir(folder);
        let Ok(output) = command.output() else {
            return false;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        true
    }

    /// Compiles `source` as `subject.c` in `folder`.
    fn object(&self, folder: &str, source: &str) -> Option<()> {
        let path = self.folder.path().join(folder);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("subject.c"), source).unwrap();
        fs::write(path.join("other.c"), OTHER).unwrap();
        self.run(folder, &format!("-g -O2 -fPIC -c {} subject.c", self.flags)).then_some(())
    }

    /// Links what was compiled in `folder` with these flags and objects; returns the keys.
    fn linked(&self, folder: &str, arguments: &str) -> Vec<UnitKey> {
        self.run(folder, &format!("-g -O2 -fPIC -c {} other.c", self.flags));
        self.run(folder, &format!("-shared -nostdlib -o linked.so {arguments}"));
        let path = self.folder.path().join(folder).join("linked.so");
        keys(&path)
    }

    fn key(&self, folder: &str, source: &str) -> UnitKey {
        self.object(folder, source).unwrap();
        self.linked(folder, "subject.o")[0]
    }
}

fn builders(test: &str) -> Vec<Builder<'static>> {
    let mut builders = Vec::new();
    for compiler in ["gcc", "clang"] {
        for flags in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5", "-gdwarf64"] {
            let folder = tempfile::tempdir().unwrap();
            let builder = Builder { folder, compiler, flags: flags.to_owned() };
            match builder.object("plain", SUBJECT) {
                Some(()) => builders.push(builder),
                None => skip(test, &format!("no {compiler}")),
            }
        }
    }
    builders
}

#[test]
fn the_same_wherever_it_was_linked_and_built() {
    for builder in builders("unit_key::the_same_wherever_it_was_linked_and_built") {
        let title = format!("{} {}", builder.compiler, builder.flags);
        let plain = builder.linked("plain", "subject.o");
        let [key] = plain[..] else { panic!("one unit") };
        let moved = builder.linked("plain", "-Wl,-Ttext=0x770000 -Wl,-Tdata=0x990000 subject.o");
        assert_eq!(moved, [key], "{title}: at another address");
        let behind = builder.linked("plain", "other.o subject.o");
        assert_eq!(behind[1], key, "{title}: behind another unit");
        assert_ne!(behind[0], key, "{title}");
        let unmerged = builder.linked("plain", "-Wl,-O0 other.o subject.o");
        assert_eq!(unmerged, behind, "{title}: with other strings");
        let elsewhere = builder.key("another/and/longer/folder", SUBJECT);
        assert_eq!(elsewhere, key, "{title}: in another folder");
        let commented = SUBJECT.replace("int subject(", "/* A comment.\n */\nint subject(");
        assert_eq!(builder.key("commented", &commented), key, "{title}: with a comment");
    }
}

/// What is replaced by what, once.
const CHANGES: [(&str, &str); 12] = [
    ("long first;", "unsigned long first;"),
    ("struct pair { long", "struct pair { char before[24]; long"),
    ("char text[8]", "char text[9]"),
    ("second : 3", "second : 4"),
    ("second :", "changed :"),
    ("GREEN = 5", "GREEN = 6"),
    ("enum colour)", "enum colour, ...)"),
    ("int unused)", "long unused)"),
    ("int unused)", "int renamed)"),
    ("static struct pair pairs", "struct pair pairs"),
    ("int counter", "long counter"),
    (
        "int subject(int index, struct pair by_value)",
        "long subject(int index, struct pair by_value)",
    ),
];

#[test]
fn another_for_every_change_of_what_it_means() {
    for builder in builders("unit_key::another_for_every_change_of_what_it_means") {
        let plain = builder.key("plain", SUBJECT);
        for (from, to) in CHANGES {
            let changed = SUBJECT.replace(from, to);
            assert_ne!(changed, SUBJECT);
            let key = builder.key("changed", &changed);
            assert_ne!(key, plain, "{} {}: {to}", builder.compiler, builder.flags);
        }
        let other = Builder { flags: format!("{} -fno-ipa-sra", builder.flags), ..builder };
        if other.compiler == "gcc" {
            assert_ne!(other.key("plain", SUBJECT), plain, "another producer");
        }
    }
}

#[test]
fn options_are_part_of_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compiled(&folder.path().join("object.o"), "gcc", "-g -c") else {
        return skip("unit_key::options_are_part_of_the_key", "no gcc");
    };
    let key_with = |options: &Options| {
        with_dwarf(&path, options, |dwarf| {
            let sources = Sources::new(dwarf, options);
            let mut buffer = Vec::new();
            let bytes = unit_bytes(dwarf, 0, &mut buffer);
            KeyMaker::new(&sources).by_walk(0, bytes).unwrap().key
        })
    };
    let prefix = Some(b"no such name".to_vec());
    let variants = [
        Options::default(),
        options(),
        Options { exclude_unit_prefix: prefix.clone(), ..options() },
        Options { kabi_prefix: prefix, ..options() },
        Options { compat_pahole: true, ..options() },
    ];
    let keys = variants.map(|options| key_with(&options));
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{index}");
    }
}

/// Both byte orders, 32 and 64 bits.
#[test]
fn units_of_other_machines() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for machine in ["s390x", "powerpc", "mips64", "armv7", "riscv64", "aarch64"] {
        let flags = format!("-g -c -ffreestanding --target={machine}-linux-gnu");
        let Some(path) = compiled(&folder.path().join("object.o"), "clang", &flags) else {
            return skip("unit_key::units_of_other_machines", "no clang");
        };
        found.extend(keys(&path));
    }
    let count = found.len();
    found.sort();
    found.dedup();
    assert_eq!((count, found.len()), (6, 6));
}

/// Whose meaning is not all in its own bytes has no key.
#[test]
fn units_that_draw_on_others_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("linked.so");
    let flags = "-g -gdwarf-4 -fdebug-types-section -fPIC -shared -nostdlib";
    let Some(path) = compiled(&path, "gcc", flags) else {
        return skip("unit_key::units_that_draw_on_others_have_none", "no gcc");
    };
    let options = options();
    with_dwarf(&path, &options, |dwarf| {
        let sources = Sources::new(dwarf, &options);
        let (mut maker, mut buffer) = (KeyMaker::new(&sources), Vec::new());
        let bytes = unit_bytes(dwarf, 0, &mut buffer);
        assert!(maker.by_walk(0, bytes).is_none());
        assert!(maker.by_walk(0, &bytes[..bytes.len() - 1]).is_none());
        assert!(maker.by_walk(1, bytes).is_none());
    });
}
