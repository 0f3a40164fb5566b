//! Compares btfcache's merge with libbpf's deduplication on random programs, and its verification of
//! BTF with the kernel's.
//!
//! `program` makes up a C-like program of several units, every type as often as DWARF would have
//! it. `ours` puts it through `btfcache::merge` and `btfcache::emit`, `libbpf` through
//! `btf__dedup`. `partition` tells which types of both results are equal, `compare` judges what
//! is not, and `rules` checks what any deduplicator must obey (spec/btf-and-dedup section 2.6).
//! `examine` does all of that to one program, or cuts it into a kernel and a module upon that, where
//! `surplus` judges what libbpf has more than once.
//!
//! Besides, `mutant` makes up BTF images that `btfcache::btf::verify` and the running kernel must
//! judge alike; `kernel` asks the latter. `split` cuts images into a base and split BTF, `modules`
//! has that of real modules: what `btfcache::distill` makes of it must be what libbpf makes of it.

pub mod compare;
pub mod examine;
pub mod image;
pub mod kernel;
pub mod libbpf;
pub mod modules;
pub mod mutant;
pub mod ours;
pub mod partition;
pub mod program;
pub mod random;
pub mod rules;
pub mod split;
pub mod surplus;
pub mod types;
