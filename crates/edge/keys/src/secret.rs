//! Files that only their owner may read, and files that only their owner may change.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::system::{exposed, foreign, open_at_once};

/// Longer than any key or list of passwords.
const MAX_SECRET_LEN: usize = 64 * 1024;

/// Another user that may have written a file, or can replace it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignFile {
    /// Another user owns the file.
    #[error("{file} belongs to user {owner}, which can change it\n  fix: chown {us} {file}", file = file.display())]
    File {
        /// Its name.
        file: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user that reads it.
        us: u32,
    },
    /// Another user owns the directory of the file, or may write to it, and it is not sticky.
    #[error(
        "others can replace {file}: its directory {directory} belongs to user {owner} and has mode {mode:04o}\n  fix: chmod go-w \
         {directory}, or move the file to a directory of your own",
        file = file.display(),
        directory = directory.display(),
    )]
    Directory {
        /// Name of the file.
        file: PathBuf,
        /// Its directory, behind all symbolic links.
        directory: PathBuf,
        /// Owner of the directory.
        owner: u32,
        /// Permission bits of the directory.
        mode: u32,
    },
}

/// The reason for which a secret cannot be read from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadSecretError {
    /// It cannot be opened or read.
    #[error("cannot read {}: {source}", file.display())]
    Io {
        /// Its name.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than its owner can use it.
    #[error("others can use {0}, which is secret: its mode is {mode:04o}\n  fix: chmod 600 {0}", file.display())]
    Exposed {
        /// Its name.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another user owns it, or can replace it.
    #[error(transparent)]
    Foreign(ForeignFile),
    /// It is longer than a secret can be.
    #[error("{} is longer than a key can be, 64 KiB", file.display())]
    TooLong {
        /// Its name.
        file: PathBuf,
    },
}

/// Reads a file that must be secret: root or the reading user owns it and its directory, its group and others have no permission for the
/// file, and they cannot write to the directory, or it is sticky. The open file is checked, not the file that had its name a moment
/// earlier. The bytes are wiped when they are dropped.
///
/// # Errors
/// As [`ReadSecretError`] says.
pub fn read_secret(file: &Path) -> Result<Zeroizing<Vec<u8>>, ReadSecretError> {
    let wrong = |source| ReadSecretError::Io { file: file.to_owned(), source };
    let open = open_regular(file).map_err(wrong)?;
    if let Some(mode) = exposed(&open, file, 0o077).map_err(wrong)? {
        return Err(ReadSecretError::Exposed { file: file.to_owned(), mode });
    }
    if let Some(foreign) = foreign(&open, file).map_err(wrong)? {
        return Err(ReadSecretError::Foreign(foreign));
    }
    // With room from the start: what grows leaves copies behind.
    let mut secret = Zeroizing::new(Vec::with_capacity(MAX_SECRET_LEN + 1));
    open.take(MAX_SECRET_LEN as u64 + 1).read_to_end(&mut secret).map_err(wrong)?;
    if secret.len() > MAX_SECRET_LEN {
        return Err(ReadSecretError::TooLong { file: file.to_owned() });
    }
    Ok(secret)
}

/// The reason for which a list of trusted peers cannot be read from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadListError {
    /// It cannot be opened or read, or is no text.
    #[error("cannot read {}: {source}", file.display())]
    Io {
        /// Its name.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than its owner can change it.
    #[error("others can change {0}, a list of trusted keys: its mode is {mode:04o}\n  fix: chmod go-w {0}", file.display())]
    Exposed {
        /// Its name.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another user owns it, or can replace it.
    #[error(transparent)]
    Foreign(ForeignFile),
}

/// The longest list, in bytes: a thousand rules, or ten thousand keys.
const MAX_LIST_LEN: u64 = 1 << 20;

/// Reads a list of trusted peers: root or the reading user owns it and its directory, and neither its group nor others can write to the
/// file, or to the directory if it is not sticky. `None`: there is no such file.
///
/// # Errors
/// As [`ReadListError`] says.
pub fn read_list(file: &Path) -> Result<Option<String>, ReadListError> {
    read_state(file, MAX_LIST_LEN)
}

/// Reads a text of at most `most` bytes with the checks of [`read_list`].
///
/// # Errors
/// As [`ReadListError`] says.
pub fn read_state(file: &Path, most: u64) -> Result<Option<String>, ReadListError> {
    let wrong = |source| ReadListError::Io { file: file.to_owned(), source };
    let open = match open_regular(file) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error)),
    };
    if let Some(mode) = exposed(&open, file, 0o022).map_err(wrong)? {
        return Err(ReadListError::Exposed { file: file.to_owned(), mode });
    }
    if let Some(foreign) = foreign(&open, file).map_err(wrong)? {
        return Err(ReadListError::Foreign(foreign));
    }
    let mut text = String::new();
    open.take(most + 1).read_to_string(&mut text).map_err(wrong)?;
    if text.len() as u64 > most { Err(wrong(too_long(most))) } else { Ok(Some(text)) }
}

