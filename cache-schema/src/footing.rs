//! What a result that builds upon another BTF stands on: what must not have changed in that for the
//! result to be moved to another base, and what is known about two bases.

use crate::wire::{Reader, Writer};
use crate::{FormatError, Key};

/// The last result of a file's contents upon any base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FootingRecord {
    /// The key of the base.
    pub base: Key,
    /// The key of the result.
    pub result: Key,
    /// Size of the base's strings: offset of the first string of the result's own.
    pub end_string: u32,
    /// Hashes of the names that the encode asked the base for, or could have, ascending.
    pub mentions: Vec<u32>,
    /// The base's strings that the result uses: offset and text.
    pub names: Vec<(u32, Vec<u8>)>,
}

/// What of one base is different in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Hashes of the names of the types that differ, ascending; `None` if more differs than types that
    /// have a name, so that no result can be moved.
    pub changed: Option<Vec<u32>>,
}

/// The types of a base, each as two hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineRecord {
    /// Whether it is in big-endian byte order.
    pub is_big_endian: bool,
    /// By id, from 1: hash of the record, names taken as text; hash of its name, 0 if it has none.
    pub types: Vec<(u64, u32)>,
}

impl FootingRecord {
    /// The record as a payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.array(&self.base.0);
        writer.array(&self.result.0);
        writer.u32(self.end_string);
        writer.u64(self.mentions.len() as u64);
        self.mentions.iter().for_each(|&hash| writer.u32(hash));
        writer.u64(self.names.len() as u64);
        for (offset, text) in &self.names {
            writer.u32(*offset);
            writer.bytes(text);
        }
        writer.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not a record.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let record = Self {
            base: Key(reader.array("base key")?),
            result: Key(reader.array("result key")?),
            end_string: reader.u32("end of strings")?,
            mentions: reader.list("mentions", |reader| reader.u32("mentions"))?,
            names: reader.list("names", |reader| {
                Ok((reader.u32("offset")?, reader.bytes("name")?.to_vec()))
            })?,
        };
        reader.end()?;
        Ok(record)
    }
}

impl StepRecord {
    /// The record as a payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(self.changed.is_some().into());
        if let Some(hashes) = &self.changed {
            writer.u64(hashes.len() as u64);
            hashes.iter().for_each(|&hash| writer.u32(hash));
        }
        writer.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not a record.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let list = |reader: &mut Reader<'_>, field| reader.list(field, |reader| reader.u32(field));
        let record = Self { changed: reader.option("changed", list)? };
        reader.end()?;
        Ok(record)
    }
}

impl OutlineRecord {
    /// The record as a payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(self.is_big_endian.into());
        writer.u64(self.types.len() as u64);
        for &(record, name) in &self.types {
            writer.u64(record);
            writer.u32(name);
        }
        writer.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not a record.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let is_big_endian = match reader.u8("byte order")? {
            0 => false,
            1 => true,
            _ => return Err(FormatError::Invalid { field: "byte order" }),
        };
        let types =
            reader.list("types", |reader| Ok((reader.u64("type")?, reader.u32("type")?)))?;
        reader.end()?;
        Ok(Self { is_big_endian, types })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes_back<T: PartialEq + std::fmt::Debug>(
        record: &T,
        bytes: &[u8],
        decode: fn(&[u8]) -> Result<T, FormatError>,
    ) {
        assert_eq!(decode(bytes).as_ref(), Ok(record));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn records_come_back() {
        let footing = FootingRecord {
            base: Key([1; 32]),
            result: Key([2; 32]),
            end_string: 3,
            mentions: vec![4, 5],
            names: vec![(6, b"seven".to_vec()), (8, Vec::new())],
        };
        comes_back(&footing, &footing.encode(), FootingRecord::decode);
        for changed in [None, Some(vec![]), Some(vec![1, u32::MAX])] {
            let step = StepRecord { changed };
            comes_back(&step, &step.encode(), StepRecord::decode);
        }
        let outline = OutlineRecord { is_big_endian: true, types: vec![(1, 2), (u64::MAX, 0)] };
        comes_back(&outline, &outline.encode(), OutlineRecord::decode);
    }

    #[test]
    fn a_claimed_count_allocates_nothing() {
        let mut bytes = vec![1];
        bytes.extend(u64::MAX.to_le_bytes());
        assert_eq!(StepRecord::decode(&bytes), Err(FormatError::Cut { field: "changed" }));
        assert_eq!(OutlineRecord::decode(&bytes), Err(FormatError::Cut { field: "type" }));
    }
}
