//! Whatever byte of a file is changed: if the fragment differs, the key differs, too.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use btfcache::btf::kind::{Kind, kind_of, map_names, map_refs};
use btfcache::dwarf::sections::Dwarf;
use btfcache::elf::ElfFile;
use btfcache::fragment::{Decoder, Fragment, IndexType};
use btfcache::names::NameId;
use btfcache::pool::{Key, Pool, Ref, Target};
use btfcache::unit_key::{KeyMaker, Masks, Sources, UnitKey};

use super::{options, unit_bytes};
use crate::dwarf_builder::compiled;
use crate::harness::skip;

const PROGRAMS: [(&str, &str); 9] = [
    ("gcc", "-gdwarf-2 -gstrict-dwarf"),
    ("gcc", "-gdwarf-3"),
    ("gcc", "-gdwarf-4"),
    ("gcc", "-gdwarf-5"),
    ("gcc", "-gdwarf64"),
    ("clang", "-gdwarf-2"),
    ("clang", "-gdwarf-4"),
    ("clang", "-gdwarf-5"),
    ("clang", "-gdwarf-5 -gdwarf64"),
];

/// What a key is made from.
const SECTIONS: [&str; 8] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_str",
    ".debug_line_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_loclists",
    ".debug_loc",
];

/// Sections of up to so many bytes have all of them changed, of larger ones a part.
const MUTANTS: u64 = 1500;

/// Gives names numbers that are the same in all files.
#[derive(Default)]
struct Texts(HashMap<Vec<u8>, u32>);

impl Texts {
    fn number(&mut self, text: Vec<u8>) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(text).or_insert(next)
    }

    fn name(&mut self, dwarf: &Dwarf<'_>, name: NameId) -> u32 {
        self.number(dwarf.names.to_vec(name))
    }

    fn key(&mut self, dwarf: &Dwarf<'_>, key: Key) -> u32 {
        let mut text = format!("{:?} ", key.namespace).into_bytes();
        text.extend(dwarf.names.to_vec(key.name));
        self.number(text)
    }

    fn reference(&mut self, dwarf: &Dwarf<'_>, reference: u32) -> u32 {
        match Ref(reference).target() {
            Target::Key(key) => self.key(dwarf, key) | 1 << 31,
            Target::Class(class) => class.0 | 1 << 30,
            _ => 0,
        }
    }

    /// A record with names and references that can be compared.
    fn record(&mut self, dwarf: &Dwarf<'_>, record: &[u32]) -> Vec<u32> {
        let mut words = record.to_vec();
        let is_function = kind_of(record) == Kind::Func;
        map_refs(&mut words, |reference| self.reference(dwarf, reference));
        map_names(&mut words, |name| self.name(dwarf, NameId(name)));
        if is_function {
            words[4..].chunks_exact_mut(2).for_each(|tag| {
                tag[0] = self.name(dwarf, NameId(tag[0]));
            });
        }
        words
    }

    /// All that a fragment says, addresses aside.
    fn meaning(&mut self, dwarf: &Dwarf<'_>, pool: &Pool, fragment: &Fragment) -> Vec<Vec<u32>> {
        let mut all: Vec<Vec<u32>> =
            pool.ids().map(|class| self.record(dwarf, pool.record(class))).collect();
        let Fragment { types, tags, aliases, functions, variables, .. } = fragment;
        all.push(types.iter().map(|class| class.0).collect());
        all.push(tags.iter().map(|class| class.0).collect());
        let alias =
            |(key, class): &(Key, btfcache::pool::ClassId)| [self.key(dwarf, *key), class.0];
        all.push(aliases.iter().flat_map(alias).collect());
        all.push(functions.iter().flat_map(|function| [function.class.0, function.die]).collect());
        for variable in variables {
            let mut words = vec![
                self.name(dwarf, variable.name),
                self.reference(dwarf, variable.ty.0),
                variable.is_external.into(),
                variable.size as u32,
                (variable.size >> 32) as u32,
                variable.die,
            ];
            words.extend(variable.tags.iter().map(|&tag| self.name(dwarf, tag)));
            all.push(words);
        }
        all.push(match fragment.index_type {
            IndexType::None => vec![],
            IndexType::Missing => vec![u32::MAX],
            IndexType::Int(class) => vec![class.0],
        });
        all.push(vec![fragment.has_complete_types.into(), fragment.draws_on_others.into()]);
        all
    }
}

