//! Split BTF of what real compilers make, upon a base that is a real program: the rules B1 to B7 of
//! spec/btf-and-dedup 2.5, one by one, the same bytes on every way there, and wrong bases.

mod workshop;

use btfcache::btf::kind::Kind;
use btfcache::elf::ElfFile;
use btfcache::embed::Edit;

use self::workshop::{Units, Workshop};

const COMPILERS: [&str; 2] = ["gcc", "clang"];

/// What both programs include.
const COMMON: &str = "
    struct shared { int a; struct shared *next; int (*call)(struct shared *, long); };
    typedef struct shared shared_alias;
    union choice { shared_alias *one; char bytes[8]; };
    enum colour { RED, GREEN = 5 };
    struct grid { int cells[2][3][4]; const volatile char *text; enum colour colour; };
    int shared_function(struct shared *s, union choice *c);
";

const BASE: Units<'static> = &[
    (
        "first.c",
        "COMMON
         struct defined_in_base { long x; }; enum enum_of_base { BASE_VALUE = 3 };
         struct completed; struct holder { struct completed *c; int n; };
         struct above { struct holder h; struct holder *array[2]; };
         enum completed_enum; struct enum_holder { enum completed_enum *e; };
         struct differs { int a; }; struct differs_user { struct differs *d; };
         struct same_differs { long b; };
         struct twice { int first; }; struct twice_user { struct twice *t; };
         int shared_function(struct shared *s, union choice *c) { return s && c; }
         struct defined_in_base *one; enum enum_of_base two; struct above *three;
         struct enum_holder *four; struct differs_user *five; struct twice_user *six;
         struct grid *seven; struct same_differs *eight;
         int first(struct twice_user *t, struct above *a) { return t && a; }",
    ),
    (
        "second.c",
        "COMMON
         struct twice { long second; char tail; }; struct twice_user { struct twice *t; };
         struct twice_user *six_b;
         int second(struct twice_user *t) { return t != 0; }",
    ),
];

fn with_common(units: Units<'_>) -> Vec<(String, String)> {
    let full = |(name, text): &(&str, &str)| ((*name).to_owned(), text.replace("COMMON", COMMON));
    units.iter().map(full).collect()
}

/// Calls `check` with a workshop of each compiler.
fn with_base(check: impl Fn(&Workshop)) {
    let units = with_common(BASE);
    let units: Vec<(&str, &str)> = units.iter().map(|(name, text)| (&**name, &**text)).collect();
    COMPILERS.iter().filter_map(|compiler| Workshop::new(compiler, &units)).for_each(|w| check(&w));
}

fn module(workshop: &Workshop, name: &str, units: Units<'_>) {
    let units = with_common(units);
    let units: Vec<(&str, &str)> = units.iter().map(|(name, text)| (&**name, &**text)).collect();
    workshop.module(name, &units);
}

/// Rule B1: types, functions and prototypes of the base are not repeated.
#[test]
fn what_the_base_has_is_not_repeated() {
    with_base(|workshop| {
        let units = [(
            "module.c",
            "COMMON
             int shared_function(struct shared *s, union choice *c) { return s && c; }
             static int helper(struct grid *g) { return g->cells[1][2][3]; }
             int module_function(struct grid *g, shared_alias *s) { return helper(g) + s->a; }
             struct own { struct grid g; shared_alias *s; int (*call)(struct shared *, long); };
             struct own *own;",
        )];
        module(workshop, "module.ko", &units);
        let split = workshop.split("module.ko");
        for (kind, name) in [
            (Kind::Struct, "shared"),
            (Kind::Struct, "grid"),
            (Kind::Union, "choice"),
            (Kind::Enum, "colour"),
            (Kind::Typedef, "shared_alias"),
            (Kind::Func, "shared_function"),
            (Kind::Int, "int"),
            (Kind::Array, ""),
            (Kind::Ptr, ""),
        ] {
            // The module's own pointers are those to its own struct only.
            let is_shared =
                split.is_shared(kind, name) || (kind == Kind::Ptr && split.own(kind, name) <= 1);
            assert!(is_shared, "{kind:?} {name}: {:#?}", split.listing());
        }
        assert_eq!(split.own(Kind::Func, "module_function"), 1);
        assert_eq!(
            split.own(Kind::FuncProto, ""),
            split.listing().iter().filter(|line| line.contains("FuncProto")).count()
        );
        assert_eq!(split.own(Kind::Struct, "own"), 1);
    });
}

