//! `btfcache install-pahole`: a link through which kernel builds find btfcache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::Test;

/// What the program at `path` says of its version.
fn version(path: &Path) -> String {
    let ran = Command::new(path).arg("--numeric_version").output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn the_link_speaks_as_pahole_does() {
    let folder = TempDir::new().unwrap();
    let home = folder.path().to_str().unwrap();
    let link = folder.path().canonicalize().unwrap().join(".local/bin/pahole");
    let line = format!("{}\n", link.display());
    let ran = Test::new().environment("HOME", home).args("install-pahole").succeeds();
    let ran = ran.stdout(&line).stderr_has(&format!("`make PAHOLE={}`", link.display()));
    assert_eq!(version(&link), "132\n");
    // Again, from a btfcache that has moved.
    fs::remove_file(&link).unwrap();
    symlink("/nowhere/btfcache", &link).unwrap();
    let again = ran.again().environment("HOME", home).args("install-pahole -q").succeeds();
    again.stdout(&line).stderr("");
    assert_eq!(version(&link), "132\n");
    let left: Vec<_> = fs::read_dir(link.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn the_real_pahole_is_not_replaced_unless_asked() {
    let test = Test::new().file("pahole", b"the real one").args("install-pahole .").fails(2);
    let kept =
        test.stderr_has("`--force` replaces it").stdout("").content("pahole", b"the real one");
    kept.again()
        .args("install-pahole --force .")
        .succeeds()
        .stdout_has("/pahole\n")
        .files(&["pahole"]);
    Test::new().file("file", b"").args("install-pahole file").fails(2).stderr_has("file");
}
