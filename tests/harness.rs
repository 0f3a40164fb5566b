//! Runs the program in a directory of its own and checks what it says and leaves behind.
//!
//! ```ignore
//! Test::new().file("a.o", b"not ELF").args("encode a.o -o a.btf").fails(2).stderr_has("ELF").absent("a.btf");
//! ```

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A run to be made.
#[derive(Debug)]
pub struct Test {
    directory: TempDir,
    cache: TempDir,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    stdout: Option<Stdio>,
}

/// What a run gave. Its checks panic with everything that was said.
#[derive(Debug)]
pub struct Ran {
    test: Test,
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Test {
    /// A run of `btfcache` in an empty directory with an empty cache, with none of our variables set.
    pub fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
            cache: TempDir::new().unwrap(),
            program: env!("CARGO_BIN_EXE_btfcache").into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            stdout: None,
        }
    }

    /// A run through a link named `pahole`.
    pub fn pahole() -> Self {
        let mut test = Self::new();
        let link = test.directory.path().join("pahole");
        symlink(&test.program, &link).unwrap();
        test.program = link;
        test
    }

    /// Puts a file into the directory.
    pub fn file(self, name: &str, bytes: &[u8]) -> Self {
        fs::write(self.directory.path().join(name), bytes).unwrap();
        self
    }

    /// Adds the words of `line` to the command line.
    pub fn args(mut self, line: &str) -> Self {
        self.arguments.extend(line.split_whitespace().map(OsString::from));
        self
    }

    /// Sets a variable.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends stdout to a pipe that nobody reads.
    pub fn unread_stdout(mut self) -> Self {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        self.stdout = Some(writer.into());
        self
    }

    /// Runs; the exit code must be 0.
    pub fn succeeds(self) -> Ran {
        self.fails(0)
    }

    /// Runs; the exit code must be `code`.
    pub fn fails(self, code: i32) -> Ran {
        let ran = self.run();
        assert_eq!(ran.status, Some(code), "{}", ran.report());
        ran
    }

    fn run(mut self) -> Ran {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let name_bytes = name.as_encoded_bytes();
            if name_bytes.starts_with(b"BTFCACHE_") || name_bytes.starts_with(b"PAHOLE_") {
                command.env_remove(&name);
            }
        }
        command.env("BTFCACHE_DIR", self.cache.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdout(self.stdout.take().unwrap_or_else(Stdio::piped)).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        Ran {
            test: self,
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Stdout must be exactly this.
    pub fn stdout(self, expected: &str) -> Self {
        assert_eq!(self.stdout, expected, "{}", self.report());
        self
    }

    /// Stdout must hold this.
    pub fn stdout_has(self, part: &str) -> Self {
        assert!(self.stdout.contains(part), "stdout lacks {part:?}\n{}", self.report());
        self
    }

    /// Stderr must be exactly this.
    pub fn stderr(self, expected: &str) -> Self {
        assert_eq!(self.stderr, expected, "{}", self.report());
        self
    }

    /// Stderr must hold this.
    pub fn stderr_has(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "stderr lacks {part:?}\n{}", self.report());
        self
    }

    /// There must be no such file.
    pub fn absent(self, name: &str) -> Self {
        assert!(!self.path(name).exists(), "{name} was written\n{}", self.report());
        self
    }

    /// The file must have exactly this content.
    pub fn content(self, name: &str, expected: &[u8]) -> Self {
        let found = fs::read(self.path(name)).unwrap();
        assert!(found == expected, "{name} has changed\n{}", self.report());
        self
    }

    /// The directory must hold exactly these files, in alphabetical order.
    pub fn files(self, expected: &[&str]) -> Self {
        let entries = fs::read_dir(self.test.directory.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, expected, "{}", self.report());
        self
    }

    /// Another run in the same directory, with a new command line.
    pub fn again(self) -> Test {
        Test { arguments: Vec::new(), environment: Vec::new(), ..self.test }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.test.directory.path().join(name)
    }

    fn report(&self) -> String {
        let Self { test, status, stdout, stderr } = self;
        let arguments = &test.arguments;
        format!("{arguments:?}: {status:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---")
    }
}

/// An ELF file (x86-64, relocatable) without sections, so without DWARF.
pub fn elf_without_sections() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16] = 1; // ET_REL
    bytes[18] = 62; // EM_X86_64
    bytes[20] = 1; // EV_CURRENT
    bytes[52] = 64; // e_ehsize
    bytes[58] = 64; // e_shentsize
    bytes
}

/// The reference: the pahole that `BTFCACHE_TEST_PAHOLE` names, else the one on the path; only
/// release 1.32 counts. Without it the test says that it skips.
pub fn reference_pahole(test: &str) -> Option<PathBuf> {
    let program = std::env::var_os("BTFCACHE_TEST_PAHOLE").unwrap_or_else(|| "pahole".into());
    let version = Command::new(&program).arg("--version").output();
    if version.is_ok_and(|output| output.stdout == b"v1.32\n") {
        return Some(program.into());
    }
    skip(test, "no pahole 1.32; set BTFCACHE_TEST_PAHOLE");
    None
}

/// Says, past the capturing of the test runner, that a test does nothing.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {reason}");
}

/// A file system of 64 KiB, unmounted when the test ends.
#[derive(Debug)]
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    /// Mounts one in a new folder; `None` if that is not permitted.
    pub fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path);
        let done = mount.stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success()).then_some(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Exit code and stdout of a program.
pub fn observe(program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The running kernel must take this BTF, if it may be asked.
pub fn kernel_takes(btf: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/btf-load");
    let Ok(ran) = Command::new(script).arg(btf).output() else {
        return skip("harness::kernel_takes", "no python3");
    };
    let said = String::from_utf8_lossy(&ran.stdout);
    match ran.status.code() {
        Some(0) => {}
        Some(77) => skip("harness::kernel_takes", "the kernel may not be asked here"),
        _ => panic!("{said}{}", String::from_utf8_lossy(&ran.stderr)),
    }
}
