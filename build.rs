//! Gives the program a digest of its own encoder: `ENCODER_SOURCE`, 64 hexadecimal digits.
//!
//! It is part of every key of a result, so two builds whose encoders differ never share results,
//! whether or not somebody thought of the version. The same source gives the same digest anywhere.

use std::fs;
use std::path::{Path, PathBuf};

/// What stands around the encoder and cannot change a result.
const NOT_ENCODER: [&str; 9] = [
    "archive.rs",
    "cli",
    "commands",
    "store",
    "settings",
    "stats",
    "output.rs",
    "main.rs",
    "timing.rs",
];

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.lock");
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for path in files.into_iter().chain([PathBuf::from("Cargo.lock")]) {
        let bytes = fs::read(&path).unwrap_or_default();
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(&bytes);
    }
    println!("cargo::rustc-env=ENCODER_SOURCE={}", hasher.finalize());
}

/// The files of `folder` and of the folders in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source is there") {
        let path = entry.expect("the source is there").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if folder == Path::new("src") && NOT_ENCODER.contains(&name) {
            continue;
        }
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
