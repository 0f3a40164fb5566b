//! Modules upon a base, from the command line: the note about it, distilled bases, and bases that
//! cannot be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use btfcache::btf::load::{self, Images};
use btfcache::btf::read::Btf;
use btfcache::distill::distill;
use btfcache::embed::note;

use super::cache::Bench;
use crate::harness::skip;

const DISTILLED: &str = "--features=+distilled_base";

/// A folder with `kernel`, which has BTF, `other`, in which a struct is larger, and `module`.
fn bench(test: &str) -> Option<Bench> {
    let bench = Bench::new(test)?;
    let device =
        "struct device { int id; struct node *first; } device; union { long a; char b; } u;";
    bench.compile("kernel", device);
    bench.compile("other", &device.replace("int id;", "int id, more[4];"));
    for name in ["kernel", "other"] {
        bench.quiet(&format!("encode --no-cache --in-place {name}"));
    }
    let own = "struct mine { struct device device; struct node *nodes[3]; int count; } mine;";
    bench.compile("module", &format!("{device} {own}"));
    Some(bench)
}

fn images(path: &Path) -> Images {
    load::module(path).unwrap()
}

fn copy(bench: &Bench, name: &str) {
    fs::copy(bench.path("module"), bench.path(name)).unwrap();
}

/// The distilled pair that `module` upon `kernel` is to have.
fn expected(bench: &Bench) -> (Vec<u8>, Vec<u8>) {
    let image = bench.expected("--base kernel module");
    let base = load::base(&bench.path("kernel")).unwrap();
    let pair = distill(&Btf::parse(&image, Some(&base)).unwrap()).unwrap();
    (pair.base, pair.split)
}

#[test]
fn a_distilled_pair_goes_into_the_module_and_into_files() {
    let Some(bench) = bench("a_distilled_pair_goes_into_the_module_and_into_files") else { return };
    let (base, split) = expected(&bench);
    for name in ["cold", "warm", "plain"] {
        copy(&bench, name);
    }
    bench.quiet(&format!("encode --no-cache --in-place --base kernel {DISTILLED} cold"));
    let found = images(&bench.path("cold"));
    assert!(found.btf == split && found.distilled_base.as_ref() == Some(&base));
    // A miss, a hit, and once more into the same file.
    let line = format!("encode --in-place --base kernel {DISTILLED}");
    bench.quiet(&format!("{line} module"));
    bench.quiet(&format!("{line} warm"));
    bench.quiet(&format!("{line} warm"));
    assert_eq!(bench.hits(), (2, 1));
    let cold = fs::read(bench.path("cold")).unwrap();
    for name in ["module", "warm"] {
        assert!(fs::read(bench.path(name)).unwrap() == cold, "{name}");
    }
    // The same into files; the feature moves the key.
    bench.quiet(&format!("encode --base kernel {DISTILLED} module -o pair"));
    assert_eq!(bench.hits(), (3, 1));
    assert!(fs::read(bench.path("pair")).unwrap() == split);
    assert!(fs::read(bench.path("pair.base")).unwrap() == base);
    fs::create_dir(bench.path("out")).unwrap();
    bench.quiet(&format!("encode --base other {DISTILLED} module --output-dir out"));
    bench.quiet("encode --base kernel plain -o alone");
    assert_eq!(bench.hits(), (3, 3));
    assert!(fs::read(bench.path("out/module.btf.base")).unwrap() != base);

    for name in ["module", "pair"] {
        bench.quiet(&format!("verify -q {name} --base kernel"));
        let refused = bench.command(&format!("verify {name} --base other")).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let told = String::from_utf8(refused.stdout).unwrap();
        assert!(told.contains("struct `device`"), "{told}");
    }
}

#[test]
fn what_was_distilled_goes_when_it_no_longer_is() {
    let Some(bench) = bench("what_was_distilled_goes_when_it_no_longer_is") else { return };
    copy(&bench, "plain");
    bench.quiet("encode --no-cache --in-place --base kernel plain");
    bench.quiet(&format!("encode --in-place --base kernel {DISTILLED} module"));
    bench.quiet("encode --in-place --base kernel module");
    let found = images(&bench.path("module"));
    assert!(found == images(&bench.path("plain")) && found.distilled_base.is_none());
    bench.quiet("verify -q module --base kernel");

    bench.quiet(&format!("encode --base kernel {DISTILLED} module -o pair"));
    assert!(bench.path("pair.base").exists());
    bench.quiet("encode --base kernel module -o pair");
    assert!(!bench.path("pair.base").exists());
    bench.quiet("verify -q pair --base kernel");
    // Only a distilled base is removed.
    for content in [&b"mine"[..], &images(&bench.path("kernel")).btf] {
        fs::write(bench.path("pair.base"), content).unwrap();
        bench.quiet("encode --base kernel module -o pair");
        assert!(fs::read(bench.path("pair.base")).unwrap() == content);
    }
}

