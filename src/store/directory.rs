//! The folder of the cache: made if need be, and only used if nobody else can write to it.

use std::fs::{DirBuilder, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use btfcache_schema::SCHEMA_VERSION;

use super::{Problem, Reason};

/// Tells backup programs that nothing here is worth keeping (<https://bford.info/cachedir/>).
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
                   # This folder is the cache of btfcache. It can be deleted at any time.\n";

/// The folder of this schema.
#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// Opens the cache in `parent`, and makes it unless `read_only`; `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be made, or when others could put something into it.
    pub fn open(parent: &Path, read_only: bool) -> Result<Option<Self>, Problem> {
        let root = parent.join(format!("v{SCHEMA_VERSION}"));
        let metadata = match root.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Problem::io("open", &root, &error));
            }
            Err(_) if read_only => return Ok(None),
            Err(_) => create(parent, &root)?,
        };
        check(&root, &metadata)?;
        let parent_metadata = parent.metadata();
        let parent_metadata =
            parent_metadata.map_err(|error| Problem::io("open", parent, &error))?;
        check_owner(parent, &parent_metadata)?;
        check_parent(parent, &parent_metadata)?;
        Ok(Some(Self { root }))
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A folder or file in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The folder of files in the making; it is made if need be.
    pub(super) fn temporary(&self) -> Result<PathBuf, Problem> {
        let folder = self.join("tmp");
        make(&folder).map_err(|error| Problem::io("create", &folder, &error))?;
        Ok(folder)
    }

    /// Makes `bytes` the content of the file at `path`, at once.
    pub(super) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), Problem> {
        let problem = |error: &io::Error| Problem::io("write", path, error);
        let folder = self.temporary()?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| problem(&error))?;
        file.write_all(bytes).map_err(|error| problem(&error))?;
        let Err(failed) = file.persist(path) else {
            return Ok(());
        };
        if failed.error.kind() != io::ErrorKind::NotFound {
            return Err(problem(&failed.error));
        }
        // The first entry of its folder.
        let folder = path.parent().unwrap_or(&self.root);
        make(folder).map_err(|error| Problem::io("create", folder, &error))?;
        failed.file.persist(path).map(|_| ()).map_err(|failed| problem(&failed.error))
    }
}

/// Makes a folder and those above it, for us alone.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn create(parent: &Path, root: &Path) -> Result<Metadata, Problem> {
    let made = make(root).and_then(|()| root.metadata());
    let metadata = made.map_err(|error| Problem::io("create", root, &error))?;
    // Nothing depends on the tag.
    _ = fs_err::write(parent.join("CACHEDIR.TAG"), TAG);
    Ok(metadata)
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), Problem> {
    let name = path.display();
    if !metadata.is_dir() {
        return Err(Problem::new(Reason::Io, format!("`{name}` is not a folder")));
    }
    check_owner(path, metadata)?;
    if metadata.mode() & 0o022 != 0 {
        let message = format!("others may write to `{name}`: run `chmod 700 {name}`");
        return Err(Problem::new(Reason::Owner, message));
    }
    Ok(())
}

/// Who may write to the folder above could put another one in the place of ours; not if it is sticky.
fn check_parent(path: &Path, metadata: &Metadata) -> Result<(), Problem> {
    let (is_open, is_sticky) = (metadata.mode() & 0o002 != 0, metadata.mode() & 0o1000 != 0);
    if is_open && !is_sticky {
        let name = path.display();
        let message = format!("everybody may write to `{name}`: run `chmod o-w {name}`");
        return Err(Problem::new(Reason::Owner, message));
    }
    Ok(())
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), Problem> {
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() == user {
        return Ok(());
    }
    let name = path.display();
    let message = format!("`{name}` belongs to user {}, not to you ({user})", metadata.uid());
    Err(Problem::new(Reason::Owner, message))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_folder_is_ours_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("deep/cache");
        assert!(Directory::open(&path, true).unwrap().is_none());
        assert!(!path.exists());
        let directory = Directory::open(&path, false).unwrap().unwrap();
        assert_eq!(directory.root().metadata().unwrap().mode() & 0o777, 0o700);
        assert!(Directory::open(&path, true).unwrap().is_some());
        fs::set_permissions(directory.root(), Permissions::from_mode(0o770)).unwrap();
        let problem = Directory::open(&path, false).unwrap_err();
        assert_eq!(problem.reason, Reason::Owner);
        assert!(problem.message.contains("chmod 700"), "{}", problem.message);
        fs::set_permissions(directory.root(), Permissions::from_mode(0o700)).unwrap();
        for (mode, is_usable) in [(0o777, false), (0o1777, true), (0o775, true)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(Directory::open(&path, false).is_ok(), is_usable, "{mode:o}");
        }
    }

    #[test]
    fn the_folder_of_somebody_else_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        Directory::open(parent.path(), false).unwrap().unwrap();
        let root = parent.path().join("v1");
        if std::os::unix::fs::chown(&root, Some(1), None).is_err() {
            return;
        }
        assert_eq!(Directory::open(parent.path(), false).unwrap_err().reason, Reason::Owner);
    }

    #[test]
    fn a_file_in_its_place_is_a_problem() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("v1"), b"").unwrap();
        assert!(Directory::open(parent.path(), false).is_err());
        assert!(Directory::open(&parent.path().join("v1"), false).is_err());
    }
}
