//! Unit headers of `.debug_info` (DWARF 5, section 7.5.1).

use gimli::constants as dw;

use super::cursor::{Cursor, Eof};
use super::template::Encoding;
use crate::elf::ElfFile;
use crate::relocate::Relocated;

/// A header is at most this long: 12 + 2 + 1 + 1 + 8 bytes, a signature and a type offset.
const MAX_HEADER: u64 = 40;

/// One unit: where it is and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct UnitHeader {
    /// Offset of the header in `.debug_info`.
    pub offset: u64,
    /// Size in bytes, header and length field included.
    pub size: u32,
    /// Offset of the first DIE from the start of the header.
    pub first_die: u32,
    /// Version and sizes.
    pub encoding: Encoding,
    /// Offset of the abbreviation table in `.debug_abbrev`.
    pub abbreviations: u64,
    /// `DW_UT_*`; `DW_UT_compile` in DWARF 2 to 4.
    pub kind: u8,
    /// What a type unit is about.
    pub type_head: Option<TypeHead>,
    /// What a skeleton and the unit in the `.dwo` file have in common (DWARF 5).
    pub split_id: Option<u64>,
}

/// The type that a type unit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeHead {
    /// What references to it name.
    pub signature: u64,
    /// Offset of its DIE from the start of the header.
    pub offset: u32,
}

/// Why the units could not be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The file could not be read.
    #[error("failed to read `.debug_info` at {offset:#x}")]
    Io {
        /// Offset in the section.
        offset: u64,
        /// What happened.
        source: std::io::Error,
    },
    /// A header does not fit into the section.
    #[error("the unit at {offset:#x} of `.debug_info` is cut off: it claims {size} bytes")]
    CutOff {
        /// Offset in the section.
        offset: u64,
        /// What the header says.
        size: u64,
    },
    /// A version or address size that is not DWARF.
    #[error("the unit at {offset:#x} of `.debug_info` has {what}")]
    Unsupported {
        /// Offset in the section.
        offset: u64,
        /// What is not supported.
        what: String,
    },
}

/// Lists the units of `.debug_info`, or of `.debug_types` if `has_only_types`, in file order.
///
/// # Errors
/// At the first header that is damaged.
pub fn list(
    elf: &ElfFile,
    info: &Relocated,
    has_only_types: bool,
) -> Result<Vec<UnitHeader>, UnitError> {
    let mut units = Vec::new();
    let mut buffer = Vec::new();
    let mut offset = 0;
    while offset < info.len() {
        let size = MAX_HEADER.min(info.len() - offset);
        let bytes = info
            .range(elf, offset, size as usize, &mut buffer)
            .map_err(|source| UnitError::Io { offset, source })?;
        let unit = if elf.target().big_endian {
            parse::<true>(bytes, offset, info.len(), has_only_types)
        } else {
            parse::<false>(bytes, offset, info.len(), has_only_types)
        }?;
        offset += u64::from(unit.size);
        units.push(unit);
    }
    Ok(units)
}

fn parse<const BIG: bool>(
    bytes: &[u8],
    offset: u64,
    end: u64,
    has_only_types: bool,
) -> Result<UnitHeader, UnitError> {
    let cut_off = |size| UnitError::CutOff { offset, size };
    let header =
        Header::read::<BIG>(bytes, has_only_types).map_err(|Eof| cut_off(bytes.len() as u64))?;
    let size = header.length.saturating_add(header.length_size);
    if size > end - offset {
        return Err(cut_off(size));
    }
    let unsupported = |what| UnitError::Unsupported { offset, what };
    if !(2..=5).contains(&header.version) {
        return Err(unsupported(format!("DWARF version {}", header.version)));
    }
    if !matches!(header.address_size, 2 | 4 | 8) {
        return Err(unsupported(format!("addresses of {} bytes", header.address_size)));
    }
    let size = u32::try_from(size).map_err(|_| unsupported("more than 4 GB".to_owned()))?;
    if u64::from(header.first_die) > u64::from(size) {
        return Err(cut_off(size.into()));
    }
    Ok(UnitHeader {
        offset,
        size,
        first_die: header.first_die,
        encoding: Encoding {
            version: header.version,
            offset_size: if header.length_size == 12 { 8 } else { 4 },
            address_size: header.address_size,
            is_elsewhere: false,
        },
        abbreviations: header.abbreviations,
        kind: header.kind,
        type_head: header.type_head,
        split_id: header.split_id,
    })
}

/// The fields as they stand in the file.
struct Header {
    length: u64,
    length_size: u64,
    version: u16,
    kind: u8,
    address_size: u8,
    abbreviations: u64,
    first_die: u32,
    type_head: Option<TypeHead>,
    split_id: Option<u64>,
}

impl Header {
    fn read<const BIG: bool>(bytes: &[u8], has_only_types: bool) -> Result<Self, Eof> {
        let mut cursor = Cursor::<BIG>::new(bytes, 0);
        let (length, length_size) = match u64::from(cursor.u32()?) {
            0xffff_ffff => (cursor.u64()?, 12),
            short => (short, 4),
        };
        let offset_size = if length_size == 12 { 8 } else { 4 };
        let version = cursor.u16()?;
        let (kind, address_size, abbreviations) = if version >= 5 {
            (cursor.u8()?, cursor.u8()?, cursor.unsigned(offset_size)?)
        } else {
            let abbreviations = cursor.unsigned(offset_size)?;
            let kind = if has_only_types { dw::DW_UT_type } else { dw::DW_UT_compile };
            (kind.0, cursor.u8()?, abbreviations)
        };
        let (mut type_head, mut split_id) = (None, None);
        match gimli::DwUt(kind) {
            dw::DW_UT_skeleton | dw::DW_UT_split_compile => split_id = Some(cursor.u64()?),
            dw::DW_UT_type | dw::DW_UT_split_type => {
                let signature = cursor.u64()?;
                let offset = u32::try_from(cursor.unsigned(offset_size)?).unwrap_or(u32::MAX);
                type_head = Some(TypeHead { signature, offset });
            }
            _ => {}
        }
        let first_die = cursor.position as u32;
        Ok(Self {
            length,
            length_size,
            version,
            kind,
            address_size,
            abbreviations,
            first_die,
            type_head,
            split_id,
        })
    }
}
