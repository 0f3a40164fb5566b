//! Encodes an ELF file whose debug sections are the input; what comes out must be readable.
//!
//! The input is one byte of options, the sizes of the sections in [`SECTIONS`] (two bytes each),
//! then their bytes. The mutator changes one section at a time and keeps the sizes right.

#![no_main]

#[expect(dead_code, reason = "only the writer of ELF files is used")]
#[path = "../../dwarf_builder.rs"]
mod dwarf_builder;
mod file;

use std::sync::OnceLock;

use btfcache::btf::read::Btf;
use btfcache::btf::verify::verify;
use btfcache::options::{Feature, Features, Options};
use btfcache::pipeline;
use btfcache::timing::Timing;
use dwarf_builder::{Section, write_elf};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use rayon::{ThreadPool, ThreadPoolBuilder};

const SECTIONS: [&str; 8] = [
    ".debug_abbrev",
    ".debug_info",
    ".debug_str",
    ".debug_line_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_loclists",
    ".debug_loc",
];
const HEADER: usize = 1 + 2 * SECTIONS.len();
/// Functions of `tests/data/rich.c` that the symbol table has.
const FUNCTIONS: [&str; 6] =
    ["visible", "by_stack", "returns_struct", "uses_pointers", "calls", "helper.isra.0"];

/// The input, taken apart.
struct Input {
    options: u8,
    sections: [Vec<u8>; SECTIONS.len()],
}

impl Input {
    fn parse(bytes: &[u8]) -> Self {
        let (header, mut rest) = bytes.split_at(HEADER.min(bytes.len()));
        let mut sizes = header.get(1..).unwrap_or(&[]).chunks_exact(2);
        let sections = std::array::from_fn(|_| {
            let size = sizes.next().map_or(0, |size| u16::from_le_bytes([size[0], size[1]]));
            let (section, after) = rest.split_at(rest.len().min(size.into()));
            rest = after;
            section.to_vec()
        });
        Self { options: header.first().copied().unwrap_or(0), sections }
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.options];
        bytes.extend(self.sections.iter().flat_map(|section| (section.len() as u16).to_le_bytes()));
        bytes.extend(self.sections.iter().flatten());
        bytes
    }

    fn options(&self) -> Options {
        let has = |bit: u8| self.options >> bit & 1 == 1;
        Options {
            features: if has(0) { Features::of(&Feature::ALL) } else { Features::DEFAULT },
            compat_pahole: has(1),
            kabi_prefix: has(2).then(|| b"x".to_vec()),
            ..Options::default()
        }
    }

    /// The ELF file, with a first unit that fills its section unless an option says otherwise.
    fn elf(&self) -> Vec<u8> {
        let (symbols, strings) = symbols();
        let plain = |name, bytes| Section { name, bytes, ..Section::debug() };
        let loaded = |name, address| Section { flags: 3, address, ..plain(name, vec![0; 4096]) };
        let mut sections = vec![
            loaded(".text", 0x1000),
            loaded(".data..percpu", 0),
            Section { kind: 2, link: 4, entry_size: 24, ..plain(".symtab", symbols) },
            Section { kind: 3, ..plain(".strtab", strings) },
        ];
        for (name, bytes) in SECTIONS.into_iter().zip(&self.sections) {
            let mut bytes = bytes.clone();
            if name == ".debug_info" && bytes.len() > 4 && self.options & 0x80 == 0 {
                let length = bytes.len() as u32 - 4;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
            }
            sections.push(plain(name, bytes));
        }
        write_elf(&sections)
    }
}

fn symbols() -> (Vec<u8>, Vec<u8>) {
    let (mut symbols, mut strings) = (vec![0; 24], vec![0]);
    for (name, address) in FUNCTIONS.into_iter().zip((0x1000_u64..).step_by(16)) {
        symbols.extend((strings.len() as u32).to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend(address.to_le_bytes());
        symbols.extend(16_u64.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    (symbols, strings)
}

fuzz_mutator!(|bytes: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut input = Input::parse(&bytes[..size]);
    let (choice, seed) = (seed % 32, seed / 32);
    let index = match choice {
        0 => {
            input.options = seed as u8;
            None
        }
        1..12 => Some(1),
        12..20 => Some(0),
        other => Some(other as usize % SECTIONS.len()),
    };
    if let Some(index) = index {
        let section = &mut input.sections[index];
        let size = section.len();
        let limit = (size + max_size.saturating_sub(bytes.len().min(max_size)) + 16).min(0xffff);
        section.resize(limit.max(1), 0);
        let size = fuzzer_mutate(section, size, limit.max(1));
        section.truncate(size);
    }
    let written = input.write();
    let size = written.len().min(max_size).min(bytes.len());
    bytes[..size].copy_from_slice(&written[..size]);
    size
});

fuzz_target!(|bytes: &[u8]| {
    let input = Input::parse(bytes);
    let path = file::file_of(&input.elf());
    let encode = |threads: usize| {
        let encode = || pipeline::encode(&path, None, &input.options(), &Timing::default());
        pool(threads).install(encode).map(|encoded| encoded.btf).ok()
    };
    let written = encode(1);
    if let Some(btf) = written.as_deref().filter(|btf| !btf.is_empty()) {
        let btf = Btf::parse(btf, None).expect("what was written can be read");
        // Damaged names and offsets are handed on; judging them must not fail.
        std::hint::black_box(verify(&btf));
    }
    if input.options & 0x40 != 0 {
        assert!(written == encode(3), "the number of threads changes the result");
    }
});

fn pool(threads: usize) -> &'static ThreadPool {
    static POOLS: [OnceLock<ThreadPool>; 4] = [const { OnceLock::new() }; 4];
    let build = || ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    POOLS[threads].get_or_init(build)
}
