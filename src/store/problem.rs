//! What can go wrong with a cache. None of it changes a result.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;

use btfcache_schema::{Counter, FormatError};

/// The kind of a problem, as statistics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A stored value is damaged.
    Damaged,
    /// A stored value is of another version.
    Version,
    /// The file system is full.
    Full,
    /// Something may not be read or written.
    Denied,
    /// The cache belongs to somebody else.
    Owner,
    /// Any other failure of the system.
    Io,
    /// A stored result is not what the input gives.
    Differs,
    /// A setting cannot be understood.
    Setting,
}

impl Reason {
    /// The counter of this kind.
    #[must_use]
    pub const fn counter(self) -> Counter {
        match self {
            Self::Damaged => Counter::ProblemDamaged,
            Self::Version => Counter::ProblemVersion,
            Self::Full => Counter::ProblemFull,
            Self::Denied => Counter::ProblemDenied,
            Self::Owner => Counter::ProblemOwner,
            Self::Io => Counter::ProblemIo,
            Self::Differs => Counter::ProblemDiffers,
            Self::Setting => Counter::ProblemSetting,
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::Denied,
            _ => Self::Io,
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub reason: Reason,
    /// What happened, to what.
    pub message: String,
}

impl Problem {
    /// A problem of this kind.
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Something that the system refused: `action` as in "read".
    pub(super) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        let message = format!("failed to {action} `{}`: {error}", path.display());
        Self { reason: Reason::of(error), message }
    }

    /// A stored value that is not what it should be.
    pub(super) fn damaged(path: &Path, what: impl Display) -> Self {
        Self::new(Reason::Damaged, format!("`{}` is damaged: {what}", path.display()))
    }

    /// The same, for bytes that do not fit the format.
    pub(super) fn format(path: &Path, error: &FormatError) -> Self {
        match error {
            FormatError::Schema { .. } => {
                Self::new(Reason::Version, format!("`{}` cannot be used: {error}", path.display()))
            }
            _ => Self::damaged(path, error),
        }
    }
}
