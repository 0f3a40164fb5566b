//! What steers a run without changing its result: takes what was typed, the environment and the
//! configuration file, gives [`Settings`], each value with where it comes from.
//!
//! A value is taken from the first place that has a usable one: flags, `BTFCACHE_*` variables, the
//! file, the default. One that cannot be understood is told and passed over: a slip in a setting
//! must not cost a build its result.

mod file;
mod value;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Environment, HOME, XDG_CACHE_HOME, XDG_CONFIG_HOME};

pub use file::ConfigFile;
pub use value::{human_bytes, human_duration, parse_age, parse_percent, parse_size};

/// Declares the settings: name in the file, variable, default in words.
macro_rules! settings {
    ($($name:ident = $file:literal, $variable:literal, $help:literal;)*) => {
        /// One setting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Name { $(#[doc = $help] $name),* }

        impl Name {
            /// Every setting, in the order of `btfcache config`.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in the configuration file.
            #[must_use]
            pub const fn in_file(self) -> &'static str {
                match self { $(Self::$name => $file),* }
            }

            /// Its environment variable.
            #[must_use]
            pub const fn variable(self) -> &'static str {
                match self { $(Self::$name => $variable),* }
            }

            /// One line for the help text.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => $help),* }
            }
        }
    };
}

settings! {
    Dir = "dir", "BTFCACHE_DIR", "directory of the cache";
    Disable = "disable", "BTFCACHE_DISABLE", "1: work as if there were no cache";
    ReadOnly = "readonly", "BTFCACHE_READONLY", "1: use what is stored, store nothing";
    Recache = "recache", "BTFCACHE_RECACHE", "1: make results anew and store them";
    MaxSize = "max_size", "BTFCACHE_MAX_SIZE", "how large the cache may get: 5GB, 500MiB; 0: no limit";
    MaxAge = "max_age", "BTFCACHE_MAX_AGE", "how long unused entries stay: 30d, 12h; 0: no limit";
    Stat = "stat", "BTFCACHE_STAT", "off: never trust size and times of a file";
    Check = "check", "BTFCACHE_CHECK", "share of hits to compute again and compare: 5%";
    StrictCache = "strict_cache", "BTFCACHE_STRICT_CACHE", "1: problems of the cache are errors";
    Units = "units", "BTFCACHE_UNITS", "1: keep what compile units give, too (on trial)";
    StatsLog = "stats_log", "BTFCACHE_STATS_LOG", "file that gets one line per encoded input";
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment variable of the setting.
    Environment,
    /// The configuration file.
    File,
    /// Nobody set it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        })
    }
}

/// A value and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

/// Settings that were typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(BTreeMap<Name, OsString>);

impl Flags {
    /// No flag.
    #[must_use]
    pub const fn none() -> &'static Self {
        const { &Self(BTreeMap::new()) }
    }

    /// Sets `name`.
    pub fn set(&mut self, name: Name, value: impl Into<OsString>) {
        self.0.insert(name, value.into());
    }
}

/// Limit of the cache unless set, in bytes.
pub const DEFAULT_MAX_SIZE: u64 = 5_000_000_000;

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directory of the cache; `None` if there is no place for one.
    pub dir: Sourced<Option<PathBuf>>,
    /// Neither read nor write the cache.
    pub disable: Sourced<bool>,
    /// Do not write the cache.
    pub readonly: Sourced<bool>,
    /// Do not read results.
    pub recache: Sourced<bool>,
    /// How large the cache may get, in bytes; 0: any size.
    pub max_size: Sourced<u64>,
    /// How long an unused entry stays; 0: any time.
    pub max_age: Sourced<Duration>,
    /// Recognise files by their size and times.
    pub stat: Sourced<bool>,
    /// Percentage of hits to compute again.
    pub check: Sourced<u8>,
    /// Problems of the cache are errors.
    pub strict_cache: Sourced<bool>,
    /// Keep what compile units give, too.
    pub units: Sourced<bool>,
    /// File that gets a line for each input.
    pub stats_log: Sourced<Option<PathBuf>>,
    /// The configuration file that was looked for.
    pub file: Option<PathBuf>,
    /// What could not be understood.
    pub faults: Vec<String>,
}

impl Settings {
    /// What `flags`, `environment` and the user's configuration file ask for.
    #[must_use]
    pub fn resolve(flags: &Flags, environment: &Environment) -> Self {
        let path = folder(environment, XDG_CONFIG_HOME, ".config").map(|path| path.join("config"));
        let file = path.as_deref().map(ConfigFile::read).unwrap_or_default();
        let mut settings = Self::of(flags, environment, file);
        settings.file = path;
        settings
    }

