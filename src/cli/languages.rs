//! Language lists: takes the words of `--lang` and `--lang_exclude`, gives `DW_AT_language` values
//! (spec/encoding 1.2.2).

use gimli::constants as dw;

/// The names that are understood. Later codes (C17, Zig...) have no name in pahole either.
const LANGUAGES: [(&str, dw::DwLang); 38] = [
    ("asm", dw::DW_LANG_Mips_Assembler),
    ("c89", dw::DW_LANG_C89),
    ("c", dw::DW_LANG_C),
    ("ada83", dw::DW_LANG_Ada83),
    ("c++", dw::DW_LANG_C_plus_plus),
    ("cobol74", dw::DW_LANG_Cobol74),
    ("cobol85", dw::DW_LANG_Cobol85),
    ("fortran77", dw::DW_LANG_Fortran77),
    ("fortran90", dw::DW_LANG_Fortran90),
    ("pascal83", dw::DW_LANG_Pascal83),
    ("modula2", dw::DW_LANG_Modula2),
    ("java", dw::DW_LANG_Java),
    ("c99", dw::DW_LANG_C99),
    ("ada95", dw::DW_LANG_Ada95),
    ("fortran95", dw::DW_LANG_Fortran95),
    ("pli", dw::DW_LANG_PLI),
    ("objc", dw::DW_LANG_ObjC),
    ("objc++", dw::DW_LANG_ObjC_plus_plus),
    ("upc", dw::DW_LANG_UPC),
    ("d", dw::DW_LANG_D),
    ("python", dw::DW_LANG_Python),
    ("opencl", dw::DW_LANG_OpenCL),
    ("go", dw::DW_LANG_Go),
    ("modula3", dw::DW_LANG_Modula3),
    ("haskell", dw::DW_LANG_Haskell),
    ("c++03", dw::DW_LANG_C_plus_plus_03),
    ("c++11", dw::DW_LANG_C_plus_plus_11),
    ("ocaml", dw::DW_LANG_OCaml),
    ("rust", dw::DW_LANG_Rust),
    ("c11", dw::DW_LANG_C11),
    ("swift", dw::DW_LANG_Swift),
    ("julia", dw::DW_LANG_Julia),
    ("dylan", dw::DW_LANG_Dylan),
    ("c++14", dw::DW_LANG_C_plus_plus_14),
    ("fortran03", dw::DW_LANG_Fortran03),
    ("fortran08", dw::DW_LANG_Fortran08),
    ("renderscript", dw::DW_LANG_RenderScript),
    ("bliss", dw::DW_LANG_BLISS),
];

/// A word that names no language.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown language \"{0}\"")]
pub struct UnknownLanguage(pub String);

/// Every C++ since 1998, also those that have no name of their own here; the last is C++23, which
/// gimli does not know.
const EVERY_C_PLUS_PLUS: [dw::DwLang; 7] = [
    dw::DW_LANG_C_plus_plus,
    dw::DW_LANG_C_plus_plus_03,
    dw::DW_LANG_C_plus_plus_11,
    dw::DW_LANG_C_plus_plus_14,
    dw::DW_LANG_C_plus_plus_17,
    dw::DW_LANG_C_plus_plus_20,
    dw::DwLang(0x3a),
];

/// Parses a list such as `rust,c++11`: any case, no blanks, no empty item. The result is sorted
/// and holds nothing twice, so that equal filters are equal in a key. `c++` means every version of
/// it, unless words are as `exact` as they are for pahole.
///
/// # Errors
/// The first word that names no language.
pub fn parse(list: &str, exact: bool) -> Result<Vec<u16>, UnknownLanguage> {
    let mut codes = list.split(',').map(code).collect::<Result<Vec<u16>, _>>()?;
    if !exact && codes.contains(&dw::DW_LANG_C_plus_plus.0) {
        codes.extend(EVERY_C_PLUS_PLUS.map(|language| language.0));
    }
    codes.sort_unstable();
    codes.dedup();
    Ok(codes)
}

fn code(word: &str) -> Result<u16, UnknownLanguage> {
    let entry = LANGUAGES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    entry.map(|(_, language)| language.0).ok_or_else(|| UnknownLanguage(word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_lists() {
        for (list, expected) in [
            ("rust", vec![0x1c]),
            ("RUST", vec![0x1c]),
            ("rust,rust", vec![0x1c]),
            ("c11,c89,c,c99", vec![0x01, 0x02, 0x0c, 0x1d]),
            ("bliss,Asm,C++14", vec![0x21, 0x25, 0x8001]),
        ] {
            assert_eq!(parse(list, false), Ok(expected), "{list}");
        }
    }

    #[test]
    fn a_family_has_one_name() {
        let every = [0x04, 0x19, 0x1a, 0x21, 0x2a, 0x2b, 0x3a];
        assert_eq!(parse("c++", false), Ok(every.to_vec()));
        assert_eq!(parse("C++,c++11", true), Ok(vec![0x04, 0x1a]));
        assert_eq!(parse("c++14", false), Ok(vec![0x21]));
    }

    #[test]
    fn first_unknown_word_is_named() {
        for (list, word) in [
            ("", ""),
            ("c,,c99", ""),
            ("c ,c99", "c "),
            ("rust,c17,zig", "c17"),
            ("28", "28"),
            ("c++17", "c++17"),
        ] {
            assert_eq!(parse(list, false), Err(UnknownLanguage(word.to_owned())), "{list}");
        }
    }

    #[test]
    fn codes_of_the_table_are_those_of_the_specification() {
        let codes: Vec<u16> = LANGUAGES.iter().map(|(_, language)| language.0).collect();
        let mut expected = vec![0x8001];
        expected.extend(1..=0x25);
        assert_eq!(codes, expected);
    }
}
