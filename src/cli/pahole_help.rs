//! The texts of `pahole --help` and `--usage` as btfcache answers them.

/// Where to look after a mistake.
pub const SEE_HELP: &str = "Try `pahole --help' or `pahole --usage' for more information.";

/// One line that shows the shape of a call.
pub const USAGE: &str = "\
Usage: pahole -J [OPTION...] FILE...
       pahole --btf_encode_detached=OUT [OPTION...] FILE
       pahole --version | --numeric_version | --supported_btf_features
";

/// All options that do something.
pub const HELP: &str = "\
Usage: pahole -J [OPTION...] FILE...
       pahole --btf_encode_detached=OUT [OPTION...] FILE

btfcache in the place of pahole: encodes the DWARF of kernel images and modules
as BTF, with the options and the output of pahole 1.32. Options that print data
structures need the pahole of the dwarves package.

Output:
  -J, --btf_encode             put the BTF into each FILE, as section .BTF
      --btf_encode_detached=OUT
                               write the BTF to OUT and leave FILE as it is
      --btf_base=PATH          build upon the BTF in PATH (raw, or section .BTF)

Features:
      --btf_features=LIST      exactly the features of LIST, which may hold
                               `default' and `all'; a leading `+' adds the
                               default set; several lists add up; words that
                               name no feature are ignored
      --features=LIST          the same
      --btf_features_strict=LIST
                               the same, but an unknown word is an error
      --supported_btf_features print the names of all features
      --btf_gen_all            --btf_features=all
      --btf_gen_floats         feature float
      --btf_gen_optimized      feature optimized_func
      --btf_encode_force       feature encode_force
      --btf_attributes         feature attributes
      --reproducible_build     feature reproducible_build
      --skip_encoding_btf_inconsistent_proto
                               feature consistent_func
      --skip_encoding_btf_vars, --skip_encoding_btf_decl_tag,
      --skip_encoding_btf_type_tag, --skip_encoding_btf_enum64
                               without the feature of that name

Units:
      --lang=LIST              only units written in these languages
      --lang_exclude=LIST      no units written in these languages
  -X, --cu_exclude=PREFIX      no units whose name starts with PREFIX
      --kabi_prefix=STRING     names that start with STRING become STRING

Running:
  -j, --jobs[=N]               N threads; the number must be attached (-j4).
                               Without it, as many as are of use
  -V, --verbose                print what is left out, and why
  -q, --quiet                  no notices
  -F, --format_path=dwarf      accepted
      --hashbits=N, --ptr_table_stats, --first_obj_only
                               accepted, without effect

      --version                print the version of pahole that is matched
      --numeric_version        the same as a number
      --devel_version          the same, and the version of btfcache
  -?, --help                   print this text
      --usage                  print a short usage message

Options of btfcache, not of pahole (spell them out):
      --compat=pahole          reproduce the visible defects of pahole
      --strict                 fail if something cannot be expressed in BTF
      --time                   print on stderr how long each phase took

Examples:
  pahole -J -j --btf_features=default --lang_exclude=rust vmlinux
  pahole -J -j --btf_features=default --btf_encode_detached=vmlinux.btf vmlinux

PAHOLE_LANG_EXCLUDE in the environment stands in for --lang_exclude when no
language list is given. LLVM_OBJCOPY is not used: btfcache writes the section
itself.
";
