//! Where chains of modifiers and arrays end: each type is looked at once, however many chains it
//! is part of.

use crate::btf::kind::{Info, Kind};
use crate::btf::read::Btf;

/// The ends found so far.
pub(super) struct Ends<'a> {
    btf: &'a Btf<'a>,
    ends: Vec<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Unknown,
    /// Part of the chain that is being followed, or of one that never ends.
    Endless,
    Type(u32),
}

impl<'a> Ends<'a> {
    pub(super) fn new(btf: &'a Btf<'_>) -> Self {
        Self { btf, ends: vec![End::Unknown; btf.end_id() as usize] }
    }

    /// The type that a chain ends at, void included; `None` if it bites its own tail.
    pub(super) fn of(&mut self, id: u32) -> Option<u32> {
        let (mut link, mut chain) = (id, Vec::new());
        let end = loop {
            match (self.ends[link as usize], self.next(link)) {
                (End::Type(end), _) => break Some(end),
                (End::Endless, _) => break None,
                (End::Unknown, None) => break Some(link),
                (End::Unknown, Some(next)) => {
                    self.ends[link as usize] = End::Endless;
                    chain.push(link);
                    link = next;
                }
            }
        };
        let found = end.map_or(End::Endless, End::Type);
        chain.into_iter().for_each(|link| self.ends[link as usize] = found);
        end
    }

    /// The next link; `None` at the end.
    fn next(&self, id: u32) -> Option<u32> {
        use Kind::{Array, Const, Restrict, TypeTag, Typedef, Volatile};
        let record = self.btf.get(id)?;
        match Info(record[1]).kind()? {
            Const | Volatile | Restrict | Typedef | TypeTag => Some(record[2]),
            Array => Some(record[3]),
            _ => None,
        }
    }
}
