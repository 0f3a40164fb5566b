//! What the source code of a random program says: types, without any unit's view of them.

use btfcache::btf::kind::Kind;
use btfcache::pool::Namespace;

use crate::random::Random;

/// A type as C spells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// `void`.
    Void,
    /// One of [`BASES`].
    Base(usize),
    /// A named struct, union or enum, by index of [`Source::entities`].
    Named(usize),
    /// By index of [`Source::typedefs`].
    Typedef(usize),
    /// A pointer or qualifier.
    Link(Link, Box<Type>),
    /// A `btf_type_tag`.
    Tag(&'static str, Box<Type>),
    /// An array and its length.
    Array(Box<Type>, u32),
    /// Result and parameters.
    Prototype(Box<Type>, Vec<(String, Type)>),
    /// A struct or union without a name.
    Nameless(Composite),
    /// An enum without a name.
    NamelessEnum(Enumeration),
}

/// A pointer or qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Link {
    /// `*`.
    Pointer,
    /// `const`.
    Const,
    /// `volatile`.
    Volatile,
    /// `restrict`.
    Restrict,
}

impl Link {
    /// The kind of BTF type.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Pointer => Kind::Ptr,
            Self::Const => Kind::Const,
            Self::Volatile => Kind::Volatile,
            Self::Restrict => Kind::Restrict,
        }
    }
}

/// The body of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Composite {
    /// Whether it is a union.
    pub is_union: bool,
    /// Whether offsets have the form that bitfields need.
    pub has_bitfields: bool,
    /// Bytes beyond those of the members.
    pub padding: u32,
    /// Names and types of members.
    pub members: Vec<(String, Type)>,
}

/// The body of an enum; a forward declaration if it has a name but no values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Enumeration {
    /// Whether values have 64 bits.
    pub is_wide: bool,
    /// Names and values.
    pub values: Vec<(String, u32)>,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A struct or union.
    Composite(Composite),
    /// An enum.
    Enumeration(Enumeration),
}

/// A name and its definitions, of which a unit sees one or none.
#[derive(Clone, Debug)]
pub struct Entity {
    /// What kind of name.
    pub namespace: Namespace,
    /// The name.
    pub name: String,
    /// Its definitions.
    pub variants: Vec<Body>,
}

/// A typedef and what it stands for; a unit sees one of these.
#[derive(Clone, Debug)]
pub struct Typedef {
    /// The name.
    pub name: String,
    /// Its definitions.
    pub variants: Vec<Type>,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name.
    pub name: String,
    /// Its type.
    pub prototype: Type,
}

/// Name, size and encoding word of base types. The first is the index type.
pub const BASES: [(&str, u32, u32); 4] = [
    ("int", 4, 1 << 24 | 32),
    ("char", 1, 1 << 24 | 8),
    ("long unsigned int", 8, 64),
    ("_Bool", 1, 4 << 24 | 8),
];

/// What a program has that libbpf is known to treat in its own way. A program without any of it
/// must come out the same; rules are those of spec/btf-and-dedup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Names with several definitions, in different units.
    pub is_ambiguous: bool,
    /// Units that only declare some of the names they use.
    pub has_forwards: bool,
    /// Arrays of different elements with equal length: rule G7.
    pub has_equal_arrays: bool,
    /// Types that a unit repeats, to the letter, and declarations beside definitions: rule G8.
    pub has_repeats: bool,
    /// A struct and a union of the same name: rule G9.
    pub has_clashes: bool,
    /// Enums with neither name nor value: rule L7.
    pub has_empty_enums: bool,
    /// Two definitions of one name in the same unit, as two functions can each have a
    /// `struct local`. Off in all tests: `src/fragment` gives the second an alias, which needs DIEs
    /// to be made, so that this is tested where DWARF is decoded.
    pub has_local_duplicates: bool,
}

impl Traits {
    /// All of them.
    #[must_use]
    pub const fn of_all() -> Self {
        Self {
            is_ambiguous: true,
            has_forwards: true,
            has_equal_arrays: true,
            has_repeats: true,
            has_clashes: true,
            has_empty_enums: true,
            has_local_duplicates: false,
        }
    }
}

