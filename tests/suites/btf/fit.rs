//! Whether distilled BTF fits a base: each rule, in the words in which it is told.

use btfcache::btf::fit::misfits;
use btfcache::btf::kind::Kind;
use btfcache::btf::read::Btf;

use super::image::{Image, SIGNED_32};

/// Puts types into an image.
type Fill = fn(&mut Image);

/// What keeps a split part that has a `struct mine` with a member of type 1, by value, and a
/// pointer to type 1, from fitting.
fn told(distilled: Fill, base: Fill) -> Vec<String> {
    told_of(distilled, base, |split| {
        split.composite(Kind::Struct, "mine", false, 64, &[("member", 1, 0)]);
        split.add("", Kind::Ptr, 0, 1, &[]);
    })
}

fn told_of(distilled: Fill, base: Fill, split: Fill) -> Vec<String> {
    let filled = |mut image: Image, fill: Fill| {
        fill(&mut image);
        image
    };
    let distilled = filled(Image::empty(), distilled);
    let own = Image::split(distilled.next_id - 1, distilled.strings.len() as u32);
    let (split, base) = (filled(own, split).bytes(), filled(Image::empty(), base).bytes());
    let distilled = distilled.bytes();
    let distilled = Btf::parse(&distilled, None).unwrap();
    let split = Btf::parse(&split, Some(&distilled)).unwrap();
    let found = misfits(&split, &Btf::parse(&base, None).unwrap());
    found.iter().map(ToString::to_string).collect()
}

fn device(image: &mut Image) {
    image.add("device", Kind::Struct, 0, 16, &[]);
}

fn wide_device(image: &mut Image) {
    image.add("device", Kind::Struct, 0, 24, &[]);
}

fn pointer(split: &mut Image) {
    split.add("", Kind::Ptr, 0, 1, &[]);
}

#[test]
fn the_same_types_fit() {
    let all: Fill = |image| {
        device(image);
        image.add("either", Kind::Union, 0, 8, &[]);
        image.add("int", Kind::Int, 0, 4, &[SIGNED_32]);
        image.add("double", Kind::Float, 0, 8, &[]);
        image.add("e", Kind::Enum, 0, 4, &[]);
        image.add("declared", Kind::Fwd, 0, 0, &[]);
    };
    assert_eq!(told(all, all), [""; 0]);
    let moved: Fill = |image| {
        image.add("", Kind::Ptr, 0, 0, &[]);
        image.add("device", Kind::Int, 0, 4, &[SIGNED_32]);
        let one = image.name("ONE");
        image.add("e", Kind::Enum64, 1, 4, &[one, 1, 0]);
        image.add("declared", Kind::Struct, 0, 80, &[]);
        image.add("double", Kind::Float, 0, 8, &[]);
        image.add("int", Kind::Int, 0, 4, &[SIGNED_32]);
        image.add("either", Kind::Union, 0, 8, &[]);
        image.add("device", Kind::Struct, 0, 16, &[]);
    };
    assert_eq!(told(all, moved), [""; 0]);
}

#[test]
fn the_size_counts_where_it_matters() {
    let of_member = told(device, wide_device);
    let expected = "struct `device` (type 1) has 24 bytes in the base (type 1), not 16, and a type \
                    of the module has a member of it";
    assert_eq!(of_member, [expected]);
    assert_eq!(told_of(device, wide_device, pointer), [""; 0]);

    let through_links: Fill = |split| {
        split.add("", Kind::Const, 0, 1, &[]);
        split.add("t", Kind::Typedef, 0, 2, &[]);
        split.add("", Kind::Array, 0, 0, &[3, 3, 2]);
        split.composite(Kind::Struct, "mine", false, 64, &[("member", 4, 0)]);
    };
    assert_eq!(told_of(device, wide_device, through_links), [expected]);

    let twice: Fill = |image| {
        let name = image.name("device");
        image.raw(&[name, 4 << 24, 24], &[]);
        image.raw(&[name, 5 << 24, 32], &[]);
    };
    let expected = "struct `device` (type 1) has 24 bytes in the base (type 1), not 16, and the \
                    base has several of that name, so that only the size could tell";
    assert_eq!(told_of(device, twice, pointer), [expected]);

    let int: Fill = |image| _ = image.add("long", Kind::Int, 0, 8, &[1 << 24 | 64]);
    let short: Fill = |image| _ = image.add("long", Kind::Int, 0, 4, &[SIGNED_32]);
    let unsigned: Fill = |image| _ = image.add("long", Kind::Int, 0, 8, &[64]);
    let expected = "integer `long` (type 1) has 4 bytes in the base (type 1), not 8";
    assert_eq!(told(int, short), [expected]);
    let expected = "integer `long` (type 1) has another encoding in the base (type 1)";
    assert_eq!(told(int, unsigned), [expected]);
}

