//! Which variables are emitted, and in which section they are (spec/encoding section 5).

use hashbrown::HashSet;
use object::elf::{SHF_ALLOC, SHT_NOBITS, SHT_PROGBITS, STT_OBJECT};

use super::object::{Object, Objects, with_fragments};
use crate::elf::SymbolTable;
use crate::fragment::{Fragment, VariableUse};
use crate::names::Names;
use crate::options::{Feature, Options};
use crate::pool::Ref;

/// Longest name of a variable (5.3 rule 8).
const MAX_NAME: usize = 128;

/// A variable's place.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Index of the section, counted through all objects.
    pub section: u32,
    /// Offset in the section.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// The variables to emit.
#[derive(Debug, Default)]
pub struct Chosen {
    /// For each fragment, indices into its list.
    pub by_fragment: Vec<Vec<u32>>,
    /// Where they are, in the same order, fragment after fragment.
    pub places: Vec<Placed>,
    /// Lines for `-V`.
    pub skips: Vec<String>,
}

/// A variable that pahole stops at unless told to go on (`encode_force`).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// Its name is not one that BTF allows.
    #[error(
        "variable `{0}` has a name that BTF does not allow: use the feature `encode_force` to leave it out"
    )]
    InvalidName(String),
    /// It has no type.
    #[error("variable `{0}` has void type: use the feature `encode_force` to leave it out")]
    Void(String),
}

/// Chooses among the variables of all fragments.
///
/// # Errors
/// Without `encode_force`, at the first variable that BTF cannot express.
pub fn variables(
    fragments: &[Fragment],
    objects: &Objects<'_>,
    options: &Options,
) -> Result<Chosen, VariableError> {
    let mut chosen = Chosen::default();
    for (object, fragments) in with_fragments(&objects.all, fragments) {
        let sections = Candidates::of(object, options);
        let symbols = data_symbols(object.symbols, &sections);
        let chooser = Chooser { names: objects.names, options, symbols, sections };
        for fragment in fragments {
            let mut own = Vec::new();
            for (index, variable) in fragment.variables.iter().enumerate() {
                if let Some(place) = chooser.place(variable, &mut chosen.skips)? {
                    own.push(index as u32);
                    let section = object.first_section + place.section;
                    chosen.places.push(Placed { section, ..place });
                }
            }
            chosen.by_fragment.push(own);
        }
    }
    Ok(chosen)
}

/// Names of data symbols, with their section: only these confirm a variable at offset 0, where
/// the ones of discarded sections seem to be (5.3 rule 7).
fn data_symbols<'a>(symbols: &'a SymbolTable, sections: &Candidates) -> HashSet<(u32, &'a [u8])> {
    let wanted = sections.sections.iter().filter(|section| section.is_wanted);
    let wanted: Vec<u32> = wanted.map(|section| section.index).collect();
    let objects = symbols.symbols().iter().filter(|symbol| symbol.kind == STT_OBJECT);
    let objects = objects.filter(|symbol| wanted.contains(&symbol.section));
    objects.map(|symbol| (symbol.section, symbols.name(symbol))).collect()
}

/// The sections that addresses are looked up in, in order of index.
struct Candidates {
    sections: Vec<Candidate>,
}

struct Candidate {
    index: u32,
    start: u64,
    size: u64,
    is_wanted: bool,
}

impl Candidates {
    fn of(object: &Object<'_>, options: &Options) -> Self {
        let all = options.features.has(Feature::GlobalVar);
        let percpu = options.features.has(Feature::Var);
        let mut sections = Vec::new();
        for (index, section) in object.sections.iter().enumerate().skip(1) {
            // What is not loaded has no address; its header says 0, where per-CPU variables of
            // x86-64 kernels before 6.15 are.
            let is_loaded = section.flags.0 & SHF_ALLOC.0 != 0;
            let holds_data = matches!(section.kind, SHT_PROGBITS | SHT_NOBITS);
            if is_loaded && holds_data && section.size > 0 {
                let is_percpu = section.name == b".data..percpu";
                sections.push(Candidate {
                    index: index as u32,
                    start: object.addresses[index],
                    size: section.size,
                    is_wanted: all || (percpu && is_percpu),
                });
            }
        }
        Self { sections }
    }

    /// The wanted section that `address` lies in. The first section that has the address counts,
    /// wanted or not (5.3 rule 5).
    fn find(&self, address: u64) -> Option<&Candidate> {
        let distance = |section: &Candidate| address.checked_sub(section.start);
        let has = |section: &&Candidate| distance(section).is_some_and(|far| far < section.size);
        self.sections.iter().find(has).filter(|section| section.is_wanted)
    }

    fn is_empty(&self) -> bool {
        !self.sections.iter().any(|section| section.is_wanted)
    }
}

struct Chooser<'a> {
    names: &'a Names,
    options: &'a Options,
    symbols: HashSet<(u32, &'a [u8])>,
    sections: Candidates,
}

impl Chooser<'_> {
    fn place(
        &self,
        variable: &VariableUse,
        skips: &mut Vec<String>,
    ) -> Result<Option<Placed>, VariableError> {
        if self.sections.is_empty() {
            return Ok(None);
        }
        let Some(section) = self.sections.find(variable.address) else {
            return Ok(None);
        };
        let offset = variable.address - section.start;
        let mut buffer = [0; 4];
        let name = self.names.bytes(variable.name, &mut buffer);
        if offset == 0 && !self.symbols.contains(&(section.index, name)) {
            return Ok(None);
        }
        let is_forced = self.options.features.has(Feature::EncodeForce);
        let text = || String::from_utf8_lossy(name).into_owned();
        if !is_valid_name(name) {
            if !is_forced {
                return Err(VariableError::InvalidName(text()));
            }
            skips.push(format!(
                "PAHOLE: Warning: Found invalid variable name when encoding btf, ignored (sym: '{}').",
                text()
            ));
            return Ok(None);
        }
        if variable.ty == Ref::VOID {
            return if is_forced { Ok(None) } else { Err(VariableError::Void(text())) };
        }
        let size = u32::try_from(variable.size).ok().filter(|&size| size > 0);
        let (Some(size), Ok(offset)) = (size, u32::try_from(offset)) else {
            return Ok(None);
        };
        Ok(Some(Placed { section: section.index, offset, size }))
    }
}

/// Whether the kernel takes `name` for a variable (5.3 rule 8).
fn is_valid_name(name: &[u8]) -> bool {
    let is_start = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.');
    let is_rest = |byte: &u8| is_start(byte) || byte.is_ascii_digit();
    name.len() <= MAX_NAME && name.first().is_some_and(is_start) && name.iter().all(is_rest)
}
