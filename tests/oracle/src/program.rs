//! What the units of a random program contain: every type that a unit knows, as records.
//!
//! A record has the shape of `btfcache::btf::kind`. Its names are places in [`Program::names`],
//! its references places in the unit, counted from 1; the index type of arrays is `Ref::INDEX`.

use btfcache::btf::kind::{Info, Kind, map_refs};
use btfcache::pool::{Namespace, Ref};
use hashbrown::HashMap;

use crate::random::Random;
use crate::types::{BASES, Body, Composite, Enumeration, Source, Traits, Type};

/// A type of a unit.
pub type Record = Vec<u32>;

/// A variable of a unit.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: u32,
    /// Its type.
    pub ty: u32,
    /// Whether other units see it.
    pub is_external: bool,
    /// Values of its tags.
    pub tags: Vec<u32>,
}

/// A function of a unit.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: u32,
    /// Its FUNC_PROTO, which is not among the unit's types.
    pub prototype: Record,
}

/// What a unit contains.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// Its types, in random order.
    pub types: Vec<Record>,
    /// DECL_TAGs of those.
    pub tags: Vec<Record>,
    /// Its variables.
    pub variables: Vec<Variable>,
    /// Its functions.
    pub functions: Vec<Function>,
}

/// A program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All names; the first is empty.
    pub names: Vec<String>,
    /// Its units.
    pub units: Vec<Unit>,
}

impl Program {
    /// Makes up a program.
    #[must_use]
    pub fn new(traits: Traits, random: &mut Random) -> Self {
        assert!(!traits.has_local_duplicates, "see there");
        let source = Source::new(traits, random);
        let mut names = Names::default();
        let count = random.between(2, 7);
        let units = (0..count)
            .map(|_| UnitMaker::new(&source, traits, &mut names, random).unit())
            .collect();
        Self { names: names.list, units }
    }

    /// Its first units, and the others, as two programs with the same names.
    ///
    /// # Panics
    /// If it has fewer than two units.
    #[must_use]
    pub fn cut(&self, random: &mut Random) -> (Self, Self) {
        let place = random.between(1, self.units.len() - 1);
        let part = |units: &[Unit]| Self { names: self.names.clone(), units: units.to_vec() };
        let (first, second) = self.units.split_at(place);
        (part(first), part(second))
    }

    /// The functions that get into the result: of each name the first, as (unit, place).
    #[must_use]
    pub fn chosen_functions(&self) -> Vec<(usize, usize)> {
        let mut seen = Vec::new();
        let mut chosen = Vec::new();
        for (unit, contents) in self.units.iter().enumerate() {
            for (place, function) in contents.functions.iter().enumerate() {
                if !seen.contains(&function.name) {
                    seen.push(function.name);
                    chosen.push((unit, place));
                }
            }
        }
        chosen
    }

    /// The unit after whose types the index type comes because no unit before had one, if arrays
    /// need it.
    #[must_use]
    pub fn unit_without_index_type(&self) -> Option<usize> {
        let first =
            self.units.iter().position(|unit| self.int_of(unit).is_some() || unit.has_array());
        first.filter(|&unit| self.int_of(&self.units[unit]).is_none())
    }

    /// The place of the index type in a unit that has it.
    #[must_use]
    pub fn int_of(&self, unit: &Unit) -> Option<usize> {
        unit.types.iter().position(|record| {
            is_kind(record, Kind::Int) && self.names[record[0] as usize] == BASES[0].0
        })
    }

    /// The place of a name that some record has.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn name(&self, wanted: &str) -> u32 {
        self.names.iter().position(|name| name == wanted).expect("it is a name of the program")
            as u32
    }
}

impl Unit {
    /// Whether it has an array.
    #[must_use]
    pub fn has_array(&self) -> bool {
        self.types.iter().any(|record| is_kind(record, Kind::Array))
    }
}

fn is_kind(record: &[u32], kind: Kind) -> bool {
    Info(record[1]).kind() == Some(kind)
}

/// All names, each once.
#[derive(Debug)]
struct Names {
    list: Vec<String>,
    places: HashMap<String, u32>,
}

impl Default for Names {
    fn default() -> Self {
        let mut names = Self { list: Vec::new(), places: HashMap::new() };
        names.place("");
        names.place(BASES[0].0);
        names
    }
}

impl Names {
    fn place(&mut self, name: &str) -> u32 {
        let next = self.list.len() as u32;
        *self.places.entry_ref(name).or_insert_with(|| {
            self.list.push(name.to_owned());
            next
        })
    }
}

/// Makes one unit.
struct UnitMaker<'a> {
    source: &'a Source,
    traits: Traits,
    names: &'a mut Names,
    random: &'a mut Random,
    /// For each entity the definition that this unit sees, if any.
    entities: Vec<Option<usize>>,
    /// For each typedef the definition that this unit sees.
    typedefs: Vec<usize>,
    types: Vec<Record>,
    /// Where a type was put.
    known: HashMap<Type, u32>,
}

