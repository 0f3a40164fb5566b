//! The kernel's rules on the load test vectors of spec/btf-and-dedup appendix A, each of which was
//! put before a real kernel, and on the BTF of real kernels.

use btfcache::btf::kind::{Info, Kind};
use btfcache::btf::read::{Btf, Fault};
use btfcache::btf::verify::{first_unsorted, verify};

use super::image::{Image, SIGNED_32};
use crate::harness::skip;

/// Name of a vector, what it adds to an image that has `int` as type 1, and how the kernel's last
/// words begin; none if it takes the image.
type Vector = (&'static str, fn(&mut Image), &'static str);

const NONE: &[u32] = &[];

/// Adds a modifier or pointer.
fn link(image: &mut Image, kind: Kind, target: u32) -> u32 {
    image.add("", kind, 0, target, NONE)
}

/// Adds a chain of so many links over `int`, each of which comes before the next.
fn forward_chain(image: &mut Image, kind: Kind, links: u32) {
    for _ in 1..links {
        link(image, kind, image.next_id + 1);
    }
    link(image, kind, 1);
}

fn chain(image: &mut Image, kind: Kind, links: u32) {
    (0..links).fold(1, |target, _| link(image, kind, target));
}

fn structure(image: &mut Image, size: u32, members: &[(&str, u32, u32)]) -> u32 {
    image.composite(Kind::Struct, "s", false, size, members)
}

fn bitfields(image: &mut Image, size: u32, members: &[(&str, u32, u32)]) -> u32 {
    image.composite(Kind::Struct, "s", true, size, members)
}

fn int(image: &mut Image, size: u32, word: u32) -> u32 {
    image.add("i", Kind::Int, 0, size, &[word])
}

fn enumeration(image: &mut Image, size: u32) -> u32 {
    let value = image.name("A");
    image.add("e", Kind::Enum, 1, size, &[value, 0])
}

fn function(image: &mut Image, name: &str, linkage: u32, parameters: &[(&str, u32)]) -> u32 {
    let prototype = image.prototype(0, parameters);
    image.add(name, Kind::Func, linkage, prototype, NONE)
}

fn variable(image: &mut Image, name: &str, target: u32) -> u32 {
    image.add(name, Kind::Var, 0, target, &[0])
}

/// Adds a section with these entries: variable, offset, size.
fn section(image: &mut Image, name: &str, size: u32, entries: &[[u32; 3]]) {
    image.add(name, Kind::Datasec, entries.len() as u32, size, entries.as_flattened());
}

fn decl_tag(image: &mut Image, target: u32, component: u32) {
    image.add("tag", Kind::DeclTag, 0, target, &[component]);
}

/// Adds a tagged struct with one member.
fn tagged(image: &mut Image, component: u32) {
    let target = structure(image, 4, &[("a", 1, 0)]);
    decl_tag(image, target, component);
}

fn named(image: &mut Image, name: &str) {
    image.composite(Kind::Struct, name, false, 4, &[("a", 1, 0)]);
}

const IMAGES: &[Vector] = &[
    ("H00", |_| {}, ""),
    ("H05", |i| i.header_tail = vec![0; 16], ""),
    ("H06", |i| i.header_tail = [[0; 12].as_slice(), &[1; 4]].concat(), "Unsupported btf_header"),
    ("H12", |i| *i = Image::empty(), "No type found"),
    ("S01", |i| i.strings.push(b'a'), "Invalid string section"),
    ("S02", |i| i.strings[0] = b'a', "Invalid string section"),
    ("S03", |i| _ = i.raw(&[99, Info::new(Kind::Fwd, 0, false).0, 0], NONE), "Invalid name_offset"),
    ("S04", |i| i.strings.clear(), "Invalid string section"),
    ("K00", |i| _ = i.raw(&[0, 0, 0], NONE), "Invalid kind"),
    ("K01", |i| _ = i.raw(&[0, 20 << 24, 0], NONE), "Invalid kind"),
    ("K02", |i| _ = i.raw(&[0, 31 << 24, 0], NONE), "Invalid kind"),
    ("K03", |i| _ = i.raw(&[1, 1 << 24 | 1 << 16, 4, SIGNED_32], NONE), "vlen != 0"),
    ("K04", |i| _ = i.raw(&[1, 1 << 24 | 1 << 29, 4, SIGNED_32], NONE), "Invalid kind"),
];

