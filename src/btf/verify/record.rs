//! Rules for each record alone (4.3), in the kernel's order: only the first that it breaks counts.

use super::{MAX_ID, MAX_NAME, Problem, bytes_of, demand, elements};
use crate::btf::kind::{Info, Kind, for_each_name};
use crate::btf::read::Btf;

const RULE: &str = "4.3";
const NO_VLEN: &str = "vlen != 0";
const KFLAG: &str = "Invalid btf_info kind_flag";
const NAME: &str = "Invalid name";
const TYPE_ID: &str = "Invalid type_id";
const MEMBER_OFFSET: &str = "Invalid member bits_offset";
/// Longest identifier.
const MAX_IDENTIFIER: usize = 512;

type Checked = Result<(), Problem>;

fn check_that(holds: bool, message: &'static str) -> Checked {
    demand(holds, RULE, message)
}

/// Checks one record.
pub(super) fn check(btf: &Btf<'_>, record: &[u32]) -> Checked {
    let info = Info(record[1]);
    let kind = info.kind().ok_or(Problem::new(RULE, "Invalid kind"))?;
    let mut has_far_name = false;
    for_each_name(record, |name| has_far_name |= name > MAX_NAME);
    check_that(!has_far_name, "Invalid name_offset")?;
    let checked = Checking { btf, record, kind, info };
    match kind {
        Kind::Int => checked.int(),
        Kind::Float => checked.float(),
        Kind::Ptr | Kind::Const | Kind::Volatile | Kind::Restrict => checked.nameless_link(),
        Kind::Typedef => checked.typedef(),
        Kind::TypeTag => checked.type_tag(),
        Kind::Array => checked.array(),
        Kind::Struct | Kind::Union => checked.composite(),
        Kind::Enum | Kind::Enum64 => checked.enumeration(),
        Kind::Fwd => checked.forward(),
        Kind::Func => checked.function(),
        Kind::FuncProto => checked.prototype(),
        Kind::Var => checked.variable(),
        Kind::Datasec => checked.section(),
        Kind::DeclTag => checked.decl_tag(),
    }
}

struct Checking<'a> {
    btf: &'a Btf<'a>,
    record: &'a [u32],
    kind: Kind,
    info: Info,
}

