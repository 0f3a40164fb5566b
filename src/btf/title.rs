//! What a type is called in messages.

use super::kind::{Info, Kind};
use super::read::Btf;

/// A type as C would say it, its name in backticks.
#[must_use]
pub fn title(btf: &Btf<'_>, id: u32) -> String {
    let Some(record) = btf.get(id) else {
        return "void".to_owned();
    };
    let info = Info(record[1]);
    let kind = info.kind().map_or("type", |kind| kind_word(kind, info.kflag()));
    match btf.name(record[0]) {
        b"" => format!("nameless {kind}"),
        name => format!("{kind} `{}`", String::from_utf8_lossy(name)),
    }
}

/// What a kind is called; of forward declarations `kflag` tells which.
pub(super) const fn kind_word(kind: Kind, kflag: bool) -> &'static str {
    match kind {
        Kind::Int => "integer",
        Kind::Ptr => "pointer",
        Kind::Array => "array",
        Kind::Struct => "struct",
        Kind::Union => "union",
        Kind::Enum | Kind::Enum64 => "enum",
        Kind::Fwd if kflag => "declared union",
        Kind::Fwd => "declared struct",
        Kind::Typedef => "typedef",
        Kind::Volatile => "volatile",
        Kind::Const => "const",
        Kind::Restrict => "restrict",
        Kind::Func => "function",
        Kind::FuncProto => "prototype",
        Kind::Var => "variable",
        Kind::Datasec => "section",
        Kind::Float => "floating-point type",
        Kind::DeclTag => "declaration tag",
        Kind::TypeTag => "type tag",
    }
}
