//! Small BTF images that are nearly right: what a kernel says about them tells what its rules are.

use btfcache::btf::kind::{Info, Kind};

use crate::random::Random;

/// Names: usable everywhere, nowhere, or only for sections and integers.
const NAMES: [&str; 8] = ["", "a", "b.c", "_d", "with space", "1digit", "f", "g"];
/// Kinds, those that others can be made of more often.
const KINDS: [Kind; 24] = [
    Kind::Int,
    Kind::Ptr,
    Kind::Array,
    Kind::Struct,
    Kind::Union,
    Kind::Enum,
    Kind::Fwd,
    Kind::Typedef,
    Kind::Volatile,
    Kind::Const,
    Kind::Restrict,
    Kind::Func,
    Kind::FuncProto,
    Kind::Var,
    Kind::Datasec,
    Kind::Float,
    Kind::DeclTag,
    Kind::TypeTag,
    Kind::Enum64,
    Kind::Ptr,
    Kind::Typedef,
    Kind::Struct,
    Kind::Array,
    Kind::FuncProto,
];

/// Makes up an image.
#[must_use]
pub fn image(random: &mut Random) -> Vec<u8> {
    let count = random.between(1, 12);
    // Few images in which everything is random are right, so most have little of it.
    let noise = [0, 1, 2, 5, 20][random.below(5)];
    let mut strings = Vec::new();
    let mut offsets = Vec::new();
    for name in NAMES {
        offsets.push(strings.len() as u32);
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
    }
    let mut kinds = vec![Kind::Int];
    kinds.extend((0..count).map(|_| KINDS[random.below(KINDS.len())]));
    // A reader already refuses a function without prototype.
    if kinds.contains(&Kind::Func) && !kinds.contains(&Kind::FuncProto) {
        kinds.push(Kind::FuncProto);
    }
    let mut maker = Maker { random, noise, offsets, kinds };
    let words: Vec<u32> = (0..maker.kinds.len()).flat_map(|place| maker.record(place)).collect();
    let size = words.len() as u32 * 4;
    let header = [0xeb9f | 1 << 16, 24, 0, size, size, strings.len() as u32];
    let mut bytes: Vec<u8> =
        header.iter().chain(&words).flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(strings);
    bytes
}

struct Maker<'a> {
    random: &'a mut Random,
    /// How many of a hundred choices are wild.
    noise: usize,
    offsets: Vec<u32>,
    kinds: Vec<Kind>,
}

