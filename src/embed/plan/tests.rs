//! Layouts of hand-made files, in every class and byte order, sound and damaged.

use object::{Object, ObjectSection, elf};

use super::*;
use crate::embed::sample::{ELF64, FORMATS, Sample, edited, embedded, section, sections};

const ALLOC: u64 = elf::SHF_ALLOC.0;

fn long(byte: u8) -> Vec<u8> {
    vec![byte; 1000]
}

#[test]
fn a_new_section_is_the_last_and_all_others_stay() {
    for format in FORMATS {
        for loaded in [false, true] {
            let old = Sample::new(format, loaded).build();
            let new = embedded(&old, &[(".BTF", b"types"), (".BTF.base", b"base")]);
            let (before, after) = (sections(&old), sections(&new));
            assert_eq!(after[..2], before[..2]);
            assert_eq!(after[2].0, ".shstrtab");
            let (index, header, bytes) = section(&new, ".BTF").unwrap();
            assert_eq!((index, bytes.as_slice()), (4, b"types".as_slice()));
            let plain = SectionHeader {
                name: header.name,
                kind: elf::SHT_PROGBITS.0,
                offset: header.offset,
                size: 5,
                alignment: 1,
                ..SectionHeader::default()
            };
            assert_eq!(header, plain);
            assert_eq!(header.offset % CONTENT_ALIGNMENT, 0);
            assert_eq!(section(&new, ".BTF.base").unwrap().2, b"base");
            assert_eq!(after.len(), 5);
        }
    }
}

#[test]
fn twice_is_once_and_back_again_does_not_grow() {
    for format in FORMATS {
        for loaded in [false, true] {
            let old = Sample::new(format, loaded).build();
            let (a, b) = (long(1), long(2)[..10].to_vec());
            let with_a = embedded(&old, &[(".BTF", &a)]);
            assert_eq!(embedded(&with_a, &[(".BTF", &a)]), with_a);
            let with_b = embedded(&with_a, &[(".BTF", &b)]);
            assert_eq!(embedded(&old, &[(".BTF", &b)]), with_b);
            assert_eq!(embedded(&with_b, &[(".BTF", &a)]), with_a);
        }
    }
}

#[test]
fn a_removed_section_leaves_an_inactive_header_that_is_used_again() {
    let old = Sample::new(ELF64, false).build();
    let both = embedded(&old, &[(".BTF", b"types"), (".BTF.base", b"base")]);
    let edit = Edit { sections: &[(".BTF", b"other")], remove: &[".BTF.base", ".nowhere"] };
    let (one, placements) = edited(&both, &edit).unwrap();
    assert_eq!(placements, [Placement::Replaced]);
    assert_eq!(section(&one, ".BTF").unwrap().2, b"other");
    assert_eq!(section(&one, ".BTF.base"), None);
    assert_eq!(sections(&one)[4].1, SectionHeader::default());
    assert_eq!(edited(&one, &edit).unwrap().0, one);
    assert_eq!(embedded(&one, &[(".BTF", b"types"), (".BTF.base", b"base")]), both);
}

#[test]
fn removing_what_is_not_there_changes_nothing() {
    let old = Sample::new(ELF64, false).build();
    let edit = Edit { sections: &[], remove: &[".BTF"] };
    assert_eq!(edited(&old, &edit).unwrap(), (old, Vec::new()));
}

#[test]
fn a_section_in_the_middle_is_overwritten_if_it_fits_else_moved() {
    let sample = Sample::new(ELF64, false).with(".BTF", 0, b"0123456789").with(".last", 0, b"end");
    let old = sample.build();
    let at = section(&old, ".BTF").unwrap().1.offset;
    let less = embedded(&old, &[(".BTF", b"abc")]);
    assert_eq!(section(&less, ".BTF").unwrap().2, b"abc");
    assert_eq!(section(&less, ".BTF").unwrap().1.offset, at);
    assert_eq!(less.len(), old.len());
    let more = embedded(&old, &[(".BTF", &long(7))]);
    assert_eq!(section(&more, ".BTF").unwrap().2, long(7));
    assert_eq!(section(&more, ".last").unwrap(), section(&old, ".last").unwrap());
    assert_eq!(embedded(&more, &[(".BTF", &long(7))]), more);
    let again = embedded(&more, &[(".BTF", b"abc")]);
    assert_eq!(embedded(&again, &[(".BTF", &long(7))]), more);
}

