//! The command line of pahole 1.32, as far as it encodes BTF: takes words and environment, gives
//! a command. What only pahole can do is refused by name (spec/encoding 9).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::features::{self, HISTORIC, Selection};
use super::getopt::{Item, Reader};
use super::pahole_help::{HELP, SEE_HELP, USAGE};
use super::pahole_options::{Meaning, OPTIONS};
use super::{Refusal, languages};
use crate::commands::{Command, EncodeRequest, Jobs, Target};
use crate::config::{Environment, PAHOLE_LANG_EXCLUDE};
use crate::options::{Feature, LanguageFilter, Options};
use crate::settings::Flags;

/// The release whose command line and output this is.
const VERSION: (u32, u32) = (1, 32);

/// pahole reads only so many bytes of a feature list.
const FEATURE_LIST_LIMIT: usize = 1024;

/// pahole asks for fewer bits than this.
const HASH_BITS_LIMIT: i64 = 32;

/// Parses the words after `pahole`.
pub(super) fn parse(words: &[OsString], environment: &Environment) -> Result<Command, Refusal> {
    let mut typed = Typed::default();
    for item in Reader::new(OPTIONS, words) {
        match item.map_err(|fault| Refusal::usage(format!("{fault}\n{SEE_HELP}")))? {
            Item::Operand(word) => typed.operand(word),
            Item::Option { meaning, name, argument } => {
                let argument = argument.as_deref();
                if let Some(text) = typed.option(meaning, &name, argument)? {
                    return Ok(Command::Say(text));
                }
            }
        }
    }
    typed.into_command(environment)
}

/// What has been typed so far.
#[derive(Debug)]
struct Typed {
    encode: bool,
    detached: Option<PathBuf>,
    base: Option<PathBuf>,
    inputs: Vec<PathBuf>,
    features: Selection,
    /// The list that was given last, whichever of the two options it came with.
    languages: Option<String>,
    /// `--lang_exclude` was given at least once.
    languages_exclude: bool,
    exclude_unit_prefix: Option<Vec<u8>>,
    kabi_prefix: Option<Vec<u8>>,
    jobs: Jobs,
    hash_bits: i64,
    format_path: Option<String>,
    compat_pahole: bool,
    time: bool,
    strict: bool,
    verbose: bool,
    quiet: bool,
    numeric_version: bool,
    /// The first option that only pahole can carry out, as a refusal.
    refused: Option<String>,
    /// The word before was `-j` without a number.
    after_bare_jobs: bool,
    notices: Vec<String>,
}

impl Default for Typed {
    fn default() -> Self {
        Self {
            encode: false,
            detached: None,
            base: None,
            inputs: Vec::new(),
            features: Selection::new(HISTORIC),
            languages: None,
            languages_exclude: false,
            exclude_unit_prefix: None,
            kabi_prefix: None,
            jobs: Jobs::Auto,
            hash_bits: 0,
            format_path: None,
            compat_pahole: false,
            time: false,
            strict: false,
            verbose: false,
            quiet: false,
            numeric_version: false,
            refused: None,
            after_bare_jobs: false,
            notices: Vec::new(),
        }
    }
}

impl Typed {
    fn operand(&mut self, word: OsString) {
        if std::mem::take(&mut self.after_bare_jobs) && atoi(&word) > 0 {
            let name = word.display();
            self.notices.push(format!("`{name}` after `-j` is an input file; write `-j{name}`"));
        }
        self.inputs.push(word.into());
    }

    /// Takes one option; gives a text if the option is answered at once, whatever else is typed.
    fn option(
        &mut self,
        meaning: Meaning,
        name: &str,
        argument: Option<&OsStr>,
    ) -> Result<Option<String>, Refusal> {
        self.after_bare_jobs = meaning == Meaning::Jobs && argument.is_none();
        let value = argument.unwrap_or_default();
        match meaning {
            Meaning::Encode => self.encode = true,
            Meaning::EncodeDetached => {
                self.encode = true;
                self.detached = Some(value.into());
            }
            Meaning::Base => self.base = Some(value.into()),
            Meaning::Jobs => self.jobs = jobs(argument),
            Meaning::Languages => self.languages = Some(text(value)),
            Meaning::LanguagesExclude => {
                self.languages = Some(text(value));
                self.languages_exclude = true;
            }
            Meaning::ExcludeUnits => self.exclude_unit_prefix = Some(value.as_bytes().to_vec()),
            Meaning::Features => self.feature_list(value),
            Meaning::FeaturesStrict => self.strict_feature_list(value)?,
            Meaning::GenerateAll => self.feature_list(OsStr::new("all")),
            Meaning::Switch(feature, on) => self.features.switch(feature, on),
            Meaning::KabiPrefix => self.kabi_prefix = Some(value.as_bytes().to_vec()),
            Meaning::HashBits => self.hash_bits = atoi(value),
            Meaning::FormatPath => self.format_path = Some(text(value)),
            Meaning::Verbose => self.verbose = true,
            Meaning::Quiet => self.quiet = true,
            Meaning::Compat => self.compat_pahole = compat(value)?,
            Meaning::Time => self.time = true,
            Meaning::Strict => self.strict = true,
            Meaning::Ignored => {}
            Meaning::NumericVersion => self.numeric_version = true,
            Meaning::Refused(does) => self.refuse(name, does),
            Meaning::SupportedFeatures => return Ok(Some(features::supported() + "\n")),
            Meaning::Version => return Ok(Some(version() + "\n")),
            Meaning::DevelVersion => return Ok(Some(devel_version())),
            Meaning::Help => return Ok(Some(HELP.to_owned())),
            Meaning::Usage => return Ok(Some(USAGE.to_owned())),
        }
        Ok(None)
    }

