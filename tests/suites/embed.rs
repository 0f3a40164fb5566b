//! Sections embedded into what real compilers make, judged by binutils, LLVM and the programs
//! themselves.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use btfcache::embed::{Edit, EmbedError, Placement, embed, has_module_signature, note};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use crate::harness::Test;

const PROGRAM: &str = r#"
#include <stdio.h>
static int counter = 6;
__thread int local = 1;
int main(void) { printf("answer %d\n", counter * 7 * local); return 0; }
"#;

/// Prints the bytes of a loaded `.BTF` as a program sees them.
const LOADED: &str = r#"
#include <stdio.h>
__attribute__((section(".BTF"), used)) const char types[16] = "0123456789abcdef";
int main(void) { printf("%.16s\n", types); return 0; }
"#;

/// The signal of a process that writes more than it may.
const SIGXFSZ: i32 = 25;

/// A folder for one test.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles `source` with gcc; `None`, and a line on stderr, without gcc.
    fn compile(&self, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let (input, output) = (self.path(&format!("{name}.c")), self.path(name));
        fs::write(&input, source).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(flags).arg("-g").arg("-o").arg(&output).arg(&input);
        run(&mut gcc).then_some(output)
    }

    fn assemble(&self, name: &str, source: &str) -> Option<PathBuf> {
        let (input, output) = (self.path(&format!("{name}.s")), self.path(name));
        fs::write(&input, source).unwrap();
        run(Command::new("as").arg("-o").arg(&output).arg(&input)).then_some(output)
    }

    /// The contents of a section, as objcopy finds them.
    fn dumped(&self, file: &Path, section: &str) -> Vec<u8> {
        let bytes = self.path("dumped");
        let dump = format!("--dump-section={section}={}", bytes.display());
        assert!(run(Command::new("objcopy").arg(dump).arg(file).arg(self.path("copy"))));
        fs::read(bytes).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Says so on stderr, past the test harness, which captures what `eprintln!` prints.
fn skip(why: &str) {
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "SKIPPED: {why}").unwrap();
}

/// Runs a tool that must succeed; false if it is not installed.
fn run(command: &mut Command) -> bool {
    let name = command.get_program().to_owned();
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{command:?}: {output:?}");
            true
        }
        Err(_) => {
            skip(&format!("{} is not installed", name.display()));
            false
        }
    }
}

fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success() && stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn readelf(flags: &str, file: &Path) -> String {
    output(Command::new("readelf").arg(flags).arg(file))
}

/// The lines of `readelf -SW` that describe a section, without the null section, whose size may be
/// the number of sections, and without those named in `except`.
fn section_lines(file: &Path, except: &[&str]) -> Vec<String> {
    let is_section = |line: &&str| line.trim_start().starts_with('[') && !line.contains("[Nr]");
    let named = |line: &str| except.iter().any(|name| line.split_whitespace().any(|w| w == *name));
    let text = readelf("-SW", file);
    let sections = text.lines().filter(is_section).skip(1);
    sections.filter(|line| !named(line)).map(str::to_owned).collect()
}

fn long(byte: u8) -> Vec<u8> {
    vec![byte; 5000]
}

#[test]
fn executables_run_and_differ_only_in_the_new_sections() {
    let bench = Bench::new();
    for (name, flags) in [
        ("fixed", ["-no-pie"].as_slice()),
        ("pie", &["-pie", "-fPIE"]),
        ("shared", &["-shared", "-fPIC"]),
    ] {
        let Some(program) = bench.compile(name, PROGRAM, flags) else {
            return;
        };
        let sections = section_lines(&program, &[".shstrtab"]);
        let (segments, symbols) = (readelf("-lW", &program), readelf("-sW", &program));
        let old = fs::read(&program).unwrap();
        let types = long(1);
        embed(&program, &[(".BTF", &types), (".BTF.base", b"base")]).unwrap();

        assert_eq!(section_lines(&program, &[".shstrtab", ".BTF", ".BTF.base"]), sections);
        assert_eq!((readelf("-lW", &program), readelf("-sW", &program)), (segments, symbols));
        for line in section_lines(&program, &[]).split_off(sections.len() + 1) {
            assert!(line.contains(" PROGBITS        0000000000000000 "), "{line}");
            assert!(line.ends_with(" 00      0   0  1"), "{line}");
        }
        // Up to the new bytes, only the file header changed.
        let new = fs::read(&program).unwrap();
        let start = new.windows(types.len()).position(|window| window == types).unwrap();
        assert_eq!(new[64..start - 8], old[64..start - 8]);
        assert_eq!(bench.dumped(&program, ".BTF"), types);
        assert_eq!(bench.dumped(&program, ".BTF.base"), b"base");
        if name != "shared" {
            assert_eq!(output(&mut Command::new(&program)), "answer 42\n");
        }
    }
}

