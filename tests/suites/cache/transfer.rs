//! Results that go from one cache to another in a file.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use btfcache::btf::kind::Kind;
use btfcache_schema::ResultRecord;

use super::size::{cache, key};
use super::{Bench, text};
use crate::harness::{SmallDisk, skip};
use crate::suites::btf::image::Image;

/// A second cache, on another machine as it were: a path is never part of a key.
const OTHER: &str = "--cache-dir=other";

impl Bench {
    /// With one result in the cache, and that exported to `a.tar.zst`.
    fn exported(test: &str) -> Option<Self> {
        let bench = Self::new(test)?;
        bench.quiet("encode program -o out.btf");
        let said = bench.quiet("export a.tar.zst");
        assert!(said.starts_with("exported 1 results to `a.tar.zst`"), "{said}");
        Some(bench)
    }

    /// The bytes of `a.tar.zst`, decompressed.
    fn tar(&self) -> Vec<u8> {
        let bytes = fs::read(self.path("a.tar.zst")).unwrap();
        let (mut tar, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let mut decoder = StreamingDecoder::new(&mut rest).unwrap();
            decoder.read_to_end(&mut tar).unwrap();
        }
        tar
    }

    /// Makes `bytes` the archive `bad.tar.zst`, compressed.
    fn pack(&self, bytes: &[u8]) {
        let packed = compress_to_vec(bytes, CompressionLevel::Fastest);
        fs::write(self.path("bad.tar.zst"), packed).unwrap();
    }

    /// Imports `bad.tar.zst` into the other cache, which must fail; gives stderr.
    fn refused(&self) -> String {
        let line = format!("import bad.tar.zst {OTHER}");
        let (code, stdout, stderr) = text(&self.command(&line).output().unwrap());
        assert_eq!((code, &stdout[..]), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("failed to import `bad.tar.zst`"), "{stderr}");
        stderr
    }

    fn other_results(&self) -> usize {
        let json = self.quiet(&format!("stats --json {OTHER}"));
        let (_, rest) = json.split_once("\"entries\": ").expect(&json);
        rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
    }
}

/// About 60 kB of BTF that hardly shrink, other for each `number`.
fn sound_result(number: u64) -> ResultRecord {
    let mut image = Image::new();
    for place in 0..1000_u64 {
        let name = blake3::hash(&[number.to_le_bytes(), place.to_le_bytes()].concat());
        image.add(&format!("t{}", &name.to_hex()[..47]), Kind::Typedef, 0, 1, &[]);
    }
    ResultRecord { btf: image.bytes(), ..ResultRecord::default() }
}

/// Writes the header of a tar entry anew after `change`.
fn with_header(tar: &[u8], change: impl FnOnce(&mut tar::Header)) -> Vec<u8> {
    let mut tar = tar.to_vec();
    let mut header = tar::Header::from_byte_slice(&tar[..512]).clone();
    change(&mut header);
    header.set_cksum();
    tar[..512].copy_from_slice(header.as_bytes());
    tar
}

fn set_name(header: &mut tar::Header, name: &[u8]) {
    let field = &mut header.as_old_mut().name;
    field.fill(0);
    field[..name.len()].copy_from_slice(name);
}

#[test]
fn a_result_of_another_cache_is_a_hit() {
    let Some(bench) = Bench::exported("a_result_of_another_cache_is_a_hit") else { return };
    let expected = bench.expected("program");
    // Another machine has other inodes and times.
    fs::copy(bench.path("program"), bench.path("copy")).unwrap();
    assert_eq!(bench.quiet(&format!("import a.tar.zst {OTHER}")), "imported 1 results\n");
    bench.quiet(&format!("encode copy -o out.btf {OTHER}"));
    assert_eq!(fs::read(bench.path("out.btf")).unwrap(), expected);
    let stats = bench.quiet(&format!("stats {OTHER}"));
    assert!(stats.contains("hits        1 (100.0 %)"), "{stats}");
    assert_eq!(
        bench.quiet(&format!("import a.tar.zst {OTHER}")),
        "imported 0 results, 1 were there already\n"
    );
}

#[test]
fn a_module_upon_a_base_comes_along() {
    let Some(bench) = Bench::new("a_module_upon_a_base_comes_along") else { return };
    bench.compile("module", "struct own { struct node node; } own;");
    for line in [
        "encode program -o base.btf",
        "encode module --base base.btf -o out.btf",
        "encode module --base base.btf --features=+distilled_base -o distilled.btf",
    ] {
        bench.quiet(line);
    }
    bench.quiet("export a.tar.zst");
    assert_eq!(bench.quiet(&format!("import a.tar.zst {OTHER}")), "imported 3 results\n");
}