/// What a file says.
#[derive(PartialEq)]
struct Said {
    /// The fragment and what could not be expressed, or `None` if it could not be read.
    meaning: Option<(Option<Vec<Vec<u32>>>, String)>,
    key: Option<(UnitKey, Masks)>,
}

/// Reads a file whose only unit may be damaged; `None` if it has no unit. `masks` are those of another.
fn read(path: &Path, texts: &mut Texts, other: Option<&(UnitKey, Masks)>) -> Option<Said> {
    let options = options();
    let elf = ElfFile::open(path).ok()?;
    let dwarf = Dwarf::load(&elf, None, None, &options).ok()??;
    if dwarf.units.is_empty() {
        return None;
    }
    let mut decoder = Decoder::new(&dwarf, &options);
    let fragment = decoder.decode(0);
    let meaning = fragment.ok().map(|fragment| {
        let meaning = fragment.map(|it| texts.meaning(&dwarf, &decoder.pool, &it));
        (meaning, decoder.notes.to_string())
    });
    let sources = Sources::new(&dwarf, &options);
    let (mut maker, mut buffer) = (KeyMaker::new(&sources), Vec::new());
    let bytes = unit_bytes(&dwarf, 0, &mut buffer);
    let walked = maker.by_walk(0, bytes);
    let key = walked.map(|walked| (walked.key, walked.masks.clone()));
    if let Some((key, masks)) = &key {
        assert_eq!(maker.by_positions(0, bytes, masks), Some(*key), "its own masks");
    }
    if let Some((other, masks)) = other {
        let by_positions = maker.by_positions(0, bytes, masks) == Some(*other);
        let by_walk = key.as_ref().is_some_and(|key| key.0 == *other);
        assert_eq!(by_positions, by_walk, "the masks of another");
    }
    Some(Said { meaning, key })
}

#[test]
fn whenever_the_fragment_differs_the_key_does() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("linked.so");
    for (compiler, flags) in PROGRAMS {
        let flags = format!("-g {flags} -fPIC -shared -nostdlib");
        let Some(path) = compiled(&output, compiler, &flags) else {
            skip("unit_key::whenever_the_fragment_differs_the_key_does", &format!("no {compiler}"));
            continue;
        };
        mutate(&path, &format!("{compiler} {flags}"));
    }
}

fn mutate(path: &Path, title: &str) {
    let file = fs::read(path).unwrap();
    let elf = ElfFile::open(path).unwrap();
    let mut texts = Texts::default();
    let plain = read(path, &mut texts, None).unwrap();
    let key = plain.key.as_ref().expect(title);
    let mutant = path.with_extension("mutant");
    let (mut kept, mut moved) = (0, 0);
    for name in SECTIONS {
        let Some(section) = elf.section(name) else {
            continue;
        };
        let step = (section.size / MUTANTS).max(1);
        for offset in (0..section.size).step_by(step as usize) {
            let mut bytes = file.clone();
            let place = (section.offset + offset) as usize;
            bytes[place] ^= [0x01, 0x80, 0x04, 0xff, 0x20][place % 5];
            fs::write(&mutant, bytes).unwrap();
            let Some(said) = read(&mutant, &mut texts, Some(key)) else {
                continue;
            };
            if said.key.as_ref().is_some_and(|(other, _)| *other == key.0) {
                let is_same = said.meaning == plain.meaning;
                assert!(is_same, "{title}: byte {offset:#x} of {name} changes the fragment only");
                kept += 1;
            } else {
                moved += 1;
            }
        }
    }
    assert!(kept > 100 && moved > 100, "{title}: {kept} mutants kept the key, {moved} did not");
}
