//! Random bytes of what compilers write are changed: no panic, no hang, no memory without bound,
//! and what is written can be read. The seed is fixed; a failure names its number. With
//! `BTFCACHE_TEST_FLIPS=FACTOR` there are so many times more.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use btfcache::btf::read::Btf;
use btfcache::btf::verify::verify;
use btfcache::elf::{ElfFile, Section};
use btfcache::options::{Feature, Features, Options};
use btfcache::pipeline;
use btfcache::timing::Timing;

use super::Folder;
use crate::dwarf_builder::compiled;
use crate::harness::skip;
use crate::suites::languages::{CLASSES, RUST};

/// A damaged file of 30 KB may take this long on a slow, busy machine.
const TOO_LONG: Duration = Duration::from_secs(10);
/// All runs together may add this much to the memory of the process.
const TOO_MUCH: u64 = 1 << 30;

/// What is compiled: name, compiler, flags.
const OBJECTS: [(&str, &str, &str); 11] = [
    ("gcc.o", "gcc", "-gdwarf-5 -c"),
    ("gcc.so", "gcc", "-gdwarf-4 -gstrict-dwarf -shared -nostdlib -fPIC"),
    ("gcc2.o", "gcc", "-gdwarf-2 -gstrict-dwarf -c"),
    ("clang.o", "clang", "-gdwarf-5 -c"),
    ("s390x.o", "clang", "-gdwarf-5 -c -ffreestanding --target=s390x-linux-gnu"),
    ("powerpc.o", "clang", "-gdwarf-3 -c -ffreestanding --target=powerpc-linux-gnu"),
    ("types4.o", "gcc", "-gdwarf-4 -fdebug-types-section -c"),
    ("types5.so", "gcc", "-gdwarf-5 -fdebug-types-section -shared -nostdlib -fPIC"),
    ("lto.so", "gcc", "-gdwarf-5 -flto -shared -nostdlib -fPIC"),
    ("split4.so", "clang", "-gdwarf-4 -gsplit-dwarf -shared -nostdlib -fPIC"),
    ("split5.so", "gcc", "-gdwarf-5 -gsplit-dwarf -shared -nostdlib -fPIC"),
];

/// What compilers of other languages make of files of `tests/data/languages`: name, compiler, flags,
/// source.
const LANGUAGES: [(&str, &str, &str, &str); 5] = [
    ("fortran.o", "gfortran", "-g -O1 -c", "shapes.f90"),
    ("d.o", "gdc", "-g -O1 -c", "shapes.d"),
    ("modula.o", "gm2", "-g -c", "Sets.mod"),
    ("cpp.o", "g++", "-std=c++17 -g -O1 -c", "classes.cpp"),
    ("rust.o", "rustc", "--crate-type=lib -g --emit=obj -Awarnings", "shapes.rs"),
];

/// Compiles one of [`LANGUAGES`].
fn of_language(
    folder: &Folder,
    (name, compiler, flags, source): (&str, &str, &str, &str),
) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/languages");
    fs::write(folder.path("classes.cpp"), CLASSES).unwrap();
    fs::write(folder.path("shapes.rs"), RUST).unwrap();
    let own = folder.path(source);
    let source = if own.exists() { own } else { sources.join(source) };
    let mut command = Command::new(compiler);
    command.args(flags.split_whitespace()).arg("-o").arg(folder.path(name)).arg(source);
    let ran = command.current_dir(folder.path(".")).output().ok()?;
    assert!(ran.status.success(), "{ran:?}");
    Some(folder.path(name))
}

/// An archive of two objects.
fn archive(folder: &Folder) -> Option<PathBuf> {
    for name in ["first.o", "second.o"] {
        compiled(&folder.path(name), "gcc", "-gdwarf-5 -c")?;
    }
    let mut command = Command::new("ar");
    command.args(["rcs", "two.a", "first.o", "second.o"]);
    let ran = command.current_dir(folder.path(".")).output().ok()?;
    assert!(ran.status.success(), "{ran:?}");
    Some(folder.path("two.a"))
}

/// A file to be damaged.
struct Seed {
    bytes: Vec<u8>,
    /// Where bytes are changed.
    ranges: Vec<Range<usize>>,
    /// Where the damaged one lies, and what is encoded, if that is another file that leads to it.
    part: Option<(PathBuf, Vec<u8>)>,
}

