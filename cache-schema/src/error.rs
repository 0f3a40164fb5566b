//! What can be wrong with stored bytes. For the program each of these is a miss.

/// Why stored bytes are not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It does not begin like a value of this cache.
    #[error("it is not a value of this cache")]
    Magic,
    /// It was written by a btfcache with another schema.
    #[error("it has schema {found}, not {}", crate::SCHEMA_VERSION)]
    Schema {
        /// The schema it has.
        found: u32,
    },
    /// It is a value of another kind.
    #[error("it is of kind {found}, not {wanted}")]
    Kind {
        /// The kind it has.
        found: u32,
        /// The kind that was asked for.
        wanted: u32,
    },
    /// It was stored under another key.
    #[error("it belongs to another key")]
    Key,
    /// It is longer or shorter than it says.
    #[error("it says that it has {claimed} bytes and has {found}")]
    Length {
        /// Length by the header, in bytes.
        claimed: u64,
        /// Length that was found, in bytes.
        found: u64,
    },
    /// A bit has flipped.
    #[error("its checksum does not match")]
    Checksum,
    /// A field reaches beyond the end.
    #[error("{field} is cut off")]
    Cut {
        /// The field.
        field: &'static str,
    },
    /// A field has a value that cannot be.
    #[error("{field} has a value that cannot be")]
    Invalid {
        /// The field.
        field: &'static str,
    },
    /// Bytes follow the last field.
    #[error("{left} bytes follow its end")]
    Rest {
        /// How many.
        left: usize,
    },
}
