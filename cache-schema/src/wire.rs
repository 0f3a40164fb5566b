//! Little-endian numbers, byte strings and lists: what payloads are made of.

use crate::FormatError;

/// Appends fields to a payload.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn array(&mut self, bytes: &[u8; 32]) {
        self.0.extend(bytes);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn texts(&mut self, texts: &[String]) {
        self.u64(texts.len() as u64);
        texts.iter().for_each(|text| self.bytes(text.as_bytes()));
    }

    /// Bytes with their number as LEB128.
    pub(crate) fn leb_bytes(&mut self, bytes: &[u8]) {
        self.leb(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn leb(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn lebs(&mut self, values: &[u32]) {
        self.leb(values.len() as u64);
        values.iter().for_each(|&value| self.leb(value.into()));
    }

    /// Differences, the most frequent of which, 1, is 0.
    pub(crate) fn classes(&mut self, classes: &[u32]) {
        self.leb(classes.len() as u64);
        let mut expected = 0_u32;
        for &class in classes {
            let distance = class.wrapping_sub(expected) as i32;
            self.leb((((distance << 1) ^ (distance >> 31)) as u32).into());
            expected = class.wrapping_add(1);
        }
    }
}

/// Takes fields from a payload. Nothing is allocated by a claimed size: what is copied is there.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Nothing may follow.
    pub(crate) const fn end(&self) -> Result<(), FormatError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(FormatError::Rest { left }),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn leb(&mut self, field: &'static str) -> Result<u64, FormatError> {
        let mut value = 0_u64;
        for (index, &byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f).checked_shl(7 * index as u32).unwrap_or(0);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok(value);
            }
        }
        Err(FormatError::Cut { field })
    }

    pub(crate) fn leb32(&mut self, field: &'static str) -> Result<u32, FormatError> {
        u32::try_from(self.leb(field)?).map_err(|_| FormatError::Invalid { field })
    }

    pub(crate) fn leb_bytes(&mut self, field: &'static str) -> Result<&'a [u8], FormatError> {
        let size = self.leb(field)?;
        self.take(usize::try_from(size).unwrap_or(usize::MAX), field)
    }

    pub(crate) fn lebs(&mut self, field: &'static str) -> Result<Vec<u32>, FormatError> {
        self.leb_list(field, |reader| reader.leb32(field))
    }

    /// What [`Writer::classes`] wrote.
    pub(crate) fn classes(&mut self, field: &'static str) -> Result<Vec<u32>, FormatError> {
        let mut expected = 0_u32;
        self.leb_list(field, |reader| {
            let distance = reader.leb32(field)?;
            let class = expected.wrapping_add(distance >> 1 ^ (distance & 1).wrapping_neg());
            expected = class.wrapping_add(1);
            Ok(class)
        })
    }

    /// A count as LEB128, then so many elements, none of which takes no bytes.
    pub(crate) fn leb_list<T>(
        &mut self,
        field: &'static str,
        mut element: impl FnMut(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let count = self.leb(field)?;
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    fn take(&mut self, size: usize, field: &'static str) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.0.split_at_checked(size).ok_or(FormatError::Cut { field })?;
        self.0 = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], FormatError> {
        self.take(N, field).map(|bytes| bytes.try_into().expect("so many were taken"))
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, FormatError> {
        self.chunk::<1>(field).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, FormatError> {
        self.chunk(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, FormatError> {
        self.chunk(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, FormatError> {
        self.chunk(field).map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, FormatError> {
        self.chunk(field).map(i64::from_le_bytes)
    }

    pub(crate) fn array(&mut self, field: &'static str) -> Result<[u8; 32], FormatError> {
        self.chunk(field)
    }

    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], FormatError> {
        let size = self.u64(field)?;
        self.take(usize::try_from(size).unwrap_or(usize::MAX), field)
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Result<String, FormatError> {
        let bytes = self.bytes(field)?.to_vec();
        String::from_utf8(bytes).map_err(|_| FormatError::Invalid { field })
    }

    pub(crate) fn texts(&mut self, field: &'static str) -> Result<Vec<String>, FormatError> {
        self.list(field, |reader| reader.text(field))
    }

    /// A count, then so many elements, none of which takes no bytes.
    pub(crate) fn list<T>(
        &mut self,
        field: &'static str,
        element: impl Fn(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let count = self.u64(field)?;
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// A 0 or 1 and, after a 1, what `read` takes.
    pub(crate) fn option<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        match self.u8(field)? {
            0 => Ok(None),
            1 => read(self, field).map(Some),
            _ => Err(FormatError::Invalid { field }),
        }
    }
}
