//! `btfcache encode`: its flags, and the request they make.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args, ValueEnum};

use super::cache::UseArguments;
use super::features::Selection;
use super::{Refusal, languages};
use crate::commands::{Command, EncodeRequest, Jobs, Target};
use crate::config::{Environment, PAHOLE_LANG_EXCLUDE};
use crate::options::{Feature, Features, LanguageFilter, Options};

const EXAMPLES: &str = "\
Examples:
  btfcache encode vmlinux -o vmlinux.btf
      the default features into a file of their own
  btfcache encode --in-place --features=+layout --lang-exclude=rust vmlinux
      default features and `layout`, no Rust, into the section .BTF
  btfcache encode --in-place --base vmlinux fs/*/*.ko
      modules, upon the BTF of their kernel
  btfcache encode --in-place --base vmlinux --features=+distilled_base out-of-tree.ko
      a module for any kernel that has the same types
  btfcache encode drivers/net/dummy.o -o - | bpftool btf dump file /dev/stdin
      look at the BTF of one object file";

/// Encode the DWARF of an ELF file as BTF
///
/// Reads every compile unit of FILE and writes one BTF image, to a file, to stdout, or into FILE
/// itself as section .BTF. A FILE without DWARF is no error: it is said on stderr, and nothing is
/// written.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
#[group(skip)]
#[command(group(ArgGroup::new("target").required(true).args(["output", "in_place", "output_dir"])))]
pub(super) struct EncodeArguments {
    /// ELF files to read
    ///
    /// Kernel images, modules or object files with DWARF 2 to 5, of any byte order and word size.
    /// Several are encoded in parallel, each by itself. One that fails is reported in one line, the
    /// others are done, and the exit status is 2.
    #[arg(value_name = "FILE", required_unless_present = "files_from")]
    inputs: Vec<PathBuf>,

    /// File that names more FILEs, one a line, `-` for stdin
    ///
    /// Example: `find . -name '*.ko' | btfcache encode --in-place --base vmlinux --files-from -`
    #[arg(long, value_name = "LIST")]
    files_from: Option<PathBuf>,

    /// File to write the BTF to, `-` for stdout
    ///
    /// The file is replaced as a whole, or not touched at all. `-` writes to stdout, unless that
    /// is a terminal. With the feature `distilled_base` the base goes to OUT.base; without it, one
    /// that an earlier run put there is removed.
    ///
    /// Example: `-o vmlinux.btf`
    #[arg(short, long, value_name = "OUT", conflicts_with = "files_from")]
    output: Option<PathBuf>,

    /// Folder to write the BTF of each FILE to, as `NAME.btf`
    ///
    /// Example: `btfcache encode --base vmlinux --output-dir btf net/*.ko`
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Put the BTF into FILE itself
    ///
    /// Adds the section .BTF, or replaces it; with the feature `distilled_base` .BTF.base too. With
    /// `--base` a section .note.btfcache tells the digest of BASE. The contents of all other sections
    /// stay as they are.
    ///
    /// Example: `btfcache encode --in-place ext4.ko`
    #[arg(short, long)]
    in_place: bool,

    /// Remove the signature of a signed module
    ///
    /// A signature at the end of FILE is of the bytes before it, so it would be wrong. Without this
    /// option such a FILE is refused.
    ///
    /// Example: `btfcache encode --in-place --strip-signature ext4.ko`
    #[arg(long, conflicts_with_all = ["output", "output_dir"])]
    strip_signature: bool,

    /// Kernel image whose BTF to build upon
    ///
    /// For modules: types that BASE has are not repeated (split BTF). BASE is an ELF file with a
    /// section .BTF, a file of BTF, or the running kernel's /sys/kernel/btf/vmlinux. The kernel
    /// only loads a module whose BTF was built upon its own.
    ///
    /// Example: `btfcache encode --in-place --base vmlinux ext4.ko`
    #[arg(short, long, value_name = "BASE", visible_alias = "btf_base")]
    base: Option<PathBuf>,

    /// Do not say in FILE which base it was built upon
    ///
    /// With `--in-place` and `--base`, a section .note.btfcache has the digest of BASE's BTF, by
    /// which `btfcache verify` tells whether the two belong together. It is not loaded. With this
    /// option there is none, and one of an earlier run is removed.
    ///
    /// Example: `btfcache encode --in-place --base vmlinux --no-note ext4.ko`
    #[arg(long, conflicts_with_all = ["output", "output_dir"])]
    no_note: bool,

    /// Features to use, separated by commas [default: default]
    ///
    /// Exactly these features are used. `default` stands for the default set, `all` for all that
    /// change what is described; a leading `+` adds the default set. Given several times, the lists
    /// add up. Words that name no feature are reported and ignored, or an error with `--strict`.
    ///
    /// Default set: encode_force, var, float, decl_tag, type_tag, enum64, optimized_func,
    /// consistent_func, decl_tag_kfuncs. More: reproducible_build, distilled_base, global_var,
    /// attributes, true_signature, layout, force_cu_merging.
    ///
    /// With distilled_base, what a module needs to know of BASE goes with it, so that it can be
    /// loaded by any kernel that still has those types: into its section .BTF.base, or to OUT.base.
    ///
    /// Examples: `--features=+layout`, `--features=var,float,enum64`
    #[arg(long, value_name = "LIST", action = ArgAction::Append, visible_alias = "btf_features")]
    features: Vec<String>,

    /// Only units written in these languages
    ///
    /// Names separated by commas: c, c89, c99, c11, c++, rust, asm... `c` does not mean c99 or c11;
    /// `c++` means all its versions, unless `--compat=pahole` is given.
    /// A unit that does not say its language is left out.
    ///
    /// Example: `--lang=c,c89,c99,c11`
    #[arg(long, value_name = "LIST", overrides_with = "lang", conflicts_with = "lang_exclude")]
    lang: Option<String>,

    /// No units written in these languages
    ///
    /// Names as for `--lang`. A unit that does not say its language is kept. Without either option
    /// the variable PAHOLE_LANG_EXCLUDE is used, and without that every unit takes part.
    ///
    /// Example: `--lang-exclude=rust`
    #[arg(
        long,
        value_name = "LIST",
        overrides_with = "lang_exclude",
        visible_alias = "lang_exclude"
    )]
    lang_exclude: Option<String>,

    /// No units whose name starts with PREFIX
    ///
    /// The name of a unit is that of its source file, as given to the compiler.
    ///
    /// Example: `--exclude-unit-prefix=drivers/staging/`
    #[arg(long, value_name = "PREFIX")]
    exclude_unit_prefix: Option<OsString>,

    /// Cut every name that starts with PREFIX down to it
    ///
    /// For kernels that reserve members whose names carry a number which must not count.
    ///
    /// Example: `--kabi-prefix=__kabi_reserved`
    #[arg(long, value_name = "PREFIX", visible_alias = "kabi_prefix")]
    kabi_prefix: Option<OsString>,

    /// Reproduce the visible defects of another encoder
    ///
    /// Meant for comparing outputs. `pahole` is the only choice.
    ///
    /// Example: `--compat=pahole`
    #[arg(long, value_name = "ENCODER")]
    compat: Option<Compat>,

    /// Number of threads [default: as many as are of use]
    ///
    /// Without it there is one for each core, fewer for a small file. The result is the same for
    /// any number.
    ///
    /// Example: `-j4`
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Print on stderr how long each phase took
    ///
    /// One line for each phase in the order they ended, in milliseconds of wall time.
    ///
    /// Example: `btfcache encode --time vmlinux -o /dev/null`
    #[arg(long)]
    time: bool,

    /// Print what is left out, and why
    ///
    /// One line for each function or variable without BTF, on stdout; on stderr if the BTF goes to
    /// stdout.
    ///
    /// Example: `btfcache encode -v vmlinux -o vmlinux.btf | grep vfs_`
    #[arg(short, long)]
    verbose: bool,

    /// No notices and no progress line
    ///
    /// Errors are still reported.
    ///
    /// Example: `btfcache encode -q ext4.ko -o ext4.btf`
    #[arg(short, long)]
    quiet: bool,

    /// Fail if anything cannot be expressed in BTF
    ///
    /// Without it such a construct is described as well as BTF can, or left out, and one line on
    /// stderr says so. With it nothing is written then, and the exit status is 2.
    ///
    /// Example: `btfcache encode --strict vmlinux -o vmlinux.btf`
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    cache: UseArguments,
}

/// Encoders whose defects can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compat {
    /// pahole 1.32
    Pahole,
}

impl EncodeArguments {
    /// The request these flags make.
    pub(super) fn into_command(self, environment: &Environment) -> Result<Command, Refusal> {
        let languages = self.language_filter(environment)?;
        let (features, unknown) = self.feature_set();
        if self.output.is_some() && self.inputs.len() > 1 {
            let text = "`--output` is for one FILE; use `--in-place` or `--output-dir` for several";
            return Err(Refusal::usage(text.to_owned()));
        }
        let distills = features.has(Feature::DistilledBase);
        if distills && self.output.as_ref().is_some_and(|path| path.as_os_str() == "-") {
            let text = "`distilled_base` gives two images, and stdout takes one: name a file";
            return Err(Refusal::usage(text.to_owned()));
        }
        let target = match (self.output, self.output_dir) {
            (Some(path), _) if path.as_os_str() == "-" => Target::Stdout,
            (Some(path), _) => Target::File(path),
            (None, Some(folder)) => Target::Folder(folder),
            (None, None) => Target::InPlace,
        };
        Ok(Command::Encode(Box::new(EncodeRequest {
            inputs: self.inputs,
            files_from: self.files_from,
            target,
            strip_signature: self.strip_signature,
            base: self.base,
            base_note: !self.no_note,
            options: Options {
                features,
                languages,
                exclude_unit_prefix: self.exclude_unit_prefix.map(OsString::into_vec),
                kabi_prefix: self.kabi_prefix.map(OsString::into_vec),
                compat_pahole: self.compat == Some(Compat::Pahole),
            },
            flags: self.cache.into_flags()?,
            jobs: self.jobs.map_or(Jobs::Auto, |count| Jobs::from_count(count.into())),
            verbose: self.verbose,
            quiet: self.quiet,
            strict: self.strict,
            time: self.time,
            notices: unknown.iter().map(|word| format!("unknown feature `{word}`")).collect(),
        })))
    }

    fn feature_set(&self) -> (Features, Vec<String>) {
        let mut selection = Selection::new(Features::DEFAULT);
        let unknown = self.features.iter().flat_map(|list| selection.add_list(list)).collect();
        (selection.features(), unknown)
    }

    fn language_filter(&self, environment: &Environment) -> Result<LanguageFilter, Refusal> {
        let exact = self.compat == Some(Compat::Pahole);
        let parse = |list: &str| {
            languages::parse(list, exact).map_err(|error| Refusal::failed(error.to_string()))
        };
        if let Some(list) = &self.lang {
            return parse(list).map(LanguageFilter::Only);
        }
        let from_environment = environment.get(PAHOLE_LANG_EXCLUDE);
        let from_environment = from_environment.map(|list| list.to_string_lossy().into_owned());
        match self.lang_exclude.clone().or(from_environment) {
            Some(list) => parse(&list).map(LanguageFilter::Except),
            None => Ok(LanguageFilter::All),
        }
    }
}

#[cfg(test)]
mod tests {
    use gimli::constants::{DW_LANG_C11, DW_LANG_Rust};

    use super::*;
    use crate::cli::parse;
    use crate::output::Dialect;
    use crate::settings::Flags;

    fn command(line: &str, environment: &Environment) -> Result<Command, Refusal> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(Dialect::Native, &words, environment)
    }

    fn request(line: &str) -> EncodeRequest {
        match command(line, &Environment::default()) {
            Ok(Command::Encode(request)) => *request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn bare_request() {
        let expected = EncodeRequest {
            inputs: vec!["a.ko".into()],
            files_from: None,
            target: Target::InPlace,
            strip_signature: false,
            base: None,
            base_note: true,
            options: Options { features: Features::DEFAULT, ..Options::default() },
            flags: Flags::default(),
            jobs: Jobs::Auto,
            verbose: false,
            quiet: false,
            strict: false,
            time: false,
            notices: Vec::new(),
        };
        assert_eq!(request("encode a.ko --in-place"), expected);
        let to_file = EncodeRequest { target: Target::File("b".into()), ..expected.clone() };
        assert_eq!(request("encode -o b a.ko"), to_file);
        let to_stdout = EncodeRequest { target: Target::Stdout, ..expected };
        assert_eq!(request("encode -o - a.ko"), to_stdout);
    }

    #[test]
    fn every_flag_counts() {
        let every = request(
            "encode a -o b --features=var --features=float,vra --lang_exclude=rust \
             --exclude-unit-prefix=drivers/ --kabi-prefix=__kabi --compat=pahole -j3 --time -v -q \
             --strict",
        );
        assert!(request("encode a -i --base=b").base_note);
        assert!(!request("encode a -i --base=b --no-note").base_note);
        let expected = Options {
            features: Features::of(&[Feature::Var, Feature::Float]),
            languages: LanguageFilter::Except(vec![DW_LANG_Rust.0]),
            exclude_unit_prefix: Some(b"drivers/".to_vec()),
            kabi_prefix: Some(b"__kabi".to_vec()),
            compat_pahole: true,
        };
        assert_eq!(every.options, expected);
        assert_eq!(every.jobs, Jobs::from_count(3));
        assert!(every.time && every.verbose && every.quiet && every.strict);
        assert_eq!(every.notices, ["unknown feature `vra`"]);
    }

    #[test]
    fn languages_come_from_the_command_line_first() {
        let environment = Environment::of(&[(PAHOLE_LANG_EXCLUDE, "rust")]);
        let rust = vec![DW_LANG_Rust.0];
        let c11 = vec![DW_LANG_C11.0];
        for (flags, expected) in [
            ("", LanguageFilter::Except(rust)),
            ("--lang=c11", LanguageFilter::Only(c11.clone())),
            ("--lang-exclude=c11", LanguageFilter::Except(c11)),
        ] {
            let line = format!("encode a -o b {flags}");
            let Ok(Command::Encode(request)) = command(&line, &environment) else { panic!() };
            assert_eq!(request.options.languages, expected, "{line}");
        }
    }

    #[test]
    fn refusals() {
        for (line, part) in [
            ("", "no command given"),
            ("encode", "<FILE>"),
            ("encode a", "<--output <OUT>|--in-place|--output-dir <DIR>>"),
            ("encode a -o b -i", "--in-place"),
            ("encode a b -o c", "`--output` is for one FILE"),
            ("encode --files-from list -o c", "cannot be used with"),
            ("encode a -o b -j0", "0"),
            ("encode a -o - --features=distilled_base", "stdout takes one: name a file"),
            ("encode a -o b --no-note", "cannot be used with"),
            ("encode a -o b --lang=c --lang-exclude=c", "cannot be used with"),
            ("encode a -o b --lang=klingon", "unknown language \"klingon\""),
            ("encode a -o b --compat=other", "other"),
            ("encode a -o b --sizes", "unexpected argument '--sizes'"),
            ("decode a", "unrecognized subcommand 'decode'"),
        ] {
            let refusal = command(line, &Environment::default()).unwrap_err();
            assert!(refusal.message.contains(part), "{line}: {}", refusal.message);
        }
    }
}
