//! Decodes the units of all members of an archive. Workers take members in order; of each only what
//! later stages need is kept.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::Progress;
use crate::dwarf::sections::Dwarf;
use crate::elf::{Archive, Member, Section, SymbolTable};
use crate::fragment::{Decoder, Fragment, Known};
use crate::merge::WorkerOutput;
use crate::names::Names;
use crate::options::{Feature, Options};
use crate::select::{Kfunc, Kfuncs, Object, kfuncs};

/// What is kept of a member.
#[derive(Debug)]
pub struct MemberFacts {
    first_unit: u32,
    sections: Vec<Section>,
    addresses: Vec<u64>,
    symbols: SymbolTable,
    kfuncs: Vec<Kfunc>,
}

impl MemberFacts {
    /// What the members say about functions and variables.
    #[must_use]
    pub fn objects(members: &[Self]) -> Vec<Object<'_>> {
        let mut objects = Vec::with_capacity(members.len());
        let mut first_section = 0;
        for member in members {
            objects.push(Object {
                sections: &member.sections,
                addresses: &member.addresses,
                symbols: &member.symbols,
                kfuncs: Kfuncs::Read(&member.kfuncs),
                first_unit: member.first_unit,
                first_section,
            });
            first_section += member.sections.len() as u32;
        }
        objects
    }
}

/// Decodes the units of all members that `options` admits. Members without DWARF have none.
///
/// # Errors
/// That of the first damaged member.
pub fn members(
    archive: &Archive,
    names: &Arc<Names>,
    options: &Options,
) -> Result<(Vec<WorkerOutput>, Vec<MemberFacts>)> {
    let progress = Progress::new(archive.members().len() as u32);
    let work = |_: rayon::BroadcastContext<'_>| {
        let (mut known, mut output) = (Known::default(), (Vec::new(), Vec::new()));
        while let Some(index) = progress.take() {
            let member = &archive.members()[index as usize];
            let decoded = decode(member, names, options, &mut known, &mut output.0);
            match decoded.with_context(|| format!("failed to decode its member `{}`", member.name))
            {
                Ok(facts) => output.1.extend(facts),
                Err(error) => progress.fail(index, error),
            }
        }
        let Known { pool, notes, .. } = known;
        (WorkerOutput { pool, fragments: output.0, notes }, output.1)
    };
    let (outputs, facts): (Vec<_>, Vec<_>) = rayon::broadcast(work).into_iter().unzip();
    progress.result()?;
    let mut facts: Vec<MemberFacts> = facts.into_iter().flatten().collect();
    facts.sort_by_key(|member| member.first_unit);
    Ok((outputs, facts))
}

/// Decodes the units of `member`; `None` if it has no DWARF.
fn decode(
    member: &Member,
    names: &Arc<Names>,
    options: &Options,
    known: &mut Known,
    fragments: &mut Vec<Fragment>,
) -> Result<Option<MemberFacts>> {
    let elf = member.open()?;
    let symbols = elf.symbols().context("failed to read the symbol table")?;
    let Some(dwarf) = Dwarf::load_member(&elf, symbols.as_ref(), names)? else {
        return Ok(None);
    };
    known.notes.draws_on_files |= dwarf.supplementary.is_some();
    let mut decoder = Decoder::resume(&dwarf, options, member.first_unit, std::mem::take(known));
    for unit in 0..dwarf.units.len() as u32 {
        fragments.extend(decoder.decode(unit)?);
    }
    *known = decoder.into_known();
    let symbols = symbols.unwrap_or_default();
    let kfuncs = match options.features.has(Feature::DeclTagKfuncs) {
        true => kfuncs(&elf, &elf, &symbols).context("failed to read the kfuncs")?,
        false => Vec::new(),
    };
    let addresses = dwarf.section_addresses;
    let sections = elf.sections().to_vec();
    Ok(Some(MemberFacts { first_unit: member.first_unit, sections, addresses, symbols, kfuncs }))
}
