//! The commands and flags of the cache.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::Refusal;
use crate::commands::{CacheRequest, Command, Subject};
use crate::settings::{Flags, Name, parse_age, parse_percent, parse_size};

/// Where the cache is: every command that uses it has this flag.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Cache")]
pub(super) struct PlaceArguments {
    /// Directory of the cache
    ///
    /// It is made if it does not exist. Without the flag it is that of BTFCACHE_DIR or of the
    /// configuration file, else `btfcache` in the user's cache folder.
    ///
    /// Example: `--cache-dir=/var/cache/btfcache`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// How an encode uses the cache.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Cache")]
pub(super) struct UseArguments {
    #[command(flatten)]
    place: PlaceArguments,

    /// Work as if there were no cache
    ///
    /// Nothing is read from it and nothing is stored. The result is the same.
    ///
    /// Example: `btfcache encode --no-cache vmlinux -o vmlinux.btf`
    #[arg(long, conflicts_with_all = ["recache", "read_only_cache", "check", "strict_cache"])]
    no_cache: bool,

    /// Make the result anew and store it
    ///
    /// For when you do not trust what is stored.
    ///
    /// Example: `btfcache encode --recache vmlinux -o vmlinux.btf`
    #[arg(long)]
    recache: bool,

    /// Use what is stored, store nothing
    ///
    /// Not even the use of an entry is noted.
    ///
    /// Example: `btfcache encode --read-only-cache vmlinux -o vmlinux.btf`
    #[arg(long)]
    read_only_cache: bool,

    /// Share of hits to compute again and compare
    ///
    /// What is stored differently is told and replaced; the fresh result is used.
    ///
    /// Example: `--check=100%`
    #[arg(long, value_name = "N%")]
    check: Option<OsString>,

    /// Problems of the cache are errors
    ///
    /// Without it they cost a warning at most. With it the output is still written, and the exit
    /// status is 2.
    ///
    /// Example: `btfcache encode --strict-cache vmlinux -o vmlinux.btf`
    #[arg(long)]
    strict_cache: bool,
}

impl PlaceArguments {
    fn set(self, flags: &mut Flags) {
        if let Some(path) = self.cache_dir {
            flags.set(Name::Dir, path);
        }
    }

    fn into_flags(self) -> Flags {
        let mut flags = Flags::default();
        self.set(&mut flags);
        flags
    }
}

impl UseArguments {
    /// The settings that were typed.
    pub(super) fn into_flags(self) -> Result<Flags, Refusal> {
        let mut flags = self.place.into_flags();
        for (name, is_set) in [
            (Name::Disable, self.no_cache),
            (Name::Recache, self.recache),
            (Name::ReadOnly, self.read_only_cache),
            (Name::StrictCache, self.strict_cache),
        ] {
            if is_set {
                flags.set(name, "on");
            }
        }
        checked(&mut flags, Name::Check, "--check", self.check, |value| {
            parse_percent(value).err()
        })?;
        Ok(flags)
    }
}

/// Sets a value that must be understood: what is typed wrong is told at once.
fn checked(
    flags: &mut Flags,
    name: Name,
    flag: &str,
    value: Option<OsString>,
    fault: impl FnOnce(&OsString) -> Option<String>,
) -> Result<(), Refusal> {
    let Some(value) = value else {
        return Ok(());
    };
    match fault(&value) {
        Some(fault) => Err(Refusal::usage(format!("`{flag}={}`: {fault}", value.display()))),
        None => {
            flags.set(name, value);
            Ok(())
        }
    }
}

/// Show each setting and where it comes from
///
/// One line for each, as in the configuration file, which is btfcache/config in the user's
/// configuration folder. A setting is taken from the command line, else from its variable
/// BTFCACHE_..., else from the file.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  btfcache config\n  btfcache config > ~/.config/btfcache/config"
)]
pub(super) struct ConfigArguments {
    #[command(flatten)]
    usage: UseArguments,
}

impl ConfigArguments {
    pub(super) fn into_command(self) -> Result<Command, Refusal> {
        Ok(command(self.usage.into_flags()?, Subject::Config))
    }
}

/// Show how much the cache has helped
///
/// Hits and misses by reason, time saved, size, problems, and a table of what was encoded.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  btfcache stats\n  btfcache stats --json\n  btfcache stats --zero"
)]
pub(super) struct StatsArguments {
    /// Print JSON
    ///
    /// One object with `results`, `units`, `time`, `cache`, `problems` and `artifacts`.
    ///
    /// Example: `btfcache stats --json | jq .results.hits`
    #[arg(long)]
    json: bool,

    /// Count from zero again
    ///
    /// Prints the counts and forgets them. What is stored stays.
    ///
    /// Example: `btfcache stats --zero`
    #[arg(long)]
    zero: bool,

