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
    /// The secret that a handshake delivers and from which all others are derived.
    /// [`ConnectionSecrets::derive`](super::ConnectionSecrets::derive) consumes it.
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
    /// `path_d`: hides the shares that one host sends over single paths.
    pub(super) PathSecret
}
secret! {
    /// The result of an exchange over one path: both hosts' random bytes and shares, and the agreements of the shares. It goes into the
    /// next generation of both directions.
    pub MixSecret
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

derived!(JoinSecret, ExporterSecret, ResumeSecret, PathSecret, DataSecret, OptionSecret);

macro_rules! mixed {
    ($($name:ident),*) => {$(
        impl $name {
            /// HKDF-Extract(XL(`parent`, "ku", "", 32), the secrets of the paths in the order of their MIX records).
            pub(super) fn mix(parent: &Hkdf, mixes: &[MixSecret]) -> Self {
                let salt = Self::derive(parent, "ku");
                let material: Vec<&[u8]> = mixes.iter().map(|mix| mix.expose().as_slice()).collect();
                let mut secret = Self(Box::new(Zeroizing::new([0; SECRET_LEN])));
                Hkdf::extract_into(salt.expose(), &material, &mut secret.0);
                secret
            }
        }
    )*};
}

mixed!(DataSecret, OptionSecret);

impl MixSecret {
    pub(super) fn extract(material: &[&[u8]]) -> Self {
        let mut secret = Self(Box::new(Zeroizing::new([0; SECRET_LEN])));
        Hkdf::extract_into(&[0; SECRET_LEN], material, &mut secret.0);
        secret
    }

    #[cfg(test)]
    pub(super) fn overwrite(&mut self, bytes: &[u8]) {
        self.0.copy_from_slice(bytes);
    }

    /// The same for the other direction.
    pub fn duplicate(&self) -> Self {
        Self(self.0.clone())
    }
}

impl MasterSecret {
    /// Returns a secret whose 32 bytes `fill` writes: they are never anywhere else.
    pub fn filled_by<E>(fill: impl FnOnce(&mut [u8; SECRET_LEN]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = Self(Box::new(Zeroizing::new([0; SECRET_LEN])));
        fill(&mut secret.0)?;
        Ok(secret)
    }
}
