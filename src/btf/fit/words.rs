//! What does not fit, in words for people.

use std::fmt;

use super::{Difference, Misfit, Near, Reason, SizeMatters};
use crate::btf::kind::Kind;
use crate::btf::title::kind_word;

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            0 => write!(formatter, "{} {}", self.title, self.reason),
            id => write!(formatter, "{} (type {id}) {}", self.title, self.reason),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTypes => formatter.write_str("has no types, on which the kernel miscounts"),
            Self::Nameless => formatter.write_str("cannot be looked for in a base"),
            Self::Kind => formatter.write_str("is of a kind that a distilled base cannot have"),
            Self::Unknown => formatter.write_str("is of an unknown kind"),
            Self::Endless => formatter.write_str("has a member of a type that is made of itself"),
            Self::Several([first, second]) => write!(
                formatter,
                "could be either of types {first} and {second} of the base, and nothing tells which"
            ),
            Self::Missing(None) => formatter.write_str("is not in the base"),
            Self::Missing(Some(near)) => near.fmt(formatter),
            Self::Name(name) => write!(
                formatter,
                "has a part named `{name}`, which is a string of the distilled base but the name \
                 of none of its types"
            ),
            Self::Crowded => {
                formatter.write_str("has more types of the same names than can be compared")
            }
        }
    }
}

impl fmt::Display for Near {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, kind, why } = self;
        match why {
            Difference::Kind => {
                let word = kind_word(*kind, false);
                write!(formatter, "is of another kind in the base (type {id}, {word})")
            }
            Difference::Encoding => {
                write!(formatter, "has another encoding in the base (type {id})")
            }
            Difference::Size { wanted, found, because } => write!(
                formatter,
                "has {found} bytes in the base (type {id}), not {wanted}{}",
                match because {
                    SizeMatters::Always => "",
                    SizeMatters::Several =>
                        ", and the base has several of that name, so that only the size could tell",
                    SizeMatters::Embedded => ", and a type of the module has a member of it",
                }
            ),
            Difference::BitFields if *kind == Kind::Union => write!(
                formatter,
                "is defined in the base (type {id}), but the kernel takes only a union with bit \
                 fields for the declared one"
            ),
            Difference::BitFields => write!(
                formatter,
                "is defined in the base (type {id}), but the kernel does not take a struct with \
                 bit fields for the declared one"
            ),
        }
    }
}
