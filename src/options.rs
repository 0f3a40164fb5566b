//! What can change the result of an encode: features, language filter, compatibility.
//!
//! Every field here is part of every cache key. Nothing here names a file, a directory or a thread
//! count.

use btfcache_schema::{Fields, Key, Tag, Value};

/// Digest of the encoder's source, from `build.rs`.
#[must_use]
pub fn encoder_source() -> Key {
    env!("ENCODER_SOURCE").parse().expect("a hash in hexadecimal digits")
}

/// One name of `--btf_features` (spec/encoding 7.1), in the order of pahole's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    /// Skip what cannot be encoded instead of stopping (5.3 rules 8 and 9).
    EncodeForce,
    /// Per-CPU variables.
    Var,
    /// `BTF_KIND_FLOAT` instead of an INT for floating point base types.
    Float,
    /// `BTF_KIND_DECL_TAG`.
    DeclTag,
    /// `BTF_KIND_TYPE_TAG`.
    TypeTag,
    /// `BTF_KIND_ENUM64`; without it values are cut to 32 bits.
    Enum64,
    /// Accepted, no effect (4.7.4).
    OptimizedFunc,
    /// Leave out functions whose units disagree about the prototype.
    ConsistentFunc,
    /// Tag kernel functions listed in `.BTF_ids` with `bpf_kfunc`.
    DeclTagKfuncs,
    /// Accepted, no effect: output is always reproducible.
    ReproducibleBuild,
    /// Write `.BTF.base` beside `.BTF`.
    DistilledBase,
    /// All global variables, not only per-CPU ones.
    GlobalVar,
    /// `address_space(1)` on arena kfuncs (6.4).
    Attributes,
    /// Functions under their full symbol name with the parameters that are really passed (4.8).
    TrueSignature,
    /// The layout section of the header (7.3).
    Layout,
    /// Read all units as one, as if references crossed units (1.3.1).
    ForceCuMerging,
}

impl Feature {
    /// All features, in pahole's order.
    pub const ALL: [Self; 16] = [
        Self::EncodeForce,
        Self::Var,
        Self::Float,
        Self::DeclTag,
        Self::TypeTag,
        Self::Enum64,
        Self::OptimizedFunc,
        Self::ConsistentFunc,
        Self::DeclTagKfuncs,
        Self::ReproducibleBuild,
        Self::DistilledBase,
        Self::GlobalVar,
        Self::Attributes,
        Self::TrueSignature,
        Self::Layout,
        Self::ForceCuMerging,
    ];

    /// The name that `--btf_features` knows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EncodeForce => "encode_force",
            Self::Var => "var",
            Self::Float => "float",
            Self::DeclTag => "decl_tag",
            Self::TypeTag => "type_tag",
            Self::Enum64 => "enum64",
            Self::OptimizedFunc => "optimized_func",
            Self::ConsistentFunc => "consistent_func",
            Self::DeclTagKfuncs => "decl_tag_kfuncs",
            Self::ReproducibleBuild => "reproducible_build",
            Self::DistilledBase => "distilled_base",
            Self::GlobalVar => "global_var",
            Self::Attributes => "attributes",
            Self::TrueSignature => "true_signature",
            Self::Layout => "layout",
            Self::ForceCuMerging => "force_cu_merging",
        }
    }
}

/// A set of [`Feature`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);

    /// The set of the given features.
    #[must_use]
    pub const fn of(list: &[Feature]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < list.len() {
            bits |= 1 << list[index] as u32;
            index += 1;
        }
        Self(bits)
    }

    /// What `default` stands for (spec/encoding 7.1).
    pub const DEFAULT: Self = Self::of(&[
        Feature::EncodeForce,
        Feature::Var,
        Feature::Float,
        Feature::DeclTag,
        Feature::TypeTag,
        Feature::Enum64,
        Feature::OptimizedFunc,
        Feature::ConsistentFunc,
        Feature::DeclTagKfuncs,
    ]);

    /// Whether `feature` is in the set.
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u32) != 0
    }

    /// The set with `feature` switched.
    #[must_use]
    pub const fn with(self, feature: Feature, on: bool) -> Self {
        let bit = 1 << feature as u32;
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as bits, for keys: bit n is the n-th of [`Feature::ALL`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// Which units take part, by `DW_AT_language` (spec/encoding 1.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LanguageFilter {
    /// Every unit.
    #[default]
    All,
    /// Only units of these languages; a unit without language is left out.
    Only(Vec<u16>),
    /// No unit of these languages; a unit without language is kept.
    Except(Vec<u16>),
}

impl LanguageFilter {
    /// Whether a unit with this `DW_AT_language` (0: none) takes part.
    #[must_use]
    pub fn admits(&self, language: u16) -> bool {
        match self {
            Self::All => true,
            Self::Only(list) => list.contains(&language),
            Self::Except(list) => !list.contains(&language),
        }
    }
}

/// Everything that can change the result of an encode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The features that are on.
    pub features: Features,
    /// Which units take part.
    pub languages: LanguageFilter,
    /// Units whose name starts with this are left out (`-X`, spec/encoding 1.2.5).
    pub exclude_unit_prefix: Option<Vec<u8>>,
    /// Any name that begins with this becomes just this (`--kabi_prefix`, spec/encoding 2.0.2).
    pub kabi_prefix: Option<Vec<u8>>,
    /// Reproduce pahole's visible defects (`--compat=pahole`, tests/data/known-differences.md).
    pub compat_pahole: bool,
}

impl Options {
    /// What of the encoder keys depend on: its source, and every option. The list is complete, or this
    /// does not compile.
    pub fn fields(&self, fields: &mut impl Fields) {
        let Self { features, languages, exclude_unit_prefix, kabi_prefix, compat_pahole } = self;
        fields.key(Tag::EncoderSource, &encoder_source());
        fields.number(Tag::Features, features.bits());
        let (filter, list): (u8, &[u16]) = match languages {
            LanguageFilter::All => (0, &[]),
            LanguageFilter::Only(list) => (1, list),
            LanguageFilter::Except(list) => (2, list),
        };
        fields.number(Tag::LanguageFilter, filter);
        list.iter().for_each(|&language| fields.number(Tag::Language, language));
        let prefixes =
            [(Tag::ExcludeUnitPrefix, exclude_unit_prefix), (Tag::KabiPrefix, kabi_prefix)];
        for (tag, prefix) in prefixes {
            if let Some(prefix) = prefix {
                fields.field(tag, Value::Bytes(prefix));
            }
        }
        fields.number(Tag::CompatPahole, *compat_pahole);
    }
}