#[test]
fn the_note_has_the_digest_of_the_base() {
    let Some(bench) = bench("the_note_has_the_digest_of_the_base") else { return };
    let digest = note::base_digest(&images(&bench.path("kernel")).btf);
    for flags in ["", DISTILLED, "--no-cache"] {
        for _ in 0..2 {
            bench.quiet(&format!("encode --in-place --base kernel {flags} module"));
            assert_eq!(images(&bench.path("module")).base_digest, Some(digest));
        }
    }
    bench.quiet("verify -q module --base kernel");
    let refused = bench.command("verify module --base other").output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("does not belong to `other`"), "{told}");
    // Without the note, and without a base, none is left.
    for line in [
        "encode --in-place --base kernel --no-note module",
        "encode --in-place module",
        "pahole -J --btf_base kernel module",
    ] {
        bench.quiet("encode --in-place --base kernel module");
        bench.quiet(line);
        assert_eq!(images(&bench.path("module")).base_digest, None, "{line}");
    }
}

#[test]
fn as_pahole_it_distills_only_into_the_input() {
    let Some(bench) = bench("as_pahole_it_distills_only_into_the_input") else { return };
    let plain = bench.expected("--base kernel module");
    let line = "pahole --btf_base kernel --btf_features=default,distilled_base";
    bench.quiet(&format!("{line} --btf_encode_detached=out module"));
    assert!(fs::read(bench.path("out")).unwrap() == plain);
    assert!(!bench.path("out.base").exists());
    bench.quiet(&format!("{line} -J module"));
    let found = images(&bench.path("module"));
    assert_eq!((Some(found.btf), found.distilled_base), {
        let (base, split) = expected(&bench);
        (Some(split), Some(base))
    });
    assert_eq!(found.base_digest, None);
}

#[test]
fn what_would_harm_a_base_is_refused() {
    let Some(bench) = bench("what_would_harm_a_base_is_refused") else { return };
    bench.quiet("encode --no-cache kernel -o raw");
    fs::copy(bench.path("raw"), bench.path("pair.base")).unwrap();
    fs::hard_link(bench.path("kernel"), bench.path("link")).unwrap();
    for (line, code, part) in [
        ("encode --in-place --base kernel link", 2, "`link` is the base itself"),
        ("encode --base kernel kernel -o out", 2, "`kernel` is the base itself"),
        ("pahole -J --btf_base kernel kernel", 1, "`kernel` is the base itself"),
        ("encode --base raw module -o raw", 2, "`raw` is the base: the BTF of `module`"),
        (
            "encode --base pair.base --features=distilled_base module -o pair",
            2,
            "`pair.base` is the base",
        ),
        (
            "encode --base kernel --features=distilled_base module -o /dev/null",
            2,
            "`/dev/null` is not a file",
        ),
        ("encode --features=distilled_base module -o out", 2, "needs a base"),
        ("encode --base missing module -o out", 2, "`missing`"),
    ] {
        let before: Vec<_> = ["kernel", "raw", "module"].map(|n| fs::read(bench.path(n))).into();
        let output = bench.command(line).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {told}");
        assert!(told.contains(part), "{line}: {told}");
        for (name, before) in ["kernel", "raw", "module"].into_iter().zip(before) {
            assert!(fs::read(bench.path(name)).unwrap() == before.unwrap(), "{line}: {name}");
        }
        assert!(!bench.path("out").exists() && !bench.path("/dev/null.base").exists());
    }
    // Nothing is removed that is used.
    bench.quiet("encode --base pair.base module -o pair");
    assert!(bench.path("pair.base").exists());
}

