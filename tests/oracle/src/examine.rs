//! Puts a program through both deduplicators and all checks.

use std::sync::Arc;

use btfcache::base::{Prepared, prepare};
use btfcache::btf::kind::{Info, Kind};
use btfcache::btf::read::Btf;
use btfcache::pool::Namespace;

use crate::compare::{Verdict, compare};
use crate::image::Input;
use crate::libbpf;
use crate::ours::{self, Output, forward_key};
use crate::partition::Partition;
use crate::program::Program;
use crate::random::Random;
use crate::rules::{Case, describe, is_of_variable};
use crate::split::{flattened, upon};
use crate::surplus::{self, Surplus};
use crate::types::Traits;

/// Checks what becomes of a program.
///
/// # Errors
/// Says which rule our result breaks.
///
/// # Panics
/// If libbpf refuses the program.
pub fn examine(traits: Traits, program: &Program, random: &mut Random) -> Result<Verdict, String> {
    let input = Input::new(program);
    let whole = Btf::parse(&input.bytes, None).expect("the input is sound");
    let output = encode(program, None, random)?;
    let own = read(&output)?;
    let case = Case {
        input: &whole,
        first_ids: &input.first_ids,
        output: &own,
        ours: &output,
        first_own_id: 1,
    };
    case.check()?;
    case.check_choices()?;
    if !(traits.is_ambiguous && traits.has_forwards) {
        check_order(program, random)?;
    }
    let theirs = libbpf::dedup(&input.bytes);
    let theirs = Btf::parse(&theirs, None).expect("libbpf gives sound BTF");
    Ok(compare(traits, &whole, &own, &theirs))
}

/// Cuts a program in two, of which the first part becomes a base, and checks what becomes of the other
/// part upon that.
///
/// # Errors
/// Says which rule our result breaks.
///
/// # Panics
/// If libbpf refuses the program.
pub fn examine_split(program: &Program, random: &mut Random) -> Result<Surplus, String> {
    let (kernel, module) = program.cut(random);
    let base = ours::encode(&kernel, None, 1, random).bytes;
    let base_btf = Btf::parse(&base, None).expect("the base is sound");
    let prepared = prepare(base_btf).map_err(|error| error.to_string())?;
    let base_btf = Btf::parse(&base, None).expect("the base is sound");
    let input = Input::new(&module);
    let split = upon(&input.bytes, &base_btf);
    let mut output = encode(&module, Some(&Arc::new(prepared)), random)?;

    let first_own_id = base_btf.end_id();
    let kept = output.map.split_off(1);
    output.map = (0..first_own_id).chain(kept).collect();
    let [whole, ours, theirs] = [&split, &output.bytes, &libbpf::dedup_upon(&base, &split)]
        .map(|part| flattened(&base, part));
    let [whole, ours, theirs] = [&whole, &ours, &theirs]
        .map(|image| Btf::parse(image, None).expect("it is the base and what goes on from there"));
    Case { input: &whole, first_ids: &[], output: &ours, ours: &output, first_own_id }.check()?;
    surplus::compare(first_own_id, [&ours, &theirs])
}

/// Encodes with one worker; more of them must give the same bytes (rule D6).
fn encode(
    program: &Program,
    base: Option<&Arc<Prepared>>,
    random: &mut Random,
) -> Result<Output, String> {
    let output = ours::encode(program, base, 1, random);
    for workers in 2..=3 {
        if ours::encode(program, base, workers, random).bytes != output.bytes {
            return Err(format!("D6: {workers} workers give another result"));
        }
    }
    Ok(output)
}

fn read(output: &Output) -> Result<Btf<'static>, String> {
    Btf::parse(&output.bytes, None).map_err(|error| error.to_string())
}

/// Rule D6: units in another order give the same types, in another order, if there is nothing to
/// choose: which definition a declaration means, which unit gives a function, which of several
/// declarations of an enum stays.
fn check_order(program: &Program, random: &mut Random) -> Result<(), String> {
    let mut program = program.clone();
    program.units.iter_mut().for_each(|unit| unit.functions.clear());
    for record in program.units.iter_mut().flat_map(|unit| &mut unit.types) {
        if forward_key(record) == Some(Namespace::Enum) {
            *record = vec![record[0], Info::new(Kind::Enum, 0, false).0, 4];
        }
    }
    let one = ours::encode(&program, None, 1, random);
    random.shuffle(&mut program.units);
    let other = ours::encode(&program, None, 1, random);
    let (one, other) = (read(&one)?, read(&other)?);
    for members in Partition::new(&[&one, &other]).members().into_iter().skip(1) {
        let (image, id) = members[0];
        let count = members.iter().filter(|node| node.0 == 0).count();
        if count * 2 != members.len() {
            let what = describe([&one, &other][image], id);
            let is_variable = is_of_variable([&one, &other][image], id);
            return Err(format!("D6: {what} depends on the order (variable: {is_variable})"));
        }
    }
    Ok(())
}

/// The input, our result and libbpf's as text.
///
/// # Panics
/// If libbpf refuses the program.
#[must_use]
pub fn dump(program: &Program, random: &mut Random) -> String {
    let input = Input::new(program).bytes;
    let ours = ours::encode(program, None, 1, random).bytes;
    let theirs = libbpf::dedup(&input);
    let mut text = String::new();
    for (title, bytes) in [("input", input), ("ours", ours), ("libbpf", theirs)] {
        let btf = Btf::parse(&bytes, None).expect("it is sound");
        text += &format!("-- {title}\n");
        for id in 1..btf.end_id() {
            text += &describe(&btf, id);
            text.push('\n');
        }
    }
    text
}
