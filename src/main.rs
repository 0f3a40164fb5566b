//! The program `btfcache`: everything is in the library.

fn main() {}
