//! The one place that knows the order of the stages (DESIGN.md section 2).

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use btfcache_schema::FormatError;

use crate::append;
use crate::base::{Matching, Prepared};
use crate::btf::read::Btf;
use crate::decode::{self, MemberFacts};
use crate::distill;
use crate::dwarf::sections::Dwarf;
use crate::elf::{self, Archive, DebugFile, ElfFile, Input, Section, SymbolTable, Target};
use crate::emit::{self, Contents, Emitted, Format};
use crate::footing;
use crate::kept::{self, Known, Whole};
use crate::merge::{self, Deviations, IndexClass, Union};
use crate::names::Names;
use crate::options::{Feature, Options};
use crate::select::{self, ChosenVariables, FunctionTable, Kfuncs, Object, Objects, Selection};
use crate::timing::Timing;

/// What one ELF file gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The BTF image; empty when there was nothing to encode, with the reason in `notices`.
    pub btf: Vec<u8>,
    /// The image `.BTF.base`, if one was distilled: then `btf` is split on that.
    pub distilled_base: Option<Vec<u8>>,
    /// One line per function or variable that was left out, in the words of pahole's `-V`
    /// (spec/encoding 4.7.3): for stdout, and only when asked for.
    pub skips: Vec<String>,
    /// Lines for stderr: what could not be expressed, why there was nothing to encode.
    pub notices: Vec<String>,
    /// Whether it was also made of other files, or of their absence (split DWARF, `dwz -m`, separate
    /// debug files): then the key of the input does not name it, and it must not be kept.
    pub draws_on_files: bool,
    /// Hashes of the names that the base may have been asked for, if there was one: see
    /// [`footing`](crate::footing).
    pub mentions: Vec<u32>,
    /// What became of its units, if their fragments are kept from run to run.
    pub work: Option<Work>,
}

/// Units whose fragments were known, and those that were not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// How many were known.
    pub hits: usize,
    /// How many were decoded.
    pub misses: usize,
    /// What is to be kept in the place of what was known; `None` if that is all of it.
    pub whole: Option<Whole>,
    /// Why what was known could not be used.
    pub problem: Option<FormatError>,
}

impl Encoded {
    fn nothing(reason: &str) -> Self {
        Self { notices: vec![reason.to_owned()], ..Self::default() }
    }

    /// Whether the image is in big-endian byte order.
    #[must_use]
    pub fn is_big_endian(&self) -> bool {
        self.btf.first() == Some(&0xeb)
    }
}

/// Turns the DWARF of the ELF file or archive at `input` into BTF on the current rayon pool, split on `base`
/// if there is one.
///
/// # Errors
/// Names file, section and unit when the input cannot be read (DESIGN.md section 6).
pub fn encode(
    input: &Path,
    base: Option<&Arc<Prepared>>,
    options: &Options,
    timing: &Timing,
) -> Result<Encoded> {
    let input = timing.phase("open", || Input::open(input))?;
    encode_input(&input, base, options, None, timing)
}

/// The same for a file that is open already, some of whose units may be `known`.
///
/// # Errors
/// As [`encode`].
pub fn encode_input(
    input: &Input,
    base: Option<&Arc<Prepared>>,
    options: &Options,
    known: Option<&Known>,
    timing: &Timing,
) -> Result<Encoded> {
    match input {
        Input::File(elf) => encode_elf(elf, base, options, known, timing),
        Input::Archive(archive) => encode_archive(archive, base, options, timing),
    }
}

fn check_order(base: Option<&Arc<Prepared>>, target: Target) -> Result<()> {
    let is_same = base.is_none_or(|base| base.summary().is_big_endian == target.big_endian);
    ensure!(is_same, "it is in another byte order than its base");
    Ok(())
}

fn encode_elf(
    elf: &ElfFile,
    base: Option<&Arc<Prepared>>,
    options: &Options,
    known: Option<&Known>,
    timing: &Timing,
) -> Result<Encoded> {
    check_order(base, elf.target())?;
    if has_dwarf(elf) {
        return encode_dwarf(elf, elf, base, options, known, timing);
    }
    let nothing = "there is no DWARF in it: nothing to encode";
    let found = elf::find_debug_file(elf).context("failed to look for its debug file")?;
    let encoded = match &found {
        None => return Ok(Encoded::nothing(nothing)),
        Some(DebugFile { elf: Some(debug), .. }) if has_dwarf(debug) => {
            let path = debug.path().display();
            encode_dwarf(debug, elf, base, options, None, timing)
                .with_context(|| format!("failed to encode its debug file `{path}`"))?
        }
        Some(DebugFile { name, .. }) => {
            let name = name.display();
            Encoded::nothing(&format!("{nothing} (its debug file `{name}` is not there)"))
        }
    };
    Ok(Encoded { draws_on_files: true, ..encoded })
}

fn has_dwarf(elf: &ElfFile) -> bool {
    let is_there = |name| elf.section(name).is_some_and(Section::has_bytes);
    is_there(".debug_info") || is_there(".zdebug_info")
}

