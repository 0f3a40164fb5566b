//! Merge: the union of the units' classes, forward declarations completed, ids assigned.
//!
//! `union` puts the pools of all workers together, `ambiguity` deals with names that have several
//! definitions, `number` orders what is left by first occurrence: unit order in the file, then
//! order in the unit, which is the order of pahole's ids (spec/btf-and-dedup rules O1 to O4).

mod ambiguity;
mod definitions;
mod evidence;
mod nodes;
mod number;
mod partition;
mod union;

pub use ambiguity::{Deviations, Place};
pub use number::{IndexClass, Item, NO_UNIT, Numbered, number};
pub use union::{Union, WorkerOutput, union};
