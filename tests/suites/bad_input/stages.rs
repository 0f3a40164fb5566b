//! Errors at each stage, with 64 threads at work: the run ends at once, always with the same message, and
//! leaves the old output alone. Each so many times as `BTFCACHE_TEST_ROUNDS` says, else five times.

use std::fs;
use std::path::Path;
use std::process::Command;

use btfcache::elf::ElfFile;

use super::{Folder, OLD};
use crate::harness::skip;

/// What fails: the stage, what is damaged, the arguments after `encode`, a part of the message.
type Case = (&'static str, fn(&Folder), &'static str, &'static str);

const CASES: [Case; 16] = [
    ("open", |folder| overwrite(folder, "input", 0, b"no ELF"), "input", "not an ELF file"),
    (
        "sections",
        |folder| patch(folder, "input", ".symtab", 40, &[0xff; 4]),
        "input",
        "string table",
    ),
    ("unit headers", |folder| change(folder, "input", ".debug_info", 4, 99), "input", "version 99"),
    ("abbreviations", |folder| change(folder, "input", ".debug_abbrev", 2, 77), "input", "unit at"),
    ("relocate", damage_relocation, "object.o", "unknown relocation type"),
    ("decode", damage_units, "input", "unit at 0x0 of"),
    ("decode the last", damage_last_unit, "input", "failed to decode the unit"),
    ("other files", damage_split, "split", "split-units1.dwo`"),
    ("members", damage_member, "all.a", "its member `units3.o`"),
    ("select", |_| (), "--features=global_var odd", "has a name that BTF does not allow"),
    (
        "base",
        |folder| overwrite(folder, "base", 0, b"no BTF"),
        "--base base input",
        "neither an ELF",
    ),
    ("distill", |_| (), "--features=+distilled_base input", "needs a base"),
    ("strict", |_| (), "--strict odd", "`--strict` makes this an error"),
    ("write", |_| (), "input -o folder/out.btf", "folder/out.btf"),
    ("write in place", sign, "--in-place signed.ko", "signed"),
    ("several", |folder| overwrite(folder, "input", 0, b"no ELF"), "several", "not an ELF file"),
];

/// Units that each take a while.
const UNITS: usize = 24;

#[test]
fn an_error_ends_all_threads() {
    let test = "stages::an_error_ends_all_threads";
    let rounds = std::env::var("BTFCACHE_TEST_ROUNDS").map_or(5, |count| count.parse().unwrap());
    let whole = Folder::new();
    if !compile(&whole) {
        return skip(test, "no gcc");
    }
    for (stage, damage, arguments, message) in CASES {
        let folder = Folder::new();
        for entry in fs::read_dir(whole.path(".")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.path(entry.file_name().to_str().unwrap())).unwrap();
        }
        damage(&folder);
        let line = match stage {
            "several" => "encode -j64 --output-dir=. input object.o odd".to_owned(),
            "write" | "write in place" => format!("encode -j64 {arguments}"),
            _ => format!("encode -j64 {arguments} -o out.btf"),
        };
        let mut first = None;
        for round in 0..rounds {
            // A run that takes longer than a minute is ended by the harness, and has no code.
            let said = folder.run(&line);
            let what = format!("{stage}, round {round}: {}", said.stderr);
            assert_eq!(said.code, Some(2), "{what}");
            assert!(said.stderr.contains(message), "{what}");
            // Temporary files have names of their own, and several files are done in any order.
            let mut lines: Vec<String> = said
                .stderr
                .split("/.btfcache-")
                .next()
                .unwrap()
                .lines()
                .map(str::to_owned)
                .collect();
            lines.sort();
            assert_eq!(*first.get_or_insert(lines.clone()), lines, "{what}");
            assert_eq!(fs::read(folder.path("out.btf")).unwrap(), OLD, "{what}");
        }
    }
}

