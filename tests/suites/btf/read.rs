//! What the reader takes and what it refuses.

use btfcache::btf::kind::{Info, Kind};
use btfcache::btf::read::{Btf, Fault, Section};
use btfcache::btf::verify::verify;

use super::image::{Image, SIGNED_32};

/// The fault of an image that stands alone.
fn fault_of(bytes: &[u8]) -> Fault {
    Btf::parse(bytes, None).expect_err("the image is bad").fault
}

/// A small image of many kinds.
fn sample() -> Image {
    let mut image = Image::new();
    let structure = image.composite(Kind::Struct, "s", false, 8, &[("a", 1, 0), ("b", 3, 32)]);
    image.add("", Kind::Ptr, 0, structure, &[]);
    image.add("", Kind::Array, 0, 0, &[structure, 1, 7]);
    let (one, two) = (image.name("ONE"), image.name("TWO"));
    image.add("e", Kind::Enum, 2, 4, &[one, 1, two, 2]);
    image.add("e64", Kind::Enum64, 1, 8, &[one, 1, 2]);
    let prototype = image.prototype(0, &[("x", 1), ("", 0)]);
    image.add("f", Kind::Func, 0, prototype, &[]);
    image.add("v", Kind::Var, 0, 1, &[0]);
    image.add(".data", Kind::Datasec, 1, 4, &[9, 0, 4]);
    image.add("tag", Kind::DeclTag, 0, structure, &[1]);
    image
}

#[test]
fn records_come_back_in_either_byte_order() {
    let little = sample();
    let big = Image { is_big_endian: true, ..little.clone() };
    for image in [little, big] {
        let bytes = image.bytes();
        let btf = Btf::parse(&bytes, None).unwrap();
        assert_eq!(btf.type_count(), 11);
        assert_eq!(btf.is_big_endian(), image.is_big_endian);
        let words: Vec<u32> = btf.records().flat_map(|(_, record)| record.to_vec()).collect();
        assert_eq!(words, image.words);
        assert_eq!(btf.record(1), [1, Info::new(Kind::Int, 0, false).0, 4, SIGNED_32]);
        assert_eq!(btf.name_of(1), b"int");
        assert_eq!(btf.name(btf.record(2)[6]), b"b");
        assert_eq!(btf.kind(3), Some(Kind::Ptr));
        assert!(btf.get(0).is_none() && btf.get(12).is_none());
    }
}

#[test]
fn a_split_image_continues_its_base() {
    let base_bytes = sample().bytes();
    let base = Btf::parse(&base_bytes, None).unwrap();
    let mut image = Image::split(11, base.end_string());
    image.add("", Kind::Ptr, 0, 1, &[]);
    image.composite(Kind::Struct, "own", false, 8, &[("p", 12, 0)]);
    let inherited = [1, Info::new(Kind::Typedef, 0, false).0, 13];
    image.raw(&inherited, &[]);
    let bytes = image.bytes();
    let btf = Btf::parse(&bytes, Some(&base)).unwrap();
    assert_eq!((btf.first_id(), btf.end_id(), btf.type_count()), (12, 15, 3));
    assert_eq!(btf.name_of(1), b"int");
    assert_eq!(btf.name_of(13), b"own");
    assert_eq!(btf.name_of(14), b"int");
    assert_eq!(btf.kind(2), Some(Kind::Struct));
    assert_eq!(btf.first_misfit(), None);

    let mut within = image.clone();
    let name_within_int = 2;
    within.raw(&[name_within_int, inherited[1], 1], &[]);
    let bytes = within.bytes();
    assert_eq!(Btf::parse(&bytes, Some(&base)).unwrap().first_misfit(), Some(15));

    let big = Image { is_big_endian: true, ..image.clone() }.bytes();
    assert_eq!(Btf::parse(&big, Some(&base)).unwrap_err().fault, Fault::ByteOrder);
    assert!(Btf::parse(&bytes, None).is_err());

    let nothing = Image::split(11, base.end_string()).bytes();
    let nothing = Btf::parse(&nothing, Some(&base)).unwrap();
    assert_eq!((nothing.type_count(), nothing.strings()), (0, &b""[..]));
}

