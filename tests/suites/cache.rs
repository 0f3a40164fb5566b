//! The cache as a user meets it: hits, misses, damage, many processes, limits. Whatever happens to
//! it, the output is that of a run without one.

mod harm;
mod keys;
mod moving;
mod size;
mod transfer;
mod units;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::harness::skip;

/// A folder with programs to encode and a cache.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    /// With a program `name` of its own types; `None` if there is no compiler.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if Command::new("gcc").arg("--version").output().is_err() {
            skip(test, "no gcc");
            return None;
        }
        let bench = Self { folder: TempDir::new().unwrap() };
        bench.compile("program", "");
        Some(bench)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of this schema.
    pub(crate) fn cache(&self) -> PathBuf {
        self.path("cache/v1")
    }

    /// Compiles a program; `more` goes into its source.
    pub(crate) fn compile(&self, name: &str, more: &str) -> PathBuf {
        let source = format!(
            "struct node {{ struct node *next; int value; }};
             __attribute__((section(\".data..percpu\"))) int counter = 1;
             {more}
             static int same(struct node *n) {{ return n->value; }}
             int main(int argc, char **argv) {{ struct node n = {{ 0, argc }};
               return same(&n) + counter; }}"
        );
        fs::write(self.path("source.c"), source).unwrap();
        let output = Command::new("gcc")
            .args(["-g", "-O0", "source.c", "-o", name])
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.path(name)
    }

    /// A run of btfcache with this cache and no other settings.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_btfcache"));
        command.args(line.split_whitespace().map(OsString::from));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"BTFCACHE_") {
                command.env_remove(&name);
            }
        }
        command.env("BTFCACHE_DIR", self.path("cache")).env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    /// Runs; must succeed and say nothing on stderr.
    pub(crate) fn quiet(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs; must succeed with exactly one warning about the cache.
    pub(crate) fn warned(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{line}: {text}");
        assert_eq!(text.lines().count(), 1, "{line}: {text}");
        assert!(text.contains("problem with the cache"), "{line}: {text}");
        text
    }

    /// What a run without a cache gives.
    pub(crate) fn expected(&self, name: &str) -> Vec<u8> {
        self.quiet(&format!("encode --no-cache {name} -o expected.btf"));
        fs::read(self.path("expected.btf")).unwrap()
    }

    /// Encodes with the cache; the result must be right.
    pub(crate) fn check(&self, name: &str, expected: &[u8]) {
        self.quiet(&format!("encode {name} -o out.btf"));
        assert!(fs::read(self.path("out.btf")).unwrap() == expected, "{name}");
    }

    /// A number of `stats --json`, by the end of its path.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let json = self.quiet("stats --json");
        let start = json.find(&format!("\"{name}\": ")).expect(&json) + name.len() + 4;
        let digits = json[start..].split(|letter: char| !letter.is_ascii_digit()).next();
        digits.unwrap().parse().unwrap()
    }

    /// Hits and misses.
    pub(crate) fn hits(&self) -> (u64, u64) {
        (self.count("hits"), self.count("misses"))
    }

    /// All files of the cache.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fn add(files: &mut Vec<PathBuf>, folder: &Path) {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { add(files, &path) } else { files.push(path) }
            }
        }
        let mut files = Vec::new();
        add(&mut files, &self.cache());
        files.sort();
        files
    }
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_hit_is_like_a_miss_for_every_target() {
    let Some(bench) = Bench::new("a_hit_is_like_a_miss_for_every_target") else { return };
    let expected = bench.expected("program");
    for run in 0..3 {
        bench.check("program", &expected);
        assert_eq!(bench.hits(), (run, 1));
    }
    let stdout = bench.command("encode program -o -").output().unwrap().stdout;
    assert!(stdout == expected);
    fs::copy(bench.path("program"), bench.path("cold")).unwrap();
    fs::copy(bench.path("program"), bench.path("warm")).unwrap();
    bench.quiet("encode --no-cache --in-place cold");
    bench.quiet("encode --in-place warm");
    assert!(fs::read(bench.path("cold")).unwrap() == fs::read(bench.path("warm")).unwrap());
    assert_eq!(bench.hits(), (4, 1));
    // What was put into it does not make it another file.
    bench.quiet("encode --in-place warm");
    assert_eq!(bench.hits(), (5, 1));
    // Nor does it keep what was put there from being found again.
    bench.compile("module", "struct own { int a; } own;");
    fs::copy(bench.path("module"), bench.path("again")).unwrap();
    bench.quiet("encode --in-place module");
    bench.quiet("encode --in-place again");
    assert_eq!(bench.hits(), (6, 2));
    assert!(fs::read(bench.path("module")).unwrap() == fs::read(bench.path("again")).unwrap());
}

