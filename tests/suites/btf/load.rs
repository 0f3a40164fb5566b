//! The BTF of files: what is found, and what is said when there is none, or the wrong one.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use btfcache::btf::kind::Kind;
use btfcache::btf::load::{self, LoadError, Problem};
use btfcache::embed::embed;
use tempfile::TempDir;

use super::image::Image;
use crate::harness::skip;

/// A folder with files of BTF.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// An object file with these sections; `None`, and a line on stderr, without gcc.
    fn object(&self, name: &str, sections: &[(&str, &[u8])]) -> Option<PathBuf> {
        let source = self.file(&format!("{name}.c"), b"int x;\n");
        let path = self.0.path().join(name);
        let compiled = Command::new("gcc").arg("-c").arg(source).arg("-o").arg(&path).status();
        if !compiled.is_ok_and(|status| status.success()) {
            skip(name, "gcc is not installed");
            return None;
        }
        if !sections.is_empty() {
            embed(&path, sections).unwrap();
        }
        Some(path)
    }
}

/// What an error says, all causes in one line.
fn text(error: &LoadError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A split image on `Image::new()` with a pointer and a name of its own.
fn split_image() -> Image {
    let mut split = Image::split(1, 5);
    let pointer = split.add("", Kind::Ptr, 0, 1, &[]);
    split.add("own", Kind::Typedef, 0, pointer, &[]);
    split
}

#[test]
fn images_of_raw_files_and_of_elf_files() {
    let (files, image) = (Files::new(), Image::new().bytes());
    let raw = load::images(&files.file("raw", &image)).unwrap();
    assert_eq!((raw.btf, raw.distilled_base), (image.clone(), None));
    let big = Image { is_big_endian: true, ..Image::new() }.bytes();
    let path = files.file("big", &big);
    assert_eq!(load::images(&path).unwrap().btf, big);
    assert!(load::base(&path).unwrap().is_big_endian());

    let Some(object) = files.object("alone.o", &[(".BTF", &image)]) else {
        return;
    };
    assert_eq!(load::images(&object).unwrap().btf, image);
    assert_eq!(load::base(&object).unwrap().name_of(1), b"int");
    let split = split_image().bytes();
    let object = files.object("module.o", &[(".BTF", &split), (".BTF.base", &image)]).unwrap();
    let images = load::images(&object).unwrap();
    assert_eq!((images.btf, images.distilled_base), (split, Some(image)));
    assert!(matches!(load::base(&object).unwrap_err().problem, Problem::Split));
}

#[test]
fn the_running_kernel_is_a_base() {
    let path = Path::new("/sys/kernel/btf/vmlinux");
    if !path.exists() {
        return skip("the_running_kernel_is_a_base", "this kernel has no BTF");
    }
    assert!(load::base(path).unwrap().type_count() > 10_000);
}

#[test]
fn files_without_btf_are_named_with_the_reason() {
    let files = Files::new();
    let sparse = files.file("sparse", &Image::new().bytes());
    fs::File::options().write(true).open(&sparse).unwrap().set_len(1 << 40).unwrap();
    let cases = [
        (files.0.path().join("missing"), "No such file or directory"),
        (files.0.path().to_owned(), "it is not a regular file"),
        (PathBuf::from("/dev/zero"), "it is not a regular file"),
        (files.file("empty", b""), "it is neither an ELF file nor BTF"),
        (files.file("text", b"text"), "it is neither an ELF file nor BTF"),
        (files.file("cut.o", b"\x7fELF"), "not an ELF file"),
        (files.file("magic", b"\x9f\xeb"), "the header needs 8 bytes, there are 2"),
        (files.file("split", &split_image().bytes()), "it is split BTF"),
        (sparse, "bytes of BTF are more than"),
    ];
    for (path, reason) in cases {
        let error = text(&load::base(&path).unwrap_err());
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(error.contains(reason), "{error} lacks {reason}");
    }
    if let Some(object) = files.object("plain.o", &[]) {
        let error = text(&load::base(&object).unwrap_err());
        assert!(error.ends_with("plain.o`: it has no section `.BTF`"), "{error}");
        embed(&object, &[(".BTF", b"")]).unwrap();
        assert!(matches!(load::images(&object).unwrap_err().problem, Problem::NoBtf));
    }
}

#[test]
fn a_compressed_section_is_refused() {
    let files = Files::new();
    let image = [Image::new().bytes(), vec![0; 4096]].concat();
    let Some(object) = files.object("a.o", &[(".BTF", &image)]) else {
        return;
    };
    let compress = |flags: &str| {
        let mut objcopy = Command::new("objcopy");
        objcopy.arg(flags).arg(&object).status().is_ok_and(|status| status.success())
    };
    if compress("--compress-debug-sections") && compress("--rename-section=.BTF=.debug_btf") {
        assert!(compress("--compress-debug-sections=zlib"));
        assert!(compress("--rename-section=.debug_btf=.BTF"));
        let problem = load::images(&object).unwrap_err().problem;
        assert!(matches!(problem, Problem::Compressed(".BTF")), "{problem:?}");
    } else {
        skip("a_compressed_section_is_refused", "objcopy does not compress");
    }
}

#[test]
fn a_wrong_base_is_named_beside_the_file() {
    let (module, vmlinux) = (Path::new("m.ko"), Path::new("vmlinux"));
    let right = load::parse_alone(&Image::new().bytes()).unwrap();
    let split = |image: &[u8], base| load::split(module, image, vmlinux, base).map(|_| ());
    assert!(split(&split_image().bytes(), &right).is_ok());

    let empty = load::parse_alone(&Image::empty().bytes()).unwrap();
    let big = Image { is_big_endian: true, ..Image::new() };
    let big = load::parse_alone(&big.bytes()).unwrap();
    let mut longer = Image::empty();
    longer.add("long int", Kind::Int, 0, 8, &[1 << 24 | 64]);
    longer.add("char", Kind::Int, 0, 1, &[8]);
    let longer = load::parse_alone(&longer.bytes()).unwrap();
    for (base, reason) in
        [(&empty, "outside of the strings"), (&big, "another byte order"), (&longer, "half a name")]
    {
        let error = text(&split(&split_image().bytes(), base).unwrap_err());
        assert!(error.contains("m.ko") && error.contains("vmlinux"), "{error}");
        assert!(error.contains(reason), "{error} lacks {reason}");
    }
}
