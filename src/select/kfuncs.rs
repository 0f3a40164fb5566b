//! Kernel functions listed in the sets of `.BTF_ids` (spec/encoding section 6).

use super::object::Kfunc;
use crate::elf::{ElfError, ElfFile, Section, SymbolTable};

const SET_PREFIX: &[u8] = b"__BTF_ID__set8__";
const FUNCTION_PREFIX: &[u8] = b"__BTF_ID__func__";
/// `BTF_SET8_KFUNCS` in the flags of a set.
const KFUNC_SET: u32 = 1;

/// Name and flags of every kfunc, in symbol order: a later entry of a name wins. The section's bytes
/// are in `main` if `elf` is a debug file that has none.
///
/// # Errors
/// When the section cannot be read or a set lies outside of it.
pub fn collect(
    elf: &ElfFile,
    main: &ElfFile,
    symbols: &SymbolTable,
) -> Result<Vec<Kfunc>, ElfError> {
    let Some(index) = elf.sections().iter().position(|section| section.name == b".BTF_ids") else {
        return Ok(Vec::new());
    };
    let section = &elf.sections()[index];
    let ids = match main.section(".BTF_ids").filter(|_| !section.has_bytes()) {
        Some(section) => Ids::read(main, section)?,
        None => Ids::read(elf, section)?,
    };
    let own = || symbols.symbols().iter().filter(|symbol| symbol.section as usize == index);
    let mut sets = Vec::new();
    for symbol in own() {
        let is_set = symbols.name(symbol).starts_with(SET_PREFIX);
        let flags = ids.word(symbol.value, 4);
        if is_set && flags.is_some_and(|flags| flags & KFUNC_SET != 0) {
            sets.push(symbol.value..symbol.value.saturating_add(symbol.size));
        }
    }
    let mut kfuncs = Vec::new();
    for symbol in own() {
        let Some(name) = function_name(symbols.name(symbol)) else {
            continue;
        };
        if sets.iter().any(|set| set.contains(&symbol.value)) {
            let flags = ids.word(symbol.value, 4).ok_or_else(|| {
                ElfError::Damaged(format!(
                    "kfunc `{}` lies outside of `.BTF_ids`",
                    String::from_utf8_lossy(name)
                ))
            })?;
            kfuncs.push((name.to_vec(), flags));
        }
    }
    Ok(kfuncs)
}

/// `__BTF_ID__func__vfs_close__1` -> `vfs_close`.
fn function_name(symbol: &[u8]) -> Option<&[u8]> {
    let rest = symbol.strip_prefix(FUNCTION_PREFIX)?;
    let last = memchr::memrchr(b'_', rest)?;
    let name = rest.get(..last.checked_sub(1)?)?;
    (rest[last - 1] == b'_').then_some(name)
}

/// The words of `.BTF_ids`.
struct Ids {
    bytes: Vec<u8>,
    address: u64,
    big_endian: bool,
}

impl Ids {
    fn read(elf: &ElfFile, section: &Section) -> Result<Self, ElfError> {
        let bytes = elf.bytes(section)?;
        // Symbols of a relocatable file are relative to the section.
        Ok(Self { bytes, address: section.address, big_endian: elf.target().big_endian })
    }

    /// The word `distance` bytes after `address`.
    fn word(&self, address: u64, distance: u64) -> Option<u32> {
        let start = address.checked_sub(self.address)?.checked_add(distance)?;
        let rest = self.bytes.get(usize::try_from(start).ok()?..)?;
        let bytes = *rest.first_chunk()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_stripped_from_the_name() {
        assert_eq!(function_name(b"__BTF_ID__func__vfs_close__1"), Some(&b"vfs_close"[..]));
        assert_eq!(function_name(b"__BTF_ID__func___"), None);
        assert_eq!(function_name(b"__BTF_ID__struct__file__1"), None);
    }
}
