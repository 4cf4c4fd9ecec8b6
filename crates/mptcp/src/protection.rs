//! What happens to the bytes of the stream on their way: the seam for scrambling and sealing.
//!
//! A protection sees outgoing bytes in order once, when they are accepted into the send buffer, and incoming
//! bytes in order once, when they are handed to the application; it says which path class may carry what.
//! Plain changes nothing and allows everything.

use bytes::Bytes;

use crate::PathClass;

/// The protection in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Protection {
    /// None: regular Multipath TCP.
    #[default]
    Plain,
}

impl Protection {
    /// The application's bytes as they enter the send buffer.
    pub(crate) fn accept(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Plain => data,
        }
    }

    /// The peer's bytes as they leave for the application.
    pub(crate) fn deliver(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Plain => data,
        }
    }

    /// Whether a path of this class may carry the bytes from data offset `start` on; asked for each first
    /// transmission and each reinjection.
    pub(crate) fn may_carry(&self, class: PathClass, start: u64) -> bool {
        let _any_place_is_like_another = start;
        match (self, class) {
            (_, PathClass::Never) => false,
            (Self::Plain, PathClass::Trusted | PathClass::Untrusted) => true,
        }
    }
}
