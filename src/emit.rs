//! Emit: from numbered items to the bytes of a BTF image.

use anyhow::{Result, ensure};
use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;

use crate::base::{Matching, Prepared};
use crate::btf::kind::{Info, KINDS, Kind, MAX_VLEN, kind_of, map_names, map_refs};
use crate::btf::spelling::as_identifier;
use crate::btf::verify::is_identifier;
use crate::fragment::Fragment;
use crate::merge::{Item, NO_UNIT, Numbered, Union};
use crate::names::{NameId, Names};
use crate::pool::Ref;
use crate::select::Chosen;

/// A section with variables.
#[derive(Clone, Debug)]
pub struct Datasec {
    /// Its name.
    pub name: NameId,
    /// Variable id, offset and size of each variable, by offset.
    pub entries: Vec<[u32; 3]>,
}

/// What an image is made of.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// Classes and fragments.
    pub union: &'a Union,
    /// The items and their ids.
    pub numbered: &'a Numbered<'a>,
    /// The functions that items refer to.
    pub functions: &'a [Chosen<'a>],
    /// Their ids.
    pub function_ids: &'a [u32],
    /// The sections that items refer to.
    pub datasecs: &'a [Datasec],
    /// All names.
    pub names: &'a Names,
}

/// How an image is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Format {
    /// Byte order.
    pub big_endian: bool,
    /// With the layout section (rule Y1) and the header that has room for it.
    pub has_layout: bool,
    /// Names that no identifier can be stay as they are, as pahole has them; the kernel will refuse
    /// the image.
    pub keeps_invalid_names: bool,
}

/// Largest type id that the kernel accepts in a reference.
const MAX_ID: u32 = 0xf_ffff;
/// Largest string offset that the kernel accepts.
const MAX_STRING: usize = 0xff_ffff;

/// An image, and what the kernel would not like about it.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The image.
    pub btf: Vec<u8>,
    /// How many names no identifier can be, the first of them, and how it is spelt.
    pub invalid_names: Option<(usize, String, String)>,
    /// How many structs have members out of order, beyond their end or of their own type, and the
    /// name of the first.
    pub misplaced_members: Option<(usize, String)>,
    /// How many structs and unions are empty because they are used by value, but only declared.
    pub emptied: usize,
}

/// Writes the image.
///
/// # Errors
/// When there are more types or strings than the kernel accepts.
pub fn emit(contents: Contents<'_>, format: Format) -> Result<Emitted> {
    let items = &contents.numbered.items;
    let last_id = contents.numbered.next_id() - 1;
    ensure!(last_id <= MAX_ID, "{last_id} types: the kernel reads at most {MAX_ID}");
    let by_value = match contents.union.fragments.iter().all(|fragment| fragment.has_complete_types)
    {
        true => HashSet::new(),
        false => declared_by_value(&contents.records(items, 0), contents.numbered.first_id),
    };
    let chunk = items.len().div_ceil(rayon::current_num_threads() * 4).max(1024);
    let mut parts: Vec<Part> = items
        .par_chunks(chunk)
        .enumerate()
        .map(|(number, part)| {
            let first = number * chunk;
            let first_id = contents.numbered.first_id + first as u32;
            let mut records = contents.records(part, first);
            if !by_value.is_empty() {
                make_empty(&mut records, first_id, &by_value);
            }
            Part::new(records, first_id, contents.names, format)
        })
        .collect();
    let base = contents.numbered.base().map(Matching::base);
    let mut strings = Strings::new(contents.names, base);
    for part in &parts {
        for &name in &part.names {
            strings.add(name);
            let end = strings.end();
            ensure!(end <= MAX_STRING, "more than {MAX_STRING} bytes of names: too many");
        }
    }
    parts.par_iter_mut().for_each(|part| part.place_names(&strings));
    let types: Vec<&[u32]> = parts.iter().map(|part| part.records.as_slice()).collect();
    let text = |name: NameId| {
        String::from_utf8_lossy(contents.names.bytes(name, &mut [0; 4])).into_owned()
    };
    let mut seen = HashSet::new();
    let invalid = parts.iter().flat_map(|part| &part.invalid_names).copied();
    let invalid: Vec<(NameId, NameId)> = invalid.filter(|(name, _)| seen.insert(name.0)).collect();
    let misplaced: Vec<NameId> = parts.iter().flat_map(|part| &part.misplaced).copied().collect();
    Ok(Emitted {
        btf: image(&types, &strings.bytes, format),
        invalid_names: invalid
            .first()
            .map(|&(name, spelt)| (invalid.len(), text(name), text(spelt))),
        emptied: by_value.len(),
        misplaced_members: misplaced.first().map(|&first| (misplaced.len(), text(first))),
    })
}

