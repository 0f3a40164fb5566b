//! Split BTF made by cutting an image in two: its first types become the base of the others.
//!
//! What comes out is BTF that libbpf reads, no more: types of the base that referred beyond the cut
//! refer to any other type of it.

use btfcache::btf::kind::{Info, Kind, kind_of, map_names, map_refs};
use btfcache::btf::read::Btf;

use crate::random::Random;

/// Cuts an image; gives base and split part, in this byte order.
///
/// # Panics
/// If the image is not one that can be read, or has fewer than two types.
#[must_use]
pub fn cut(image: &[u8], is_big_endian: bool, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let btf = Btf::parse(image, None).expect("the image is right");
    let last = random.between(1, btf.type_count() as usize - 1) as u32;
    let (mut base, mut split) = (Vec::new(), Vec::new());
    let own_strings = btf.strings().len() as u32;
    for (id, record) in btf.records() {
        let mut record = record.to_vec();
        if id <= last {
            stay_within(&mut record, last);
            base.extend(record);
        } else {
            // Names that the base has too are, in real BTF, those of the base.
            let shift = if random.percent(50) { own_strings } else { 0 };
            map_names(&mut record, |name| if name == 0 { 0 } else { name + shift });
            split.extend(record);
        }
    }
    let own = if split.is_empty() { &[] } else { btf.strings() };
    (image_of(&base, btf.strings(), is_big_endian), image_of(&split, own, is_big_endian))
}

/// Makes an image one that goes on where a base ends, and refers to nothing in that.
///
/// # Panics
/// If the image cannot be read.
#[must_use]
pub fn upon(image: &[u8], base: &Btf<'_>) -> Vec<u8> {
    let btf = Btf::parse(image, None).expect("the image is right");
    let mut words = Vec::new();
    for (_, record) in btf.records() {
        let mut record = record.to_vec();
        map_refs(&mut record, |target| if target == 0 { 0 } else { target + base.type_count() });
        map_names(&mut record, |name| if name == 0 { 0 } else { name + base.end_string() });
        words.extend(record);
    }
    image_of(&words, btf.strings(), btf.is_big_endian())
}

/// A base and split BTF upon it as one image, with ids and names as they are.
///
/// # Panics
/// If they cannot be read.
#[must_use]
pub fn flattened(base: &[u8], split: &[u8]) -> Vec<u8> {
    let base = Btf::parse(base, None).expect("the base is right");
    let split = Btf::parse(split, Some(&base)).expect("it fits the base");
    let records = base.records().chain(split.records());
    let words: Vec<u32> = records.flat_map(|(_, record)| record.iter().copied()).collect();
    image_of(&words, &[base.strings(), split.strings()].concat(), base.is_big_endian())
}

/// Bends references beyond the last type back. A function without its prototype is none.
fn stay_within(record: &mut [u32], last: u32) {
    if kind_of(record) == Kind::Func && record[2] > last {
        record[1] = Info::new(Kind::Typedef, 0, false).0;
    }
    map_refs(record, |target| if target > last { target % last + 1 } else { target });
}

/// Changes an image in so many places, so that it still can be read: kinds, sizes and flags of types
/// without elements, and names. If types may be added, some are repeated at the end.
///
/// # Panics
/// If the image cannot be read.
#[must_use]
pub fn mutate(image: &[u8], changes: usize, may_add: bool, random: &mut Random) -> Vec<u8> {
    let btf = Btf::parse(image, None).expect("the image is right");
    let mut records: Vec<Vec<u32>> = btf.records().map(|(_, record)| record.to_vec()).collect();
    for _ in 0..changes.min(records.len() * 4) {
        let (place, other) = (random.below(records.len()), random.below(records.len()));
        let donor = records[other].clone();
        let record = &mut records[place];
        match random.below(5) {
            0 => record[0] = donor[0],
            1 if has_size(record) => record[2] = [0, 1, 4, 8, 24][random.below(5)],
            2 if !matches!(kind_of(record), Kind::Func | Kind::Typedef) => record[1] ^= 1 << 31,
            3 => become_plain(record, random),
            _ if may_add => {
                let copy = record.clone();
                records.push(copy);
            }
            _ => {}
        }
    }
    image_of(&records.concat(), btf.strings(), btf.is_big_endian())
}

fn has_size(record: &[u32]) -> bool {
    use Kind::{Enum, Enum64, Float, Int, Struct, Union};
    matches!(kind_of(record), Int | Float | Enum | Enum64 | Struct | Union)
}

/// Makes a record of three words one of another kind without references.
fn become_plain(record: &mut [u32], random: &mut Random) {
    use Kind::{Enum, Enum64, Float, Fwd, Struct, Union};
    let is_plain = matches!(kind_of(record), Enum | Enum64 | Float | Fwd | Struct | Union);
    if is_plain && record.len() == 3 {
        let kind = [Enum, Enum64, Float, Fwd, Struct, Union][random.below(6)];
        record[1] = Info::new(kind, 0, random.percent(30)).0;
    }
}

/// An image of these records and strings.
#[must_use]
pub fn image_of(words: &[u32], strings: &[u8], is_big_endian: bool) -> Vec<u8> {
    let size = words.len() as u32 * 4;
    let fields = [24, 0, size, size, strings.len() as u32];
    let order = if is_big_endian { u32::to_be_bytes } else { u32::to_le_bytes };
    let start = if is_big_endian { [0xeb, 0x9f, 1, 0] } else { [0x9f, 0xeb, 1, 0] };
    let mut bytes = start.to_vec();
    bytes.extend(fields.iter().chain(words).flat_map(|&word| order(word)));
    bytes.extend(strings);
    bytes
}
