//! Which changes of a file move its key: those that can change the result, and no others.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use btfcache::elf::ElfFile;
use btfcache::options::{Features, Options};
use btfcache::pipeline;
use btfcache::store::content_key;
use btfcache::timing::Timing;
use btfcache_schema::Key;

use super::Bench;

fn key(path: &Path) -> Option<Key> {
    content_key(&ElfFile::open(path).ok()?).ok()
}

fn result(path: &Path) -> Option<Vec<u8>> {
    let options = Options { features: Features::DEFAULT, ..Options::default() };
    let encoded = pipeline::encode(path, None, &options, &Timing::default()).ok()?;
    Some(encoded.btf)
}

/// The files to look at: linked and relocatable, with debug sections as they are and compressed.
fn files(bench: &Bench) -> Vec<std::path::PathBuf> {
    let compile = |name: &str, flags: &[&str]| {
        let path = bench.path(name);
        let output = std::process::Command::new("gcc")
            .args(["-g", "source.c", "-o", name])
            .args(flags)
            .current_dir(path.parent().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        path
    };
    vec![
        bench.path("program"),
        compile("program.o", &["-c"]),
        compile("compressed", &["-gz=zlib"]),
        compile("old", &["-gdwarf-4", "-gz=none"]),
    ]
}

#[test]
fn every_byte_that_is_read_moves_the_key_and_no_other() {
    let Some(bench) = Bench::new("every_byte_that_is_read_moves_the_key_and_no_other") else {
        return;
    };
    for path in files(&bench) {
        let plain = key(&path).unwrap();
        let expected = result(&path).unwrap();
        assert!(!expected.is_empty());
        let bytes = fs::read(&path).unwrap();
        let copy = bench.path("copy");
        let elf = ElfFile::open(&path).unwrap();
        let (mut inputs, mut others) = (0, 0);
        for section in
            elf.sections().iter().filter(|section| section.has_bytes() && section.size > 0)
        {
            let is_input = elf.is_input(section);
            let name = String::from_utf8_lossy(&section.name);
            // The names of sections are theirs, wherever they are stored.
            if name == ".shstrtab" {
                continue;
            }
            *(if is_input { &mut inputs } else { &mut others }) += 1;
            for at in [0, section.size / 3, section.size / 2, section.size - 1] {
                fs::write(&copy, &bytes).unwrap();
                let place = section.offset + at;
                let file = fs::File::options().write(true).open(&copy).unwrap();
                file.write_all_at(&[bytes[place as usize] ^ 0x41], place).unwrap();
                let file_name = path.file_name().unwrap();
                let moved = key(&copy).unwrap() != plain;
                assert_eq!(moved, is_input, "{file_name:?}: `{name}` at {at:#x}");
                if !is_input {
                    assert!(
                        result(&copy).unwrap() == expected,
                        "{file_name:?}: `{name}` at {at:#x}"
                    );
                }
            }
        }
        assert!(inputs >= 5 && others >= 5, "{inputs} {others}");
    }
}

/// Every field of every section header, and of the file header.
#[test]
fn headers_move_the_key_where_they_can_change_the_result() {
    let Some(bench) = Bench::new("headers_move_the_key_where_they_can_change_the_result") else {
        return;
    };
    for path in files(&bench) {
        let plain = key(&path).unwrap();
        let expected = result(&path);
        let bytes = fs::read(&path).unwrap();
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let count = u16::from_le_bytes(bytes[60..62].try_into().unwrap()) as usize;
        let places = (0..64).chain((0..count * 64).map(|at| table + at));
        let copy = bench.path("copy");
        let mut unmoved = 0;
        for place in places {
            let mut changed = bytes.clone();
            changed[place] ^= 0x01;
            fs::write(&copy, &changed).unwrap();
            // A file that cannot be read has neither key nor result.
            if key(&copy) == Some(plain) {
                unmoved += 1;
                assert!(result(&copy) == expected, "{path:?} at {place:#x}");
            }
        }
        assert!(unmoved > 100, "{unmoved}");
    }
}

#[test]
fn where_things_lie_does_not_move_the_key() {
    let Some(bench) = Bench::new("where_things_lie_does_not_move_the_key") else { return };
    let path = bench.path("program");
    let plain = key(&path).unwrap();
    let copy = bench.path("copy");
    fs::copy(&path, &copy).unwrap();
    fs::File::open(&copy).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(key(&copy), Some(plain));
    for arguments in [
        &["--add-section", ".note.other=source.c"][..],
        &["--remove-section", ".comment", "--remove-section", ".debug_line"],
        &["--remove-section", ".debug_aranges"],
    ] {
        let output = std::process::Command::new("objcopy")
            .args(arguments)
            .args([&path, &copy])
            .current_dir(path.parent().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let same = result(&copy) == result(&path);
        assert!(same, "{arguments:?}");
    }
    bench.quiet("encode --in-place copy");
    let before = key(&copy);
    bench.quiet("encode --in-place --features=var copy");
    assert_eq!(key(&copy), before, "what was put in does not count");
}