impl Checking<'_> {
    fn int(&self) -> Checked {
        self.no_vlen_no_kflag()?;
        let word = self.record[3];
        check_that(word >> 28 == 0, "Invalid int_data")?;
        let bits = (word & 0xff) + (word >> 16 & 0xff);
        check_that(bits <= 128, "nr_bits exceeds 128")?;
        check_that(bytes_of(bits) <= self.record[2], "nr_bits exceeds type_size")?;
        check_that(matches!(word >> 24, 0 | 1 | 2 | 4), "Unsupported encoding")
    }

    fn float(&self) -> Checked {
        self.no_vlen_no_kflag()?;
        check_that(matches!(self.record[2], 2 | 4 | 8 | 12 | 16), "Invalid type_size")
    }

    fn nameless_link(&self) -> Checked {
        self.no_vlen_no_kflag()?;
        check_that(self.record[2] <= MAX_ID, TYPE_ID)?;
        self.no_name()
    }

    fn typedef(&self) -> Checked {
        self.no_vlen_no_kflag()?;
        check_that(self.record[2] <= MAX_ID, TYPE_ID)?;
        self.identifier()
    }

    fn type_tag(&self) -> Checked {
        self.no_vlen()?;
        check_that(self.record[2] <= MAX_ID, TYPE_ID)?;
        check_that(!self.name().is_empty(), NAME)
    }

    fn array(&self) -> Checked {
        self.no_name()?;
        self.no_vlen_no_kflag()?;
        check_that(self.record[2] == 0, "size != 0")?;
        check_that(is_type(self.record[3]), "Invalid elem")?;
        check_that(is_type(self.record[4]), "Invalid index")
    }

    fn composite(&self) -> Checked {
        self.optional_identifier()?;
        let size = self.record[2];
        let mut last = 0;
        for member in elements(self.record) {
            let name = self.btf.name(member[0]);
            check_that(name.is_empty() || is_identifier(name), NAME)?;
            check_that(is_type(member[1]), TYPE_ID)?;
            let offset = if self.info.kflag() { member[2] & 0xff_ffff } else { member[2] };
            check_that(self.kind != Kind::Union || offset == 0, MEMBER_OFFSET)?;
            check_that(last <= offset, MEMBER_OFFSET)?;
            let message = "Member bits_offset exceeds its struct size";
            check_that(bytes_of(offset) <= size, message)?;
            last = offset;
        }
        Ok(())
    }

    fn enumeration(&self) -> Checked {
        check_that(matches!(self.record[2], 1 | 2 | 4 | 8), "Unexpected size")?;
        self.optional_identifier()?;
        let mut values = elements(self.record);
        check_that(values.all(|value| is_identifier(self.btf.name(value[0]))), NAME)
    }

    fn forward(&self) -> Checked {
        self.no_vlen()?;
        check_that(self.record[2] == 0, "type != 0")?;
        self.identifier()
    }

    fn function(&self) -> Checked {
        self.identifier()?;
        check_that(self.info.vlen() <= 1, "Invalid func linkage")?;
        self.no_kflag()
    }

    fn prototype(&self) -> Checked {
        self.no_name()?;
        self.no_kflag()
    }

    fn variable(&self) -> Checked {
        self.no_vlen_no_kflag()?;
        self.identifier()?;
        check_that(is_type(self.record[2]), TYPE_ID)?;
        check_that(self.record[3] <= 1, "Linkage not supported")
    }

    fn section(&self) -> Checked {
        let size = u64::from(self.record[2]);
        check_that(size != 0, "size == 0")?;
        self.no_kflag()?;
        check_that(is_section_name(self.name()), NAME)?;
        let (mut last_end, mut sum) = (0, 0);
        for entry in elements(self.record) {
            let (offset, length) = (u64::from(entry[1]), u64::from(entry[2]));
            check_that(is_type(entry[0]), TYPE_ID)?;
            check_that(offset >= last_end && offset < size, "Invalid offset")?;
            check_that(length != 0 && length <= size, "Invalid size")?;
            last_end = offset + length;
            check_that(last_end <= size, "Invalid offset+size")?;
            sum += length;
        }
        check_that(sum <= size, "Invalid btf_info size")
    }

    fn decl_tag(&self) -> Checked {
        check_that(!self.name().is_empty(), "Invalid value")?;
        self.no_vlen()?;
        check_that(self.record[3] as i32 >= -1, "Invalid component_idx")
    }

    fn name(&self) -> &[u8] {
        self.btf.name(self.record[0])
    }

    fn no_vlen(&self) -> Checked {
        check_that(self.info.vlen() == 0, NO_VLEN)
    }

    fn no_kflag(&self) -> Checked {
        check_that(!self.info.kflag(), KFLAG)
    }

    fn no_vlen_no_kflag(&self) -> Checked {
        self.no_vlen()?;
        self.no_kflag()
    }

    fn no_name(&self) -> Checked {
        check_that(self.record[0] == 0, NAME)
    }

    fn identifier(&self) -> Checked {
        check_that(is_identifier(self.name()), NAME)
    }

    fn optional_identifier(&self) -> Checked {
        check_that(self.record[0] == 0 || is_identifier(self.name()), NAME)
    }
}

fn is_type(id: u32) -> bool {
    id != 0 && id <= MAX_ID
}

/// Whether the kernel takes this for the name of something in C.
#[must_use]
pub fn is_identifier(name: &[u8]) -> bool {
    let is_punctuation = |byte: u8| byte == b'_' || byte == b'.';
    let is_rest = |byte: &u8| byte.is_ascii_alphanumeric() || is_punctuation(*byte);
    let is_start =
        name.first().is_some_and(|&byte| byte.is_ascii_alphabetic() || is_punctuation(byte));
    is_start && name.len() <= MAX_IDENTIFIER && name.iter().all(is_rest)
}

fn is_section_name(name: &[u8]) -> bool {
    let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
    !name.is_empty() && name.len() <= MAX_IDENTIFIER && name.iter().all(is_printable)
}
