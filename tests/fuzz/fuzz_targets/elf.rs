//! Reads an ELF file: headers, sections, symbols, relocations. Then puts a section into it: the
//! result must be readable and doing it again must change nothing.

#![no_main]

mod file;

use std::fs;
use std::path::Path;

use btfcache::elf::ElfFile;
use btfcache::embed::embed;
use btfcache::relocate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = file::file_of(bytes);
    let is_readable = ElfFile::open(&path).map(|elf| read(&elf)).is_ok();
    write(&path, is_readable);
});

fn read(elf: &ElfFile) {
    let symbols = elf.symbols().ok().flatten();
    if let Some(table) = &symbols {
        let length: usize = table.symbols().iter().map(|symbol| table.name(symbol).len()).sum();
        std::hint::black_box(length);
    }
    let layout = relocate::layout(elf);
    // Others are never read.
    for section in elf.sections().iter().filter(|section| elf.is_input(section)) {
        if elf.target().is_relocatable() {
            let _ = relocate::section(elf, section, symbols.as_ref(), &layout);
        }
        let Ok(bytes) = elf.bytes(section) else {
            continue;
        };
        let data = elf.data(section).expect("its bytes were read");
        assert_eq!(data.len(), bytes.len() as u64);
    }
}

fn write(path: &Path, was_readable: bool) {
    const BTF: &[u8] = b"not BTF, but here";
    if embed(path, &[(".BTF", BTF)]).is_err() {
        return;
    }
    let once = fs::read(path).expect("it was just written");
    if was_readable {
        let elf = ElfFile::open(path).expect("it was readable before");
        let section = elf.section(".BTF").expect("it was just put there");
        assert_eq!(elf.bytes(section).expect("it is readable"), BTF);
    }
    embed(path, &[(".BTF", BTF)]).expect("it went well before");
    let twice = fs::read(path).expect("it was just written");
    assert!(once == twice, "a second run changes the file");
}
