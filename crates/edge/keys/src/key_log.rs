//! A file for the secrets of connections (`SSLKEYLOGFILE`).

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use plait_handshake::KeyLog;
use zeroize::Zeroizing;

use crate::system::open_key_log;

/// A key log in the format of NSS, for Wireshark and similar tools. It decrypts the connections, so it is a file of ours that no other user
/// can read.
pub struct KeyLogFile {
    path: PathBuf,
    file: Mutex<Written>,
}

struct Written {
    file: File,
    has_failed: bool,
}

/// The reason for which secrets cannot be written to a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenKeyLogError {
    /// It cannot be opened; `ELOOP`: it is a symbolic link, which is not followed.
    #[error("cannot write keys to {}: {source}", file.display())]
    Io {
        /// Its name.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no ordinary file, belongs to another user, or has other names.
    #[error("no keys are written to {}, which is not an ordinary file of ours with one name", file.display())]
    Foreign {
        /// Its name.
        file: PathBuf,
    },
    /// Others can read or change it.
    #[error("no keys are written to {0}, which others can use: its mode is {mode:04o}\n  fix: chmod 600 {0}", file.display())]
    Exposed {
        /// Its name.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The system cannot tell which users can read it.
    #[error("no keys are written to {}: this system cannot tell which users can read it", file.display())]
    Unchecked {
        /// Its name.
        file: PathBuf,
    },
}

impl KeyLogFile {
    /// Opens `file` to append to it, or makes it, for its owner only. A symbolic link is never followed.
    ///
    /// # Errors
    /// As [`OpenKeyLogError`] says.
    pub fn open(file: &Path) -> Result<Self, OpenKeyLogError> {
        let (path, file) = (file.to_owned(), open_key_log(file)?);
        Ok(Self { path, file: Mutex::new(Written { file, has_failed: false }) })
    }

    /// The name of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        // With room from the start: what grows leaves copies behind.
        let len = label.len() + 2 * (client_random.len() + secret.len()) + 3;
        let mut line = Zeroizing::new(String::with_capacity(len));
        line.push_str(label);
        for bytes in [client_random, secret] {
            line.push(' ');
            for byte in bytes {
                // Writing to a string does not fail.
                let _ = write!(line, "{byte:02x}");
            }
        }
        line.push('\n');
        let mut written = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = written.file.write_all(line.as_bytes())
            && !written.has_failed
        {
            written.has_failed = true;
            crate::log::warn!(%error, "the key log is not complete");
        }
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyLogFile").field(&self.path).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(file: &Path) -> u32 {
        fs::metadata(file).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn lines_are_those_of_nss_in_a_file_for_its_owner_only() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("log");
        KeyLogFile::open(&file).expect("made").log("EXPORTER_SECRET", &[0, 0xab], &[1, 2]);
        KeyLogFile::open(&file).expect("there").log("X", &[3], &[]);
        assert_eq!(fs::read_to_string(&file).expect("read"), "EXPORTER_SECRET 00ab 0102\nX 03 \n");
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn links_and_files_that_others_can_read_get_no_secrets() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [target, link, other] = ["target", "link", "other"].map(|name| scratch.path().join(name));
        fs::write(&target, "").expect("written");
        fs::set_permissions(&target, Permissions::from_mode(0o644)).expect("ours");
        assert!(matches!(KeyLogFile::open(&target), Err(OpenKeyLogError::Exposed { mode: 0o644, .. })));
        fs::set_permissions(&target, Permissions::from_mode(0o600)).expect("ours");
        assert!(KeyLogFile::open(&target).is_ok());
        symlink(&target, &link).expect("a link");
        assert!(matches!(KeyLogFile::open(&link), Err(OpenKeyLogError::Io { .. })));
        fs::hard_link(&target, &other).expect("a second name");
        assert!(matches!(KeyLogFile::open(&other), Err(OpenKeyLogError::Foreign { .. })));
        assert!(KeyLogFile::open(scratch.path()).is_err());
    }
}
