//! What can happen to a cache: damage, missing rights, other versions, full disks, killed and
//! crowding processes. Each time: the right output, exit status 0, one warning at most, counted.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

use super::Bench;
use crate::harness::skip;

/// A thing to do to a file of the cache.
type Harm = (&'static str, fn(&Path));

const HARMS: [Harm; 8] = [
    ("cut", |path| {
        let size = path.metadata().unwrap().len();
        OpenOptions::new().write(true).open(path).unwrap().set_len(size / 2).unwrap();
    }),
    ("emptied", |path| fs::write(path, b"").unwrap()),
    ("first byte flipped", |path| flip(path, 0)),
    ("last byte flipped", |path| flip(path, path.metadata().unwrap().len() as usize - 1)),
    ("replaced by a folder", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir_all(path.join("folder")).unwrap();
    }),
    ("replaced by a dead link", |path| {
        fs::remove_file(path).unwrap();
        symlink("/nowhere", path).unwrap();
    }),
    ("unreadable", |path| fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap()),
    ("grown", |path| fs::write(path, vec![7; 100_000]).unwrap()),
];

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// A bench whose cache knows `program` by content and by its times.
fn filled(test: &str) -> Option<(Bench, Vec<u8>)> {
    let bench = Bench::new(test)?;
    let expected = bench.expected("program");
    std::thread::sleep(Duration::from_millis(2100));
    bench.check("program", &expected);
    Some((bench, expected))
}

/// Encodes; the output must be right, with one warning at most.
fn survives(bench: &Bench, expected: &[u8], what: &str) -> bool {
    let output = bench.command("encode program -o out.btf").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}");
    assert!(text.lines().count() <= 1, "{what}: {text}");
    assert!(fs::read(bench.path("out.btf")).unwrap() == expected, "{what}");
    !text.is_empty()
}

#[test]
fn no_damage_of_any_file_shows_in_the_output() {
    let Some((bench, expected)) = filled("no_damage_of_any_file_shows_in_the_output") else {
        return;
    };
    let count = bench.files().len();
    assert!(count >= 4, "{:?}", bench.files());
    for (name, harm) in HARMS {
        for index in 0..count {
            fs::remove_dir_all(bench.path("cache")).unwrap();
            bench.check("program", &expected);
            let files = bench.files();
            // An empty lock file has no byte to flip.
            let path = &files[index % files.len()];
            if path.metadata().unwrap().len() == 0 && name.contains("flipped") {
                continue;
            }
            harm(path);
            let what = format!("{} {name}", path.display());
            let problems = || bench.count("damaged") + bench.count("version") + bench.count("io");
            let warned = survives(&bench, &expected, &what);
            let is_value = ["/results/", "/stat/"].iter().any(|part| what.contains(part));
            // The superuser reads everything, and a link to nothing is like no file.
            let is_harmless = ["unreadable", "dead link"].iter().any(|part| name.contains(part));
            if is_value && !is_harmless {
                assert!(warned, "{what}");
                assert_eq!(problems(), 1, "{what}");
            }
            survives(&bench, &expected, &what);
            assert!(!survives(&bench, &expected, &what) || !is_value, "{what}: it stays");
        }
    }
}

#[test]
fn a_cache_that_cannot_be_used_is_told_once() {
    let Some((bench, expected)) = filled("a_cache_that_cannot_be_used_is_told_once") else {
        return;
    };
    let cache = bench.path("cache");
    let harms: [Harm; 4] = [
        ("a file", |cache| fs::write(cache, b"").unwrap()),
        ("of somebody else", |cache| {
            fs::create_dir_all(cache.join("v1")).unwrap();
            _ = std::os::unix::fs::chown(cache.join("v1"), Some(12345), None);
            fs::set_permissions(cache.join("v1"), Permissions::from_mode(0o777)).unwrap();
        }),
        ("open to others", |cache| {
            fs::create_dir_all(cache.join("v1")).unwrap();
            fs::set_permissions(cache.join("v1"), Permissions::from_mode(0o777)).unwrap();
        }),
        ("in a place that cannot be", |cache| symlink("/proc/nowhere", cache).unwrap()),
    ];
    for (name, harm) in harms {
        if cache.is_dir() {
            fs::remove_dir_all(&cache).unwrap();
        } else {
            fs::remove_file(&cache).unwrap();
        }
        harm(&cache);
        bench.warned("encode program -o out.btf");
        assert!(fs::read(bench.path("out.btf")).unwrap() == expected, "{name}");
        let strict = bench.command("encode --strict-cache program -o out.btf").output().unwrap();
        assert_eq!(strict.status.code(), Some(2), "{name}");
        let quiet = bench.command("encode -q program -o out.btf").output().unwrap();
        assert!(quiet.status.success() && quiet.stderr.is_empty(), "{name}");
    }
}

