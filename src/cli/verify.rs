//! `btfcache verify` and `btfcache relocate`: their flags, and the requests they make.

use std::path::PathBuf;

use clap::Args;

use crate::commands::{Command, RelocateRequest, VerifyRequest};

const VERIFY_EXAMPLES: &str = "\
Examples:
  btfcache verify vmlinux
      whether the kernel would take the BTF of vmlinux
  btfcache verify ext4.ko --base vmlinux
      the same of a module, and whether it was made for this vmlinux
  btfcache verify ext4.btf --base /sys/kernel/btf/vmlinux
      detached BTF, and the running kernel";

/// Check BTF against the rules of the kernel, and against its base
///
/// FILE is an ELF file with a section .BTF, or the BTF itself. What the kernel would refuse is
/// printed on stdout, one line each, in the kernel's words. A module is split on the BTF of a
/// kernel, which `--base` names: whether it is that one is told by the digest in the module's
/// section .note.btfcache, without it by whether ids and names fit. A module with a distilled base
/// of its own needs no other; with `--base` it is checked whether it fits there, as `btfcache
/// relocate --check` does.
///
/// Exit status: 0 all is well, 2 it is not.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_EXAMPLES)]
pub(super) struct VerifyArguments {
    /// File whose BTF is checked
    ///
    /// An ELF file with a section .BTF, or the BTF itself; for a detached distilled pair OUT and
    /// OUT.base, OUT.
    #[arg(value_name = "FILE")]
    input: PathBuf,

    /// Kernel that FILE is a module of
    ///
    /// An ELF file with a section .BTF, or the BTF itself.
    ///
    /// Example: `--base=/sys/kernel/btf/vmlinux`
    #[arg(long, value_name = "BASE", visible_alias = "btf_base")]
    base: Option<PathBuf>,

    /// No notices
    ///
    /// What is wrong is still told.
    ///
    /// Example: `btfcache verify -q vmlinux && echo good`
    #[arg(short, long)]
    quiet: bool,
}

impl VerifyArguments {
    /// The request these flags make.
    pub(super) fn into_command(self) -> Command {
        let Self { input, base, quiet } = self;
        Command::Verify(VerifyRequest { input, base, quiet })
    }
}

const RELOCATE_EXAMPLES: &str = "\
Examples:
  btfcache relocate --check out-of-tree.ko
      whether the BTF of the module would be taken by the running kernel
  btfcache relocate --check out-of-tree.ko --base vmlinux-6.12.btf
      or by another one";

/// Check whether a module with a distilled base fits a kernel
///
/// A kernel puts the BTF of such a module on its own, by the names and sizes of the types in the
/// module's section .BTF.base, and refuses it if one of them is missing, different or there twice.
/// This tells beforehand: what does not fit is printed on stdout, one line each.
///
/// Exit status: 0 it fits, 2 it does not.
#[derive(Debug, Args)]
#[command(after_long_help = RELOCATE_EXAMPLES)]
pub(super) struct RelocateArguments {
    /// Only check, change nothing
    ///
    /// The kernel does the rest when it loads the module, so this must be given.
    #[arg(long, required = true)]
    check: bool,

    /// Module to check
    ///
    /// An ELF file with sections .BTF and .BTF.base, or OUT of a detached pair OUT and OUT.base.
    #[arg(value_name = "MODULE")]
    input: PathBuf,

    /// Kernel that it should fit
    ///
    /// An ELF file with a section .BTF, or the BTF itself.
    ///
    /// Example: `--base=vmlinux`
    #[arg(
        long,
        value_name = "BASE",
        visible_alias = "btf_base",
        default_value = "/sys/kernel/btf/vmlinux"
    )]
    base: PathBuf,

    /// No notices
    ///
    /// What does not fit is still told.
    ///
    /// Example: `btfcache relocate --check -q out-of-tree.ko && insmod out-of-tree.ko`
    #[arg(short, long)]
    quiet: bool,
}

impl RelocateArguments {
    /// The request these flags make.
    pub(super) fn into_command(self) -> Command {
        let Self { check: _, input, base, quiet } = self;
        Command::Relocate(RelocateRequest { input, base, quiet })
    }
}
