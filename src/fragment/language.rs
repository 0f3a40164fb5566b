//! What units of one language have that those of others have not.

use gimli::DwLang;
use gimli::constants as dw;

/// Whether a `DW_AT_language` is C of any version, assembler, or none: there members are in order,
/// and symbols are called by `DW_AT_name`.
pub(super) fn is_c(language: u16) -> bool {
    // C23 is newer than gimli.
    matches!(language, 0 | 0x3e)
        || matches!(
            DwLang(language),
            dw::DW_LANG_C89
                | dw::DW_LANG_C
                | dw::DW_LANG_C99
                | dw::DW_LANG_C11
                | dw::DW_LANG_C17
                | dw::DW_LANG_Mips_Assembler
                | dw::DW_LANG_ObjC
                | dw::DW_LANG_UPC
                | dw::DW_LANG_OpenCL
        )
}