#[test]
fn what_a_miss_says_a_hit_says_too() {
    let Some(bench) = Bench::new("what_a_miss_says_a_hit_says_too") else { return };
    bench.compile("odd", "_Complex double z; static int twice(int x) { return x; }");
    for line in [
        "encode -v odd -o out.btf",
        "encode -v odd -o -",
        "encode --strict odd -o out.btf",
        "pahole -J --btf_encode_detached=out.btf -V odd",
        "encode -v source.c -o out.btf",
        "encode /bin/true -o out.btf --lang=rust",
    ] {
        let cold = text(&bench.command(line).output().unwrap());
        let warm = text(&bench.command(line).output().unwrap());
        assert_eq!(cold, warm, "{line}");
        let without = bench.command(line).env("BTFCACHE_DISABLE", "1").output().unwrap();
        assert_eq!(text(&without), warm, "{line}");
    }
}

#[test]
fn files_are_known_by_their_times_once_they_rest() {
    let Some(bench) = Bench::new("files_are_known_by_their_times_once_they_rest") else { return };
    let expected = bench.expected("program");
    bench.check("program", &expected);
    bench.check("program", &expected);
    assert_eq!((bench.count("hits_by_stat"), bench.count("hits_by_content")), (0, 1));
    std::thread::sleep(std::time::Duration::from_millis(2100));
    bench.check("program", &expected);
    bench.check("program", &expected);
    assert_eq!((bench.count("hits_by_stat"), bench.count("hits_by_content")), (1, 2));
    let off = bench.command("encode program -o out.btf").env("BTFCACHE_STAT", "off").status();
    assert!(off.unwrap().success());
    assert_eq!(bench.count("hits_by_content"), 3);
    // Another content of the same size and time of modification.
    let other = bench.compile("other", "struct other { long l; } o;");
    let other_expected = bench.expected("other");
    let program = bench.path("program");
    let modified = program.metadata().unwrap().modified().unwrap();
    let mut bytes = fs::read(&other).unwrap();
    bytes.resize(bytes.len().max(program.metadata().unwrap().len() as usize), 0);
    fs::write(&program, &bytes).unwrap();
    fs::File::open(&program).unwrap().set_modified(modified).unwrap();
    bench.check("program", &other_expected);
}

#[test]
fn settings_do_what_they_say() {
    let Some(bench) = Bench::new("settings_do_what_they_say") else { return };
    let expected = bench.expected("program");
    assert!(!bench.path("cache").exists(), "`--no-cache` touches nothing");
    bench.quiet("encode --read-only-cache program -o out.btf");
    assert!(!bench.path("cache").exists(), "`--read-only-cache` makes nothing");
    bench.check("program", &expected);
    let before = bench.files();
    bench.quiet("encode --read-only-cache program -o out.btf");
    assert_eq!(bench.files(), before);
    assert_eq!(bench.hits(), (0, 1));
    bench.quiet("encode --recache program -o out.btf");
    assert_eq!(bench.count("misses_recache"), 1);
    bench.quiet("encode --check=100% program -o out.btf");
    assert_eq!((bench.count("checked"), bench.count("differs")), (1, 0));
    let log = bench.path("log");
    let logged =
        bench.command("encode program -o out.btf").env("BTFCACHE_STATS_LOG", &log).status();
    assert!(logged.unwrap().success());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("outcome=hit-") && log.ends_with("file=program\n"), "{log}");
    let config = bench.command("config --check=7%").env("BTFCACHE_MAX_SIZE", "1GB").output();
    let config = text(&config.unwrap()).1;
    for part in
        ["check = \"7%\"", "# flag\n", "max_size = \"1GB\"", "# environment\n", "# default\n"]
    {
        assert!(config.contains(part), "{config}");
    }
    assert!(bench.quiet("inspect program").contains(" name=.debug_info "));
    bench.quiet("stats --zero");
    assert_eq!(bench.hits(), (0, 0));
    assert!(bench.quiet("clear").starts_with("removed "));
    bench.check("program", &expected);
    assert_eq!(bench.hits(), (0, 1));
}

#[test]
fn a_slip_in_a_setting_costs_a_warning() {
    let Some(bench) = Bench::new("a_slip_in_a_setting_costs_a_warning") else { return };
    fs::create_dir_all(bench.path("config/btfcache")).unwrap();
    fs::write(bench.path("config/btfcache/config"), "max_size = much\n").unwrap();
    let warning = bench.warned("encode program -o out.btf");
    assert!(warning.contains("max_size=much"), "{warning}");
    let strict = bench.command("encode --strict-cache program -o out.btf").output().unwrap();
    assert_eq!(strict.status.code(), Some(2));
    let typed = bench.command("encode --check=much program -o out.btf").output().unwrap();
    assert_eq!(typed.status.code(), Some(2));
}

/// A result that is sealed properly, but is not that of the input: only `--check` can tell.
#[test]
fn a_poisoned_result_is_found_by_checking() {
    let Some(bench) = Bench::new("a_poisoned_result_is_found_by_checking") else { return };
    let expected = bench.expected("program");
    bench.check("program", &expected);
    let result =
        bench.files().into_iter().find(|path| path.to_str().unwrap().contains("/results/"));
    let result = result.unwrap();
    let name = result.strip_prefix(bench.cache().join("results")).unwrap();
    let key = name.to_str().unwrap().replace('/', "").parse().unwrap();
    let record = btfcache_schema::ResultRecord { btf: b"poison".to_vec(), ..Default::default() };
    let sealed = btfcache_schema::seal(btfcache_schema::Kind::Result, &key, &record.encode());
    fs::write(&result, sealed).unwrap();
    let warning = bench.warned("encode --check=100% program -o out.btf");
    assert!(warning.contains("is not what it gives"), "{warning}");
    assert!(fs::read(bench.path("out.btf")).unwrap() == expected);
    bench.check("program", &expected);
    assert_eq!(bench.count("differs"), 1);
}

