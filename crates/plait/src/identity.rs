//! Who we are.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use plait_base::SecretRandom;
use plait_handshake::Fingerprint;
use zeroize::Zeroizing;

/// A private key of ours (Ed25519), by which others know us. Clones share it; it is wiped with the last of them.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use plait::Identity;
///
/// let identity = Identity::generate()?;
/// let again = Identity::from_pem(identity.to_pem().as_bytes())?;
/// assert_eq!(identity.fingerprint(), again.fingerprint());
/// // What others pin:
/// assert!(identity.fingerprint().to_string().starts_with("SHA256:"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Identity(pub(crate) Arc<plait_handshake::Identity>);

/// Why a private key cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadIdentityError {
    /// The file, or the system's source of randomness.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Others than its owner can read the file.
    #[error("others can read the private key in {file}\n  fix: chmod 600 {file}")]
    Exposed {
        /// Its name.
        file: String,
    },
    /// There is no private key of the right kind in it.
    #[error("no private key of Ed25519 in PEM: {0}")]
    Key(#[from] plait_handshake::IdentityError),
}

impl Identity {
    /// A new key from the operating system's randomness.
    ///
    /// # Errors
    /// There is none.
    pub fn generate() -> io::Result<Self> {
        let mut seed = Zeroizing::new([0; 32]);
        File::open("/dev/urandom")?.read_exact(&mut *seed)?;
        Ok(Self(Arc::new(plait_handshake::Identity::generate(&mut SecretRandom::new(*seed)))))
    }

    /// Reads a key in PEM (PKCS#8, `PRIVATE KEY`).
    ///
    /// # Errors
    /// There is no such key in it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ReadIdentityError> {
        Ok(Self(Arc::new(plait_handshake::Identity::from_pem(pem)?)))
    }

    /// Reads the key in a file, or makes one and writes it there, readable by its owner only.
    ///
    /// # Errors
    /// The file cannot be read or written, others can read it, or there is something else in it.
    pub fn load_or_create(file: impl AsRef<Path>) -> Result<Self, ReadIdentityError> {
        let file = file.as_ref();
        match File::open(file) {
            Ok(mut open) => {
                if open.metadata()?.permissions().mode() & 0o077 != 0 {
                    return Err(ReadIdentityError::Exposed { file: file.display().to_string() });
                }
                let mut pem = Zeroizing::new(Vec::new());
                open.read_to_end(&mut pem)?;
                Self::from_pem(&pem)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Self::generate()?;
                if let Some(directory) = file.parent() {
                    fs::create_dir_all(directory)?;
                }
                // Never over a key that somebody else has just written.
                let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
                new.write_all(identity.to_pem().as_bytes())?;
                new.sync_all()?;
                Ok(identity)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The key in PEM, for a file that only its owner can read; wiped when it is dropped.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        self.0.to_pem()
    }

    /// What names our public key: what others pin, or list among those who may come.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.public_key().fingerprint()
    }
}

/// Never the private key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.fingerprint()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_a_file_that_others_can_read_is_refused() {
        let file = std::env::temp_dir().join(format!("plait-identity-{}/key", std::process::id()));
        let made = Identity::load_or_create(&file).expect("a new one");
        let read = Identity::load_or_create(&file).expect("the same again");
        assert_eq!(made.fingerprint(), read.fingerprint());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
        let refused = Identity::load_or_create(&file);
        assert!(matches!(refused, Err(ReadIdentityError::Exposed { .. })), "{refused:?}");
        fs::remove_dir_all(file.parent().expect("a directory")).expect("removed");
    }

    #[test]
    fn the_private_key_is_not_in_what_is_printed() {
        let identity = Identity::generate().expect("randomness");
        let pem = identity.to_pem();
        let secret = pem.lines().nth(1).expect("the key in base64");
        assert!(!format!("{identity:?}").contains(&secret[..20]));
    }
}
