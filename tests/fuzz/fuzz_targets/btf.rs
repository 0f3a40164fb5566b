//! Reads a BTF image, and a second one split on it: the last two bytes of the input are the size of
//! the first.

#![no_main]

use btfcache::btf::kind::{Info, for_each_ref};
use btfcache::btf::kind::for_each_name;
use btfcache::btf::read::Btf;
use btfcache::btf::verify::{first_unsorted, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (bytes, size) = bytes.split_last_chunk().unwrap_or((bytes, &[0, 0]));
    let size = usize::from(u16::from_le_bytes(*size));
    let (first, second) = bytes.split_at(size.min(bytes.len()));
    let Ok(base) = Btf::parse(first, None) else {
        return;
    };
    use_all(&base);
    if let Ok(split) = Btf::parse(second, Some(&base)) {
        use_all(&split);
        let _ = split.first_misfit();
    }
});

/// Follows every reference and name of the image's own types, and asks what the kernel would say.
fn use_all(btf: &Btf<'_>) {
    std::hint::black_box((verify(btf), first_unsorted(btf)));
    for (id, record) in btf.records() {
        assert_eq!(btf.record(id), record);
        if Info(record[1]).kind().is_none() {
            assert!(btf.first_unknown().is_some());
            continue;
        }
        for_each_ref(record, |target| assert!(target == 0 || btf.get(target).is_some()));
        for_each_name(record, |name| assert!(!btf.name(name).contains(&0)));
    }
}
