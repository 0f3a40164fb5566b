//! Select: what depends on this very ELF file. Symbols decide about functions, sections about
//! variables, `.BTF_ids` about kfuncs. Cheap, done in every run (DESIGN.md section 2).

mod functions;
mod kfuncs;
mod matching;
mod object;
mod symbols;
mod variables;

pub use functions::{Chosen, Selection, functions};
pub use kfuncs::collect as kfuncs;
pub use object::{Kfunc, Kfuncs, Object, Objects};
pub use symbols::FunctionTable;
pub use variables::{Chosen as ChosenVariables, Placed, variables};
