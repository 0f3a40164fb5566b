//! Pins the bytes. When one of these fails, what is on users' disks would be misread or never be
//! found again: bump `SCHEMA_VERSION` (a layout or a key changed), tell the history in
//! `README.md`, and only then put the new bytes here.

use std::fmt::Write as _;

use btfcache_schema::{
    CHUNK_SIZE, Counter, ENCODER_VERSION, Fields, FootingRecord, Key, KeyHasher, Kind,
    OutlineRecord, PoolRecord, Purpose, ResultRecord, RunRecord, SCHEMA_VERSION, StatRecord,
    StepRecord, Tag, UnitRecord, Value, VariableRecord, seal,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn versions() {
    assert_eq!((SCHEMA_VERSION, ENCODER_VERSION), (1, 1), "new versions need new golden bytes");
    assert_eq!(CHUNK_SIZE, 1 << 20, "the size of chunks is part of every content key");
}

#[test]
fn keys() {
    let mut hasher = KeyHasher::new(Purpose::Result);
    for tag in Tag::ALL {
        hasher.number(*tag, *tag as u8);
        hasher.field(*tag, Value::Bytes(tag.name().as_bytes()));
    }
    hasher.key(Tag::Content, &Key([1; 32]));
    assert_eq!(
        hasher.finish().to_string(),
        "a8a85723a139e54c0a0d4c29dc5f4d2b4e9dbf4b5a0be7f9c89c3352651a00ca"
    );
}

#[test]
fn envelope() {
    assert_eq!(
        hex(&seal(Kind::Result, &Key([2; 32]), b"BTF")),
        "4254464341434845010000000100000002020202020202020202020202020202020202020202020202020202020202020300000000000000a7e85f8d6d6a9e912665b1447a2c7d4660f5710506cd76e33f059af89d23e31a425446"
    );
}

#[test]
fn result_record() {
    let record = ResultRecord {
        btf: b"BTF".to_vec(),
        base: Some(b"base".to_vec()),
        base_key: Some(Key([3; 32])),
        notices: vec!["n".to_owned()],
        skips: vec!["s".to_owned()],
        microseconds: 1000,
    };
    assert_eq!(
        hex(&record.encode()),
        "e803000000000000010303030303030303030303030303030303030303030303030303030303030303010000000000000001000000000000006e0100000000000000010000000000000073010400000000000000626173650300000000000000425446"
    );
}

#[test]
fn footing_records() {
    let footing = FootingRecord {
        base: Key([1; 32]),
        result: Key([2; 32]),
        end_string: 3,
        mentions: vec![4],
        names: vec![(5, b"six".to_vec())],
    };
    assert_eq!(
        hex(&footing.encode()),
        "01010101010101010101010101010101010101010101010101010101010101010202020202020202020202020202020202020202020202020202020202020202030000000100000000000000040000000100000000000000050000000300000000000000736978"
    );
    assert_eq!(hex(&StepRecord { changed: Some(vec![7]) }.encode()), "01010000000000000007000000");
    let outline = OutlineRecord { is_big_endian: false, types: vec![(8, 9)] };
    assert_eq!(hex(&outline.encode()), "000100000000000000080000000000000009000000");
}

#[test]
fn work_records() {
    let pool = PoolRecord { names: vec![b"a".to_vec()], sizes: vec![3], words: vec![1, 2, 300] };
    assert_eq!(hex(&pool.encode()), "01016101030301".to_owned() + "02ac02");
    let variable = VariableRecord { name: 1, ty: 2, is_external: true, size: 3, tags: vec![4] };
    let unit = UnitRecord {
        key: [9; 32],
        size: 6,
        masks: vec![1],
        operands: vec![2],
        types: vec![5, 6],
        tags: vec![7],
        index_type: 8,
        functions: vec![3, 1],
        variables: vec![variable],
        has_complete_types: true,
    };
    let mut bytes = Vec::new();
    unit.append(&mut bytes);
    let body = "060101010202".to_owned() + "0a00010e08020605010102010301" + "0401";
    assert_eq!(hex(&bytes), format!("{:02x}{}{body}", 32 + body.len() / 2, "09".repeat(32)));
}

#[test]
fn stat_record() {
    let (modified, changed) = (-2, 3);
    let content = Key([4; 32]);
    let record = StatRecord { device: 1, inode: 2, size: 4096, modified, changed, content };
    assert_eq!(
        hex(&record.encode()),
        "010000000000000002000000000000000010000000000000feffffffffffffff03000000000000000404040404040404040404040404040404040404040404040404040404040404"
    );
}

#[test]
fn run_record() {
    let mut record = RunRecord::new("vmlinux".to_owned());
    record.add(Counter::Runs, 1);
    record.add(Counter::ProblemSetting, 2);
    assert_eq!(
        hex(&record.encode()),
        "0700000000000000766d6c696e75780100010000000000000039000200000000000000"
    );
}