#[test]
fn what_is_missing_or_there_twice() {
    let expected = "struct `device` (type 1) is not in the base";
    assert_eq!(told(device, |image| _ = image.add("other", Kind::Struct, 0, 16, &[])), [expected]);
    let twice: Fill = |image| {
        device(image);
        image.add("device", Kind::Fwd, 0, 0, &[]);
    };
    let expected = "struct `device` (type 1) could be either of types 1 and 2 of the base, and \
                    nothing tells which";
    assert_eq!(told_of(device, twice, pointer), [expected]);
    let float: Fill = |image| _ = image.add("long", Kind::Float, 0, 8, &[]);
    let expected = "floating-point type `long` (type 1) is of another kind in the base (type 1, \
                    struct)";
    assert_eq!(told(float, |image| _ = image.add("long", Kind::Struct, 0, 8, &[])), [expected]);
}

/// Rule R5, all four combinations: the kernel looks at the flag of the wrong type.
#[test]
fn declarations_fit_by_a_defect_of_the_kernel() {
    let declared: [Fill; 2] = [
        |image| _ = image.flagged("d", Kind::Fwd, 0, false, 0, &[]),
        |image| _ = image.flagged("d", Kind::Fwd, 0, true, 0, &[]),
    ];
    let defined: [Fill; 4] = [
        |image| _ = image.flagged("d", Kind::Struct, 0, false, 8, &[]),
        |image| _ = image.flagged("d", Kind::Struct, 0, true, 8, &[]),
        |image| _ = image.flagged("d", Kind::Union, 0, false, 8, &[]),
        |image| _ = image.flagged("d", Kind::Union, 0, true, 8, &[]),
    ];
    for declared in declared {
        let fits = defined.map(|defined| told_of(declared, defined, pointer).is_empty());
        assert_eq!(fits, [true, false, false, true]);
    }
    let expected = "declared union `d` (type 1) is defined in the base (type 1), but the kernel \
                    takes only a union with bit fields for the declared one";
    assert_eq!(told_of(declared[1], defined[2], pointer), [expected]);
}

#[test]
fn what_no_base_can_help() {
    let nothing: Fill = |_| {};
    let void: Fill = |split| _ = split.add("", Kind::Ptr, 0, 0, &[]);
    let expected = "the distilled base has no types, on which the kernel miscounts";
    assert_eq!(told_of(nothing, device, void), [expected]);

    let bad: Fill = |image| {
        image.add("", Kind::Struct, 0, 16, &[]);
        image.add("e", Kind::Enum64, 0, 8, &[]);
        image.add("t", Kind::Typedef, 0, 1, &[]);
    };
    let expected = [
        "nameless struct (type 1) cannot be looked for in a base",
        "enum `e` (type 2) is of a kind that a distilled base cannot have",
        "typedef `t` (type 3) is of a kind that a distilled base cannot have",
    ];
    assert_eq!(told(bad, device), expected);

    let endless: Fill = |split| {
        split.add("", Kind::Const, 0, 3, &[]);
        split.add("", Kind::Volatile, 0, 2, &[]);
        split.composite(Kind::Struct, "mine", false, 64, &[("member", 2, 0)]);
    };
    let expected = "struct `mine` (type 4) has a member of a type that is made of itself";
    assert_eq!(told_of(device, device, endless), [expected]);

    let own: Fill = |image| {
        device(image);
        image.name("member");
    };
    let borrowed: Fill = |split| _ = split.raw(&[8, 8 << 24, 1], &[]);
    let expected = "typedef `member` (type 2) has a part named `member`, which is a string of the \
                    distilled base but the name of none of its types";
    assert_eq!(told_of(own, device, borrowed), [expected]);
}
