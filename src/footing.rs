//! What split BTF stands on, and moving it to another base without making it again.
//!
//! After an edit of a kernel its BTF often has the same types under the same ids, but for a few that have
//! a name: a struct got a member, a function another parameter type. What a module gives then cannot have
//! changed if it mentions none of those names: whatever an encode looks for in a base is a record, and
//! one that leads to a changed type has a name of that on the way, as the module's record has. Then
//! only the offsets of strings are others.

use btfcache_schema::{FootingRecord, OutlineRecord};
use hashbrown::{HashMap, HashSet};
use xxhash_rust::xxh3::xxh3_64;

use crate::base::Prepared;
use crate::btf::kind::{Info, Kind, for_each_name, for_each_ref, map_names};
use crate::btf::read::Btf;
use crate::emit::{self, Format};
use crate::names::{NameId, Names};
use crate::pool::{Pool, Ref, Target};

/// Hash of a name; never 0, which stands for none.
fn hash_of(name: &[u8]) -> u32 {
    (xxh3_64(name) as u32).max(1)
}

/// Hashes of the names of the types in `pool`, and of those they refer to by name, ascending: all that
/// can have been looked for in a base by name.
#[must_use]
pub fn mentions(pool: &Pool, names: &Names) -> Vec<u32> {
    let mut seen = HashSet::new();
    for class in pool.ids() {
        let record = pool.record(class);
        seen.insert(record[0]);
        for_each_ref(record, |reference| {
            if reference != Ref::INDEX.0
                && let Target::Key(key) = Ref(reference).target()
            {
                seen.insert(key.name.0);
            }
        });
    }
    seen.remove(&NameId::NONE.0);
    let hash = |name| hash_of(names.bytes(NameId(name), &mut [0; 4]));
    let mut hashes: Vec<u32> = seen.into_iter().map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// The types of `base` as hashes.
#[must_use]
pub fn outline(base: &Btf<'_>) -> OutlineRecord {
    let mut words = Vec::new();
    let types = base.records().map(|(_, record)| {
        let Some(kind) = Info(record[1]).kind() else {
            return (0, 0);
        };
        words.clear();
        words.extend(record.iter().map(|&word| u64::from(word)));
        let name_at = |place: usize| xxh3_64(base.name(record[place]));
        words[0] = name_at(0);
        if let Some(name) = kind.element_name() {
            let places = (3..record.len()).step_by(kind.element_words());
            places.for_each(|place| words[place + name] = name_at(place + name));
        }
        // Tags have a text, which is not what they are looked for by.
        let name = if kind == Kind::DeclTag { b"" } else { base.name(record[0]) };
        let name = if name.is_empty() { 0 } else { hash_of(name) };
        (xxh3_64(bytemuck::cast_slice(&words)), name)
    });
    OutlineRecord { is_big_endian: base.is_big_endian(), types: types.collect() }
}

/// Hashes of the names of the types that differ between two bases, ascending; `None` if they have other
/// ids, or one without a name differs.
#[must_use]
pub fn changed_names(old: &OutlineRecord, new: &OutlineRecord) -> Option<Vec<u32>> {
    if old.types.len() != new.types.len() || old.is_big_endian != new.is_big_endian {
        return None;
    }
    let mut names = Vec::new();
    for (old, new) in old.types.iter().zip(&new.types).filter(|(old, new)| old.0 != new.0) {
        if old.1 == 0 || new.1 == 0 {
            return None;
        }
        names.extend([old.1, new.1]);
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// Whether none of `changed` is among `mentions`; both ascend.
#[must_use]
pub fn is_untouched(mentions: &[u32], changed: &[u32]) -> bool {
    changed.iter().all(|hash| mentions.binary_search(hash).is_err())
}

/// The strings of `base` that the split image `btf` uses, by offset; `None` if it is not such an image.
#[must_use]
pub fn names_in_base(btf: &[u8], base: &Prepared) -> Option<Vec<(u32, Vec<u8>)>> {
    let split = Btf::parse_upon(btf, base.end_id(), base.end_string()).ok()?;
    let mut offsets = Vec::new();
    for (_, record) in split.records() {
        Info(record[1]).kind()?;
        for_each_name(record, |offset| offsets.push(offset));
    }
    offsets.sort_unstable();
    offsets.dedup();
    let of_base = |offset: &u32| *offset != 0 && *offset < base.end_string();
    let name = |offset| (offset, base.string_at(offset).to_vec());
    Some(offsets.into_iter().filter(of_base).map(name).collect())
}

/// The split image `btf`, which stands on `footing`, upon `base`, which has the same ids: only its names
/// are others. `None` if it is not such an image.
#[must_use]
pub fn moved(btf: &[u8], footing: &FootingRecord, base: &Prepared) -> Option<Vec<u8>> {
    let split = Btf::parse_upon(btf, base.end_id(), footing.end_string).ok()?;
    if split.first_unknown().is_some() || split.is_big_endian() != base.summary().is_big_endian {
        return None;
    }
    let format = Format {
        big_endian: split.is_big_endian(),
        has_layout: split.has_layout(),
        ..Format::default()
    };
    let mut strings =
        Strings { split: &split, footing, base, own: Vec::new(), known: HashMap::new() };
    let mut words = Vec::with_capacity(btf.len() / 4);
    for (_, record) in split.records() {
        let start = words.len();
        words.extend_from_slice(record);
        let mut is_known = true;
        map_names(&mut words[start..], |offset| {
            let place = strings.place(offset);
            is_known &= place.is_some();
            place.unwrap_or(0)
        });
        if !is_known {
            return None;
        }
    }
    Some(emit::image_of_words(&words, &strings.own, format))
}

/// The strings of a split image that moves, in order of first use (rules S4, S5).
struct Strings<'a> {
    split: &'a Btf<'a>,
    footing: &'a FootingRecord,
    base: &'a Prepared,
    own: Vec<u8>,
    /// New offsets by old ones.
    known: HashMap<u32, u32>,
}

impl<'a> Strings<'a> {
    /// The new offset of the name at `old`.
    fn place(&mut self, old: u32) -> Option<u32> {
        if old == 0 {
            return Some(0);
        }
        if let Some(&place) = self.known.get(&old) {
            return Some(place);
        }
        let text = self.text(old)?;
        let place = self.base.string(text).or_else(|| {
            let place = self.base.end_string().checked_add(u32::try_from(self.own.len()).ok()?)?;
            self.own.extend_from_slice(text);
            self.own.push(0);
            Some(place)
        })?;
        self.known.insert(old, place);
        Some(place)
    }

    /// The text of the name at `old`; `None` if nobody knows it.
    fn text(&self, old: u32) -> Option<&'a [u8]> {
        if old >= self.footing.end_string {
            return Some(self.split.name(old));
        }
        let names = &self.footing.names;
        let place = names.binary_search_by_key(&old, |name| name.0).ok()?;
        Some(&names[place].1)
    }
}
