//! Partial work on one artifact: what its units contributed, over one pool of classes.
//!
//! Numbers are LEB128, small ones take one byte. Lists of class ids are differences, since a unit has
//! most of its types in the order in which the pool has them.

use crate::FormatError;
use crate::wire::{Reader, Writer};

/// The classes that the units of an artifact have, and their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolRecord {
    /// Names, which the words of records count from 1.
    pub names: Vec<Vec<u8>>,
    /// Number of words of each record.
    pub sizes: Vec<u32>,
    /// The words of all records, one after the other. A class comes after those it refers to.
    pub words: Vec<u32>,
}

/// A variable of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariableRecord {
    /// Its name, counted from 1.
    pub name: u32,
    /// Its type: a reference as in records.
    pub ty: u32,
    /// Whether it is visible outside of its unit.
    pub is_external: bool,
    /// Size of its type in bytes.
    pub size: u64,
    /// Its tags, names counted from 1.
    pub tags: Vec<u32>,
}

/// What one unit contributed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitRecord {
    /// Its key.
    pub key: [u8; 32],
    /// Its size in bytes.
    pub size: u32,
    /// Where its masked fields are.
    pub masks: Vec<u8>,
    /// Where the addresses of its functions and variables are.
    pub operands: Vec<u8>,
    /// Its types, by class.
    pub types: Vec<u32>,
    /// The tags of its types, by class.
    pub tags: Vec<u32>,
    /// The index type of its arrays: 0 for none, 1 if it is missing, else its class and 2.
    pub index_type: u32,
    /// Its functions, by class.
    pub functions: Vec<u32>,
    /// Its variables.
    pub variables: Vec<VariableRecord>,
    /// Whether it defines all types that it uses by value.
    pub has_complete_types: bool,
}

impl PoolRecord {
    /// The record as a payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.leb(self.names.len() as u64);
        for name in &self.names {
            writer.leb_bytes(name);
        }
        writer.lebs(&self.sizes);
        writer.lebs(&self.words);
        writer.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not a record, or the sizes are not those of the words.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let names = reader.leb_list("names", |reader| Ok(reader.leb_bytes("names")?.to_vec()))?;
        let record = Self { names, sizes: reader.lebs("sizes")?, words: reader.lebs("words")? };
        reader.end()?;
        let words: u64 = record.sizes.iter().map(|&size| u64::from(size)).sum();
        if words != record.words.len() as u64 {
            return Err(FormatError::Invalid { field: "sizes" });
        }
        Ok(record)
    }
}

impl UnitRecord {
    /// Appends the record, its size first.
    pub fn append(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer::default();
        writer.array(&self.key);
        writer.leb(self.size.into());
        writer.leb_bytes(&self.masks);
        writer.leb_bytes(&self.operands);
        writer.classes(&self.types);
        writer.classes(&self.tags);
        writer.leb(self.index_type.into());
        writer.classes(&self.functions);
        writer.leb(self.variables.len() as u64);
        for variable in &self.variables {
            writer.leb(variable.name.into());
            writer.leb(variable.ty.into());
            writer.u8(variable.is_external.into());
            writer.leb(variable.size);
            writer.lebs(&variable.tags);
        }
        writer.u8(self.has_complete_types.into());
        let record = writer.finish();
        let mut sized = Writer::default();
        sized.leb_bytes(&record);
        bytes.extend(sized.finish());
    }

    /// The records that were appended to each other, each not read yet.
    ///
    /// # Errors
    /// When they are cut.
    pub fn split(payload: &[u8]) -> Result<Vec<&[u8]>, FormatError> {
        let mut reader = Reader::new(payload);
        let mut records = Vec::new();
        while !reader.is_empty() {
            records.push(reader.leb_bytes("unit")?);
        }
        Ok(records)
    }

    /// The key of a record that is not read yet, and the size of its unit.
    ///
    /// # Errors
    /// When it is cut.
    pub fn key_of(record: &[u8]) -> Result<([u8; 32], u32), FormatError> {
        let mut reader = Reader::new(record);
        Ok((reader.array("key")?, reader.leb32("size")?))
    }

    /// The masks and operands of a record that is not read yet.
    ///
    /// # Errors
    /// When it is cut.
    pub fn places_of(record: &[u8]) -> Result<(&[u8], &[u8]), FormatError> {
        let mut reader = Reader::new(record);
        reader.array("key")?;
        reader.leb32("size")?;
        Ok((reader.leb_bytes("masks")?, reader.leb_bytes("operands")?))
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When it is not one.
    pub fn decode(record: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(record);
        let (key, size) = (reader.array("key")?, reader.leb32("size")?);
        let masks = reader.leb_bytes("masks")?.to_vec();
        let operands = reader.leb_bytes("operands")?.to_vec();
        let unit = Self {
            key,
            size,
            masks,
            operands,
            types: reader.classes("types")?,
            tags: reader.classes("tags")?,
            index_type: reader.leb32("index type")?,
            functions: reader.classes("functions")?,
            variables: reader.leb_list("variables", |reader| {
                Ok(VariableRecord {
                    name: reader.leb32("variables")?,
                    ty: reader.leb32("variables")?,
                    is_external: reader.u8("variables")? != 0,
                    size: reader.leb("variables")?,
                    tags: reader.lebs("variables")?,
                })
            })?,
            has_complete_types: reader.u8("flags")? != 0,
        };
        reader.end()?;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> UnitRecord {
        UnitRecord {
            key: [7; 32],
            size: 1 << 20,
            masks: vec![1, 2, 3],
            operands: vec![4, 5],
            types: vec![3, 4, 5, 200, 1, u32::MAX],
            tags: vec![9],
            index_type: 300,
            functions: vec![1, u32::MAX],
            variables: vec![VariableRecord {
                name: 1,
                ty: 1 << 31,
                is_external: true,
                size: u64::MAX,
                tags: vec![2, 3],
            }],
            has_complete_types: true,
        }
    }

    #[test]
    fn units_come_back() {
        let mut bytes = Vec::new();
        unit().append(&mut bytes);
        UnitRecord::default().append(&mut bytes);
        let records = UnitRecord::split(&bytes).unwrap();
        assert_eq!(UnitRecord::decode(records[0]), Ok(unit()));
        assert_eq!(UnitRecord::decode(records[1]), Ok(UnitRecord::default()));
        assert_eq!(UnitRecord::key_of(records[0]), Ok(([7; 32], 1 << 20)));
        assert_eq!(UnitRecord::places_of(records[0]), Ok((&[1, 2, 3][..], &[4, 5][..])));
        for length in 0..records[0].len() {
            assert!(UnitRecord::decode(&records[0][..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn pools_come_back() {
        let pool = PoolRecord {
            names: vec![b"one".to_vec(), Vec::new(), vec![0; 300]],
            sizes: vec![3, 0, 1],
            words: vec![1, u32::MAX, 0, 1 << 14],
        };
        let bytes = pool.encode();
        assert_eq!(PoolRecord::decode(&bytes), Ok(pool));
        for length in 0..bytes.len() {
            assert!(PoolRecord::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_claimed_count_allocates_nothing() {
        let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(PoolRecord::decode(&huge), Err(FormatError::Cut { field: "names" }));
        let wrong = PoolRecord { sizes: vec![2], words: vec![1], ..PoolRecord::default() };
        assert_eq!(
            PoolRecord::decode(&wrong.encode()),
            Err(FormatError::Invalid { field: "sizes" })
        );
    }
}
