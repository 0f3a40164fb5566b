//! The command line of btfcache itself: takes words, gives a command.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::cache::{
    ClearArguments, ConfigArguments, ExportArguments, GcArguments, ImportArguments,
    InspectArguments, StatsArguments,
};
use super::encode::EncodeArguments;
use super::install::InstallArguments;
use super::verify::{RelocateArguments, VerifyArguments};
use super::{Refusal, pahole};
use crate::commands::Command;
use crate::config::{Environment, environment_help};

const EXAMPLES: &str = "\
Examples:
  btfcache encode vmlinux -o vmlinux.btf
  btfcache encode --in-place --features=+layout vmlinux
  btfcache verify ext4.ko --base vmlinux
  btfcache pahole -J -j --btf_features=default vmlinux
  make PAHOLE=\"$(command -v btfcache) pahole\"";

/// Turns the DWARF of kernel images and modules into BTF
///
/// Reads the DWARF of an ELF file (vmlinux, a module, an object file) and writes what pahole would
/// have written, in parallel. Data goes to stdout or to the file you name, messages go to stderr.
///
/// Exit status: 0 done, 2 error. As `pahole`: 0 done, 1 error, 64 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "btfcache", version, subcommand_required = true, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Encode(Box<EncodeArguments>),
    Verify(VerifyArguments),
    Relocate(RelocateArguments),
    Pahole(PaholeArguments),
    InstallPahole(InstallArguments),
    Stats(StatsArguments),
    Config(ConfigArguments),
    Gc(GcArguments),
    Clear(ClearArguments),
    Export(ExportArguments),
    Import(ImportArguments),
    Inspect(InspectArguments),
}

impl Subcommands {
    fn into_command(self, environment: &Environment) -> Result<Command, Refusal> {
        match self {
            Self::Encode(arguments) => arguments.into_command(environment),
            Self::Verify(arguments) => Ok(arguments.into_command()),
            Self::Relocate(arguments) => Ok(arguments.into_command()),
            Self::Pahole(arguments) => pahole::parse(&arguments.words, environment),
            Self::InstallPahole(arguments) => arguments.into_command(environment),
            Self::Stats(arguments) => Ok(arguments.into_command()),
            Self::Config(arguments) => arguments.into_command(),
            Self::Gc(arguments) => arguments.into_command(),
            Self::Clear(arguments) => Ok(arguments.into_command()),
            Self::Export(arguments) => Ok(arguments.into_command()),
            Self::Import(arguments) => Ok(arguments.into_command()),
            Self::Inspect(arguments) => Ok(arguments.into_command()),
        }
    }
}

/// Take the command line of pahole, as kernel builds use it
///
/// Everything after `pahole` is read as pahole 1.32 reads it, as far as it is about encoding BTF.
/// The same happens when btfcache is called through a link named `pahole`. `btfcache pahole --help`
/// lists the options.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_long_help = PAHOLE_EXAMPLES)]
struct PaholeArguments {
    /// Options and files of pahole
    ///
    /// `-J FILE...` puts the BTF into each FILE, `--btf_encode_detached=OUT FILE` writes it to OUT.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    words: Vec<OsString>,
}

const PAHOLE_EXAMPLES: &str = "\
Examples:
  btfcache pahole -J -j --btf_features=default --lang_exclude=rust vmlinux
  btfcache pahole --btf_encode_detached=ext4.btf ext4.ko
  ln -s \"$(command -v btfcache)\" ~/bin/pahole";

/// Parses the words after `btfcache`.
pub(super) fn parse(words: &[OsString], environment: &Environment) -> Result<Command, Refusal> {
    let program = OsString::from("btfcache");
    let matches = definition().try_get_matches_from(std::iter::once(&program).chain(words));
    match matches.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => line.command.into_command(environment),
        Err(error) => answer(&error),
    }
}

fn definition() -> clap::Command {
    CommandLine::command().after_long_help(format!("{}\n\n{EXAMPLES}", environment_help()))
}

/// What clap has to say: help and version are data, everything else is a mistake.
fn answer(error: &clap::Error) -> Result<Command, Refusal> {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Command::Say(text)),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Refusal::usage(format!("no command given\n\n{}", text.trim_end())))
        }
        _ => Err(Refusal::usage(text.trim_start_matches("error: ").trim_end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_sound() {
        definition().debug_assert();
    }

    /// Every flag must explain itself in one line and at length.
    #[test]
    fn every_flag_has_both_help_texts() {
        let mut definition = definition();
        definition.build();
        for command in definition.get_subcommands() {
            for argument in command.get_arguments() {
                let id = argument.get_id();
                if id == "help" || command.get_name() == "help" {
                    continue;
                }
                assert!(argument.get_help().is_some(), "{id}: no help");
                assert!(argument.get_long_help().is_some(), "{id}: no long help");
            }
        }
    }
}