#[test]
fn headers_may_be_longer_than_known() {
    for (tail, is_unknown) in [(vec![0; 8], false), (vec![0; 3], false), (vec![0, 0, 0, 9], true)] {
        let image = Image { header_tail: tail, ..sample() };
        let btf = Btf::parse(&image.bytes(), None).unwrap();
        assert_eq!(btf.header().has_unknown_fields, is_unknown);
        assert_eq!(btf.type_count(), 11);
    }
}

#[test]
fn bad_headers_are_refused() {
    let good = sample().bytes();
    let changed = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        fault_of(&bytes)
    };
    assert!(matches!(changed(0, 0), Fault::Magic(_)));
    assert_eq!(changed(2, 2), Fault::Version(2));
    assert_eq!(changed(3, 1), Fault::Flags(1));
    assert_eq!(changed(4, 23), Fault::HeaderLength(23));
    assert!(matches!(changed(7, 0x7f), Fault::HeaderCut { .. }));
    assert_eq!(changed(8, 4), Fault::SectionOrder(Section::Strings));
    assert!(matches!(changed(15, 0xff), Fault::SectionBounds { section: Section::Types, .. }));
    assert!(matches!(changed(20, 255), Fault::SectionBounds { section: Section::Strings, .. }));
    for length in 0..24 {
        assert!(matches!(fault_of(&good[..length]), Fault::HeaderCut { .. }));
    }
}

#[test]
fn sections_must_be_aligned_but_may_have_gaps() {
    let mut bytes = Image::empty().bytes();
    bytes.insert(24, 0);
    bytes[16] = 1;
    assert!(Btf::parse(&bytes, None).is_ok());
    bytes[8] = 1;
    assert_eq!(fault_of(&bytes), Fault::SectionAlignment(Section::Types));
}

#[test]
fn strings_must_begin_and_end_with_nul() {
    for strings in [&b""[..], b"a\0", b"\0a"] {
        let image = Image { strings: strings.to_vec(), ..Image::empty() };
        assert_eq!(fault_of(&image.bytes()), Fault::Strings);
    }
    let base_bytes = sample().bytes();
    let base = Btf::parse(&base_bytes, None).unwrap();
    let mut image = Image::split(11, base.end_string());
    image.strings = b"a".to_vec();
    assert_eq!(Btf::parse(&image.bytes(), Some(&base)).unwrap_err().fault, Fault::Strings);
}

#[test]
fn records_must_fill_the_section() {
    let mut image = sample();
    image.words.pop();
    assert!(matches!(fault_of(&image.bytes()), Fault::RecordCut { id: 11, wanted: 16, found: 12 }));
    image.words.truncate(1);
    assert!(matches!(fault_of(&image.bytes()), Fault::RecordCut { id: 1, .. }));
    let mut long = Image::new();
    long.add("s", Kind::Struct, 0xff_ffff, 8, &[]);
    let wanted = 12 + 12 * 0xff_ffff;
    assert_eq!(fault_of(&long.bytes()), Fault::RecordCut { id: 2, wanted, found: 12 });
    let mut bytes = Image::new().bytes();
    bytes.insert(24 + 16, 0);
    (bytes[12], bytes[16]) = (17, 17);
    let error = Btf::parse(&bytes, None).unwrap_err();
    assert_eq!(error.fault, Fault::RecordCut { id: 2, wanted: 12, found: 1 });
    assert_eq!(error.offset, 24 + 16);
}

