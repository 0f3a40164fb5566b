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

/// Bends references beyond the last type back. A function without its prototype is none.
fn stay_within(record: &mut [u32], last: u32) {
    if kind_of(record) == Kind::Func && record[2] > last {
        record[1] = Info::new(Kind::Typedef, 0, false).0;
    }
    map_refs(record, |target| if target > last { target % last + 1 } else { target });
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