const INTS: &[Vector] = &[
    ("I01", |i| _ = i.add("i", Kind::Int, 1, 4, &[SIGNED_32]), "vlen != 0"),
    ("I02", |i| _ = i.flagged("i", Kind::Int, 0, true, 4, &[32]), "Invalid btf_info kind_flag"),
    ("I03", |i| _ = int(i, 17, 129), "nr_bits exceeds 128"),
    ("I04", |i| _ = int(i, 3, 32), "nr_bits exceeds type_size"),
    ("I05", |i| _ = int(i, 4, 3 << 24 | 32), "Unsupported encoding"),
    ("I06", |i| _ = int(i, 4, 8 << 24 | 32), "Unsupported encoding"),
    ("I07", |i| _ = int(i, 4, 1 << 28 | 32), "Invalid int_data"),
    ("I08", |i| _ = i.add("", Kind::Int, 0, 4, &[32]), ""),
    ("I09", |i| _ = i.add("long unsigned int", Kind::Int, 0, 8, &[64]), ""),
    ("I10", |i| _ = i.add("i", Kind::Int, 0, 4, NONE), "meta_left"),
    ("I11", |i| _ = int(i, 3, 24), ""),
    ("Z05", |i| _ = int(i, 4, 0), ""),
    ("L01", |i| _ = i.add("f", Kind::Float, 0, 5, NONE), "Invalid type_size"),
    ("L02", |i| _ = i.add("f", Kind::Float, 0, 12, NONE), ""),
    ("L03", |i| _ = i.add("", Kind::Float, 0, 4, NONE), ""),
];

const LINKS: &[Vector] = &[
    ("R01", |i| _ = i.add("p", Kind::Ptr, 0, 1, NONE), "Invalid name"),
    ("R02", |i| _ = i.flagged("", Kind::Ptr, 0, true, 1, NONE), "Invalid btf_info kind_flag"),
    ("R03", |i| _ = link(i, Kind::Ptr, 0), ""),
    ("R04", |i| _ = link(i, Kind::Ptr, 9), "Invalid type_id"),
    ("R05", |i| _ = link(i, Kind::Ptr, 0x10_0000), "Invalid type_id"),
    ("R06", |i| _ = i.add("", Kind::Typedef, 0, 1, NONE), "Invalid name"),
    ("R07", |i| _ = i.add("a b", Kind::Typedef, 0, 1, NONE), "Invalid name"),
    ("R08", |i| _ = i.add("t", Kind::Typedef, 0, 0, NONE), ""),
    ("R09", |i| _ = i.add("c", Kind::Const, 0, 1, NONE), "Invalid name"),
    ("R10", |i| _ = (link(i, Kind::Const, 3), link(i, Kind::Const, 2)), "Loop detected"),
    ("R11", |i| _ = (link(i, Kind::Ptr, 3), link(i, Kind::Ptr, 2)), "Loop detected"),
    ("R12", |i| chain(i, Kind::Const, 32), ""),
    ("R13", |i| chain(i, Kind::Const, 33), ""),
    ("R13b", |i| forward_chain(i, Kind::Const, 34), "Exceeded max resolving depth:32"),
    ("R13c", |i| forward_chain(i, Kind::Const, 31), ""),
    ("R13d", |i| forward_chain(i, Kind::Const, 32), ""),
    ("R13e", |i| forward_chain(i, Kind::Ptr, 33), "Exceeded max resolving depth:32"),
    ("R14", |i| _ = (variable(i, "v", 1), link(i, Kind::Ptr, 2)), "Invalid type_id"),
    // The kernel takes R15 and Z02, but not Z01: an accident that no encoder may rely on (KR1).
    ("R15", |i| _ = (function(i, "f", 0, &[]), link(i, Kind::Ptr, 3)), "Invalid type_id"),
    (
        "Z01",
        |i| {
            link(i, Kind::Ptr, 3);
            i.add("f", Kind::Func, 0, 4, NONE);
            i.prototype(0, &[]);
        },
        "Invalid type_id",
    ),
    ("Z02", |i| _ = (function(i, "f", 0, &[]), link(i, Kind::Const, 3)), "Invalid type_id"),
    ("R16", |i| _ = (i.add("s", Kind::Fwd, 0, 0, NONE), link(i, Kind::Ptr, 2)), ""),
    ("R17", |i| _ = (i.prototype(0, &[]), link(i, Kind::Const, 2)), ""),
    ("R18", |i| _ = link(i, Kind::TypeTag, 1), "Invalid name"),
    ("R19", |i| _ = i.flagged("t", Kind::TypeTag, 0, true, 1, NONE), ""),
    ("R20", |i| _ = i.add("a b(c)", Kind::TypeTag, 0, 1, NONE), ""),
    ("R21", |i| _ = i.add("", Kind::Ptr, 1, 1, NONE), "vlen != 0"),
    ("F01", |i| _ = i.add("f", Kind::Fwd, 0, 1, NONE), "type != 0"),
    ("F02", |i| _ = i.add("", Kind::Fwd, 0, 0, NONE), "Invalid name"),
    ("F03", |i| _ = i.add("f", Kind::Fwd, 1, 0, NONE), "vlen != 0"),
];

