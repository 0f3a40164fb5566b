//! `btfcache verify` and `btfcache relocate --check`: what they say, where, and how they end.

use std::fs;
use std::process::Command;

use btfcache::btf::kind::Kind;
use btfcache::embed::{embed, note};

use super::image::Image;
use crate::harness::{Test, skip};

/// A kernel with an `int`, a device, and what nobody uses.
fn kernel() -> Image {
    let mut image = Image::new();
    image.composite(Kind::Struct, "device", false, 16, &[("a", 1, 0), ("b", 1, 64)]);
    image.composite(Kind::Struct, "unused", false, 4, &[("a", 1, 0)]);
    image
}

/// A module of that kernel.
fn module() -> Image {
    let base = kernel();
    let mut split = Image::split(base.next_id - 1, base.strings.len() as u32);
    split.composite(Kind::Struct, "mine", false, 24, &[("device", 2, 0), ("count", 1, 128)]);
    split
}

/// The same, distilled: its base and its split part.
fn distilled() -> (Image, Image) {
    let mut base = Image::new();
    base.add("device", Kind::Struct, 0, 16, &[]);
    let mut split = Image::split(base.next_id - 1, base.strings.len() as u32);
    split.composite(Kind::Struct, "mine", false, 24, &[("device", 2, 0), ("count", 1, 128)]);
    (base, split)
}

/// Another kernel, in which the device grew.
fn other_kernel() -> Image {
    let mut image = Image::new();
    image.composite(Kind::Struct, "device", false, 24, &[("a", 1, 0), ("b", 1, 64)]);
    image.composite(Kind::Struct, "unused", false, 4, &[("a", 1, 0)]);
    image
}

/// A directory with `vmlinux`, `other`, `split`, and the pair `pair` and `pair.base`.
fn directory() -> Test {
    let (base, split) = distilled();
    Test::new()
        .file("vmlinux", &kernel().bytes())
        .file("other", &other_kernel().bytes())
        .file("split", &module().bytes())
        .file("pair", &split.bytes())
        .file("pair.base", &base.bytes())
}

#[test]
fn what_the_kernel_takes_is_good() {
    let ran = directory().args("verify vmlinux").succeeds().stdout("");
    let ran = ran.stderr("btfcache: `vmlinux` obeys the kernel's rules\n").again();
    let ran = ran.args("verify -q vmlinux").succeeds().stdout("").stderr("").again();
    let ran = ran.args("verify split --base vmlinux").succeeds().stdout("");
    let said = "btfcache: `split` obeys the kernel's rules, and belongs to `vmlinux`\n";
    let ran = ran.stderr(said).again().args("verify pair").succeeds();
    let ran = ran.stderr("btfcache: `pair` obeys the kernel's rules\n").again();
    let said = "btfcache: `pair` obeys the kernel's rules, and fits `vmlinux`\n";
    ran.args("verify pair --base=vmlinux").succeeds().stdout("").stderr(said);
}

#[test]
fn what_the_kernel_refuses_is_told_in_its_words() {
    let mut bad = kernel();
    bad.add("with space", Kind::Typedef, 0, 1, &[]);
    bad.add("", Kind::Array, 0, 0, &[0, 1, 2]);
    let ran = directory().file("bad", &bad.bytes()).args("verify bad").fails(2);
    let ran = ran.stdout(
        "typedef `with space` (type 4): Invalid name\n\
         nameless array (type 5): Invalid elem\n",
    );
    let said = "btfcache: `bad` has BTF that the kernel would refuse, see stdout\n";
    let ran = ran.stderr(said).again();

    let mut bad = module();
    bad.add("with space", Kind::Typedef, 0, 1, &[]);
    let ran = ran.file("split", &bad.bytes()).args("verify split --base vmlinux").fails(2);
    let ran = ran.stdout("typedef `with space` (type 5): Invalid name\n").again();

    let (mut base, _) = distilled();
    base.add("e", Kind::Enum64, 0, 8, &[]);
    let mut split = Image::split(base.next_id - 1, base.strings.len() as u32);
    split.add("with space", Kind::Typedef, 0, 1, &[]);
    let files = ran.file("pair", &split.bytes()).file("pair.base", &base.bytes());
    files.args("verify pair").fails(2).stdout(
        "typedef `with space` (type 4): Invalid name\n\
         enum `e` (type 3) is of a kind that a distilled base cannot have\n",
    );
}

