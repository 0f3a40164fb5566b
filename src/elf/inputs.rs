//! Which sections can change a result: the ones whose bytes the encoder reads. They are what the
//! key of a file is made of, so nothing may be read that is not named here:
//! [`ElfFile::open_to_encode`] checks that in debug builds.
//!
//! [`ElfFile::open_to_encode`]: super::ElfFile::open_to_encode

use object::elf::{SHF_ALLOC, SHT_REL, SHT_RELA};

use super::section::Section;
use super::symbols;

/// The debug sections that DWARF is decoded from, as `.debug_*` or `.zdebug_*`. Line tables, ranges,
/// frames and indices are not among them. Adding one changes every key: bump `SCHEMA_VERSION`.
const DEBUG: [&[u8]; 9] = [
    b"info",
    b"types",
    b"abbrev",
    b"str",
    b"line_str",
    b"str_offsets",
    b"addr",
    b"loclists",
    b"loc",
];

/// For each section whether its bytes can change a result.
pub(super) fn of(sections: &[Section], is_relocatable: bool) -> Vec<bool> {
    let mut inputs: Vec<bool> = sections.iter().map(has_input_name).collect();
    if is_relocatable {
        let applies = |section: &Section| {
            let target = usize::try_from(section.info).unwrap_or(usize::MAX);
            is_relocation(section) && sections.get(target).is_some_and(has_input_name)
        };
        inputs.iter_mut().zip(sections).for_each(|(input, section)| *input |= applies(section));
    }
    for index in symbols::sections(sections) {
        inputs[index] = true;
    }
    inputs
}

fn has_input_name(section: &Section) -> bool {
    let name = &section.name[..];
    let debug = name.strip_prefix(b".debug_").or_else(|| name.strip_prefix(b".zdebug_"));
    debug.is_some_and(|rest| DEBUG.contains(&rest)) || name == b".BTF_ids"
}

fn is_relocation(section: &Section) -> bool {
    matches!(section.kind, SHT_REL | SHT_RELA)
}

/// Whether the header of a section can change a result even if its bytes cannot: addresses are
/// looked up among the sections that are loaded.
pub(super) fn is_loaded(section: &Section) -> bool {
    section.flags.0 & SHF_ALLOC.0 != 0
}
