//! The limit of size.

use std::time::SystemTime;

use btfcache::config::Environment;
use btfcache::settings::{ConfigFile, Flags, Name, Settings};
use btfcache::store::Cache;
use btfcache_schema::{Key, ResultRecord};

use super::Bench;

pub(super) fn cache(directory: &std::path::Path, limit: &str) -> Cache {
    let mut flags = Flags::default();
    flags.set(Name::Dir, directory);
    flags.set(Name::MaxSize, limit);
    let settings = Settings::of(&flags, &Environment::default(), ConfigFile::default());
    Cache::open(&settings).unwrap().unwrap()
}

pub(super) fn key(number: u64) -> Key {
    Key(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

#[test]
fn a_cache_at_its_limit_stays_under_it_for_10000_stores() {
    const LIMIT: u64 = 2_000_000;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), &LIMIT.to_string());
    let mut largest = 0;
    for number in 0..10_000_u64 {
        let btf = vec![number as u8; (number % 7 * 1500) as usize];
        let record = ResultRecord { btf, ..ResultRecord::default() };
        assert!(cache.put_result(&key(number), &record).unwrap().is_stored);
        if number % 97 == 0 {
            largest = largest.max(cache.usage().bytes);
        }
    }
    largest = largest.max(cache.usage().bytes);
    assert!(largest <= LIMIT, "{largest}");
    assert!(largest > LIMIT / 2, "{largest}");
    // What was stored last is there.
    assert!(matches!(cache.result(&key(9_999)), btfcache::store::Lookup::Known(_)));
}

#[test]
fn what_is_used_stays() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), "400kB");
    let record = ResultRecord { btf: vec![1; 3000], ..ResultRecord::default() };
    for number in 0..60 {
        cache.put_result(&key(number), &record).unwrap();
    }
    let age = |path: std::path::PathBuf| {
        std::fs::File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    fn files(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    files(&folder.path().join("v1/results"), &mut found);
    found.into_iter().for_each(age);
    assert!(matches!(cache.result(&key(7)), btfcache::store::Lookup::Known(_)));
    cache.collect(40_000).unwrap().unwrap();
    assert!(matches!(cache.result(&key(7)), btfcache::store::Lookup::Known(_)));
    assert!(cache.usage().entries < 12);
}

#[test]
fn a_result_that_is_larger_than_the_cache_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), "100kB");
    let small = ResultRecord { btf: vec![1; 3000], ..ResultRecord::default() };
    cache.put_result(&key(1), &small).unwrap();
    let large = ResultRecord { btf: vec![1; 200_000], ..ResultRecord::default() };
    assert!(!cache.put_result(&key(2), &large).unwrap().is_stored);
    assert!(
        matches!(cache.result(&key(1)), btfcache::store::Lookup::Known(_)),
        "nothing had to go"
    );
}

#[test]
fn processes_keep_the_limit_together() {
    let Some(bench) = Bench::new("processes_keep_the_limit_together") else { return };
    const LIMIT: u64 = 250_000;
    for index in 0..6 {
        bench.compile(&format!("program{index}"), &format!("struct s{index} {{ int a; }} s;"));
    }
    for variant in 0..16 {
        let spawn = |index| {
            let line = format!("encode --kabi-prefix={variant} program{index} -o out{index}");
            bench.command(&line).env("BTFCACHE_MAX_SIZE", LIMIT.to_string()).spawn().unwrap()
        };
        let children: Vec<_> = (0..6).map(spawn).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let bytes = bench.count("bytes");
        assert!(bytes <= LIMIT, "{bytes}");
    }
    assert!(bench.count("evictions") > 0);
    assert_eq!(bench.hits(), (0, 96));
}
