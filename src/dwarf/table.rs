//! Abbreviation tables (DWARF 5, section 7.5.3): from the code in a DIE to its [`Template`].
//!
//! Compilers give each unit a table of its own, but what the tables declare is mostly the same under
//! other codes, so that a declaration seen before is not compiled again.

use foldhash::fast::RandomState;
use gimli::constants as dw;
use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

use super::budget::{Budget, Exhausted};
use super::cursor::{Cursor, Eof};
use super::template::{DeclarationError, Encoding, Forms, Step, Template};

/// As many declarations and steps are remembered. The tables of a kernel have about 3000 distinct
/// declarations.
const MAX_KNOWN: usize = 1 << 14;

/// Why an abbreviation table could not be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table is cut off.
    #[error("the abbreviation table is cut off")]
    Eof,
    /// An attribute has a form that no DWARF version up to 5 defines: its size is unknown.
    #[error("unknown attribute form {0:#x}")]
    UnknownForm(u64),
    /// Many units use a table each that share most of their bytes.
    #[error(transparent)]
    TooOften(#[from] Exhausted),
    /// Two abbreviations have the same code.
    #[error("abbreviation code {0} is defined twice")]
    Duplicate(u64),
}

impl From<Eof> for TableError {
    fn from(_: Eof) -> Self {
        Self::Eof
    }
}

impl From<DeclarationError> for TableError {
    fn from(error: DeclarationError) -> Self {
        match error {
            DeclarationError::Eof => Self::Eof,
            DeclarationError::UnknownForm(form) => Self::UnknownForm(form),
        }
    }
}

/// The compiled abbreviations of one table. Reused from unit to unit of one file.
#[derive(Debug, Default)]
pub struct Templates {
    /// Those with the codes 1, 2, 3...
    templates: Vec<Template>,
    /// Those whose codes do not follow 1, 2, 3...
    sparse: BTreeMap<u64, Template>,
    /// What was compiled, to not do it again for the next unit.
    source: Option<(u64, Encoding)>,
    /// The steps of all known declarations.
    steps: Vec<Step>,
    known: HashTable<Known>,
    forms: Forms,
    hasher: RandomState,
}

/// A declaration that was compiled.
#[derive(Debug)]
struct Known {
    /// Where it stands in `.debug_abbrev`, its code left out.
    start: usize,
    size: usize,
    encoding: Encoding,
    hash: u64,
    template: Template,
}

impl Templates {
    /// Compiles the table at `offset` of `.debug_abbrev`, unless it is the one at hand. `section`
    /// must be the same each time.
    ///
    /// # Errors
    /// When the table is damaged, or too many tables were compiled for their size; nothing may be
    /// looked up then.
    pub fn compile(
        &mut self,
        section: &[u8],
        offset: u64,
        encoding: Encoding,
        budget: &Budget,
    ) -> Result<(), TableError> {
        if self.source == Some((offset, encoding)) {
            return Ok(());
        }
        self.templates.clear();
        self.sparse.clear();
        self.source = None;
        if self.known.len() > MAX_KNOWN || self.steps.len() > MAX_KNOWN {
            self.known.clear();
            self.steps.clear();
        }
        self.forms.look_up(encoding);
        let start = usize::try_from(offset).map_err(|_| TableError::Eof)?;
        let mut cursor = Cursor::<false>::new(section, start);
        loop {
            let code = cursor.uleb()?;
            if code == 0 {
                break;
            }
            let start = cursor.position;
            pass_declaration(&mut cursor)?;
            let template = self.template(section, start, cursor.position, encoding)?;
            self.add(code, template)?;
        }
        budget.spend((cursor.position - start) as u64)?;
        self.source = Some((offset, encoding));
        Ok(())
    }

