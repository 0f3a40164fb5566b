//! The configuration file: lines `name = value`, comments after `#`, values in quotes if they hold
//! one. What is written so is also TOML.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Name;

/// A longer file is not one of ours.
const LIMIT: u64 = 1 << 16;

/// What a configuration file says.
#[derive(Clone, Debug, Default)]
pub struct ConfigFile {
    /// The values, as they are written.
    pub values: BTreeMap<Name, OsString>,
    /// Lines that say nothing, as messages.
    pub faults: Vec<String>,
}

impl ConfigFile {
    /// Reads the file at `path`; a missing one says nothing.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let mut bytes = Vec::new();
        let read =
            fs_err::File::open(path).and_then(|file| file.take(LIMIT).read_to_end(&mut bytes));
        match read {
            Ok(_) => Self::parse(&bytes),
            // A home that is a file, or that may not be looked into, has no configuration either.
            Err(error) if is_absent(&error) => Self::default(),
            Err(error) => Self { faults: vec![error.to_string()], ..Self::default() },
        }
    }

    /// Parses the contents of a file.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut file = Self::default();
        for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            if let Err(fault) = file.line(line.trim_ascii()) {
                file.faults.push(format!("line {} of the configuration: {fault}", number + 1));
            }
        }
        file
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(());
        }
        let equals = line.iter().position(|&byte| byte == b'=').ok_or("it has no `=`")?;
        let (name, value) = (line[..equals].trim_ascii(), line[equals + 1..].trim_ascii());
        let known = Name::ALL.iter().find(|known| known.in_file().as_bytes() == name);
        let known = known.ok_or_else(|| format!("unknown setting `{}`", name.escape_ascii()))?;
        self.values.insert(*known, OsStr::from_bytes(unquoted(value)?).to_owned());
        Ok(())
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}

/// The value without quotes, or without a comment after it.
fn unquoted(value: &[u8]) -> Result<&[u8], String> {
    let Some((&quote, rest)) = value.split_first().filter(|(first, _)| b"\"'".contains(first))
    else {
        let end =
            value.windows(2).position(|pair| pair[0].is_ascii_whitespace() && pair[1] == b'#');
        return Ok(value[..end.unwrap_or(value.len())].trim_ascii());
    };
    let end = rest.iter().position(|&byte| byte == quote).ok_or("a quote is not closed")?;
    let after = rest[end + 1..].trim_ascii();
    if after.is_empty() || after.starts_with(b"#") {
        Ok(&rest[..end])
    } else {
        Err("something follows the closing quote".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = "# of mine\n\n dir = \"/a b\" # here\nmax_size=2GB\nmax_age = 30d # a month\n\
                    stats_log = '/l#g'\ncheck = \n";
        let file = ConfigFile::parse(text.as_bytes());
        assert_eq!(file.faults, [""; 0]);
        let values: Vec<_> =
            file.values.iter().map(|(name, value)| (*name, value.to_str())).collect();
        let expected = [
            (Name::Dir, Some("/a b")),
            (Name::MaxSize, Some("2GB")),
            (Name::MaxAge, Some("30d")),
            (Name::Check, Some("")),
            (Name::StatsLog, Some("/l#g")),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn lines_that_say_nothing_are_told() {
        for line in ["dir", "colour = red", "dir = \"/a", "dir = \"/a\" b"] {
            let file = ConfigFile::parse(format!("stat = off\n{line}").as_bytes());
            assert_eq!(file.faults.len(), 1, "{line}");
            assert!(file.faults[0].starts_with("line 2 "), "{}", file.faults[0]);
            assert_eq!(file.values.len(), 1, "{line}");
        }
    }

    #[test]
    fn a_missing_file_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ConfigFile::read(&folder.path().join("config")).faults.is_empty());
        assert_eq!(ConfigFile::read(folder.path()).faults.len(), 1);
    }
}
