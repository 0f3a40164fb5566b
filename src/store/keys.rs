//! Which fields the keys of files and results have. The same lines make a key and its text.

use btfcache_schema::{Fields, Key, Tag, Value};

use crate::elf::ElfFile;
use crate::options::{Options, encoder_source};

/// The fields of the contents of `elf`; `digests` are those of its input sections, in order. Where
/// things lie in the file does not matter, nor do sections that nothing is read from.
pub fn content_fields(elf: &ElfFile, digests: &[[u8; 32]], fields: &mut impl Fields) {
    let target = elf.target();
    fields.number(Tag::Is64, target.is_64);
    fields.number(Tag::BigEndian, target.big_endian);
    fields.number(Tag::Machine, target.machine.0);
    fields.number(Tag::FileType, target.kind.0);
    let mut digests = digests.iter();
    for (index, section, is_input) in elf.key_sections() {
        fields.number(Tag::SectionIndex, index);
        fields.field(Tag::SectionName, Value::Bytes(&section.name));
        fields.number(Tag::SectionType, section.kind.0);
        fields.number(Tag::SectionFlags, section.flags.0);
        fields.number(Tag::SectionAddress, section.address);
        fields.number(Tag::SectionSize, section.size);
        fields.number(Tag::SectionLink, section.link);
        fields.number(Tag::SectionInfo, section.info);
        fields.number(Tag::SectionAlignment, section.alignment);
        if is_input {
            let digest = digests.next().expect("there is one for each input");
            fields.field(Tag::SectionBytes, Value::Digest(digest));
        }
    }
}

/// The fields of a result: everything that it depends on.
pub fn result_fields(
    options: &Options,
    content: &Key,
    base: Option<&Key>,
    fields: &mut impl Fields,
) {
    options.fields(fields);
    fields.key(Tag::Content, content);
    if let Some(base) = base {
        fields.key(Tag::Base, base);
    }
}

/// The fields of a prepared base.
pub fn prepared_fields(base: &Key, fields: &mut impl Fields) {
    fields.key(Tag::EncoderSource, &encoder_source());
    fields.key(Tag::Base, base);
}

/// The fields of what is different between two bases.
pub fn step_fields(old: &Key, new: &Key, fields: &mut impl Fields) {
    prepared_fields(old, fields);
    fields.key(Tag::Base, new);
}

#[cfg(test)]
mod tests {
    use btfcache_schema::{FieldList, KeyHasher, Purpose};

    use super::*;
    use crate::options::{Feature, Features, LanguageFilter};

    fn key(options: &Options, content: Key, base: Option<Key>) -> Key {
        let mut hasher = KeyHasher::new(Purpose::Result);
        result_fields(options, &content, base.as_ref(), &mut hasher);
        hasher.finish()
    }

    #[test]
    fn every_option_moves_the_key() {
        let plain = Options::default();
        let mut variants = vec![
            plain.clone(),
            Options { languages: LanguageFilter::Only(vec![]), ..plain.clone() },
            Options { languages: LanguageFilter::Except(vec![]), ..plain.clone() },
            Options { languages: LanguageFilter::Only(vec![1]), ..plain.clone() },
            Options { languages: LanguageFilter::Except(vec![1]), ..plain.clone() },
            Options { languages: LanguageFilter::Except(vec![1, 2]), ..plain.clone() },
            Options { exclude_unit_prefix: Some(vec![]), ..plain.clone() },
            Options { exclude_unit_prefix: Some(b"a".to_vec()), ..plain.clone() },
            Options { kabi_prefix: Some(vec![]), ..plain.clone() },
            Options { kabi_prefix: Some(b"a".to_vec()), ..plain.clone() },
            Options { compat_pahole: true, ..plain.clone() },
        ];
        let with =
            |&feature: &Feature| Options { features: Features::of(&[feature]), ..plain.clone() };
        variants.extend(Feature::ALL.iter().map(with));
        let content = Key([1; 32]);
        let mut keys: Vec<Key> =
            variants.iter().map(|options| key(options, content, None)).collect();
        keys.push(key(&plain, Key([2; 32]), None));
        keys.push(key(&plain, content, Some(Key([1; 32]))));
        keys.push(key(&plain, content, Some(Key([2; 32]))));
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn the_text_of_a_key_names_its_fields() {
        let options = Options { kabi_prefix: Some(b"__kabi".to_vec()), ..Options::default() };
        let mut list = FieldList::new(Purpose::Result);
        result_fields(&options, &Key([1; 32]), None, &mut list);
        let text = list.to_string();
        for part in ["schema: 1\n", "features: 0x0\n", "kabi-prefix: __kabi\n", "content: 0101"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
