//! What units give, kept from run to run (`BTFCACHE_UNITS=1`): only the units that changed are decoded,
//! and the result is that of a run without a cache.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Bench;

const HEADER: &str = "
    typedef unsigned int word;
    struct list { struct list *next, *previous; };
    struct shared { word flags; struct list list; int (*call)(struct shared *, word); };
    union choice { int number; void *place; struct shared *shared; };
    enum colour { RED, GREEN = 7 };
";

/// Names and texts of the units of a program.
fn units() -> Vec<(String, String)> {
    let unit = |number: u32| {
        let text = format!(
            "#include \"common.h\"
             struct own_{number} {{ struct shared shared; int array[{number} + 1]; word long_name_{number}; }};
             __attribute__((section(\".data..percpu\"))) int counter_{number} = {number};
             struct own_{number} *function_{number}(struct own_{number} *argument, union choice choice) {{
               struct local {{ word first; }} local = {{ argument->long_name_{number} }};
               counter_{number} += local.first + choice.number;
               return argument; }}"
        );
        (format!("unit_{number}.c"), text)
    };
    let main =
        ("main.c".to_owned(), "#include \"common.h\"\nint main(void) { return GREEN; }".to_owned());
    (0..12).map(unit).chain([main]).collect()
}

/// Compiles and links `units` as `program`; gives how many units that program has.
fn link(folder: &Path, header: &str, units: &[(String, String)]) -> usize {
    fs::write(folder.join("common.h"), header).unwrap();
    let mut line = vec!["-g", "-O1", "-o", "program"];
    for (name, text) in units {
        fs::write(folder.join(name), text).unwrap();
        line.push(name);
    }
    let output = Command::new("gcc").args(line).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    units.len()
}

/// Encodes `program`; the result must be right. Gives how many units were found and decoded.
fn encode(bench: &Bench) -> (u64, u64) {
    let counts = || {
        let json = bench.quiet("stats --json");
        let group = json.split_once("\"units\": {\"hits\": ").unwrap().1;
        let number = |text: &str| -> u64 {
            text.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
        };
        (number(group), number(group.split_once("\"misses\": ").unwrap().1))
    };
    let expected = bench.expected("program");
    let before = counts();
    let output =
        bench.command("encode program -o out.btf").env("BTFCACHE_UNITS", "1").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(fs::read(bench.path("out.btf")).unwrap() == expected);
    let after = counts();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn only_changed_units_are_decoded() {
    let Some(bench) = Bench::new("only_changed_units_are_decoded") else { return };
    let folder = bench.path(".");
    let units = units();
    let all = link(&folder, HEADER, &units) as u64;
    assert_eq!(encode(&bench), (0, all));
    let run = |header: &str, units: &[(String, String)]| {
        link(&folder, header, units);
        encode(&bench)
    };
    // Comments: lines move, nothing else.
    assert_eq!(
        run(&HEADER.replace("struct list {", "/* more */\nstruct list {"), &units),
        (all, 0)
    );
    // One function gets longer: addresses move.
    let mut edited = units.clone();
    edited[3].1 = edited[3]
        .1
        .replace("return argument;", "counter_3 *= 3; counter_3 ^= 77; return argument;");
    let (hits, misses) = run(HEADER, &edited);
    assert!(misses <= 1 && hits + misses == all, "{hits} {misses}");
    // One name: offsets of strings move.
    let mut edited = units.clone();
    edited[3].1 = edited[3].1.replace("long_name_3", "another_and_longer_name");
    assert_eq!(run(HEADER, &edited), (all - 1, 1));
    // A unit less, and in another order.
    let mut other = units.clone();
    other.remove(5);
    assert_eq!(run(HEADER, &other), (all - 2, 1));
    other.reverse();
    assert_eq!(run(HEADER, &other), (all - 1, 0));
    // A struct of all units but `main.c`, where the compiler leaves it out.
    assert_eq!(run(&HEADER.replace("word flags;", "word flags, more;"), &units), (1, all - 1));
}

#[test]
fn other_options_are_other_fragments() {
    let Some(bench) = Bench::new("other_options_are_other_fragments") else { return };
    let all = link(&bench.path("."), HEADER, &units()) as u64;
    assert_eq!(encode(&bench), (0, all));
    let expected = bench.expected("--features=+global_var program");
    let line = "encode --features=+global_var program -o out.btf";
    assert!(bench.command(line).env("BTFCACHE_UNITS", "1").output().unwrap().status.success());
    assert!(fs::read(bench.path("out.btf")).unwrap() == expected);
}

#[test]
fn damaged_taken_and_missing_work_is_done_again() {
    let Some(bench) = Bench::new("damaged_taken_and_missing_work_is_done_again") else { return };
    let all = link(&bench.path("."), HEADER, &units()) as u64;
    encode(&bench);
    let change = |number: u32| {
        let header = HEADER
            .replace("struct list {", &format!("{}struct list {{", "\n".repeat(number as usize)));
        link(&bench.path("."), &header, &units());
    };
    let work = || -> Vec<_> {
        bench.files().into_iter().filter(|path| path.to_string_lossy().contains("/work/")).collect()
    };
    let mut number = 0;
    for share in [0.02, 0.3, 0.6, 0.98] {
        for path in work() {
            number += 1;
            change(number);
            let mut bytes = fs::read(&path).unwrap();
            let place = (bytes.len() as f64 * share) as usize;
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 0x55;
            }
            fs::write(&path, bytes).unwrap();
            let expected = bench.expected("program");
            let output = bench
                .command("encode program -o out.btf")
                .env("BTFCACHE_UNITS", "1")
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(fs::read(bench.path("out.btf")).unwrap() == expected, "{path:?} at {place}");
        }
    }
    fs::remove_dir_all(bench.cache().join("work")).unwrap();
    change(number + 1);
    assert_eq!(encode(&bench), (0, all));
    change(number + 2);
    assert_eq!(encode(&bench), (all, 0));
}

#[test]
fn killed_and_many_at_once() {
    let Some(bench) = Bench::new("killed_and_many_at_once") else { return };
    link(&bench.path("."), HEADER, &units());
    let expected = bench.expected("program");
    for round in 0..20 {
        let spawn = |number: u32| {
            let line = format!("encode program -o out_{number}.btf");
            let mut command = bench.command(&line);
            command.env("BTFCACHE_UNITS", "1").env("BTFCACHE_RECACHE", "1");
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut children: Vec<_> = (0..4).map(spawn).collect();
        std::thread::sleep(Duration::from_millis(3 * round));
        children[0].kill().ok();
        for child in &mut children[1..] {
            assert!(child.wait().unwrap().success());
        }
        children[0].wait().unwrap();
        for number in 1..4 {
            assert!(fs::read(bench.path(&format!("out_{number}.btf"))).unwrap() == expected);
        }
    }
    let header = HEADER.replace("struct list {", "\n\nstruct list {");
    link(&bench.path("."), &header, &units());
    encode(&bench);
}
