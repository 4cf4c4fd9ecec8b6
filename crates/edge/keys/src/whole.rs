//! Files that are replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::NamedTempFile;

use crate::system::{make_directory, new_file, number, open_lock, sync_directory};

/// Writes `bytes` to `file` in place of its content, with these permission bits if the system has them. If `file` is a symbolic link, its
/// target is replaced. Its directory is created, for its owner only, if there is none.
///
/// # Errors
/// The file cannot be written; then it is as it was.
pub fn replace_file(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (file, directory) = place_of(file)?;
    written(&directory, bytes, mode)?.persist(&file)?;
    sync_directory(&directory)
}

/// As [`replace_file`], where there is no such file yet.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or the file cannot be written.
pub fn create_file(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (file, directory) = place_of(file)?;
    written(&directory, bytes, mode)?.persist_noclobber(&file)?;
    sync_directory(&directory)
}

/// Values that change with the content of a file: when it was written, its length, and its identity and permissions, as far as the system has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    written: SystemTime,
    len: u64,
    number: [i64; 3],
}

impl Stamp {
    /// That of `file` now.
    ///
    /// # Errors
    /// There is no such file, or its directory cannot be read.
    pub fn of(file: &Path) -> io::Result<Self> {
        let found = fs::metadata(file)?;
        Ok(Self { written: found.modified()?, len: found.len(), number: number(&found)? })
    }
}

/// Locks `file` against all other programs that use this lock, until the returned value is dropped. The lock is a separate file, because a
/// file that is replaced cannot keep a lock.
///
/// # Errors
/// The lock cannot be made.
pub fn lock_list(file: &Path) -> io::Result<File> {
    let (file, _) = place_of(file)?;
    let mut name = file.into_os_string();
    name.push(".lock");
    let lock = open_lock(Path::new(&name))?;
    lock.lock()?;
    Ok(lock)
}

/// Returns the real place of a file, and its directory, which is created if needed.
pub(crate) fn place_of(file: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let file = match fs::canonicalize(file) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
        Err(error) => return Err(error),
    };
    let directory = match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    };
    make_directory(&directory)?;
    Ok((file, directory))
}

/// `bytes` under a name of their own, on the disk.
fn written(directory: &Path, bytes: &[u8], mode: u32) -> io::Result<NamedTempFile> {
    let mut new = new_file(directory, mode)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_behind_its_link_and_with_its_mode() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (target, link) = (scratch.path().join("deep/target"), scratch.path().join("link"));
        create_file(&target, b"old", 0o644).expect("created");
        assert_eq!(
            create_file(&target, b"x", 0o600).expect_err("there").kind(),
            io::ErrorKind::AlreadyExists
        );
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        replace_file(&link, b"new", 0o600).expect("replaced");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read(&target).expect("read"), b"new");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&target), mode(&scratch.path().join("deep"))), (0o600, 0o700));
        assert_eq!(
            fs::read_dir(scratch.path().join("deep")).expect("read").count(),
            1,
            "nothing is left over"
        );
    }
}