#[test]
fn entries_of_another_schema_are_left_alone() {
    let Some((bench, expected)) = filled("entries_of_another_schema_are_left_alone") else {
        return;
    };
    let newer = bench.path("cache/v999");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join("entry"), b"of the future").unwrap();
    bench.check("program", &expected);
    bench.quiet("clear");
    assert_eq!(fs::read(newer.join("entry")).unwrap(), b"of the future");
    // In our own folder they are misses.
    bench.check("program", &expected);
    for path in bench.files().iter().filter(|path| path.to_str().unwrap().contains("/results/")) {
        let mut bytes = fs::read(path).unwrap();
        bytes[8] = 200;
        fs::write(path, bytes).unwrap();
    }
    bench.warned("encode program -o out.btf");
    assert_eq!(bench.count("version"), 1);
    bench.check("program", &expected);
}

#[test]
fn clocks_may_jump() {
    let Some((bench, expected)) = filled("clocks_may_jump") else { return };
    let far = Duration::from_secs(20 * 365 * 86_400);
    for time in [SystemTime::UNIX_EPOCH, SystemTime::now() + far, SystemTime::now() - far] {
        for path in bench.files() {
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        }
        fs::File::open(bench.path("program")).unwrap().set_modified(time).unwrap();
        for _ in 0..2 {
            bench.check("program", &expected);
        }
        bench.quiet("gc --max-age=1000d");
        bench.check("program", &expected);
    }
}

/// A small file system of its own; `None` if we may not make one.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(path: &'a Path, options: &str) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "btfcache-test"]).arg(path);
        command.output().is_ok_and(|output| output.status.success()).then_some(Self(path))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn a_full_or_read_only_file_system_costs_a_warning() {
    const NAME: &str = "a_full_or_read_only_file_system_costs_a_warning";
    let Some(bench) = Bench::new(NAME) else { return };
    let expected = bench.expected("program");
    let cache = bench.path("cache");
    for size in ["4k", "16k", "32k", "44k", "48k", "52k", "56k", "64k", "72k"] {
        let Some(_mounted) = Mounted::new(&cache, &format!("size={size},mode=700")) else {
            skip(NAME, "not allowed to mount");
            return;
        };
        if size == "32k" {
            fs::write(cache.join("ballast"), vec![0; 40_000]).unwrap_err();
        }
        for _ in 0..3 {
            survives(&bench, &expected, size);
        }
    }
    let _mounted = Mounted::new(&cache, "size=1m,mode=700");
    bench.check("program", &expected);
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&cache).output().unwrap();
    assert!(remount.status.success());
    let warning = bench.warned("encode --recache program -o out.btf");
    assert!(warning.contains("Read-only"), "{warning}");
    bench.quiet("encode --read-only-cache program -o out.btf");
    assert!(fs::read(bench.path("out.btf")).unwrap() == expected);
}

#[test]
fn killed_processes_leave_a_working_cache() {
    let Some(bench) = Bench::new("killed_processes_leave_a_working_cache") else { return };
    let expected = bench.expected("program");
    let start = Instant::now();
    bench.check("program", &expected);
    let whole = start.elapsed();
    for step in 0..50 {
        if step % 5 == 0 {
            fs::remove_dir_all(bench.path("cache")).unwrap();
        }
        _ = fs::remove_file(bench.path("killed.btf"));
        let mut child = bench.command("encode program -o killed.btf").spawn().unwrap();
        std::thread::sleep(whole * step / 45);
        _ = child.kill();
        child.wait().unwrap();
        if let Ok(bytes) = fs::read(bench.path("killed.btf")) {
            assert!(bytes == expected, "partial output after step {step}");
        }
        bench.check("program", &expected);
    }
    assert!(bench.quiet("gc").starts_with("removed 0 entries"));
}

#[test]
fn many_processes_share_a_cache() {
    let Some(bench) = Bench::new("many_processes_share_a_cache") else { return };
    const INPUTS: usize = 8;
    const PROCESSES: usize = 64;
    let names: Vec<String> = (0..INPUTS).map(|index| format!("program{index}")).collect();
    let expected: Vec<Vec<u8>> = names
        .iter()
        .map(|name| {
            bench.compile(name, &format!("struct {name} {{ int a[3]; }} {name};"));
            bench.expected(name)
        })
        .collect();
    for round in 0..3 {
        let spawn = |number: usize| {
            let name = &names[(number + round) % INPUTS];
            bench.command(&format!("encode {name} -o out{number}")).spawn().unwrap()
        };
        let children: Vec<Child> = (0..PROCESSES).map(spawn).collect();
        for (number, mut child) in children.into_iter().enumerate() {
            assert!(child.wait().unwrap().success());
            let output = fs::read(bench.path(&format!("out{number}"))).unwrap();
            assert!(output == expected[(number + round) % INPUTS], "process {number}");
        }
    }
    let (hits, misses) = bench.hits();
    assert_eq!(hits + misses, 3 * PROCESSES as u64, "no run is lost");
    assert!(hits >= 2 * PROCESSES as u64, "{hits} hits");
    assert_eq!(bench.count("damaged") + bench.count("io") + bench.count("denied"), 0);
}
