//! Puts the workers' pools and fragments together.

use rayon::prelude::*;

use crate::btf::kind::map_refs;
use crate::fragment::{Fragment, IndexType, Notes};
use crate::pool::{ClassId, Pool, Ref, Target};

/// What one worker decoded.
#[derive(Debug)]
pub struct WorkerOutput {
    /// The classes its fragments refer to.
    pub pool: Pool,
    /// Its fragments, in unit order.
    pub fragments: Vec<Fragment>,
    /// What it could not express.
    pub notes: Notes,
}

/// All fragments over one pool.
#[derive(Debug)]
pub struct Union {
    /// All classes; each after those it refers to.
    pub pool: Pool,
    /// All fragments in unit order; unit numbers are places in the file.
    pub fragments: Vec<Fragment>,
    /// What could not be expressed.
    pub notes: Notes,
}

/// Merges the outputs of all workers. The result depends on the fragments alone, not on which
/// worker made them: class ids may differ, but nothing is ordered by them.
#[must_use]
pub fn union(outputs: Vec<WorkerOutput>) -> Union {
    let mut pool = Pool::new();
    let mut notes = Notes::default();
    let mut fragments = Vec::new();
    for (worker, output) in outputs.into_iter().enumerate() {
        notes.merge(&output.notes);
        let mut own = output.fragments;
        if worker == 0 {
            pool = output.pool;
        } else {
            let translation = add_pool(&mut pool, &output.pool);
            own.par_iter_mut().for_each(|fragment| translate(fragment, &translation));
        }
        fragments.extend(own);
    }
    fragments.sort_by_key(|fragment| fragment.unit);
    Union { pool, fragments, notes }
}

/// Adds the classes of `added`; returns the new id of each.
fn add_pool(pool: &mut Pool, added: &Pool) -> Vec<ClassId> {
    let mut translation: Vec<ClassId> = Vec::with_capacity(added.len());
    let mut record = Vec::new();
    for class in added.ids() {
        record.clear();
        record.extend_from_slice(added.record(class));
        map_refs(&mut record, |reference| translate_ref(Ref(reference), &translation).0);
        translation.push(pool.intern(&record));
    }
    translation
}

fn translate_ref(reference: Ref, translation: &[ClassId]) -> Ref {
    if reference == Ref::INDEX {
        return reference;
    }
    match reference.target() {
        Target::Class(class) => Ref::class(translation[class.0 as usize]),
        Target::Void | Target::Key(_) => reference,
    }
}

fn translate(fragment: &mut Fragment, translation: &[ClassId]) {
    let new = |class: &mut ClassId| *class = translation[class.0 as usize];
    fragment.types.iter_mut().for_each(new);
    fragment.tags.iter_mut().for_each(new);
    fragment.aliases.iter_mut().for_each(|alias| new(&mut alias.1));
    fragment.functions.iter_mut().for_each(|function| new(&mut function.class));
    for variable in &mut fragment.variables {
        variable.ty = translate_ref(variable.ty, translation);
    }
    if let IndexType::Int(class) = &mut fragment.index_type {
        new(class);
    }
}
