//! Reads a command line the way GNU getopt_long does: takes arguments and a table of options,
//! gives one item after the other. Long options may be abbreviated, options and operands may be
//! mixed, `--` ends the options, single letters may be clustered. Knows no option by itself.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Whether an option takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// `-x`, `--long`.
    Nothing,
    /// `-xARG`, `-x ARG`, `--long=ARG`, `--long ARG`.
    Argument,
    /// `-x`, `-xARG`, `--long`, `--long=ARG`; never the next word.
    Optional,
}

/// One option of a table; `M` is what it means to the caller.
#[derive(Clone, Copy, Debug)]
pub struct Spec<M> {
    /// Its letter.
    pub short: Option<char>,
    /// Its name without dashes.
    pub long: &'static str,
    /// Whether it takes an argument.
    pub takes: Takes,
    /// Its name must be typed in full, and does not make abbreviations of other names ambiguous.
    pub in_full: bool,
    /// What it means.
    pub meaning: M,
}

/// One piece of a command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<M> {
    /// An option of the table.
    Option {
        /// What it means.
        meaning: M,
        /// The option as a message should name it: `--sizes` for `--siz`, `-s` for `-s`.
        name: String,
        /// Its argument.
        argument: Option<OsString>,
    },
    /// Anything that is not an option.
    Operand(OsString),
}

/// What is wrong with an option, in the words of getopt.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No long option of that name.
    #[error("unrecognized option '{0}'")]
    UnknownName(String),
    /// No option of that letter.
    #[error("invalid option -- '{0}'")]
    UnknownLetter(String),
    /// An abbreviation that fits several options.
    #[error("option '{0}' is ambiguous; possibilities: {1}")]
    Ambiguous(String, String),
    /// A long option without its argument.
    #[error("option '--{0}' requires an argument")]
    NameNeedsArgument(&'static str),
    /// A short option without its argument.
    #[error("option requires an argument -- '{0}'")]
    LetterNeedsArgument(char),
    /// A long option that takes no argument has one.
    #[error("option '--{0}' doesn't allow an argument")]
    ExcessArgument(&'static str),
}

/// The state of reading a command line.
#[derive(Debug)]
pub struct Reader<'table, M> {
    table: &'table [Spec<M>],
    words: VecDeque<OsString>,
    /// Letters of a cluster that are still to be read.
    cluster: VecDeque<u8>,
    options_ended: bool,
}

impl<'table, M: Copy> Reader<'table, M> {
    /// Starts reading `words`, the command line without the name of the program.
    #[must_use]
    pub fn new(table: &'table [Spec<M>], words: &[OsString]) -> Self {
        let words = words.iter().cloned().collect();
        Self { table, words, cluster: VecDeque::new(), options_ended: false }
    }

    fn long(&mut self, typed: &OsStr) -> Result<Item<M>, Fault> {
        let body = &typed.as_bytes()[2..];
        let (name, attached) = match body.iter().position(|&byte| byte == b'=') {
            Some(at) => (&body[..at], Some(OsStr::from_bytes(&body[at + 1..]).to_owned())),
            None => (body, None),
        };
        let spec = self.find_long(name, typed)?;
        let argument = match (spec.takes, attached) {
            (Takes::Nothing, Some(_)) => return Err(Fault::ExcessArgument(spec.long)),
            (Takes::Argument, None) => {
                Some(self.words.pop_front().ok_or(Fault::NameNeedsArgument(spec.long))?)
            }
            (_, attached) => attached,
        };
        Ok(Item::Option { meaning: spec.meaning, name: format!("--{}", spec.long), argument })
    }

    /// The option of that name, or the only one whose name starts so.
    fn find_long(&self, name: &[u8], typed: &OsStr) -> Result<&'table Spec<M>, Fault> {
        if let Some(spec) = self.table.iter().find(|spec| spec.long.as_bytes() == name) {
            return Ok(spec);
        }
        let fits = |spec: &&Spec<M>| !spec.in_full && spec.long.as_bytes().starts_with(name);
        let fitting: Vec<&Spec<M>> = self.table.iter().filter(fits).collect();
        let typed = typed.to_string_lossy().into_owned();
        match fitting[..] {
            [] => Err(Fault::UnknownName(typed)),
            [spec] => Ok(spec),
            _ => {
                let names = fitting.iter().map(|spec| format!("'--{}'", spec.long));
                Err(Fault::Ambiguous(typed, names.collect::<Vec<_>>().join(" ")))
            }
        }
    }

    /// The option of the next letter of the cluster.
    fn short(&mut self, letter: u8) -> Result<Item<M>, Fault> {
        let spec = self.table.iter().find(|spec| spec.short == Some(char::from(letter)));
        let Some(spec) = spec else {
            return Err(Fault::UnknownLetter(letter.escape_ascii().to_string()));
        };
        let argument = match spec.takes {
            Takes::Nothing => None,
            Takes::Argument if self.cluster.is_empty() => {
                let next = self.words.pop_front();
                Some(next.ok_or(Fault::LetterNeedsArgument(char::from(letter)))?)
            }
            Takes::Optional if self.cluster.is_empty() => None,
            Takes::Argument | Takes::Optional => {
                Some(OsString::from_vec(std::mem::take(&mut self.cluster).into()))
            }
        };
        let name = format!("-{}", char::from(letter));
        Ok(Item::Option { meaning: spec.meaning, name, argument })
    }
}

