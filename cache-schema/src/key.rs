//! Keys: BLAKE3 over tagged, length-prefixed fields.
//!
//! Whoever makes a key writes its fields to a [`Fields`]. [`KeyHasher`] makes the key of them,
//! [`FieldList`] a text, so what is shown to a reader is what was hashed.

use std::fmt;
use std::str::FromStr;

use crate::{ENCODER_VERSION, FormatError, SCHEMA_VERSION};

/// Contents are hashed in pieces of so many bytes, by several threads: the digest of a content is
/// that of its pieces' digests. Changes every key: bump [`SCHEMA_VERSION`].
pub const CHUNK_SIZE: usize = 1 << 20;

/// Name of a stored value: a BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({self})")
    }
}

impl FromStr for Key {
    type Err = FormatError;

    /// Reads the 64 lower-case hexadecimal digits that [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        let invalid = FormatError::Invalid { field: "key" };
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut key = [0; 32];
        if text.len() != 2 * key.len() {
            return Err(invalid);
        }
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(invalid);
            };
            *byte = high << 4 | low;
        }
        Ok(Self(key))
    }
}

/// The key of a compile unit: equal keys give equal fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitKey(pub Key);

/// What a key is for; its first field, so that keys of different purposes never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// The contents of an ELF file that can change a result.
    Content = 1,
    /// A finished result.
    Result = 2,
    /// What is known of a file by its device and inode.
    Stat = 3,
    /// A BTF that others build upon: its key is the digest in the note of its modules. 4 was the same
    /// by another digest.
    Base = 6,
    /// Such a BTF in prepared form.
    PreparedBase = 5,
    /// What a compile unit means.
    Unit = 7,
    /// What the last result of a file's contents stands on.
    Footing = 10,
    /// What is different between two BTFs that others build upon.
    Step = 11,
    /// The types of such a BTF as hashes.
    Outline = 12,
}

/// What a field holds, which decides how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Number,
    Bits,
    Text,
    Digest,
}

