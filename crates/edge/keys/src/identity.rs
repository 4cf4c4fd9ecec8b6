//! The file of our own key.

use std::io;
use std::path::{Path, PathBuf};

use plait_base::Random;
use plait_handshake::{Identity, IdentityError};

use crate::secret::{ReadSecretError, read_secret};
use crate::whole::create_file;

/// The reason for which a file gives no private key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityFileError {
    /// It cannot be read, or others can read it.
    #[error(transparent)]
    Read(#[from] ReadSecretError),
    /// A new one cannot be written.
    #[error("cannot write {}: {source}", file.display())]
    Write {
        /// Its name.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system gives no randomness to make one.
    #[error("the system gives no random bytes: {0}")]
    Random(io::Error),
    /// The file has other content.
    #[error("in {}: {source}", file.display())]
    Key {
        /// Its name.
        file: PathBuf,
        /// The fault.
        source: IdentityError,
    },
}

/// Reads the key in `file` (PKCS#8 in PEM), which only its owner may be able to read.
///
/// # Errors
/// As [`IdentityFileError`] says.
pub fn read_identity(file: &Path) -> Result<Identity, IdentityFileError> {
    let pem = read_secret(file)?;
    Identity::from_pem(&pem).map_err(|source| IdentityFileError::Key { file: file.to_owned(), source })
}

/// As [`read_identity`]. If there is no such file, generates a key with `random` (which must be fit for secrets) and writes it there, for
/// its owner only. Also returns whether this has happened. If several programs do so at the same time, one generates the key for all.
///
/// # Errors
/// As [`IdentityFileError`] says.
pub fn read_or_make_identity(
    file: &Path,
    random: &mut dyn Random,
) -> Result<(Identity, bool), IdentityFileError> {
    match read_identity(file) {
        Err(IdentityFileError::Read(ReadSecretError::Io { source, .. }))
            if source.kind() == io::ErrorKind::NotFound => {}
        read => return read.map(|identity| (identity, false)),
    }
    let identity = Identity::generate(random);
    match create_file(file, identity.to_pem().as_bytes(), 0o600) {
        Ok(()) => Ok((identity, true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_identity(file).map(|identity| (identity, false))
        }
        Err(source) => Err(IdentityFileError::Write { file: file.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_base::SeededRandom;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    #[test]
    fn a_key_is_made_once_and_a_file_that_others_can_read_is_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("config/identity");
        let mut random = SeededRandom::from_number(1);
        let (made, is_new) = read_or_make_identity(&file, &mut random).expect("a new one");
        let (read, is_new_again) = read_or_make_identity(&file, &mut random).expect("the same again");
        assert_eq!((is_new, is_new_again), (true, false));
        assert_eq!(made.public_key(), read.public_key());
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("ours");
        for refused in [read_identity(&file), read_or_make_identity(&file, &mut random).map(|(key, _)| key)] {
            assert!(matches!(refused, Err(IdentityFileError::Read(ReadSecretError::Exposed { .. }))));
        }
    }

    #[test]
    fn many_that_start_at_the_same_time_have_one_key() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("identity");
        let keys: Vec<_> = thread::scope(|scope| {
            let make = |seed| read_or_make_identity(&file, &mut SeededRandom::from_number(seed));
            let threads: Vec<_> = (0..20).map(|seed| scope.spawn(move || make(seed))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic").expect("a key")).collect()
        });
        assert_eq!(keys.iter().filter(|(_, is_new)| *is_new).count(), 1);
        assert!(keys.iter().all(|(key, _)| key.public_key() == keys[0].0.public_key()));
    }
}
