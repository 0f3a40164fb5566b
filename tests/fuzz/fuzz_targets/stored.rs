//! Reads stored values: an envelope, and payloads of every kind. What can be read must be written
//! back as it was.

#![no_main]

use btfcache_schema::{Header, Key, Kind, ResultRecord, RunRecord, StatRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((header, payload)) = bytes.split_first_chunk() {
        let size = bytes.len() as u64;
        for kind in [Kind::Result, Kind::Stat, Kind::Run] {
            if let Ok(header) = Header::parse(*header, kind, &Key([0; 32]), size) {
                std::hint::black_box(header.verify(payload).is_ok());
            }
        }
    }
    if let Ok(record) = ResultRecord::decode(bytes) {
        assert_eq!(record.encode(), bytes);
    }
    if let Ok(record) = StatRecord::decode(bytes) {
        assert_eq!(record.encode(), bytes);
    }
    if let Ok(record) = RunRecord::decode(bytes) {
        // Counters may come in any order, once or more; what is written is in order, once.
        let again = record.encode();
        assert_eq!(RunRecord::decode(&again), Ok(record));
    }
});