/// Declares [`Tag`]: numbers are never used again, names are what a reader sees.
macro_rules! tags {
    ($($(#[$doc:meta])* $tag:ident = $number:literal, $name:literal, $shape:ident;)*) => {
        /// What a field of a key is. The number is hashed: never change one, never reuse one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Tag { $($(#[$doc])* $tag = $number),* }

        impl Tag {
            /// Every tag, by number.
            pub const ALL: &[Self] = &[$(Self::$tag),*];

            /// The name for a reader.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$tag => $name),* }
            }

            const fn shape(self) -> Shape {
                match self { $(Self::$tag => Shape::$shape),* }
            }
        }
    };
}

tags! {
    /// [`SCHEMA_VERSION`].
    Schema = 1, "schema", Number;
    /// [`ENCODER_VERSION`].
    Encoder = 2, "encoder", Number;
    /// [`Purpose`].
    Purpose = 3, "purpose", Number;
    /// Digest of the encoder's own source: its versions of one [`ENCODER_VERSION`] never meet.
    EncoderSource = 4, "encoder source", Digest;
    /// Feature set, a bit for each.
    Features = 10, "features", Bits;
    /// How languages are filtered: 0 all, 1 only, 2 except.
    LanguageFilter = 11, "language filter", Number;
    /// A `DW_AT_language` of the filter.
    Language = 12, "language", Number;
    /// Prefix of the names of units to leave out.
    ExcludeUnitPrefix = 13, "exclude-unit-prefix", Text;
    /// Prefix that names are cut down to.
    KabiPrefix = 14, "kabi-prefix", Text;
    /// Whether pahole's visible defects are reproduced.
    CompatPahole = 15, "compat=pahole", Number;
    /// The key of an ELF file's contents.
    Content = 20, "content", Digest;
    /// The key of the BTF to build upon.
    Base = 21, "base", Digest;
    /// Whether the file has 64-bit addresses.
    Is64 = 30, "64-bit", Number;
    /// Whether the most significant byte comes first.
    BigEndian = 31, "big-endian", Number;
    /// `e_machine`.
    Machine = 32, "machine", Number;
    /// `e_type`.
    FileType = 33, "file type", Number;
    /// Index of a section; the fields after it describe that section.
    SectionIndex = 40, "section", Number;
    /// Name of a section.
    SectionName = 41, "name", Text;
    /// `sh_type`.
    SectionType = 42, "type", Number;
    /// `sh_flags`.
    SectionFlags = 43, "flags", Bits;
    /// `sh_addr`.
    SectionAddress = 44, "address", Bits;
    /// `sh_size`.
    SectionSize = 45, "size", Number;
    /// `sh_link`.
    SectionLink = 46, "link", Number;
    /// `sh_info`.
    SectionInfo = 47, "info", Number;
    /// `sh_addralign`.
    SectionAlignment = 48, "alignment", Number;
    /// Digest of the bytes of a section as they are stored.
    SectionBytes = 49, "bytes", Digest;
    /// `st_dev`.
    Device = 60, "device", Number;
    /// `st_ino`.
    Inode = 61, "inode", Number;
    /// The bytes of a file as a whole. No key has it any more.
    FileBytes = 62, "file", Digest;
    /// The version in the header of a unit.
    DwarfVersion = 70, "DWARF version", Number;
    /// Bytes of an offset in a unit.
    OffsetSize = 71, "offset size", Number;
    /// Bytes of an address in a unit.
    AddressSize = 72, "address size", Number;
    /// Bytes of a unit, header included.
    UnitSize = 73, "unit size", Number;
    /// Digest of a table of abbreviations, constants that are volatile masked.
    Abbreviations = 74, "abbreviations", Digest;
    /// Digest of a unit's bytes, what is volatile masked.
    UnitStream = 75, "unit", Digest;
    /// Digest of what a unit's strings say.
    UnitStrings = 76, "strings", Digest;
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, hashed as eight bytes.
    Number(u64),
    /// Any bytes.
    Bytes(&'a [u8]),
    /// A hash.
    Digest(&'a [u8; 32]),
}

/// Takes the fields of a key, in order.
pub trait Fields {
    /// Takes one field.
    fn field(&mut self, tag: Tag, value: Value<'_>);

    /// Takes a number.
    fn number(&mut self, tag: Tag, value: impl Into<u64>) {
        self.field(tag, Value::Number(value.into()));
    }

    /// Takes a key that was made before.
    fn key(&mut self, tag: Tag, key: &Key) {
        self.field(tag, Value::Digest(&key.0));
    }

    /// Takes the fields that every key begins with.
    fn begin(&mut self, purpose: Purpose) {
        self.number(Tag::Schema, SCHEMA_VERSION);
        self.number(Tag::Encoder, ENCODER_VERSION);
        self.number(Tag::Purpose, purpose as u8);
    }
}

/// Makes a key of fields.
#[derive(Clone, Debug)]
pub struct KeyHasher(blake3::Hasher);

impl KeyHasher {
    /// A key for `purpose`.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        hasher.begin(purpose);
        hasher
    }

    /// The key of all fields so far.
    #[must_use]
    pub fn finish(&self) -> Key {
        Key(self.0.finalize().into())
    }
}

impl Fields for KeyHasher {
    fn field(&mut self, tag: Tag, value: Value<'_>) {
        let number;
        let bytes = match value {
            Value::Number(value) => {
                number = value.to_le_bytes();
                &number[..]
            }
            Value::Bytes(bytes) => bytes,
            Value::Digest(digest) => digest,
        };
        self.0.update(&[tag as u8]);
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

/// One field for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is.
    pub tag: Tag,
    /// Its value as text.
    pub text: String,
}

/// The fields of a key for a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldList(Vec<Field>);

impl FieldList {
    /// A list for a key of `purpose`.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        let mut list = Self::default();
        list.begin(purpose);
        list
    }

    /// The fields, in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.0
    }
}

impl Fields for FieldList {
    fn field(&mut self, tag: Tag, value: Value<'_>) {
        let text = match (value, tag.shape()) {
            (Value::Number(number), Shape::Bits) => format!("{number:#x}"),
            (Value::Number(number), _) => number.to_string(),
            (Value::Digest(digest), _) => Key(*digest).to_string(),
            (Value::Bytes(bytes), _) => bytes.escape_ascii().to_string(),
        };
        self.0.push(Field { tag, text });
    }
}

impl fmt::Display for FieldList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|field| writeln!(formatter, "{}: {}", field.tag.name(), field.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cannot_run_into_each_other() {
        let key = |fields: &[(Tag, &[u8])]| {
            let mut hasher = KeyHasher::new(Purpose::Result);
            fields.iter().for_each(|&(tag, bytes)| hasher.field(tag, Value::Bytes(bytes)));
            hasher.finish()
        };
        let (one, two) = (Tag::ExcludeUnitPrefix, Tag::KabiPrefix);
        let keys = [
            key(&[]),
            key(&[(one, b"")]),
            key(&[(one, b"ab")]),
            key(&[(two, b"ab")]),
            key(&[(one, b"a"), (one, b"b")]),
            key(&[(one, b"a"), (two, b"b")]),
            key(&[(two, b"b"), (one, b"a")]),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
    }

    #[test]
    fn tags_have_numbers_and_names_of_their_own() {
        for (index, tag) in Tag::ALL.iter().enumerate() {
            let before = &Tag::ALL[..index];
            assert!(before.iter().all(|other| (*other as u8) < *tag as u8), "{tag:?}");
            assert!(before.iter().all(|other| other.name() != tag.name()), "{tag:?}");
        }
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = KeyHasher::new(Purpose::Stat).finish();
        assert_eq!(key.to_string().parse(), Ok(key));
        for text in ["", "ab", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }

    #[test]
    fn fields_can_be_read() {
        let mut list = FieldList::new(Purpose::Result);
        list.number(Tag::Features, 0x1ff_u32);
        list.field(Tag::KabiPrefix, Value::Bytes(b"__kabi\n"));
        let text = list.to_string();
        assert!(text.ends_with("purpose: 2\nfeatures: 0x1ff\nkabi-prefix: __kabi\\n\n"), "{text}");
    }
}
