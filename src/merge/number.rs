//! Assigns ids: types and variables in order of first occurrence, then what is appended.

use super::ambiguity::{Deviations, Place};
use super::union::Union;
use crate::base::Matching;
use crate::btf::kind::{Info, Kind};
use crate::fragment::IndexType;
use crate::names::NameId;
use crate::pool::{ClassId, Pool, Ref, Target};

/// Something that gets the next id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A class where it does not deviate.
    Class(ClassId),
    /// A block of deviating classes.
    Block(u32),
    /// A variable: index of the fragment, index in it.
    Variable(u32, u32),
    /// A tag of the variable before it: index of the fragment, of the variable, of the tag.
    VariableTag(u32, u32, u32),
    /// A function: index among the chosen ones.
    Function(u32),
    /// A tag of a function: index of the function, value and component index of the tag.
    FunctionTag(u32, NameId, i32),
    /// A section with variables: index among those.
    Datasec(u32),
}

/// Ids of everything that has one.
#[derive(Debug)]
pub struct Numbered<'a> {
    /// What has an id, in order: the first has `first_id`.
    pub items: Vec<Item>,
    /// Id of the first item.
    pub first_id: u32,
    /// By class: its id, or 0.
    class_ids: Vec<u32>,
    /// By block: its id, or 0.
    block_ids: Vec<u32>,
    /// The index type of all arrays.
    index_type: Option<ClassId>,
    deviations: Deviations,
    base: Option<Matching<'a>>,
}

/// Numbers all types that the base does not have, and the `variables` that were chosen: indices
/// into each fragment's list.
#[must_use]
pub fn number<'a>(
    union: &Union,
    deviations: Deviations,
    variables: &[Vec<u32>],
    index_type: &IndexClass,
    base: Option<Matching<'a>>,
) -> Numbered<'a> {
    let mut class_ids = base.as_ref().map_or_else(Vec::new, |base| base.ids().to_vec());
    class_ids.resize(union.pool.len(), 0);
    let mut numbered = Numbered {
        items: Vec::new(),
        first_id: base.as_ref().map_or(1, |base| base.base().end_id()),
        class_ids,
        block_ids: deviations.blocks().iter().map(|block| block.base_id).collect(),
        index_type: index_type.class,
        deviations,
        base,
    };
    for (place, fragment) in union.fragments.iter().enumerate() {
        if numbered.deviations.has_unit(fragment.unit) {
            for &class in &fragment.types {
                numbered.occurrence(&union.pool, fragment.unit, class);
            }
        } else {
            for &class in &fragment.types {
                if numbered.class_ids[class.0 as usize] == 0 {
                    numbered.new_class(&union.pool, class);
                }
            }
        }
        if index_type.fragment == Some(place)
            && let Some(class) = index_type.class
        {
            numbered.occurrence(&union.pool, fragment.unit, class);
        }
        for &class in &fragment.tags {
            numbered.occurrence(&union.pool, fragment.unit, class);
        }
        for &variable in &variables[place] {
            numbered.items.push(Item::Variable(place as u32, variable));
            let tags = fragment.variables[variable as usize].tags.len() as u32;
            let tag = |tag| Item::VariableTag(place as u32, variable, tag);
            numbered.items.extend((0..tags).map(tag));
        }
    }
    numbered
}

/// The index type of all arrays (3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexClass {
    /// Its class, if there is any array.
    pub class: Option<ClassId>,
    /// The fragment after whose types it is added, if no unit had it in time.
    fragment: Option<usize>,
}

impl IndexClass {
    /// Finds it, or makes it up; `int` is its name.
    #[must_use]
    pub fn find(union: &mut Union, int: NameId) -> Self {
        for (place, fragment) in union.fragments.iter().enumerate() {
            match fragment.index_type {
                IndexType::None => {}
                IndexType::Int(class) => return Self { class: Some(class), fragment: None },
                IndexType::Missing => {
                    let signed_32_bits = 1 << 24 | 32;
                    let record = [int.0, Info::new(Kind::Int, 0, false).0, 4, signed_32_bits];
                    let class = Some(union.pool.intern(&record));
                    return Self { class, fragment: Some(place) };
                }
            }
        }
        Self::default()
    }
}

