//! What protects the bytes of a connection, from its first SYN on: the seam for scrambling and sealing.
//!
//! A [`Protection`] is made when the connection is, of what the configuration asks for, and it alone knows which it is.
//! It writes and judges the options that open a connection, proves joins, says which path class may carry what, changes
//! the bytes on their way, and says whether the connection may become plain TCP.
//!
//! ```text
//! Preferred ──► Sealed        the peer seals
//!     └───────► Plain         it does not, and that is good enough
//! Scrambled ──► Plain         nothing was agreed on, and that is good enough
//! Plain                       Multipath TCP ──► TCP
//! ```
//!
//! There is no arrow out of [`Sealed`]: a connection that must be sealed is made as one, and has no state in which it is
//! plain. Whatever sends or takes bytes in the clear asks for a value that only the others can give: a
//! [`Session`], or a [`PlainTcp`].

mod capable;
mod joins;
pub(crate) mod keys;
pub(crate) mod options;
mod plain;
mod preferred;
pub(crate) mod scrambled;
pub(crate) mod sealed;
pub(crate) mod session;

pub(crate) use capable::{Answered, Opened, SynAck};
pub(crate) use joins::Nonces;
pub(crate) use options::{OptionsOut, StreamFacts};
pub(crate) use plain::PlainTcp;

use bytes::Bytes;
use core::net::IpAddr;
use plait_base::SubflowId;

use crate::TrustedPaths;
use crate::role::Role;
use crate::status::{AttemptStage, ScrambleStatus, SealedStatus};
use crate::subflows::subflow::SubflowState;
use crate::{ConnectionError, Fallback, PathClass, PlainReason};
use plain::Plain;
use preferred::Preferred;
use scrambled::Scrambled;
use sealed::Sealed;
use session::{HIGHER_VERSION, Numbers, Session};

/// The protection in use, or asked for.
pub(crate) enum Protection {
    /// None: regular Multipath TCP, or TCP.
    Plain(Plain),
    /// Scrambling.
    Scrambled(Box<Scrambled>),
    /// Sealing is offered, and the peer's answer decides whether this becomes [`Protection::Sealed`] or
    /// [`Protection::Plain`].
    Preferred(Box<Preferred>),
    /// Sealing: being agreed on, in use, or failed.
    Sealed(Box<Sealed>),
}

/// What is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Not yet known.
    Opening,
    /// Multipath TCP.
    Multipath,
    /// TCP, on one subflow.
    Plain(PlainTcp),
}

