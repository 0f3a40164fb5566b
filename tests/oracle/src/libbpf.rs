//! What libbpf does with BTF: deduplicates, distills, relocates it.
#![expect(unsafe_code, reason = "libbpf is a C library")]

use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::sync::LazyLock;

use btfcache::btf::kind::{Info, Kind};
use libbpf_sys::{
    btf, btf__dedup, btf__distill_base, btf__free, btf__new_split, btf__raw_data, btf__relocate,
    libbpf_set_print,
};

use crate::split::image_of;

/// A `struct btf` of libbpf, freed when dropped. It points to its base, which lives longer.
struct Handle<'base>(NonNull<btf>, PhantomData<&'base btf>);

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from libbpf, belongs to this handle, and is freed once.
        unsafe { btf__free(self.0.as_ptr()) }
    }
}

impl<'base> Handle<'base> {
    /// Takes over what a function of libbpf returned; `None` if it failed.
    fn new(pointer: *mut btf) -> Option<Self> {
        NonNull::new(pointer).map(|pointer| Self(pointer, PhantomData))
    }

    /// Reads an image; `None` if libbpf refuses it.
    fn parse(bytes: &[u8], base: Option<&'base Handle<'_>>) -> Option<Self> {
        let size = u32::try_from(bytes.len()).expect("images are small");
        let base = base.map_or(null_mut(), |base| base.0.as_ptr());
        // SAFETY: no callback is set; the image is read for its whole length only, and copied; the
        // base is null, or outlives the handle.
        Self::new(unsafe {
            libbpf_set_print(None);
            btf__new_split(bytes.as_ptr().cast(), size, base)
        })
    }

    /// Its image, that of the split part if it has a base.
    fn bytes(&self) -> Vec<u8> {
        let mut size = 0;
        // SAFETY: the pointer is that of a live object, which owns the data until it is changed or
        // freed.
        let data = unsafe { btf__raw_data(self.0.as_ptr(), &raw mut size) };
        assert!(!data.is_null(), "btf__raw_data failed");
        // SAFETY: libbpf says that so many bytes are there; the object still lives.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size as usize) }.to_vec()
    }
}

/// Deduplicates a BTF image.
///
/// # Panics
/// If libbpf refuses the image.
#[must_use]
pub fn dedup(bytes: &[u8]) -> Vec<u8> {
    let handle = Handle::parse(bytes, None).expect("libbpf reads the image");
    // SAFETY: the pointer is that of a live object; no options are given.
    let error = unsafe { btf__dedup(handle.0.as_ptr(), null_mut()) };
    assert_eq!(error, 0, "btf__dedup failed");
    handle.bytes()
}

/// Deduplicates split BTF upon its base; gives the image of the split part.
///
/// # Panics
/// If libbpf refuses an image.
#[must_use]
pub fn dedup_upon(base: &[u8], split: &[u8]) -> Vec<u8> {
    let base = Handle::parse(base, None).expect("libbpf reads the base");
    let split = Handle::parse(split, Some(&base)).expect("libbpf reads the image");
    // SAFETY: the pointer is that of a live object with a live base; no options are given.
    let error = unsafe { btf__dedup(split.0.as_ptr(), null_mut()) };
    assert_eq!(error, 0, "btf__dedup failed");
    split.bytes()
}

/// Whether split deduplication repeats typedefs of the base: a defect of versions before 7.2 of the
/// kernel (rule B6).
#[must_use]
pub fn repeats_typedefs() -> bool {
    static REPEATS: LazyLock<bool> = LazyLock::new(|| {
        let int = [1, Info::new(Kind::Int, 0, false).0, 4, 1 << 24 | 32];
        let typedef = |target| [5, Info::new(Kind::Typedef, 0, false).0, target];
        let base = image_of(&[&int[..], &typedef(1)].concat(), b"\0int\0number\0", false);
        let split = image_of(&typedef(1), &[], false);
        dedup_upon(&base, &split).len() > image_of(&[], &[], false).len()
    });
    *REPEATS
}

/// Why libbpf did not do something: it did not read an image, or it gave an error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An image is not one that it reads.
    Image,
    /// The number, positive.
    Error(i32),
}

/// Distills `split` on `base`: gives the image of the distilled base, and of the split part on it.
///
/// # Errors
/// When libbpf refuses.
///
/// # Panics
/// If libbpf succeeds without a result.
pub fn distill(base: &[u8], split: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
    let base = Handle::parse(base, None).ok_or(Refusal::Image)?;
    let split = Handle::parse(split, Some(&base)).ok_or(Refusal::Image)?;
    let (mut new_base, mut new_split) = (null_mut(), null_mut());
    // SAFETY: the pointer is that of a live object with a live base; both results are places of ours.
    let error =
        unsafe { btf__distill_base(split.0.as_ptr(), &raw mut new_base, &raw mut new_split) };
    if error != 0 {
        return Err(Refusal::Error(-error));
    }
    // The split part is dropped before its base.
    let new_base = Handle::new(new_base).expect("libbpf succeeded");
    let new_split = Handle::new(new_split).expect("libbpf succeeded");
    Ok((new_base.bytes(), new_split.bytes()))
}

/// Moves `split` from the distilled base that it is on to `base`; gives its new image.
///
/// # Errors
/// When libbpf refuses.
pub fn relocate(distilled: &[u8], split: &[u8], base: &[u8]) -> Result<Vec<u8>, Refusal> {
    let base = Handle::parse(base, None).ok_or(Refusal::Image)?;
    let distilled = Handle::parse(distilled, None).ok_or(Refusal::Image)?;
    let split = Handle::parse(split, Some(&distilled)).ok_or(Refusal::Image)?;
    // SAFETY: both pointers are those of live objects; the base outlives what now points to it.
    let error = unsafe { btf__relocate(split.0.as_ptr(), base.0.as_ptr()) };
    if error != 0 {
        return Err(Refusal::Error(-error));
    }
    Ok(split.bytes())
}