impl Seed {
    fn of(
        path: &Path,
        headers: &impl Fn(&[u8]) -> Vec<Range<usize>>,
        is_wanted: &impl Fn(&Section) -> bool,
    ) -> Self {
        let bytes = fs::read(path).unwrap();
        let elf = ElfFile::open(path).unwrap();
        let sections = elf.sections().iter().filter(|section| is_wanted(section));
        let range = |section: &Section| {
            let start = section.offset as usize;
            start..start + section.size as usize
        };
        let mut ranges = headers(&bytes);
        ranges.extend(sections.map(range).filter(|range| !range.is_empty()));
        Self { bytes, ranges, part: None }
    }

    /// An archive, the first member of which is `member`.
    fn of_archive(
        path: &Path,
        member: &Path,
        headers: &impl Fn(&[u8]) -> Vec<Range<usize>>,
        is_wanted: &impl Fn(&Section) -> bool,
    ) -> Self {
        let member = Self::of(member, headers, is_wanted);
        let bytes = fs::read(path).unwrap();
        let start = bytes.windows(64).position(|window| window == &member.bytes[..64]).unwrap();
        let within = member.ranges.iter().map(|range| range.start + start..range.end + start);
        // Its own headers as well.
        let ranges = within.chain(std::iter::once(0..start)).collect();
        Self { bytes, ranges, part: None }
    }

    /// Writes a damaged copy as `input`, or beside it what that leads to.
    fn write(&self, damaged: &[u8], input: &Path) {
        match &self.part {
            None => fs::write(input, damaged).unwrap(),
            Some((path, whole)) => {
                fs::write(input, whole).unwrap();
                fs::write(path, damaged).unwrap();
            }
        }
    }
}

/// What `dwz` makes of several files: one of them, and what they have in common.
fn without_duplicates(folder: &Folder) -> Option<[PathBuf; 2]> {
    let names = ["one.so", "two.so"];
    for name in names {
        compiled(&folder.path(name), "gcc", "-gdwarf-5 -shared -nostdlib -fPIC")?;
    }
    let ran = Command::new("dwz")
        .args(["-m", "common.debug", "-M", "common.debug"])
        .args(names)
        .current_dir(folder.path("."))
        .output()
        .ok()?;
    assert!(ran.status.success(), "{ran:?}");
    Some([folder.path(names[0]), folder.path("common.debug")])
}

#[test]
fn in_debug_sections() {
    let is_wanted = |section: &Section| {
        let name = section.name.strip_prefix(b".rela").unwrap_or(&section.name);
        name.starts_with(b".debug_") && !name.ends_with(b"line") && !name.ends_with(b"frame")
    };
    flip("flips::in_debug_sections", 2000, |_| Vec::new(), is_wanted);
}

#[test]
fn in_headers_and_symbols() {
    let is_wanted = |section: &Section| {
        [&b".symtab"[..], b".strtab", b".shstrtab", b".rela.debug_info"]
            .contains(&&section.name[..])
    };
    let headers = |bytes: &[u8]| {
        // The section headers come last.
        vec![0..64, bytes.len() - 1000..bytes.len(), bytes.len() - 1000..bytes.len()]
    };
    flip("flips::in_headers_and_symbols", 1000, headers, is_wanted);
}

