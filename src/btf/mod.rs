//! The BTF format: kinds, records, images (spec/btf-and-dedup section 1).

pub mod fit;
pub mod kind;
pub mod load;
pub mod read;
pub mod spelling;
pub mod title;
pub mod verify;
