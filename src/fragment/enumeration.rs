//! Enumerations: from their DIEs to BTF records with values (spec/encoding 2.6).

use gimli::constants as dw;

use super::local::Shape;
use super::notes::Note;
use super::types::Head;
use super::walk::Walk;
use crate::btf::kind::{Info, Kind, MAX_VLEN};
use crate::dwarf::die::{DieError, DieRef};
use crate::dwarf::foreign::FIRST_FOREIGN;
use crate::dwarf::template::{DieKind, Slot, Template};
use crate::elf::unsigned;
use crate::names::NameId;
use crate::options::Feature;

impl<const BIG: bool> Walk<'_, '_, BIG> {
    /// 2.6.
    pub(super) fn enumeration(&mut self, template: &Template) -> Result<(), DieError> {
        let index = self.local.begin(self.reader.current, DieKind::Enumeration);
        let Head { name, size, underlying, specification, signature, .. } = self.head(template)?;
        if signature != 0 {
            self.alias(index, signature);
            return self.skip_rest(template);
        }
        let size = self.enum_size(size);
        if name.is_none() && specification != 0 {
            self.local.specified.push((index, specification));
        }
        let has_enum64 = self.context.options.features.has(Feature::Enum64);
        let kind = if size <= 4 || !has_enum64 { Kind::Enum } else { Kind::Enum64 };
        let start = self.local.words.len();
        self.local.words.extend([name.0, 0, size]);
        let mut is_negative = false;
        let mut count = 0_u32;
        if template.has_children {
            while let Some(child) = self.reader.next_die()? {
                if child.kind == DieKind::Enumerator {
                    let (name, value) = match &child.simple {
                        Some(simple) => {
                            let (name, _, value) = self.reader.read_simple(simple)?;
                            (name, value)
                        }
                        None => {
                            self.reader.read(child, self.values)?;
                            (self.values.name(), self.enumerator_value())
                        }
                    };
                    if self.enumerator(kind, name, value, count, &mut is_negative) {
                        count += 1;
                    }
                    self.skip_rest(child)?;
                } else {
                    self.reader.skip_tree(child)?;
                }
            }
        }
        if kind == Kind::Enum64 && underlying >= FIRST_FOREIGN {
            self.local.foreign_enums.push((index, underlying));
        }
        let kflag = match kind {
            Kind::Enum64 => self.is_signed(underlying),
            _ => is_negative && has_enum64,
        };
        self.local.words[start + 1] = Info::new(kind, count, kflag).0;
        self.local.finish(index, start, Shape::Plain, size);
        Ok(())
    }

    /// The value of the enumerator in `values`: the low half of one of 128 bits (Rust).
    fn enumerator_value(&self) -> u64 {
        let Some(block) = self.values.block(Slot::ConstBlock) else {
            return self.values.number(Slot::ConstValue);
        };
        let bytes = self.reader.block(block);
        let low = if BIG { bytes.rchunks(8).next() } else { bytes.chunks(8).next() };
        unsigned(low.unwrap_or(&[]), BIG)
    }

    fn enum_size(&mut self, size: u64) -> u32 {
        match size {
            0 => 4,
            1 | 2 | 4 | 8 => size as u32,
            _ => {
                self.note(Note::EnumSize);
                if size < 4 { 4 } else { 8 }
            }
        }
    }

    /// Adds an enumerator; returns whether it was added.
    fn enumerator(
        &mut self,
        kind: Kind,
        name: NameId,
        value: u64,
        count: u32,
        is_negative: &mut bool,
    ) -> bool {
        if name.is_none() || count >= MAX_VLEN {
            self.note(if name.is_none() {
                Note::NamelessEnumerator
            } else {
                Note::TooManyElements
            });
            return false;
        }
        self.local.words.extend([name.0, value as u32]);
        if kind == Kind::Enum64 {
            self.local.words.push((value >> 32) as u32);
            return true;
        }
        let signed = value as i64;
        *is_negative |= signed < 0;
        let fits = (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&signed);
        if !fits && self.context.options.features.has(Feature::Enum64) {
            self.note(Note::EnumValue);
        }
        true
    }

    /// Whether the type DIE at `offset` has a signed encoding (2.6.4). It is a base type that
    /// may come later, so it is read here and now.
    fn is_signed(&mut self, offset: DieRef) -> bool {
        let position = std::mem::replace(&mut self.reader.cursor.position, offset as usize);
        let mut encoding = 0;
        if offset != 0
            && let Ok(Some(template)) = self.reader.next_die()
            && template.kind == DieKind::Base
            && self.reader.read(template, self.values).is_ok()
        {
            encoding = self.values.number(Slot::Encoding) as u8;
        }
        self.reader.cursor.position = position;
        matches!(dw::DwAte(encoding), dw::DW_ATE_signed | dw::DW_ATE_signed_char)
    }
}