#[test]
fn objects_can_be_linked() {
    let bench = Bench::new();
    let Some(object) = bench.compile("unit.o", PROGRAM, &["-c", "-ffunction-sections"]) else {
        return;
    };
    let sections = section_lines(&object, &[".shstrtab"]);
    let relocations = readelf("-rW", &object);
    embed(&object, &[(".BTF", &long(1))]).unwrap();
    assert_eq!(section_lines(&object, &[".shstrtab", ".BTF"]), sections);
    assert_eq!(readelf("-rW", &object), relocations);

    let (joined, program) = (bench.path("joined.o"), bench.path("program"));
    assert!(run(Command::new("ld").arg("-r").arg("-o").arg(&joined).arg(&object)));
    assert_eq!(bench.dumped(&joined, ".BTF"), long(1));
    for object in [object, joined] {
        assert!(run(Command::new("gcc").arg("-o").arg(&program).arg(&object)));
        assert_eq!(output(&mut Command::new(&program)), "answer 42\n");
    }
}

#[test]
fn the_same_content_gives_the_same_file_and_old_space_is_used_again() {
    let bench = Bench::new();
    for (name, flags) in [("program", ["-pie"].as_slice()), ("unit.o", &["-c"])] {
        let Some(file) = bench.compile(name, PROGRAM, flags) else {
            return;
        };
        let mut results = Vec::new();
        for bytes in [long(1), long(1), vec![2; 10], long(1), vec![3; 9000], long(1)] {
            let edit = Edit { sections: &[(".BTF", &bytes)], remove: &[".BTF.base"] };
            edit.apply(&file).unwrap();
            assert_eq!(bench.dumped(&file, ".BTF"), bytes);
            results.push(fs::read(&file).unwrap());
        }
        for same in [1, 3, 5] {
            assert!(results[same] == results[0], "{name}: run {same} gave other bytes");
        }
    }
}

#[test]
fn sections_that_objcopy_made_are_replaced() {
    let bench = Bench::new();
    let Some(program) = bench.compile("program", PROGRAM, &[]) else {
        return;
    };
    fs::write(bench.path("old"), long(9)).unwrap();
    for tool in ["objcopy", "llvm-objcopy"] {
        let file = bench.path(tool);
        let add = format!("--add-section=.BTF={}", bench.path("old").display());
        if !run(Command::new(tool).arg(add).arg(&program).arg(&file)) {
            continue;
        }
        let others = section_lines(&file, &[".BTF", ".shstrtab"]);
        for bytes in [vec![1; 100], long(2), vec![3; 9000]] {
            let edit = Edit { sections: &[(".BTF", &bytes)], remove: &[] };
            assert_eq!(edit.apply(&file).unwrap(), [Placement::Replaced]);
            assert_eq!(bench.dumped(&file, ".BTF"), bytes);
            assert_eq!(section_lines(&file, &[".BTF", ".shstrtab"]), others);
            assert_eq!(output(&mut Command::new(&file)), "answer 42\n");
        }
    }
}

#[test]
fn a_removed_section_is_gone_for_every_tool() {
    let bench = Bench::new();
    for (name, flags) in [("program", ["-pie"].as_slice()), ("unit.o", &["-c"])] {
        let Some(file) = bench.compile(name, PROGRAM, flags) else {
            return;
        };
        embed(&file, &[(".BTF.base", b"base"), (".BTF", b"types")]).unwrap();
        let edit = Edit { sections: &[(".BTF", b"other")], remove: &[".BTF.base"] };
        edit.apply(&file).unwrap();
        assert!(!readelf("-SW", &file).contains(".BTF.base"));
        assert_eq!(bench.dumped(&file, ".BTF"), b"other");
        for tool in ["objcopy", "llvm-objcopy"] {
            let copy = bench.path("copy");
            if run(Command::new(tool).arg(&file).arg(&copy)) {
                assert!(!readelf("-SW", &copy).contains(".BTF.base"), "{tool}");
            }
        }
        let program = bench.path("linked");
        if flags == ["-c"] {
            assert!(run(Command::new("gcc").arg("-o").arg(&program).arg(&file)));
        } else {
            fs::copy(&file, &program).unwrap();
        }
        assert_eq!(output(&mut Command::new(&program)), "answer 42\n");
    }
}