/// Adds an array.
fn array(image: &mut Image, element: u32, index: u32, count: u32) -> u32 {
    image.add("", Kind::Array, 0, 0, &[element, index, count])
}

const ARRAYS: &[Vector] = &[
    ("A01", |i| _ = array(i, 1, 1, 3), ""),
    ("A02", |i| _ = i.add("a", Kind::Array, 0, 0, &[1, 1, 3]), "Invalid name"),
    ("A03", |i| _ = i.add("", Kind::Array, 0, 4, &[1, 1, 3]), "size != 0"),
    (
        "A04",
        |i| _ = i.flagged("", Kind::Array, 0, true, 0, &[1, 1, 3]),
        "Invalid btf_info kind_flag",
    ),
    ("A05", |i| _ = array(i, 0, 1, 3), "Invalid elem"),
    ("A06", |i| _ = array(i, 1, 0, 3), "Invalid index"),
    ("A07", |i| _ = (link(i, Kind::Ptr, 1), array(i, 1, 2, 3)), "Invalid index"),
    ("A08", |i| _ = array(i, 1, 1, 0x4000_0000), "Array size overflows U32_MAX"),
    ("A09", |i| _ = array(i, 1, 1, 0), ""),
    ("A10", |i| _ = (i.add("f", Kind::Fwd, 0, 0, NONE), array(i, 2, 1, 3)), "Invalid elem"),
    ("A11", |i| _ = array(i, 2, 1, 3), "Loop detected"),
    ("A12", |i| _ = (i.prototype(0, &[]), array(i, 2, 1, 3)), "Invalid elem"),
    ("A13", |i| _ = (i.add("t", Kind::Typedef, 0, 1, NONE), array(i, 1, 2, 3)), ""),
    ("Z06", |i| _ = (int(i, 3, 24), array(i, 2, 1, 3)), "Invalid array of int"),
];