#[test]
fn a_bad_base_is_told_once() {
    let Some(bench) = bench("a_bad_base_is_told_once") else { return };
    bench.quiet("encode --base kernel module -o split");
    let mut cut = images(&bench.path("kernel")).btf;
    cut.truncate(cut.len() - 40);
    fs::write(bench.path("cut"), &cut).unwrap();
    fs::write(bench.path("garbage"), "garbage").unwrap();
    copy(&bench, "second");
    copy(&bench, "third");
    for base in ["split", "cut", "garbage", "missing"] {
        let line = format!("encode --in-place --base {base} module second third");
        let output = bench.command(&line).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(told.matches("btfcache: ").count(), 1, "{told}");
        assert!(told.contains(&format!("`{base}`")), "{told}");
    }
    // A module that does not fit is told with its base, and the others are done.
    fs::write(bench.path("second"), "garbage").unwrap();
    let output = bench.command("encode --in-place --base kernel module second third").output();
    let told = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(told.contains("failed to encode `second` upon `kernel`"), "{told}");
    bench.quiet("verify -q third --base kernel");
}

/// A run without a cache prepares so much of the base as its one module needs. Half of this module's
/// names are not where such a run looks for them, and one of those is that of a type of the base.
#[test]
fn a_base_prepared_for_one_module_gives_the_same() {
    let Some(bench) = bench("a_base_prepared_for_one_module_gives_the_same") else { return };
    let types = "struct device { int id; struct node *first; };
        enum state { STATE_OFF, STATE_ON = 7 }; typedef int (*handler)(struct device *device, enum state to);
        struct table { handler handlers[5]; const char *name; union { long first; struct node node; }; };";
    bench.compile("kernel", &format!("{types} struct table table; enum state state;"));
    bench.quiet("encode --no-cache --in-place kernel");
    let own = "struct mine { struct table table; struct device *device; handler handler; } mine;";
    bench.compile("module", &format!("{types} {own}"));
    fs::write(
        bench.path("inline.c"),
        format!("struct node {{ struct node *next; int value; }}; {types} {own}"),
    )
    .unwrap();
    let arguments = ["-g", "-fno-merge-debug-strings", "-c", "inline.c", "-o", "inline.ko"];
    let folder = bench.path("");
    assert!(Command::new("gcc").args(arguments).current_dir(folder).status().unwrap().success());
    for name in ["module", "inline.ko"] {
        bench.quiet(&format!("encode --no-cache --base kernel {name} -o alone"));
        bench.quiet(&format!("encode --base kernel {name} -o cached"));
        let (alone, cached) = (fs::read(bench.path("alone")), fs::read(bench.path("cached")));
        assert!(alone.unwrap() == cached.unwrap(), "{name}");
        let image = fs::read(bench.path("alone")).unwrap();
        let base = load::base(&bench.path("kernel")).unwrap();
        let split = Btf::parse(&image, Some(&base)).unwrap();
        let own: Vec<&[u8]> = split.records().map(|(_, record)| split.name(record[0])).collect();
        assert!(own.contains(&&b"mine"[..]), "{name}");
        assert!(
            !own.iter().any(|name| [&b"table"[..], b"state", b"handler"].contains(name)),
            "{name}"
        );
    }
}

/// With `BTFCACHE_TEST_BASE=BTF` and `BTFCACHE_TEST_MODULES=FOLDER`: the same for every module there.
#[test]
fn modules_of_a_kernel_are_the_same_alone_and_together() {
    const TEST: &str = "modules_of_a_kernel_are_the_same_alone_and_together";
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let (base, folder) = (variable("BTFCACHE_TEST_BASE"), variable("BTFCACHE_TEST_MODULES"));
    let (Some(base), Some(folder)) = (base, folder) else {
        return skip(TEST, "set BTFCACHE_TEST_BASE and BTFCACHE_TEST_MODULES");
    };
    let Some(bench) = Bench::new(TEST) else { return };
    let modules = files_of(&folder);
    assert!(modules.len() > 1, "no modules in {}", folder.display());
    let list: Vec<String> = modules.iter().map(|module| module.display().to_string()).collect();
    fs::write(bench.path("list"), list.join("\n")).unwrap();
    fs::create_dir(bench.path("out")).unwrap();
    let base = base.display();
    bench.quiet(&format!("encode -q --no-cache --base {base} --files-from list --output-dir out"));
    for (module, path) in modules.iter().zip(list) {
        bench.quiet(&format!("encode -q --no-cache --base {base} {path} -o alone"));
        let name = module.file_name().unwrap().to_str().unwrap();
        let together = fs::read(bench.path("out").join(format!("{name}.btf"))).unwrap();
        assert!(fs::read(bench.path("alone")).unwrap() == together, "{path}");
    }
}

/// The modules in a folder and below.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            files.push(path);
        }
    }
    files
}
