//! The command line of pahole, through a link of that name and as `btfcache pahole`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use btfcache::cli;
use btfcache::commands;
use btfcache::config::Environment;
use btfcache::options::Feature;
use btfcache::output::Dialect;
use tempfile::TempDir;

use crate::harness::{Test, elf_without_sections, observe, reference_pahole, skip};

#[test]
fn versions() {
    Test::pahole()
        .args("--version")
        .succeeds()
        .stdout("v1.32\n")
        .stderr("")
        .again()
        .args("--numeric_version")
        .succeeds()
        .stdout("132\n");
    Test::new().args("pahole --version").succeeds().stdout("v1.32\n").stderr("");
    let devel = format!("v1.32-btfcache-{}\n", env!("CARGO_PKG_VERSION"));
    Test::pahole().args("--devel_version").succeeds().stdout(&devel);
}

#[test]
fn help() {
    Test::pahole().args("--help").succeeds().stdout_has("Usage: pahole -J").stderr("");
    Test::new().args("pahole --usage").succeeds().stdout_has("Usage: pahole -J").stderr("");
}

#[test]
fn refused_by_name_with_64() {
    Test::pahole().args("--sizes vmlinux").fails(64).stdout("").stderr(
        "pahole: '--sizes' prints data structures, which btfcache does not do; call the pahole of \
         the dwarves package\n",
    );
    Test::new().args("pahole -C list_head vmlinux").fails(64).stderr_has("pahole: '-C' prints");
    Test::pahole().args("vmlinux").fails(64).stderr_has("without '--btf_encode'");
}

#[test]
fn unknown_option_is_64_with_a_usage_line() {
    Test::pahole().args("-J --foo vmlinux").fails(64).stdout("").stderr(
        "pahole: unrecognized option '--foo'\n\
         Try `pahole --help' or `pahole --usage' for more information.\n",
    );
}

#[test]
fn unknown_language_is_1_before_any_file_is_opened() {
    let expected = "pahole: unknown language \"klingon\"\n";
    Test::pahole()
        .args("-J --lang_exclude=klingon missing")
        .fails(1)
        .stderr(expected)
        .again()
        .args("-J missing")
        .environment("PAHOLE_LANG_EXCLUDE", "klingon")
        .fails(1)
        .stderr(expected);
}

#[test]
fn unknown_strict_feature_is_1_and_lists_the_others() {
    Test::pahole()
        .args("-J --btf_features_strict=var,foo missing")
        .fails(1)
        .stdout("")
        .stderr_has("pahole: Feature 'foo' in 'var,foo' is not supported.")
        .stderr_has("\nencode_force,var,float,decl_tag,");
}

#[test]
fn missing_input_is_1() {
    Test::pahole()
        .args("-J missing")
        .fails(1)
        .stdout("")
        .stderr_has("pahole: failed to encode `missing`\ncaused by: ");
}

#[test]
fn detached_number_of_jobs_is_explained() {
    Test::pahole()
        .args("-J -j 4 vmlinux")
        .fails(1)
        .stderr_has("pahole: `4` after `-j` is an input file; write `-j4`\n")
        .stderr_has("pahole: failed to encode `4`");
}

#[test]
fn missing_base_is_named() {
    Test::pahole()
        .file("a.ko", &elf_without_sections())
        .args("-J --btf_base vmlinux a.ko")
        .fails(1)
        .stderr_has("failed to read the BTF of `vmlinux`")
        .content("a.ko", &elf_without_sections());
}

#[test]
fn detached_output_takes_one_input() {
    Test::pahole()
        .args("--btf_encode_detached=out a.o b.o")
        .fails(64)
        .stderr_has("one input")
        .absent("out");
}

#[test]
fn input_without_dwarf_is_success_and_left_alone() {
    let elf = elf_without_sections();
    Test::pahole()
        .file("a.ko", &elf)
        .file("b.ko", &elf)
        .args("-J a.ko b.ko")
        .succeeds()
        .stdout("")
        .stderr_has("pahole: ")
        .content("a.ko", &elf)
        .content("b.ko", &elf)
        .again()
        .args("--btf_encode_detached=out a.ko")
        .succeeds()
        .absent("out");
}

/// Calls that answer or fail without reading a file must end as in pahole itself.
#[test]
fn ends_as_pahole_does() {
    let Some(reference) = reference_pahole("ends_as_pahole_does") else {
        return;
    };
    let ours = Path::new(env!("CARGO_BIN_EXE_btfcache"));
    for line in [
        "--version",
        "--version --foo",
        "--vers",
        "--numeric_version",
        "--num --sizes",
        "-J -j4 --numeric_version file",
        "--jobs 4 -J --numeric_version",
        "--foo --version",
        "--btf",
        "--btf_feat=default --numeric_version",
        "--feat=x --numeric_version",
        "-K",
        "--lang",
        "--lan=c --numeric_version",
        "--lang=klingon --numeric_version",
        "--lang=c,,c99 --numeric_version",
        "--lang=C++11,RUST --numeric_version",
        "-X",
        "-JF",
        "--quiet=3",
        "--btf_encode=1",
        "--btf_encode_detached",
        "--hashbits=40 -J file",
        "--hashbits=40 --numeric_version",
        "--btf_features_strict=foo,default",
        "--btf_features_strict=all --numeric_version",
        "--btf_features_strict=+all,var --numeric_version",
        "--btf_features_strict=layout --numeric_version",
        "--encode_btf_global_vars",
        "--skip_enc --version",
        "--v",
        "--he",
        "-Z",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = observe(&reference, &words);
        let found = observe(ours, &[&["pahole"], &words[..]].concat());
        assert_eq!(found, expected, "{line}");
    }
}