impl Protection {
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::Plain(plain) => plain.mode(),
            Self::Scrambled(scrambled) => scrambled.mode(),
            Self::Preferred(_) => Mode::Opening,
            Self::Sealed(sealed) if sealed.is_or_was_established() => Mode::Multipath,
            Self::Sealed(_) => Mode::Opening,
        }
    }

    /// Keys that were exchanged in the clear: what data outside of sealed blocks is mapped with.
    pub(crate) fn session(&self) -> Option<&Session> {
        match self {
            Self::Plain(plain) => plain.session(),
            Self::Scrambled(scrambled) => scrambled.session(),
            Self::Preferred(_) | Self::Sealed(_) => None,
        }
    }

    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        match self {
            Self::Plain(plain) => plain.session_mut(),
            Self::Scrambled(scrambled) => scrambled.session_mut(),
            Self::Preferred(_) | Self::Sealed(_) => None,
        }
    }

    /// Data sequence numbers of both directions, once they exist.
    pub(crate) fn numbers(&self) -> Option<&Numbers> {
        match self {
            Self::Sealed(sealed) => sealed.numbers(),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => Some(&self.session()?.numbers),
        }
    }

    pub(crate) fn numbers_mut(&mut self) -> Option<&mut Numbers> {
        match self {
            Self::Sealed(sealed) => sealed.numbers_mut(),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => {
                Some(&mut self.session_mut()?.numbers)
            }
        }
    }

    /// A Data-ACK has come back: options get through in both directions, and further subflows may be opened.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.numbers().is_some_and(|numbers| numbers.is_confirmed)
    }

    /// The protocol version spoken.
    pub(crate) fn version(&self) -> Option<u8> {
        match self {
            Self::Sealed(_) => Some(HIGHER_VERSION),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => Some(self.session()?.version()),
        }
    }

    /// Whether DSS checksums are in use.
    pub(crate) fn has_checksums(&self) -> bool {
        self.session().is_some_and(|session| session.checksum)
    }

    /// The token by which joins name this connection, once Multipath TCP is negotiated or offered passively.
    pub(crate) fn token(&self, role: Role) -> Option<u32> {
        if let Self::Sealed(sealed) = self {
            return sealed.token();
        }
        match (self.mode(), role) {
            (Mode::Multipath, _) | (Mode::Opening, Role::Passive) => Some(self.session()?.local.token()),
            (Mode::Opening, Role::Active) | (Mode::Plain(_), _) => None,
        }
    }

    /// Whether options outside of blocks can be believed as far as anything can, or nobody has signed them.
    pub(crate) fn trusts_options(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Scrambled(_) => true,
            Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// Whether sealing is asked for, or in use: there is a step down no more.
    pub(crate) fn must_be_sealed(&self) -> bool {
        match self {
            Self::Sealed(_) => true,
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => false,
        }
    }

    /// Whether there is a way back to TCP: where there is one the connection may take it only while the numbers of
    /// stream and subflow go together.
    pub(crate) fn can_fall_back(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Scrambled(_) => self.mode() != Mode::Opening,
            Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// From here on `subflow` is the connection, unprotected. Its stream offsets are data offsets less `shift`.
    ///
    /// # Errors
    /// That cannot be: the connection has failed.
    pub(crate) fn fall_back(
        &mut self,
        fallback: Fallback,
        reason: PlainReason,
        (subflow, shift): (SubflowId, u64),
    ) -> Result<(), ConnectionError> {
        if let Self::Scrambled(scrambled) = self {
            *self = Self::Plain(scrambled.step_down(reason)?);
        }
        match self {
            Self::Plain(plain) => {
                if fallback == Fallback::Refuse && reason != PlainReason::NotOffered {
                    return Err(refused(reason));
                }
                plain.fall_back(reason, subflow, shift);
                Ok(())
            }
            Self::Scrambled(_) | Self::Preferred(_) | Self::Sealed(_) => Err(ConnectionError::NotSealed),
        }
    }

    /// How far the opening is, given whether the first subflow is open and has brought anything.
    pub(crate) fn opening_stage(&self, is_open: bool, has_read: bool) -> AttemptStage {
        match self {
            Self::Sealed(sealed) => sealed.opening_stage(is_open, has_read),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) if is_open => AttemptStage::Established,
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => AttemptStage::SynSent,
        }
    }

    /// The application's bytes as they get their numbers: late, so that they are still in the cache when they leave.
    pub(crate) fn accept(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Plain(_) => data,
            Self::Scrambled(scrambled) => scrambled.scramble(data),
            Self::Preferred(_) | Self::Sealed(_) => unreachable!("blocks are sealed from the queue"),
        }
    }

    /// The peer's bytes as they leave for the application.
    pub(crate) fn deliver(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Scrambled(scrambled) => scrambled.descramble(data),
            // What was sealed is verified and in the clear when it is put in order.
            Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_) => data,
        }
    }

    /// Whether a path of this class may carry the bytes from data offset `start` on; asked for each first
    /// transmission and each reinjection.
    pub(crate) fn may_carry(&self, class: PathClass, trusted: TrustedPaths, start: u64) -> bool {
        match (self, class) {
            (_, PathClass::Never) => false,
            (_, PathClass::Trusted)
            | (Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_), PathClass::Untrusted) => true,
            (Self::Scrambled(scrambled), PathClass::Untrusted) => scrambled.may_leave_trust(trusted, start),
        }
    }

    /// Whether it matters how much of the stream a path sees in a row: of what is sealed nobody reads anything.
    pub(crate) fn is_readable_in_rows(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Scrambled(_) => true,
            Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// Whether a subflow has to be left when the user thinks otherwise of its path: what it still has to repeat is not
    /// for a path that has become untrusted, and the peer learns of the new class when the path is joined again.
    pub(crate) fn is_bound_to_classes(&self) -> bool {
        match self {
            Self::Scrambled(scrambled) => scrambled.mode() == Mode::Multipath,
            Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// A path carries so many bytes that it would not if there were a trusted one.
    pub(crate) fn note_degraded(&mut self, bytes: u64) {
        if let Self::Scrambled(scrambled) = self {
            scrambled.note_degraded(bytes);
        }
    }

    /// Another address of ours; `false` if that has to be said in an option.
    pub(crate) fn announce(&mut self, id: u8, address: IpAddr) -> bool {
        self.sealed_mut().map(|sealed| sealed.announce(id, address)).is_some()
    }

    /// An address of ours is gone; `false` if that has to be said in an option.
    pub(crate) fn withdraw(&mut self, id: u8) -> bool {
        self.sealed_mut().map(|sealed| sealed.withdraw(id)).is_some()
    }

    /// What a subflow is to be used for; `false` if that has to be said in an option.
    pub(crate) fn prioritise(&mut self, subflow: &SubflowState, backup: bool) -> bool {
        self.sealed_mut().map(|sealed| sealed.prioritise(&subflow.sealed, backup)).is_some()
    }

    /// A subflow is gone, and its keys with it.
    pub(crate) fn forget(&mut self, subflow: &SubflowState) {
        if let Self::Sealed(sealed) = self {
            sealed.forget(&subflow.sealed);
        }
    }

    /// Why the first SYN was answered by a reset, as far as that can be known.
    pub(crate) fn explain_refusal(&mut self) {
        match self {
            Self::Sealed(sealed) => sealed.explain_refusal(),
            Self::Preferred(preferred) => preferred.explain_refusal(),
            Self::Plain(_) | Self::Scrambled(_) => {}
        }
    }

    /// For people: about scrambling, once it is agreed on.
    pub(crate) fn scramble_status(&self, trusted: TrustedPaths) -> Option<ScrambleStatus> {
        match self {
            Self::Scrambled(scrambled) => scrambled.status(trusted),
            Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_) => None,
        }
    }

    /// For people: about sealing, where it was asked for and not given up.
    pub(crate) fn sealed_status(&self) -> Option<SealedStatus> {
        match self {
            Self::Sealed(sealed) => Some(sealed.status()),
            Self::Preferred(preferred) => Some(preferred.status()),
            Self::Plain(_) | Self::Scrambled(_) => None,
        }
    }

    pub(crate) fn sealed(&self) -> Option<&Sealed> {
        match self {
            Self::Sealed(sealed) => Some(sealed),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => None,
        }
    }

    pub(crate) fn sealed_mut(&mut self) -> Option<&mut Sealed> {
        match self {
            Self::Sealed(sealed) => Some(sealed),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => None,
        }
    }
}

/// What the connection fails with where plain TCP is not good enough.
fn refused(reason: PlainReason) -> ConnectionError {
    match reason {
        PlainReason::ChecksumFailed => ConnectionError::Corrupted,
        PlainReason::NotOffered
        | PlainReason::PeerPlain
        | PlainReason::NotInSynAck
        | PlainReason::SynDropped
        | PlainReason::NotInAck
        | PlainReason::NoDss
        | PlainReason::Unsupported
        | PlainReason::PeerFellBack => ConnectionError::PlainRefused,
    }
}