/// Consecutive records, whose names are places in `names` yet.
struct Part {
    records: Vec<u32>,
    /// Their names as they are to be spelt, in order of first use. A name stands here twice if it is
    /// that of a type somewhere and any text elsewhere.
    names: Vec<NameId>,
    /// Those that should be identifiers and are not, each with what it is spelt as.
    invalid_names: Vec<(NameId, NameId)>,
    /// Structs whose members are not where members can be, by name.
    misplaced: Vec<NameId>,
}

impl Part {
    fn new(mut records: Vec<u32>, first_id: u32, names: &Names, format: Format) -> Self {
        let mut part = Self {
            records: Vec::new(),
            names: Vec::new(),
            invalid_names: Vec::new(),
            misplaced: Vec::new(),
        };
        // Identifiers, and texts such as `long unsigned int`.
        let (mut identifiers, mut texts) = (HashMap::new(), HashMap::new());
        let mut id = first_id;
        for_each_record(&mut records, |record| {
            let name = NameId(record[0]);
            let is_text = has_text_for_name(record);
            let places = if is_text { &mut texts } else { &mut identifiers };
            map_names(record, |name| {
                *places.entry(name).or_insert_with(|| part.add_name(name, is_text, names, format))
            });
            if is_of_unknown_size(record) {
                record[2] = end_of_members(record);
            }
            if has_misplaced_members(record, id) {
                part.misplaced.push(name);
            }
            id += 1;
        });
        part.records = records;
        part
    }

    /// Adds a name that was not met before; returns its place.
    fn add_name(&mut self, name: u32, is_text: bool, names: &Names, format: Format) -> u32 {
        let mut spelt = NameId(name);
        if !is_text && !spelt.is_none() && !is_valid(names, spelt) {
            spelt = format.spelling(names, spelt);
            self.invalid_names.push((NameId(name), spelt));
        }
        self.names.push(spelt);
        self.names.len() as u32 - 1
    }

    /// Puts the names' offsets into the records.
    fn place_names(&mut self, strings: &Strings<'_>) {
        let offsets: Vec<u32> = self.names.iter().map(|&name| strings.offset(name)).collect();
        for_each_record(&mut self.records, |record| {
            map_names(record, |place| offsets[place as usize]);
        });
    }
}

/// Forward declarations among `records` whose size matters, because something has a member, elements or
/// parameters of the type. In C there are none; C++ compilers leave it to one unit to define a class
/// with virtual functions, and that may be in another file.
fn declared_by_value(records: &[u32], first_id: u32) -> HashSet<u32> {
    let starts = starts_of(records);
    let record = |id: u32| {
        let index = id.checked_sub(first_id).and_then(|index| starts.get(index as usize));
        index.map(|&start| &records[start..])
    };
    let mut found = HashSet::new();
    let mut add = |reference: u32| {
        let mut id = reference;
        // The kernel refuses longer chains (KO1).
        for _ in 0..32 {
            let Some(record) = record(id) else { return };
            match kind_of(record) {
                Kind::Fwd => {
                    found.insert(id);
                    return;
                }
                Kind::Typedef | Kind::Const | Kind::Volatile | Kind::Restrict | Kind::TypeTag => {
                    id = record[2];
                }
                _ => return,
            }
        }
    };
    for &start in &starts {
        let record = &records[start..];
        match kind_of(record) {
            Kind::Array => add(record[3]),
            Kind::FuncProto => {
                add(record[2]);
                let parameters = record[3..].chunks_exact(2).take(Info(record[1]).vlen() as usize);
                parameters.for_each(|parameter| add(parameter[1]));
            }
            Kind::Struct | Kind::Union => {
                let members = record[3..].chunks_exact(3).take(Info(record[1]).vlen() as usize);
                members.for_each(|member| add(member[1]));
            }
            _ => {}
        }
    }
    found
}