/// Encodes the DWARF of `elf`, which is `main` itself or its debug file.
fn encode_dwarf(
    elf: &ElfFile,
    main: &ElfFile,
    base: Option<&Arc<Prepared>>,
    options: &Options,
    known: Option<&Known>,
    timing: &Timing,
) -> Result<Encoded> {
    let (dwarf, symbols) = timing.phase("sections", || load(elf, base, options))?;
    let Some(dwarf) = dwarf else {
        return Ok(Encoded::nothing("there is no DWARF in it: nothing to encode"));
    };
    let known = known.filter(|_| has_own_units(&dwarf));
    let (union, work) = decode(&dwarf, options, known, timing)?;
    let draws_on_files = union.notes.draws_on_files || dwarf.supplementary.is_some();
    let object = Object {
        sections: elf.sections(),
        addresses: &dwarf.section_addresses,
        symbols: &symbols.unwrap_or_default(),
        kfuncs: Kfuncs::In { elf, main },
        first_unit: 0,
        first_section: 0,
    };
    let objects = Objects { names: &dwarf.names, target: elf.target(), all: vec![object] };
    let encoded = finish(&objects, union, base, options, timing)?;
    Ok(Encoded { draws_on_files, work, ..encoded })
}

/// Encodes the units of all object files of `archive` as one.
fn encode_archive(
    archive: &Archive,
    base: Option<&Arc<Prepared>>,
    options: &Options,
    timing: &Timing,
) -> Result<Encoded> {
    let Some(target) = archive.target() else {
        return Ok(Encoded::nothing("there is no object file in it: nothing to encode"));
    };
    check_order(base, target)?;
    let names = Names::new(Vec::new(), false, options.kabi_prefix.as_deref());
    let names = Arc::new(names.with_base(base));
    let (outputs, members) =
        timing.phase("decode", || decode::members(archive, &names, options))?;
    if members.is_empty() {
        return Ok(Encoded::nothing("there is no DWARF in its object files: nothing to encode"));
    }
    let union = timing.phase("merge", || merge::union(outputs));
    let draws_on_files = union.notes.draws_on_files;
    let objects = Objects { names: &names, target, all: MemberFacts::objects(&members) };
    let encoded = finish(&objects, union, base, options, timing)?;
    Ok(Encoded { draws_on_files, ..encoded })
}

/// Whether all of its DWARF is in its units.
fn has_own_units(dwarf: &Dwarf<'_>) -> bool {
    dwarf.supplementary.is_none() && dwarf.type_units.is_empty()
}

/// Decodes the units that are not known, and puts all together.
fn decode(
    dwarf: &Dwarf<'_>,
    options: &Options,
    known: Option<&Known>,
    timing: &Timing,
) -> Result<(Union, Option<Work>)> {
    let mut decoded = timing.phase("decode", || decode::units(dwarf, options, known))?;
    let Some(known) = known else {
        return Ok((timing.phase("merge", || merge::union(decoded.outputs)), None));
    };
    let mut work = Work { hits: decoded.hits.len(), ..Work::default() };
    if work.hits > 0 {
        match timing.phase("load", || known.load(&decoded.hits, &decoded.met, &dwarf.names)) {
            Ok(loaded) => decoded.outputs.insert(0, loaded),
            Err(problem) => {
                // What was counted on is not there: once more, with nothing to count on.
                let (union, again) = decode(dwarf, options, Some(&Known::default()), timing)?;
                return Ok((union, again.map(|again| Work { problem: Some(problem), ..again })));
            }
        }
    }
    let union = timing.phase("merge", || merge::union(decoded.outputs));
    work.misses = union.fragments.len() - work.hits;
    if work.hits < decoded.kept.len() || work.hits < known.len() {
        let write = || kept::write(&union, &dwarf.names, &decoded.kept);
        work.whole = Some(timing.phase("keep", write));
    }
    Ok((union, Some(work)))
}

/// Puts what was encoded upon `base` on a small base of its own (spec/encoding 7.4).
///
/// # Errors
/// When it leans on something that cannot be distilled, or on nothing.
pub fn distill(encoded: Encoded, base: &Btf<'_>, timing: &Timing) -> Result<Encoded> {
    if encoded.btf.is_empty() {
        return Ok(encoded);
    }
    timing.phase("distill", || {
        let split =
            Btf::parse(&encoded.btf, Some(base)).context("its BTF does not fit its base")?;
        let pair = distill::distill(&split)
            .context("its base cannot be distilled; without `distilled_base` it can be encoded")?;
        Ok(Encoded { btf: pair.split, distilled_base: Some(pair.base), ..encoded })
    })
}

/// Reads what all units need. A linked file's DWARF can be read without its symbols, those of a
/// relocatable one are needed to relocate it.
fn load<'a>(
    elf: &'a ElfFile,
    base: Option<&Arc<Prepared>>,
    options: &Options,
) -> Result<(Option<Dwarf<'a>>, Option<SymbolTable>)> {
    let read_symbols = || elf.symbols().context("failed to read the symbol table");
    if elf.target().is_relocatable() {
        let symbols = read_symbols()?;
        return Ok((Dwarf::load(elf, symbols.as_ref(), base, options)?, symbols));
    }
    let (dwarf, symbols) = rayon::join(|| Dwarf::load(elf, None, base, options), read_symbols);
    Ok((dwarf?, symbols?))
}