#[test]
fn names_and_references_must_lead_somewhere() {
    let mut image = Image::new();
    let end = image.strings.len() as u32;
    image.raw(&[end, Info::new(Kind::Fwd, 0, false).0, 0], &[]);
    let error = Btf::parse(&image.bytes(), None).unwrap_err();
    assert_eq!(error.fault, Fault::Name { id: 2, name: end });
    assert_eq!(error.offset, 24 + 16);
    let mut image = Image::new();
    image.raw(&[0, Info::new(Kind::Struct, 1, false).0, 4], &[end, 1, 0]);
    assert_eq!(fault_of(&image.bytes()), Fault::Name { id: 2, name: end });
    for (kind, rest) in [
        (Kind::Ptr, &[][..]),
        (Kind::Array, &[1, 3, 1]),
        (Kind::Var, &[0]),
        (Kind::DeclTag, &[0]),
        (Kind::Struct, &[0, 3, 0]),
        (Kind::Datasec, &[3, 0, 4]),
    ] {
        let mut image = Image::new();
        let vlen = u32::from(kind.element_words() != 0);
        image.add("", kind, vlen, 3, rest);
        assert_eq!(fault_of(&image.bytes()), Fault::Reference { id: 2, target: 3 });
    }
}

#[test]
fn a_function_must_have_a_prototype() {
    for target in [0, 1, 2] {
        let mut image = Image::new();
        image.add("f", Kind::Func, 0, target, &[]);
        assert_eq!(fault_of(&image.bytes()), Fault::Prototype { id: 2, target });
    }
}

#[test]
fn unknown_kinds_need_a_layout() {
    let mut image = Image::new();
    image.raw(&[0, 20 << 24 | 2, 0], &[1, 2, 3, 4, 5]);
    image.add("", Kind::Ptr, 0, 1, &[]);
    assert_eq!(fault_of(&image.bytes()), Fault::Kind { id: 2, kind: 20 });
    let mut layout = vec![0; 21 * 4];
    layout[80..82].copy_from_slice(&[4, 8]);
    image.layout = Some(layout.clone());
    let bytes = image.bytes();
    let btf = Btf::parse(&bytes, None).unwrap();
    assert_eq!((btf.type_count(), btf.first_unknown()), (3, Some((2, 20))));
    assert_eq!((btf.record(2).len(), btf.kind(2), btf.kind(3)), (8, None, Some(Kind::Ptr)));

    let mut split = Image::split(3, btf.end_string());
    split.raw(&[0, 20 << 24, 0], &[1]);
    let split = split.bytes();
    assert_eq!(Btf::parse(&split, Some(&btf)).unwrap().first_unknown(), Some((2, 20)));

    layout[81] = 7;
    image.layout = Some(layout);
    assert_eq!(fault_of(&image.bytes()), Fault::Kind { id: 2, kind: 20 });
    let nothing = Image { layout: Some(vec![4; 80]), words: vec![0, 0, 0], ..Image::empty() };
    assert_eq!(fault_of(&nothing.bytes()), Fault::Kind { id: 1, kind: 0 });
}

#[test]
fn a_layout_does_not_change_the_kinds_that_are_known() {
    let image = Image { layout: Some(vec![40; 80]), ..sample() };
    let btf_bytes = image.bytes();
    let btf = Btf::parse(&btf_bytes, None).unwrap();
    assert!(btf.has_layout() && btf.first_unknown().is_none());
    assert_eq!(btf.type_count(), 11);
}

/// Every byte of a small image gets every value in turn, and the image is cut everywhere: whatever
/// is read must be sound, and nothing panics.
#[test]
fn damage_is_an_error_or_a_sound_image() {
    let good = Image { layout: Some(vec![4; 84]), ..sample() }.bytes();
    let mut bytes = good.clone();
    for place in 0..good.len() {
        for value in 0..=255 {
            bytes[place] = value;
            walk(&bytes);
        }
        bytes[place] = good[place];
        walk(&good[..place]);
    }
}

/// Looks at everything that an image leads to.
fn walk(bytes: &[u8]) {
    let Ok(btf) = Btf::parse(bytes, None) else {
        return;
    };
    for (id, record) in btf.records() {
        assert_eq!(btf.record(id), record);
        assert!(!btf.name(record[0]).contains(&0));
        if btf.kind(id).is_some() {
            btfcache::btf::kind::for_each_ref(record, |id| {
                assert!(id == 0 || btf.get(id).is_some());
            });
        }
    }
    let _ = verify(&btf);
    if let Ok(split) = Btf::parse(bytes, Some(&btf)) {
        assert_eq!(split.first_id(), btf.end_id());
        let _ = (verify(&split), split.first_misfit());
    }
}
