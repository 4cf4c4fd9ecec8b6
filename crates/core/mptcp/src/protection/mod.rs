//! Protection of the bytes of a connection, from its first SYN on: the interface for scrambling and sealing.
//!
//! A [`Protection`] is created with the connection from its configuration. It writes and checks the options that open a connection,
//! authenticates joins, decides which path class may carry which bytes, transforms the bytes, and decides whether the connection may become
//! plain TCP.
//!
//! ```text
//! Preferred ──► Sealed        the peer seals
//!     └───────► Plain         it does not, and that is good enough
//! Scrambled ──► Plain         nothing was agreed on, and that is good enough
//! Plain                       Multipath TCP ──► TCP
//! ```
//!
//! No arrow leads out of [`Sealed`]: a connection that must be sealed is created as one, and has no plain state. Code that sends or takes
//! bytes in the clear needs a value that only the others can give: a [`Session`], or a [`PlainTcp`].

mod capable;
mod joins;
pub(crate) mod keys;
pub(crate) mod options;
mod plain;
mod preferred;
mod questions;
pub(crate) mod scrambled;
pub(crate) mod sealed;
pub(crate) mod session;

pub(crate) use capable::{Answered, Opened, SynAck};
pub(crate) use options::{OptionsOut, StreamFacts};
pub(crate) use plain::PlainTcp;

use bytes::Bytes;
use core::net::IpAddr;
use plait_base::SubflowId;

use crate::TrustedPaths;
use crate::role::Role;
use crate::status::{AttemptStage, ScrambleStatus, SealedStatus};
use crate::subflows::SubflowState;
use crate::{ConnectionError, Fallback, PathClass, PlainReason};
use plain::Plain;
use preferred::Preferred;
use scrambled::Scrambled;
use sealed::Sealed;
use session::{HIGHER_VERSION, Numbers, Session};

/// The protection in use, or requested.
pub(crate) enum Protection {
    /// None: regular Multipath TCP, or TCP.
    Plain(Plain),
    /// Scrambling.
    Scrambled(Box<Scrambled>),
    /// Sealing is offered, and the peer's answer decides whether this becomes [`Protection::Sealed`] or
    /// [`Protection::Plain`].
    Preferred(Box<Preferred>),
    /// Sealing: in negotiation, in use, or failed.
    Sealed(Box<Sealed>),
}

