//! Deduplication by btfcache: what decoding would give, through merge, number and emit.

use std::sync::Arc;

use btfcache::base::{Matching, Prepared};
use btfcache::btf::kind::{Info, Kind, kind_of, map_names, map_refs};
use btfcache::emit::{self, Contents, Format};
use btfcache::fragment::{Fragment, FunctionUse, IndexType, Notes, VariableUse};
use btfcache::merge::{self, Deviations, IndexClass, Item, Numbered, Union, WorkerOutput};
use btfcache::names::{NameId, Names};
use btfcache::pool::{ClassId, Namespace, Pool, Ref};
use btfcache::select::Chosen;

use crate::program::{Program, Unit};
use crate::random::Random;
use crate::types::BASES;

/// What became of a program.
#[derive(Clone, Debug)]
pub struct Output {
    /// The BTF image; split BTF if there is a base.
    pub bytes: Vec<u8>,
    /// For each id of the undeduplicated input, void included, the id that the type has now. Types of
    /// a base are no part of the input.
    pub map: Vec<u32>,
    /// For each of those ids the class in the pool of all units, where it is that of a unit's type.
    pub classes: Vec<Option<ClassId>>,
}

/// Encodes a program, upon a base if there is one. Its units are decoded by so many workers, spread at
/// random.
///
/// # Panics
/// If the result cannot be emitted.
#[must_use]
pub fn encode(
    program: &Program,
    base: Option<&Arc<Prepared>>,
    workers: usize,
    random: &mut Random,
) -> Output {
    let names = Names::new(Vec::new(), false, None).with_base(base);
    let ids = intern_names(program, &names, random);
    let mut decoders: Vec<Decoder<'_>> =
        (0..workers).map(|_| Decoder::new(program, &ids)).collect();
    let mut decoded = Vec::new();
    for unit in 0..program.units.len() {
        let worker = random.below(workers);
        decoded.push((worker, decoders[worker].decode(unit)));
    }
    let pools: Vec<Pool> = decoders.iter().map(Decoder::copied_pool).collect();
    let outputs = decoders.into_iter().map(Decoder::output).collect();
    let mut union = merge::union(outputs);
    let variables: Vec<Vec<u32>> = union
        .fragments
        .iter()
        .map(|fragment| (0..fragment.variables.len() as u32).collect())
        .collect();
    let int = ids[program.name(BASES[0].0) as usize];
    let index_type = IndexClass::find(&mut union, int);
    let base = base.map(|base| Matching::new(base, &names, &union.pool, index_type.class));
    let deviations = Deviations::find(&union.pool, &union.fragments, base.as_ref());
    let mut numbered = merge::number(&union, deviations, &variables, &index_type, base);
    let (functions, function_ids) = append_functions(program, &union, &mut numbered);
    let contents = Contents {
        union: &union,
        numbered: &numbered,
        functions: &functions,
        function_ids: &function_ids,
        datasecs: &[],
        names: &names,
    };
    let format = Format { big_endian: false, has_layout: false, keeps_invalid_names: true };
    let bytes = emit::emit(contents, format).expect("the program is small").btf;
    let translations: Vec<Vec<ClassId>> =
        pools.iter().map(|pool| translation(pool, &mut union.pool)).collect();
    let classes = decoded
        .into_iter()
        .map(|(worker, own)| {
            own.iter().map(|class| translations[worker][class.0 as usize]).collect()
        })
        .collect();
    let mapping = Mapping { program, names: &ids, union: &union, numbered: &numbered, classes };
    let (map, classes) = mapping.of_input(&functions, &function_ids);
    Output { bytes, map, classes }
}

/// Gives ids to all names, in random order.
fn intern_names(program: &Program, names: &Names, random: &mut Random) -> Vec<NameId> {
    let mut order: Vec<usize> = (0..program.names.len()).collect();
    random.shuffle(&mut order);
    let mut ids = vec![NameId::NONE; order.len()];
    for place in order {
        ids[place] = names.inline(program.names[place].as_bytes());
    }
    ids
}

/// As `btfcache::append` does, which needs an ELF file.
fn append_functions<'a>(
    program: &'a Program,
    union: &Union,
    numbered: &mut Numbered<'_>,
) -> (Vec<Chosen<'a>>, Vec<u32>) {
    let (mut chosen, mut ids) = (Vec::new(), Vec::new());
    for (unit, place) in program.chosen_functions() {
        let class = union.fragments[unit].functions[place].class;
        let prototype = ClassId(union.pool.record(class)[2] - 1);
        assert_eq!(kind_of(union.pool.record(prototype)), Kind::FuncProto);
        let name = program.names[program.units[unit].functions[place].name as usize].as_bytes();
        let unit = unit as u32;
        let id = numbered.id_or_new(unit, prototype);
        let known = numbered.base().and_then(|base| base.function(name, id));
        let item = Item::Function(chosen.len() as u32);
        ids.push(known.unwrap_or_else(|| numbered.assign(item)));
        chosen.push(Chosen { name, unit, class, prototype, kfunc_flags: None });
    }
    (chosen, ids)
}

