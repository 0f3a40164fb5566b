//! The base of split BTF: takes the path of a kernel image or of BTF, gives its key and, when a
//! result must be made, its prepared form, or the whole of it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Error, Result, anyhow, ensure};
use btfcache_schema::Key;

use crate::base::{Asked, Prepared, prepare, prepare_for};
use crate::btf::load::{self, LoadError};
use crate::btf::read::Btf;
use crate::elf::{ElfFile, Input};
use crate::embed::note;
use crate::footing;
use crate::store::Session;

/// A base that is prepared when it is first needed, by whichever thread needs it.
#[derive(Debug)]
pub(super) struct Base<'a> {
    path: &'a Path,
    session: &'a Session<'a>,
    /// The digest of its image: its key, and what the note of a module says. Made when it is first
    /// needed.
    key: OnceLock<Key>,
    /// Its image, unless the cache knows the key.
    image: Option<Vec<u8>>,
    /// Whether one input is encoded upon it.
    is_for_one: bool,
    prepared: OnceLock<Result<Arc<Prepared>, Error>>,
    whole: OnceLock<Result<Btf<'static>, Error>>,
}

impl<'a> Base<'a> {
    /// The base at `path` of one input, if `is_for_one`, or of many. It is read now, unless the cache
    /// knows the file.
    pub(super) fn open(path: &'a Path, session: &'a Session<'a>, is_for_one: bool) -> Result<Self> {
        let (key, mut image) = (OnceLock::new(), None);
        if session.cache().is_some() {
            let read = || Ok::<_, LoadError>(key_of(image.insert(load::base_image(path)?)));
            _ = key.set(session.base_key(path, read)?);
        } else {
            image = Some(load::base_image(path)?);
        }
        let (prepared, whole) = (OnceLock::new(), OnceLock::new());
        Ok(Self { path, session, key, image, is_for_one, prepared, whole })
    }

    /// Its file.
    pub(super) const fn path(&self) -> &'a Path {
        self.path
    }

    /// Its key.
    pub(super) fn key(&self) -> Key {
        let image = || self.image.as_deref().expect("it was read if its key is not known");
        *self.key.get_or_init(|| key_of(image()))
    }

    /// Bytes of its image that have to be worked on.
    pub(super) fn size_to_prepare(&self) -> u64 {
        self.image.as_ref().map_or(0, |image| image.len() as u64)
    }

    /// The note about it, for modules of this byte order.
    pub(super) fn note(&self, big_endian: bool) -> Vec<u8> {
        note::to_bytes(&self.key().0.into(), big_endian)
    }

    /// Its prepared form.
    pub(super) fn prepared(&self) -> Result<&Arc<Prepared>> {
        let prepared = self.prepared.get_or_init(|| self.prepare().map(Arc::new));
        prepared.as_ref().map_err(again)
    }

    /// Its prepared form for `input`. If that is the only input of a run that keeps nothing, so much is
    /// prepared as it can ask for.
    pub(super) fn prepared_for(&self, input: &Input) -> Result<Arc<Prepared>> {
        let asked = match input {
            Input::File(elf) if self.is_for_one && self.session.cache().is_none() => asked_by(elf),
            _ => None,
        };
        let Some(asked) = asked else {
            return self.prepared().cloned();
        };
        let base = load::base_from(self.path, &self.image()?)?;
        Ok(Arc::new(prepare_for(base, asked).with_context(|| self.failed())?))
    }

    /// All of it.
    pub(super) fn whole(&self) -> Result<&Btf<'static>> {
        let parse = || Ok(load::base_from(self.path, &self.image()?)?);
        self.whole.get_or_init(parse).as_ref().map_err(again)
    }

    /// Why nothing can be built upon it, if that has been found out.
    pub(super) fn failure(&self) -> Option<Error> {
        let prepared = self.prepared.get().and_then(|prepared| prepared.as_ref().err());
        let whole = || self.whole.get().and_then(|whole| whole.as_ref().err());
        prepared.or_else(whole).map(again)
    }

    fn prepare(&self) -> Result<Prepared> {
        // Without a cache nobody asks for the key.
        let key = self.session.cache().map(|_| self.key());
        if let Some(prepared) = key.and_then(|key| self.session.prepared_base(&key)) {
            return Ok(prepared);
        }
        let base = load::base_from(self.path, &self.image()?)?;
        if let Some(key) = key {
            self.session.keep_outline(&key, || footing::outline(&base));
        }
        let prepared = prepare(base).with_context(|| self.failed())?;
        if let Some(key) = key {
            self.session.keep_prepared_base(&key, &prepared);
        }
        Ok(prepared)
    }

    fn failed(&self) -> String {
        format!("failed to build upon `{}`", self.path.display())
    }

    fn image(&self) -> Result<Cow<'_, [u8]>> {
        if let Some(image) = &self.image {
            return Ok(image.into());
        }
        let image = load::base_image(self.path)?;
        let path = self.path.display();
        ensure!(key_of(&image) == self.key(), "`{path}` has changed since the run began");
        Ok(image.into())
    }
}

/// What a module with little DWARF can ask of a base. It does not pay for a large one.
fn asked_by(elf: &ElfFile) -> Option<Asked> {
    const MOST: u64 = 1 << 20;
    let strings = |name| {
        let section = elf.section(name).filter(|section| section.has_bytes())?;
        let is_small = elf.unpacked_size(section) <= MOST;
        // If it cannot be read, whoever decodes it will say why.
        is_small.then(|| elf.bytes(section).ok()).flatten()
    };
    // File names are looked up like other strings that begin elsewhere.
    let lines = strings(".debug_line_str").unwrap_or_default();
    Some(Asked::of(&[&strings(".debug_str")?, &lines]))
}

fn key_of(image: &[u8]) -> Key {
    Key(note::base_digest(image).into())
}

/// An error that has to be told once more.
fn again(error: &Error) -> Error {
    anyhow!("{error:#}")
}