/// Where each of consecutive records starts.
fn starts_of(records: &[u32]) -> Vec<usize> {
    let next = |&start: &usize| {
        let end = start + record_words(Info(records[start + 1]));
        (end < records.len()).then_some(end)
    };
    std::iter::successors((!records.is_empty()).then_some(0), next).collect()
}

/// Makes empty structs and unions of these declarations: the kernel wants to know a size.
fn make_empty(records: &mut [u32], first_id: u32, declared: &HashSet<u32>) {
    let mut id = first_id;
    for_each_record(records, |record| {
        if declared.contains(&id) {
            let kind = if Info(record[1]).kflag() { Kind::Union } else { Kind::Struct };
            record[1] = Info::new(kind, 0, false).0;
        }
        id += 1;
    });
}

/// Visits consecutive records.
fn for_each_record(records: &mut [u32], mut visit: impl FnMut(&mut [u32])) {
    let mut start = 0;
    while start < records.len() {
        let size = record_words(Info(records[start + 1]));
        visit(&mut records[start..start + size]);
        start += size;
    }
}

/// Whether the name of the record is no identifier, but words, a section or any text.
fn has_text_for_name(record: &[u32]) -> bool {
    use Kind::{Datasec, DeclTag, Float, Int, TypeTag};
    matches!(kind_of(record), Int | Float | Datasec | DeclTag | TypeTag)
}

fn is_valid(names: &Names, name: NameId) -> bool {
    is_identifier(names.bytes(name, &mut [0; 4]))
}

impl Format {
    /// How a name is spelt that no identifier can be.
    fn spelling(self, names: &Names, name: NameId) -> NameId {
        if self.keeps_invalid_names {
            return name;
        }
        names.inline(&as_identifier(names.bytes(name, &mut [0; 4])))
    }
}

/// Whether this is a struct whose size is only known when it is made, because it has a member of such
/// a size (GNU C).
fn is_of_unknown_size(record: &[u32]) -> bool {
    record[2] == 0 && kind_of(record) == Kind::Struct && Info(record[1]).vlen() > 0
}

/// Where the last member begins, in bytes: the least size that the kernel takes.
fn end_of_members(record: &[u32]) -> u32 {
    let mask = if Info(record[1]).kflag() { 0xff_ffff } else { u32::MAX };
    let (members, _) = record[3..].as_chunks::<3>();
    members.iter().map(|member| (member[2] & mask).div_ceil(8)).max().unwrap_or(0)
}

/// Whether a member of this struct begins before the one before it, or beyond the end, or is the
/// struct itself, whose id this is (spec/btf-and-dedup 4.3, KR7).
fn has_misplaced_members(record: &[u32], id: u32) -> bool {
    if !matches!(kind_of(record), Kind::Struct | Kind::Union) {
        return false;
    }
    let mask = if Info(record[1]).kflag() { 0xff_ffff } else { u32::MAX };
    let (members, _) = record[3..].as_chunks::<3>();
    let mut last = 0;
    members.iter().any(|member| {
        let offset = member[2] & mask;
        let is_before = offset < std::mem::replace(&mut last, offset);
        is_before || offset.div_ceil(8) > record[2] || member[1] == id
    })
}

/// Words of a record with this second word.
fn record_words(info: Info) -> usize {
    let kind = info.kind().expect("records hold only known kinds");
    3 + kind.info_words() + info.vlen() as usize * kind.element_words()
}

