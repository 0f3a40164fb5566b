//! Puts a program through both deduplicators and all checks.

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
    let output = encode(program, random)?;
    let own = read(&output)?;
    Case { input: &whole, first_ids: &input.first_ids, output: &own, ours: &output }.check()?;
    if !(traits.is_ambiguous && traits.has_forwards) {
        check_order(program, random)?;
    }
    let theirs = libbpf::dedup(&input.bytes);
    let theirs = Btf::parse(&theirs, None).expect("libbpf gives sound BTF");
    Ok(compare(traits, &whole, &own, &theirs))
}

/// Encodes with one worker; more of them must give the same bytes (rule D6).
fn encode(program: &Program, random: &mut Random) -> Result<Output, String> {
    let output = ours::encode(program, 1, random);
    for workers in 2..=3 {
        if ours::encode(program, workers, random).bytes != output.bytes {
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
    let one = ours::encode(&program, 1, random);
    random.shuffle(&mut program.units);
    let other = ours::encode(&program, 1, random);
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
    let ours = ours::encode(program, 1, random).bytes;
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
