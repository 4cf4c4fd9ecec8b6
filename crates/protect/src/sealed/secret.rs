//! Secrets of 32 bytes, one type per purpose.
//!
//! The bytes live on the heap, so that moving a secret leaves no copy behind on the stack; they are wiped on
//! drop and no `Debug` shows them.

use core::fmt;

use zeroize::Zeroizing;

use super::hkdf::Hkdf;

/// Length of every secret of the key schedule, in bytes.
const SECRET_LEN: usize = 32;

macro_rules! secret {
    ($(#[$doc:meta])* $visible:vis $name:ident) => {
        $(#[$doc])*
        $visible struct $name(Box<Zeroizing<[u8; SECRET_LEN]>>);

        impl $name {
            /// The bytes, for what has to be computed or stored outside of this crate.
            $visible fn expose(&self) -> &[u8; SECRET_LEN] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

secret! {
    /// The secret that a handshake delivers and everything else is derived from. It is used up by
    /// [`ConnectionSecrets::derive`](super::ConnectionSecrets::derive).
    pub MasterSecret
}
secret! {
    /// Authenticates the MP_JOIN of one host.
    pub JoinSecret
}
secret! {
    /// For keys that the application exports, as with RFC 5705.
    pub ExporterSecret
}
secret! {
    /// The start of a later connection between the same hosts.
    pub ResumeSecret
}
secret! {
    /// `ts_d[g]`: block keys of one direction and generation.
    pub(super) DataSecret
}
secret! {
    /// `os_d[g]`: option keys of one direction and generation.
    pub(super) OptionSecret
}

macro_rules! derived {
    ($($name:ident),*) => {$(
        impl $name {
            /// XL(`parent`, `label`, "", 32).
            pub(super) fn derive(parent: &Hkdf, label: &str) -> Self {
                let mut secret = Self(Box::new(Zeroizing::new([0; SECRET_LEN])));
                parent.labelled(label, b"", secret.0.as_mut_slice());
                secret
            }
        }
    )*};
}

derived!(JoinSecret, ExporterSecret, ResumeSecret, DataSecret, OptionSecret);

impl MasterSecret {
    /// A secret whose 32 bytes `fill` writes: they are never anywhere else.
    pub fn filled_by<E>(fill: impl FnOnce(&mut [u8; SECRET_LEN]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = Self(Box::new(Zeroizing::new([0; SECRET_LEN])));
        fill(&mut secret.0)?;
        Ok(secret)
    }
}