#[test]
fn a_result_upon_a_base_depends_on_what_is_in_the_base() {
    let Some(bench) = Bench::new("a_result_upon_a_base_depends_on_what_is_in_the_base") else {
        return;
    };
    bench.compile("module", "struct own { struct node *node; } own;");
    bench.compile("other", "struct more { struct node node; } more;");
    for base in ["program", "other"] {
        bench.quiet(&format!("encode --no-cache --in-place {base}"));
    }
    let upon = |base: &str| {
        let names = format!("--base {base} module");
        let expected = bench.expected(&names);
        bench.check(&names, &expected);
        expected
    };
    let first = upon("program");
    assert!(upon("other") != first, "the bases differ");
    assert_eq!(bench.hits(), (0, 2));
    // The same base elsewhere, and as a file of BTF.
    fs::copy(bench.path("program"), bench.path("copy")).unwrap();
    assert!(upon("copy") == first);
    bench.quiet("encode --no-cache program -o raw");
    assert!(upon("raw") == first);
    assert_eq!(bench.hits(), (2, 2));
    // Known by its times.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    (0..2).for_each(|_| assert!(upon("program") == first));
    // Another content in the same file, at the same size and time of modification.
    let program = bench.path("program");
    let metadata = program.metadata().unwrap();
    let mut bytes = fs::read(bench.path("other")).unwrap();
    let size = bytes.len().max(metadata.len() as usize);
    bytes.resize(size, 0);
    fs::write(&program, &bytes).unwrap();
    fs::File::open(&program).unwrap().set_modified(metadata.modified().unwrap()).unwrap();
    assert!(upon("program") != first);
}

#[test]
fn several_files_at_once_use_one_cache() {
    let Some(bench) = Bench::new("several_files_at_once_use_one_cache") else { return };
    let names = ["one", "two", "three", "four"];
    for name in names {
        bench.compile(name, &format!("struct {name} {{ int a; }} {name};"));
    }
    fs::create_dir(bench.path("out")).unwrap();
    for run in 0..2 {
        bench.quiet(&format!("encode --output-dir out {}", names.join(" ")));
        for name in names {
            let written = fs::read(bench.path(&format!("out/{name}.btf"))).unwrap();
            assert!(written == bench.expected(name), "{name}");
        }
        assert_eq!(bench.hits(), (run * 4, 4));
    }
}

/// What is made of a file that changes meanwhile must not be found under its old key.
#[test]
fn the_result_of_a_file_that_changed_is_not_kept() {
    use std::io::Write as _;

    use btfcache::config::Environment;
    use btfcache::elf::Input;
    use btfcache::options::Options;
    use btfcache::settings::{ConfigFile, Flags, Name, Settings};
    use btfcache::store::{Session, input_key};
    use btfcache_schema::ResultRecord;

    let Some(bench) = Bench::new("the_result_of_a_file_that_changed_is_not_kept") else { return };
    let mut flags = Flags::default();
    flags.set(Name::Dir, bench.path("cache"));
    let settings = Settings::of(&flags, &Environment::default(), ConfigFile::default());
    let session = Session::open(&settings);
    for (changes, count) in [(true, 0), (false, 1)] {
        let path = bench.path("program");
        let input = Input::open(&path).unwrap();
        let mut inquiry = session.inquire(&path);
        let answer = inquiry.find(&input, &Options::default(), None, || input_key(&input));
        assert!(answer.hit.is_none());
        inquiry.made(None);
        if changes {
            let mut file = fs::File::options().append(true).open(&path).unwrap();
            file.write_all(b"more").unwrap();
        }
        let record = ResultRecord { btf: b"types".to_vec(), ..ResultRecord::default() };
        let ticket = answer.ticket.confirm(&input, || input_key(&input));
        ticket.into_iter().for_each(|ticket| inquiry.keep(ticket, record.clone(), None));
        drop(inquiry);
        assert_eq!(session.cache().unwrap().usage().entries, count);
    }
    // Its times cannot tell, because it has just been touched, but its bytes can.
    fs::File::open(bench.path("program"))
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    let path = bench.path("program");
    let input = Input::open(&path).unwrap();
    let mut inquiry = session.inquire(&path);
    let options = Options { compat_pahole: true, ..Options::default() };
    let answer = inquiry.find(&input, &options, None, || input_key(&input));
    let other = || Ok(btfcache_schema::Key([1; 32]));
    assert!(answer.ticket.confirm(&input, other).is_none());
    assert_eq!(session.cache().unwrap().usage().entries, 1);
    assert!(session.warning().is_none());
}