#[test]
fn a_wrong_base_is_an_error_that_names_both() {
    let big = Image { is_big_endian: true, ..kernel() };
    let mut test = directory()
        .file("big", &big.bytes())
        .file("small", &Image::new().bytes())
        .file("garbage", b"garbage");
    for (base, reason) in [
        ("big", "it is in another byte order than its base"),
        ("small", "outside of the strings"),
        ("split", "it is split BTF, which itself needs a base"),
        ("garbage", "it is neither an ELF file nor BTF"),
        ("missing", "No such file or directory"),
    ] {
        let ran = test.args(&format!("verify split --base {base}")).fails(2).stdout("");
        test = ran.stderr_has("`split`").stderr_has(base).stderr_has(reason).again();
    }
    let said = "`vmlinux` has BTF that stands alone, so it is not split on `other`";
    let ran = test.args("verify vmlinux --base other").fails(2).stderr_has(said);
    let ran = ran.again().args("verify split").fails(2).stderr_has("name the base");
    let said = "`pair` and `big` are in different byte orders";
    ran.again().args("relocate --check pair --base big").fails(2).stderr_has(said);
}

#[test]
fn relocation_is_checked_without_being_done() {
    let (_, split) = distilled();
    let ran = directory().args("relocate --check pair --base vmlinux").succeeds().stdout("");
    let said = "btfcache: `pair` fits `vmlinux`, which has all 2 types that it wants\n";
    let ran = ran.stderr(said).again().args("relocate --check pair --base other").fails(2);
    let told = "struct `device` (type 2) has 24 bytes in the base (type 2), not 16, and a type of \
                the module has a member of it\n";
    let said = "btfcache: `pair` does not fit `other`: build it again for that kernel\n";
    let ran = ran.stdout(told).stderr(said).content("pair", &split.bytes());
    let ran = ran.again().args("verify pair --base other").fails(2).stdout(told);
    let said = "`split` has no distilled base";
    let ran = ran.again().args("relocate --check split --base vmlinux").fails(2).stderr_has(said);
    ran.again().args("relocate pair").fails(2).stderr_has("--check");
}

#[test]
fn the_digest_of_a_module_tells_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("m.c"), folder.path().join("m.ko"));
    fs::write(&source, b"int x;\n").unwrap();
    let gcc = Command::new("gcc").arg("-c").arg(&source).arg("-o").arg(&object).status();
    if !gcc.is_ok_and(|status| status.success()) {
        return skip("the_digest_of_a_module_tells_its_base", "gcc is not installed");
    }
    let (digest, image) = (note::base_digest(&kernel().bytes()), module().bytes());
    let note_bytes = note::to_bytes(&digest, false);
    embed(&object, &[(".BTF", &image), (note::SECTION, &note_bytes)]).unwrap();
    let mut renamed = kernel();
    let last = renamed.strings.len() - 2;
    renamed.strings[last] = b'x';
    let other = note::base_digest(&renamed.bytes());

    let test = directory().file("m.ko", &fs::read(&object).unwrap());
    let said = "btfcache: `m.ko` obeys the kernel's rules, and belongs to `vmlinux`\n";
    let ran = test.args("verify m.ko --base vmlinux").succeeds().stderr(said).again();
    let said = format!(
        "btfcache: `m.ko` does not belong to `renamed`: it was split on a base with the digest \
         {digest}, this one has {other}\n"
    );
    let ran = ran.file("renamed", &renamed.bytes());
    let ran = ran.args("verify m.ko --base renamed").fails(2).stderr(&said).again();

    embed(&object, &[(".BTF", &image), (note::SECTION, &note_bytes[..50])]).unwrap();
    let ran = ran.file("m.ko", &fs::read(&object).unwrap());
    let said = "section `.note.btfcache` is damaged";
    ran.args("verify m.ko --base vmlinux").fails(2).stderr_has(said);
}