impl<'a> Numbered<'a> {
    #[inline]
    fn occurrence(&mut self, pool: &Pool, unit: u32, class: ClassId) {
        match self.deviations.place(unit, class) {
            Place::Class(class) => {
                if self.class_ids[class.0 as usize] == 0 {
                    self.new_class(pool, class);
                }
            }
            Place::Block(block) => {
                if self.block_ids[block as usize] == 0 {
                    self.assign(Item::Block(block));
                }
            }
            Place::Base(_) => {}
        }
    }

    fn new_class(&mut self, pool: &Pool, class: ClassId) {
        if self.deviations.is_completed(class, pool.record(class)) {
            // Not 0, so that this is not asked again; never looked up, since no reference leads to
            // a completed declaration.
            self.class_ids[class.0 as usize] = u32::MAX;
        } else {
            self.assign(Item::Class(class));
        }
    }

    /// Gives `item` the next id.
    pub fn assign(&mut self, item: Item) -> u32 {
        let id = self.next_id();
        match item {
            Item::Class(class) => self.class_ids[class.0 as usize] = id,
            Item::Block(block) => self.block_ids[block as usize] = id,
            _ => {}
        }
        self.items.push(item);
        id
    }

    /// The id that comes next.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        self.first_id + self.items.len() as u32
    }

    /// The id of `class` in `unit`; if it has none yet, as prototypes of functions, it gets one.
    pub fn id_or_new(&mut self, unit: u32, class: ClassId) -> u32 {
        match self.deviations.place(unit, class) {
            Place::Class(class) if self.class_ids[class.0 as usize] == 0 => {
                self.assign(Item::Class(class))
            }
            Place::Block(block) if self.block_ids[block as usize] == 0 => {
                self.assign(Item::Block(block))
            }
            place => self.id(place),
        }
    }

    /// Makes room for the classes that were added to the pool.
    pub fn add_classes(&mut self, pool: &Pool) {
        let known = self.class_ids.len();
        self.class_ids.resize(pool.len(), 0);
        if let Some(base) = &mut self.base {
            base.extend(pool);
            self.class_ids[known..].copy_from_slice(&base.ids()[known..]);
        }
    }

    /// The base, and what of it the units have.
    #[must_use]
    pub const fn base(&self) -> Option<&Matching<'a>> {
        self.base.as_ref()
    }

    fn id(&self, place: Place) -> u32 {
        match place {
            Place::Class(class) => self.class_ids[class.0 as usize],
            Place::Block(block) => self.block_ids[block as usize],
            Place::Base(id) => id,
        }
    }

    /// The class and unit whose record an item stands for; a unit in which nothing deviates if
    /// that is the case for the item.
    #[must_use]
    pub fn origin(&self, item: Item) -> Option<(u32, ClassId)> {
        match item {
            Item::Class(class) => Some((NO_UNIT, class)),
            Item::Block(block) => {
                let block = self.deviations.blocks()[block as usize];
                Some((block.unit, block.class))
            }
            _ => None,
        }
    }

    /// The id that a reference in `unit` leads to.
    #[must_use]
    #[inline]
    pub fn reference(&self, unit: u32, reference: Ref) -> u32 {
        if reference == Ref::INDEX {
            return self.index_type.map_or(0, |class| self.class_ids[class.0 as usize]);
        }
        match reference.target() {
            Target::Void => 0,
            Target::Class(class) if unit == NO_UNIT => self.class_ids[class.0 as usize],
            Target::Class(class) => self.id(self.deviations.place(unit, class)),
            Target::Key(key) => {
                self.deviations.resolve(unit, key).map_or(0, |place| self.id(place))
            }
        }
    }
}

/// A unit number that no unit has: nothing deviates there.
pub const NO_UNIT: u32 = u32::MAX;