/// Everything after decoding: what the units say together, and ELF files about them.
fn finish(
    objects: &Objects<'_>,
    mut union: Union,
    base: Option<&Arc<Prepared>>,
    options: &Options,
    timing: &Timing,
) -> Result<Encoded> {
    if union.fragments.is_empty() {
        let notes = &union.notes;
        ensure!(!notes.lacks_units(), "none of its units is there: {notes}");
        let nothing = "it has no unit that the options admit: nothing to encode";
        return Ok(Encoded::nothing(nothing));
    }
    let mut encoded = Encoded::default();
    if objects.all.iter().all(|object| object.symbols.is_absent()) {
        let notice = "it has no symbol table: functions and variables are left out";
        encoded.notices.push(notice.to_owned());
    }
    if !union.notes.is_empty() {
        encoded.notices.push(format!("BTF cannot express everything in it: {}", union.notes));
    }
    let index_type = IndexClass::find(&mut union, objects.names.inline(b"int"));
    let base = base.map(|base| {
        let (pool, class) = (&union.pool, index_type.class);
        timing.phase("match", || Matching::new(base, objects.names, pool, class))
    });
    let (deviations, selected) = timing.phase("select", || {
        rayon::join(
            || Deviations::find(&union.pool, &union.fragments, base.as_ref()),
            || select(objects, &union, options),
        )
    });
    let (variables, functions) = selected?;
    encoded.skips.extend(functions.skips);
    encoded.skips.extend(variables.skips.iter().cloned());
    let is_split = base.is_some();
    let mut numbered = timing.phase("number", || {
        merge::number(&union, deviations, &variables.by_fragment, &index_type, base)
    });
    let appended = timing.phase("append", || {
        let chosen = &functions.chosen;
        append::append(objects, &mut union, &mut numbered, chosen, &variables, options)
    })?;
    // A module all of whose types are in its base still has BTF, to say so.
    if numbered.items.is_empty() && !is_split {
        encoded.notices.push("it has no type: nothing to encode".to_owned());
        return Ok(encoded);
    }
    let contents = Contents {
        union: &union,
        numbered: &numbered,
        functions: &appended.functions,
        function_ids: &appended.function_ids,
        datasecs: &appended.datasecs,
        names: objects.names,
    };
    let format = Format {
        big_endian: objects.target.big_endian,
        has_layout: options.features.has(Feature::Layout),
        keeps_invalid_names: options.compat_pahole,
    };
    let emitted = timing.phase("emit", || emit::emit(contents, format))?;
    encoded.notices.extend(misfits(&emitted, options));
    if is_split {
        encoded.mentions = footing::mentions(&union.pool, objects.names);
    }
    encoded.btf = emitted.btf;
    Ok(encoded)
}

/// What an image has that the kernel would refuse, or that had to be changed for it.
fn misfits(emitted: &Emitted, options: &Options) -> impl Iterator<Item = String> {
    let keeps_names = options.compat_pahole;
    let names = emitted.invalid_names.as_ref().map(|(count, first, spelt)| {
        let (first, spelt) = (shortened(first), shortened(spelt));
        if keeps_names {
            return format!(
                "the kernel will refuse this BTF: {count} x name that is none in C (first \
                 `{first}`); without `--compat=pahole` it is spelt otherwise"
            );
        }
        format!(
            "{count} x name that is none in C, so spelt otherwise (first `{first}` as `{spelt}`)"
        )
    });
    let members = emitted.misplaced_members.as_ref().map(|(count, first)| {
        format!(
            "the kernel will refuse this BTF: {count} x struct with members out of order, beyond its \
             end or of its own type (first `{}`)",
            first.escape_debug()
        )
    });
    let emptied = (emitted.emptied > 0).then(|| {
        format!("{} x type that is used by value but only declared, so empty", emitted.emptied)
    });
    names.into_iter().chain(emptied).chain(members)
}

/// A name in a message.
fn shortened(name: &str) -> String {
    const LENGTH: usize = 60;
    let mut text: String = name.chars().take(LENGTH).flat_map(char::escape_debug).collect();
    if name.chars().nth(LENGTH).is_some() {
        text.push_str("...");
    }
    text
}

/// What symbols and sections say about variables and functions.
fn select<'a>(
    objects: &Objects<'a>,
    union: &Union,
    options: &Options,
) -> Result<(ChosenVariables, Selection<'a>)> {
    let mut table = FunctionTable::new(&objects.all);
    if options.features.has(Feature::DeclTagKfuncs) {
        for object in &objects.all {
            table.mark_kfuncs(object).context("failed to read the kfuncs")?;
        }
    }
    let (fragments, names) = (&union.fragments, objects.names);
    let variables = select::variables(fragments, objects, options)?;
    let is_relocatable = objects.target.is_relocatable();
    let functions =
        select::functions(&union.pool, fragments, names, &table, options, is_relocatable);
    Ok((variables, functions))
}
