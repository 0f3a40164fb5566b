//! Asks the running kernel whether it takes a BTF image.
#![expect(unsafe_code, reason = "system calls through libbpf, a C library")]

use std::ffi::CStr;
use std::mem::size_of;
use std::ptr::null_mut;

use libbpf_sys::{bpf_btf_load, bpf_btf_load_opts};

/// What the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It takes the image.
    Taken,
    /// It does not; its last words.
    Refused(String),
    /// It may not be asked here.
    Unknown,
}

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
const LOG_SIZE: usize = 64 << 10;

/// Loads an image, and drops it at once.
#[must_use]
pub fn judge(bytes: &[u8]) -> Judgement {
    match load(bytes, null_mut()) {
        Ok(()) => Judgement::Taken,
        Err(EPERM | ENOSYS) => Judgement::Unknown,
        Err(_) => Judgement::Refused(last_words(bytes)),
    }
}

/// Loads once more, with a log: a log that is too small would turn success into an error.
fn last_words(bytes: &[u8]) -> String {
    let mut log = vec![0_u8; LOG_SIZE];
    let mut options = bpf_btf_load_opts {
        sz: size_of::<bpf_btf_load_opts>() as u64,
        log_buf: log.as_mut_ptr().cast(),
        log_level: 1,
        log_size: LOG_SIZE as u32,
        ..Default::default()
    };
    let error = load(bytes, &raw mut options).err();
    let text = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
    let last = text.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
    format!("{last} (error {error:?})")
}

fn load(bytes: &[u8], options: *mut bpf_btf_load_opts) -> Result<(), i32> {
    // SAFETY: the image is read for its whole length; the options are null or live, and so is the
    // log that they point to.
    let descriptor = unsafe { bpf_btf_load(bytes.as_ptr().cast(), bytes.len() as u64, options) };
    if descriptor < 0 {
        return Err(-descriptor);
    }
    // SAFETY: the descriptor was just opened, and nobody else knows it.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) });
    Ok(())
}