#[test]
fn archives_of_the_same_results_are_the_same() {
    let Some(bench) = Bench::exported("archives_of_the_same_results_are_the_same") else { return };
    bench.compile("second", "struct second { int a; } second;");
    bench.quiet("encode second -o out.btf");
    bench.quiet("export a.tar.zst");
    bench.quiet(&format!("import a.tar.zst {OTHER}"));
    symlink("b.tar.zst", bench.path("link")).unwrap();
    bench.quiet(&format!("export link {OTHER}"));
    let read = |name: &str| fs::read(bench.path(name)).unwrap();
    assert!(read("a.tar.zst") == read("b.tar.zst"));
    let tar = bench.tar();
    let mut archive = tar::Archive::new(&tar[..]);
    let names: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert_eq!((entry.header().mtime().unwrap(), entry.header().uid().unwrap()), (0, 0));
            entry.path().unwrap().display().to_string()
        })
        .collect();
    assert!(names.len() == 2 && names.is_sorted(), "{names:?}");
}

#[test]
fn only_what_the_last_runs_used_is_exported() {
    let Some(bench) = Bench::exported("only_what_the_last_runs_used_is_exported") else { return };
    bench.compile("second", "struct second { int a; } second;");
    bench.quiet("encode second -o out.btf");
    bench.quiet("export a.tar.zst");
    bench.quiet(&format!("import a.tar.zst {OTHER}"));
    let export = || bench.quiet(&format!("export --since-last-run b.tar.zst {OTHER}"));
    assert!(export().starts_with("exported 0 results"));
    bench.quiet(&format!("encode second -o out.btf {OTHER}"));
    assert!(export().starts_with("exported 1 results"));
    let all = bench.quiet(&format!("export b.tar.zst {OTHER}"));
    assert!(all.starts_with("exported 2 results"), "{all}");
}

#[test]
fn damaged_results_are_skipped() {
    let Some(bench) = Bench::exported("damaged_results_are_skipped") else { return };
    let tar = bench.tar();
    let key = tar[8..72].to_vec();
    let mut other_key = b"results/".to_vec();
    other_key.extend(key.iter().rev());
    let long = [b"results/".as_slice(), &key, b"/x"].concat();
    let mut damaged: Vec<Vec<u8>> = [b"../../x".as_slice(), b"/etc/x", b"", &other_key, &long]
        .iter()
        .map(|name| with_header(&tar, |header| set_name(header, name)))
        .collect();
    for entry_type in [tar::EntryType::Symlink, tar::EntryType::GNULongName] {
        damaged.push(with_header(&tar, |header| header.set_entry_type(entry_type)));
    }
    // Of the envelope: magic, schema, key, length, checksum; of the payload: its first byte.
    for at in [512, 520, 530, 563, 570, 600] {
        let mut bytes = tar.clone();
        bytes[at] ^= 1;
        damaged.push(bytes);
    }
    for bytes in damaged {
        // A whole one follows.
        bench.pack(&[&bytes[..bytes.len() - 1024], &tar].concat());
        let said = bench.quiet(&format!("import bad.tar.zst {OTHER}"));
        let expected = "imported 1 results, 1 skipped: damaged, or not results of this version\n";
        assert_eq!(said, expected);
        assert_eq!(bench.other_results(), 1);
        bench.quiet(&format!("clear {OTHER}"));
    }
    assert!(!bench.path("x").exists() && !bench.path("../x").exists());
}

#[test]
fn a_result_without_btf_is_skipped() {
    let Some(bench) = Bench::exported("a_result_without_btf_is_skipped") else { return };
    let key = btfcache_schema::Key([7; 32]);
    let record = ResultRecord { btf: vec![1; 100], ..Default::default() };
    let sealed = btfcache_schema::seal(btfcache_schema::Kind::Result, &key, &record.encode());
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(sealed.len() as u64);
    builder.append_data(&mut header, format!("results/{key}"), &sealed[..]).unwrap();
    bench.pack(&builder.into_inner().unwrap());
    let said = bench.quiet(&format!("import bad.tar.zst {OTHER}"));
    assert!(said.starts_with("imported 0 results, 1 skipped"), "{said}");
}

#[test]
fn an_archive_that_is_cut_or_damaged_is_told() {
    let Some(bench) = Bench::exported("an_archive_that_is_cut_or_damaged_is_told") else { return };
    let whole = fs::read(bench.path("a.tar.zst")).unwrap();
    for length in [0, 1, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(bench.path("bad.tar.zst"), &whole[..length]).unwrap();
        bench.refused();
    }
    // Between two entries: the first one is stored.
    let tar = bench.tar();
    bench.pack(&tar[..tar.len() - 1024]);
    bench.quiet(&format!("clear {OTHER}"));
    assert!(bench.refused().contains("before that, imported 1 results"));
    fs::write(bench.path("bad.tar.zst"), b"no archive at all").unwrap();
    bench.refused();
    fs::remove_file(bench.path("bad.tar.zst")).unwrap();
    bench.refused();
    fs::create_dir(bench.path("bad.tar.zst")).unwrap();
    bench.refused();
    // Whatever a flipped byte does, it does no harm.
    for at in (0..whole.len()).step_by(whole.len() / 50 + 1) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(bench.path("flipped"), bytes).unwrap();
        let output = bench.command(&format!("import flipped {OTHER}")).output().unwrap();
        let (code, _, stderr) = text(&output);
        assert!(matches!(code, Some(0 | 2)) && !stderr.contains("panic"), "{at}: {stderr}");
        bench.check("program", &bench.expected("program"));
    }
}

