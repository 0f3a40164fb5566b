//! Finds the masked fields of a unit by going through all of its DIEs, also those that the decoder
//! passes over.

use super::expression;
use super::masking::Masking;
use super::masks::BasePlaces;
use super::operands::{AddressForm, AddressPlace};
use super::plan::{Action, Field, Plan};
use super::table::Plans;
use super::{KeyMaker, Walked};
use crate::dwarf::cursor::Cursor;
use crate::dwarf::template::DieKind;
use crate::dwarf::unit::UnitHeader;

/// Annotations of gcc, which are read where references to them lead. A reference to the middle of
/// something else would be read there too, and see what is masked.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    /// Offsets of such DIEs, ascending.
    dies: Vec<u32>,
    references: Vec<u64>,
}

impl Annotations {
    fn clear(&mut self) {
        self.dies.clear();
        self.references.clear();
    }

    /// Whether all references lead to such a DIE, or nowhere.
    fn are_sound(&self, size: u32) -> bool {
        self.references.iter().all(|&reference| match u32::try_from(reference) {
            Ok(offset) if offset != 0 && offset < size => self.dies.binary_search(&offset).is_ok(),
            _ => true,
        })
    }
}

/// The walk's state.
struct Walk<'a, 'w, const BIG: bool> {
    masking: Masking<'a, 'w, BIG>,
    cursor: Cursor<'a, BIG>,
    header: &'a UnitHeader,
    plans: &'w Plans,
    places: BasePlaces,
    addresses: &'w mut Vec<AddressPlace>,
    annotations: &'w mut Annotations,
    /// Whether the DIE at hand is a child of a function.
    is_in_function: bool,
    /// Where the DIE at hand begins.
    die: u32,
}

impl KeyMaker<'_> {
    pub(super) fn walk<const BIG: bool>(
        &mut self,
        header: &UnitHeader,
        bytes: &[u8],
    ) -> Option<Walked<'_>> {
        let dwarf = self.sources.dwarf;
        let budget = &self.sources.abbreviation_budget;
        let table = *self.table.read(&dwarf.abbreviations, header.abbreviations, budget)?;
        let volatile = self.sources.volatile;
        self.plans.make(&dwarf.abbreviations, &self.table, header.encoding, volatile)?;
        self.parents.clear();
        let masking = Masking::<BIG>::new(self.sources, header, bytes, &mut self.workspace);
        let mut walk = Walk {
            masking,
            cursor: Cursor::new(bytes, 0),
            header,
            plans: &self.plans,
            places: BasePlaces::default(),
            addresses: &mut self.addresses,
            annotations: &mut self.annotations,
            is_in_function: false,
            die: 0,
        };
        walk.unit(&mut self.parents)?;
        let Walk { masking, addresses, .. } = walk;
        let (digests, masks) = masking.finish()?;
        Some(Walked { key: self.sources.key(header, &table, &digests), masks, addresses })
    }
}

impl<const BIG: bool> Walk<'_, '_, BIG> {
    /// Goes through the unit. What is behind the root's children is no DIE.
    fn unit(&mut self, parents: &mut Vec<bool>) -> Option<()> {
        if !self.root()?.has_children {
            return Some(());
        }
        let mut is_in_function = false;
        while self.cursor.position < self.cursor.bytes.len() {
            self.die = self.cursor.position as u32;
            let code = self.cursor.uleb().ok()?;
            if code == 0 {
                match parents.pop() {
                    Some(parent) => is_in_function = parent,
                    None => break,
                }
                continue;
            }
            let plan = self.plans.get(code)?;
            self.is_in_function = is_in_function;
            self.attributes(plan)?;
            if plan.has_children {
                parents.push(is_in_function);
                is_in_function = plan.kind == DieKind::Subprogram;
            }
        }
        self.annotations.are_sound(self.header.size).then_some(())
    }

    /// Indices need to know what they count from, which may stand behind the first of them: then the
    /// root is gone through again.
    fn root(&mut self) -> Option<&Plan> {
        for _ in 0..2 {
            self.addresses.clear();
            self.annotations.clear();
            self.cursor.position = self.header.first_die as usize;
            let code = self.cursor.uleb().ok()?;
            let plan = self.plans.get(code).filter(|plan| plan.kind == DieKind::Root)?;
            let known = self.places;
            self.attributes(plan)?;
            if self.places == known {
                return Some(plan);
            }
            self.masking.restart(self.places)?;
        }
        None
    }

    #[inline(always)]
    fn attributes(&mut self, plan: &Plan) -> Option<()> {
        for step in self.plans.steps(plan) {
            self.cursor.skip(step.before).ok()?;
            match step.action {
                Action::Mask(field, zeros) => self.mask(field, zeros)?,
                other => self.rare(other)?,
            }
        }
        if plan.kind == DieKind::GnuAnnotation {
            self.annotations.dies.push(self.die);
        }
        self.cursor.skip(plan.after).ok()
    }

    #[inline(always)]
    fn mask(&mut self, field: Field, zeros: u32) -> Option<()> {
        self.cursor.position = self.masking.mask_and_keep(self.cursor.position, field, zeros)?;
        Some(())
    }

    fn rare(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Mask(field, zeros) => self.mask(field, zeros),
            Action::List(field, zeros) if self.is_in_function => self.mask(field, zeros),
            Action::List(Field::ListIndex, zeros) => self.mask(Field::Number, zeros),
            Action::List(field, zeros) => {
                let width = if field == Field::List8 { 8 } else { 4 };
                self.mask(Field::Zeros, zeros + width)
            }
            Action::Base(base, width) => {
                Masking::<BIG>::found(&mut self.places, base, self.cursor.position);
                self.mask(Field::Zeros, width)
            }
            Action::Address(zeros) => {
                self.note(AddressForm::Address);
                self.mask(Field::Zeros, zeros)
            }
            Action::AddressIndex(width) => {
                self.note(AddressForm::Index(width));
                let field = if width == 0 { Field::Number } else { Field::Zeros };
                self.mask(field, width.into())
            }
            Action::Number => self.cursor.uleb().ok().map(|_| ()),
            Action::InPlace => self.cursor.string().ok().map(|_| ()),
            Action::Block(width) => {
                let size = self.length(width)?;
                self.cursor.skip_block(size).ok()
            }
            Action::Expression(width) => self.expression(width, false),
            Action::Place(width) => self.expression(width, true),
            Action::Annotation(width) => {
                let reference = self.length(width)?;
                self.annotations.references.push(reference);
                Some(())
            }
            Action::Refuse => None,
        }
    }

    fn note(&mut self, form: AddressForm) {
        let place = self.cursor.position as u32;
        self.addresses.push(AddressPlace { die: self.die, place, form });
    }

    /// A number of this many bytes, or ULEB128.
    fn length(&mut self, width: u8) -> Option<u64> {
        if width == 0 { self.cursor.uleb().ok() } else { self.cursor.unsigned(width).ok() }
    }

    fn expression(&mut self, width: u8, is_place: bool) -> Option<()> {
        let size = self.length(width)?;
        let start = self.cursor.position;
        self.cursor.skip_block(size).ok()?;
        let end = self.cursor.position;
        if is_place {
            let form = AddressForm::Expression(end as u32 - start as u32);
            self.addresses.push(AddressPlace { die: self.die, place: start as u32, form });
        }
        let encoding = self.header.encoding;
        expression::addresses(
            &self.cursor.bytes[start..end],
            encoding,
            BIG,
            |place, field, zeros| {
                self.masking.mask_and_keep(start + place, field, zeros).map(|_| ())
            },
        )
    }
}
