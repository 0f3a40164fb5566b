//! How a run speaks: data on stdout, talk on stderr with the name of the program in front, and the
//! exit code. The only file that writes to either stream, and the only one that knows exit codes.

use std::io::{self, ErrorKind, Write};

use anyhow::Error;

/// Which program is being played; messages and exit codes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `btfcache`.
    Native,
    /// `pahole`, as kernel builds call it.
    Pahole,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All that was asked for is done.
    Done,
    /// The input or the output could not be dealt with.
    Failed,
    /// The command line is not understood, or asks for what btfcache does not do.
    Usage,
    /// btfcache itself is at fault.
    Bug,
}

impl Dialect {
    /// The name in front of messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "btfcache",
            Self::Pahole => "pahole",
        }
    }

    /// The exit code of an outcome. Where pahole fails it says 1, and argp says 64 (`EX_USAGE`);
    /// kernel builds only ask whether it is 0.
    #[must_use]
    pub const fn exit_code(self, outcome: Outcome) -> u8 {
        match (self, outcome) {
            (_, Outcome::Done) => 0,
            (Self::Pahole, Outcome::Failed) => 1,
            (Self::Pahole, Outcome::Usage) => 64,
            (Self::Native, Outcome::Failed | Outcome::Usage) | (_, Outcome::Bug) => 2,
        }
    }
}

/// The two streams of a run.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    dialect: Dialect,
    quiet: bool,
}

impl Output {
    /// Output in the manner of `dialect`.
    #[must_use]
    pub const fn new(dialect: Dialect) -> Self {
        Self { dialect, quiet: false }
    }

    /// The same output; when `quiet` is set, without notices.
    #[must_use]
    pub const fn quiet(self, quiet: bool) -> Self {
        Self { quiet, ..self }
    }

    /// Whether notices are wanted.
    #[must_use]
    pub const fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Writes data to stdout. A reader that went away is no error: it has seen enough.
    ///
    /// # Errors
    /// Any other failure of stdout, such as a full disk.
    pub fn data(self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }

    /// A line that the user should see, unless quiet.
    pub fn notice(self, text: &str) {
        if !self.quiet {
            self.message(text);
        }
    }

    /// A message that is always shown.
    pub fn message(self, text: &str) {
        self.plain(&format!("{}: {text}", self.dialect.name()));
    }

    /// An error with its causes, one line each.
    pub fn error(self, error: &Error) {
        self.message(&render(error));
    }

    /// Text on stderr without a prefix: tables and usage texts.
    pub fn plain(self, text: &str) {
        // Nowhere is left to report that stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// An error as text: what failed, then each cause on a line of its own.
fn render(error: &Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        text.push_str("\ncaused by: ");
        text.push_str(&cause.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn causes_stand_on_their_own_lines() {
        let error = anyhow!("no such unit").context("failed to parse `.debug_info`");
        let error = error.context("failed to encode `a.o`");
        let expected = "failed to encode `a.o`\n\
                        caused by: failed to parse `.debug_info`\n\
                        caused by: no such unit";
        assert_eq!(render(&error), expected);
    }

    #[test]
    fn exit_codes() {
        let codes = |dialect: Dialect| {
            [Outcome::Done, Outcome::Failed, Outcome::Usage, Outcome::Bug]
                .map(|outcome| dialect.exit_code(outcome))
        };
        assert_eq!(codes(Dialect::Native), [0, 2, 2, 2]);
        assert_eq!(codes(Dialect::Pahole), [0, 1, 64, 2]);
    }
}