impl Maker<'_> {
    fn record(&mut self, place: usize) -> Vec<u32> {
        let kind = self.kinds[place];
        match kind {
            Kind::Int => self.int(place),
            Kind::Float => {
                let size = self.one_of(&[2, 4, 8, 12, 16], &[0, 3, 5, 32]);
                self.head("a", kind, 0, size)
            }
            Kind::Ptr | Kind::Const | Kind::Volatile | Kind::Restrict => self.link("", kind, place),
            Kind::Typedef | Kind::TypeTag => self.link("a", kind, place),
            Kind::Array => self.array(place),
            Kind::Struct | Kind::Union => self.composite(kind, place),
            Kind::Enum | Kind::Enum64 => self.enumeration(kind),
            Kind::Fwd => self.head("a", kind, 0, 0),
            Kind::Func => {
                let linkage = self.one_of(&[0, 1], &[2, 3]);
                let prototype = self.id_of(&[Kind::FuncProto], place);
                self.head("f", kind, linkage, prototype)
            }
            Kind::FuncProto => self.prototype(place),
            Kind::Var => {
                let target = self.sized(place);
                let mut record = self.head("b.c", kind, 0, target);
                record.push(self.one_of(&[0, 1], &[2]));
                record
            }
            Kind::Datasec => self.section(place),
            Kind::DeclTag => self.decl_tag(place),
        }
    }

    fn is_wild(&mut self) -> bool {
        let noise = self.noise;
        self.random.percent(noise)
    }

    fn one_of(&mut self, good: &[u32], bad: &[u32]) -> u32 {
        let choices = if self.is_wild() { bad } else { good };
        choices[self.random.below(choices.len())]
    }

    /// A name that is good here, or any.
    fn name(&mut self, good: &str) -> u32 {
        let place = if self.is_wild() {
            self.random.below(NAMES.len())
        } else {
            NAMES.iter().position(|name| *name == good).expect("names are of the list")
        };
        self.offsets[place]
    }

    fn head(&mut self, name: &str, kind: Kind, vlen: u32, third: u32) -> Vec<u32> {
        let kflag = match kind {
            Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Fwd => {
                self.random.percent(30)
            }
            _ => self.is_wild(),
        };
        let has_elements = kind.element_words() != 0 || kind == Kind::Func;
        let vlen = if !has_elements && self.is_wild() { 1 } else { vlen };
        vec![self.name(name), Info::new(kind, vlen, kflag).0, third]
    }

    /// The id of a type of one of these kinds; mostly of one before, so that loops are rare.
    fn id_of(&mut self, kinds: &[Kind], place: usize) -> u32 {
        if self.is_wild() {
            return self.random.below(self.kinds.len() + 1) as u32;
        }
        let end = if self.random.percent(75) { place } else { self.kinds.len() };
        let fitting: Vec<usize> = (0..end).filter(|&id| kinds.contains(&self.kinds[id])).collect();
        match fitting.as_slice() {
            [] if kinds == [Kind::FuncProto] => {
                let place = self.kinds.iter().position(|kind| *kind == Kind::FuncProto);
                place.map_or(1, |place| place as u32 + 1)
            }
            [] => 1,
            fitting => fitting[self.random.below(fitting.len())] as u32 + 1,
        }
    }

    /// Something that has a size, as far as its kind tells.
    fn sized(&mut self, place: usize) -> u32 {
        use Kind::{Array, Const, Enum, Enum64, Float, Int, Ptr, Struct, Typedef, Union};
        self.id_of(&[Int, Ptr, Array, Struct, Union, Enum, Enum64, Float, Typedef, Const], place)
    }

    fn int(&mut self, place: usize) -> Vec<u32> {
        let mut record = self.head("a", Kind::Int, 0, 4);
        if place == 0 {
            return vec![self.offsets[1], Info::new(Kind::Int, 0, false).0, 4, 1 << 24 | 32];
        }
        record[2] = self.one_of(&[1, 4, 8, 16], &[0, 3, 17]);
        let bits = self.one_of(&[record[2] * 8], &[0, 1, 24, 129, 255]) & 0xff;
        let offset = self.one_of(&[0], &[1, 8, 200]);
        let encoding = self.one_of(&[0, 1, 2, 4], &[3, 8, 16]);
        record.push(encoding << 24 | offset << 16 | bits);
        record
    }

    fn link(&mut self, name: &str, kind: Kind, place: usize) -> Vec<u32> {
        let wild = self.random.below(self.kinds.len() + 1) as u32;
        let target = if self.random.percent(15) { wild } else { self.sized(place) };
        self.head(name, kind, 0, target)
    }

    fn array(&mut self, place: usize) -> Vec<u32> {
        let mut record = self.head("", Kind::Array, 0, 0);
        let index = if self.random.percent(80) { 1 } else { self.sized(place) };
        let count = self.one_of(&[0, 1, 3], &[0x1000_0000, 0x8000_0000, u32::MAX]);
        record.extend([self.sized(place), index, count]);
        record
    }

    fn composite(&mut self, kind: Kind, place: usize) -> Vec<u32> {
        let count = self.random.below(4);
        let size = self.one_of(&[8, 24, 32, 64], &[0, 1, 4]);
        let mut record = self.head("a", kind, count as u32, size);
        let has_bitfields = Info(record[1]).kflag();
        let mut offset = 0;
        for _ in 0..count {
            let bits = if has_bitfields && self.random.percent(30) {
                self.one_of(&[1, 3, 8], &[9, 32, 33, 64, 129])
            } else {
                0
            };
            record.extend([self.name("b.c"), self.sized(place), bits << 24 | offset]);
            if kind == Kind::Struct {
                offset += self.one_of(&[32, 64], &[1, 3, 8, 16, 128]);
            }
            offset = if self.is_wild() { self.one_of(&[1, 8, 9], &[0xff_ffff]) } else { offset };
        }
        record
    }

    fn enumeration(&mut self, kind: Kind) -> Vec<u32> {
        let count = self.random.below(3);
        let size = self.one_of(&[1, 2, 4, 8], &[0, 3, 16]);
        let mut record = self.head("a", kind, count as u32, size);
        for _ in 0..count {
            record.extend([self.name("_d"), 7]);
            record.extend((kind == Kind::Enum64).then_some(0));
        }
        record
    }

    fn prototype(&mut self, place: usize) -> Vec<u32> {
        let count = self.random.below(4);
        let result = if self.random.percent(30) { 0 } else { self.sized(place) };
        let mut record = self.head("", Kind::FuncProto, count as u32, result);
        for _ in 0..count {
            record.extend([self.name("_d"), self.sized(place)]);
        }
        if count > 0 && self.random.percent(20) {
            let end = record.len();
            record[end - 2..].copy_from_slice(&[0, 0]);
        }
        record
    }

    fn section(&mut self, place: usize) -> Vec<u32> {
        let count = self.random.below(3) as u32;
        let size = self.one_of(&[64], &[0, 4]);
        let mut record = self.head("b.c", Kind::Datasec, count, size);
        for entry in 0..count {
            let offset = self.one_of(&[entry * 32], &[1, 31, 64]);
            let length = self.one_of(&[32], &[0, 1, 65]);
            record.extend([self.id_of(&[Kind::Var], place), offset, length]);
        }
        record
    }

    fn decl_tag(&mut self, place: usize) -> Vec<u32> {
        use Kind::{Func, Struct, Typedef, Union, Var};
        let target = self.id_of(&[Func, Struct, Union, Var, Typedef], place);
        let mut record = self.head("a", Kind::DeclTag, 0, target);
        record.push(self.one_of(&[u32::MAX, 0], &[1, 5, u32::MAX - 1]));
        record
    }
}