/// Rules B2 and B5: a declaration is what the base defines.
#[test]
fn declarations_mean_the_definitions_of_the_base() {
    with_base(|workshop| {
        let units = [(
            "module.c",
            "struct defined_in_base; enum enum_of_base;
             struct own { struct defined_in_base *d; enum enum_of_base *e; }; struct own *own;
             int module_function(struct defined_in_base *d) { return d != 0; }",
        )];
        module(workshop, "module.ko", &units);
        let split = workshop.split("module.ko");
        assert_eq!(split.own(Kind::Fwd, "defined_in_base"), 0, "{:#?}", split.listing());
        assert_eq!(split.own(Kind::Enum, "enum_of_base"), 0);
        let own = split.record(Kind::Struct, "own");
        let (first, second) = (split.chain(own[4]), split.chain(own[7]));
        assert_eq!(first[1], (Kind::Struct, "defined_in_base".to_owned()));
        assert_eq!(second[1], (Kind::Enum, "enum_of_base".to_owned()));
        assert_eq!(first[2], (Kind::Int, "long int".to_owned()).clone_if(&first[2].1));
    });
}

/// Compilers spell `long` differently.
trait CloneIf {
    fn clone_if(self, name: &str) -> Self;
}

impl CloneIf for (Kind, String) {
    fn clone_if(self, name: &str) -> Self {
        (self.0, name.to_owned())
    }
}

/// Rules B3, B4 and B5: a module defines what the base declares; what the base has above the
/// declaration is not repeated.
#[test]
fn a_definition_completes_declarations_of_the_base() {
    with_base(|workshop| {
        let units = [(
            "module.c",
            "struct completed { int inside; }; struct holder { struct completed *c; int n; };
             struct above { struct holder h; struct holder *array[2]; };
             enum completed_enum { LATE = 9 }; struct enum_holder { enum completed_enum *e; };
             struct own { struct above a; struct enum_holder e; struct completed c; };
             struct own *own; int module_function(struct above *a) { return a != 0; }",
        )];
        module(workshop, "module.ko", &units);
        let split = workshop.split("module.ko");
        let listing = split.listing();
        assert!(split.in_base(Kind::Fwd, "completed") == 1, "the base declares it");
        assert_eq!(split.own(Kind::Struct, "completed"), 1, "{listing:#?}");
        assert_eq!(split.own(Kind::Fwd, "completed"), 0, "{listing:#?}");
        assert_eq!(split.own(Kind::Enum, "completed_enum"), 1, "{listing:#?}");
        for name in ["holder", "above", "enum_holder"] {
            assert!(split.is_shared(Kind::Struct, name), "{name}: {listing:#?}");
        }
        assert_eq!(split.own(Kind::Array, ""), 0, "{listing:#?}");
    });
}

/// What a module defines differently is its own, with all that reaches it.
#[test]
fn other_definitions_are_kept_apart() {
    const DIFFERENT: &str = "struct differs { long other; char more; };
         struct differs_user { struct differs *d; }; struct differs_user *own_user;
         int different(struct differs_user *u) { return u != 0; }";
    const SAME: &str = "struct differs { int a; }; struct differs_user { struct differs *d; };
         struct differs_user *base_user; int same(struct differs_user *u) { return u != 0; }";
    const DECLARED: &str = "struct differs; struct differs_user { struct differs *d; };
         struct differs_user *declared_user;
         int declared(struct differs_user *u) { return u != 0; }";
    with_base(|workshop| {
        let all = [("one.c", DIFFERENT), ("two.c", DECLARED)];
        let some = [("one.c", DIFFERENT), ("two.c", SAME), ("three.c", DECLARED)];
        for (name, units) in [("all.ko", &all[..]), ("some.ko", &some)] {
            module(workshop, name, units);
            let split = workshop.split(name);
            let listing = split.listing();
            assert_eq!(split.own(Kind::Struct, "differs"), 1, "{name} {listing:#?}");
            assert_eq!(split.own(Kind::Struct, "differs_user"), 1, "{name} {listing:#?}");
            assert_eq!(split.own(Kind::Fwd, "differs"), 0, "{name} {listing:#?}");
            let chain = split.chain(split.record(Kind::Struct, "differs_user")[4]);
            assert_eq!(chain[1], (Kind::Struct, "differs".to_owned()));
            assert!(chain[2].1.contains("long"), "{chain:?}");
        }
    });
}

