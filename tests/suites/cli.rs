//! The command line of btfcache itself.

use crate::harness::{Test, elf_without_sections};

#[test]
fn version() {
    let expected = format!("btfcache {}\n", env!("CARGO_PKG_VERSION"));
    Test::new().args("--version").succeeds().stdout(&expected).stderr("");
}

#[test]
fn help_is_data_and_shows_examples() {
    Test::new()
        .args("--help")
        .succeeds()
        .stderr("")
        .stdout_has("Examples:")
        .stdout_has("BTFCACHE_DISABLE")
        .again()
        .args("encode --help")
        .succeeds()
        .stderr("")
        .stdout_has("Examples:")
        .stdout_has("--exclude-unit-prefix <PREFIX>")
        .again()
        .args("help pahole")
        .succeeds()
        .stdout_has("Examples:");
}

#[test]
fn no_command_is_an_error() {
    Test::new().fails(2).stdout("").stderr_has("btfcache: no command given").stderr_has("Usage:");
}

#[test]
fn mistakes_exit_with_2_and_name_the_program() {
    for (line, message) in [
        ("encode", "btfcache: the following required arguments were not provided:"),
        ("encode a.o", "<--output <OUT>|--in-place|--output-dir <DIR>>"),
        ("encode a.o --in-place -o b", "cannot be used with"),
        ("encode a.o -o b --lang=klingon", "btfcache: unknown language \"klingon\"\n"),
        ("encode a.o -o b --sizes", "btfcache: unexpected argument '--sizes' found"),
    ] {
        Test::new().args(line).fails(2).stdout("").stderr_has(message).files(&[]);
    }
}

#[test]
fn missing_input() {
    Test::new()
        .args("encode a.o -o a.btf")
        .fails(2)
        .stdout("")
        .stderr_has("btfcache: failed to encode `a.o`\ncaused by: ")
        .files(&[]);
}

#[test]
fn input_that_is_not_elf_stays_as_it_is() {
    Test::new()
        .file("a.o", b"not ELF")
        .args("encode a.o --in-place")
        .fails(2)
        .stderr_has("btfcache: failed to encode `a.o`\ncaused by: ")
        .content("a.o", b"not ELF")
        .again()
        .args("encode a.o -o -")
        .fails(2)
        .stdout("")
        .files(&["a.o"]);
}

#[test]
fn old_output_survives_a_failure() {
    Test::new()
        .file("a.o", b"not ELF")
        .file("a.btf", b"old")
        .args("encode a.o -o a.btf")
        .fails(2)
        .content("a.btf", b"old")
        .files(&["a.btf", "a.o"]);
}

#[test]
fn output_over_the_input_is_refused() {
    let elf = elf_without_sections();
    Test::new()
        .file("a.o", &elf)
        .args("encode a.o -o ./a.o")
        .fails(2)
        .stderr("btfcache: `./a.o` is the input: its BTF cannot replace it\n")
        .content("a.o", &elf);
}

#[test]
fn unknown_feature_is_told_and_strict_stops_there() {
    Test::new()
        .args("encode a.o -o a.btf --features=+lay_out")
        .fails(2)
        .stderr_has("btfcache: unknown feature `lay_out`\nbtfcache: failed to encode `a.o`")
        .again()
        .args("encode a.o -o a.btf --features=+lay_out --quiet --strict")
        .fails(2)
        .stderr(
            "btfcache: unknown feature `lay_out`\n\
             btfcache: stopped, because `--strict` makes this an error\n",
        );
}

#[test]
fn broken_pipe_is_success() {
    Test::new()
        .args("--help")
        .unread_stdout()
        .succeeds()
        .stderr("")
        .again()
        .args("pahole --supported_btf_features")
        .unread_stdout()
        .succeeds()
        .stderr("");
}

#[test]
fn input_without_dwarf_is_told_and_succeeds() {
    Test::new()
        .file("a.o", &elf_without_sections())
        .args("encode a.o -o a.btf")
        .succeeds()
        .stdout("")
        .stderr_has("btfcache: ")
        .stderr_has("a.o")
        .files(&["a.o"])
        .again()
        .args("encode a.o --in-place --quiet --strict")
        .succeeds()
        .stderr("")
        .content("a.o", &elf_without_sections());
}