/// The list differs from pahole's by `layout`, which needs a newer libbpf there.
#[test]
fn supported_features_are_those_of_pahole() {
    let Some(reference) = reference_pahole("supported_features_are_those_of_pahole") else {
        return;
    };
    let (_, expected) = observe(&reference, &["--supported_btf_features"]);
    let expected = expected.replace("layout,", "");
    let expected = expected.replace("force_cu_merging", "layout,force_cu_merging");
    Test::pahole().args("--supported_btf_features").succeeds().stdout(&expected).stderr("");
}

/// A unit in whose BTF most features show.
const SHOWS_FEATURES: &str = "
float number; int global = 1;
__attribute__((section(\".data..percpu\"))) int per_cpu;
enum large { LARGE = 0x100000000 } large;
static int __attribute__((noinline, used)) differs(int first) { return first; }
";
const DIFFERS: &str =
    "static long __attribute__((noinline, used)) differs(char *first) { return *first; }";

/// Whatever features we read out of a command line: when pahole is given exactly these, it must
/// write the same bytes as for that command line itself.
#[test]
fn features_mean_what_pahole_takes_them_for() {
    const NAME: &str = "features_mean_what_pahole_takes_them_for";
    let Some(reference) = reference_pahole(NAME) else {
        return;
    };
    let directory = TempDir::new().unwrap();
    let Some(object) = object_that_shows_features(directory.path()) else {
        return skip(NAME, "no C compiler");
    };
    let encode = |options: &[&str]| {
        let out = directory.path().join("out");
        let detached = format!("--btf_encode_detached={}", out.display());
        let words = [&["-J", detached.as_str()], options, &[object.to_str().unwrap()]].concat();
        assert_eq!(observe(&reference, &words).0, Some(0), "{options:?}");
        fs::read(out).unwrap()
    };
    for line in [
        "",
        "--btf_gen_floats",
        "--skip_encoding_btf_vars",
        "--skip_encoding_btf_enum64 --skip_encoding_btf_inconsistent_proto",
        "--btf_features=",
        "--btf_features=,,",
        "--btf_features=default",
        "--btf_features=all",
        "--btf_features=+all,nothing",
        "--btf_features=global_var",
        "--btf_features=+global_var",
        "--btf_features=float --btf_features=enum64",
        "--btf_features=float --btf_features=+",
        "--btf_gen_floats --btf_features=enum64",
        "--btf_features=enum64 --btf_gen_floats --features=var",
        "--btf_features=default --skip_encoding_btf_vars --skip_encoding_btf_enum64",
        "--skip_encoding_btf_vars --btf_features=default",
        "--btf_gen_all --skip_encoding_btf_vars",
        "--btf_gen_floats --btf_gen_all",
        "--btf_features_strict=var,all",
    ] {
        let options: Vec<&str> = line.split_whitespace().collect();
        let list = format!("--btf_features={}", features_of(&options));
        assert_eq!(encode(&options), encode(&[&list]), "{line} was read as {list}");
    }
}

/// The features that we read out of a command line.
fn features_of(options: &[&str]) -> String {
    let words = [&["-J", "file"], options].concat();
    let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    match cli::parse(Dialect::Pahole, &words, &Environment::default()) {
        Ok(commands::Command::Encode(request)) => {
            let on = Feature::ALL.into_iter().filter(|&it| request.options.features.has(it));
            on.map(Feature::name).collect::<Vec<_>>().join(",")
        }
        other => panic!("{options:?}: {other:?}"),
    }
}

/// Compiles two units into one file, if there is a compiler.
fn object_that_shows_features(directory: &Path) -> Option<PathBuf> {
    let cc = |arguments: &[&str]| {
        let run = Command::new("cc").args(arguments).current_dir(directory).output();
        run.is_ok_and(|output| output.status.success())
    };
    fs::write(directory.join("one.c"), SHOWS_FEATURES).unwrap();
    fs::write(directory.join("two.c"), DIFFERS).unwrap();
    let compiled = cc(&["-g", "-O1", "-c", "one.c"]) && cc(&["-g", "-O1", "-c", "two.c"]);
    let linked = compiled && cc(&["-r", "-o", "both.o", "one.o", "two.o"]);
    linked.then(|| directory.join("both.o"))
}
