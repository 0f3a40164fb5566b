//! The command lines: takes what the user typed, gives a [`Command`] or a [`Refusal`]. Two
//! programs are spoken: `btfcache`, and `pahole` when called by that name.

mod cache;
mod encode;
mod features;
mod getopt;
mod install;
mod languages;
mod native;
mod pahole;
mod pahole_help;
mod pahole_options;
mod verify;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::commands::{self, Command};
use crate::config::Environment;
use crate::output::{Dialect, Outcome, Output};
use crate::settings::Settings;

/// Why a command line is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What to say.
    pub message: String,
    /// What kind of ending it is.
    pub outcome: Outcome,
}

impl Refusal {
    /// The command line is not understood.
    fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), outcome: Outcome::Usage }
    }

    /// The command line is understood, but cannot be right.
    fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), outcome: Outcome::Failed }
    }
}

/// The whole program: `arguments` begin with the name it was called by.
#[must_use]
pub fn run(arguments: &[OsString], environment: &Environment) -> ExitCode {
    let (dialect, words) = dialect_of(arguments);
    let output = Output::new(dialect);
    let outcome = match parse(dialect, words, environment) {
        Ok(command) => {
            let settings = Settings::resolve(command.flags(), environment);
            commands::run(&command, &settings, output)
        }
        Err(refusal) => {
            output.message(&refusal.message);
            refusal.outcome
        }
    };
    ExitCode::from(dialect.exit_code(outcome))
}

/// Parses the words after the name of the program.
///
/// # Errors
/// What to say, and with which outcome to end.
pub fn parse(
    dialect: Dialect,
    words: &[OsString],
    environment: &Environment,
) -> Result<Command, Refusal> {
    match dialect {
        Dialect::Native => native::parse(words, environment),
        Dialect::Pahole => pahole::parse(words, environment),
    }
}

/// Which program is called, and the words that are its own: `pahole ...` through a link of that
/// name, or `btfcache pahole ...`.
fn dialect_of(arguments: &[OsString]) -> (Dialect, &[OsString]) {
    let is_pahole = |word: &OsString| Path::new(word).file_name() == Some(OsStr::new("pahole"));
    match arguments {
        [program, words @ ..] if is_pahole(program) => (Dialect::Pahole, words),
        [_, first, words @ ..] if first == "pahole" => (Dialect::Pahole, words),
        [_, words @ ..] => (Dialect::Native, words),
        [] => (Dialect::Native, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_program_decides() {
        for (line, dialect, words) in [
            ("", Dialect::Native, 0),
            ("btfcache", Dialect::Native, 0),
            ("/usr/bin/btfcache encode a.o", Dialect::Native, 2),
            ("btfcache pahole -J a.o", Dialect::Pahole, 2),
            ("btfcache encode pahole", Dialect::Native, 2),
            ("pahole -J a.o", Dialect::Pahole, 2),
            ("./bin/pahole pahole", Dialect::Pahole, 1),
            ("pahole/btfcache", Dialect::Native, 0),
        ] {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let (found, rest) = dialect_of(&arguments);
            assert_eq!((found, rest.len()), (dialect, words), "{line}");
        }
    }
}