#[test]
fn a_loaded_section_is_overwritten_only_by_as_many_bytes() {
    for format in FORMATS {
        let mut sample = Sample::new(format, true).with(".late", 0, b"end");
        sample
            .sections
            .insert(1, Sample::new(format, true).with(".BTF", ALLOC, b"12345").sections[2].clone());
        sample.sections[1].1.address = 0x1000;
        sample.loaded = 2;
        let old = sample.build();
        let at = section(&old, ".BTF").unwrap().1.offset as usize;

        let edit = Edit { sections: &[(".BTF", b"abcde")], remove: &[] };
        let (same, placements) = edited(&old, &edit).unwrap();
        assert_eq!(placements, [Placement::Replaced]);
        assert_eq!(section(&same, ".BTF").unwrap().1, section(&old, ".BTF").unwrap().1);
        let mut expected = old.clone();
        expected[at..at + 5].copy_from_slice(b"abcde");
        assert_eq!(same, expected);

        for bytes in [b"abc".as_slice(), &long(7)] {
            let edit = Edit { sections: &[(".BTF", bytes)], remove: &[] };
            let (new, placements) = edited(&old, &edit).unwrap();
            assert_eq!(placements, [Placement::Detached]);
            let (index, header, found) = section(&new, ".BTF").unwrap();
            assert_eq!((index, header.flags, header.address, found), (2, 0, 0, bytes.to_vec()));
            assert_eq!(new[at..at + 5], *b"12345");
            assert_eq!(edited(&new, &edit).unwrap().0, new);
        }
    }
}

#[test]
fn a_removed_loaded_section_stays_in_the_segment() {
    let mut sample = Sample::new(ELF64, true);
    sample.loaded = 2;
    let old = sample.build();
    let at = section(&old, ".debug").unwrap().1.offset as usize;
    let (new, _) = edited(&old, &Edit { sections: &[], remove: &[".debug"] }).unwrap();
    assert_eq!(section(&new, ".debug"), None);
    assert_eq!(new[at..at + 5], *b"dwarf");
    assert_eq!(section(&new, ".shstrtab").unwrap().0, 3);
}

#[test]
fn bytes_after_the_section_table_are_kept() {
    let mut sample = Sample::new(ELF64, false);
    sample.trailer = b"!".to_vec();
    let old = sample.build();
    let new = embedded(&old, &[(".BTF", b"types")]);
    assert_eq!(new[64..old.len()], old[64..]);
    assert_eq!(embedded(&new, &[(".BTF", b"types")]), new);
    let other = embedded(&new, &[(".BTF", &long(3))]);
    assert_eq!(other[64..old.len()], old[64..]);
    assert_eq!(embedded(&other, &[(".BTF", b"types")]), new);
}

#[test]
fn relocations_of_replaced_bytes_go() {
    let mut sample = Sample::new(ELF64, false).with(".BTF", 0, b"types").with(".rela.BTF", 0, b"r");
    *sample.last() = SectionHeader { kind: elf::SHT_RELA.0, info: 3, size: 1, ..*sample.last() };
    let sample = sample.with(".rela.text", 0, b"r");
    let new = embedded(&sample.build(), &[(".BTF", b"other")]);
    assert_eq!(section(&new, ".rela.BTF"), None);
    assert_eq!(section(&new, ".rela.text").unwrap().0, 5);
    assert_eq!(embedded(&new, &[(".BTF", b"other")]), new);
}

#[test]
fn a_second_section_of_the_name_is_removed() {
    let sample = Sample::new(ELF64, false).with(".BTF", 0, b"one").with(".BTF", 0, b"two");
    let new = embedded(&sample.build(), &[(".BTF", b"three")]);
    let names: Vec<_> = sections(&new).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, [".text", ".debug", ".BTF", "", ".shstrtab"]);
    assert_eq!(section(&new, ".BTF").unwrap().2, b"three");
}

#[test]
fn a_compressed_or_empty_section_becomes_a_plain_one() {
    let flag = elf::SHF_COMPRESSED.0;
    let mut sample = Sample::new(ELF64, false).with(".BTF", flag, b"zzzzzzzzzzz");
    let new = embedded(&sample.build(), &[(".BTF", b"types")]);
    assert_eq!(section(&new, ".BTF").unwrap().1.flags, 0);
    sample.last().kind = elf::SHT_NOBITS.0;
    let new = embedded(&sample.build(), &[(".BTF", b"types")]);
    assert_eq!(section(&new, ".BTF").unwrap().2, b"types");
}

