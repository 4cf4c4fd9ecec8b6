//! Permission bits, owners and names of files on Unix.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use tempfile::NamedTempFile;

use crate::key_log::OpenKeyLogError;
use crate::secret::ForeignFile;

/// The permission bits of an open file if they give its group or others one of `bits`.
pub(crate) fn exposed(open: &File, _name: &Path, bits: u32) -> io::Result<Option<u32>> {
    let mode = open.metadata()?.mode() & 0o7777;
    Ok((mode & bits != 0).then_some(mode))
}

/// Whether another user than root and us owns an open file, or can put another file in its place. The user that has called `sudo` counts
/// as us.
pub(crate) fn foreign(open: &File, name: &Path) -> io::Result<Option<ForeignFile>> {
    let owner = open.metadata()?.uid();
    if !is_ours(owner) {
        return Ok(Some(ForeignFile::File { file: name.to_owned(), owner, us: geteuid().as_raw() }));
    }
    let directory = directory_of(name)?;
    let found = directory.metadata()?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    // In a sticky directory a file is replaced by its owner, or by that of the directory, only.
    let is_shared = mode & 0o022 != 0 && mode & 0o1000 == 0;
    Ok((!is_ours(owner) || is_shared).then(|| ForeignFile::Directory {
        file: name.to_owned(),
        directory,
        owner,
        mode,
    }))
}

/// The directory of a file, or that of what it leads to where it is a symbolic link.
fn directory_of(file: &Path) -> io::Result<PathBuf> {
    let target = file.canonicalize()?;
    Ok(target.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned))
}

fn is_ours(owner: u32) -> bool {
    let us = geteuid();
    let caller = || std::env::var("SUDO_UID").ok()?.parse().ok();
    owner == 0 || owner == us.as_raw() || us.is_root() && caller() == Some(owner)
}

/// Returns numbers that distinguish a file from an earlier one of the same name: its own, and the time of the last change of its permissions.
pub(crate) fn number(found: &Metadata) -> io::Result<[i64; 3]> {
    Ok([found.ino().cast_signed(), found.ctime(), found.ctime_nsec()])
}

/// Opens a file for reading, without waiting for the writer of a pipe.
pub(crate) fn open_at_once(file: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(file)
}

/// Makes a directory for its owner only, and those above it.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// A file in `directory` under a name of its own, with these permission bits.
pub(crate) fn new_file(directory: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let permissions = Permissions::from_mode(mode);
    tempfile::Builder::new().prefix(".plait-").permissions(permissions).tempfile_in(directory)
}

/// Has the names in a directory on the disk.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Opens a file that only has a lock, or makes it.
pub(crate) fn open_lock(file: &Path) -> io::Result<File> {
    // Without waiting for the reader of a pipe.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits()).open(file)
}

/// Opens a key log to append to it, or makes it, for its owner only.
pub(crate) fn open_key_log(path: &Path) -> Result<File, OpenKeyLogError> {
    // Without waiting for the reader of a pipe.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits());
    let wrong = |source| OpenKeyLogError::Io { file: path.to_owned(), source };
    let file = options.open(path).map_err(wrong)?;
    let found = file.metadata().map_err(wrong)?;
    if !found.is_file() || found.uid() != geteuid().as_raw() || found.nlink() != 1 {
        return Err(OpenKeyLogError::Foreign { file: path.to_owned() });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(OpenKeyLogError::Exposed { file: path.to_owned(), mode });
    }
    Ok(file)
}