/// Makes a program of many units, one with split DWARF, an object, an archive, and an object with a name
/// and a type that BTF has not.
fn compile(folder: &Folder) -> bool {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let ran = command.args(arguments).current_dir(folder.path(".")).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let rich = include_str!("../../data/rich.c");
    let mut objects = Vec::new();
    for unit in 0..UNITS {
        fs::write(folder.path(&format!("units{unit}.c")), rich).unwrap();
        let (source, object) = (format!("units{unit}.c"), format!("units{unit}.o"));
        if !run("gcc", &["-g", "-w", "-fPIC", "-c", "-o", &object, &source]) {
            return false;
        }
        objects.push(object);
    }
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    fs::write(folder.path("odd.c"), "int odd$name = 1; _Complex float odd;").unwrap();
    fs::write(folder.path("base"), "").unwrap();
    let shared = ["-shared", "-nostdlib", "-Wl,-z,muldefs"];
    let sources = ["units1.c", "units2.c"];
    // Copies in other folders are to find their own `.dwo` files.
    let map =
        format!("-fdebug-prefix-map={}=.", folder.path(".").canonicalize().unwrap().display());
    let split = ["-g", "-w", "-fPIC", &map, "-gsplit-dwarf", "-o", "split"];
    run("gcc", &[&shared[..], &["-o", "input"], &objects].concat())
        && run("gcc", &[&split[..], &shared, &sources].concat())
        && run("gcc", &["-g", "-c", "-o", "odd", "odd.c"])
        && run("ar", &[&["rcs", "all.a"][..], &objects].concat())
        && fs::copy(folder.path(objects[0]), folder.path("object.o")).is_ok()
        && fs::copy(folder.path(objects[0]), folder.path("signed.ko")).is_ok()
}

fn overwrite(folder: &Folder, name: &str, at: usize, bytes: &[u8]) {
    let mut file = fs::read(folder.path(name)).unwrap();
    file.resize(file.len().max(at + bytes.len()), 0);
    file[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(folder.path(name), file).unwrap();
}

/// Where a section lies, and its size.
fn place(path: &Path, section: &str) -> (usize, usize) {
    let elf = ElfFile::open(path).unwrap();
    let section = elf.section(section).unwrap();
    (section.offset as usize, section.size as usize)
}

/// Changes one byte of a section.
fn change(folder: &Folder, name: &str, section: &str, at: usize, value: u8) {
    let (start, _) = place(&folder.path(name), section);
    overwrite(folder, name, start + at, &[value]);
}

/// Changes the header of a section.
fn patch(folder: &Folder, name: &str, section: &str, at: usize, bytes: &[u8]) {
    let file = fs::read(folder.path(name)).unwrap();
    let elf = ElfFile::open(&folder.path(name)).unwrap();
    let index = elf.sections().iter().position(|it| it.name == section.as_bytes()).unwrap();
    let headers = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    overwrite(folder, name, headers + index * 64 + at, bytes);
}

fn damage_relocation(folder: &Folder) {
    change(folder, "object.o", ".rela.debug_info", 8, 0xfe);
}

/// Where the units of `input` begin.
fn units(folder: &Folder) -> Vec<usize> {
    let (start, size) = place(&folder.path("input"), ".debug_info");
    let file = fs::read(folder.path("input")).unwrap();
    let mut units = Vec::new();
    let mut at = start;
    while at < start + size {
        units.push(at);
        at += 4 + u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    }
    units
}

/// A DIE of each unit is of no known kind: the first unit is to be reported.
fn damage_units(folder: &Folder) {
    units(folder).iter().for_each(|unit| overwrite(folder, "input", unit + 12, &[0x7f]));
}

fn damage_last_unit(folder: &Folder) {
    // Behind its own units the program has none of the compiler's.
    overwrite(folder, "input", units(folder).last().unwrap() + 12, &[0x7f]);
}

fn damage_split(folder: &Folder) {
    overwrite(folder, "split-units1.dwo", 0, b"no ELF");
}

fn damage_member(folder: &Folder) {
    let archive = fs::read(folder.path("all.a")).unwrap();
    let header = archive.windows(10).position(|bytes| bytes == b"units3.o/ ").unwrap();
    let member = fs::read(folder.path("units3.o")).unwrap();
    let (start, _) = place(&folder.path("units3.o"), ".debug_info");
    assert!(archive[header + 60..].starts_with(&member));
    overwrite(folder, "all.a", header + 60 + start + 4, &[99]);
}

fn sign(folder: &Folder) {
    let mut file = fs::read(folder.path("signed.ko")).unwrap();
    // struct module_signature: PKCS#7, and the size of the signature in big endian.
    file.extend([7; 32]);
    file.extend([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 32]);
    file.extend(b"~Module signature appended~\n");
    fs::write(folder.path("signed.ko"), file).unwrap();
}