#[test]
fn a_section_that_shares_its_bytes_is_not_overwritten() {
    let sample = Sample::new(ELF64, false).with(".BTF", 0, b"0123456789").with(".last", 0, b"end");
    let mut file = sample.build();
    let victim = section(&file, ".text").unwrap().1;
    let headers = crate::embed::image::read_headers(file.as_slice(), file.len() as u64).unwrap();
    let image = Image::parse(&headers).unwrap();
    let at = image.header.section_offset as usize + 3 * 64;
    let aliased = SectionHeader { offset: victim.offset, ..image.sections.get(3).unwrap() };
    file[at..at + 64].copy_from_slice(&aliased.encode(ELF64).unwrap());
    let new = embedded(&file, &[(".BTF", b"abc")]);
    assert_eq!(section(&new, ".text").unwrap().2, b"instructions");
    assert_eq!(section(&new, ".BTF").unwrap().2, b"abc");
}

#[test]
fn a_name_that_is_the_end_of_another_is_shared() {
    let old = Sample::new(ELF64, false).with(".rel.BTF", 0, b"x").build();
    let new = embedded(&old, &[(".BTF", b"types")]);
    assert_eq!(section(&new, ".shstrtab").unwrap().2, section(&old, ".shstrtab").unwrap().2);
    assert_eq!(section(&new, ".BTF").unwrap().2, b"types");
}

#[test]
fn more_sections_than_the_header_can_count() {
    for format in FORMATS {
        let mut sample = Sample::new(format, false);
        while sample.sections.len() < 0xfefd {
            sample = sample.with(".many", 0, b"");
        }
        // One index below the limit; the new section is the first beyond it.
        let old = sample.build();
        let new = embedded(&old, &[(".BTF", b"types")]);
        let header = crate::embed::record::FileHeader::decode(&new).unwrap();
        assert_eq!((header.section_count, header.names_index), (0, 0xfefe));
        assert_eq!(section(&new, ".BTF").unwrap().0, 0xfeff);
        let more = embedded(&new, &[(".BTF", b"types"), (".BTF.base", b"base")]);
        assert_eq!(section(&more, ".BTF.base").unwrap().0, 0xff00);
        assert_eq!(embedded(&more, &[(".BTF", b"types"), (".BTF.base", b"base")]), more);
    }
}

#[test]
fn requests_that_cannot_be_met() {
    let file = Sample::new(ELF64, false).build();
    let error = |sections: &[(&str, &[u8])], remove: &[&str]| {
        edited(&file, &Edit { sections, remove }).unwrap_err().to_string()
    };
    assert!(error(&[("", b"x")], &[]).contains("not a section name"));
    assert!(error(&[("a\0b", b"x")], &[]).contains("not a section name"));
    assert!(error(&[(".BTF", b"x"), (".BTF", b"y")], &[]).contains("named twice"));
    assert!(error(&[(".BTF", b"x")], &[".BTF"]).contains("named twice"));
    assert!(error(&[(".shstrtab", b"x")], &[]).contains("names of the sections"));
    assert!(error(&[], &[".shstrtab"]).contains("names of the sections"));
}

