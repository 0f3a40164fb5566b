//! Split BTF of real modules, made by pahole 1.32.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use btfcache::btf::load;

/// The split BTF of one module.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its file.
    pub path: PathBuf,
    /// The image.
    pub split: Vec<u8>,
}

/// How many modules are taken, spread over all there are, times the factor.
const COUNT: usize = 12;

/// `ORACLE_FACTOR`: how many times more is tried than usual.
///
/// # Panics
/// If it is not a number.
#[must_use]
pub fn factor() -> usize {
    std::env::var("ORACLE_FACTOR").map_or(1, |factor| factor.parse().expect("it is a number"))
}

/// The image of the kernel `BTFCACHE_TEST_VMLINUX`, which has BTF, and the split images of some of
/// the modules below the folder `BTFCACHE_TEST_MODULES`, which have DWARF, as the pahole that
/// `BTFCACHE_TEST_PAHOLE` names makes them. `None`, and a line on stderr, without those.
///
/// # Panics
/// If pahole fails, or makes nothing that can be read.
#[must_use]
pub fn modules(test: &str) -> Option<(Vec<u8>, Vec<Module>)> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let wanted = ["BTFCACHE_TEST_VMLINUX", "BTFCACHE_TEST_MODULES", "BTFCACHE_TEST_PAHOLE"];
    let [Some(vmlinux), Some(folder), Some(pahole)] = wanted.map(variable) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: set {}", wanted.join(", "));
        return None;
    };
    let mut files = Vec::new();
    find_modules(&folder, &mut files);
    files.sort();
    let step = files.len().div_ceil(COUNT * factor()).max(1);
    let base = load::images(&vmlinux).expect("the kernel has BTF").btf;
    let split = |path: PathBuf| {
        let split = split_btf(&pahole, &vmlinux, &path)?;
        Some(Module { path, split })
    };
    let modules: Vec<Module> = files.into_iter().step_by(step).filter_map(split).collect();
    assert!(!modules.is_empty(), "`{}` has no modules with DWARF", folder.display());
    Some((base, modules))
}

fn find_modules(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            find_modules(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            files.push(path);
        }
    }
}

/// The BTF of a module, split on that of the kernel; `None` if there is nothing to describe.
fn split_btf(pahole: &Path, vmlinux: &Path, module: &Path) -> Option<Vec<u8>> {
    let output = std::env::temp_dir().join(format!("btfcache-oracle-{}.btf", std::process::id()));
    let mut command = Command::new(pahole);
    command.args(["-J", "--btf_features=default", "--lang_exclude=rust", "--btf_base"]);
    command.arg(vmlinux).arg(format!("--btf_encode_detached={}", output.display())).arg(module);
    let status = command.stdin(Stdio::null()).status().expect("pahole runs");
    assert!(status.success(), "pahole fails on `{}`", module.display());
    let bytes = std::fs::read(&output).ok()?;
    std::fs::remove_file(&output).expect("pahole wrote it");
    Some(bytes)
}
