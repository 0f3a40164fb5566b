//! The reader of BTF images and the kernel's rules, on images built word by word and on real ones.

mod commands;
mod distill;
mod fit;
pub(super) mod image;
mod load;
mod read;
mod verify;