/// Where everything went.
struct Mapping<'a> {
    program: &'a Program,
    names: &'a [NameId],
    union: &'a Union,
    numbered: &'a Numbered<'a>,
    /// For each unit the class of each of its types.
    classes: Vec<Vec<ClassId>>,
}

impl Mapping<'_> {
    /// The id and class of everything in the input, in the order of `Input`.
    fn of_input(
        &self,
        functions: &[Chosen<'_>],
        function_ids: &[u32],
    ) -> (Vec<u32>, Vec<Option<ClassId>>) {
        let missing = self.program.unit_without_index_type();
        let mut map = vec![0];
        let mut classes = vec![None];
        for (unit, own) in self.classes.iter().enumerate() {
            map.extend(self.types(unit));
            classes.extend(own.iter().copied().map(Some));
            if missing == Some(unit) {
                map.push(self.numbered.reference(unit as u32, Ref::INDEX));
            }
            map.extend(self.tags_and_variables(unit));
            classes.resize(map.len(), None);
        }
        for (function, &id) in functions.iter().zip(function_ids) {
            map.push(self.numbered.reference(function.unit, Ref::class(function.prototype)));
            map.push(id);
        }
        classes.resize(map.len(), None);
        (map, classes)
    }

    fn types(&self, unit: usize) -> impl Iterator<Item = u32> {
        let records = self.program.units[unit].types.iter();
        records.zip(&self.classes[unit]).map(move |(record, &class)| {
            let reference = match forward_key(record) {
                Some(namespace) => Ref::key(namespace, self.names[record[0] as usize]),
                None => Ref::class(class),
            };
            self.numbered.reference(unit as u32, reference)
        })
    }

    fn tags_and_variables(&self, unit: usize) -> Vec<u32> {
        let tag = |&class: &ClassId| self.numbered.reference(unit as u32, Ref::class(class));
        let mut ids: Vec<u32> = self.union.fragments[unit].tags.iter().map(tag).collect();
        let items = self.numbered.items.iter().zip(self.numbered.first_id..);
        ids.extend(items.filter(|(item, _)| is_variable_of(item, unit)).map(|(_, id)| id));
        ids
    }
}

fn is_variable_of(item: &Item, unit: usize) -> bool {
    match *item {
        Item::Variable(fragment, _) | Item::VariableTag(fragment, ..) => fragment as usize == unit,
        _ => false,
    }
}

/// The class in `pool` of each class of `own`; all of them are in it already.
fn translation(own: &Pool, pool: &mut Pool) -> Vec<ClassId> {
    let mut translation: Vec<ClassId> = Vec::new();
    for class in own.ids() {
        let mut record = own.record(class).to_vec();
        map_refs(&mut record, |reference| {
            let is_class = reference != 0 && reference < Ref::INDEX.0;
            if is_class { Ref::class(translation[reference as usize - 1]).0 } else { reference }
        });
        let size = pool.len();
        translation.push(pool.intern(&record));
        assert_eq!(size, pool.len(), "the union has all classes");
    }
    translation
}

/// What a forward declaration declares.
#[must_use]
pub fn forward_key(record: &[u32]) -> Option<Namespace> {
    let kflag = Info(record[1]).kflag();
    match kind_of(record) {
        Kind::Fwd if kflag => Some(Namespace::Union),
        Kind::Fwd => Some(Namespace::Struct),
        Kind::Enum | Kind::Enum64 if record[0] != 0 && record.len() == 3 => Some(Namespace::Enum),
        _ => None,
    }
}

/// What a named struct, union or enum, or the declaration of one, is known as.
#[must_use]
pub fn key(record: &[u32]) -> Option<Namespace> {
    if record[0] == 0 {
        return None;
    }
    match kind_of(record) {
        Kind::Struct => Some(Namespace::Struct),
        Kind::Union => Some(Namespace::Union),
        Kind::Enum | Kind::Enum64 => Some(Namespace::Enum),
        _ => forward_key(record),
    }
}

/// Does what `btfcache::fragment::Decoder` does with DWARF.
struct Decoder<'a> {
    program: &'a Program,
    names: &'a [NameId],
    pool: Pool,
    fragments: Vec<Fragment>,
}

