//! Looks at what a plan makes before it is carried out. Takes a source and a plan, gives an error
//! unless the new file can be read back and a second edit would change nothing.
//!
//! In a sound file no two headers or sections share a byte, and then this holds. In a damaged one
//! the file header may lie in the name table, so that writing the one renames the sections; a
//! relocation section may be about a section that does not exist until one is added; and so on.
//! Instead of telling all such cases apart, the new file is planned for once more.

use std::io;

use super::image::{self, Image, ReadError, Source};
use super::plan::{Plan, plan};
use super::{Edit, EmbedError};

/// How much of a file is compared at a time.
const COMPARE_SIZE: usize = 64 << 10;

/// Checks the plan that was made of `edit` for the file behind `source`.
pub(super) fn check(
    source: &(impl Source + ?Sized),
    edit: &Edit<'_>,
    first: &Plan<'_>,
) -> Result<(), ReadError> {
    let planned = Planned { source, plan: first };
    match is_stable(&planned, edit) {
        Ok(true) => Ok(()),
        Ok(false) | Err(ReadError::Elf(_)) => Err(EmbedError::Entangled.into()),
        Err(ReadError::Io(error)) => Err(error.into()),
    }
}

fn is_stable<S: Source + ?Sized>(
    planned: &Planned<'_, S>,
    edit: &Edit<'_>,
) -> Result<bool, ReadError> {
    let headers = image::read_headers(planned, planned.plan.length)?;
    match plan(&Image::parse(&headers)?, edit)? {
        Some(second) => Ok(is_carried_out(planned, headers.length, &second)?),
        None => Ok(true),
    }
}

/// Whether the file, of `length` bytes, is already what the plan makes of it.
pub(super) fn is_carried_out(
    file: &(impl Source + ?Sized),
    length: u64,
    plan: &Plan<'_>,
) -> io::Result<bool> {
    if length != plan.length {
        return Ok(false);
    }
    let mut buffer = vec![0; COMPARE_SIZE];
    for patch in &plan.patches {
        let mut offset = patch.offset;
        for expected in patch.bytes.chunks(COMPARE_SIZE) {
            let found = &mut buffer[..expected.len()];
            file.read_exact_at(found, offset)?;
            if found != expected {
                return Ok(false);
            }
            offset += expected.len() as u64;
        }
    }
    Ok(true)
}

/// The file that a plan makes of another, to be read without being written.
struct Planned<'a, S: ?Sized> {
    source: &'a S,
    plan: &'a Plan<'a>,
}

impl<S: Source + ?Sized> Source for Planned<'_, S> {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.plan.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let kept = self.plan.keep.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if kept > 0 {
            self.source.read_exact_at(&mut buffer[..kept], offset)?;
        }
        buffer[kept..].fill(0);
        for patch in &self.plan.patches {
            lay_over(buffer, offset, &patch.bytes, patch.offset);
        }
        Ok(())
    }
}

/// Copies to `buffer`, which is at `offset` of a file, what it has in common with `bytes`, which
/// are at `start` of it.
fn lay_over(buffer: &mut [u8], offset: u64, bytes: &[u8], start: u64) {
    let first = offset.max(start);
    let end = (offset + buffer.len() as u64).min(start + bytes.len() as u64);
    if first < end {
        let size = (end - first) as usize;
        let (to, from) = ((first - offset) as usize, (first - start) as usize);
        buffer[to..to + size].copy_from_slice(&bytes[from..from + size]);
    }
}

#[cfg(test)]
mod tests {
    use object::elf;

    use super::*;
    use crate::embed::plan::Patch;
    use crate::embed::record::{FileHeader, SectionHeader};
    use crate::embed::sample::{ELF64, Sample, edited, embedded};

    const EDIT: Edit<'_> = Edit { sections: &[(".BTF", b"not BTF, but here")], remove: &[] };

    /// A file whose last section but one of `.shstrtab` has this header.
    fn with_header(change: impl Fn(SectionHeader) -> SectionHeader) -> Vec<u8> {
        let mut sample = Sample::new(ELF64, false).with(".odd", 0, b"bytes of an odd section");
        *sample.last() = change(*sample.last());
        sample.build()
    }

