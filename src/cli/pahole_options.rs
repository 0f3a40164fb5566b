//! The options of pahole 1.32: those that matter for encoding with what they mean here, and those
//! that only pahole can carry out, so that they can be refused by name.

use super::getopt::{Spec, Takes};
use crate::options::Feature;

/// What an option of pahole means to btfcache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Encode BTF.
    Encode,
    /// Encode BTF into a file of its own.
    EncodeDetached,
    /// The BTF to build upon.
    Base,
    /// How many threads.
    Jobs,
    /// Only units of these languages.
    Languages,
    /// No units of these languages.
    LanguagesExclude,
    /// No units whose name starts so.
    ExcludeUnits,
    /// A feature list; unknown words are ignored.
    Features,
    /// A feature list; unknown words are errors.
    FeaturesStrict,
    /// `--btf_features=all`.
    GenerateAll,
    /// Print the names of the features.
    SupportedFeatures,
    /// Switch one feature on or off.
    Switch(Feature, bool),
    /// The name that swallows what follows it.
    KabiPrefix,
    /// Size of a hash table of pahole: checked, then ignored.
    HashBits,
    /// Debugging formats to try; must begin with DWARF.
    FormatPath,
    /// Say what is left out.
    Verbose,
    /// No notices.
    Quiet,
    /// Accepted without effect on the encoding.
    Ignored,
    /// Print the version.
    Version,
    /// Print the version as a number.
    NumericVersion,
    /// Print the version and who is really speaking.
    DevelVersion,
    /// Print the options.
    Help,
    /// Print a usage line.
    Usage,
    /// Reproduce the visible defects of an encoder.
    Compat,
    /// Print how long each phase took.
    Time,
    /// Fail if something cannot be expressed.
    Strict,
    /// Something only pahole does: the verb phrase of the refusal.
    Refused(&'static str),
}

const PRINTS: Meaning = Meaning::Refused("prints data structures");

const fn flag(short: Option<char>, long: &'static str, meaning: Meaning) -> Spec<Meaning> {
    Spec { short, long, takes: Takes::Nothing, in_full: false, meaning }
}

const fn value(short: Option<char>, long: &'static str, meaning: Meaning) -> Spec<Meaning> {
    Spec { takes: Takes::Argument, ..flag(short, long, meaning) }
}

/// An option that pahole does not have: it must not get in the way of pahole's abbreviations.
const fn own(option: Spec<Meaning>) -> Spec<Meaning> {
    Spec { in_full: true, ..option }
}