impl<'a> UnitMaker<'a> {
    fn new(
        source: &'a Source,
        traits: Traits,
        names: &'a mut Names,
        random: &'a mut Random,
    ) -> Self {
        let choose = |variants: usize, random: &mut Random| random.below(variants);
        let typedefs =
            source.typedefs.iter().map(|typedef| choose(typedef.variants.len(), random)).collect();
        let entities = vec![None; source.entities.len()];
        let (types, known) = (Vec::new(), HashMap::new());
        Self { source, traits, names, random, entities, typedefs, types, known }
    }

    fn unit(mut self) -> Unit {
        let source = self.source;
        let roots = self.roots();
        roots.iter().for_each(|ty| self.require(ty, true));
        let functions: Vec<&crate::types::Function> =
            source.functions.iter().filter(|_| self.random.percent(50)).collect();
        functions.iter().for_each(|function| self.require(&function.prototype, false));
        roots.iter().for_each(|ty| _ = self.place(ty));
        let mut unit = Unit {
            functions: functions.iter().map(|function| self.function(function)).collect(),
            variables: self.variables(&roots),
            ..Unit::default()
        };
        unit.types = std::mem::take(&mut self.types);
        self.shuffle(&mut unit);
        unit.tags = self.tags(&unit.types);
        unit
    }

    /// What the unit uses for its own sake.
    fn roots(&mut self) -> Vec<Type> {
        let mut roots = self.source.types.clone();
        roots.extend((0..self.source.entities.len()).map(Type::Named));
        roots.extend((0..self.source.typedefs.len()).map(Type::Typedef));
        if self.random.percent(80) {
            roots.push(Type::Base(0));
        }
        roots.retain(|_| self.random.percent(45));
        self.random.shuffle(&mut roots);
        roots
    }

    /// Chooses definitions for what `ty` needs one for: what it has by value, and anything if units
    /// do not declare.
    fn require(&mut self, ty: &Type, by_value: bool) {
        let source = self.source;
        match ty {
            Type::Void | Type::Base(_) | Type::NamelessEnum(_) => {}
            Type::Named(place) => {
                let needed = by_value || !self.traits.has_forwards;
                if needed && self.entities[*place].is_none() {
                    let variants = &source.entities[*place].variants;
                    let variant = self.random.below(variants.len());
                    self.entities[*place] = Some(variant);
                    if let Body::Composite(body) = &variants[variant] {
                        body.members.iter().for_each(|member| self.require(&member.1, true));
                    }
                }
            }
            Type::Typedef(place) => {
                let target = &source.typedefs[*place].variants[self.typedefs[*place]];
                self.require(target, by_value);
            }
            Type::Link(link, target) => {
                self.require(target, by_value && *link != crate::types::Link::Pointer);
            }
            Type::Tag(_, target) => self.require(target, by_value),
            Type::Array(element, _) => self.require(element, by_value),
            Type::Prototype(result, parameters) => {
                self.require(result, false);
                parameters.iter().for_each(|parameter| self.require(&parameter.1, false));
            }
            Type::Nameless(body) => {
                body.members.iter().for_each(|member| self.require(&member.1, true));
            }
        }
    }

    /// Where the unit has this type, counted from 1; put there if it is new, or to be repeated.
    fn place(&mut self, ty: &Type) -> u32 {
        if *ty == Type::Void {
            return 0;
        }
        let is_repeated =
            self.traits.has_repeats && self.random.percent(8) && self.types.len() < 400;
        match self.known.get(ty) {
            Some(&place) if !is_repeated => place,
            _ => self.put(ty, is_repeated),
        }
    }

    fn put(&mut self, ty: &Type, is_repeated: bool) -> u32 {
        self.types.push(Record::new());
        let place = self.types.len() as u32;
        let before = self.known.insert(ty.clone(), place);
        let record = self.record(ty);
        self.types[place as usize - 1] = record;
        if let Some(before) = before
            && is_repeated
            && self.random.percent(50)
        {
            self.known.insert(ty.clone(), before);
        }
        place
    }

    fn record(&mut self, ty: &Type) -> Record {
        let source = self.source;
        match ty {
            Type::Void => unreachable!("void has no record"),
            Type::Base(place) => {
                let (name, size, word) = BASES[*place];
                vec![self.names.place(name), info(Kind::Int, 0, false), size, word]
            }
            Type::Named(place) => {
                let entity = &source.entities[*place];
                let name = self.names.place(&entity.name);
                match self.entities[*place].map(|variant| &entity.variants[variant]) {
                    Some(Body::Composite(body)) => self.composite(name, body),
                    Some(Body::Enumeration(body)) => self.enumeration(name, body),
                    None => self.forward(name, entity.namespace),
                }
            }
            Type::Typedef(place) => {
                let typedef = &source.typedefs[*place];
                let name = self.names.place(&typedef.name);
                let target = self.place(&typedef.variants[self.typedefs[*place]]);
                vec![name, info(Kind::Typedef, 0, false), target]
            }
            Type::Link(link, target) => {
                let target = match **target {
                    Type::Named(place) if self.is_declared_beside() => self.declaration(place),
                    _ => self.place(target),
                };
                vec![0, info(link.kind(), 0, false), target]
            }
            Type::Tag(value, target) => {
                let value = self.names.place(value);
                vec![value, info(Kind::TypeTag, 0, false), self.place(target)]
            }
            Type::Array(element, length) => {
                let element = self.place(element);
                vec![0, info(Kind::Array, 0, false), 0, element, Ref::INDEX.0, *length]
            }
            Type::Prototype(result, parameters) => {
                let vlen = parameters.len() as u32;
                let mut record = vec![0, info(Kind::FuncProto, vlen, false), self.place(result)];
                for (name, ty) in parameters {
                    record.extend([self.names.place(name), self.place(ty)]);
                }
                record
            }
            Type::Nameless(body) => self.composite(0, body),
            Type::NamelessEnum(body) => self.enumeration(0, body),
        }
    }