    fn feature_list(&mut self, list: &OsStr) {
        for word in self.features.add_list(&cut(list)) {
            if self.verbose {
                self.notices.push(format!("Ignoring unsupported feature '{word}'"));
            }
        }
    }

    fn strict_feature_list(&mut self, list: &OsStr) -> Result<(), Refusal> {
        match self.features.add_list(&cut(list)).first() {
            Some(word) => Err(Refusal::failed(format!(
                "Feature '{word}' in '{}' is not supported.  Supported BTF features are:\n{}",
                list.display(),
                features::supported()
            ))),
            None => Ok(()),
        }
    }

    fn refuse(&mut self, name: &str, does: &str) {
        self.refused.get_or_insert_with(|| {
            format!(
                "'{name}' {does}, which btfcache does not do; call the pahole of the dwarves \
                 package"
            )
        });
    }

    /// What pahole would look at once all options are read, in its order.
    fn into_command(mut self, environment: &Environment) -> Result<Command, Refusal> {
        let languages = self.language_filter(environment)?;
        if self.numeric_version {
            return Ok(Command::Say(format!("{}{}\n", VERSION.0, VERSION.1)));
        }
        self.check()?;
        if self.detached.is_some() {
            // pahole distills only into the input (spec/encoding 7.4.1).
            self.features.switch(Feature::DistilledBase, false);
        }
        let target = self.detached.map_or(Target::InPlace, Target::File);
        Ok(Command::Encode(Box::new(EncodeRequest {
            inputs: self.inputs,
            files_from: None,
            target,
            strip_signature: false,
            base: self.base,
            base_note: false,
            options: Options {
                features: self.features.features(),
                languages,
                exclude_unit_prefix: self.exclude_unit_prefix,
                kabi_prefix: self.kabi_prefix,
                compat_pahole: self.compat_pahole,
            },
            flags: Flags::default(),
            jobs: self.jobs,
            verbose: self.verbose,
            quiet: self.quiet,
            strict: self.strict,
            time: self.time,
            notices: self.notices,
        })))
    }

    /// Refuses what cannot be carried out.
    fn check(&mut self) -> Result<(), Refusal> {
        // pahole keeps the number in one byte.
        if self.hash_bits.rem_euclid(256) >= HASH_BITS_LIMIT {
            let bits = self.hash_bits;
            let message = format!("Invalid --hashbits value ({bits}) should be less than 32");
            return Err(Refusal::failed(message));
        }
        if let Some(message) = self.refused.take() {
            return Err(Refusal::usage(message));
        }
        if let Some(path) = &self.format_path
            && path.split(',').next() != Some("dwarf")
        {
            return Err(Refusal::usage(format!(
                "'--format_path={path}' reads types from something other than DWARF, which \
                 btfcache does not do; call the pahole of the dwarves package"
            )));
        }
        if !self.encode {
            return Err(Refusal::usage(
                "without '--btf_encode' this prints data structures, which btfcache does not do; \
                 call the pahole of the dwarves package",
            ));
        }
        match (&self.detached, &self.inputs[..]) {
            (_, []) => Err(Refusal::usage(format!("no input file\n{SEE_HELP}"))),
            (Some(_), [_, _, ..]) => Err(Refusal::usage(
                "'--btf_encode_detached' names one file, which can take the BTF of one input",
            )),
            _ => Ok(()),
        }
    }

    /// One list counts, the one given last; it excludes once `--lang_exclude` was given anywhere.
    fn language_filter(&self, environment: &Environment) -> Result<LanguageFilter, Refusal> {
        let from_environment = || environment.get(PAHOLE_LANG_EXCLUDE).map(text);
        let excludes = self.languages_exclude || self.languages.is_none();
        let Some(list) = self.languages.clone().or_else(from_environment) else {
            return Ok(LanguageFilter::All);
        };
        let codes = languages::parse(&list, self.compat_pahole);
        let codes = codes.map_err(|error| Refusal::failed(error.to_string()))?;
        Ok(if excludes { LanguageFilter::Except(codes) } else { LanguageFilter::Only(codes) })
    }
}

/// `-j` alone leaves the number to us; anything that is not a positive number means one thread.
fn jobs(argument: Option<&OsStr>) -> Jobs {
    match argument {
        None => Jobs::Auto,
        Some(number) => Jobs::from_count(usize::try_from(atoi(number)).unwrap_or(0)),
    }
}

/// Whose defects to reproduce; there is one choice.
fn compat(encoder: &OsStr) -> Result<bool, Refusal> {
    if encoder == "pahole" {
        Ok(true)
    } else {
        Err(Refusal::usage(format!("'--compat' knows 'pahole', not '{}'", encoder.display())))
    }
}

/// The number at the start of a word, 0 if there is none: the C function of that name, without
/// its overflow.
fn atoi(word: &OsStr) -> i64 {
    let word = word.as_bytes().trim_ascii_start();
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0_i64, |value, &digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    });
    if negative { -value } else { value }
}

/// The part of a feature list that pahole reads.
fn cut(list: &OsStr) -> String {
    let bytes = list.as_bytes();
    let plus = usize::from(bytes.starts_with(b"+"));
    let length = bytes.len().min(FEATURE_LIST_LIMIT + plus);
    text(&OsString::from_vec(bytes[..length].to_vec()))
}

fn text(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

/// What `pahole --version` says: kernel builds take the number out of exactly this.
fn version() -> String {
    format!("v{}.{}", VERSION.0, VERSION.1)
}

fn devel_version() -> String {
    format!("{}-btfcache-{}\n", version(), env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
#[path = "pahole_tests.rs"]
mod tests;
