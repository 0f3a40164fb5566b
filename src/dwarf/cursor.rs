//! Reads integers out of a unit's bytes. Never panics: running out of bytes is [`Eof`].

/// The bytes ended, or a number did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eof;

/// A position in `bytes`. `BIG` is the byte order, a parameter so that the hot walk over DIEs is
/// compiled once for each.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a, const BIG: bool> {
    /// The unit from its header on: positions are unit-relative offsets.
    pub bytes: &'a [u8],
    /// Where the next read starts.
    pub position: usize,
}

impl<'a, const BIG: bool> Cursor<'a, BIG> {
    /// A cursor at `position` of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Eof> {
        let end = self.position.wrapping_add(N);
        let bytes = self.bytes.get(self.position..end).ok_or(Eof)?;
        self.position = end;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }

    /// One byte.
    #[inline(always)]
    pub fn u8(&mut self) -> Result<u8, Eof> {
        let byte = *self.bytes.get(self.position).ok_or(Eof)?;
        self.position += 1;
        Ok(byte)
    }

    /// Two bytes.
    #[inline(always)]
    pub fn u16(&mut self) -> Result<u16, Eof> {
        let bytes = self.array()?;
        Ok(if BIG { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// Three bytes (`DW_FORM_strx3`, `DW_FORM_addrx3`).
    pub fn u24(&mut self) -> Result<u32, Eof> {
        let [a, b, c] = self.array()?;
        Ok(if BIG { u32::from_be_bytes([0, a, b, c]) } else { u32::from_le_bytes([a, b, c, 0]) })
    }

    /// Four bytes.
    #[inline(always)]
    pub fn u32(&mut self) -> Result<u32, Eof> {
        let bytes = self.array()?;
        Ok(if BIG { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Eight bytes.
    #[inline(always)]
    pub fn u64(&mut self) -> Result<u64, Eof> {
        let bytes = self.array()?;
        Ok(if BIG { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// An unsigned number of 1, 2, 3, 4 or 8 bytes.
    #[inline(always)]
    pub fn unsigned(&mut self, width: u8) -> Result<u64, Eof> {
        match width {
            1 => self.u8().map(u64::from),
            2 => self.u16().map(u64::from),
            3 => self.u24().map(u64::from),
            4 => self.u32().map(u64::from),
            8 => self.u64(),
            _ => Err(Eof),
        }
    }

    /// An unsigned LEB128 number. Bits beyond 64 are dropped, a number of more than 20 bytes is
    /// an error.
    #[inline(always)]
    pub fn uleb(&mut self) -> Result<u64, Eof> {
        let first = self.u8()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.uleb_rest(first) }
    }

    fn uleb_rest(&mut self, first: u8) -> Result<u64, Eof> {
        let mut value = u64::from(first & 0x7f);
        for index in 1..20_u32 {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(7 * index).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Eof)
    }

    /// A signed LEB128 number, as [`Self::uleb`].
    pub fn sleb(&mut self) -> Result<i64, Eof> {
        let mut value = 0_i64;
        for index in 0..20_u32 {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f).checked_shl(7 * index).unwrap_or(0);
            if byte < 0x80 {
                let bits = 7 * (index + 1);
                let negative = byte & 0x40 != 0 && bits < 64;
                return Ok(if negative { value | -1 << bits } else { value });
            }
        }
        Err(Eof)
    }

    /// Passes over `size` bytes.
    #[inline(always)]
    pub fn skip(&mut self, size: u32) -> Result<(), Eof> {
        let end = self.position + size as usize;
        if end > self.bytes.len() {
            return Err(Eof);
        }
        self.position = end;
        Ok(())
    }

    /// Passes over as many bytes as a block claims to have.
    pub fn skip_block(&mut self, size: u64) -> Result<(), Eof> {
        u32::try_from(size).map_err(|_| Eof).and_then(|size| self.skip(size))
    }

    /// The bytes up to the next NUL, which is passed over.
    pub fn string(&mut self) -> Result<&'a [u8], Eof> {
        let rest = self.bytes.get(self.position..).ok_or(Eof)?;
        let length = memchr::memchr(0, rest).ok_or(Eof)?;
        self.position += length + 1;
        Ok(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_byte_orders() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Cursor::<false>::new(&bytes, 0).u24(), Ok(0x03_0201));
        assert_eq!(Cursor::<true>::new(&bytes, 0).u24(), Ok(0x01_0203));
        assert_eq!(Cursor::<true>::new(&bytes, 4).u32(), Ok(0x0506_0708));
        assert_eq!(Cursor::<false>::new(&bytes, 5).u32(), Err(Eof));
        assert_eq!(Cursor::<false>::new(&bytes, 9).u8(), Err(Eof));
    }

    #[test]
    fn leb128_as_in_the_dwarf_standard() {
        // DWARF 5, tables 7.7 and 7.8.
        for (value, bytes) in
            [(2, &[2][..]), (127, &[0x7f]), (128, &[0x80, 1]), (12857, &[0xb9, 0x64])]
        {
            assert_eq!(Cursor::<false>::new(bytes, 0).uleb(), Ok(value));
        }
        for (value, bytes) in
            [(-2, &[0x7e][..]), (127, &[0xff, 0]), (-127, &[0x81, 0x7f]), (-129, &[0xff, 0x7e])]
        {
            assert_eq!(Cursor::<false>::new(bytes, 0).sleb(), Ok(value));
        }
        assert_eq!(Cursor::<false>::new(&[0x80; 40], 0).uleb(), Err(Eof));
        assert_eq!(Cursor::<false>::new(&[0xff; 40], 0).sleb(), Err(Eof));
    }
}