impl Contents<'_> {
    /// The records of some items, the first of which is the `first`-th of all. Names are ids yet.
    fn records(&self, items: &[Item], first: usize) -> Vec<u32> {
        let mut words = Vec::with_capacity(items.len() * 8);
        let first_id = self.numbered.first_id + first as u32;
        let mut variable_id = 0;
        for (id, &item) in (first_id..).zip(items) {
            self.record(item, id, &mut variable_id, &mut words);
        }
        words
    }

    fn record(&self, item: Item, id: u32, variable_id: &mut u32, words: &mut Vec<u32>) {
        match item {
            Item::Class(_) | Item::Block(_) => self.type_record(item, words),
            Item::Variable(fragment, variable) => {
                *variable_id = id;
                let fragment = self.fragment(fragment);
                let variable = &fragment.variables[variable as usize];
                let info = Info::new(Kind::Var, 0, false).0;
                let ty = self.numbered.reference(fragment.unit, variable.ty);
                words.extend([variable.name.0, info, ty, u32::from(variable.is_external)]);
            }
            Item::VariableTag(fragment, variable, tag) => {
                let value = self.fragment(fragment).variables[variable as usize].tags[tag as usize];
                // Tags follow their variable directly, tag by tag.
                let target = id - tag - 1;
                tag_record(value, target, -1, words);
            }
            Item::Function(function) => {
                let chosen = &self.functions[function as usize];
                let name = self.names.inline(chosen.name);
                let info = Info::new(Kind::Func, 0, false).0;
                let prototype = Ref::class(chosen.prototype);
                words.extend([name.0, info, self.numbered.reference(chosen.unit, prototype)]);
            }
            Item::FunctionTag(function, value, component) => {
                tag_record(value, self.function_ids[function as usize], component, words);
            }
            Item::Datasec(section) => {
                let section = &self.datasecs[section as usize];
                let last = section.entries.last().expect("a section has variables");
                let info = Info::new(Kind::Datasec, section.entries.len() as u32, false).0;
                words.extend([section.name.0, info, last[1].wrapping_add(last[2])]);
                words.extend(section.entries.iter().flatten());
            }
        }
    }

    fn fragment(&self, place: u32) -> &Fragment {
        &self.union.fragments[place as usize]
    }

    fn type_record(&self, item: Item, words: &mut Vec<u32>) {
        let (unit, class) =
            self.numbered.origin(item).unwrap_or((NO_UNIT, crate::pool::ClassId(0)));
        let start = words.len();
        words.extend_from_slice(self.union.pool.record(class));
        let record = &mut words[start..];
        debug_assert!(kind_of(record) != Kind::Func && Info(record[1]).vlen() <= MAX_VLEN);
        map_refs(record, |reference| self.numbered.reference(unit, Ref(reference)));
    }
}

fn tag_record(value: NameId, target: u32, component: i32, words: &mut Vec<u32>) {
    let info = Info::new(Kind::DeclTag, 0, false).0;
    words.extend([value.0, info, target, component as u32]);
}

/// The string section: each name once that the base does not have, in order of first use (rules
/// S4, S5).
struct Strings<'a> {
    names: &'a Names,
    base: Option<&'a Prepared>,
    bytes: Vec<u8>,
    offsets: HashMap<u32, u32>,
}

impl<'a> Strings<'a> {
    fn new(names: &'a Names, base: Option<&'a Prepared>) -> Self {
        // The empty string is that of the base, if there is one (rule S2).
        let (bytes, capacity) = match base {
            None => (vec![0], 1 << 16),
            Some(_) => (Vec::new(), 1 << 12),
        };
        Self { names, base, bytes, offsets: HashMap::with_capacity(capacity) }
    }

    /// Offset of the next string.
    fn end(&self) -> usize {
        self.base.map_or(0, |base| base.end_string() as usize) + self.bytes.len()
    }

    /// Offset of a name that was added.
    fn offset(&self, name: NameId) -> u32 {
        if name.is_none() { 0 } else { self.offsets[&name.0] }
    }

    fn add(&mut self, name: NameId) {
        if name.is_none() || self.offsets.contains_key(&name.0) {
            return;
        }
        let known = self.base.and_then(|base| self.names.offset_in(base, name));
        let offset = known.unwrap_or_else(|| {
            let offset = self.end() as u32;
            self.bytes.extend_from_slice(self.names.bytes(name, &mut [0; 4]));
            self.bytes.push(0);
            offset
        });
        self.offsets.insert(name.0, offset);
    }
}

