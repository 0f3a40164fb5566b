//! Integration tests: the program as a user runs it.

mod suites {
    mod embed;
}
