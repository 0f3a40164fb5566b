//! Writes files so that none is ever seen half written. Takes paths and bytes; leaves no temporary
//! file behind, even when killed, where the file system has files without a name.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tempfile::NamedTempFile;

/// Mode of a new output file, before the umask (spec/encoding 8.1).
const OUTPUT_MODE: u32 = 0o640;

/// As many symlinks as Linux follows.
const LINK_LIMIT: usize = 40;

/// Makes the bytes the content of the file at the path, for all of `files` or, as far as the file
/// system lets us, for none: they are complete before the first one is seen.
///
/// A regular file is replaced by renaming a finished one over it; it keeps its mode, a new one gets
/// 0640 less the umask. Symlinks are followed. A device, a fifo or an open file of a process
/// (`/dev/null`, `/dev/stdout`) is written to as it is.
///
/// # Errors
/// Names the path. A regular file is then as it was.
pub fn write_files(files: &[(&Path, &[u8])]) -> Result<()> {
    let failed = |path: &Path| format!("failed to write `{}`", path.display());
    let mut complete = Vec::new();
    for &(path, bytes) in files {
        complete.push((path, write(path, bytes).with_context(|| failed(path))?));
    }
    for (path, (target, new)) in complete.into_iter().filter_map(|(path, new)| Some((path, new?))) {
        new.commit(&target).with_context(|| failed(path))?;
    }
    Ok(())
}

/// Makes what `write` writes the content of the regular file at the path, at once, as [`write_files`]
/// does with bytes that are all there from the start.
///
/// # Errors
/// Names the path, which is then as it was; those of `write`.
pub(crate) fn write_in_pieces<T>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T>,
) -> Result<T> {
    let failed = || format!("failed to write `{}`", path.display());
    let target = follow_links(path).with_context(failed)?;
    let old = path.metadata().ok();
    let is_file = old.as_ref().is_none_or(Metadata::is_file) && !is_open_file(&target);
    ensure!(is_file, "`{}` is not a regular file: name another one", path.display());
    let mut new = Replacement::beside(&target, OUTPUT_MODE).with_context(failed)?;
    let value = write(new.file()).with_context(failed)?;
    if let Some(old) = &old {
        new.keep_attributes(old).with_context(failed)?;
    }
    new.commit(&target).with_context(failed)?;
    Ok(value)
}

/// Writes into what is there, or a new file, which then has to replace the one at the path given.
fn write(path: &Path, bytes: &[u8]) -> io::Result<Option<(PathBuf, Replacement)>> {
    let target = follow_links(path)?;
    let old = match path.metadata() {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match &old {
        Some(old) if !old.is_file() || is_open_file(&target) => {
            write_through(path, old, bytes)?;
            Ok(None)
        }
        _ => {
            let new = replacement(&target, old.as_ref(), bytes)?;
            Ok(Some((target, new)))
        }
    }
}

/// Writes into what is there, after what others wrote to it.
fn write_through(path: &Path, old: &Metadata, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).append(old.is_file()).open(path)?;
    file.write_all(bytes)
}

fn replacement(target: &Path, old: Option<&Metadata>, bytes: &[u8]) -> io::Result<Replacement> {
    let mut new = Replacement::beside(target, OUTPUT_MODE)?;
    new.file().write_all(bytes)?;
    if let Some(old) = old {
        new.keep_attributes(old)?;
    }
    Ok(new)
}

/// The path at the end of the symlinks that start at `path`; it need not exist. Stops at a link
/// that stands for an open file of a process: its text is not a path.
pub(crate) fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINK_LIMIT {
        let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        if !is_link || is_open_file(&path) {
            return Ok(path);
        }
        path = folder(&path).join(path.read_link()?);
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

/// Whether `path` is one of the links that `/dev/stdout` leads to.
fn is_open_file(path: &Path) -> bool {
    folder(path).canonicalize().is_ok_and(|folder| folder.starts_with("/proc"))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Start of the names of temporary files.
const PREFIX: &str = ".btfcache-";

/// A file in the making, in the folder of the one that it will replace. Removed when dropped.
///
/// It has no name until it is complete, so that the system removes it when we are killed. Then it
/// gets that of its target, or, since a file cannot be linked over another, for a moment one of its
/// own. Not all file systems can do that (`O_TMPFILE`); elsewhere it has a name from the start.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// Without a name.
    Unnamed(File),
    /// With a name of its own.
    Named(NamedTempFile),
}

impl Replacement {
    /// Starts an empty file with `mode`, less the umask, beside `target`.
    pub(crate) fn beside(target: &Path, mode: u32) -> io::Result<Self> {
        match unnamed_file(folder(target), mode) {
            Some(file) => Ok(Self::Unnamed(file)),
            None => Self::named(target, mode),
        }
    }

    fn named(target: &Path, mode: u32) -> io::Result<Self> {
        tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder(target))
            .map(Self::Named)
    }

    /// The file, to be written.
    pub(crate) fn file(&mut self) -> &mut File {
        match self {
            Self::Unnamed(file) => file,
            Self::Named(file) => file.as_file_mut(),
        }
    }

    /// Takes over mode and owner of the file that will be replaced. An owner that we may not give
    /// the file to is no reason to fail; the file then must not run with our rights, so it loses
    /// its set-user-id and set-group-id bits, as with `cp -p`.
    pub(crate) fn keep_attributes(&mut self, old: &Metadata) -> io::Result<()> {
        let file = &*self.file();
        let new = file.metadata()?;
        let mut mode = old.mode() & 0o7777;
        if (new.uid(), new.gid()) != (old.uid(), old.gid())
            && fchown(file, Some(old.uid()), Some(old.gid())).is_err()
        {
            mode &= 0o777;
            _ = fchown(file, None, Some(old.gid()));
        }
        // After the owner: a change of owner clears bits of the mode.
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Gives the file the name `target`; whatever has it is replaced at once.
    pub(crate) fn commit(self, target: &Path) -> io::Result<()> {
        match self {
            Self::Unnamed(file) => {
                let builder = tempfile::Builder::new().prefix(PREFIX).to_owned();
                match link(&file, target) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        let linked = builder.make_in(folder(target), |name| link(&file, name))?;
                        linked.persist(target).map_err(|failed| failed.error)
                    }
                    result => result,
                }
            }
            Self::Named(file) => file.persist(target).map(|_| ()).map_err(|failed| failed.error),
        }
    }
}