    /// The template of an abbreviation code.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, code: u64) -> Option<&Template> {
        match self.templates.get((code as usize).wrapping_sub(1)) {
            Some(template) => Some(template),
            None => self.get_sparse(code),
        }
    }

    #[cold]
    fn get_sparse(&self, code: u64) -> Option<&Template> {
        self.sparse.get(&code)
    }

    /// The steps of `template`.
    #[inline(always)]
    #[must_use]
    pub fn steps(&self, template: &Template) -> &[Step] {
        &self.steps[template.steps.0 as usize..template.steps.1 as usize]
    }

    /// The template of the declaration in `start..end` of `section`.
    fn template(
        &mut self,
        section: &[u8],
        start: usize,
        end: usize,
        encoding: Encoding,
    ) -> Result<Template, TableError> {
        let declaration = &section[start..end];
        let hash = self.hasher.hash_one(declaration);
        let is_same = |known: &Known| {
            known.encoding == encoding && section[known.start..][..known.size] == *declaration
        };
        if let Some(known) = self.known.find(hash, is_same) {
            return Ok(known.template);
        }
        let template = Template::compile(declaration, &self.forms, &mut self.steps)?;
        let known = Known { start, size: declaration.len(), encoding, hash, template };
        self.known.insert_unique(hash, known, |known| known.hash);
        Ok(template)
    }

    fn add(&mut self, code: u64, template: Template) -> Result<(), TableError> {
        if self.get(code).is_some() {
            return Err(TableError::Duplicate(code));
        }
        if code == self.templates.len() as u64 + 1 {
            self.templates.push(template);
        } else {
            self.sparse.insert(code, template);
        }
        Ok(())
    }
}

/// Passes over a declaration: a tag, whether it has children, pairs of attribute and form up to one
/// of zeros.
#[inline]
pub(crate) fn pass_declaration(cursor: &mut Cursor<'_, false>) -> Result<(), Eof> {
    cursor.uleb()?;
    cursor.u8()?;
    loop {
        let (attribute, form) = (cursor.uleb()?, cursor.uleb()?);
        if form == u64::from(dw::DW_FORM_implicit_const.0) {
            cursor.sleb()?;
        }
        if attribute == 0 && form == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::template::DieKind;

    const ENCODING: Encoding =
        Encoding { version: 5, offset_size: 4, address_size: 8, is_elsewhere: false };

    #[test]
    fn equal_declarations_under_other_codes_and_encodings() {
        // A pointer with DW_AT_byte_size as implicit_const 8 and DW_AT_sibling as sec_offset.
        let declaration = [0x0f, 0, 0x0b, 0x21, 8, 0x01, 0x17, 0, 0];
        let mut section = vec![1];
        section.extend(declaration);
        section.extend([7]);
        section.extend(declaration);
        section.push(0);
        let mut templates = Templates::default();
        let budget = Budget::for_size(section.len() as u64);
        for (offset_size, size) in [(4, 4), (8, 8), (4, 4)] {
            let encoding = Encoding { offset_size, ..ENCODING };
            templates.compile(&section, 0, encoding, &budget).unwrap();
            for code in [1, 7] {
                let template = templates.get(code).unwrap();
                assert_eq!((template.kind, template.fixed_size), (DieKind::Pointer, Some(size)));
            }
            assert!(templates.get(0).is_none() && templates.get(2).is_none());
        }
        assert_eq!(templates.known.len(), 2);
    }

    #[test]
    fn codes_in_any_order_but_none_twice() {
        let declaration = [0x0f, 0, 0, 0];
        let table = |codes: &[u8]| {
            let bytes = codes.iter().flat_map(|&code| [&[code], &declaration[..]].concat());
            let section: Vec<u8> = bytes.chain([0]).collect();
            let mut templates = Templates::default();
            let result = templates.compile(&section, 0, ENCODING, &Budget::for_size(0));
            result.map(|()| (0..10).filter(|&code| templates.get(code).is_some()).count())
        };
        assert_eq!(table(&[1, 2, 3]), Ok(3));
        assert_eq!(table(&[3, 1, 2, 9, 4]), Ok(5));
        assert_eq!(table(&[3, 1, 2, 3]), Err(TableError::Duplicate(3)));
        assert_eq!(table(&[1, 2, 1]), Err(TableError::Duplicate(1)));
    }

    #[test]
    fn tables_that_are_cut_off_or_have_unknown_forms() {
        let compile = |section: &[u8]| {
            Templates::default().compile(section, 0, ENCODING, &Budget::for_size(0))
        };
        assert_eq!(compile(&[1, 0x0f, 0, 0x0b, 0x0b, 0]), Err(TableError::Eof));
        assert_eq!(compile(&[1, 0x0f, 0, 0x0b, 0x7f, 0, 0, 0]), Err(TableError::UnknownForm(0x7f)));
    }
}
