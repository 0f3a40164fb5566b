//! A base linked from several units, modules of several units, and what is made of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use btfcache::btf::kind::{Kind, kind_of, map_names};
use btfcache::btf::load;
use btfcache::btf::read::Btf;
use tempfile::TempDir;

use crate::harness::skip;

/// Programs in C: name of the file and text.
pub type Units<'a> = &'a [(&'a str, &'a str)];

/// A folder with a base, of one compiler.
pub struct Workshop {
    folder: TempDir,
    compiler: &'static str,
}

impl Workshop {
    /// Links `units` and encodes them as `base.btf`; `None` with a message without the compiler.
    pub fn new(compiler: &'static str, units: Units<'_>) -> Option<Self> {
        if Command::new(compiler).arg("--version").output().is_err() {
            skip("split", &format!("no {compiler}"));
            return None;
        }
        let workshop = Self { folder: TempDir::new().unwrap(), compiler };
        workshop.link("base.elf", units);
        workshop.encode(&["base.elf", "-o", "base.btf"]);
        Some(workshop)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn compile(&self, units: Units<'_>, flags: &[&str]) -> Vec<String> {
        let compile = |(name, text): &(&str, &str)| {
            fs::write(self.path(name), text).unwrap();
            let object = name.replace(".c", ".o");
            self.tool(self.compiler, &[&["-g", "-O1", "-c", name, "-o", &object], flags].concat());
            object
        };
        units.iter().map(compile).collect()
    }

    /// Compiles and links for good.
    pub fn link(&self, name: &str, units: Units<'_>) {
        let objects = self.compile(units, &["-fPIC"]);
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        self.tool("ld", &[&["-shared", "-o", name], &objects[..]].concat());
    }

    /// Compiles and joins the units as a module is: relocatable, each with strings of its own.
    pub fn module(&self, name: &str, units: Units<'_>) {
        let objects = self.compile(units, &["-fno-pic"]);
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        self.tool("ld", &[&["-r", "-o", name], &objects[..]].concat());
    }

    /// Compiles one unit for another machine.
    pub fn object_for(&self, machine: &str, name: &str, unit: (&str, &str)) {
        let target = format!("--target={machine}-linux-gnu");
        fs::write(self.path(unit.0), unit.1).unwrap();
        self.tool("clang", &[&target, "-g", "-c", "-ffreestanding", "-o", name, unit.0]);
    }

    pub fn tool(&self, program: &str, arguments: &[&str]) {
        let output =
            Command::new(program).args(arguments).current_dir(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    /// Runs `btfcache encode` without a cache; it must succeed.
    pub fn encode(&self, arguments: &[&str]) {
        let output = self.run(arguments, &[("BTFCACHE_DISABLE", "1")]);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    /// Runs `btfcache encode`.
    pub fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_btfcache"))
            .arg("encode")
            .args(arguments)
            .current_dir(self.folder.path())
            .env("BTFCACHE_DIR", self.path("cache"))
            .env_remove("BTFCACHE_DISABLE")
            .envs(environment.iter().copied())
            .output()
            .unwrap()
    }

    /// Encodes a module upon the base, and checks what holds for every split image.
    pub fn split(&self, module: &str) -> Split {
        let output = format!("{module}.btf");
        self.encode(&["--base", "base.btf", module, "-o", &output]);
        let split = Split::read(&self.path("base.btf"), &self.path(&output));
        split.check();
        split
    }
}

/// A base and split BTF upon it.
pub struct Split {
    /// The base.
    pub base: &'static Btf<'static>,
    btf: Btf<'static>,
}

impl Split {
    fn read(base: &Path, split: &Path) -> Self {
        // Lives as long as the test.
        let base = Box::leak(Box::new(load::base(base).unwrap()));
        let btf = load::split(split, &fs::read(split).unwrap(), split, base).unwrap();
        Self { base, btf }
    }

    /// No type is there twice, no string twice (D4, B1, B7).
    fn check(&self) {
        let mut seen: Vec<(Vec<u32>, Vec<Vec<u8>>)> = Vec::new();
        for btf in [self.base, &self.btf] {
            for (id, record) in btf.records() {
                let says = says(btf, record);
                let is_variable = matches!(kind_of(record), Kind::Var | Kind::Datasec);
                assert!(is_variable || !seen.contains(&says), "{id} is there twice: {says:?}");
                seen.push(says);
            }
        }
        let strings = |btf: &Btf<'_>| -> Vec<Vec<u8>> {
            btf.strings().split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
        };
        let in_base = strings(self.base);
        for string in strings(&self.btf).into_iter().filter(|string| !string.is_empty()) {
            let text = String::from_utf8_lossy(&string).into_owned();
            assert!(!in_base.contains(&string), "{text} is in the base");
        }
        assert_eq!(self.btf.first_misfit(), None);
    }

    /// How many types of this kind and name the module has of its own.
    pub fn own(&self, kind: Kind, name: &str) -> usize {
        ids(&self.btf, kind, name).len()
    }

    /// How many the base has.
    pub fn in_base(&self, kind: Kind, name: &str) -> usize {
        ids(self.base, kind, name).len()
    }

    /// The module has nothing of its own of this name, the base something.
    pub fn is_shared(&self, kind: Kind, name: &str) -> bool {
        self.own(kind, name) == 0 && self.in_base(kind, name) > 0
    }

    /// Names and kinds of all own types, for messages.
    pub fn listing(&self) -> Vec<String> {
        let line = |(id, record): (u32, &[u32])| {
            let name = String::from_utf8_lossy(self.btf.name(record[0])).into_owned();
            format!("[{id}] {:?} {name} {:?}", kind_of(record), &record[2..])
        };
        self.btf.records().map(line).collect()
    }

    /// The only own type of this kind and name.
    pub fn record(&self, kind: Kind, name: &str) -> &[u32] {
        let ids = ids(&self.btf, kind, name);
        assert_eq!(ids.len(), 1, "{kind:?} {name}: {:#?}", self.listing());
        self.btf.record(ids[0])
    }

    /// What a type is, and a chain of what it leads to first: kinds and names.
    pub fn chain(&self, mut id: u32) -> Vec<(Kind, String)> {
        let mut chain = Vec::new();
        while id != 0 && chain.len() < 8 {
            let btf = if id < self.base.end_id() { self.base } else { &self.btf };
            let record = btf.record(id);
            let name = String::from_utf8_lossy(btf.name(record[0])).into_owned();
            chain.push((kind_of(record), name));
            id = match kind_of(record) {
                Kind::Ptr | Kind::Const | Kind::Typedef => record[2],
                Kind::Array => record[3],
                Kind::Struct if record.len() > 4 => record[4],
                _ => 0,
            };
        }
        chain
    }
}

fn ids(btf: &Btf<'_>, kind: Kind, name: &str) -> Vec<u32> {
    let is_wanted =
        |record: &[u32]| kind_of(record) == kind && btf.name(record[0]) == name.as_bytes();
    btf.records().filter(|(_, record)| is_wanted(record)).map(|(id, _)| id).collect()
}

/// A record with its names spelled out.
fn says(btf: &Btf<'_>, record: &[u32]) -> (Vec<u32>, Vec<Vec<u8>>) {
    let (mut words, mut names) = (record.to_vec(), Vec::new());
    map_names(&mut words, |name| {
        names.push(btf.name(name).to_vec());
        0
    });
    (words, names)
}
