//! A program as BTF before any deduplication: every type of every unit.

use btfcache::btf::kind::{Info, Kind, map_names, map_refs};
use btfcache::pool::Ref;

use crate::program::{Program, Record};
use crate::types::BASES;

/// The image, and where everything is in it.
#[derive(Clone, Debug)]
pub struct Input {
    /// The BTF image.
    pub bytes: Vec<u8>,
    /// For each unit the id of its first type.
    pub first_ids: Vec<u32>,
}

impl Input {
    /// Lays out all types in the order in which pahole adds them: unit by unit types, tags and
    /// variables, then functions.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let mut layout = Layout::default();
        let missing = program.unit_without_index_type();
        for (number, unit) in program.units.iter().enumerate() {
            let first = layout.next_id();
            layout.first_ids.push(first);
            layout.index = layout.index.or(program.int_of(unit).map(|place| first + place as u32));
            unit.types.iter().for_each(|record| layout.add(first, record));
            if missing == Some(number) {
                layout.index = Some(layout.next_id());
                let (name, size, word) = BASES[0];
                layout.add(
                    0,
                    &vec![program.name(name), Info::new(Kind::Int, 0, false).0, size, word],
                );
            }
            unit.tags.iter().for_each(|record| layout.add(first, record));
            for variable in &unit.variables {
                layout.variable(first, variable);
            }
        }
        for (unit, place) in program.chosen_functions() {
            let function = &program.units[unit].functions[place];
            layout.add(layout.first_ids[unit], &function.prototype);
            let prototype = layout.next_id() - 1;
            layout.add(1, &vec![function.name, Info::new(Kind::Func, 0, false).0, prototype]);
        }
        layout.finish(program)
    }
}

/// Records with ids for references; those of the index type are open yet.
#[derive(Debug, Default)]
struct Layout {
    records: Vec<Record>,
    first_ids: Vec<u32>,
    index: Option<u32>,
}

impl Layout {
    fn next_id(&self) -> u32 {
        self.records.len() as u32 + 1
    }

    /// Adds a record whose references count from `first`, which has place 1.
    fn add(&mut self, first: u32, record: &Record) {
        let mut record = record.clone();
        map_refs(&mut record, |reference| match reference {
            0 => 0,
            index if index == Ref::INDEX.0 => index,
            place => first + place - 1,
        });
        self.records.push(record);
    }

    fn variable(&mut self, first: u32, variable: &crate::program::Variable) {
        let linkage = u32::from(variable.is_external);
        self.add(
            first,
            &vec![variable.name, Info::new(Kind::Var, 0, false).0, variable.ty, linkage],
        );
        let id = self.next_id() - 1;
        for &tag in &variable.tags {
            self.add(1, &vec![tag, Info::new(Kind::DeclTag, 0, false).0, id, u32::MAX]);
        }
    }

    fn finish(mut self, program: &Program) -> Input {
        let mut strings = Vec::new();
        let offset = |name: &String| {
            let offset = strings.len() as u32;
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
            offset
        };
        let offsets: Vec<u32> = program.names.iter().map(offset).collect();
        let index = self.index.unwrap_or_default();
        for record in &mut self.records {
            map_names(record, |name| offsets[name as usize]);
            map_refs(record, |id| if id == Ref::INDEX.0 { index } else { id });
        }
        let words: Vec<u32> = self.records.concat();
        let size = words.len() as u32 * 4;
        let header = [0xeb9f | 1 << 16, 24, 0, size, size, strings.len() as u32];
        let mut bytes: Vec<u8> =
            header.iter().chain(&words).flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(strings);
        Input { bytes, first_ids: self.first_ids }
    }
}
