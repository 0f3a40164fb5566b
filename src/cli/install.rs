//! `btfcache install-pahole`: its flags, and the request they make.

use std::path::PathBuf;

use clap::Args;

use super::Refusal;
use crate::commands::{Command, InstallRequest};
use crate::config::{Environment, HOME};

const EXAMPLES: &str = "\
Examples:
  btfcache install-pahole
      a link ~/.local/bin/pahole
  make PAHOLE=\"$(btfcache install-pahole -q /tmp/tools)\"
      a kernel build with a link made for it";

/// Make a link named `pahole`, through which kernel builds use btfcache
///
/// Called by that name, btfcache takes the command line of pahole 1.32 as far as it is about
/// encoding BTF. The path of the link is printed on stdout: give it to `make PAHOLE=...`, or have
/// its folder before that of the real pahole in PATH.
///
/// Exit status: 0 the link is there, 2 it is not.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct InstallArguments {
    /// Folder for the link [default: ~/.local/bin]
    ///
    /// It is made if it is not there. A link to btfcache that is there already is replaced.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Replace whatever is named `pahole` there
    ///
    /// Without this the real pahole, for example, stays and it is an error.
    #[arg(long)]
    force: bool,

    /// No notices
    ///
    /// The path is still printed.
    #[arg(short, long)]
    quiet: bool,
}

impl InstallArguments {
    /// The request these flags make.
    pub(super) fn into_command(self, environment: &Environment) -> Result<Command, Refusal> {
        let Self { folder, force, quiet } = self;
        let home = || Some(PathBuf::from(environment.get(HOME)?).join(".local/bin"));
        let folder = folder
            .or_else(home)
            .ok_or_else(|| Refusal::usage("no DIR given, and HOME is not set"))?;
        Ok(Command::Install(InstallRequest { folder, force, quiet }))
    }
}