    #[command(flatten)]
    place: PlaceArguments,
}

impl StatsArguments {
    pub(super) fn into_command(self) -> Command {
        let Self { json, zero, place } = self;
        command(place.into_flags(), Subject::Stats { json, zero })
    }
}

/// Remove what was not used for the longest time
///
/// Until the cache is within its limits. That happens by itself, too, when something is stored.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  btfcache gc\n  btfcache gc --max-size=1GB --max-age=30d")]
pub(super) struct GcArguments {
    /// Bytes that may stay [default: the setting `max_size`]
    ///
    /// With a unit: kB, MB, GB, TB, KiB, MiB, GiB, TiB.
    ///
    /// Example: `--max-size=500MiB`
    #[arg(long, value_name = "SIZE")]
    max_size: Option<OsString>,

    /// How long unused entries stay [default: the setting `max_age`]
    ///
    /// With a unit: s, m, h, d, w.
    ///
    /// Example: `--max-age=30d`
    #[arg(long, value_name = "AGE")]
    max_age: Option<OsString>,

    #[command(flatten)]
    place: PlaceArguments,
}

impl GcArguments {
    pub(super) fn into_command(self) -> Result<Command, Refusal> {
        let mut flags = self.place.into_flags();
        let size = self.max_size;
        checked(&mut flags, Name::MaxSize, "--max-size", size, |value| parse_size(value).err())?;
        let age = self.max_age;
        checked(&mut flags, Name::MaxAge, "--max-age", age, |value| parse_age(value).err())?;
        Ok(command(flags, Subject::Collect))
    }
}

/// Remove everything that is stored
///
/// Statistics stay; `btfcache stats --zero` forgets them.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  btfcache clear")]
pub(super) struct ClearArguments {
    #[command(flatten)]
    place: PlaceArguments,
}

impl ClearArguments {
    pub(super) fn into_command(self) -> Command {
        command(self.place.into_flags(), Subject::Clear)
    }
}

/// Write what is stored to a file, for another cache
///
/// The file is a tar archive, compressed with zstd. It holds finished results; what is known of
/// files by their times stays, since it means nothing on another machine. The same results give the
/// same file.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  btfcache export cache.tar.zst\n  btfcache import cache.tar.zst; make; btfcache export --since-last-run cache.tar.zst"
)]
pub(super) struct ExportArguments {
    /// File to write
    ///
    /// One that exists is replaced, once the new one is complete.
    #[arg(value_name = "OUT.tar.zst")]
    archive: PathBuf,

    /// Only what was used since the last export or import
    ///
    /// Made or found by a run since then, that is; an import does not count as use. So the archive
    /// of a build machine keeps only what its last build needed. Use is noted once a minute: results
    /// used in the minute before that export may be in it, too. All results, if there was none.
    ///
    /// Example: `btfcache export --since-last-run cache.tar.zst`
    #[arg(long)]
    since_last_run: bool,

    #[command(flatten)]
    place: PlaceArguments,
}

impl ExportArguments {
    pub(super) fn into_command(self) -> Command {
        let Self { archive, since_last_run, place } = self;
        command(place.into_flags(), Subject::Export { archive, since_last_run })
    }
}

/// Store what another cache exported
///
/// Each result is checked; one that is damaged is skipped, one that is stored already stays. The
/// checks find damage, not forgery: who can write the archive decides what your builds get.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  btfcache import cache.tar.zst")]
pub(super) struct ImportArguments {
    /// Archive that `btfcache export` wrote
    ///
    /// If it cannot be read to its end, the exit status is 2, and what came before is stored.
    #[arg(value_name = "FILE")]
    archive: PathBuf,

    #[command(flatten)]
    place: PlaceArguments,
}

impl ImportArguments {
    pub(super) fn into_command(self) -> Command {
        command(self.place.into_flags(), Subject::Import(self.archive))
    }
}

/// Show what a key is made of, or what is stored under it
///
/// Of an ELF file each section that can change a result is listed with the hash of its bytes. Of a
/// key, as in the names of files in the cache, the stored result is described.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  btfcache inspect vmlinux\n  diff <(btfcache inspect old/ext4.ko) <(btfcache inspect new/ext4.ko)"
)]
pub(super) struct InspectArguments {
    /// ELF file, or key of 64 hexadecimal digits
    ///
    /// A file of the cache has the key of its path, without the slashes.
    #[arg(value_name = "FILE|KEY")]
    subject: PathBuf,

    #[command(flatten)]
    place: PlaceArguments,
}

impl InspectArguments {
    pub(super) fn into_command(self) -> Command {
        command(self.place.into_flags(), Subject::Inspect(self.subject))
    }
}

fn command(flags: Flags, subject: Subject) -> Command {
    Command::Cache(CacheRequest { flags, subject })
}
