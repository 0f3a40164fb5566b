//! The program `btfcache`: everything is in the library.

use std::ffi::OsString;
use std::process::ExitCode;

use btfcache::config::Environment;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    btfcache::cli::run(&arguments, &Environment::read())
}