fn put_words(bytes: &mut [u8], words: &[u32], big_endian: bool) {
    let places = bytes.as_chunks_mut().0.iter_mut().zip(words);
    if big_endian {
        places.for_each(|(place, word)| *place = word.to_be_bytes());
    } else {
        places.for_each(|(place, word)| *place = word.to_le_bytes());
    }
}

/// An image of records whose names are offsets in `strings`.
pub(crate) fn image_of_words(words: &[u32], strings: &[u8], format: Format) -> Vec<u8> {
    image(&[words], strings, format)
}

/// Puts header, types, layout and strings together (rules F1 to F6).
fn image(types: &[&[u32]], strings: &[u8], format: Format) -> Vec<u8> {
    const MAGIC: u32 = 0xeb9f;
    let layout = if format.has_layout { layout_table() } else { Vec::new() };
    let header_size: u32 = if format.has_layout { 32 } else { 24 };
    let type_size: usize = types.iter().map(|part| part.len() * 4).sum();
    let (type_bytes, layout_size) = (type_size as u32, layout.len() as u32);
    let first_word = if format.big_endian { MAGIC << 16 | 1 << 8 } else { MAGIC | 1 << 16 };
    let strings_size = strings.len() as u32;
    let mut header =
        vec![first_word, header_size, 0, type_bytes, type_bytes + layout_size, strings_size];
    if format.has_layout {
        header.extend([type_bytes, layout_size]);
    }
    let types_end = header.len() * 4 + type_size;
    // Zeroed memory costs nothing until it is written to, which all threads do.
    let mut bytes = vec![0; types_end + layout.len() + strings.len()];
    let (front, back) = bytes.split_at_mut(types_end);
    let (header_place, mut rest) = front.split_at_mut(header.len() * 4);
    put_words(header_place, &header, format.big_endian);
    let mut places = Vec::with_capacity(types.len());
    for part in types {
        let place;
        (place, rest) = std::mem::take(&mut rest).split_at_mut(part.len() * 4);
        places.push((place, part));
    }
    places.into_par_iter().for_each(|(place, part)| put_words(place, part, format.big_endian));
    let (layout_place, strings_place) = back.split_at_mut(layout.len());
    layout_place.copy_from_slice(&layout);
    strings_place.copy_from_slice(strings);
    bytes
}

/// For each kind the bytes after its first three words and those of an element (rules Y1, Y2).
fn layout_table() -> Vec<u8> {
    let entry = |number: u32| {
        let kind = Kind::from_number(number);
        let info = kind.map_or(0, |kind| kind.info_words() * 4) as u8;
        let element = kind.map_or(0, |kind| kind.element_words() * 4) as u8;
        [info, element, 0, 0]
    };
    (0..KINDS as u32).flat_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LITTLE: Format =
        Format { big_endian: false, has_layout: false, keeps_invalid_names: false };

    #[test]
    fn header_words_are_in_target_order() {
        let little = image(&[], &[0], LITTLE);
        assert_eq!(little[..8], [0x9f, 0xeb, 1, 0, 24, 0, 0, 0]);
        let big = image(&[], &[0], Format { big_endian: true, has_layout: true, ..LITTLE });
        assert_eq!(big[..8], [0xeb, 0x9f, 1, 0, 0, 0, 0, 32]);
        assert_eq!(big.len(), 32 + 80 + 1);
    }

    #[test]
    fn layout_has_the_sizes_of_the_kernel_documentation() {
        let table = layout_table();
        assert_eq!(table.len(), 80);
        assert_eq!(table[Kind::Array as usize * 4..][..4], [12, 0, 0, 0]);
        assert_eq!(table[Kind::Struct as usize * 4..][..4], [0, 12, 0, 0]);
        assert_eq!(table[Kind::Ptr as usize * 4..][..4], [0, 0, 0, 0]);
    }
}