/// The protocol in use.
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

    /// Returns the keys that were exchanged in the clear. They are used for mappings of data outside of sealed blocks.
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

    /// Whether a Data-ACK has come back: options get through in both directions, and further subflows may be opened.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.numbers().is_some_and(|numbers| numbers.is_confirmed)
    }

    /// Returns the protocol version in use.
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

    /// Whether options outside of blocks are as trustworthy as they can be; `false` if they are not authenticated although the connection
    /// is sealed.
    pub(crate) fn trusts_options(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Scrambled(_) => true,
            Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// Whether a fallback to TCP is possible. If it is, the connection may take it only while the numbers of stream and subflow correspond.
    pub(crate) fn can_fall_back(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Scrambled(_) => self.mode() != Mode::Opening,
            Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// Makes `subflow` the whole connection, unprotected. Its stream offsets are data offsets less `shift`.
    ///
    /// # Errors
    /// The fallback is not allowed: the connection has failed.
    pub(crate) fn fall_back(
        &mut self,
        fallback: Fallback,
        reason: PlainReason,
        subflow: SubflowId,
        shift: u64,
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

    /// Returns the stage of the opening, given whether the first subflow is open and has received anything.
    pub(crate) fn opening_stage(&self, is_open: bool, has_read: bool) -> AttemptStage {
        match self {
            Self::Sealed(sealed) => sealed.opening_stage(is_open, has_read),
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) if is_open => AttemptStage::Established,
            Self::Plain(_) | Self::Scrambled(_) | Self::Preferred(_) => AttemptStage::SynSent,
        }
    }

    /// Transforms the application's bytes when they get their numbers: late, so that they are still in the cache when they leave.
    pub(crate) fn accept(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Plain(_) => data,
            Self::Scrambled(scrambled) => scrambled.scramble(data),
            Self::Preferred(_) | Self::Sealed(_) => unreachable!("blocks are sealed from the queue"),
        }
    }

    /// Transforms the peer's bytes when the application reads them.
    pub(crate) fn deliver(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Scrambled(scrambled) => scrambled.descramble(data),
            // Sealed bytes are already verified and decrypted when they are put in order.
            Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_) => data,
        }
    }

    /// Whether a path of this class may carry the bytes from data offset `start` on. Checked for each first transmission and each
    /// reinjection.
    pub(crate) fn may_carry(&self, class: PathClass, trusted: TrustedPaths, start: u64) -> bool {
        match (self, class) {
            (_, PathClass::Never) => false,
            (_, PathClass::Trusted)
            | (Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_), PathClass::Untrusted) => true,
            (Self::Scrambled(scrambled), PathClass::Untrusted) => scrambled.may_leave_trust(trusted, start),
        }
    }

    /// Whether the number of bytes in a row on one path matters. An eavesdropper can read nothing of sealed bytes.
    pub(crate) fn is_readable_in_rows(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Scrambled(_) => true,
            Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// Whether a subflow must be left when the user changes the class of its path. Its retransmissions must not go over a path that has
    /// become untrusted, and the peer learns the new class when the path is joined again.
    pub(crate) fn is_bound_to_classes(&self) -> bool {
        match self {
            Self::Scrambled(scrambled) => scrambled.mode() == Mode::Multipath,
            Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_) => false,
        }
    }

    /// Counts bytes that a path carries only because there is no trusted path.
    pub(crate) fn note_degraded(&mut self, bytes: u64) {
        if let Self::Scrambled(scrambled) = self {
            scrambled.note_degraded(bytes);
        }
    }

    /// Announces another address of ours. Returns `false` if an option must carry it.
    pub(crate) fn announce(&mut self, id: u8, address: IpAddr) -> bool {
        self.sealed_mut().map(|sealed| sealed.announce(id, address)).is_some()
    }

    /// Withdraws an address of ours. Returns `false` if an option must carry it.
    pub(crate) fn withdraw(&mut self, id: u8) -> bool {
        self.sealed_mut().map(|sealed| sealed.withdraw(id)).is_some()
    }

    /// Sets the priority of a subflow. Returns `false` if an option must carry it.
    pub(crate) fn prioritise(&mut self, subflow: &SubflowState, backup: bool) -> bool {
        self.sealed_mut().map(|sealed| sealed.prioritise(subflow.sealed(), backup)).is_some()
    }

    /// Drops the keys of a subflow that is gone.
    pub(crate) fn forget(&mut self, subflow: &SubflowState) {
        if let Self::Sealed(sealed) = self {
            sealed.forget(subflow.sealed());
        }
    }

    /// Records why the first SYN was answered by a reset, as far as that can be known.
    pub(crate) fn explain_refusal(&mut self) {
        match self {
            Self::Sealed(sealed) => sealed.explain_refusal(),
            Self::Preferred(preferred) => preferred.explain_refusal(),
            Self::Plain(_) | Self::Scrambled(_) => {}
        }
    }

    /// Returns the status of scrambling for display, once it is negotiated.
    pub(crate) fn scramble_status(&self, trusted: TrustedPaths) -> Option<ScrambleStatus> {
        match self {
            Self::Scrambled(scrambled) => scrambled.status(trusted),
            Self::Plain(_) | Self::Preferred(_) | Self::Sealed(_) => None,
        }
    }

    /// Returns the status of sealing for display, if it was requested and not given up.
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

/// Returns the error for a connection that does not accept plain TCP.
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