const COMPOSITES: &[Vector] = &[
    ("C01", |i| _ = structure(i, 8, &[("a", 1, 0), ("b", 1, 32)]), ""),
    ("C02", |i| _ = structure(i, 6, &[("a", 1, 0), ("b", 1, 32)]), "Member exceeds struct_size"),
    ("C03", |i| _ = structure(i, 8, &[("a", 1, 32), ("b", 1, 0)]), "Invalid member bits_offset"),
    (
        "C04",
        |i| _ = i.composite(Kind::Union, "u", false, 8, &[("a", 1, 32)]),
        "Invalid member bits_offset",
    ),
    ("C05", |i| _ = structure(i, 8, &[("a", 0, 0)]), "Invalid type_id"),
    (
        "C06",
        |i| _ = (i.add("f", Kind::Fwd, 0, 0, NONE), structure(i, 8, &[("a", 2, 0)])),
        "Invalid member",
    ),
    ("C07", |i| _ = (i.prototype(0, &[]), structure(i, 8, &[("a", 2, 0)])), "Invalid member"),
    ("C08", |i| _ = structure(i, 8, &[("a", 2, 0)]), "Loop detected"),
    ("C09", |i| _ = (structure(i, 8, &[("a", 3, 0)]), link(i, Kind::Ptr, 2)), ""),
    (
        "C10",
        |i| _ = (structure(i, 8, &[("a", 3, 0)]), structure(i, 8, &[("a", 2, 0)])),
        "Loop detected",
    ),
    ("C11", |i| named(i, "a<b>"), "Invalid name"),
    ("C12", |i| named(i, ""), ""),
    ("C13", |i| named(i, "a.b"), ""),
    ("C14", |i| named(i, "1a"), "Invalid name"),
    ("C15", |i| named(i, &"a".repeat(512)), ""),
    ("C16", |i| named(i, &"a".repeat(511)), ""),
    ("Z08", |i| named(i, &"a".repeat(513)), "Invalid name"),
    ("C17", |i| _ = bitfields(i, 4, &[("a", 1, 3 << 24), ("b", 1, 5 << 24 | 3)]), ""),
    ("C18", |i| _ = bitfields(i, 8, &[("a", 1, 33 << 24)]), "Invalid member bitfield_size"),
    ("C19", |i| _ = bitfields(i, 8, &[("a", 1, 3)]), "Invalid member offset"),
    ("C20", |i| _ = structure(i, 8, &[("a", 1, 3)]), ""),
    (
        "C21",
        |i| _ = (link(i, Kind::Ptr, 1), structure(i, 16, &[("a", 2, 3)])),
        "Member is not byte aligned",
    ),
    (
        "C22",
        |i| _ = (link(i, Kind::Ptr, 1), bitfields(i, 16, &[("a", 2, 3 << 24)])),
        "Invalid member bitfield_size",
    ),
    (
        "C23",
        |i| _ = (enumeration(i, 8), bitfields(i, 8, &[("a", 2, 33 << 24)])),
        "Invalid member bitfield_size",
    ),
    (
        "C24",
        |i| _ = (enumeration(i, 1), bitfields(i, 1, &[("a", 2, 0)])),
        "Member exceeds struct_size",
    ),
    ("C25", |i| _ = (enumeration(i, 1), structure(i, 1, &[("a", 2, 0)])), ""),
    (
        "C26",
        |i| _ = (i.add("f", Kind::Float, 0, 4, NONE), structure(i, 8, &[("a", 2, 8)])),
        "Member is not properly aligned",
    ),
    ("C27", |i| _ = structure(i, 5, &[("a", 1, 8)]), ""),
    ("C28", |i| _ = (array(i, 1, 1, 0), structure(i, 4, &[("a", 1, 0), ("b", 2, 32)])), ""),
    ("C29", |i| _ = structure(i, 8, &[("a", 1, 0), ("a", 1, 32)]), ""),
    ("C30", |i| _ = (variable(i, "v", 1), structure(i, 8, &[("a", 2, 0)])), "Invalid member"),
    (
        "C31",
        |i| _ = (int(i, 16, 128), structure(i, 32, &[("a", 2, 1)])),
        "nr_copy_bits exceeds 128",
    ),
    ("C32", |i| _ = (link(i, Kind::Const, 0), structure(i, 8, &[("a", 2, 0)])), "Invalid member"),
    ("Z07", |i| _ = structure(i, 0, &[("a", 1, 0)]), "Member exceeds struct_size"),
    (
        "Z07b",
        |i| _ = i.composite(Kind::Union, "u", false, 2, &[("a", 1, 0)]),
        "Member exceeds struct_size",
    ),
    ("X01", |i| _ = (named(i, "s"), named(i, "s")), ""),
    ("X02", |i| _ = (int(i, 4, 32), int(i, 4, 32)), ""),
    ("X03", |i| _ = (structure(i, 4, &[("a", 3, 0)]), i.add("t", Kind::Typedef, 0, 1, NONE)), ""),
    ("X04", |i| _ = (named(i, "bpf_spin_lock"), structure(i, 4, &[("l", 2, 0)])), ""),
    (
        "X05",
        |i| _ = (named(i, "bpf_spin_lock"), structure(i, 8, &[("l", 2, 0), ("m", 2, 32)])),
        "more than one bpf_spin_lock",
    ),
    (
        "X06",
        |i| _ = (named(i, "bpf_list_head"), structure(i, 4, &[("l", 2, 0)])),
        "root without a `contains:` tag",
    ),
];

