//! A module whose base has changed: its result moves if nothing that it stands on has changed, and is
//! what a run without a cache makes, whatever has.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::Bench;

const BASE: &str = "
    typedef unsigned int word;
    struct list { struct list *next; };
    struct shared { word flags; struct list list; };
    struct inner { struct shared *up; int depth; };
    struct other { struct inner inner; word count; };
    union choice { int number; void *place; };
    enum colour { RED, GREEN };
    struct holder { struct { int plain; } anonymous; };
    int take(struct shared *shared, union choice choice) { return shared->flags + choice.number; }
    int use(struct other *other, enum colour colour) { return 0; }
    int hold(struct holder *holder) { return holder->anonymous.plain; }
";
/// Edits of the base: what is replaced, by what, whether the module's result can move.
const EDITS: [(&str, &str, bool); 13] = [
    ("*up; int depth;", "*added; int at;", true),
    ("word count;", "word count; word total;", true),
    ("RED, GREEN", "RED, BLUE", true),
    ("int use(", "int used(", true),
    // What the module mentions.
    ("word flags;", "word flags; word more;", false),
    ("struct list *next;", "struct list *next, *last;", false),
    ("typedef unsigned int word", "typedef unsigned long word", false),
    ("int take(", "int take_all(", false),
    // Its own struct is another one of that name now, or one of the base.
    ("struct inner ", "struct own ", false),
    (
        "int depth; };",
        "int depth; }; struct own { struct list list; int private; }; struct own *mine;",
        false,
    ),
    // New types: ids move.
    ("int depth;", "int depth; char *text;", false),
    // Types without names: nothing says who uses them.
    ("struct { int plain; }", "struct { int plain, more; }", false),
    ("(struct other *other,", "(struct other *renamed,", false),
];
const MODULE: &str = "
    typedef unsigned int word;
    struct list { struct list *next; };
    struct shared { word flags; struct list list; };
    union choice { int number; void *place; };
    struct own { struct list list; int private; };
    int take(struct shared *shared, union choice choice) { return shared->flags + choice.number; }
    int start(struct own *own, struct shared *shared) {
      union choice choice = { own->private };
      return take(shared, choice);
    }
";

fn compile(folder: &Path, name: &str, text: &str, flags: &[&str]) {
    fs::write(folder.join("text.c"), text).unwrap();
    let line = [&["-g", "-O0", "text.c", "-o", name], flags].concat();
    let output = Command::new("gcc").args(line).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A folder with a module.
fn workshop(test: &str) -> Option<Bench> {
    let bench = Bench::new(test)?;
    compile(&bench.path("."), "module", MODULE, &["-c"]);
    Some(bench)
}

/// Encodes the module upon a base with this text; gives whether its result moved there, or was made.
fn moves(bench: &Bench, text: &str) -> (bool, bool) {
    compile(&bench.path("."), "kernel", text, &["-shared", "-fPIC"]);
    bench.quiet("encode --no-cache kernel -o base.btf");
    let expected = bench.expected("--base base.btf module");
    let counts = || (bench.count("hits_moved"), bench.count("misses_new"));
    let before = counts();
    bench.check("--base base.btf module", &expected);
    let after = counts();
    (after.0 > before.0, after.1 > before.1)
}

#[test]
fn a_result_moves_if_nothing_it_stands_on_has_changed() {
    let Some(bench) = workshop("a_result_moves_if_nothing_it_stands_on_has_changed") else {
        return;
    };
    for (old, new, can_move) in EDITS {
        assert!(BASE.contains(old), "{old}");
        fs::remove_dir_all(bench.path("cache")).ok();
        assert_eq!(moves(&bench, BASE), (false, true));
        let edited = BASE.replace(old, new);
        assert_eq!(moves(&bench, &edited), (can_move, !can_move), "{old} -> {new}");
        // It is found there, and from there it moves on.
        assert_eq!(moves(&bench, &edited), (false, false), "{old} -> {new}");
        let onward = edited.replace("hold(", "held(");
        assert_eq!(moves(&bench, &onward), (true, false), "{old} -> {new}, and on");
        assert_eq!(moves(&bench, BASE), (false, false));
    }
}

#[test]
fn a_result_that_moved_is_checked_as_any_other() {
    let Some(bench) = workshop("a_result_that_moved_is_checked_as_any_other") else { return };
    moves(&bench, BASE);
    compile(&bench.path("."), "kernel", &BASE.replace("depth", "height"), &["-shared", "-fPIC"]);
    bench.quiet("encode --no-cache kernel -o base.btf");
    let expected = bench.expected("--base base.btf module");
    bench.check("--check 100% --base base.btf module", &expected);
    assert_eq!(
        (bench.count("hits_moved"), bench.count("checked"), bench.count("differs")),
        (1, 1, 0)
    );
    bench.check("--base base.btf module", &expected);
    assert_eq!(bench.hits(), (2, 1));
}

#[test]
fn what_a_result_stands_on_can_be_damaged() {
    let Some(bench) = workshop("what_a_result_stands_on_can_be_damaged") else { return };
    moves(&bench, BASE);
    let edits = ["height", "width", "length", "weight", "measure", "amount"];
    let kinds = ["footings", "bases", "results"];
    for (edit, kind) in edits.iter().zip(kinds.iter().cycle()) {
        for path in bench.files().iter().filter(|path| path.to_string_lossy().contains(kind)) {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x55;
            fs::write(path, bytes).unwrap();
        }
        compile(&bench.path("."), "kernel", &BASE.replace("depth", edit), &["-shared", "-fPIC"]);
        bench.quiet("encode --no-cache kernel -o base.btf");
        let expected = bench.expected("--base base.btf module");
        bench.warned("encode --base base.btf module -o out.btf");
        assert!(fs::read(bench.path("out.btf")).unwrap() == expected, "{kind}");
    }
}