/// Reads a file that need not be secret and may belong to any user, such as a certificate, of at most `most` bytes.
///
/// # Errors
/// It cannot be opened or read, is no regular file, or is longer.
pub fn read_public(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let open = open_regular(file)?;
    let mut bytes = Vec::new();
    open.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long(most)) } else { Ok(bytes) }
}

/// Opens a file to read it. Neither a pipe without a writer nor a terminal makes this wait: only a regular file is opened for reading.
fn open_regular(file: &Path) -> io::Result<File> {
    let open = open_at_once(file)?;
    if open.metadata()?.is_file() { Ok(open) } else { Err(io::Error::other("it is not a regular file")) }
}

fn too_long(most: u64) -> io::Error {
    let most = if most >= 1 << 20 { format!("{} MiB", most >> 20) } else { format!("{} KiB", most >> 10) };
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_read_only_if_no_other_user_can_use_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("key");
        fs::write(&file, "secret").expect("written");
        for mode in [0o600, 0o400, 0o700] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).expect("ours");
            assert_eq!(read_secret(&file).expect("secret").as_slice(), b"secret", "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).expect("ours");
            let error = read_secret(&file).expect_err("exposed").to_string();
            assert!(error.contains(&format!("fix: chmod 600 {}", file.display())), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_can_replace_is_not_read() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("keys");
        fs::create_dir(&directory).expect("made");
        let (file, link) = (directory.join("key"), scratch.path().join("link"));
        fs::write(&file, "secret").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        for mode in [0o700, 0o755, 0o1777, 0o1770] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).expect("ours");
            read_secret(&file).expect("no other user can replace it");
            read_list(&file).expect("no other user can replace it");
        }
        for mode in [0o777, 0o770, 0o707, 0o2775] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).expect("ours");
            for name in [&file, &link] {
                let errors = [
                    read_secret(name).expect_err("another can put its own there").to_string(),
                    read_list(name).expect_err("another can put its own there").to_string(),
                ];
                assert!(errors.iter().all(|error| error.contains("fix: chmod go-w")), "{mode:o}: {errors:?}");
            }
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn a_file_of_another_user_is_not_read() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("keys");
        fs::create_dir(&directory).expect("made");
        let file = directory.join("key");
        fs::write(&file, "secret").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        let read = || [read_secret(&file).is_ok(), read_list(&file).is_ok()];
        assert_eq!(read(), [true; 2]);
        for (owned, other) in [(&file, &directory), (&directory, &file)] {
            std::os::unix::fs::chown(owned, Some(65534), None).expect("root");
            std::os::unix::fs::chown(other, Some(0), None).expect("root");
            assert_eq!(read(), [false; 2], "{}", owned.display());
        }
    }

    #[test]
    fn a_secret_without_an_end_is_an_error() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("key");
        fs::write(&file, vec![0; MAX_SECRET_LEN + 1]).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        assert!(matches!(read_secret(&file), Err(ReadSecretError::TooLong { .. })));
        fs::write(&file, vec![0; MAX_SECRET_LEN]).expect("written");
        assert_eq!(read_secret(&file).expect("just short enough").len(), MAX_SECRET_LEN);
    }

    #[test]
    fn a_list_may_be_read_by_all_and_changed_by_its_owner_only() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("list");
        assert!(read_list(&file).expect("none is fine").is_none());
        fs::write(&file, "a line\n").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("ours");
        assert_eq!(read_list(&file).expect("read").as_deref(), Some("a line\n"));
        for mode in [0o664, 0o646] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).expect("ours");
            assert!(matches!(read_list(&file), Err(ReadListError::Exposed { .. })), "{mode:o}");
        }
    }
}