/// An open file of `folder` that has no name, but can be given one; `None` where that is impossible.
fn unnamed_file(folder: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)).ok()?);
    Path::new(&open_path(&file)).exists().then_some(file)
}

/// Gives an unnamed file a name, which nothing must have yet.
fn link(file: &File, name: &Path) -> io::Result<()> {
    let (from, flags) = (open_path(file), AtFlags::SYMLINK_FOLLOW);
    Ok(rustix::fs::linkat(CWD, from, CWD, name, flags)?)
}

/// The path by which this process can name an open file.
fn open_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{OpenOptionsExt, symlink};

    use super::*;

    fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
        write_files(&[(path, bytes)])
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_new_file_has_the_mode_of_pahole() {
        let folder = tempfile::tempdir().unwrap();
        let reference = folder.path().join("reference");
        OpenOptions::new().create(true).append(true).mode(0o640).open(&reference).unwrap();
        let path = folder.path().join("vmlinux.btf");
        write_file(&path, b"types").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"types");
        assert_eq!(mode(&path), mode(&reference));
        assert_eq!(names(folder.path()), ["reference", "vmlinux.btf"]);
    }

    /// Both ways of making a file give the same.
    #[test]
    fn a_file_with_or_without_a_name_replaces_another_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("vmlinux.btf");
        for content in [b"first", b"other"] {
            for is_named in [false, true] {
                for is_there in [false, true] {
                    _ = fs::remove_file(&target);
                    if is_there {
                        fs::write(&target, b"old").unwrap();
                    }
                    let start = if is_named { Replacement::named } else { Replacement::beside };
                    let mut new = start(&target, 0o600).unwrap();
                    new.file().write_all(content).unwrap();
                    new.commit(&target).unwrap();
                    assert_eq!(fs::read(&target).unwrap(), content);
                    assert_eq!(mode(&target), 0o600);
                    assert_eq!(names(folder.path()), ["vmlinux.btf"]);
                }
            }
        }
        let mut dropped = Replacement::beside(&target, 0o600).unwrap();
        dropped.file().write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(names(folder.path()), ["vmlinux.btf"]);
    }

    #[test]
    fn an_old_file_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinux.btf");
        fs::write(&path, b"longer than the new content").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        write_file(&path, b"types").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"types");
        assert_eq!(mode(&path), 0o604);
    }

    #[test]
    fn symlinks_are_followed_even_to_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        let link = folder.path().join("link");
        symlink("deep/second", &link).unwrap();
        symlink("target", folder.path().join("deep/second")).unwrap();
        for bytes in [b"one", b"two"] {
            write_file(&link, bytes).unwrap();
            assert_eq!(fs::read(folder.path().join("deep/target")).unwrap(), bytes);
            assert!(link.is_symlink());
        }
        assert_eq!(names(&folder.path().join("deep")), ["second", "target"]);
        symlink("loop", folder.path().join("loop")).unwrap();
        assert!(write_file(&folder.path().join("loop"), b"x").is_err());
    }

    #[test]
    fn devices_and_open_files_are_written_to() {
        write_file(Path::new("/dev/null"), b"types").unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
        let error = write_file(Path::new("/dev/full"), b"types").unwrap_err();
        assert!(format!("{error:#}").starts_with("failed to write `/dev/full`"), "{error:#}");

        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all(b"before ").unwrap();
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        write_file(Path::new(&open), b"types").unwrap();
        assert_eq!(fs::read(file.path()).unwrap(), b"before types");
        let (mut reader, writer) = io::pipe().unwrap();
        write_file(Path::new(&format!("/dev/fd/{}", writer.as_raw_fd())), b"types").unwrap();
        drop(writer);
        let mut read = String::new();
        io::Read::read_to_string(&mut reader, &mut read).unwrap();
        assert_eq!(read, "types");
    }

    #[test]
    fn errors_name_the_path_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["missing/vmlinux.btf", "folder"] {
            fs::create_dir_all(folder.path().join("folder")).unwrap();
            let path = folder.path().join(name);
            let error = write_file(&path, b"types").unwrap_err();
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
        assert_eq!(names(folder.path()), ["folder"]);
    }
}