    /// Found by fuzzing: a section of relocations for one that is only added. Once it is there, the
    /// relocations would be taken for those of its old bytes.
    #[test]
    fn relocations_for_a_section_to_come_are_refused() {
        let (kind, sections) = (elf::SHT_RELA.0, 5);
        for info in 0..8 {
            let file = with_header(|header| SectionHeader { kind, info, ..header });
            let result = edited(&file, &EDIT);
            assert_eq!(matches!(result, Err(EmbedError::Entangled)), info == sections, "{info}");
        }
    }

    /// A section may share bytes with a header or another section, wherever it is and whatever it
    /// is called: either nothing comes of it, or a second edit changes nothing.
    #[test]
    fn sections_that_lie_over_others_are_refused_or_stay() {
        const KINDS: [u32; 6] = [0, 1, 2, 3, 4, 0x5073_aaa7];
        let format = ELF64;
        for name in [".odd", ".BTF", ".shstrtab", ".symtab"] {
            let file = Sample::new(format, false).with(name, 0, b"odd").with(".a", 0, b"b").build();
            for (offset, size) in lies(file.len() as u64) {
                for kind in KINDS {
                    expect_to_stay(&lied(&file, 3, kind, offset, size));
                }
                let names = 5;
                expect_to_stay(&lied(&file, names, elf::SHT_STRTAB.0, offset, size));
            }
        }
    }

    /// Places in a file of this length, and sizes.
    fn lies(length: u64) -> Vec<(u64, u64)> {
        let starts = (0..length).step_by(16);
        starts
            .flat_map(|start| [1, 8, 70, length / 2, length - start].map(|n| (start, n)))
            .collect()
    }

    /// The file with another kind and place for a section.
    fn lied(file: &[u8], index: usize, kind: u32, offset: u64, size: u64) -> Vec<u8> {
        let table = FileHeader::decode(file).unwrap().section_offset as usize;
        let at = table + index * ELF64.section_header_size();
        let old = SectionHeader::decode(ELF64, &file[at..]).unwrap();
        let new = SectionHeader { kind, offset, size, ..old }.encode(ELF64).unwrap();
        let mut file = file.to_vec();
        file[at..at + new.len()].copy_from_slice(&new);
        file
    }

    fn expect_to_stay(file: &[u8]) {
        if let Ok((new, _)) = edited(file, &EDIT) {
            assert_eq!(embedded(&new, EDIT.sections), new);
        }
    }

    /// Found by fuzzing: the first header, which is no section, claims the name.
    #[test]
    fn the_first_header_is_no_section_whatever_it_says() {
        let file = embedded(&Sample::new(ELF64, false).build(), &[(".BTF", b"old")]);
        let table = FileHeader::decode(&file).unwrap().section_offset as usize;
        let record = ELF64.section_header_size();
        let named = SectionHeader::decode(ELF64, &file[table + 4 * record..]).unwrap();
        let claim = SectionHeader { kind: elf::SHT_PROGBITS.0, size: 0, ..named };
        let mut lying = file.clone();
        lying[table..table + record].copy_from_slice(&claim.encode(ELF64).unwrap());
        let new = embedded(&lying, EDIT.sections);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), new).unwrap();
        let elf = crate::elf::ElfFile::open(file.path()).unwrap();
        let section = elf.section(".BTF").expect("it was put there");
        assert_eq!(elf.bytes(section).unwrap(), EDIT.sections[0].1);
    }

    #[test]
    fn a_planned_file_is_read_as_it_will_be() {
        let patch = |offset, bytes: &'static [u8]| Patch { offset, bytes: bytes.into() };
        let patches = vec![patch(2, b"XY"), patch(3, b"Z"), patch(9, b"end")];
        let plan = Plan { keep: 5, length: 12, patches, placements: Vec::new() };
        let planned = Planned { source: &b"0123456789"[..], plan: &plan };
        let whole = b"01XZ4\0\0\0\0end";
        for start in 0..=whole.len() {
            for end in start..=whole.len() {
                let mut buffer = vec![7; end - start];
                planned.read_exact_at(&mut buffer, start as u64).unwrap();
                assert_eq!(buffer, whole[start..end]);
            }
        }
        assert!(planned.read_exact_at(&mut [0; 2], 11).is_err());
        assert!(planned.read_exact_at(&mut [0; 2], u64::MAX).is_err());
    }
}
