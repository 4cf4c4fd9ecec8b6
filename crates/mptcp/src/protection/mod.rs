//! What happens to the bytes of the stream on their way: the seam for scrambling and sealing.
//!
//! A protection sees outgoing bytes in order once, when they get their data sequence numbers, and incoming
//! bytes in order once, when they are handed to the application; it says which path class may carry what.
//! Plain changes nothing and allows everything.

pub(crate) mod keys;
pub(crate) mod scrambled;
pub(crate) mod sealed;
pub(crate) mod session;

use bytes::Bytes;

use crate::PathClass;
use crate::trust::TrustedPaths;
use scrambled::Scrambling;

/// The protection in use.
#[derive(Default)]
pub(crate) enum Protection {
    /// None: regular Multipath TCP, or not agreed on yet.
    #[default]
    Plain,
    /// Scrambling.
    Scrambled(Box<Scrambling>),
}

impl Protection {
    /// The application's bytes as they get their numbers: late, so that they are still in the cache when they leave.
    pub(crate) fn accept(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Plain => data,
            Self::Scrambled(scrambling) => scrambling.scramble(data),
        }
    }

    /// The peer's bytes as they leave for the application.
    pub(crate) fn deliver(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Plain => data,
            Self::Scrambled(scrambling) => scrambling.descramble(data),
        }
    }

    /// Whether a path of this class may carry the bytes from data offset `start` on; asked for each first
    /// transmission and each reinjection.
    pub(crate) fn may_carry(&self, class: PathClass, trusted: TrustedPaths, start: u64) -> bool {
        match (self, class) {
            (_, PathClass::Never) => false,
            (_, PathClass::Trusted) | (Self::Plain, PathClass::Untrusted) => true,
            (Self::Scrambled(scrambling), PathClass::Untrusted) => scrambling.may_leave_trust(trusted, start),
        }
    }
}