const ENUMS: &[Vector] = &[
    ("E01", |i| _ = enumeration(i, 3), "Unexpected size"),
    ("E02", |i| _ = enumeration(i, 16), "Unexpected size"),
    ("E03", |i| _ = i.add("e", Kind::Enum, 1, 4, &[0, 0]), "Invalid name"),
    ("E04", |i| _ = i.add("", Kind::Enum, 0, 4, NONE), ""),
    ("E05", |i| _ = enumeration(i, 0), "Unexpected size"),
    ("E06", |i| _ = i.add("e", Kind::Enum64, 0, 1, NONE), ""),
    ("Z04", |i| _ = i.flagged("e", Kind::Enum64, 0, true, 8, NONE), ""),
];

const FUNCTIONS: &[Vector] = &[
    ("P01", |i| _ = i.add("p", Kind::FuncProto, 0, 0, NONE), "Invalid name"),
    ("P02", |i| _ = i.flagged("", Kind::FuncProto, 0, true, 0, NONE), "Invalid btf_info kind_flag"),
    ("P03", |i| _ = i.prototype(0, &[("", 0)]), ""),
    ("P04", |i| _ = i.prototype(0, &[("a", 0)]), "Invalid arg#1"),
    ("P05", |i| _ = i.prototype(0, &[("", 0), ("a", 1)]), "Invalid arg#1"),
    (
        "P06",
        |i| _ = (i.add("f", Kind::Fwd, 0, 0, NONE), i.prototype(2, &[])),
        "Invalid return type",
    ),
    ("P07", |i| _ = (i.prototype(0, &[]), i.prototype(2, &[])), "Invalid return type"),
    (
        "P08",
        |i| _ = (i.add("t", Kind::Typedef, 0, 0, NONE), i.prototype(0, &[("a", 2)])),
        "Invalid arg#1",
    ),
    ("P09", |i| _ = i.prototype(0, &[("a b", 1)]), "Invalid arg#1"),
    ("P10", |i| _ = (link(i, Kind::Const, 0), i.prototype(2, &[])), "Invalid return type"),
    (
        "P11",
        |i| _ = (i.add("f", Kind::Fwd, 0, 0, NONE), i.prototype(0, &[("a", 2)])),
        "Invalid arg#1",
    ),
    ("N01", |i| _ = function(i, "", 0, &[]), "Invalid name"),
    ("N02", |i| _ = function(i, "f", 2, &[]), "Invalid func linkage"),
    ("N03", |i| _ = function(i, "f", 3, &[]), "Invalid func linkage"),
    ("N04", |i| _ = i.add("f", Kind::Func, 0, 1, NONE), "Invalid type_id"),
    ("N05", |i| _ = function(i, "f", 0, &[("", 1)]), "Invalid arg#1"),
    ("N06", |i| _ = i.prototype(0, &[("", 1)]), ""),
    ("N07", |i| _ = function(i, "f.isra.0", 0, &[]), ""),
    (
        "N08",
        |i| _ = (i.prototype(0, &[]), i.flagged("f", Kind::Func, 0, true, 2, NONE)),
        "Invalid btf_info kind_flag",
    ),
];