#[test]
fn a_loaded_section_stays_as_the_program_knows_it() {
    let bench = Bench::new();
    for (name, flags) in [("fixed", ["-no-pie"].as_slice()), ("pie", &["-pie"])] {
        let Some(program) = bench.compile(name, LOADED, flags) else {
            return;
        };
        let segments = readelf("-lW", &program);
        let apply = |bytes: &[u8]| {
            Edit { sections: &[(".BTF", bytes)], remove: &[] }.apply(&program).unwrap()
        };
        assert_eq!(apply(b"abcdefghijklmnop"), [Placement::Replaced]);
        assert_eq!(readelf("-lW", &program), segments);
        assert_eq!(output(&mut Command::new(&program)), "abcdefghijklmnop\n");

        assert_eq!(apply(b"short"), [Placement::Detached]);
        assert_eq!(bench.dumped(&program, ".BTF"), b"short");
        assert_eq!(apply(&long(1)), [Placement::Replaced]);
        assert_eq!(bench.dumped(&program, ".BTF"), long(1));
        assert_eq!(output(&mut Command::new(&program)), "abcdefghijklmnop\n");
        // Only the list of sections in segments is another.
        let headers = |text: &str| text.split("Section to Segment").next().map(str::to_owned);
        assert_eq!(headers(&readelf("-lW", &program)), headers(&segments));
    }
}

#[test]
fn relocations_of_old_bytes_do_not_reach_a_linker() {
    let bench = Bench::new();
    let source = ".globl _start\n_start:\n nop\n.section .BTF\n.long 1\n.quad _start\n";
    let Some(object) = bench.assemble("unit.o", source) else {
        return;
    };
    assert!(readelf("-SW", &object).contains(".rela.BTF"));
    embed(&object, &[(".BTF", &long(1))]).unwrap();
    assert!(!readelf("-SW", &object).contains(".rela.BTF"));
    for flags in [["-r"].as_slice(), &[]] {
        let linked = bench.path("linked");
        assert!(run(Command::new("ld").args(flags).arg("-o").arg(&linked).arg(&object)));
        assert_eq!(bench.dumped(&linked, ".BTF"), long(1));
    }
}

#[test]
fn more_sections_than_the_header_can_count() {
    let bench = Bench::new();
    let many = (0..66_000).map(|number| format!(".section .s{number}\n"));
    let source = many.collect::<String>() + ".text\n.globl _start\n_start:\n nop\n";
    let Some(object) = bench.assemble("unit.o", &source) else {
        return;
    };
    let (sections, symbols) = (section_lines(&object, &[".shstrtab"]), readelf("-sW", &object));
    assert!(sections.len() > 0xff00, "{}", sections.len());
    embed(&object, &[(".BTF", b"types")]).unwrap();
    assert!(section_lines(&object, &[".shstrtab", ".BTF"]) == sections);
    assert!(readelf("-sW", &object) == symbols);
    let linked = bench.path("linked");
    assert!(run(Command::new("ld").arg("-o").arg(&linked).arg(&object)));
    assert_eq!(bench.dumped(&linked, ".BTF"), b"types");
}

#[test]
fn other_machines() {
    let bench = Bench::new();
    let input = bench.path("unit.s");
    fs::write(&input, ".globl start\nstart:\n.long start\n.data\n.long start\n").unwrap();
    for triple in ["powerpc", "mips", "sparc", "i386", "arm", "powerpc64", "s390x", "riscv64"] {
        let file = bench.path(triple);
        let mut assembler = Command::new("llvm-mc");
        assembler.arg("-filetype=obj").arg(format!("-triple={triple}-linux-gnu"));
        if !run(assembler.arg("-o").arg(&file).arg(&input)) {
            return;
        }
        // LLVM keeps names of sections and symbols in one table.
        let sections = section_lines(&file, &[".strtab"]);
        let (symbols, relocations) = (readelf("-sW", &file), readelf("-rW", &file));
        for bytes in [long(1), b"types".to_vec(), long(1)] {
            embed(&file, &[(".BTF", &bytes)]).unwrap();
            let dump = format!("--dump-section=.BTF={}", bench.path("dumped").display());
            if run(Command::new("llvm-objcopy").arg(dump).arg(&file).arg(bench.path("copy"))) {
                assert_eq!(fs::read(bench.path("dumped")).unwrap(), bytes, "{triple}");
            }
            assert_eq!(section_lines(&file, &[".strtab", ".BTF"]), sections);
            assert_eq!(
                (readelf("-sW", &file), readelf("-rW", &file)),
                (symbols.clone(), relocations.clone())
            );
        }
    }
}