#[test]
fn an_archive_that_would_fill_memory_is_refused() {
    let Some(bench) = Bench::exported("an_archive_that_would_fill_memory_is_refused") else {
        return;
    };
    let tar = bench.tar();
    for size in [1 << 32, u64::MAX] {
        bench.pack(&with_header(&tar, |header| header.set_size(size)));
        bench.refused();
    }
    // A sound header of a gigabyte, and zeros that compress to nothing.
    let length: u64 = (1 << 30) - 88;
    let mut bomb = with_header(&tar, |header| header.set_size(length + 88));
    bomb[560..568].copy_from_slice(&length.to_le_bytes());
    bomb.truncate(600);
    let bytes = bomb.chain(std::io::repeat(0).take(200 << 20));
    let packed = compress_to_vec(bytes, CompressionLevel::Fastest);
    assert!(packed.len() < 1 << 20);
    fs::write(bench.path("bad.tar.zst"), packed).unwrap();
    let said = bench.refused();
    assert!(said.contains("far more comes out of it"), "{said}");
    assert_eq!(bench.other_results(), 0);
}

#[test]
fn what_cannot_be_written_stays_as_it_was() {
    let Some(bench) = Bench::exported("what_cannot_be_written_stays_as_it_was") else { return };
    let fails = |line: &str| {
        let (code, stdout, stderr) = text(&bench.command(line).output().unwrap());
        assert_eq!((code, &stdout[..]), (Some(2), ""), "{line}: {stderr}");
        stderr
    };
    assert!(fails("export /dev/null").contains("not a regular file"));
    fails("export nowhere/a.tar.zst");
    assert!(fails("export b.tar.zst --cache-dir=none").contains("there is no cache yet"));
    assert!(!bench.path("b.tar.zst").exists() && !bench.path("none").exists());
    let read_only = bench.command("import a.tar.zst --cache-dir=none");
    let read_only = { read_only }.env("BTFCACHE_READONLY", "1").output().unwrap();
    assert_eq!(read_only.status.code(), Some(2));
    assert!(!bench.path("none").exists());
}

#[test]
fn an_export_that_fills_the_disk_leaves_nothing() {
    let test = "an_export_that_fills_the_disk_leaves_nothing";
    let Some(bench) = Bench::exported(test) else { return };
    let Some(disk) = SmallDisk::mount(bench.path("disk")) else {
        return skip(test, "mount is not permitted");
    };
    let stored = cache(&bench.path("cache"), "1MB");
    for number in 0..4 {
        stored.put_result(&key(number), &sound_result(number)).unwrap();
    }
    fs::write(disk.0.join("a.tar.zst"), "the last one").unwrap();
    let (code, stdout, stderr) = text(&bench.command("export disk/a.tar.zst").output().unwrap());
    assert_eq!((code, &stdout[..]), (Some(2), ""), "{stderr}");
    for part in ["disk/a.tar.zst", "No space left on device"] {
        assert!(stderr.contains(part), "{stderr} lacks {part}");
    }
    assert_eq!(fs::read(disk.0.join("a.tar.zst")).unwrap(), b"the last one");
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 1, "a temporary file was left behind");
    let said = bench.quiet("export b.tar.zst");
    assert!(said.starts_with("exported 5 results"), "{said}");
}

/// What was imported goes before what runs use; the archive may be larger than the cache.
#[test]
fn an_import_stays_within_the_limit() {
    const LIMIT: u64 = 500_000;
    let Some(bench) = Bench::exported("an_import_stays_within_the_limit") else { return };
    let full = cache(&bench.path("full"), "10MB");
    for number in 0..20 {
        full.put_result(&key(number), &sound_result(number)).unwrap();
    }
    assert!(bench.quiet("export b.tar.zst --cache-dir=full").starts_with("exported 20 results"));
    let run = |line: &str, limit: u64| {
        let output = { bench.command(line) }.env("BTFCACHE_MAX_SIZE", limit.to_string()).output();
        let (code, stdout, stderr) = text(&output.unwrap());
        assert_eq!((code, &stderr[..]), (Some(0), ""), "{line}");
        stdout
    };
    assert_eq!(run("import b.tar.zst", LIMIT), "imported 20 results\n");
    let (bytes, entries) = (bench.count("bytes"), bench.count("entries"));
    assert!(bytes <= LIMIT && (2..20).contains(&entries), "{bytes} bytes, {entries} entries");
    let expected = bench.expected("program");
    run("encode program -o out.btf", LIMIT);
    assert!(fs::read(bench.path("out.btf")).unwrap() == expected);
    assert_eq!(bench.hits(), (1, 1), "what a run had used is gone");

    let said = run(&format!("import b.tar.zst {OTHER}"), 30_000);
    assert_eq!(said, "imported 0 results, 20 found no room within the limit\n");
    assert_eq!(bench.other_results(), 0);
}
