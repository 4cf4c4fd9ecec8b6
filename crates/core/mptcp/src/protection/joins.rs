//! MP_JOIN: authentication of a further subflow (RFC 8684, section 3.2), and the meaning of its reserved bits.

use super::Protection;
use super::keys::{join_hmac, same};
use super::session::Session;
use crate::PathClass;
use crate::subflows::{Nonces, SubflowState};

/// Reserved bit of MP_JOIN in version 2: the sender does not trust the path of this segment. The other side cannot tell otherwise which of
/// the subflows to one of its addresses these are.
const UNTRUSTED: u8 = 0b001;

impl Protection {
    /// Whether the SYN/ACK to our join comes from the peer.
    pub(crate) fn is_join_answer(&self, subflow: &mut SubflowState, nonces: Nonces, hmac: &[u8; 8]) -> bool {
        match self {
            Self::Sealed(sealed) => sealed.is_join_answer(subflow, nonces, hmac),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => self.is_join_hmac(nonces, hmac),
        }
    }

    /// Whether the third segment of the peer's join comes from it.
    pub(crate) fn is_join_ack(&self, subflow: &mut SubflowState, nonces: Nonces, hmac: &[u8; 20]) -> bool {
        match self {
            Self::Sealed(sealed) => sealed.is_join_ack(subflow, nonces, hmac),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => self.is_join_hmac(nonces, hmac),
        }
    }

    fn is_join_hmac(&self, Nonces { own, theirs }: Nonces, hmac: &[u8]) -> bool {
        let Some(Session { local, remote: Some(remote), .. }) = self.session() else { return false };
        same(&join_hmac(remote, local, theirs, own), hmac)
    }

    /// Returns the class of the peer's path by the reserved bits of its MP_JOIN.
    pub(crate) fn class_of(&self, reserved: u8) -> PathClass {
        let is_scrambled = self.session().is_some_and(|session| session.scrambled);
        if is_scrambled && reserved & UNTRUSTED != 0 { PathClass::Untrusted } else { PathClass::Trusted }
    }

    /// Whether this key authenticates the peer's MP_FASTCLOSE.
    pub(crate) fn is_fast_close(&self, key: &[u8; 8]) -> bool {
        match self {
            Self::Sealed(sealed) => sealed.is_fast_close(key),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => {
                self.session().is_some_and(|session| session.local.is(key))
            }
        }
    }

    /// Returns the key for our MP_FASTCLOSE over a path of this class.
    pub(super) fn fast_close(&self, class: PathClass) -> Option<[u8; 8]> {
        match self {
            Self::Sealed(sealed) => sealed.fast_close(),
            // It would be the key with which scrambling starts. The peer learns of the end over the other paths.
            Self::Scrambled(_) if class != PathClass::Trusted => None,
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => {
                Some(self.session()?.remote.as_ref()?.bytes())
            }
        }
    }
}

/// Returns the reserved bits of our MP_JOIN.
pub(super) fn reserved_bits(session: &Session, class: PathClass) -> u8 {
    match class {
        PathClass::Untrusted if session.scrambled => UNTRUSTED,
        PathClass::Untrusted | PathClass::Trusted | PathClass::Never => 0,
    }
}
