//! Debug sections that are compressed by zstd itself, whatever the installed binutils can do.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use object::elf::{ELFCOMPRESS_ZSTD, SHF_COMPRESSED};

use super::cache::Bench;
use crate::harness::skip;

/// Fields of an `Elf64_Shdr`, by offset and size.
const FLAGS: (usize, usize) = (8, 8);
const OFFSET: (usize, usize) = (24, 8);
const SIZE: (usize, usize) = (32, 8);
const ALIGNMENT: (usize, usize) = (48, 8);

fn number(bytes: &[u8], start: usize, (at, size): (usize, usize)) -> u64 {
    let mut word = [0; 8];
    word[..size].copy_from_slice(&bytes[start + at..][..size]);
    u64::from_le_bytes(word)
}

fn put(bytes: &mut [u8], start: usize, (at, size): (usize, usize), value: u64) {
    bytes[start + at..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// What `zstd` makes of `bytes`; `None` if there is no such tool.
fn zstd(bytes: &[u8], flags: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("zstd");
    command.args(["-q", "-c"]).args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let compressed = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        let mut compressed = Vec::new();
        output.read_to_end(&mut compressed).unwrap();
        compressed
    });
    assert!(child.wait().unwrap().success());
    Some(compressed)
}

/// Compresses all debug sections of the 64-bit little-endian ELF file; `pieces` frames for each, as
/// linkers with several threads do. Their bytes are put at the end of the file.
fn compress(elf: &mut Vec<u8>, flags: &[&str], pieces: usize) -> Option<usize> {
    let table = number(elf, 0, (40, 8)) as usize;
    let count = number(elf, 0, (60, 2)) as usize;
    let names = table + 64 * number(elf, 0, (62, 2)) as usize;
    let names = number(elf, names, OFFSET) as usize;
    let mut compressed = 0;
    for header in (0..count).map(|index| table + 64 * index) {
        let name = names + number(elf, header, (0, 4)) as usize;
        if !elf[name..].starts_with(b".debug_") {
            continue;
        }
        let (offset, size) = (number(elf, header, OFFSET), number(elf, header, SIZE));
        let content = elf[offset as usize..][..size as usize].to_vec();
        let mut section = vec![0; 24];
        put(&mut section, 0, (0, 4), ELFCOMPRESS_ZSTD.0.into());
        put(&mut section, 0, (8, 8), size);
        put(&mut section, 0, (16, 8), number(elf, header, ALIGNMENT));
        for piece in content.chunks(content.len().div_ceil(pieces).max(1)) {
            section.extend(zstd(piece, flags)?);
        }
        let flags = number(elf, header, FLAGS) | SHF_COMPRESSED.0;
        put(elf, header, FLAGS, flags);
        put(elf, header, SIZE, section.len() as u64);
        let end = elf.len() as u64;
        put(elf, header, OFFSET, end);
        elf.extend(section);
        compressed += 1;
    }
    Some(compressed)
}

/// The flags of binutils and lld, fast and strong ones, a frame that says neither its size nor its
/// checksum, and several frames, as mold makes them.
const WAYS: [(&[&str], usize); 5] = [
    (&["-3"], 1),
    (&["--fast=5"], 1),
    (&["-19", "--long=24"], 1),
    (&["-3", "--no-check", "--no-content-size"], 1),
    (&["-3"], 7),
];

fn check(bench: &Bench, file: &Path, test: &str, ways: &[(&[&str], usize)]) {
    let expected = bench.expected(file.to_str().unwrap());
    let plain = fs::read(file).unwrap();
    for (flags, pieces) in ways {
        let mut elf = plain.clone();
        let Some(count) = compress(&mut elf, flags, *pieces) else {
            return skip(test, "no zstd");
        };
        assert!(count > 3 && elf.len() > plain.len());
        fs::write(bench.path("compressed"), &elf).unwrap();
        assert!(bench.expected("compressed") == expected, "{flags:?} in {pieces}");
    }
}

#[test]
fn sections_compressed_by_zstd_are_read() {
    let test = "sections_compressed_by_zstd_are_read";
    let Some(bench) = Bench::new(test) else { return };
    check(&bench, &bench.path("program"), test, &WAYS);
    // A kernel too, if there is one: sections of 200 MB, more than one window.
    match std::env::var_os("BTFCACHE_TEST_VMLINUX") {
        Some(kernel) => check(&bench, Path::new(&kernel), test, &[WAYS[0], WAYS[4]]),
        None => skip(test, "of a kernel: set BTFCACHE_TEST_VMLINUX"),
    }
}
