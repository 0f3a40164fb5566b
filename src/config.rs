//! What the environment says: takes the process environment once, at the start, and gives plain
//! values. The only file that reads environment variables; every variable is declared in
//! [`VARIABLES`].
//!
//! A setting is looked for on the command line first, then here. No variable can change the bytes
//! of a result, except [`PAHOLE_LANG_EXCLUDE`], which is pahole's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Languages to leave out when the command line names none (spec/encoding 1.2.1).
pub const PAHOLE_LANG_EXCLUDE: &str = "PAHOLE_LANG_EXCLUDE";
/// Switches the cache off.
pub const BTFCACHE_DISABLE: &str = "BTFCACHE_DISABLE";

/// One environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// One line for the help text.
    pub help: &'static str,
}

/// Every variable that is read, in the order of the help text.
pub const VARIABLES: [Variable; 7] = [
    Variable { name: BTFCACHE_DISABLE, help: "1: work as if there were no cache" },
    Variable { name: "BTFCACHE_DIR", help: "directory of the cache (reserved)" },
    Variable {
        name: "BTFCACHE_STAT",
        help: "off: never trust size and times of a file (reserved)",
    },
    Variable { name: "BTFCACHE_RECACHE", help: "1: write results, read none (reserved)" },
    Variable { name: "BTFCACHE_READONLY", help: "1: read results, write none (reserved)" },
    Variable { name: "BTFCACHE_STATS_LOG", help: "file that gets one line per run (reserved)" },
    Variable {
        name: PAHOLE_LANG_EXCLUDE,
        help: "languages to leave out when no `--lang` option is given",
    },
];

/// The variables of [`VARIABLES`] that are set.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    values: BTreeMap<&'static str, OsString>,
}

impl Environment {
    /// Reads the environment of this process.
    #[must_use]
    pub fn read() -> Self {
        let set = |variable: &Variable| Some((variable.name, std::env::var_os(variable.name)?));
        Self { values: VARIABLES.iter().filter_map(set).collect() }
    }

    /// An environment with just these values.
    #[must_use]
    pub fn of(values: &[(&'static str, &str)]) -> Self {
        let values = values.iter().map(|&(name, value)| (name, OsString::from(value)));
        Self { values: values.collect() }
    }

    /// The value of a variable, if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.values.get(name).map(OsString::as_os_str)
    }

    /// Whether a switch is on: set, and to something that does not mean no.
    fn switch(&self, name: &str) -> bool {
        let off = |value: &OsStr| {
            ["", "0", "false", "no", "off"].iter().any(|word| value.eq_ignore_ascii_case(word))
        };
        self.get(name).is_some_and(|value| !off(value))
    }
}

/// Settings that steer a run without changing its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Neither read nor write the cache.
    pub cache_disabled: bool,
}

impl Settings {
    /// What the environment asks for.
    #[must_use]
    pub fn resolve(environment: &Environment) -> Self {
        Self { cache_disabled: environment.switch(BTFCACHE_DISABLE) }
    }
}

/// The variables as a section of the help text.
#[must_use]
pub fn environment_help() -> String {
    let width = VARIABLES.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    let line = |variable: &Variable| format!("  {:width$}  {}", variable.name, variable.help);
    let lines: Vec<String> = VARIABLES.iter().map(line).collect();
    format!("Environment:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disable_understands_yes_and_no() {
        for (value, disabled) in [
            ("1", true),
            ("yes", true),
            ("", false),
            ("0", false),
            ("False", false),
            ("off", false),
        ] {
            let environment = Environment::of(&[(BTFCACHE_DISABLE, value)]);
            let settings = Settings::resolve(&environment);
            assert_eq!(settings.cache_disabled, disabled, "BTFCACHE_DISABLE={value}");
        }
        assert!(!Settings::resolve(&Environment::default()).cache_disabled);
    }

    #[test]
    fn help_names_every_variable() {
        let help = environment_help();
        for variable in &VARIABLES {
            assert!(help.contains(variable.name), "{help}");
        }
    }
}