impl<M: Copy> Iterator for Reader<'_, M> {
    type Item = Result<Item<M>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(letter) = self.cluster.pop_front() {
            return Some(self.short(letter));
        }
        let word = self.words.pop_front()?;
        match word.as_bytes() {
            _ if self.options_ended => Some(Ok(Item::Operand(word))),
            b"--" => {
                self.options_ended = true;
                self.next()
            }
            [b'-', b'-', ..] => Some(self.long(&word)),
            [b'-', letter, rest @ ..] => {
                self.cluster = rest.iter().copied().collect();
                Some(self.short(*letter))
            }
            _ => Some(Ok(Item::Operand(word))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn spec(short: Option<char>, long: &'static str, takes: Takes) -> Spec<char> {
        let meaning = if let Some(letter) = short { letter } else { 'D' };
        Spec { short, long, takes, in_full: false, meaning }
    }

    const TABLE: [Spec<char>; 6] = [
        spec(Some('J'), "encode", Takes::Nothing),
        spec(None, "encode_detached", Takes::Argument),
        spec(Some('j'), "jobs", Takes::Optional),
        spec(Some('X'), "exclude", Takes::Argument),
        spec(Some('q'), "quiet", Takes::Nothing),
        Spec { in_full: true, ..spec(Some('y'), "quiz", Takes::Nothing) },
    ];

    /// Reads a command line into `J` or `X=argument` for options and `operand` for operands.
    fn read(line: &str) -> Result<String, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let show = |item: Item<char>| match item {
            Item::Option { meaning, argument: None, .. } => meaning.to_string(),
            Item::Option { meaning, argument: Some(argument), .. } => {
                format!("{meaning}={}", argument.display())
            }
            Item::Operand(word) => word.display().to_string(),
        };
        let items: Result<Vec<String>, Fault> =
            Reader::new(&TABLE, &words).map(|item| item.map(show)).collect();
        items.map(|items| items.join(" ")).map_err(|fault| fault.to_string())
    }

    #[test]
    fn well_formed() {
        for (line, expected) in [
            ("", ""),
            ("-J file", "J file"),
            ("file -J other -q", "file J other q"),
            ("-Jq file", "J q file"),
            ("-Jj4 file", "J j=4 file"),
            ("-j 4 -J", "j 4 J"),
            ("-jJ file", "j=J file"),
            ("--jobs=4 --jobs 4 --jobs=", "j=4 j 4 j="),
            ("-Xa -X b -JXc", "X=a X=b J X=c"),
            ("--exclude a --exclude=b --exclude -J", "X=a X=b X=-J"),
            ("--encode --encode_d=x --quie", "J D=x q"),
            ("-J -- -J --quiet", "J -J --quiet"),
            ("-X -- -J", "X=-- J"),
            ("- -J", "- J"),
            ("--quiz --qui", "y q"),
        ] {
            assert_eq!(read(line), Ok(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn faults() {
        for (line, expected) in [
            ("--foo=1", "unrecognized option '--foo=1'"),
            ("--quizz", "unrecognized option '--quizz'"),
            ("-K", "invalid option -- 'K'"),
            ("-JK", "invalid option -- 'K'"),
            (
                "--enc=1",
                "option '--enc=1' is ambiguous; possibilities: '--encode' '--encode_detached'",
            ),
            ("--quiet=1", "option '--quiet' doesn't allow an argument"),
            ("--excl", "option '--exclude' requires an argument"),
            ("-JX", "option requires an argument -- 'X'"),
        ] {
            assert_eq!(read(line), Err(expected.to_owned()), "{line}");
        }
        // `--e` fits three names.
        assert!(read("--e").is_err_and(|fault| fault.contains("'--exclude'")));
    }

    #[test]
    fn options_are_named_in_full() {
        let words = ["--quie".into(), "-q".into()];
        let names = Reader::new(&TABLE, &words).map(|item| match item {
            Ok(Item::Option { name, .. }) => name,
            other => format!("{other:?}"),
        });
        assert_eq!(names.collect::<Vec<_>>(), ["--quiet", "-q"]);
    }

    #[test]
    fn operands_need_not_be_text() {
        let odd = OsString::from_vec(vec![b'a', 0xff]);
        let items: Vec<_> = Reader::new(&TABLE, std::slice::from_ref(&odd)).collect();
        assert_eq!(items, [Ok(Item::Operand(odd))]);
    }
}