fn flip(
    test: &str,
    count: usize,
    headers: impl Fn(&[u8]) -> Vec<Range<usize>>,
    is_wanted: impl Fn(&Section) -> bool,
) {
    let folder = Folder::new();
    let mut targets: Vec<Seed> = Vec::new();
    for (name, compiler, flags) in OBJECTS {
        let Some(path) = compiled(&folder.path(name), compiler, flags) else {
            skip(test, &format!("no {compiler}"));
            continue;
        };
        let seed = Seed::of(&path, &headers, &is_wanted);
        // The file that has the DWARF is damaged as well.
        let beside = fs::read_dir(folder.path(".")).unwrap().map(|entry| entry.unwrap().path());
        for split in beside.filter(|path| path.extension().is_some_and(|ending| ending == "dwo")) {
            if !targets.iter().any(|seed| seed.part.as_ref().is_some_and(|part| part.0 == split)) {
                let part = Some((split.clone(), seed.bytes.clone()));
                targets.push(Seed { part, ..Seed::of(&split, &headers, &is_wanted) });
            }
        }
        targets.push(seed);
    }
    for language in LANGUAGES {
        match of_language(&folder, language) {
            Some(path) => targets.push(Seed::of(&path, &headers, &is_wanted)),
            None => skip(test, &format!("no {}", language.1)),
        }
    }
    if let Some(path) = archive(&folder) {
        targets.push(Seed::of_archive(&path, &folder.path("first.o"), &headers, &is_wanted));
    }
    if let Some([one, common]) = without_duplicates(&folder) {
        let whole = fs::read(&one).unwrap();
        targets.push(Seed::of(&one, &headers, &is_wanted));
        let part = Some((common.clone(), whole));
        targets.push(Seed { part, ..Seed::of(&common, &headers, &is_wanted) });
    } else {
        skip(test, "no dwz");
    }
    if targets.is_empty() {
        return;
    }
    let factor = std::env::var("BTFCACHE_TEST_FLIPS").map_or(1, |factor| factor.parse().unwrap());
    let count = count * factor;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let before = peak_memory();
    let watchdog = Watchdog::start();
    let mut written = 0;
    for number in 0..count {
        let seed = &targets[number % targets.len()];
        let damaged = random.damaged(&seed.bytes, &seed.ranges);
        seed.write(&damaged, &folder.path("input"));
        watchdog.expect(format!("{test}: number {number}"));
        let options = options(number);
        if let Some(btf) = pool.install(|| encode(&folder.path("input"), &options)) {
            check(&btf, &format!("{test}: number {number}"));
            written += usize::from(!btf.is_empty());
        }
        if number.is_multiple_of(count / 50) {
            through_the_program(&folder, number);
        }
    }
    assert!(written > count / 20, "only {written} of {count} were encoded at all");
    let grown = peak_memory().saturating_sub(before);
    assert!(grown < TOO_MUCH, "{grown} bytes of memory");
}

fn options(number: usize) -> Options {
    let features =
        if number.is_multiple_of(2) { Features::DEFAULT } else { Features::of(&Feature::ALL) };
    Options { features, compat_pahole: number.is_multiple_of(3), ..Options::default() }
}

fn encode(input: &Path, options: &Options) -> Option<Vec<u8>> {
    pipeline::encode(input, None, options, &Timing::default()).ok().map(|encoded| encoded.btf)
}

fn check(bytes: &[u8], what: &str) {
    if !bytes.is_empty() {
        let btf = Btf::parse(bytes, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(btf.first_unknown(), None, "{what}");
        // Damaged names and offsets are handed on; judging them must not fail.
        std::hint::black_box(verify(&btf));
    }
}

/// The same file through the program: an exit code that means something, and all or nothing.
fn through_the_program(folder: &Folder, number: usize) {
    fs::write(folder.path("out.btf"), super::OLD).unwrap();
    let said = folder.run("encode input -o out.btf");
    let written = fs::read(folder.path("out.btf")).unwrap();
    match said.code {
        Some(0) if written == super::OLD => assert!(said.stderr.contains("nothing to encode")),
        Some(0) => check(&written, &format!("number {number}")),
        Some(2) => assert_eq!(written, super::OLD),
        code => panic!("number {number}: exit code {code:?}\n{}", said.stderr),
    }
}

/// Ends the process if an expected end does not come in time.
struct Watchdog(Sender<String>);

impl Watchdog {
    fn start() -> Self {
        let (sender, beats) = channel::<String>();
        std::thread::spawn(move || {
            let mut last = String::new();
            loop {
                match beats.recv_timeout(TOO_LONG) {
                    Ok(next) => last = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        skip(&last, "it takes too long: the tests are stopped");
                        std::process::abort();
                    }
                }
            }
        });
        Self(sender)
    }

    fn expect(&self, what: String) {
        self.0.send(what).unwrap();
    }
}

/// The largest resident size that this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end
    }

    /// A copy with one to eight bytes of one of `ranges` changed, some to values that matter.
    fn damaged(&mut self, bytes: &[u8], ranges: &[Range<usize>]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        let range = ranges[self.below(ranges.len())].clone();
        for _ in 0..1 + self.below(8) {
            let place = range.start + self.below(range.len());
            damaged[place] = match self.below(4) {
                0 => [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                1 => damaged[place] ^ (1 << self.below(8)),
                _ => self.next() as u8,
            };
        }
        damaged
    }
}
