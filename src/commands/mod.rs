//! Carries out what the command line asked for: takes a [`Command`], gives an [`Outcome`]. Knows
//! nothing of how the command line is spelled.

mod base;
mod batch;
mod cache;
mod cached;
mod destination;
pub mod encode;
mod install;
mod pool;
mod progress;
pub mod relocate;
mod stats;
mod transfer;
pub mod verify;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result};

use crate::output::{Outcome, Output};
use crate::settings::{Flags, Settings};

pub use cache::{CacheRequest, Subject};
pub use encode::{EncodeRequest, Target};
pub use install::InstallRequest;
pub use pool::Jobs;
pub use relocate::RelocateRequest;
pub use verify::VerifyRequest;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print a text on stdout: help, versions, lists.
    Say(String),
    /// Encode BTF.
    Encode(Box<EncodeRequest>),
    /// Judge BTF.
    Verify(VerifyRequest),
    /// Tell whether a distilled module fits another kernel.
    Relocate(RelocateRequest),
    /// Make a link named `pahole`.
    Install(InstallRequest),
    /// Do something with the cache itself.
    Cache(CacheRequest),
}

impl Command {
    /// The settings that were typed.
    #[must_use]
    pub fn flags(&self) -> &Flags {
        match self {
            Self::Say(_) | Self::Verify(_) | Self::Relocate(_) | Self::Install(_) => Flags::none(),
            Self::Encode(request) => &request.flags,
            Self::Cache(request) => &request.flags,
        }
    }
}

/// Carries out `command`. A panic on any thread ends here, as a message.
#[must_use]
pub fn run(command: &Command, settings: &Settings, output: Output) -> Outcome {
    match catch_unwind(AssertUnwindSafe(|| carry_out(command, settings, output))) {
        Ok(Ok(())) => Outcome::Done,
        Ok(Err(error)) => {
            output.error(&error);
            Outcome::Failed
        }
        Err(panic) => {
            output.message(&format!("internal error: {}", panic_text(&*panic)));
            output.plain("This is a bug in btfcache. Please report it with the lines above.");
            Outcome::Bug
        }
    }
}

fn carry_out(command: &Command, settings: &Settings, output: Output) -> Result<()> {
    match command {
        Command::Say(text) => output.data(text.as_bytes()).context("failed to write to stdout"),
        Command::Encode(request) => encode::run(request, settings, output),
        Command::Verify(request) => verify::run(request, output),
        Command::Relocate(request) => relocate::run(request, output),
        Command::Install(request) => install::run(request, output),
        Command::Cache(request) => cache::run(request, settings, output),
    }
}

/// What a panic said.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "panic without a message"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_a_worker_can_be_told() {
        let pool = Jobs::from_count(2).pool(1).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| rayon::join(|| (), || panic!("unit {}", 7)));
        }));
        assert_eq!(panic_text(&*caught.unwrap_err()), "unit 7");
        let caught = catch_unwind(|| panic!("fixed"));
        assert_eq!(panic_text(&*caught.unwrap_err()), "fixed");
    }
}