/// The base has two structs of one name; a module that has either has nothing new.
#[test]
fn names_that_the_base_defines_twice() {
    with_base(|workshop| {
        for (number, body) in ["int first;", "long second; char tail;"].into_iter().enumerate() {
            let text = format!(
                "struct twice {{ {body} }}; struct twice_user {{ struct twice *t; }};
                 struct own {{ struct twice_user u; }}; struct own *own;
                 int module_function(struct twice_user *u) {{ return u != 0; }}"
            );
            let name = format!("twice{number}.ko");
            module(workshop, &name, &[("module.c", &text)]);
            let split = workshop.split(&name);
            assert_eq!(split.in_base(Kind::Struct, "twice"), 2);
            assert!(split.is_shared(Kind::Struct, "twice"), "{:#?}", split.listing());
            assert!(split.is_shared(Kind::Struct, "twice_user"), "{:#?}", split.listing());
            let chain = split.chain(split.record(Kind::Struct, "own")[4]);
            let is_long = chain.last().unwrap().1.contains("long");
            assert_eq!(is_long, number == 1, "{chain:?}");
        }
        // Neither of the two, and both at once.
        let third = "struct twice { char third[3]; }; struct twice_user { struct twice *t; };
                     struct twice_user *own;";
        module(workshop, "third.ko", &[("module.c", third)]);
        let split = workshop.split("third.ko");
        assert_eq!(
            (split.own(Kind::Struct, "twice"), split.own(Kind::Struct, "twice_user")),
            (1, 1)
        );
        module(workshop, "both.ko", BASE);
        let split = workshop.split("both.ko");
        let types = split.listing();
        assert!(
            types.iter().all(|line| line.contains("Var") || line.contains("Datasec")),
            "{types:#?}"
        );
    });
}

