//! What the environment says: takes the process environment once, at the start, and gives plain
//! values. The only file that reads environment variables; every variable is declared in
//! [`VARIABLES`].
//!
//! What they mean together with flags and the configuration file says [`crate::settings`]. No variable can change the bytes
//! of a result, except [`PAHOLE_LANG_EXCLUDE`], which is pahole's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::settings::Name;

/// Languages to leave out when the command line names none (spec/encoding 1.2.1).
pub const PAHOLE_LANG_EXCLUDE: &str = "PAHOLE_LANG_EXCLUDE";
/// The home directory.
pub const HOME: &str = "HOME";
/// Where caches are.
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Where configuration files are.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";

/// One environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// One line for the help text.
    pub help: &'static str,
}

const fn setting(name: Name) -> Variable {
    Variable { name: name.variable(), help: name.help() }
}

/// Every variable that is read, in the order of the help text.
pub const VARIABLES: [Variable; 15] = [
    setting(Name::Dir),
    setting(Name::Disable),
    setting(Name::ReadOnly),
    setting(Name::Recache),
    setting(Name::MaxSize),
    setting(Name::MaxAge),
    setting(Name::Stat),
    setting(Name::Check),
    setting(Name::StrictCache),
    setting(Name::Units),
    setting(Name::StatsLog),
    Variable {
        name: PAHOLE_LANG_EXCLUDE,
        help: "languages to leave out when no `--lang` option is given",
    },
    Variable { name: XDG_CACHE_HOME, help: "where the cache is unless BTFCACHE_DIR is set" },
    Variable { name: XDG_CONFIG_HOME, help: "where btfcache/config with the settings is" },
    Variable { name: HOME, help: "where .cache, .config and .local/bin are" },
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
    fn every_setting_has_a_variable() {
        for name in Name::ALL {
            assert!(VARIABLES.iter().any(|variable| variable.name == name.variable()), "{name:?}");
        }
    }

    #[test]
    fn help_names_every_variable() {
        let help = environment_help();
        for variable in &VARIABLES {
            assert!(help.contains(variable.name), "{help}");
        }
    }
}
