//! The identity of this host.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ::plait_host::OsRandom;
use plait_handshake::{Fingerprint, IdentityError, PublicKey};
use plait_keys::{IdentityFileError, read_identity, read_or_make_identity};
use zeroize::Zeroizing;

/// A private key of ours (Ed25519), which identifies this host to peers. Clones share it; it is wiped with the last of them.
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

/// The origin of a key that was asked for ([`Identity::load_or_create`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// It was in the file.
    Loaded,
    /// The file did not exist. The key was created and written there.
    Created,
}

impl Identity {
    /// A new key from the operating system's randomness.
    ///
    /// # Errors
    /// There is none.
    pub fn generate() -> io::Result<Self> {
        Ok(Self(Arc::new(plait_handshake::Identity::generate(&mut OsRandom::new()?))))
    }

    /// Reads a key in PEM (PKCS#8, `PRIVATE KEY`).
    ///
    /// # Errors
    /// There is no such key in it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        Ok(Self(Arc::new(plait_handshake::Identity::from_pem(pem)?)))
    }

    /// Reads the key in a file.
    ///
    /// # Errors
    /// There is none, the file cannot be read, others can read it, or there is something else in it.
    pub fn load(file: impl AsRef<Path>) -> Result<Self, IdentityFileError> {
        Ok(Self(Arc::new(read_identity(file.as_ref())?)))
    }

    /// Reads the key in a file, or creates one and writes it there, readable by its owner only. If several callers do so at the
    /// same time, one of them creates the key for all.
    ///
    /// # Errors
    /// The file cannot be read or written, others can read it, or there is something else in it.
    pub fn load_or_create(file: impl AsRef<Path>) -> Result<(Self, Origin), IdentityFileError> {
        let mut random = OsRandom::new().map_err(IdentityFileError::Random)?;
        let (identity, is_new) = read_or_make_identity(file.as_ref(), &mut random)?;
        Ok((Self(Arc::new(identity)), if is_new { Origin::Created } else { Origin::Loaded }))
    }

    /// The public key. Its text is the line for the server's list of clients.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.0.public_key()
    }

    /// The key in PEM, for a file that only its owner can read; wiped when it is dropped.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        self.0.to_pem()
    }

    /// The fingerprint of the public key: what peers pin, or list among the clients that they accept.
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
    use plait_keys::ReadSecretError;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_a_file_that_others_can_read_is_refused() {
        let file = std::env::temp_dir().join(format!("plait-identity-{}/key", std::process::id()));
        let (made, first) = Identity::load_or_create(&file).expect("a new one");
        let (read, second) = Identity::load_or_create(&file).expect("the same again");
        assert_eq!((first, second), (Origin::Created, Origin::Loaded));
        assert_eq!(made.fingerprint(), read.fingerprint());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
        let refused = Identity::load_or_create(&file);
        let is_exposed = |error: &IdentityFileError| {
            matches!(error, IdentityFileError::Read(ReadSecretError::Exposed { .. }))
        };
        assert!(refused.as_ref().is_err_and(is_exposed), "{refused:?}");
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
