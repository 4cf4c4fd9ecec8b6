//! Key files: our own key, trusted keys, and known peers.
//!
//! All are text. By default they are in `~/.config/plait`, for root in `/etc/plait`:
//!
//! | file | line | here |
//! |---|---|---|
//! | `identity` | PKCS#8 in PEM | [`read_identity`], [`read_or_make_identity`] |
//! | `identity.pub` | `plait-ed25519 BASE64 comment` | [`replace_file`] |
//! | `known_peers` | `HOST:PORT SHA256:… first-seen [paths=N] [names=BASIS]` | [`KnownPeers`] |
//! | `authorized_clients` | `[allow=RULES] [expires=DATE] [connections=N] plait-ed25519 BASE64 comment` | [`read_list`]; its rules are of `proxy` |
//!
//! A file must belong to us or to root, and so must its directory, to which no other user can write. A secret is read only if its owner
//! alone can read it ([`read_secret`]). A list of trusted peers is read only if no other user can change it ([`read_list`]). A file is
//! replaced as a whole, so that a program that reads at the same time sees the old or the new one.
//!
//! On systems without permission bits (Windows) neither is checked, which a warning reports, and no key log is written.

#![allow(clippy::disallowed_methods, reason = "keys are in files")]
#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "some values are only logged"))]

mod identity;
mod key_log;
mod known_peers;
mod log;
mod secret;
#[cfg(not(unix))]
mod unchecked;
#[cfg(unix)]
mod unix;
mod whole;

#[cfg(not(unix))]
use unchecked as system;
#[cfg(unix)]
use unix as system;

pub use identity::{IdentityFileError, read_identity, read_or_make_identity};
pub use key_log::{KeyLogFile, OpenKeyLogError};
pub use known_peers::{KnownPeer, KnownPeers, KnownPeersError, NameBasis, Pinned, Shown};
pub use secret::{
    ForeignFile, ReadListError, ReadSecretError, read_list, read_public, read_secret, read_state,
};
pub use whole::{Stamp, create_file, lock_list, replace_file};