#[test]
fn a_note_is_one_for_every_tool() {
    let bench = Bench::new();
    let Some(module) = bench.compile("module.ko", PROGRAM, &["-c"]) else {
        return;
    };
    let (first, second) = (note::base_digest(b"one base"), note::base_digest(b"another"));
    for digest in [first, second] {
        let bytes = note::to_bytes(&digest, false);
        let sections: &[(&str, &[u8])] = &[(".BTF", b"types"), (note::SECTION, &bytes)];
        embed(&module, sections).unwrap();
        let line = section_lines(&module, &[])
            .into_iter()
            .find(|line| line.contains(note::SECTION))
            .expect("the section is there");
        assert!(line.contains(" NOTE ") && line.ends_with(" 0   0  4"), "{line}");
        assert!(!line.contains(" A "), "it must not be loaded: {line}");
    }
    let told = readelf("-nW", &module);
    let hex = second
        .to_hex()
        .as_bytes()
        .chunks(2)
        .fold(String::new(), |text, byte| text + std::str::from_utf8(byte).unwrap() + " ");
    assert!(told.contains("btfcache") && told.contains(hex.trim_end()), "{told}");
    assert_eq!(note::parse(&bench.dumped(&module, note::SECTION), false), Ok(Some(second)));
    // Kernel builds strip modules like that when they install them.
    if run(Command::new("strip").arg("--strip-debug").arg(&module)) {
        assert_eq!(note::parse(&bench.dumped(&module, note::SECTION), false), Ok(Some(second)));
        assert_eq!(bench.dumped(&module, ".BTF"), b"types");
    }
}

#[test]
fn a_signed_module_is_refused_or_loses_its_signature() {
    let bench = Bench::new();
    let Some(module) = bench.compile("module.ko", PROGRAM, &["-c"]) else {
        return;
    };
    let plain = fs::read(&module).unwrap();
    assert!(!has_module_signature(&plain));
    let signed = signed(&plain, 300);
    assert!(has_module_signature(&signed));
    fs::write(&module, &signed).unwrap();
    let sections: &[(&str, &[u8])] = &[(".BTF", b"types")];
    assert!(matches!(embed(&module, sections), Err(EmbedError::Signed)));
    assert_eq!(fs::read(&module).unwrap(), signed);

    let edit = Edit { sections, remove: &[] };
    assert_eq!(edit.apply_unsigned(&module).unwrap(), [Placement::Added]);
    let stripped = fs::read(&module).unwrap();
    fs::write(&module, &plain).unwrap();
    embed(&module, sections).unwrap();
    assert_eq!(fs::read(&module).unwrap(), stripped);

    // With nothing else to do, and with a signature that cannot be one.
    fs::write(&module, &signed).unwrap();
    assert_eq!(Edit::default().apply_unsigned(&module).unwrap(), []);
    assert_eq!(fs::read(&module).unwrap(), plain);
    let damaged = [&plain[..20], b"~Module signature appended~\n"].concat();
    fs::write(&module, &damaged).unwrap();
    let error = Edit::default().apply_unsigned(&module).unwrap_err();
    assert!(matches!(error, EmbedError::Signature), "{error}");
    assert_eq!(fs::read(&module).unwrap(), damaged);
}

#[test]
fn encode_strips_a_signature_only_when_told() {
    let bench = Bench::new();
    let Some(module) = bench.compile("module.ko", PROGRAM, &["-c"]) else {
        return;
    };
    let signed = signed(&fs::read(&module).unwrap(), 300);
    let ran = Test::new().file("module.ko", &signed).args("encode --in-place module.ko").fails(2);
    let said = "the module is signed, and any change makes the signature wrong";
    let ran = ran.stderr_has(said).stderr_has("--strip-signature").content("module.ko", &signed);
    let test = ran.files(&["module.ko"]).again();
    let ran = test.args("encode --in-place --strip-signature module.ko").succeeds();
    ran.again().args("verify module.ko").succeeds().stdout("");
    let line = "encode --strip-signature module.ko -o out.btf";
    Test::new().file("module.ko", &signed).args(line).fails(2).absent("out.btf");
}

/// What `sign-file` of the kernel appends: a signature of so many bytes.
fn signed(module: &[u8], size: u32) -> Vec<u8> {
    let mut bytes = module.to_vec();
    bytes.resize(module.len() + size as usize, 0x30);
    bytes.extend([0, 0, 2, 0, 0, 0, 0, 0]);
    bytes.extend(size.to_be_bytes());
    bytes.extend_from_slice(b"~Module signature appended~\n");
    bytes
}