#[test]
fn damaged_files_are_told_apart() {
    let good = Sample::new(ELF64, true).build();
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut file = good.clone();
        change(&mut file);
        edited(&file, &Edit { sections: &[(".BTF", b"x")], remove: &[] }).unwrap_err()
    };
    let set = |at: usize, bytes: &'static [u8]| {
        move |file: &mut Vec<u8>| file[at..at + bytes.len()].copy_from_slice(bytes)
    };
    assert!(matches!(error(&|file| file.clear()), EmbedError::NotElf));
    assert!(matches!(error(&|file| file.truncate(63)), EmbedError::NotElf));
    assert!(matches!(error(&set(0, b"MZ")), EmbedError::NotElf));
    assert!(matches!(error(&set(40, &[0; 8])), EmbedError::NoSectionTable));
    assert!(matches!(error(&set(40, &[0xff; 8])), EmbedError::Table { .. }));
    assert!(matches!(error(&|file| file.truncate(200)), EmbedError::Table { .. }));
    assert!(matches!(error(&set(54, &[1])), EmbedError::Header { field: "e_phentsize", .. }));
    assert!(matches!(error(&set(58, &[1])), EmbedError::Header { field: "e_shentsize", .. }));
    assert!(matches!(error(&set(62, &[0])), EmbedError::NoSectionNames));
    assert!(matches!(error(&set(62, &[1])), EmbedError::NoSectionNames));
    assert!(matches!(error(&set(62, &[9])), EmbedError::NoSectionNames));
    // The size of the only segment, the name and the offset of section 1.
    assert!(matches!(error(&set(64 + 32, &[0xff; 8])), EmbedError::Segment { index: 0, .. }));
    let table = good.len() - 4 * 64;
    assert!(matches!(error(&set(table + 64, &[99])), EmbedError::SectionName { index: 1, .. }));
    let section = error(&set(table + 64 + 24, &[0xff; 8]));
    assert!(matches!(section, EmbedError::Section { index: 1, .. }));
    assert!(section.to_string().contains("`.text`"));
    let signed = error(&|file| file.extend(b"~Module signature appended~\n"));
    assert!(matches!(signed, EmbedError::Signed));
}

#[test]
fn a_32_bit_file_does_not_grow_beyond_4_gib() {
    let bytes = Sample::new(FORMATS[0], false).build();
    let mut headers =
        crate::embed::image::read_headers(bytes.as_slice(), bytes.len() as u64).unwrap();
    headers.length = u64::from(u32::MAX) - 10;
    let image = Image::parse(&headers).unwrap();
    let edit = Edit { sections: &[(".BTF", b"types")], remove: &[] };
    assert!(matches!(plan(&image, &edit), Err(EmbedError::TooLarge)));
}

#[test]
fn a_table_too_large_to_be_real_is_not_read() {
    let mut bytes = Sample::new(ELF64, false).build();
    // `e_shnum` 0 leaves the count to section 0.
    bytes[60..62].copy_from_slice(&[0, 0]);
    let table = bytes.len() - 4 * 64;
    bytes[table + 32..table + 40].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let error = crate::embed::image::read_headers(bytes.as_slice(), u64::MAX >> 1);
    assert!(error.is_err());
}

/// xorshift64: the same damage in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Bytes that matter: the headers at both ends of the file.
fn damaged(file: &[u8], tail: usize, random: &mut Random) -> Vec<u8> {
    const TELLING: [u8; 6] = [0, 1, 0x40, 0x7f, 0xfe, 0xff];
    let mut file = file.to_vec();
    for _ in 0..=random.below(4) {
        let at = match random.below(2) {
            0 => random.below(120),
            _ => file.len() - 1 - random.below(tail),
        };
        file[at] = match random.below(2) {
            0 => TELLING[random.below(TELLING.len())],
            _ => file[at] ^ 1 << random.below(8),
        };
    }
    if random.below(8) == 0 {
        file.truncate(random.below(file.len()));
    }
    file
}

#[test]
fn damage_gives_an_error_or_a_file_that_is_whole() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut good = 0;
    for format in FORMATS {
        let sample = Sample::new(format, true).with(".BTF", 0, b"0123456789");
        let file = sample.with(".BTF.base", 0, b"base").with(".last", 0, b"end").build();
        let tail = 7 * format.section_header_size() + 60;
        for _ in 0..2000 {
            let file = damaged(&file, tail, &mut random);
            let bytes = long(9)[..random.below(30)].to_vec();
            let edit = Edit { sections: &[(".BTF", &bytes)], remove: &[".BTF.base"] };
            let Ok((new, _)) = edited(&file, &edit) else {
                continue;
            };
            good += 1;
            assert_eq!(section(&new, ".BTF").unwrap().2, bytes);
            assert_eq!(section(&new, ".BTF.base"), None);
            assert_eq!(edited(&new, &edit).unwrap().0, new);
            check_with_object(&new, &bytes);
        }
    }
    assert!(good > 1000, "only {good} of the damaged files could be edited");
}

/// The crate `object` wants aligned program headers, which damage may have moved.
fn check_with_object(file: &[u8], bytes: &[u8]) {
    if let Ok(parsed) = object::File::parse(file) {
        let section = parsed.section_by_name(".BTF").unwrap();
        assert_eq!(section.data().unwrap(), bytes);
    }
}