const VARIABLES: &[Vector] = &[
    ("V01", |i| _ = variable(i, "", 1), "Invalid name"),
    ("V02", |i| _ = variable(i, "v", 0), "Invalid type_id"),
    ("V03", |i| _ = i.add("v", Kind::Var, 0, 1, &[2]), "Linkage not supported"),
    ("V04", |i| _ = (i.add("f", Kind::Fwd, 0, 0, NONE), variable(i, "v", 2)), "Invalid type_id"),
    ("V05", |i| _ = (i.prototype(0, &[]), variable(i, "v", 2)), "Invalid type_id"),
    ("V06", |i| _ = variable(i, "v.1", 1), ""),
    ("V07", |i| _ = (variable(i, "v", 1), variable(i, "w", 2)), "Invalid type_id"),
    ("D01", |i| _ = (variable(i, "v", 1), section(i, ".data", 4, &[[2, 0, 4]])), ""),
    ("D02", |i| section(i, ".data", 0, &[]), "size == 0"),
    (
        "D03",
        |i| _ = (variable(i, "v", 1), section(i, ".data", 8, &[[2, 0, 4], [2, 2, 4]])),
        "Invalid offset",
    ),
    (
        "D04",
        |i| _ = (variable(i, "v", 1), section(i, ".data", 8, &[[2, 4, 4], [2, 0, 4]])),
        "Invalid offset",
    ),
    ("D05", |i| section(i, ".data", 4, &[[1, 0, 4]]), "Not a VAR kind member"),
    ("D06", |i| _ = (variable(i, "v", 1), section(i, ".data", 4, &[[2, 0, 2]])), "Invalid size"),
    (
        "D07",
        |i| _ = (variable(i, "v", 1), section(i, ".data", 4, &[[2, 2, 4]])),
        "Invalid offset+size",
    ),
    ("D08", |i| section(i, ".data", 4, &[]), ""),
    ("D09", |i| section(i, ".data a/b", 4, &[]), ""),
    ("D10", |i| section(i, "1data", 4, &[]), ""),
    ("D11", |i| _ = (variable(i, "v", 1), section(i, ".data", 4, &[[2, 0, 0]])), "Invalid size"),
    (
        "D12",
        |i| _ = i.flagged(".data", Kind::Datasec, 0, true, 4, NONE),
        "Invalid btf_info kind_flag",
    ),
    ("D13", |i| _ = (variable(i, "v", 1), section(i, ".data", 8, &[[2, 0, 4], [2, 4, 4]])), ""),
    ("Z03", |i| _ = (variable(i, "v", 1), section(i, ".data", 8, &[[2, 0, 8]])), ""),
];

const TAGS: &[Vector] = &[
    ("G01", |i| tagged(i, u32::MAX), ""),
    ("G02", |i| _ = i.add("", Kind::DeclTag, 0, 1, &[u32::MAX]), "Invalid value"),
    ("G03", |i| decl_tag(i, 1, u32::MAX), "Invalid type_id"),
    ("G04", |i| tagged(i, 1), "Invalid component_idx"),
    ("G05", |i| tagged(i, u32::MAX - 1), "Invalid component_idx"),
    (
        "G06",
        |i| _ = (i.add("t", Kind::Typedef, 0, 1, NONE), decl_tag(i, 2, 0)),
        "Invalid component_idx",
    ),
    ("G07", |i| _ = (function(i, "f", 0, &[("a", 1)]), decl_tag(i, 3, 0)), ""),
    (
        "G08",
        |i| {
            let target = structure(i, 4, &[("a", 1, 0)]);
            i.flagged("tag", Kind::DeclTag, 0, true, target, &[u32::MAX]);
        },
        "",
    ),
    ("G09", |i| _ = (link(i, Kind::Ptr, 1), decl_tag(i, 2, u32::MAX)), "Invalid type_id"),
];

/// The first thing that is wrong with the image, in the kernel's words.
fn first_message(image: &Image) -> String {
    let bytes = image.bytes();
    match Btf::parse(&bytes, None) {
        Ok(btf) => verify(&btf).first().map_or(String::new(), |found| found.message.to_string()),
        Err(error) => match error.fault {
            Fault::Strings => "Invalid string section",
            Fault::Name { .. } => "Invalid name_offset",
            Fault::Kind { .. } => "Invalid kind",
            Fault::Reference { .. } | Fault::Prototype { .. } => "Invalid type_id",
            Fault::RecordCut { .. } => "meta_left",
            other => panic!("no vector is about {other}"),
        }
        .to_owned(),
    }
}