/// Every option. Abbreviations are resolved against this table, so a missing row would change the
/// meaning of others.
pub const OPTIONS: &[Spec<Meaning>] = &[
    flag(Some('J'), "btf_encode", Meaning::Encode),
    value(None, "btf_encode_detached", Meaning::EncodeDetached),
    value(None, "btf_base", Meaning::Base),
    value(None, "btf_features", Meaning::Features),
    value(None, "btf_features_strict", Meaning::FeaturesStrict),
    value(None, "features", Meaning::Features),
    flag(None, "supported_btf_features", Meaning::SupportedFeatures),
    flag(None, "btf_gen_all", Meaning::GenerateAll),
    flag(None, "btf_gen_floats", Meaning::Switch(Feature::Float, true)),
    flag(None, "btf_gen_optimized", Meaning::Switch(Feature::OptimizedFunc, true)),
    flag(None, "btf_encode_force", Meaning::Switch(Feature::EncodeForce, true)),
    flag(None, "btf_attributes", Meaning::Switch(Feature::Attributes, true)),
    flag(None, "reproducible_build", Meaning::Switch(Feature::ReproducibleBuild, true)),
    flag(None, "skip_encoding_btf_vars", Meaning::Switch(Feature::Var, false)),
    flag(None, "skip_encoding_btf_decl_tag", Meaning::Switch(Feature::DeclTag, false)),
    flag(None, "skip_encoding_btf_type_tag", Meaning::Switch(Feature::TypeTag, false)),
    flag(None, "skip_encoding_btf_enum64", Meaning::Switch(Feature::Enum64, false)),
    flag(
        None,
        "skip_encoding_btf_inconsistent_proto",
        Meaning::Switch(Feature::ConsistentFunc, true),
    ),
    Spec { takes: Takes::Optional, ..flag(Some('j'), "jobs", Meaning::Jobs) },
    value(None, "lang", Meaning::Languages),
    value(None, "lang_exclude", Meaning::LanguagesExclude),
    value(Some('X'), "cu_exclude", Meaning::ExcludeUnits),
    value(None, "kabi_prefix", Meaning::KabiPrefix),
    value(None, "hashbits", Meaning::HashBits),
    value(Some('F'), "format_path", Meaning::FormatPath),
    flag(None, "ptr_table_stats", Meaning::Ignored),
    flag(None, "first_obj_only", Meaning::Ignored),
    flag(Some('V'), "verbose", Meaning::Verbose),
    flag(Some('q'), "quiet", Meaning::Quiet),
    flag(None, "numeric_version", Meaning::NumericVersion),
    flag(None, "devel_version", Meaning::DevelVersion),
    flag(None, "version", Meaning::Version),
    flag(Some('?'), "help", Meaning::Help),
    flag(None, "usage", Meaning::Usage),
    own(value(None, "compat", Meaning::Compat)),
    own(flag(None, "time", Meaning::Time)),
    own(flag(None, "strict", Meaning::Strict)),
    flag(Some('Z'), "ctf_encode", Meaning::Refused("encodes CTF")),
    flag(None, "running_kernel_vmlinux", Meaning::Refused("looks for the running kernel")),
    flag(Some('a'), "anon_include", PRINTS),
    flag(Some('A'), "nested_anon_include", PRINTS),
    value(Some('B'), "bit_holes", PRINTS),
    value(Some('c'), "cacheline_size", PRINTS),
    value(Some('C'), "class_name", PRINTS),
    flag(None, "classes_as_structs", PRINTS),
    flag(None, "compile", PRINTS),
    value(Some('i'), "contains", PRINTS),
    value(None, "contains_enumerator", PRINTS),
    value(None, "count", PRINTS),
    flag(Some('d'), "recursive", PRINTS),
    value(Some('D'), "decl_exclude", PRINTS),
    flag(Some('u'), "defined_in", PRINTS),
    value(Some('x'), "exclude", PRINTS),
    flag(Some('p'), "expand_pointers", PRINTS),
    flag(Some('E'), "expand_types", PRINTS),
    value(Some('f'), "find_pointers_to", PRINTS),
    flag(None, "fixup_silly_bitfields", PRINTS),
    flag(None, "flat_arrays", PRINTS),
    value(None, "header_type", PRINTS),
    flag(None, "hex", PRINTS),
    value(Some('z'), "hole_size_ge", PRINTS),
    value(Some('H'), "holes", PRINTS),
    flag(Some('N'), "class_name_len", PRINTS),
    flag(Some('n'), "nr_members", PRINTS),
    flag(Some('m'), "nr_methods", PRINTS),
    flag(Some('T'), "nr_definitions", PRINTS),
    flag(Some('P'), "packable", PRINTS),
    flag(None, "packed", PRINTS),
    value(None, "padding_ge", PRINTS),
    value(Some('y'), "prefix_filter", PRINTS),
    value(None, "prettify", PRINTS),
    value(None, "range", PRINTS),
    flag(Some('r'), "rel_offset", PRINTS),
    flag(Some('R'), "reorganize", PRINTS),
    value(None, "seek_bytes", PRINTS),
    value(Some('t'), "separator", PRINTS),
    flag(Some('I'), "show_decl_info", PRINTS),
    flag(Some('l'), "show_first_biggest_size_base_type_member", PRINTS),
    flag(Some('M'), "show_only_data_members", PRINTS),
    flag(None, "show_private_classes", PRINTS),
    flag(Some('S'), "show_reorg_steps", PRINTS),
    value(None, "size_bytes", PRINTS),
    flag(Some('s'), "sizes", PRINTS),
    value(None, "skip", PRINTS),
    flag(None, "skip_emitting_atomic_typedefs", PRINTS),
    flag(None, "skip_missing", PRINTS),
    flag(None, "sort", PRINTS),
    flag(None, "structs", PRINTS),
    flag(None, "suppress_aligned_attribute", PRINTS),
    flag(None, "suppress_force_paddings", PRINTS),
    flag(None, "suppress_packed", PRINTS),
    flag(None, "unions", PRINTS),
    flag(None, "with_embedded_flexible_array", PRINTS),
    flag(None, "with_flexible_array", PRINTS),
    value(Some('w'), "word_size", PRINTS),
];