    /// The same with a configuration file that has been read.
    #[must_use]
    pub fn of(flags: &Flags, environment: &Environment, file: ConfigFile) -> Self {
        let mut resolver =
            Resolver { flags, environment, values: file.values, faults: file.faults };
        let switch = |value: &OsStr| Ok(value::parse_switch(value));
        let path = |value: &OsStr| Ok(Some(PathBuf::from(value)));
        Self {
            dir: resolver.find(Name::Dir, path, || default_directory(environment)),
            disable: resolver.find(Name::Disable, switch, || false),
            readonly: resolver.find(Name::ReadOnly, switch, || false),
            recache: resolver.find(Name::Recache, switch, || false),
            max_size: resolver.find(Name::MaxSize, parse_size, || DEFAULT_MAX_SIZE),
            max_age: resolver.find(Name::MaxAge, parse_age, || Duration::ZERO),
            stat: resolver.find(Name::Stat, switch, || true),
            check: resolver.find(Name::Check, parse_percent, || 0),
            strict_cache: resolver.find(Name::StrictCache, switch, || false),
            units: resolver.find(Name::Units, switch, || false),
            stats_log: resolver.find(Name::StatsLog, path, || None),
            file: None,
            faults: resolver.faults,
        }
    }

    /// Each setting as text, with its source.
    #[must_use]
    pub fn rows(&self) -> Vec<(Name, String, Source)> {
        let row = |name: Name| {
            let (text, source) = self.row(name);
            (name, text, source)
        };
        Name::ALL.iter().copied().map(row).collect()
    }

    fn row(&self, name: Name) -> (String, Source) {
        fn text<T>(sourced: &Sourced<T>, show: impl FnOnce(&T) -> String) -> (String, Source) {
            (show(&sourced.value), sourced.source)
        }
        let switch = |value: &bool| if *value { "on" } else { "off" }.to_owned();
        let path = |value: &Option<PathBuf>| {
            value.as_ref().map_or_else(String::new, |path| path.display().to_string())
        };
        match name {
            Name::Dir => text(&self.dir, path),
            Name::Disable => text(&self.disable, switch),
            Name::ReadOnly => text(&self.readonly, switch),
            Name::Recache => text(&self.recache, switch),
            Name::MaxSize => text(&self.max_size, |size| value::exact_bytes(*size)),
            Name::MaxAge => text(&self.max_age, |age| value::exact_age(*age)),
            Name::Stat => text(&self.stat, switch),
            Name::Check => text(&self.check, |percent| format!("{percent}%")),
            Name::StrictCache => text(&self.strict_cache, switch),
            Name::Units => text(&self.units, switch),
            Name::StatsLog => text(&self.stats_log, path),
        }
    }
}

struct Resolver<'a> {
    flags: &'a Flags,
    environment: &'a Environment,
    values: BTreeMap<Name, OsString>,
    faults: Vec<String>,
}

impl Resolver<'_> {
    fn find<T>(
        &mut self,
        name: Name,
        parse: impl Fn(&OsStr) -> Result<T, String>,
        default: impl FnOnce() -> T,
    ) -> Sourced<T> {
        for (source, value) in self.candidates(name) {
            match parse(&value) {
                Ok(value) => return Sourced { value, source },
                Err(fault) => {
                    let place = match source {
                        Source::Environment => name.variable(),
                        _ => name.in_file(),
                    };
                    self.faults.push(format!("{place}={}: {fault}", value.display()));
                }
            }
        }
        Sourced { value: default(), source: Source::Default }
    }

    /// The values that are set, the strongest first. An empty variable counts as not set.
    fn candidates(&self, name: Name) -> Vec<(Source, OsString)> {
        let variable = self.environment.get(name.variable()).filter(|value| !value.is_empty());
        let places = [
            (Source::Flag, self.flags.0.get(&name).cloned()),
            (Source::Environment, variable.map(OsStr::to_owned)),
            (Source::File, self.values.get(&name).cloned()),
        ];
        places.into_iter().filter_map(|(source, value)| Some((source, value?))).collect()
    }
}

/// `btfcache` in the XDG folder of `variable`, or in `in_home` of the home directory. Relative paths
/// do not count (XDG base directory specification).
fn folder(environment: &Environment, variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| {
        environment.get(name).map(Path::new).filter(|path| path.is_absolute()).map(Path::to_owned)
    };
    let parent = absolute(variable).or_else(|| Some(absolute(HOME)?.join(in_home)))?;
    Some(parent.join("btfcache"))
}

