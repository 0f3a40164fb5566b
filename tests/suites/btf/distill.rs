//! Distilling: the specification's example, and what cannot be distilled.

use btfcache::btf::kind::{Info, Kind};
use btfcache::btf::read::Btf;
use btfcache::distill::{DistillError, Distilled, distill};

use super::image::{Image, SIGNED_32};

/// Distills what `split` has on top of `base`.
fn distilled(base: &Image, split: &Image) -> Result<Distilled, DistillError> {
    let (base, split) = (base.bytes(), split.bytes());
    let base = Btf::parse(&base, None).unwrap();
    distill(&Btf::parse(&split, Some(&base)).unwrap())
}

/// A split image on this base.
fn on(base: &Image) -> Image {
    Image::split(base.next_id - 1, base.strings.len() as u32)
}

#[test]
fn the_example_of_the_specification() {
    let mut base = Image::new();
    base.composite(Kind::Struct, "named", false, 16, &[("first", 1, 0), ("second", 1, 64)]);
    base.composite(Kind::Struct, "", false, 4, &[("only", 1, 0)]);
    let one = base.name("ONE");
    base.flagged("E64", Kind::Enum64, 1, true, 8, &[one, 1, 0]);
    base.flagged("fw", Kind::Fwd, 0, true, 0, &[]);
    base.add("", Kind::Ptr, 0, 2, &[]);
    base.add("T", Kind::Typedef, 0, 6, &[]);
    base.add("", Kind::Array, 0, 0, &[7, 1, 3]);
    let mut split = on(&base);
    let members = [("a", 8, 0), ("b", 3, 192), ("c", 4, 256), ("d", 1, 320)];
    split.composite(Kind::Struct, "mod", false, 48, &members);
    split.add("", Kind::Ptr, 0, 5, &[]);
    split.add("pft", Kind::Typedef, 0, 10, &[]);

    let mut new_base = Image::new();
    new_base.composite(Kind::Struct, "named", false, 16, &[]);
    new_base.add("E64", Kind::Enum, 0, 8, &[]);
    new_base.flagged("fw", Kind::Fwd, 0, true, 0, &[]);
    let mut new_split = on(&new_base);
    // The name of a type comes before those of its members.
    let [own, a, b, c, d] = ["mod", "a", "b", "c", "d"].map(|name| new_split.name(name));
    let members = [a, 11, 0, b, 8, 192, c, 3, 256, d, 1, 320];
    new_split.raw(&[own, Info::new(Kind::Struct, 4, false).0, 48], &members);
    new_split.add("", Kind::Ptr, 0, 4, &[]);
    new_split.add("pft", Kind::Typedef, 0, 6, &[]);
    new_split.composite(Kind::Struct, "", false, 4, &[("only", 1, 0)]);
    new_split.add("", Kind::Ptr, 0, 2, &[]);
    new_split.add("T", Kind::Typedef, 0, 9, &[]);
    new_split.add("", Kind::Array, 0, 0, &[10, 1, 3]);

    for is_big_endian in [false, true] {
        let in_order = |image: &Image| Image { is_big_endian, ..image.clone() };
        let result = distilled(&in_order(&base), &in_order(&split)).unwrap();
        assert_eq!(result.base, in_order(&new_base).bytes());
        assert_eq!(result.split, in_order(&new_split).bytes());
    }
}

#[test]
fn what_cannot_be_distilled_is_named() {
    let bytes = Image::new().bytes();
    let alone = Btf::parse(&bytes, None).unwrap();
    assert_eq!(distill(&alone), Err(DistillError::NotSplit));

    let mut base = Image::new();
    let prototype = base.prototype(0, &[]);
    let function = base.add("f", Kind::Func, 0, prototype, &[]);
    let odd = base.add("odd", Kind::Enum, 0, 3, &[]);
    let mut split = on(&base);
    let tag = split.add("bpf_kfunc", Kind::DeclTag, 0, function, &[u32::MAX]);
    let kind = Kind::Func;
    let unexpected = DistillError::Unexpected { id: tag, target: function, kind };
    assert_eq!(distilled(&base, &split), Err(unexpected));
    assert!(unexpected.to_string().contains("type 5 refers to type 3 of the base, a Func"));

    let mut split = on(&base);
    split.add("", Kind::Ptr, 0, odd, &[]);
    assert_eq!(distilled(&base, &split), Err(DistillError::EnumSize { id: odd, size: 3 }));

    let mut split = on(&base);
    split.add("", Kind::Ptr, 0, 0, &[]);
    assert_eq!(distilled(&base, &split), Err(DistillError::EmptyBase));

    let layout = (0..=20).flat_map(|_| [0, 0, 0, 0]).collect();
    let mut split = Image { layout: Some(layout), ..on(&base) };
    let id = split.raw(&[0, 20 << 24, 0], &[]);
    assert_eq!(distilled(&base, &split), Err(DistillError::UnknownKind { id, kind: 20 }));
}

#[test]
fn a_long_chain_does_not_overflow_the_stack() {
    let mut base = Image::empty();
    let count = 300_000;
    let pointer = Info::new(Kind::Ptr, 0, false).0;
    for id in 1..count {
        base.raw(&[0, pointer, id + 1], &[]);
    }
    base.add("int", Kind::Int, 0, 4, &[SIGNED_32]);
    let mut split = on(&base);
    split.add("", Kind::Const, 0, 1, &[]);
    let result = distilled(&base, &split).unwrap();
    assert_eq!(Btf::parse(&result.base, None).unwrap().type_count(), 1);
}
