//! The envelope around every stored value. A value that is damaged, cut, of another schema, or
//! under another value's name is told from a whole one before its payload is looked at.

use crate::{FormatError, Key, SCHEMA_VERSION};

/// Bytes before the payload.
pub const HEADER_SIZE: usize = CHECKED_SIZE + 32;

const MAGIC: &[u8; 8] = b"BTFCACHE";
/// Magic, schema, kind, key, length: what the checksum covers, together with the payload.
const CHECKED_SIZE: usize = 8 + 4 + 4 + 32 + 8;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A [`crate::ResultRecord`].
    Result = 1,
    /// A [`crate::StatRecord`].
    Stat = 2,
    /// A [`crate::RunRecord`].
    Run = 3,
    /// A prepared base: words in the byte order of the machine, with a checksum of their own.
    Base = 4,
    /// A [`crate::PoolRecord`].
    Pool = 7,
    /// [`crate::UnitRecord`]s, one after the other.
    Units = 8,
    /// A [`crate::FootingRecord`].
    Footing = 10,
    /// A [`crate::StepRecord`].
    Step = 11,
    /// A [`crate::OutlineRecord`].
    Outline = 12,
}

impl Kind {
    /// The longest payload that is read, in bytes: nothing longer is ever allocated.
    #[must_use]
    pub const fn limit(self) -> u64 {
        match self {
            Self::Result | Self::Base | Self::Pool | Self::Units => 1 << 30,
            Self::Footing | Self::Step | Self::Outline => 1 << 26,
            Self::Stat | Self::Run => 1 << 16,
        }
    }
}

/// Puts `payload` into an envelope.
#[must_use]
pub fn seal(kind: Kind, key: &Key, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_SIZE + payload.len());
    bytes.extend(MAGIC);
    bytes.extend(SCHEMA_VERSION.to_le_bytes());
    bytes.extend((kind as u32).to_le_bytes());
    bytes.extend(key.0);
    bytes.extend((payload.len() as u64).to_le_bytes());
    let checksum = checksum(&bytes, payload);
    bytes.extend(checksum);
    bytes.extend(payload);
    bytes
}

fn checksum(checked: &[u8], payload: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(checked);
    hasher.update(payload);
    hasher.finalize().into()
}

/// The parsed start of an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; HEADER_SIZE],
}

impl Header {
    /// Reads the header of a value of `kind` that is stored under `key` in `size` bytes, header
    /// included.
    ///
    /// # Errors
    /// When it is not the start of such a value.
    pub fn parse(
        bytes: [u8; HEADER_SIZE],
        kind: Kind,
        key: &Key,
        size: u64,
    ) -> Result<Self, FormatError> {
        let header = Self { bytes };
        header.check(kind, key)?;
        let claimed = header.length().saturating_add(HEADER_SIZE as u64);
        if claimed != size || header.length() > kind.limit() {
            return Err(FormatError::Length { claimed, found: size });
        }
        Ok(header)
    }

    fn check(&self, kind: Kind, key: &Key) -> Result<(), FormatError> {
        if &self.bytes[..8] != MAGIC {
            return Err(FormatError::Magic);
        }
        if self.word(8) != SCHEMA_VERSION {
            return Err(FormatError::Schema { found: self.word(8) });
        }
        if self.word(12) != kind as u32 {
            return Err(FormatError::Kind { found: self.word(12), wanted: kind as u32 });
        }
        if self.bytes[16..48] != key.0 {
            return Err(FormatError::Key);
        }
        Ok(())
    }

    /// Length of the payload in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        u64::from_le_bytes(self.bytes[48..56].try_into().expect("eight bytes"))
    }

    /// Checks the payload.
    ///
    /// # Errors
    /// When it is not what was stored.
    pub fn verify(&self, payload: &[u8]) -> Result<(), FormatError> {
        let found = payload.len() as u64;
        if found != self.length() {
            return Err(FormatError::Length { claimed: self.length(), found });
        }
        if checksum(&self.bytes[..CHECKED_SIZE], payload) != self.bytes[CHECKED_SIZE..] {
            return Err(FormatError::Checksum);
        }
        Ok(())
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([7; 32]);

    fn open(bytes: &[u8], kind: Kind, key: &Key) -> Result<Vec<u8>, FormatError> {
        let Some((header, payload)) = bytes.split_first_chunk() else {
            return Err(FormatError::Cut { field: "header" });
        };
        let header = Header::parse(*header, kind, key, bytes.len() as u64)?;
        header.verify(payload)?;
        Ok(payload.to_vec())
    }

    #[test]
    fn a_sealed_value_opens() {
        for payload in [&b""[..], b"payload"] {
            let bytes = seal(Kind::Result, &KEY, payload);
            assert_eq!(open(&bytes, Kind::Result, &KEY).unwrap(), payload);
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unnoticed() {
        let bytes = seal(Kind::Result, &KEY, b"payload");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&damaged, Kind::Result, &KEY).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length], Kind::Result, &KEY).is_err(), "{length} bytes");
        }
        assert!(open(&[&bytes[..], b"x"].concat(), Kind::Result, &KEY).is_err());
    }

    #[test]
    fn a_value_opens_only_under_its_own_name() {
        let bytes = seal(Kind::Result, &KEY, b"payload");
        assert_eq!(open(&bytes, Kind::Result, &Key([8; 32])), Err(FormatError::Key));
        assert_eq!(open(&bytes, Kind::Stat, &KEY), Err(FormatError::Kind { found: 1, wanted: 2 }));
        let mut newer = bytes;
        newer[8] += 1;
        let found = SCHEMA_VERSION + 1;
        assert_eq!(open(&newer, Kind::Result, &KEY), Err(FormatError::Schema { found }));
    }

    #[test]
    fn a_claimed_length_is_not_believed() {
        let bytes = seal(Kind::Stat, &KEY, b"payload");
        let mut header: [u8; HEADER_SIZE] = *bytes.first_chunk().unwrap();
        header[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Header::parse(header, Kind::Stat, &KEY, u64::MAX).is_err());
        header[48..56].copy_from_slice(&(Kind::Stat.limit() + 1).to_le_bytes());
        let size = Kind::Stat.limit() + 1 + HEADER_SIZE as u64;
        assert!(Header::parse(header, Kind::Stat, &KEY, size).is_err());
    }
}
