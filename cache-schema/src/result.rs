//! A finished result: everything that a hit must give back as the run that made it did.

use crate::wire::{Reader, Writer};
use crate::{FormatError, Key};

/// What one encode gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultRecord {
    /// The image `.BTF`; empty when there was nothing to encode.
    pub btf: Vec<u8>,
    /// The image `.BTF.base`, if one was distilled.
    pub base: Option<Vec<u8>>,
    /// The key of the BTF that it builds upon.
    pub base_key: Option<Key>,
    /// Lines for stderr, without the name of the file.
    pub notices: Vec<String>,
    /// Lines for stdout with `--verbose`.
    pub skips: Vec<String>,
    /// How long the encode took, in microseconds: what a hit saves.
    pub microseconds: u64,
}

impl ResultRecord {
    /// The record as a payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u64(self.microseconds);
        writer.u8(self.base_key.is_some().into());
        self.base_key.iter().for_each(|key| writer.array(&key.0));
        writer.texts(&self.notices);
        writer.texts(&self.skips);
        writer.u8(self.base.is_some().into());
        self.base.iter().for_each(|base| writer.bytes(base));
        writer.bytes(&self.btf);
        writer.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not a record.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let record = Self {
            microseconds: reader.u64("time")?,
            base_key: reader.option("base key", Reader::array)?.map(Key),
            notices: reader.texts("notices")?,
            skips: reader.texts("skips")?,
            base: reader.option(".BTF.base", Reader::bytes)?.map(<[u8]>::to_vec),
            btf: reader.bytes(".BTF")?.to_vec(),
        };
        reader.end()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let full = ResultRecord {
            btf: b"types".to_vec(),
            base: Some(b"base".to_vec()),
            base_key: Some(Key([3; 32])),
            notices: vec!["one".to_owned(), String::new()],
            skips: vec!["two".to_owned()],
            microseconds: 640_000,
        };
        for record in [full.clone(), ResultRecord::default()] {
            assert_eq!(ResultRecord::decode(&record.encode()).unwrap(), record);
        }
        let bytes = full.encode();
        for length in 0..bytes.len() {
            assert!(ResultRecord::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_claimed_count_allocates_nothing() {
        let mut writer = Writer::default();
        writer.u64(0);
        writer.u8(0);
        writer.u64(u64::MAX);
        let cut = FormatError::Cut { field: "notices" };
        assert_eq!(ResultRecord::decode(&writer.finish()), Err(cut));
    }
}
