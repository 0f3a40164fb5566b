//! Abbreviation tables as keys see them: their digest, and a plan for each abbreviation.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use gimli::DwAt;
use gimli::constants as dw;
use hashbrown::HashTable;

use super::plan::{Plan, Step, Volatile, is_volatile};
use crate::dwarf::budget::Budget;
use crate::dwarf::cursor::{Cursor, Eof};
use crate::dwarf::template::Encoding;

/// As many declarations are remembered.
const MAX_KNOWN: usize = 1 << 14;

/// The declarations of one table, those of volatile constants masked. Reused from unit to unit.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Where the table at hand is.
    source: Option<u64>,
    digest: [u8; 32],
    masked: Vec<u8>,
    /// Code and place of each declaration.
    declarations: Vec<(u64, usize, usize)>,
}

impl Table {
    /// Reads the table at `offset` of `section`, which must be the same each time, and returns its
    /// digest.
    pub fn read(&mut self, section: &[u8], offset: u64, budget: &Budget) -> Option<&[u8; 32]> {
        if self.source != Some(offset) {
            self.source = None;
            self.scan(section, usize::try_from(offset).ok()?).ok()?;
            budget.spend(self.masked.len() as u64).ok()?;
            self.digest = blake3::hash(&self.masked).into();
            self.source = Some(offset);
        }
        Some(&self.digest)
    }

    fn scan(&mut self, section: &[u8], offset: usize) -> Result<(), Eof> {
        self.masked.clear();
        self.declarations.clear();
        let mut cursor = Cursor::<false>::new(section, offset);
        let mut copied = offset;
        loop {
            let code = cursor.uleb()?;
            if code == 0 {
                break;
            }
            let start = cursor.position;
            cursor.uleb()?;
            cursor.u8()?;
            loop {
                let (attribute, form) = (cursor.uleb()?, cursor.uleb()?);
                if form == u64::from(dw::DW_FORM_implicit_const.0) {
                    let constant = cursor.position;
                    cursor.sleb()?;
                    if u16::try_from(attribute).is_ok_and(|number| is_volatile(DwAt(number))) {
                        self.masked.extend_from_slice(&section[copied..constant]);
                        copied = cursor.position;
                    }
                }
                if attribute == 0 && form == 0 {
                    break;
                }
            }
            self.declarations.push((code, start, cursor.position));
        }
        self.masked.extend_from_slice(&section[copied..cursor.position]);
        Ok(())
    }
}

/// The plans of one table. Reused from unit to unit of one file.
#[derive(Debug, Default)]
pub(super) struct Plans {
    source: Option<(u64, Encoding)>,
    /// Those with the codes 1, 2, 3...
    plans: Vec<Plan>,
    /// Those whose codes do not follow 1, 2, 3...
    sparse: BTreeMap<u64, Plan>,
    /// The steps of all known declarations.
    steps: Vec<Step>,
    known: HashTable<Known>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Known {
    start: usize,
    size: usize,
    encoding: Encoding,
    hash: u64,
    plan: Plan,
}

impl Plans {
    /// Plans the declarations of `table`, which was read from `section`. `None` if a unit that has
    /// them can have no key.
    pub fn make(
        &mut self,
        section: &[u8],
        table: &Table,
        encoding: Encoding,
        volatile: Volatile,
    ) -> Option<()> {
        let source = (table.source?, encoding);
        if self.source == Some(source) {
            return Some(());
        }
        self.source = None;
        self.plans.clear();
        self.sparse.clear();
        if self.known.len() > MAX_KNOWN || self.steps.len() > MAX_KNOWN {
            self.known.clear();
            self.steps.clear();
        }
        for &(code, start, end) in &table.declarations {
            let plan = self.plan(section, (start, end), encoding, volatile)?;
            self.add(code, plan)?;
        }
        self.source = Some(source);
        Some(())
    }

    /// The plan for an abbreviation code.
    #[inline(always)]
    pub fn get(&self, code: u64) -> Option<&Plan> {
        match self.plans.get((code as usize).wrapping_sub(1)) {
            Some(plan) => Some(plan),
            None => self.get_sparse(code),
        }
    }

    #[cold]
    fn get_sparse(&self, code: u64) -> Option<&Plan> {
        self.sparse.get(&code)
    }

    /// The steps of `plan`.
    #[inline(always)]
    pub fn steps(&self, plan: &Plan) -> &[Step] {
        &self.steps[plan.steps.0 as usize..plan.steps.1 as usize]
    }

    fn plan(
        &mut self,
        section: &[u8],
        (start, end): (usize, usize),
        encoding: Encoding,
        volatile: Volatile,
    ) -> Option<Plan> {
        let declaration = &section[start..end];
        let hash = self.hasher.hash_one(declaration);
        let is_same = |known: &Known| {
            known.encoding == encoding && section[known.start..][..known.size] == *declaration
        };
        if let Some(known) = self.known.find(hash, is_same) {
            return Some(known.plan);
        }
        let plan = Plan::new(declaration, encoding, volatile, &mut self.steps).ok()??;
        let known = Known { start, size: declaration.len(), encoding, hash, plan };
        self.known.insert_unique(hash, known, |known| known.hash);
        Some(plan)
    }

    fn add(&mut self, code: u64, plan: Plan) -> Option<()> {
        if self.get(code).is_some() {
            return None;
        }
        if code == self.plans.len() as u64 + 1 {
            self.plans.push(plan);
        } else {
            self.sparse.insert(code, plan);
        }
        Some(())
    }
}