#[test]
fn vectors_get_the_judgement_of_a_kernel() {
    let tables = [IMAGES, INTS, LINKS, ARRAYS, COMPOSITES, ENUMS, FUNCTIONS, VARIABLES, TAGS];
    let mut differences = Vec::new();
    for (name, build, expected) in tables.into_iter().flatten() {
        let mut image = Image::new();
        build(&mut image);
        let message = first_message(&image);
        if message != *expected {
            differences.push(format!("{name}: `{message}` instead of `{expected}`"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The judgement does not change when what a vector adds is split from its base.
#[test]
fn a_split_image_is_judged_as_the_continuation_of_its_base() {
    let tables = [LINKS, ARRAYS, COMPOSITES, ENUMS, FUNCTIONS, VARIABLES, TAGS];
    let base_bytes = Image::new().bytes();
    let base = Btf::parse(&base_bytes, None).unwrap();
    for (name, build, expected) in tables.into_iter().flatten() {
        let mut image = Image::split(1, base.end_string());
        build(&mut image);
        let bytes = image.bytes();
        if let Ok(btf) = Btf::parse(&bytes, Some(&base)) {
            let message = verify(&btf).first().map(|found| found.message.to_string());
            assert_eq!(message.unwrap_or_default(), *expected, "{name}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_base_is_not_said_again() {
    let mut image = Image::new();
    let bad = array(&mut image, 2, 1, 3);
    let base_bytes = image.bytes();
    let base = Btf::parse(&base_bytes, None).unwrap();
    assert_eq!(verify(&base).len(), 1);
    let mut image = Image::split(2, base.end_string());
    let first = structure(&mut image, 8, &[("a", bad, 0)]);
    link(&mut image, Kind::Ptr, first);
    let second = structure(&mut image, 0, &[("a", 1, 0)]);
    array(&mut image, second, 1, 4);
    let bytes = image.bytes();
    let btf = Btf::parse(&bytes, Some(&base)).unwrap();
    let findings: Vec<_> = verify(&btf).into_iter().map(|found| (found.id, found.rule)).collect();
    assert_eq!(findings, [(second, "KR5")]);
}

#[test]
fn a_chain_of_modifiers_is_long_even_if_it_was_resolved_from_its_middle() {
    let mut image = Image::new();
    let middle = image.next_id + 21;
    link(&mut image, Kind::Ptr, middle);
    forward_chain(&mut image, Kind::Const, 40);
    let bytes = image.bytes();
    let btf = Btf::parse(&bytes, None).unwrap();
    let findings: Vec<_> = verify(&btf).into_iter().map(|found| (found.id, found.rule)).collect();
    assert_eq!(findings[0], (3, "KO1"));
    assert_eq!(findings.len(), 40 - 32);
}

/// Deep and wide images take neither the stack nor the time of those who verify them.
#[test]
fn verification_is_linear() {
    let count = 300_000;
    let mut image = Image::new();
    forward_chain(&mut image, Kind::Ptr, count);
    let nested = image.next_id;
    for _ in 0..count {
        let next = image.next_id + 1;
        image.raw(&[0, Info::new(Kind::Struct, 2, false).0, 8], &[0, next, 0, 0, next, 0]);
    }
    image.add("", Kind::Ptr, 0, nested, NONE);
    let members: Vec<u32> = (0..60_000).flat_map(|_| [0, 2, 0]).collect();
    image.add("", Kind::Struct, 60_000, 8, &members);
    let bytes = image.bytes();
    let btf = Btf::parse(&bytes, None).unwrap();
    let findings = verify(&btf);
    assert!(findings.iter().any(|found| found.rule == "KR8"));
}

#[test]
fn names_out_of_order_are_found() {
    let mut image = Image::new();
    assert_eq!(first_unsorted(&Btf::parse(&image.bytes(), None).unwrap()), None);
    image.add("j", Kind::Fwd, 0, 0, NONE);
    assert_eq!(first_unsorted(&Btf::parse(&image.bytes(), None).unwrap()), None);
    image.add("", Kind::Ptr, 0, 1, NONE);
    assert_eq!(first_unsorted(&Btf::parse(&image.bytes(), None).unwrap()), Some(3));
}

/// All that kernels were built with obeys all rules. `BTFCACHE_TEST_BTF` names raw BTF files,
/// separated by colons.
#[test]
fn real_kernels_obey_all_rules() {
    let Ok(paths) = std::env::var("BTFCACHE_TEST_BTF") else {
        skip("real_kernels_obey_all_rules", "BTFCACHE_TEST_BTF names no BTF of a kernel");
        return;
    };
    for path in paths.split(':') {
        let bytes = std::fs::read(path).unwrap();
        let btf = Btf::parse(&bytes, None).unwrap();
        assert!(btf.type_count() > 1000);
        assert_eq!(btf.first_misfit(), None);
        let findings = verify(&btf);
        assert!(findings.is_empty(), "{path}: {} findings: {:?}", findings.len(), findings[0]);
    }
}
