//! The BTF that a module's split BTF is built upon, in a form in which a module's types are found.
//!
//! `prepare` turns a base into a [`Prepared`]: a frozen class pool with names as string offsets.
//! `matching` finds the classes of a module in it. What both agree on is the *normal form* of a
//! record: that of [`crate::pool`], with offsets of the base's strings for names and base ids for
//! classes. A base is already deduplicated, so nearly every type of it is found by its normal form
//! alone; names that it defines more than once, and what reaches those, are told apart in
//! [`crate::merge`] by where their references lead.

mod asked;
mod build;
mod mapping;
mod matching;
mod prepared;

pub use asked::Asked;
pub use build::{PrepareError, prepare, prepare_for};
pub use mapping::Mapping;
pub use matching::Matching;
pub use prepared::{Prepared, Stored, StringSlot, Summary};