/// All that the units of a program can say.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Structs, unions, enums.
    pub entities: Vec<Entity>,
    /// Typedefs; each stands for others before it only.
    pub typedefs: Vec<Typedef>,
    /// Functions.
    pub functions: Vec<Function>,
    /// Other types that are used.
    pub types: Vec<Type>,
}

impl Source {
    /// Makes up a program.
    #[must_use]
    pub fn new(traits: Traits, random: &mut Random) -> Self {
        let entities = random.between(2, 9);
        let typedefs = random.between(0, 5);
        Maker { traits, random, entities, typedefs, lengths: Vec::new() }.source()
    }
}

struct Maker<'a> {
    traits: Traits,
    random: &'a mut Random,
    /// Numbers of entities and of typedefs that can be used.
    entities: usize,
    typedefs: usize,
    /// Element types of arrays: the place of each tells its length, unless lengths may be equal.
    lengths: Vec<Type>,
}

impl Maker<'_> {
    fn source(mut self) -> Source {
        let mut source = Source::default();
        let typedefs = self.typedefs;
        for index in 0..typedefs {
            self.typedefs = index;
            source.typedefs.push(self.typedef(index));
        }
        for index in 0..self.entities {
            let entity = self.entity(index, &source.entities);
            source.entities.push(entity);
        }
        for index in 0..self.random.between(0, 3) {
            let prototype = self.prototype(2);
            source.functions.push(Function { name: format!("function{index}"), prototype });
        }
        for _ in 0..self.random.between(1, 4) {
            let ty = self.ty(3);
            source.types.push(ty);
        }
        source
    }

    fn typedef(&mut self, index: usize) -> Typedef {
        // C programs often give a struct and a typedef the same name.
        let name = if self.random.percent(30) {
            format!("entity{index}")
        } else {
            format!("typedef{index}")
        };
        let mut variants = vec![self.ty(3)];
        if self.traits.is_ambiguous && self.random.percent(25) {
            variants.push(self.ty(3));
        }
        Typedef { name, variants }
    }

    fn entity(&mut self, index: usize, before: &[Entity]) -> Entity {
        let namespace = match self.random.below(10) {
            0..=5 => Namespace::Struct,
            6..=7 => Namespace::Union,
            _ => Namespace::Enum,
        };
        let mut name = format!("entity{index}");
        if let Some(other) = before.last()
            && self.can_share_name(namespace, &other.name, before)
            && self.random.percent(40)
        {
            name.clone_from(&other.name);
        }
        let mut variants = vec![self.body(namespace)];
        if self.traits.is_ambiguous && self.random.percent(40) {
            for _ in 0..self.random.between(1, 2) {
                let variant = self.changed(&variants[0]);
                if !variants.contains(&variant) {
                    variants.push(variant);
                }
            }
        }
        Entity { namespace, name, variants }
    }

    /// Whether a name is free for a struct, union or enum. A struct and a union have no name in
    /// common unless that is wanted.
    fn can_share_name(&self, namespace: Namespace, name: &str, before: &[Entity]) -> bool {
        let is_enum = |namespace| namespace == Namespace::Enum;
        let mut others = before.iter().filter(|entity| entity.name == name);
        others.all(|entity| {
            let is_harmless = is_enum(namespace) != is_enum(entity.namespace);
            let is_clash = self.traits.has_clashes && namespace != entity.namespace;
            is_harmless || is_clash
        })
    }

    fn body(&mut self, namespace: Namespace) -> Body {
        match namespace {
            Namespace::Enum => Body::Enumeration(self.enumeration(1)),
            _ => Body::Composite(self.composite(namespace == Namespace::Union, 3)),
        }
    }

    /// Another definition of the same name: often one that only differs in what a member leads to.
    fn changed(&mut self, body: &Body) -> Body {
        let mut body = body.clone();
        match &mut body {
            Body::Enumeration(enumeration) => {
                let name = format!("OTHER{}", self.random.below(3));
                enumeration.values.push((name, 7));
            }
            Body::Composite(composite) => {
                let place = self.random.below(composite.members.len() + 1);
                match composite.members.get_mut(place) {
                    Some(member) => member.1 = self.ty(2),
                    None => composite.padding += 8,
                }
            }
        }
        body
    }

    fn composite(&mut self, is_union: bool, depth: usize) -> Composite {
        let count = self.random.between(1, 4);
        let members = (0..count).map(|place| (format!("member{place}"), self.ty(depth))).collect();
        let has_bitfields = self.random.percent(10);
        Composite { is_union, has_bitfields, padding: 0, members }
    }

    fn enumeration(&mut self, least: usize) -> Enumeration {
        let count = self.random.between(least, 3);
        let first = self.random.below(2);
        let value = |place: usize| (format!("VALUE{place}"), place as u32);
        let is_wide = self.random.percent(20);
        Enumeration { is_wide, values: (first..first + count).map(value).collect() }
    }

    fn prototype(&mut self, depth: usize) -> Type {
        let result = if self.random.percent(30) { Type::Void } else { self.ty(depth) };
        let count = self.random.between(0, 3);
        let mut parameters: Vec<(String, Type)> =
            (0..count).map(|place| (self.parameter_name(place), self.ty(depth))).collect();
        if self.random.percent(10) {
            parameters.push((String::new(), Type::Void));
        }
        Type::Prototype(Box::new(result), parameters)
    }

    fn parameter_name(&mut self, place: usize) -> String {
        if self.random.percent(50) { String::new() } else { format!("parameter{place}") }
    }

    /// A type that a member can have; it nests at most so deep.
    fn ty(&mut self, depth: usize) -> Type {
        if depth == 0 {
            return self.leaf();
        }
        if self.traits.has_equal_arrays && self.random.percent(30) {
            let base = Type::Base(self.random.below(2));
            return Type::Array(Box::new(Type::Link(Link::Pointer, Box::new(base))), 2);
        }
        match self.random.below(12) {
            0..=1 => self.leaf(),
            2..=5 => self.pointer(depth - 1),
            6 => self.qualified(depth - 1),
            7 => self.array(depth - 1),
            8 => {
                let is_union = self.random.percent(40);
                Type::Nameless(self.composite(is_union, depth - 1))
            }
            9 if self.random.percent(50) => {
                let may_be_empty = self.traits.has_empty_enums && self.random.percent(30);
                Type::NamelessEnum(self.enumeration(usize::from(!may_be_empty)))
            }
            10 if self.random.percent(40) => {
                let tag = ["user", "rcu"][self.random.below(2)];
                let tagged = Type::Tag(tag, Box::new(self.ty(depth - 1)));
                Type::Link(Link::Pointer, Box::new(tagged))
            }
            _ => self.named(),
        }
    }

    fn leaf(&mut self) -> Type {
        if self.random.percent(60) {
            Type::Base(self.random.below(BASES.len()))
        } else {
            self.named()
        }
    }

    fn named(&mut self) -> Type {
        let place = self.random.below(self.entities + self.typedefs);
        if place < self.entities {
            Type::Named(place)
        } else {
            Type::Typedef(place - self.entities)
        }
    }

    fn pointer(&mut self, depth: usize) -> Type {
        let target = match self.random.below(10) {
            0 => Type::Void,
            1..=2 => self.prototype(depth.min(1)),
            3..=6 => self.named(),
            _ => self.ty(depth),
        };
        Type::Link(Link::Pointer, Box::new(target))
    }

    fn qualified(&mut self, depth: usize) -> Type {
        let link = [Link::Const, Link::Const, Link::Volatile, Link::Restrict][self.random.below(4)];
        let target = if link == Link::Restrict { self.pointer(depth) } else { self.ty(depth) };
        Type::Link(link, Box::new(target))
    }

    fn array(&mut self, depth: usize) -> Type {
        let element = self.ty(depth);
        if self.traits.has_equal_arrays {
            return Type::Array(Box::new(element), self.random.between(1, 2) as u32);
        }
        let known = self.lengths.iter().position(|other| *other == element);
        let length = known.unwrap_or_else(|| {
            self.lengths.push(element.clone());
            self.lengths.len() - 1
        });
        Type::Array(Box::new(element), length as u32)
    }
}
