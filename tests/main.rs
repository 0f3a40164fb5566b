//! Integration tests: the program as a user runs it.

mod harness;

mod suites {
    mod cli;
    mod embed;
    mod pahole_cli;
}
