//! What is known of a file without reading it.

use crate::wire::{Reader, Writer};
use crate::{FormatError, Key};

/// A file at rest, and the key of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatRecord {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_size`, in bytes.
    pub size: u64,
    /// `st_mtim`, in nanoseconds since 1970.
    pub modified: i64,
    /// `st_ctim`, in nanoseconds since 1970.
    pub changed: i64,
    /// The key of its contents.
    pub content: Key,
}

impl StatRecord {
    /// The record as a payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u64(self.device);
        writer.u64(self.inode);
        writer.u64(self.size);
        writer.i64(self.modified);
        writer.i64(self.changed);
        writer.array(&self.content.0);
        writer.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not a record.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let record = Self {
            device: reader.u64("device")?,
            inode: reader.u64("inode")?,
            size: reader.u64("size")?,
            modified: reader.i64("mtime")?,
            changed: reader.i64("ctime")?,
            content: Key(reader.array("content")?),
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
        let (modified, changed) = (i64::MIN, i64::MAX);
        let content = Key([9; 32]);
        let record = StatRecord { device: 1, inode: 2, size: 3, modified, changed, content };
        let bytes = record.encode();
        assert_eq!(StatRecord::decode(&bytes), Ok(record));
        for length in 0..bytes.len() {
            assert!(StatRecord::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }
}
