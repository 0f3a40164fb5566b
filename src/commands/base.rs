//! The base of split BTF: takes the path of a kernel image or of BTF, gives its key and, when a
//! result must be made, its prepared form.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Error, Result, anyhow, ensure};
use btfcache_schema::Key;

use crate::base::{Prepared, prepare};
use crate::btf::load::{self, Images, LoadError};
use crate::store::{Session, base_key};

/// A base that is prepared when it is first needed, by whichever thread needs it.
#[derive(Debug)]
pub(super) struct Base<'a> {
    path: &'a Path,
    session: &'a Session<'a>,
    /// Its key, if there is a cache.
    key: Option<Key>,
    /// Its images, if they had to be read to know the key.
    images: Option<Images>,
    prepared: OnceLock<Result<Arc<Prepared>, Error>>,
}

impl<'a> Base<'a> {
    /// The base at `path`. It is read now, unless the cache knows the file.
    pub(super) fn open(path: &'a Path, session: &'a Session<'a>) -> Result<Self> {
        let mut images = None;
        let key = session.base_key(path, || {
            let read = images.insert(load::images(path)?);
            Ok::<_, LoadError>(key_of(read))
        })?;
        if key.is_none() {
            images = Some(load::images(path)?);
        }
        Ok(Self { path, session, key, images, prepared: OnceLock::new() })
    }

    /// Its key, if there is a cache.
    pub(super) const fn key(&self) -> Option<Key> {
        self.key
    }

    /// Its prepared form.
    pub(super) fn prepared(&self) -> Result<&Arc<Prepared>> {
        let prepared = self.prepared.get_or_init(|| self.prepare().map(Arc::new));
        prepared.as_ref().map_err(|error| anyhow!("{error:#}"))
    }

    fn prepare(&self) -> Result<Prepared> {
        let Some(key) = self.key else {
            let images = self.images.as_ref().expect("they are read if there is no key");
            return self.prepare_images(images, [0; 32]);
        };
        if let Some(prepared) = self.session.prepared_base(&key) {
            return Ok(prepared);
        }
        let prepared = match &self.images {
            Some(images) => self.prepare_images(images, key.0)?,
            None => {
                let images = load::images(self.path)?;
                let is_same = key == key_of(&images);
                ensure!(is_same, "`{}` has changed since the run began", self.path.display());
                self.prepare_images(&images, key.0)?
            }
        };
        self.session.keep_prepared_base(&key, &prepared);
        Ok(prepared)
    }

    fn prepare_images(&self, images: &Images, digest: [u8; 32]) -> Result<Prepared> {
        let base = load::base_of(self.path, images)?;
        let prepared = prepare(base, digest);
        prepared.with_context(|| format!("failed to build upon `{}`", self.path.display()))
    }
}

fn key_of(images: &Images) -> Key {
    let distilled = images.distilled_base.iter().map(Vec::as_slice);
    let images: Vec<&[u8]> = std::iter::once(&images.btf[..]).chain(distilled).collect();
    base_key(&images)
}
