//! Integration tests: the program as a user runs it.

mod dwarf_builder;
mod harness;

mod suites {
    mod architectures;
    mod archives;
    mod bad_input;
    mod btf;
    mod cache;
    mod cli;
    mod compilers;
    mod compressed;
    mod containers;
    mod dwarf;
    mod embed;
    mod encode;
    mod install;
    mod kinds;
    mod languages;
    mod other_files;
    mod other_languages;
    mod pahole_cli;
    mod split;
    mod together;
    mod unit_key;
    mod upon_base;
}
