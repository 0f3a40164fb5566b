//! Builds small BTF images, valid or not, word by word.

use btfcache::btf::kind::{Info, Kind};

/// An image in the making.
#[derive(Clone, Debug)]
pub struct Image {
    /// The words of all records.
    pub words: Vec<u32>,
    /// The string section.
    pub strings: Vec<u8>,
    /// Bytes between the known header and the types.
    pub header_tail: Vec<u8>,
    /// The layout section; without one the header has no fields for it.
    pub layout: Option<Vec<u8>>,
    /// Byte order.
    pub is_big_endian: bool,
    /// Offset of the first own string.
    pub first_string: u32,
    /// Id of the next record.
    pub next_id: u32,
}

/// An INT word: signed, 32 bits.
pub const SIGNED_32: u32 = 1 << 24 | 32;

impl Image {
    /// An image without types.
    pub fn empty() -> Self {
        Self {
            words: Vec::new(),
            strings: vec![0],
            header_tail: Vec::new(),
            layout: None,
            is_big_endian: false,
            first_string: 0,
            next_id: 1,
        }
    }

    /// An image with `int` as type 1.
    pub fn new() -> Self {
        let mut image = Self::empty();
        image.add("int", Kind::Int, 0, 4, &[SIGNED_32]);
        image
    }

    /// An image split on another with this many types and bytes of strings.
    pub fn split(types: u32, strings: u32) -> Self {
        let empty = Self::empty();
        Self { strings: Vec::new(), first_string: strings, next_id: types + 1, ..empty }
    }

    /// Offset of a name, added at the end unless it is empty.
    pub fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let offset = self.first_string + self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        offset
    }

    /// Adds a record; returns its id.
    pub fn add(&mut self, name: &str, kind: Kind, vlen: u32, third: u32, rest: &[u32]) -> u32 {
        self.flagged(name, kind, vlen, false, third, rest)
    }

    /// Adds a record with a kflag; returns its id.
    pub fn flagged(
        &mut self,
        name: &str,
        kind: Kind,
        vlen: u32,
        kflag: bool,
        third: u32,
        rest: &[u32],
    ) -> u32 {
        let name = self.name(name);
        self.raw(&[name, Info::new(kind, vlen, kflag).0, third], rest)
    }

    /// Adds the words of a record as they are; returns its id.
    pub fn raw(&mut self, words: &[u32], rest: &[u32]) -> u32 {
        self.words.extend_from_slice(words);
        self.words.extend_from_slice(rest);
        self.next_id += 1;
        self.next_id - 1
    }

    /// Adds a struct with members of this name, type and offset; returns its id.
    pub fn composite(
        &mut self,
        kind: Kind,
        name: &str,
        kflag: bool,
        size: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let mut rest = Vec::new();
        for &(member, ty, offset) in members {
            rest.extend([self.name(member), ty, offset]);
        }
        self.flagged(name, kind, members.len() as u32, kflag, size, &rest)
    }

    /// Adds a prototype with parameters of this name and type; returns its id.
    pub fn prototype(&mut self, result: u32, parameters: &[(&str, u32)]) -> u32 {
        let mut rest = Vec::new();
        for &(parameter, ty) in parameters {
            rest.extend([self.name(parameter), ty]);
        }
        self.add("", Kind::FuncProto, parameters.len() as u32, result, &rest)
    }

    /// The bytes of the image.
    pub fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.words.len() as u32 * 4, self.strings.len() as u32);
        let layout = self.layout.as_deref().unwrap_or_default();
        let known = if self.layout.is_some() { 32 } else { 24 };
        let header_size = known + self.header_tail.len() as u32;
        let mut fields = vec![header_size, 0, types, types + layout.len() as u32, strings];
        if self.layout.is_some() {
            fields.extend([types, layout.len() as u32]);
        }
        let mut bytes = self.to_bytes(&[0xeb9f | 1 << 16]);
        if self.is_big_endian {
            bytes = vec![0xeb, 0x9f, 1, 0];
        }
        bytes.extend(self.to_bytes(&fields));
        bytes.extend(&self.header_tail);
        bytes.extend(self.to_bytes(&self.words));
        bytes.extend(layout);
        bytes.extend(&self.strings);
        bytes
    }

    fn to_bytes(&self, words: &[u32]) -> Vec<u8> {
        let order = if self.is_big_endian { u32::to_be_bytes } else { u32::to_le_bytes };
        words.iter().flat_map(|&word| order(word)).collect()
    }
}
