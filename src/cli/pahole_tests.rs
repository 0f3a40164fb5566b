//! Tests of the pahole command line: a pure function from words and environment.

use gimli::constants::{DW_LANG_C11, DW_LANG_Rust};

use super::*;
use crate::options::{Feature, Features};
use crate::output::Outcome;

fn parse_line(line: &str, environment: &Environment) -> Result<Command, Refusal> {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse(&words, environment)
}

fn request(line: &str) -> EncodeRequest {
    match parse_line(line, &Environment::default()) {
        Ok(Command::Encode(request)) => *request,
        other => panic!("{line}: {other:?}"),
    }
}

fn said(line: &str) -> String {
    match parse_line(line, &Environment::default()) {
        Ok(Command::Say(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> Refusal {
    parse_line(line, &Environment::default()).expect_err(line)
}

/// What `pahole -J FILE` alone asks for.
fn plain(input: &str) -> EncodeRequest {
    EncodeRequest {
        inputs: vec![input.into()],
        files_from: None,
        target: Target::InPlace,
        strip_signature: false,
        base: None,
        base_note: false,
        options: Options { features: HISTORIC, ..Options::default() },
        flags: Flags::default(),
        jobs: Jobs::Auto,
        verbose: false,
        quiet: false,
        strict: false,
        time: false,
        notices: Vec::new(),
    }
}

fn with_options(request: EncodeRequest, features: Features, no_rust: bool) -> EncodeRequest {
    let except_rust = LanguageFilter::Except(vec![DW_LANG_Rust.0]);
    let languages = if no_rust { except_rust } else { LanguageFilter::All };
    EncodeRequest { options: Options { features, languages, ..request.options }, ..request }
}

/// The list that kernels 6.9 and later pass to pahole 1.26 and later.
const KERNEL_LIST: &str = "encode_force,var,float,enum64,decl_tag,type_tag,optimized_func,\
                           consistent_func,decl_tag_kfuncs";

/// Every row of spec/encoding 9.6, vmlinux and modules, and the lines seen in real builds.
#[test]
fn kernel_builds() {
    use Feature::{
        Attributes, ConsistentFunc, DistilledBase, Enum64, Float, Layout, OptimizedFunc,
        ReproducibleBuild, Var,
    };
    let historic = HISTORIC;
    let novar = historic.with(Var, false);
    let floats = historic.with(Float, true);
    let consistent = floats.with(OptimizedFunc, true).with(ConsistentFunc, true);
    let listed = Features::DEFAULT;
    let attributes = listed.with(Attributes, true);
    let layout = attributes.with(Layout, true);
    let base =
        |request: EncodeRequest, base: &str| EncodeRequest { base: Some(base.into()), ..request };
    let detached = |request: EncodeRequest, file: &str| EncodeRequest {
        target: Target::File(file.into()),
        ..request
    };

    let rows: Vec<(String, EncodeRequest)> = vec![
        // 5.2 to 5.10
        ("-J vmlinux".into(), plain("vmlinux")),
        // 5.11
        ("-J --btf_base vmlinux mod.ko".into(), base(plain("mod.ko"), "vmlinux")),
        // 5.12 to 6.x
        (
            "-J --skip_encoding_btf_vars .tmp_vmlinux.btf".into(),
            with_options(plain(".tmp_vmlinux.btf"), novar, false),
        ),
        (
            "-J --btf_gen_floats .tmp_vmlinux.btf".into(),
            with_options(plain(".tmp_vmlinux.btf"), floats, false),
        ),
        (
            "-J --btf_gen_floats -j .tmp_vmlinux.btf".into(),
            with_options(plain(".tmp_vmlinux.btf"), floats, false),
        ),
        // stable 5.15 to 6.x
        (
            "-J --btf_gen_floats -j --skip_encoding_btf_enum64 --lang_exclude=rust \
             .tmp_vmlinux.btf"
                .into(),
            with_options(plain(".tmp_vmlinux.btf"), floats.with(Enum64, false), true),
        ),
        // 6.1 as built, and 6.4
        (
            "-J --btf_gen_floats -j --lang_exclude=rust --skip_encoding_btf_inconsistent_proto \
             --btf_gen_optimized .tmp_vmlinux.btf"
                .into(),
            with_options(plain(".tmp_vmlinux.btf"), consistent, true),
        ),
        (
            "-J --btf_gen_floats -j --lang_exclude=rust --skip_encoding_btf_inconsistent_proto \
             --btf_gen_optimized --btf_base vmlinux fs/ext4/ext4.ko"
                .into(),
            with_options(base(plain("fs/ext4/ext4.ko"), "vmlinux"), consistent, true),
        ),
        // 6.9 and 6.12 as built
        (
            format!("-J -j --btf_features={KERNEL_LIST} -j --lang_exclude=rust .tmp_vmlinux1"),
            with_options(plain(".tmp_vmlinux1"), listed, true),
        ),
        (
            format!(
                "-J -j --btf_features={KERNEL_LIST} -j --lang_exclude=rust --btf_base vmlinux \
                 fs/ext4/ext4.ko"
            ),
            with_options(base(plain("fs/ext4/ext4.ko"), "vmlinux"), listed, true),
        ),
        // 6.12, external module
        (
            format!(
                "-J -j --btf_features={KERNEL_LIST} --btf_features=distilled_base \
                 --btf_base vmlinux mod.ko"
            ),
            with_options(base(plain("mod.ko"), "vmlinux"), listed.with(DistilledBase, true), false),
        ),
        // 6.15
        (
            format!("-J -j8 --btf_features={KERNEL_LIST} --btf_features=attributes vmlinux"),
            EncodeRequest {
                jobs: Jobs::from_count(8),
                ..with_options(plain("vmlinux"), attributes, false)
            },
        ),
        // 7.x as built
        (
            format!(
                "-J -j --btf_features={KERNEL_LIST} --btf_features=attributes \
                 --btf_features=layout -j --lang_exclude=rust \
                 --btf_encode_detached=.tmp_vmlinux1.BTF.1 .tmp_vmlinux1"
            ),
            with_options(detached(plain(".tmp_vmlinux1"), ".tmp_vmlinux1.BTF.1"), layout, true),
        ),
        (
            format!(
                "-J -j --btf_features={KERNEL_LIST} --btf_features=attributes \
                 --btf_features=layout -j --lang_exclude=rust --btf_base ./vmlinux \
                 --btf_encode_detached=fs/ext4/ext4.ko.BTF.1 fs/ext4/ext4.ko"
            ),
            with_options(
                detached(base(plain("fs/ext4/ext4.ko"), "./vmlinux"), "fs/ext4/ext4.ko.BTF.1"),
                layout,
                true,
            ),
        ),
        // 7.x with KBUILD_BUILD_TIMESTAMP
        (
            format!(
                "-J -j --btf_features={KERNEL_LIST} --btf_features=attributes \
                 --btf_features=layout --btf_features=+reproducible_build -j \
                 --btf_encode_detached=.tmp_vmlinux1.BTF.1 .tmp_vmlinux1"
            ),
            with_options(
                detached(plain(".tmp_vmlinux1"), ".tmp_vmlinux1.BTF.1"),
                layout.with(ReproducibleBuild, true),
                false,
            ),
        ),
    ];
    for (line, expected) in rows {
        assert_eq!(request(&line), expected, "{line}");
    }
}

#[test]
fn switches_change_one_feature_each() {
    use Feature::{
        Attributes, ConsistentFunc, DeclTag, EncodeForce, Enum64, Float, OptimizedFunc,
        ReproducibleBuild, TypeTag, Var,
    };
    for (option, feature, on) in [
        ("--btf_encode_force", EncodeForce, true),
        ("--btf_gen_floats", Float, true),
        ("--btf_gen_optimized", OptimizedFunc, true),
        ("--btf_attributes", Attributes, true),
        ("--reproducible_build", ReproducibleBuild, true),
        ("--skip_encoding_btf_inconsistent_proto", ConsistentFunc, true),
        ("--skip_encoding_btf_vars", Var, false),
        ("--skip_encoding_btf_decl_tag", DeclTag, false),
        ("--skip_encoding_btf_type_tag", TypeTag, false),
        ("--skip_encoding_btf_enum64", Enum64, false),
    ] {
        let features = |line: String| request(&line).options.features;
        assert_eq!(features(format!("-J {option} a")), HISTORIC.with(feature, on), "{option}");
        let default = Features::DEFAULT;
        let after = features(format!("-J --btf_features=default {option} a"));
        assert_eq!(after, default.with(feature, on), "{option}");
        let before = features(format!("-J {option} --btf_features=default a"));
        assert_eq!(before, default, "{option}");
    }
}

#[test]
fn feature_lists() {
    let features = |line: &str| request(line).options.features;
    let all = features("-J --btf_features=all a");
    assert_eq!(features("-J --btf_gen_all a"), all);
    assert_eq!(features("-J --btf_gen_floats --btf_gen_all --skip_encoding_btf_vars a"), {
        all.with(Feature::Var, false)
    });
    assert_eq!(features("-J --features layout a"), Features::of(&[Feature::Layout]));
    assert_eq!(features("-J --btf_features_strict=+layout a"), {
        Features::DEFAULT.with(Feature::Layout, true)
    });
    assert_eq!(features("-J --btf_features= a"), Features::NONE);
    let long = format!("-J --btf_features={},layout a", ["var"; 256].join(","));
    assert_eq!(features(&long), Features::of(&[Feature::Var]));
}

#[test]
fn unknown_features_are_told_only_after_verbose() {
    assert_eq!(request("-J --btf_features=x,var -V a").notices, [""; 0]);
    let expected = ["Ignoring unsupported feature 'x'"];
    assert_eq!(request("-J -V --btf_features=x,var a").notices, expected);
}

#[test]
fn languages() {
    let languages = |line: &str, environment: &Environment| match parse_line(line, environment) {
        Ok(Command::Encode(request)) => request.options.languages,
        other => panic!("{line}: {other:?}"),
    };
    let none = Environment::default();
    let rust_in_environment = Environment::of(&[(PAHOLE_LANG_EXCLUDE, "rust")]);
    let rust = vec![DW_LANG_Rust.0];
    let c11 = vec![DW_LANG_C11.0];
    for (line, environment, expected) in [
        ("-J a", &none, LanguageFilter::All),
        ("-J a --lang=c11", &none, LanguageFilter::Only(c11.clone())),
        ("-J a --lang_exclude c11", &none, LanguageFilter::Except(c11.clone())),
        ("-J a --lang=rust --lang=c11", &none, LanguageFilter::Only(c11.clone())),
        ("-J a --lang=rust --lang_exclude=c11", &none, LanguageFilter::Except(c11.clone())),
        ("-J a --lang_exclude=rust --lang=c11", &none, LanguageFilter::Except(c11.clone())),
        ("-J a", &rust_in_environment, LanguageFilter::Except(rust)),
        ("-J a --lang=c11", &rust_in_environment, LanguageFilter::Only(c11)),
    ] {
        assert_eq!(languages(line, environment), expected, "{line}");
    }
    let unknown = refusal("-J --lang=c,klingon a");
    assert_eq!(unknown, Refusal::failed("unknown language \"klingon\""));
    let empty = Environment::of(&[(PAHOLE_LANG_EXCLUDE, "")]);
    assert_eq!(parse_line("-J a", &empty), Err(Refusal::failed("unknown language \"\"")));
}

#[test]
fn jobs() {
    for (line, expected) in [
        ("-J a", Jobs::Auto),
        ("-J -j a", Jobs::Auto),
        ("-J --jobs a", Jobs::Auto),
        ("-Jj a", Jobs::Auto),
        ("-J -j4 a", Jobs::from_count(4)),
        ("-Jj4 a", Jobs::from_count(4)),
        ("-J --jobs=4 a", Jobs::from_count(4)),
        ("-J --jo=4 -j a", Jobs::Auto),
        ("-J -j0 a", Jobs::from_count(1)),
        ("-J -j-3 a", Jobs::from_count(1)),
        ("-J -jx a", Jobs::from_count(1)),
        ("-J --jobs= a", Jobs::from_count(1)),
    ] {
        let request = request(line);
        assert_eq!(request.jobs, expected, "{line}");
        assert_eq!(request.inputs, [PathBuf::from("a")], "{line}");
    }
}

#[test]
fn detached_number_of_jobs_is_an_input() {
    let request = request("-J -j 4 a");
    assert_eq!(request.inputs, [PathBuf::from("4"), PathBuf::from("a")]);
    assert_eq!(request.notices, ["`4` after `-j` is an input file; write `-j4`"]);
}

#[test]
fn remaining_options() {
    let request = request(
        "a -JVq -X drivers/ --kabi_prefix __kabi --hashbits=16 --ptr_table_stats -F dwarf,btf \
         --first_obj_only -- -b",
    );
    assert_eq!(request.inputs, [PathBuf::from("a"), PathBuf::from("-b")]);
    assert!(request.verbose && request.quiet);
    assert_eq!(request.options.exclude_unit_prefix.as_deref(), Some(&b"drivers/"[..]));
    assert_eq!(request.options.kabi_prefix.as_deref(), Some(&b"__kabi"[..]));
}

#[test]
fn own_options() {
    let own = request("-J --compat=pahole --time --strict a");
    assert!(own.options.compat_pahole && own.time && own.strict);
    let other = request("-J --compat pahole a");
    assert!(other.options.compat_pahole && !other.time && !other.strict);
    // pahole's abbreviations stay what they are: `--stru` is `--structs`, `--comp` `--compile`.
    assert!(refusal("-J --str a").message.starts_with("'--structs'"));
    assert!(refusal("-J --comp a").message.starts_with("'--compile'"));
    assert!(refusal("-J --compat=gcc a").message.contains("not 'gcc'"));
}

#[test]
fn detached_output_implies_encoding() {
    assert_eq!(request("--btf_encode_d o a").target, Target::File("o".into()));
}

#[test]
fn answers() {
    assert_eq!(said("--version"), "v1.32\n");
    assert_eq!(said("--numeric_version"), "132\n");
    let devel = said("--devel_version");
    assert!(devel.starts_with("v1.32-btfcache-") && devel.ends_with('\n'), "{devel}");
    assert_eq!(
        said("-J x --supported_btf_features"),
        "encode_force,var,float,decl_tag,type_tag,enum64,optimized_func,consistent_func,\
         decl_tag_kfuncs,reproducible_build,distilled_base,global_var,attributes,true_signature,\
         layout,force_cu_merging\n"
    );
    // Answered where they stand, before any fault that follows.
    assert_eq!(said("--sizes --vers --foo"), "v1.32\n");
    // Answered at the end.
    assert_eq!(said("--num --sizes -J"), "132\n");
    assert!(said("-?").starts_with("Usage: pahole"));
    assert!(said("--help").contains("--btf_features_strict"));
    assert!(said("--usage").starts_with("Usage: pahole"));
}

#[test]
fn help_names_every_option_that_is_not_refused() {
    for option in OPTIONS {
        if !matches!(option.meaning, Meaning::Refused(_)) {
            assert!(HELP.contains(&format!("--{}", option.long)), "{}", option.long);
        }
    }
}

#[test]
fn refused_by_name() {
    for (line, name) in [
        ("--sizes vmlinux", "'--sizes'"),
        ("--expand_t -J vmlinux", "'--expand_types'"),
        ("-s vmlinux", "'-s'"),
        ("-C task_struct vmlinux", "'-C'"),
        ("-EA vmlinux", "'-E'"),
        ("--expand_types -V vmlinux", "'--expand_types'"),
    ] {
        let Refusal { message, outcome } = refusal(line);
        let expected = format!(
            "{name} prints data structures, which btfcache does not do; call the pahole of the \
             dwarves package"
        );
        assert_eq!((message, outcome), (expected, Outcome::Usage), "{line}");
    }
}

#[test]
fn other_refusals() {
    for (line, part, outcome) in [
        ("vmlinux", "without '--btf_encode' this prints data structures", Outcome::Usage),
        ("", "without '--btf_encode'", Outcome::Usage),
        ("-J", "no input file", Outcome::Usage),
        ("--running_kernel_vmlinux", "looks for the running kernel", Outcome::Usage),
        ("-Z vmlinux", "encodes CTF", Outcome::Usage),
        ("-J -F btf a", "'--format_path=btf'", Outcome::Usage),
        ("-J --btf_encode_detached=o a b", "one input", Outcome::Usage),
        ("-J --hashbits=32 a", "Invalid --hashbits value (32)", Outcome::Failed),
        ("-J --hashbits=-1 a", "Invalid --hashbits value (-1)", Outcome::Failed),
        ("--foo --version", "unrecognized option '--foo'", Outcome::Usage),
        ("-J -K a", "invalid option -- 'K'", Outcome::Usage),
        ("-J --lan=c a", "possibilities: '--lang' '--lang_exclude'", Outcome::Usage),
        ("-J --btf_feat=var a", "'--btf_features' '--btf_features_strict'", Outcome::Usage),
        ("-J --btf_features", "option '--btf_features' requires an argument", Outcome::Usage),
        ("-J --quiet=1", "option '--quiet' doesn't allow an argument", Outcome::Usage),
        ("-J a -X", "option requires an argument -- 'X'", Outcome::Usage),
        ("-J --btf_features_strict=var,x a", "Feature 'x' in 'var,x'", Outcome::Failed),
        // Named in pahole's help, but not an option of it.
        ("-J --encode_btf_global_vars a", "unrecognized option", Outcome::Usage),
    ] {
        let refusal = refusal(line);
        assert!(refusal.message.contains(part), "{line}: {}", refusal.message);
        assert_eq!(refusal.outcome, outcome, "{line}");
    }
}

#[test]
fn numbers_are_read_as_c_does() {
    for (word, value) in [
        ("", 0),
        ("x", 0),
        ("12", 12),
        (" 12x", 12),
        ("+3", 3),
        ("-3", -3),
        ("--3", 0),
        ("=4", 0),
        ("99999999999999999999", i64::MAX),
    ] {
        assert_eq!(atoi(OsStr::new(word)), value, "{word}");
    }
}