impl<'a> Decoder<'a> {
    fn new(program: &'a Program, names: &'a [NameId]) -> Self {
        Self { program, names, pool: Pool::new(), fragments: Vec::new() }
    }

    fn output(self) -> WorkerOutput {
        WorkerOutput { pool: self.pool, fragments: self.fragments, notes: Notes::default() }
    }

    fn copied_pool(&self) -> Pool {
        let mut pool = Pool::new();
        for class in self.pool.ids() {
            pool.intern(self.pool.record(class));
        }
        pool
    }

    /// Decodes one unit; returns the class of each of its types.
    fn decode(&mut self, number: usize) -> Vec<ClassId> {
        let unit = &self.program.units[number];
        let mut classes = vec![None; unit.types.len()];
        for place in 0..unit.types.len() {
            self.class(unit, place, &mut classes);
        }
        let classes: Vec<ClassId> = classes.into_iter().flatten().collect();
        let mut types = Vec::new();
        for &class in &classes {
            if !types.contains(&class) {
                types.push(class);
            }
        }
        let fragment = Fragment {
            unit: number as u32,
            types,
            tags: unit.tags.iter().map(|tag| self.intern(unit, tag, &classes)).collect(),
            aliases: Vec::new(),
            index_type: self.index_type(unit, &classes),
            functions: self.functions(unit, &classes),
            variables: self.variables(unit, &classes),
            has_complete_types: true,
            draws_on_others: false,
            has_notes: false,
        };
        self.fragments.push(fragment);
        classes
    }

    /// The class of a type, interned after what it refers to.
    fn class(&mut self, unit: &Unit, place: usize, classes: &mut [Option<ClassId>]) -> ClassId {
        if let Some(class) = classes[place] {
            return class;
        }
        let mut record = unit.types[place].clone();
        map_refs(&mut record, |reference| {
            if reference == 0 || reference == Ref::INDEX.0 {
                return reference;
            }
            let target = reference as usize - 1;
            let nominal = self.nominal(&unit.types[target]);
            nominal.unwrap_or_else(|| Ref::class(self.class(unit, target, classes))).0
        });
        map_names(&mut record, |name| self.names[name as usize].0);
        let class = self.pool.intern(&record);
        classes[place] = Some(class);
        class
    }

    /// The reference by name to a type that has one.
    fn nominal(&self, record: &[u32]) -> Option<Ref> {
        key(record).map(|namespace| Ref::key(namespace, self.names[record[0] as usize]))
    }

    fn reference(&self, unit: &Unit, reference: u32, classes: &[ClassId]) -> Ref {
        if reference == 0 || reference == Ref::INDEX.0 {
            return Ref(reference);
        }
        let target = reference as usize - 1;
        let nominal = self.nominal(&unit.types[target]);
        nominal.unwrap_or_else(|| Ref::class(classes[target]))
    }

    /// Interns a record that refers to the types of a unit.
    fn intern(&mut self, unit: &Unit, record: &[u32], classes: &[ClassId]) -> ClassId {
        let mut record = record.to_vec();
        map_refs(&mut record, |reference| self.reference(unit, reference, classes).0);
        map_names(&mut record, |name| self.names[name as usize].0);
        self.pool.intern(&record)
    }

    fn index_type(&self, unit: &Unit, classes: &[ClassId]) -> IndexType {
        match self.program.int_of(unit) {
            Some(int) => IndexType::Int(classes[int]),
            None if unit.has_array() => IndexType::Missing,
            None => IndexType::None,
        }
    }

    fn functions(&mut self, unit: &Unit, classes: &[ClassId]) -> Vec<FunctionUse> {
        let mut functions = Vec::new();
        for function in &unit.functions {
            let prototype = self.intern(unit, &function.prototype, classes);
            let name = self.names[function.name as usize].0;
            let flags = 0;
            let info = Info::new(Kind::Func, 0, false).0;
            let class = self.pool.intern(&[name, info, Ref::class(prototype).0, flags]);
            functions.push(FunctionUse { class, address: 0, die: 0 });
        }
        functions
    }

    fn variables(&self, unit: &Unit, classes: &[ClassId]) -> Vec<VariableUse> {
        let variable = |variable: &crate::program::Variable| VariableUse {
            name: self.names[variable.name as usize],
            ty: self.reference(unit, variable.ty, classes),
            is_external: variable.is_external,
            size: 0,
            tags: variable.tags.iter().map(|&tag| self.names[tag as usize]).collect(),
            address: 0,
            die: 0,
        };
        unit.variables.iter().map(variable).collect()
    }
}