#[test]
fn attributes_and_links_are_kept() {
    let bench = Bench::new();
    let Some(program) = bench.compile("program", PROGRAM, &[]) else {
        return;
    };
    let (link, second) = (bench.path("link"), bench.path("second"));
    symlink("program", &link).unwrap();
    fs::hard_link(&program, &second).unwrap();
    // Only root can give files away; everybody else sees the owner stay the same.
    let _ = chown(&program, Some(1234), Some(4321));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6751)).unwrap();
    let old = program.metadata().unwrap();
    let attributes = |path: &Path| {
        let metadata = path.metadata().unwrap();
        (metadata.mode(), metadata.uid(), metadata.gid())
    };

    embed(&link, &[(".BTF", b"types")]).unwrap();
    assert!(link.is_symlink());
    assert_eq!(bench.dumped(&program, ".BTF"), b"types");
    assert_eq!(attributes(&program), (old.mode(), old.uid(), old.gid()));
    assert_eq!(second.metadata().unwrap().ino(), old.ino());
    assert!(!readelf("-SW", &second).contains(".BTF"));

    // Nothing to change, yet a build system must see that something was done.
    let stale = std::time::SystemTime::UNIX_EPOCH;
    for mode in [0o6751, 0o444, 0o755] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        fs::File::open(&program).unwrap().set_modified(stale).unwrap();
        embed(&program, &[(".BTF", b"types")]).unwrap();
        assert_ne!(program.metadata().unwrap().modified().unwrap(), stale);
        assert_eq!(attributes(&program).0 & 0o7777, mode);
    }
}

/// A limit on the size of files kills a process in the middle of writing one.
#[test]
fn a_killed_write_leaves_nothing_behind() {
    let bench = Bench::new();
    // Its BTF must exceed the limit, whatever the shell counts in.
    let structs =
        (0..200).map(|number| format!("struct s{number} {{ int a{number}; }} v{number};\n"));
    let source = structs.collect::<String>() + PROGRAM;
    let Some(program) = bench.compile("program", &source, &[]) else {
        return;
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    if rustix::fs::open(bench.0.path(), flags, Mode::from_raw_mode(0o600)).is_err() {
        return skip("the file system has no files without a name");
    }
    let (old, names) = (fs::read(&program).unwrap(), bench.names());
    for line in ["--in-place program", "program -o new.btf", "program -o program.c"] {
        let btfcache = env!("CARGO_BIN_EXE_btfcache");
        let script = format!("ulimit -c 0; ulimit -f 1; exec {btfcache} encode {line}");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).current_dir(bench.0.path()).env("BTFCACHE_DISABLE", "1");
        let status = shell.output().unwrap().status;
        assert_eq!(status.signal(), Some(SIGXFSZ), "{line}: {status}");
        assert_eq!(bench.names(), names, "{line}");
        assert_eq!(fs::read(&program).unwrap(), old, "{line}");
        assert_eq!(fs::read_to_string(bench.path("program.c")).unwrap(), source, "{line}");
    }
}

#[test]
fn failures_name_the_path_and_change_nothing() {
    let bench = Bench::new();
    let sections: &[(&str, &[u8])] = &[(".BTF", b"types")];
    for (name, content) in [("text", Some("not an ELF file".as_bytes())), ("missing", None)] {
        let path = bench.path(name);
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let error = embed(&path, sections).unwrap_err();
        match content {
            Some(_) => assert!(matches!(error, EmbedError::NotElf)),
            None => assert!(error.to_string().contains(path.to_str().unwrap())),
        }
    }
    assert!(matches!(embed(bench.0.path(), sections), Err(EmbedError::NotAFile(_))));
    assert!(matches!(embed(Path::new("/dev/null"), sections), Err(EmbedError::NotAFile(_))));
    assert_eq!(bench.names(), ["text"]);

    let Some(program) = bench.compile("program", PROGRAM, &[]) else {
        return;
    };
    let (old, names) = (fs::read(&program).unwrap(), bench.names());
    fs::set_permissions(bench.0.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(bench.path("probe"), b"").is_ok() {
        writeln!(std::io::stderr(), "SKIPPED: unwritable folder: root may write anywhere").unwrap();
        return;
    }
    let error = embed(&program, sections).unwrap_err();
    assert!(error.to_string().contains(program.to_str().unwrap()), "{error}");
    assert_eq!((fs::read(&program).unwrap(), bench.names()), (old, names));
}
