//! Inputs that are damaged, hostile or odd: an error that names the place and leaves the old output
//! alone, or a result the kernel takes and one line about what was left out (DESIGN.md section 6).
//! Never a panic, a hang, unbounded memory, a partial output or a false 0.

mod flips;
mod stages;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gimli::constants as dw;
use tempfile::TempDir;

use crate::dwarf_builder::{Die, Section, TEXT, Unit, die, uleb, write_elf};
use crate::harness::{SmallDisk, elf_without_sections, skip};

/// Longer than any run here takes on a slow, busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Address space of a run in KiB; a run that wants more is killed by its own allocator.
const MEMORY: &str = "4194304";
const OLD: &[u8] = b"old output";

/// A folder with an input and the output of an earlier run.
struct Folder(TempDir);

/// What a run gave.
struct Said {
    code: Option<i32>,
    stderr: String,
}

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.path("out.btf"), OLD).unwrap();
        folder
    }

    fn of(input: &[u8]) -> Self {
        let folder = Self::new();
        fs::write(folder.path("input"), input).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &str) -> Said {
        self.run_in(Command::new("sh"), line)
    }

    /// Runs the program by a shell that limits its memory, inside of `wrapper`.
    fn run_in(&self, mut wrapper: Command, line: &str) -> Said {
        let script = format!("ulimit -v {MEMORY} && exec \"$0\" \"$@\"");
        wrapper.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_btfcache"));
        wrapper.args(line.split_whitespace()).current_dir(self.0.path());
        wrapper.env("BTFCACHE_DISABLE", "1").stdin(Stdio::null());
        let errors = fs::File::create(self.path("stderr")).unwrap();
        let child = wrapper.stdout(Stdio::null()).stderr(errors).spawn().unwrap();
        let code = wait(child);
        let stderr = fs::read_to_string(self.path("stderr")).unwrap();
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
        Said { code, stderr }
    }

    /// The input must be refused with a message that has all `parts`.
    fn refuses(&self, parts: &[&str]) {
        let said = self.run("encode input -o out.btf");
        assert_eq!(said.code, Some(2), "{}", said.stderr);
        said.has(&["btfcache: failed to encode `input`\ncaused by: "]).has(parts);
        assert_eq!(fs::read(self.path("out.btf")).unwrap(), OLD, "{}", said.stderr);
        self.has_no_litter();
    }

    /// There must be nothing to encode, and a line with all `parts`.
    fn has_nothing(&self, line: &str, parts: &[&str]) {
        let said = self.run(line);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        said.has(parts);
        assert_eq!(fs::read(self.path("out.btf")).unwrap(), OLD, "{}", said.stderr);
        self.has_no_litter();
    }

    /// The input must be encoded by the rules of the kernel, and everything said must have `parts`.
    fn encodes(&self, parts: &[&str]) -> String {
        let said = self.run("encode input -o out.btf");
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said.has(parts);
        self.has_no_litter();
        self.dump(&said)
    }

    /// Checks the output; returns what kinds of types it has, or nothing without the checker.
    fn dump(&self, said: &Said) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/btfsame.py");
        let mut check = Command::new("python3");
        check.arg(script).args(["check", "--strict"]).arg(self.path("out.btf"));
        let Ok(output) = check.output() else {
            skip("the kernel's rules", "no python3");
            return String::new();
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}\n{}", said.stderr);
        text
    }

    fn has_no_litter(&self) {
        let names = fs::read_dir(self.0.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        let known = ["input", "out.btf", "stderr"];
        assert!(names.iter().all(|name| known.iter().any(|known| name == known)), "{names:?}");
    }
}

impl Said {
    fn has(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(self.stderr.contains(part), "stderr lacks {part:?}:\n{}", self.stderr);
        }
        self
    }
}

