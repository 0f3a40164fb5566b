//! The one reader of DWARF: units, abbreviations, DIEs, location expressions.

pub mod budget;
pub mod cursor;
pub mod die;
pub mod foreign;
pub mod location;
pub mod other_file;
pub mod sections;
pub mod simple;
pub mod table;
pub mod template;
pub mod unit;
