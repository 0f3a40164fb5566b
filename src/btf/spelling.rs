//! How names are spelt that C does not have but other languages do: `Stack<int>`, `operator=`, `~Stack`,
//! names with `$` or in other alphabets. The kernel refuses a whole image for one of them.
//!
//! Each byte that no identifier has becomes `_`, and a digit at the start gets one in front:
//! `Stack<int>` is `Stack_int_`. What would then be longer than kernels before 6.1 take keeps its
//! beginning, and ends in a hash of the whole name, so that it stays apart from others. The same name
//! is always spelt the same way; different ones can become the same, which BTF allows.

use xxhash_rust::xxh3::xxh3_64;

/// Longest name that every kernel takes (`KSYM_NAME_LEN` was 128 up to Linux 6.0).
const MAX_LENGTH: usize = 127;
/// What a cut name ends in: `_` and 16 digits.
const HASH_LENGTH: usize = 17;

/// An identifier for `name`, which is not empty and is none.
#[must_use]
pub fn as_identifier(name: &[u8]) -> Vec<u8> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let mut spelt = Vec::with_capacity(name.len() + 1);
    if name.first().is_some_and(u8::is_ascii_digit) {
        spelt.push(b'_');
    }
    spelt.extend(name.iter().map(|&byte| if is_allowed(byte) { byte } else { b'_' }));
    if spelt.len() > MAX_LENGTH {
        spelt.truncate(MAX_LENGTH - HASH_LENGTH);
        spelt.extend_from_slice(format!("_{:016x}", xxh3_64(name)).as_bytes());
    }
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::verify::is_identifier;

    #[test]
    fn names_of_other_languages() {
        for (name, expected) in [
            ("Stack<int>", "Stack_int_"),
            ("operator=", "operator_"),
            ("~Stack", "_Stack"),
            ("_vptr$Base", "_vptr_Base"),
            ("(u8, &str)", "_u8___str_"),
            ("0", "_0"),
            ("Größe", "Gr____e"),
            ("two words", "two_words"),
        ] {
            assert_eq!(as_identifier(name.as_bytes()), expected.as_bytes());
        }
    }

    #[test]
    fn long_names_stay_apart_and_within_the_limit() {
        let long = |end: char| as_identifier(format!("T<{}{end}>", "int, ".repeat(100)).as_bytes());
        let (one, two) = (long('a'), long('b'));
        assert!(one != two && one.len() == MAX_LENGTH && two.len() == MAX_LENGTH);
        assert!(is_identifier(&one) && one.starts_with(b"T_int__int__"));
        assert_eq!(long('a'), one);
        let exact = format!("9{}", "x".repeat(MAX_LENGTH - 1));
        assert_eq!(as_identifier(exact.as_bytes()).len(), MAX_LENGTH);
    }
}
