//! Deduplication by libbpf.
#![expect(unsafe_code, reason = "libbpf is a C library")]

use std::ptr::{NonNull, null_mut};

use libbpf_sys::{btf, btf__dedup, btf__free, btf__new, btf__raw_data, libbpf_set_print};

/// A `struct btf` of libbpf, freed when dropped.
struct Handle(NonNull<btf>);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pointer came from btf__new and is freed once.
        unsafe { btf__free(self.0.as_ptr()) }
    }
}

/// Deduplicates a BTF image.
///
/// # Panics
/// If libbpf refuses the image.
#[must_use]
pub fn dedup(bytes: &[u8]) -> Vec<u8> {
    let size = u32::try_from(bytes.len()).expect("images are small");
    // SAFETY: no callback is set; the image is read for its whole length only, and copied.
    let parsed = unsafe {
        libbpf_set_print(None);
        btf__new(bytes.as_ptr().cast(), size)
    };
    let handle = Handle(NonNull::new(parsed).expect("libbpf reads the image"));
    // SAFETY: the pointer is that of a live object; no options are given.
    let error = unsafe { btf__dedup(handle.0.as_ptr(), null_mut()) };
    assert_eq!(error, 0, "btf__dedup failed");
    let mut size = 0;
    // SAFETY: the pointer is that of a live object, which owns the data until it is changed or freed.
    let data = unsafe { btf__raw_data(handle.0.as_ptr(), &raw mut size) };
    assert!(!data.is_null(), "btf__raw_data failed");
    // SAFETY: libbpf says that so many bytes are there; the object still lives.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size as usize) }.to_vec()
}