/// Builds of distributions run with a home directory that does not exist, on purpose: then there
/// is no cache, and nothing to complain about.
fn default_directory(environment: &Environment) -> Option<PathBuf> {
    let has_own_place = environment.get(XDG_CACHE_HOME).is_some();
    let has_home = environment.get(HOME).is_some_and(|home| Path::new(home).is_dir());
    folder(environment, XDG_CACHE_HOME, ".cache").filter(|_| has_own_place || has_home)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(
        flags: &[(Name, &str)],
        environment: &[(&'static str, &str)],
        file: &str,
    ) -> Settings {
        let mut typed = Flags::default();
        flags.iter().for_each(|&(name, value)| typed.set(name, value));
        Settings::of(&typed, &Environment::of(environment), ConfigFile::parse(file.as_bytes()))
    }

    #[test]
    fn flags_go_before_variables_before_the_file_before_defaults() {
        let file = "max_size = 3GB\nstat = off";
        let variable = [("BTFCACHE_MAX_SIZE", "2GB")];
        let flag = [(Name::MaxSize, "1GB")];
        for (flags, variables, file, value, source) in [
            (&flag[..], &variable[..], file, 1, Source::Flag),
            (&[], &variable, file, 2, Source::Environment),
            (&[], &[], file, 3, Source::File),
            (&[], &[], "", 5, Source::Default),
        ] {
            let found = settings(flags, variables, file).max_size;
            assert_eq!(found, Sourced { value: value * 1_000_000_000, source });
        }
        assert!(!settings(&flag, &variable, file).stat.value);
    }

    #[test]
    fn every_setting_can_be_set_everywhere() {
        let value = |name: Name| match name {
            Name::Dir | Name::StatsLog => "/x",
            Name::MaxSize => "7MB",
            Name::MaxAge => "7d",
            Name::Check => "7%",
            Name::Stat => "off",
            _ => "on",
        };
        let row = |settings: &Settings, name: Name| settings.row(name);
        for &name in Name::ALL {
            let line = format!("{} = {}", name.in_file(), value(name));
            for (settings, source) in [
                (settings(&[(name, value(name))], &[], ""), Source::Flag),
                (settings(&[], &[(name.variable(), value(name))], ""), Source::Environment),
                (settings(&[], &[], &line), Source::File),
            ] {
                assert_eq!(settings.faults, [""; 0]);
                assert_eq!(row(&settings, name), (value(name).to_owned(), source), "{name:?}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_told_and_passed_over() {
        let environment = [("BTFCACHE_MAX_SIZE", "much"), ("BTFCACHE_CHECK", "101%")];
        let settings = settings(&[], &environment, "max_size = 1MB\nmax_age = soon\nmax_sice = 2");
        assert_eq!(settings.max_size, Sourced { value: 1_000_000, source: Source::File });
        assert_eq!(settings.check.source, Source::Default);
        assert_eq!(settings.faults.len(), 4, "{:?}", settings.faults);
    }

    #[test]
    fn disable_understands_yes_and_no() {
        let words = [("1", true), ("yes", true), ("", false), ("0", false), ("False", false)];
        for (value, disabled) in words.into_iter().chain([("off", false), ("no", false)]) {
            let settings = settings(&[], &[("BTFCACHE_DISABLE", value)], "");
            assert_eq!(settings.disable.value, disabled, "BTFCACHE_DISABLE={value}");
        }
    }

    #[test]
    fn the_directory_is_where_xdg_says() {
        let dir = |environment: &[(&'static str, &str)]| {
            settings(&[], environment, "").dir.value.map(|path| path.display().to_string())
        };
        assert_eq!(dir(&[]), None);
        assert_eq!(dir(&[("HOME", "/")]).as_deref(), Some("/.cache/btfcache"));
        assert_eq!(dir(&[("HOME", "/nonexistent")]), None);
        assert_eq!(dir(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/")]).as_deref(), Some("/c/btfcache"));
        assert_eq!(
            dir(&[("XDG_CACHE_HOME", "c"), ("HOME", "/")]).as_deref(),
            Some("/.cache/btfcache")
        );
        assert_eq!(dir(&[("BTFCACHE_DIR", "/d"), ("HOME", "/")]).as_deref(), Some("/d"));
    }
}