/// Rule B1 for tags; only clang has them.
#[test]
fn tags_of_the_base_are_not_repeated() {
    const TEXT: &str = "
        #define tag(name) __attribute__((btf_decl_tag(name)))
        struct tagged { int a tag(\"member\"); int __attribute__((btf_type_tag(\"user\"))) *p; } tag(\"whole\");
        int tagged_function(struct tagged *t tag(\"argument\")) tag(\"function\");
        int tagged_function(struct tagged *t) { return t->a; }";
    let Some(workshop) = Workshop::new("clang", &[("base.c", TEXT)]) else { return };
    let text =
        format!("{TEXT} struct own {{ struct tagged t; int b tag(\"own\"); }}; struct own *own;");
    workshop.module("module.ko", &[("module.c", &text)]);
    let split = workshop.split("module.ko");
    for (kind, value) in
        [(Kind::DeclTag, "member"), (Kind::DeclTag, "whole"), (Kind::TypeTag, "user")]
    {
        assert!(split.is_shared(kind, value), "{value}: {:#?}", split.listing());
    }
    assert!(split.is_shared(Kind::Func, "tagged_function"));
    assert_eq!(split.own(Kind::DeclTag, "own"), 1);
}

const MODULE: Units<'static> = &[
    (
        "one.c",
        "COMMON struct differs { long other; }; struct own { struct differs d; struct grid g; };
               struct own *own; int one(struct own *o, struct shared *s) { return o && s; }",
    ),
    (
        "two.c",
        "COMMON struct differs; struct own; struct completed { int in; };
               struct pair { struct own *o; struct differs *d; struct completed *c; };
               struct pair *pair; int two(struct pair *p) { return p != 0; }",
    ),
    (
        "three.c",
        "COMMON struct twice { long second; char tail; }; struct twice_user { struct twice *t; };
                 struct twice_user *three_a; int three(struct twice_user *t) { return t != 0; }",
    ),
];

/// Number of threads, one by one or in a batch, base prepared or not, linked or not.
#[test]
fn the_same_bytes_on_every_way() {
    with_base(|workshop| {
        module(workshop, "module.ko", MODULE);
        module(workshop, "other.ko", &MODULE[1..]);
        workshop.split("other.ko");
        workshop.split("module.ko");
        let expected = [workshop.bytes("module.ko.btf"), workshop.bytes("other.ko.btf")];
        let single = ["--base", "base.btf", "module.ko", "-o", "out"];
        for jobs in ["1", "2", "8"] {
            workshop.encode(&[&single[..], &["-j", jobs]].concat());
            assert!(workshop.bytes("out") == expected[0], "-j{jobs}");
            std::fs::create_dir_all(workshop.path("folder")).unwrap();
            for disable in ["0", "1"] {
                let batch =
                    ["--base", "base.btf", "module.ko", "other.ko", "--output-dir", "folder"];
                let ran = workshop
                    .run(&[&batch[..], &["-j", jobs]].concat(), &[("BTFCACHE_DISABLE", disable)]);
                assert!(ran.status.success(), "{ran:?}");
                assert!(workshop.bytes("folder/module.ko.btf") == expected[0], "batch -j{jobs}");
                assert!(workshop.bytes("folder/other.ko.btf") == expected[1], "batch -j{jobs}");
            }
        }
        // The cache was filled above: now the base is prepared, the module known or made again.
        for recache in ["0", "1"] {
            let ran = workshop.run(&single, &[("BTFCACHE_RECACHE", recache)]);
            assert!(ran.status.success(), "{ran:?}");
            assert!(workshop.bytes("out") == expected[0], "RECACHE={recache}");
        }
        let units = with_common(MODULE);
        let units: Vec<(&str, &str)> =
            units.iter().map(|(name, text)| (&**name, &**text)).collect();
        workshop.link("linked.so", &units);
        workshop.split("linked.so");
        assert!(workshop.bytes("linked.so.btf") == expected[0], "linked");
    });
}

/// The base as a file of BTF, as a section of a program.
#[test]
fn a_base_inside_of_an_elf_file() {
    with_base(|workshop| {
        module(workshop, "module.ko", MODULE);
        workshop.split("module.ko");
        workshop.encode(&["--in-place", "base.elf"]);
        workshop.encode(&["--base", "base.elf", "module.ko", "-o", "out"]);
        assert!(workshop.bytes("out") == workshop.bytes("module.ko.btf"));
    });
}

/// `.BTF` is added, then replaced; a `.BTF.base` goes; a second run changes nothing.
#[test]
fn in_place_twice() {
    with_base(|workshop| {
        module(workshop, "module.ko", MODULE);
        workshop.split("module.ko");
        let in_place = ["--base", "base.btf", "--in-place", "module.ko"];
        workshop.encode(&in_place);
        let dump = || {
            workshop.tool("objcopy", &["--dump-section=.BTF=dumped", "module.ko", "copy"]);
            workshop.bytes("dumped")
        };
        assert!(dump() == workshop.bytes("module.ko.btf"));
        let first = workshop.bytes("module.ko");
        workshop.encode(&in_place);
        assert!(workshop.bytes("module.ko") == first, "the second run changes the file");
        let sections: &[(&str, &[u8])] = &[(".BTF", b"old"), (".BTF.base", b"older")];
        Edit { sections, remove: &[] }.apply(&workshop.path("module.ko")).unwrap();
        workshop.encode(&in_place);
        assert!(dump() == workshop.bytes("module.ko.btf"));
        let file = workshop.bytes("module.ko");
        let elf = ElfFile::open(&workshop.path("module.ko")).unwrap();
        assert!(elf.section(".BTF.base").is_none(), "`.BTF.base` is still there");
        workshop.encode(&in_place);
        assert!(workshop.bytes("module.ko") == file);
    });
}

/// What cannot be a base: exit status 2, both files are named, nothing is written.
#[test]
fn wrong_bases() {
    with_base(|workshop| {
        module(workshop, "module.ko", MODULE);
        workshop.split("module.ko");
        std::fs::copy(workshop.path("module.ko.btf"), workshop.path("split.btf")).unwrap();
        std::fs::write(workshop.path("garbage"), "not BTF at all").unwrap();
        let cut = &workshop.bytes("base.btf")[..400];
        std::fs::write(workshop.path("cut.btf"), cut).unwrap();
        let mut bases = vec!["split.btf", "garbage", "cut.btf", "module.ko", "absent"];
        if std::process::Command::new("clang").arg("--version").output().is_ok() {
            workshop.object_for("s390x", "big.o", ("big.c", "struct s { int a; } *s;"));
            workshop.encode(&["big.o", "-o", "big.btf"]);
            bases.push("big.btf");
        }
        for base in bases {
            for disable in ["0", "1"] {
                let arguments = ["--base", base, "module.ko", "-o", "never"];
                let ran = workshop.run(&arguments, &[("BTFCACHE_DISABLE", disable)]);
                let said = String::from_utf8_lossy(&ran.stderr);
                assert_eq!(ran.status.code(), Some(2), "{base}: {said}");
                assert!(said.contains(base) && said.contains("module.ko"), "{base}: {said}");
                assert!(!workshop.path("never").exists());
            }
        }
    });
}
