//! The base of split BTF: takes the path of a kernel image or of BTF, gives its key and, when a
//! result must be made, its prepared form.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Error, Result, anyhow, ensure};
use btfcache_schema::Key;

use crate::base::{Prepared, prepare};
use crate::btf::load::{self, Images, LoadError};
use crate::store::{Session, base_key};

/// A base that is read when it is first needed, by whichever thread needs it.
#[derive(Debug)]
pub(super) struct Base<'a> {
    path: &'a Path,
    key: Option<Key>,
    prepared: OnceLock<Result<Arc<Prepared>, Error>>,
}

impl<'a> Base<'a> {
    /// The base at `path`. It is read and prepared now, unless the cache knows the file.
    pub(super) fn open(path: &'a Path, session: &Session<'_>) -> Result<Self> {
        let mut images = None;
        let key = session.base_key(path, || {
            let read = images.insert(load::images(path)?);
            Ok::<_, LoadError>(key_of(read))
        })?;
        let base = Self { path, key, prepared: OnceLock::new() };
        if images.is_some() || key.is_none() {
            let images = images.map_or_else(|| load::images(path), Ok)?;
            _ = base.prepared.set(Ok(prepare_images(path, &images)?));
        }
        Ok(base)
    }

    /// Its key, if there is a cache.
    pub(super) const fn key(&self) -> Option<Key> {
        self.key
    }

    /// Its prepared form.
    pub(super) fn prepared(&self) -> Result<&Arc<Prepared>> {
        let prepared = self.prepared.get_or_init(|| self.read());
        prepared.as_ref().map_err(|error| anyhow!("{error:#}"))
    }

    fn read(&self) -> Result<Arc<Prepared>> {
        let images = load::images(self.path)?;
        let is_same = self.key.is_none_or(|key| key == key_of(&images));
        ensure!(is_same, "`{}` has changed since the run began", self.path.display());
        prepare_images(self.path, &images)
    }
}

fn prepare_images(path: &Path, images: &Images) -> Result<Arc<Prepared>> {
    let base = load::base_of(path, images)?;
    let prepared = prepare(&base, [0; 32]);
    let prepared = prepared.with_context(|| format!("failed to build upon `{}`", path.display()))?;
    Ok(Arc::new(prepared))
}

fn key_of(images: &Images) -> Key {
    let distilled = images.distilled_base.iter().map(Vec::as_slice);
    let images: Vec<&[u8]> = std::iter::once(&images.btf[..]).chain(distilled).collect();
    base_key(&images)
}