    fn composite(&mut self, name: u32, body: &Composite) -> Record {
        let kind = if body.is_union { Kind::Union } else { Kind::Struct };
        let count = body.members.len() as u32;
        let size = if body.is_union { 8 } else { count * 8 } + body.padding;
        let mut record = vec![name, info(kind, count, body.has_bitfields), size];
        for (place, (member, ty)) in (0..).zip(&body.members) {
            let offset = if body.is_union { 0 } else { place * 64 };
            record.extend([self.names.place(member), self.place(ty), offset]);
        }
        record
    }

    fn enumeration(&mut self, name: u32, body: &Enumeration) -> Record {
        let kind = if body.is_wide { Kind::Enum64 } else { Kind::Enum };
        let size = if body.is_wide { 8 } else { 4 };
        let mut record = vec![name, info(kind, body.values.len() as u32, false), size];
        for (value, number) in &body.values {
            record.extend([self.names.place(value), *number]);
            record.extend(body.is_wide.then_some(0));
        }
        record
    }

    /// Whether a unit refers to a declaration although it may have the definition.
    fn is_declared_beside(&mut self) -> bool {
        self.traits.has_forwards && self.traits.has_repeats && self.random.percent(3)
    }

    /// Puts a declaration of its own into the unit.
    fn declaration(&mut self, place: usize) -> u32 {
        let entity = &self.source.entities[place];
        let name = self.names.place(&entity.name);
        let record = self.forward(name, entity.namespace);
        self.types.push(record);
        self.types.len() as u32
    }

    /// A declaration. Those of enums can say anything about the size.
    fn forward(&mut self, name: u32, namespace: Namespace) -> Record {
        if namespace != Namespace::Enum {
            return vec![name, info(Kind::Fwd, 0, namespace == Namespace::Union), 0];
        }
        match self.random.below(10) {
            0 => vec![name, info(Kind::Enum, 0, false), 1],
            1 => vec![name, info(Kind::Enum64, 0, false), 8],
            _ => vec![name, info(Kind::Enum, 0, false), 4],
        }
    }

    fn function(&mut self, function: &crate::types::Function) -> Function {
        let name = self.names.place(&function.name);
        Function { name, prototype: self.record(&function.prototype) }
    }

    fn variables(&mut self, roots: &[Type]) -> Vec<Variable> {
        let mut variables = Vec::new();
        for ty in roots {
            if self.random.percent(10) {
                let name = format!("variable{}", self.random.below(3));
                let tags =
                    if self.random.percent(30) { vec![self.names.place("percpu")] } else { vec![] };
                let (name, ty) = (self.names.place(&name), self.place(ty));
                variables.push(Variable { name, ty, is_external: self.random.percent(50), tags });
            }
        }
        variables
    }

    /// Puts the types into random order.
    fn shuffle(&mut self, unit: &mut Unit) {
        let mut order: Vec<usize> = (0..unit.types.len()).collect();
        self.random.shuffle(&mut order);
        let mut places = vec![0; order.len() + 1];
        for (new, &old) in (1..).zip(&order) {
            places[old + 1] = new;
        }
        let moved = |reference: u32| {
            if reference == Ref::INDEX.0 { reference } else { places[reference as usize] }
        };
        unit.types = order.iter().map(|&old| std::mem::take(&mut unit.types[old])).collect();
        unit.types.iter_mut().for_each(|record| map_refs(record, moved));
        unit.functions.iter_mut().for_each(|function| map_refs(&mut function.prototype, moved));
        unit.variables.iter_mut().for_each(|variable| variable.ty = moved(variable.ty));
    }

    /// Tags of some structs and typedefs, in the order of those.
    fn tags(&mut self, types: &[Record]) -> Vec<Record> {
        let mut tags = Vec::new();
        for (place, record) in (1..).zip(types) {
            let can_have = [Kind::Struct, Kind::Typedef].iter().any(|&kind| is_kind(record, kind));
            if can_have && record[0] != 0 && self.random.percent(5) {
                let value = self.names.place("tag");
                tags.push(vec![value, info(Kind::DeclTag, 0, false), place, u32::MAX]);
            }
        }
        tags
    }
}

const fn info(kind: Kind, vlen: u32, kflag: bool) -> u32 {
    Info::new(kind, vlen, kflag).0
}