/// Exit code of a process that must end in time.
fn wait(mut child: Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if start.elapsed() > TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("still running after {TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A unit with a struct, a typedef and a function, as a start for damage.
fn sound_unit() -> Unit {
    let mut unit = Unit::new();
    let int = unit.int();
    unit.structure("pair", 8, [member("a", int, 0), member("b", int, 4)]);
    unit.add(die(dw::DW_TAG_typedef).name("number").refers(int));
    let parameter = die(dw::DW_TAG_formal_parameter).name("x").refers(int);
    let function = die(dw::DW_TAG_subprogram).name("twice").refers(int);
    let in_register = parameter.raw(dw::DW_AT_location, dw::DW_FORM_exprloc, &[1, 0x55]);
    let function = function.raw(dw::DW_AT_low_pc, dw::DW_FORM_addr, &TEXT.to_le_bytes());
    unit.add(function.children([in_register]));
    unit.symbol("twice", TEXT);
    unit
}

fn member(name: &str, ty: crate::dwarf_builder::Label, place: u64) -> Die {
    let member = die(dw::DW_TAG_member).name(name).refers(ty);
    member.number(dw::DW_AT_data_member_location, place)
}

fn enumerator(name: &str, value: u64) -> Die {
    die(dw::DW_TAG_enumerator).name(name).number(dw::DW_AT_const_value, value)
}

#[test]
fn the_sound_unit_is_sound() {
    let found = Folder::of(&sound_unit().elf()).encodes(&[]);
    assert!(found.is_empty() || found.contains("FUNC 1"), "{found}");
}

#[test]
fn no_file_and_things_that_are_no_file() {
    Folder::new().refuses(&["input"]);
    let folder = Folder::new();
    fs::create_dir(folder.path("input")).unwrap();
    folder.refuses(&["not a regular file"]);
    let folder = Folder::new();
    assert!(Command::new("mkfifo").arg(folder.path("input")).status().unwrap().success());
    folder.refuses(&["not a regular file"]);
}

#[test]
fn what_is_not_elf() {
    Folder::of(b"").refuses(&["not an ELF file"]);
    Folder::of(b"int main(void) { return 0; }\n").refuses(&["not an ELF file"]);
    Folder::of(&[&b"\x7fELF\x09"[..], &[0; 100]].concat()).refuses(&["unknown class 9"]);
}

#[test]
fn elf_cut_anywhere() {
    let whole = sound_unit().elf();
    for size in (0..whole.len()).step_by(97).chain([16, 63, 64, 65, whole.len() - 1]) {
        Folder::of(&whole[..size]).refuses(&[]);
    }
}

#[test]
fn debug_info_cut_anywhere() {
    let unit = sound_unit();
    let (abbreviations, info) = unit.sections();
    for size in (1..info.len() - 1).step_by(7) {
        let folder = Folder::of(&unit.elf_of(&abbreviations, &info[..size]));
        folder.refuses(&["the unit at 0x0 of `.debug_info` is cut off"]);
        // The same with a header that fits what is left.
        let mut shorter = info[..size].to_vec();
        if size >= 12 {
            shorter[..4].copy_from_slice(&(size as u32 - 4).to_le_bytes());
            let said = Folder::of(&unit.elf_of(&abbreviations, &shorter)).run("encode input -o x");
            assert!(matches!(said.code, Some(0 | 2)), "{}", said.stderr);
        }
    }
}

#[test]
fn abbreviations_cut_anywhere() {
    let unit = sound_unit();
    let (abbreviations, info) = unit.sections();
    for size in (0..abbreviations.len()).step_by(5) {
        let folder = Folder::of(&unit.elf_of(&abbreviations[..size], &info));
        folder.refuses(&[
            "the unit at 0x0 of `.debug_info`",
            "the abbreviations at 0x0",
            "cut off",
        ]);
    }
}

#[test]
fn wrong_abbreviation_code_and_form() {
    let mut unit = sound_unit();
    unit.add(die(dw::DW_TAG_pointer_type).code(77));
    Folder::of(&unit.elf()).refuses(&[
        "the unit at 0x0 of `.debug_info`",
        "at DIE 0x",
        "abbreviation code 77 is not defined",
    ]);
    let mut unit = sound_unit();
    unit.add(die(dw::DW_TAG_pointer_type).raw(dw::DW_AT_name, gimli::DwForm(0x7f), &[0]));
    Folder::of(&unit.elf()).refuses(&["the unit at 0x0", "unknown attribute form 0x7f"]);
    let mut unit = sound_unit();
    let form = dw::DW_FORM_indirect;
    unit.add(die(dw::DW_TAG_typedef).raw(dw::DW_AT_name, form, &[0x16, 0x16]));
    Folder::of(&unit.elf()).refuses(&["at DIE 0x", "attribute form 0x16 cannot be indirect"]);
}

#[test]
fn children_without_end_and_without_bottom() {
    let mut deep = die(dw::DW_TAG_structure_type).name("s").size(4);
    for _ in 0..300 {
        deep = die(dw::DW_TAG_structure_type).name("s").size(4).children([deep]);
    }
    let mut unit = sound_unit();
    unit.add(deep);
    Folder::of(&unit.elf()).refuses(&["at DIE 0x", "deeper than 256 levels"]);
    // Scopes that are passed over may nest as they like.
    let mut deep = die(dw::DW_TAG_lexical_block);
    for _ in 0..5000 {
        deep = die(dw::DW_TAG_lexical_block).children([deep]);
    }
    let mut unit = sound_unit();
    unit.add(deep);
    Folder::of(&unit.elf()).encodes(&[]);
}

#[test]
fn cycles_of_references() {
    let mut unit = sound_unit();
    let own = unit.label();
    unit.add(die(dw::DW_TAG_typedef).name("own").refers(own).label(own));
    let (one, two) = (unit.label(), unit.label());
    unit.add(die(dw::DW_TAG_typedef).name("one").refers(two).label(one));
    unit.add(die(dw::DW_TAG_typedef).name("two").refers(one).label(two));
    Folder::of(&unit.elf()).encodes(&["2 x endless cycle of types"]);

    let mut unit = sound_unit();
    let (constant, pointer) = (unit.label(), unit.label());
    unit.add(die(dw::DW_TAG_const_type).refers(pointer).label(constant));
    unit.add(die(dw::DW_TAG_pointer_type).refers(constant).label(pointer));
    Folder::of(&unit.elf()).encodes(&["1 x endless cycle of types (first at 0x"]);

    let mut unit = sound_unit();
    let own = unit.label();
    let pointer = unit.add(die(dw::DW_TAG_pointer_type).refers(own));
    let members = [member("self", own, 0), member("next", pointer, 8)];
    unit.add(die(dw::DW_TAG_structure_type).name("own").size(16).children(members).label(own));
    // Which is what it says, though no C: the kernel takes it unless a program loads it.
    let said = Folder::of(&unit.elf()).run("encode input -o out.btf");
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn a_cycle_with_a_typedef_keeps_all_its_types() {
    let mut unit = sound_unit();
    let labels: Vec<_> = (0..5).map(|_| unit.label()).collect();
    unit.add(die(dw::DW_TAG_const_type).refers(labels[1]).label(labels[0]));
    unit.add(die(dw::DW_TAG_pointer_type).refers(labels[2]).label(labels[1]));
    unit.add(die(dw::DW_TAG_typedef).name("t").refers(labels[3]).label(labels[2]));
    unit.add(die(dw::DW_TAG_pointer_type).refers(labels[4]).label(labels[3]));
    let parameter = die(dw::DW_TAG_formal_parameter).refers(labels[0]);
    unit.add(die(dw::DW_TAG_subroutine_type).label(labels[4]).children([parameter]));
    let folder = Folder::of(&unit.elf());
    let found = folder.encodes(&[]);
    assert_eq!(fs::read_to_string(folder.path("stderr")).unwrap(), "");
    let kinds = ["CONST 1", "PTR 2", "TYPEDEF 2", "FUNC_PROTO 2"];
    assert!(found.is_empty() || kinds.iter().all(|kind| found.contains(kind)), "{found}");
}

#[test]
fn cycles_of_arrays_functions_and_nameless_structs() {
    let mut unit = sound_unit();
    let own = unit.label();
    unit.add(die(dw::DW_TAG_array_type).refers(own).label(own).children([]));
    let (prototype, pointer) = (unit.label(), unit.label());
    let parameter = die(dw::DW_TAG_formal_parameter).refers(pointer);
    unit.add(die(dw::DW_TAG_subroutine_type).label(prototype).children([parameter]));
    unit.add(die(dw::DW_TAG_pointer_type).refers(prototype).label(pointer));
    let nameless = unit.label();
    let members = [member("self", nameless, 0)];
    unit.add(die(dw::DW_TAG_structure_type).size(8).children(members).label(nameless));
    Folder::of(&unit.elf()).encodes(&["endless cycle of types"]);
}

#[test]
fn references_to_nothing() {
    for offset in [1, 11, 0xffff, 0x7fff_ffff, u32::MAX] {
        let mut unit = sound_unit();
        unit.add(die(dw::DW_TAG_pointer_type).refers_to_offset(offset));
        unit.add(die(dw::DW_TAG_typedef).name("lost").refers_to_offset(offset));
        Folder::of(&unit.elf()).encodes(&["reference"]);
    }
}

#[test]
fn references_to_nothing_where_void_is_not_allowed() {
    let mut unit = sound_unit();
    let lost = die(dw::DW_TAG_member).name("lost").refers_to_offset(1);
    let int = unit.int();
    unit.structure("holder", 8, [lost, member("kept", int, 4)]);
    unit.add(die(dw::DW_TAG_array_type).refers_to_offset(1).children([]));
    Folder::of(&unit.elf()).encodes(&["reference to nothing"]);
}

#[test]
fn base_types_of_odd_sizes() {
    for size in [0, 3, 5, 17, 64, 1 << 40] {
        let mut unit = sound_unit();
        let odd = unit.base("odd", size, dw::DW_ATE_unsigned);
        unit.add(die(dw::DW_TAG_pointer_type).refers(odd));
        unit.base("strange", size, dw::DW_ATE_float);
        Folder::of(&unit.elf()).encodes(&["base type of an odd size"]);
    }
}

/// Clang writes them into every unit, for location expressions only.
#[test]
fn base_types_of_odd_sizes_that_no_source_has() {
    let mut unit = sound_unit();
    unit.base("DW_ATE_unsigned_24", 3, dw::DW_ATE_unsigned);
    let folder = Folder::of(&unit.elf());
    folder.encodes(&[]);
    assert_eq!(fs::read_to_string(folder.path("stderr")).unwrap(), "");
}

#[test]
fn nameless_things_that_need_a_name() {
    let mut unit = sound_unit();
    let int = unit.int();
    let typedef = unit.add(die(dw::DW_TAG_typedef).refers(int));
    let forward = unit.add(die(dw::DW_TAG_structure_type).declaration());
    unit.add(die(dw::DW_TAG_pointer_type).refers(forward));
    unit.structure("holder", 8, [member("number", typedef, 0)]);
    let values = [enumerator("", 1), enumerator("TWO", 2)];
    unit.add(die(dw::DW_TAG_enumeration_type).name("some").size(4).children(values));
    Folder::of(&unit.elf()).encodes(&[
        "1 x typedef without a name",
        "1 x forward declaration without a name",
        "1 x enumerator without a name",
    ]);
}

#[test]
fn names_that_are_said_to_stand_elsewhere_but_do_not() {
    let mut unit = sound_unit();
    let int = unit.int();
    let pointer = unit.add(die(dw::DW_TAG_pointer_type).refers(int));
    let specified = |tag| die(tag).reference(dw::DW_AT_specification, pointer);
    let typedef = unit.add(specified(dw::DW_TAG_typedef).refers(int));
    let forward = unit.add(specified(dw::DW_TAG_structure_type).declaration());
    unit.add(die(dw::DW_TAG_const_type).refers(typedef));
    unit.add(die(dw::DW_TAG_pointer_type).refers(forward));
    Folder::of(&unit.elf()).encodes(&["typedef without a name"]);
}

#[test]
fn enumerations_of_odd_size() {
    for (size, summary) in [(3, "enumeration of an odd size"), (16, "enumeration of an odd size")] {
        let mut unit = sound_unit();
        let values = [enumerator("ONE", 1)];
        unit.add(die(dw::DW_TAG_enumeration_type).name("odd").size(size).children(values));
        Folder::of(&unit.elf()).encodes(&[summary]);
    }
}

#[test]
fn members_at_strange_places() {
    let mut unit = sound_unit();
    let int = unit.int();
    let far = die(dw::DW_TAG_member).name("far").refers(int);
    let far = far.number(dw::DW_AT_bit_size, 3).number(dw::DW_AT_data_bit_offset, 32 << 20);
    unit.structure("large", 5 << 20, [member("near", int, 0), far]);
    let members = [member("start", int, 0), member("later", int, 4)];
    unit.add(die(dw::DW_TAG_union_type).name("torn").size(8).children(members));
    let computed = die(dw::DW_TAG_member).name("computed").refers(int);
    let location = dw::DW_AT_data_member_location;
    let computed = computed.raw(location, dw::DW_FORM_exprloc, &[2, 0x12, 0x06]);
    unit.structure("virtual", 8, [computed]);
    Folder::of(&unit.elf()).encodes(&[
        "1 x struct too large for bitfields, which are left out",
        "1 x union member off the start",
        "1 x member at a computed place",
    ]);
}

#[test]
fn more_members_than_btf_counts() {
    let mut unit = sound_unit();
    let byte = unit.base("char", 1, dw::DW_ATE_signed_char);
    let members = (0..70_000).map(|place| member(&format!("m{place}"), byte, place));
    unit.structure("wide", 70_000, members);
    let values = (0..70_000).map(|value| enumerator(&format!("V{value}"), value));
    unit.add(die(dw::DW_TAG_enumeration_type).name("many").size(4).children(values));
    let parameter = || die(dw::DW_TAG_formal_parameter).refers(byte);
    let parameters = (0..70_000).map(|_| parameter());
    unit.add(die(dw::DW_TAG_subroutine_type).children(parameters));
    let named = |place| parameter().name(&format!("p{place}"));
    unit.add(die(dw::DW_TAG_subprogram).name("twice").children((0..70_000).map(named)));
    Folder::of(&unit.elf()).encodes(&["type of more than 65535 elements"]);
}

#[test]
fn nothing_to_encode() {
    Folder::of(&elf_without_sections())
        .has_nothing("encode input -o out.btf", &["there is no DWARF in it"]);
    let text = Section { name: ".text", bytes: vec![0xc3], ..Section::debug() };
    Folder::of(&write_elf(&[text])).has_nothing("encode input -o out.btf", &["no DWARF"]);
    Folder::of(&sound_unit().elf()).has_nothing(
        "encode input -o out.btf --exclude-unit-prefix unit",
        &["it has no unit that the options admit"],
    );
    Folder::of(&sound_unit().elf())
        .has_nothing("encode input -o out.btf --lang=rust", &["no unit that the options admit"]);
    let only_root = Unit::new().elf();
    Folder::of(&only_root).has_nothing("encode input -o out.btf", &["nothing to encode"]);
}

#[test]
fn stripped_of_symbols() {
    let mut file = sound_unit().elf();
    let name = file.windows(9).position(|bytes| bytes == b".symtab\0.").unwrap();
    file[name..name + 7].copy_from_slice(b".absent");
    let folder = Folder::of(&file);
    let found = folder.encodes(&["it has no symbol table: functions and variables are left out"]);
    assert!(found.is_empty() || !found.contains("FUNC 1"), "{found}");
}

#[test]
fn damaged_symbol_table() {
    let whole = sound_unit().elf();
    let headers = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let link = headers + 3 * 64 + 40;
    assert_eq!(whole[link], 4, "the string table of `.symtab`");
    let mut damaged = whole.clone();
    damaged[link] = 99;
    Folder::of(&damaged).refuses(&["failed to read the symbol table", "has no string table"]);
    let mut damaged = whole;
    damaged[headers + 3 * 64 + 32 + 6] = 1;
    Folder::of(&damaged).refuses(&["section `.symtab`", "beyond the end of the file"]);
}

#[test]
fn output_folder_without_permission() {
    let test = "output_folder_without_permission";
    let folder = Folder::of(&sound_unit().elf());
    let mode = |name: &str, mode| {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(folder.path("closed")).unwrap();
    fs::write(folder.path("closed/out.btf"), OLD).unwrap();
    mode("closed", 0o555);
    mode("input", 0o644);
    mode("", 0o755);
    let line = "encode input -o closed/out.btf";
    let said = if fs::write(folder.path("closed/probe"), b"").is_ok() {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        let can_run = setpriv.args(["test", "-x", env!("CARGO_BIN_EXE_btfcache")]).status();
        if !can_run.is_ok_and(|status| status.success()) {
            return skip(test, "root, and no other user can run the program");
        }
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
        folder.run_in(setpriv, line)
    } else {
        folder.run(line)
    };
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    said.has(&["closed", "ermission denied"]);
    assert_eq!(fs::read(folder.path("closed/out.btf")).unwrap(), OLD);
}

#[test]
fn output_into_a_folder_that_is_not_there() {
    let folder = Folder::of(&sound_unit().elf());
    let said = folder.run("encode input -o nowhere/out.btf");
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    said.has(&["nowhere", "No such file"]);
}

#[test]
fn full_disk() {
    let mut unit = sound_unit();
    let int = unit.int();
    for number in 0..4000 {
        unit.add(die(dw::DW_TAG_typedef).name(&format!("quite_a_long_name_{number}")).refers(int));
    }
    let folder = Folder::of(&unit.elf());
    let Some(disk) = SmallDisk::mount(folder.path("disk")) else {
        return skip("full_disk", "mount is not permitted");
    };
    fs::write(disk.0.join("out.btf"), OLD).unwrap();
    let said = folder.run("encode input -o disk/out.btf");
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    said.has(&["disk", "No space left on device"]);
    assert_eq!(fs::read(disk.0.join("out.btf")).unwrap(), OLD);
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 1, "a temporary file was left behind");
}

#[test]
fn an_error_in_any_unit_is_the_error_of_the_first() {
    let (abbreviations, sound) = sound_unit().sections();
    let mut damaged = sound.clone();
    let last = damaged.len() - 2;
    damaged[last] = 0x7f;
    let info = [sound.clone(), damaged.clone(), sound.clone(), damaged, sound.clone()].concat();
    let first = format!("the unit at {:#x} of `.debug_info`", sound.len());
    let folder = Folder::of(&sound_unit().elf_of(&abbreviations, &info));
    for jobs in 1..=8 {
        let said = folder.run(&format!("encode input -o out.btf --jobs {jobs}"));
        assert_eq!(said.code, Some(2), "{}", said.stderr);
        said.has(&[first.as_str()]);
    }
}

#[test]
fn numbers_longer_than_any_number() {
    let unit = sound_unit();
    let (mut abbreviations, info) = unit.sections();
    abbreviations.splice(0..1, [0x80; 40]);
    Folder::of(&unit.elf_of(&abbreviations, &info)).refuses(&["the abbreviations at 0x0"]);
    let mut huge = Vec::new();
    uleb(&mut huge, u64::MAX);
    let mut unit = sound_unit();
    unit.add(die(dw::DW_TAG_base_type).raw(dw::DW_AT_location, dw::DW_FORM_exprloc, &huge));
    Folder::of(&unit.elf()).refuses(&["at DIE 0x", "the unit ends too early"]);
}

#[test]
fn structs_that_nest_in_more_ways_than_can_be_counted() {
    let mut unit = sound_unit();
    let mut inner = unit.int();
    for depth in 0..31 {
        let members = (0..4).map(|place| member(&format!("m{place}"), inner, place * 4));
        inner = unit.structure(&format!("nested{depth}"), 16, members);
    }
    let parameter = |number| {
        let parameter = die(dw::DW_TAG_formal_parameter).name(&format!("p{number}"));
        parameter.refers(inner).raw(dw::DW_AT_location, dw::DW_FORM_exprloc, &[1, 0x55])
    };
    unit.add(die(dw::DW_TAG_subprogram).name("f").children((0..1000).map(parameter)));
    let said = Folder::of(&unit.elf()).run("encode input -o out.btf");
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn one_long_list_of_locations_for_every_parameter() {
    let mut unit = sound_unit();
    let int = unit.int();
    let parameter = |number| {
        let parameter = die(dw::DW_TAG_formal_parameter).name(&format!("p{number}")).refers(int);
        parameter.raw(dw::DW_AT_location, dw::DW_FORM_sec_offset, &[0; 4])
    };
    unit.add(die(dw::DW_TAG_subprogram).name("f").children((0..20_000).map(parameter)));
    let entry = [&1_u64.to_le_bytes()[..], &2_u64.to_le_bytes(), &[1, 0, 0x55]].concat();
    unit.section(Section { name: ".debug_loc", bytes: entry.repeat(20_000), ..Section::debug() });
    Folder::of(&unit.elf()).refuses(&[
        "the unit at 0x0 of `.debug_info`",
        "failed to read a location list",
        "again and again",
    ]);
}

#[test]
fn a_section_that_claims_to_fill_memory() {
    let mut unit = sound_unit();
    for (method, size) in [(1_u64, 1_u64 << 30), (2, 1 << 30), (1, u64::MAX), (9, 10)] {
        let header = [method, size, 1].map(u64::to_le_bytes).concat();
        let bytes = [header, vec![0x78; 1000]].concat();
        let mut section = Section { name: ".debug_str", bytes, ..Section::debug() };
        section.flags = 0x800;
        unit.section(section);
        Folder::of(&unit.elf())
            .refuses(&["failed to read `.debug_str`", "section `.debug_str` (offset 0x"]);
        unit = sound_unit();
    }
}

/// `DW_TAG_GNU_annotation` and `DW_AT_GNU_annotation`.
const ANNOTATION: (gimli::DwTag, gimli::DwAt) = (gimli::DwTag(0x6001), gimli::DwAt(0x2139));

fn annotation(value: &str) -> Die {
    let annotation = die(ANNOTATION.0).name("btf_decl_tag");
    let value = [value.as_bytes(), b"\0"].concat();
    annotation.raw(dw::DW_AT_const_value, dw::DW_FORM_string, &value)
}

#[test]
fn annotations_without_end() {
    let mut unit = sound_unit();
    let own = unit.label();
    unit.add(annotation("again").reference(ANNOTATION.1, own).label(own));
    let tagged = die(dw::DW_TAG_structure_type).name("tagged").size(4);
    unit.add(tagged.reference(ANNOTATION.1, own));
    Folder::of(&unit.elf()).refuses(&["at DIE 0x", "annotations refer to each other without end"]);
}

#[test]
fn a_long_chain_of_annotations_for_every_struct() {
    let mut unit = sound_unit();
    let mut next = unit.add(annotation("last"));
    for number in 0..100 {
        let link = annotation(&format!("tag {number}")).reference(ANNOTATION.1, next);
        next = unit.add(link);
    }
    for number in 0..10_000 {
        let tagged = die(dw::DW_TAG_structure_type).name(&format!("tagged{number}"));
        unit.add(tagged.reference(ANNOTATION.1, next));
    }
    Folder::of(&unit.elf()).refuses(&["at DIE 0x", "annotations refer to each other without end"]);
}

#[test]
fn overlapping_abbreviation_tables() {
    let unit = sound_unit();
    let (mut table, mut info) = unit.sections();
    // A table of 1.4 MB, in which every entry is the start of a table.
    let start = table.len() as u32 - 1;
    table.pop();
    for code in 1_000_000..1_200_000 {
        uleb(&mut table, code);
        table.extend([0x24, 0, 0, 0]);
    }
    table.push(0);
    let header = info[..12].to_vec();
    for number in 0..2000 {
        let mut unit = header.clone();
        unit[..4].copy_from_slice(&8_u32.to_le_bytes());
        unit[6..10].copy_from_slice(&(start + 7 * number).to_le_bytes());
        unit[11] = 0;
        info.extend(unit);
    }
    Folder::of(&unit.elf_of(&table, &info)).refuses(&["abbreviations at 0x", "again and again"]);
}

#[test]
fn forms_in_the_die_are_read_where_they_count() {
    let mut unit = sound_unit();
    let int = unit.int();
    let subrange = die(dw::DW_TAG_subrange_type);
    let bound = [dw::DW_FORM_data1.0 as u8, 9];
    let subrange = subrange.raw(dw::DW_AT_upper_bound, dw::DW_FORM_indirect, &bound);
    let array = unit.add(die(dw::DW_TAG_array_type).refers(int).children([subrange]));
    let name = [&[dw::DW_FORM_string.0 as u8][..], b"ten\0"].concat();
    let typedef = die(dw::DW_TAG_typedef).refers(array);
    unit.add(typedef.raw(dw::DW_AT_name, dw::DW_FORM_indirect, &name));
    let folder = Folder::of(&unit.elf());
    folder.encodes(&[]);
    let written = fs::read(folder.path("out.btf")).unwrap();
    assert!(written.windows(4).any(|bytes| bytes == b"ten\0"));
    assert!(written.windows(4).any(|bytes| bytes == 10_u32.to_le_bytes()));
}

#[test]
fn a_variable_before_a_section_without_end() {
    let mut unit = sound_unit();
    let int = unit.int();
    let location = [&[9, 3][..], &0x500_u64.to_le_bytes()].concat();
    let variable = die(dw::DW_TAG_variable).name("early").refers(int);
    let external = variable.raw(dw::DW_AT_external, dw::DW_FORM_flag_present, &[]);
    unit.add(external.raw(dw::DW_AT_location, dw::DW_FORM_exprloc, &location));
    let mut endless = Section { name: ".data..percpu", kind: 8, ..Section::debug() };
    (endless.flags, endless.address) = (3, 0x1000_0000);
    unit.section(endless);
    let mut file = unit.elf();
    let headers = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    file[headers + 7 * 64 + 32..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for features in ["default", "all"] {
        let line = format!("encode input -o out.btf --features={features}");
        let said = Folder::of(&file).run(&line);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }
}

#[test]
fn names_that_share_one_endless_string() {
    let mut unit = sound_unit();
    let int = unit.int();
    for number in 0..20_000_u32 {
        let typedef = die(dw::DW_TAG_typedef).refers(int);
        unit.add(typedef.raw(dw::DW_AT_name, dw::DW_FORM_strp, &number.to_le_bytes()));
    }
    let bytes: String = (1_000_000..1_200_000).map(|number| number.to_string()).collect();
    let bytes = [bytes.as_bytes(), &[0]].concat();
    unit.section(Section { name: ".debug_str", bytes, ..Section::debug() });
    let folder = Folder::of(&unit.elf());
    let said = folder.run("encode input -o out.btf");
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    said.has(&["20000 x name that is none in C", "(first `10000001000001"]);
    assert!(said.stderr.len() < 400, "{}", said.stderr);
    assert!(fs::metadata(folder.path("out.btf")).unwrap().len() < 4 << 20);
}

/// Several units, each with its own abbreviations.
fn elf_of_units(units: &[Unit]) -> Vec<u8> {
    let (mut table, mut info) = (Vec::new(), Vec::new());
    for unit in units {
        let (abbreviations, mut bytes) = unit.sections();
        bytes[6..10].copy_from_slice(&(table.len() as u32).to_le_bytes());
        table.extend(abbreviations);
        info.extend(bytes);
    }
    units[0].elf_of(&table, &info)
}

#[test]
fn long_chains_to_a_name_with_several_meanings() {
    let with_chain = |size| {
        let mut unit = sound_unit();
        let int = unit.int();
        let mut next = unit.structure("torn", size, [member("a", int, 0)]);
        for _ in 0..50_000 {
            next = unit.add(die(dw::DW_TAG_pointer_type).refers(next));
        }
        unit
    };
    let said = Folder::of(&elf_of_units(&[4, 4, 8, 12].map(with_chain)));
    let said = said.run("encode input -o out.btf");
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn prototypes_that_nest_in_more_ways_than_can_be_counted() {
    let mut unit = sound_unit();
    let int = unit.int();
    let constant = unit.add(die(dw::DW_TAG_const_type).refers(int));
    let mut nested = |mut inner| {
        for _ in 0..14 {
            let parameter = || die(dw::DW_TAG_formal_parameter).refers(inner);
            let prototype = die(dw::DW_TAG_subroutine_type).children([parameter(), parameter()]);
            let prototype = unit.add(prototype);
            inner = unit.add(die(dw::DW_TAG_pointer_type).refers(prototype));
        }
        inner
    };
    let (first, others) = (nested(int), nested(constant));
    unit.symbol("f", TEXT);
    for number in 0..30_000 {
        let ty = if number == 0 { first } else { others };
        let name = format!("p{number}");
        let parameter = die(dw::DW_TAG_formal_parameter).name(&name).refers(ty);
        unit.add(die(dw::DW_TAG_subprogram).name("f").children([parameter]));
    }
    let said = Folder::of(&unit.elf()).run("encode input -o out.btf");
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}
