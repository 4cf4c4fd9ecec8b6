//! Which attempt of an opening is the connection: OPENING and OPENED.
//!
//! The opener says in the first record of each attempt which opening it belongs to. The listener shows the first attempt
//! whose OPENING it has verified to its application, and no other of the same opening: the others are answered with
//! OPENED, and acknowledge nothing at data level. So a Data-ACK that covers OPENING says that this attempt is the
//! connection, whatever was held back, repeated or swallowed on the way.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant};
use plait_protect::handshake::{Capability, Peer};
use plait_protect::sealed::{OPENING_LEN, Record, RefusalReason};

use super::Sealed;
use super::established::Established;
use crate::host::{OpeningClaim, OpeningName};
use crate::protection::Protection;
use crate::{Host, PeerIdentity};

/// Without any subflow an attempt waits for a join at most so long: long enough for a SYN that is sent again.
const NO_SUBFLOW_TIMEOUT: Duration = Duration::from_secs(5);

/// A refused attempt is kept so long, for the refusal to arrive: a lost one is sent again within a second or two.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known about the opening that a connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// The opener has not said OPENING yet, and says nothing before it.
    Unsaid,
    /// It has, and the peer has not acknowledged it.
    Said,
    /// The listener waits for OPENING, and takes nothing before it.
    Awaited,
    /// It has come, and is to be claimed.
    Heard,
    /// This is the connection.
    Settled,
    /// The attempt with this token is: what the opener was told.
    Elsewhere(u32),
    /// The same, what the listener has told.
    TurnedAway,
}

/// The result of claiming an opening.
pub(crate) enum Claimed {
    /// What the host says.
    Known(OpeningClaim),
    /// The opener may not have a connection.
    Refused,
    /// It was not asked: the opener requires fewer paths than we do.
    TooFewPaths {
        /// By us.
        required: u8,
    },
}

/// What an opener has to know about one of its attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// No claim is needed: it is not sealed.
    Unasked,
    /// OPENING is to be said.
    Unsaid,
    /// It was said.
    Said,
    /// The peer has acknowledged it.
    Settled,
    /// The peer says that the attempt with this token is the connection.
    Elsewhere(u32),
}

impl Claim {
    /// Whether it is still open which attempt is the connection, or this one is not.
    pub(super) fn is_open(self) -> bool {
        self != Self::Settled
    }

    /// Whether control records may be sent. A listener names its addresses to a peer that it has taken only.
    fn may_control(self) -> bool {
        match self {
            Self::Said | Self::Settled | Self::TurnedAway => true,
            Self::Unsaid | Self::Awaited | Self::Heard | Self::Elsewhere(_) => false,
        }
    }

    /// Whether bytes of the application may be sent.
    pub(super) fn may_carry(self) -> bool {
        match self {
            Self::Said | Self::Settled => true,
            Self::Unsaid | Self::Awaited | Self::Heard | Self::Elsewhere(_) | Self::TurnedAway => false,
        }
    }

    /// Whether what has come may be acknowledged at data level.
    fn may_acknowledge(self) -> bool {
        match self {
            Self::Unsaid | Self::Said | Self::Settled => true,
            Self::Awaited | Self::Heard | Self::Elsewhere(_) | Self::TurnedAway => false,
        }
    }
}

impl Protection {
    /// What an opener has to know, once the handshake is through.
    pub(crate) fn standing(&self) -> Standing {
        match self.established().map(|established| established.claim) {
            None => Standing::Unasked,
            Some(Claim::Unsaid) => Standing::Unsaid,
            Some(Claim::Elsewhere(token)) => Standing::Elsewhere(token),
            Some(Claim::Settled) => Standing::Settled,
            Some(Claim::Said | Claim::Awaited | Claim::Heard | Claim::TurnedAway) => Standing::Said,
        }
    }

    /// The token of the peer that follows from the secrets, whatever it is called by now.
    pub(crate) fn derived_peer_token(&self) -> Option<u32> {
        self.established().map(|established| established.identity.token(established.role.peer()))
    }

    /// The opener's first record: which opening this is an attempt of.
    pub(crate) fn say_opening(&mut self, id: [u8; OPENING_LEN]) {
        if let Some(established) = self.established_mut()
            && established.claim == Claim::Unsaid
        {
            established.claim = Claim::Said;
            let paths = established.required();
            established.pending.push_front(Record::Opening { name: id, paths });
        }
    }

    /// The peer has acknowledged OPENING on another attempt, or in its name: this is the connection.
    pub(crate) fn settle_claim(&mut self) {
        if let Some(established) = self.established_mut() {
            established.claim = Claim::Settled;
        }
    }

    /// Whether what has come may be acknowledged at data level.
    pub(crate) fn may_acknowledge(&self) -> bool {
        self.established().is_none_or(|established| established.claim.may_acknowledge())
    }

    /// Whether it is known that this is the connection.
    pub(crate) fn is_settled(&self) -> bool {
        self.established().is_some_and(|established| established.claim == Claim::Settled)
    }

    /// Whether records may be sent, and bytes of the application.
    pub(crate) fn may_speak(&self) -> [bool; 2] {
        self.established()
            .map_or([true; 2], |established| [established.claim.may_control(), established.claim.may_carry()])
    }

    /// Whether the peer at `remote`, which has said OPENING, may have a connection.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn judge_opener(&self, remote: SocketAddr) -> Result<(), RefusalReason> {
        let Some((established, ours)) = self.established().zip(self.sealed().and_then(Sealed::ours)) else {
            return Ok(());
        };
        ours.judge(established.peer(), remote)
    }

    /// Returns the identity of the peer, which must be the same on all attempts.
    pub(crate) fn peer_identity(&self) -> Option<PeerIdentity> {
        self.sealed_status().map(|status| status.peer)
    }
}

impl Established {
    /// Fingerprint of the key that the peer has shown.
    pub(crate) fn peer_key(&self) -> Option<[u8; 32]> {
        match self.peer() {
            Peer::Key { fingerprint, line: _, name: _, is_known: _ } => Some(*fingerprint),
            Peer::Anonymous | Peer::Certificate => None,
        }
    }

    /// How the listener of this connection names the opening with this id.
    fn opening_name(&self, id: [u8; OPENING_LEN]) -> OpeningName {
        OpeningName { id, client: self.peer_key() }
    }

    /// OPENING has been verified: claims the opening, which requires so many paths in the keys. One that requires fewer than we
    /// do comes to nothing: its opener may have sent under keys that we do not take. The opener began at the address `from`.
    pub(crate) fn claim_opening(
        &mut self,
        now: Instant,
        id: [u8; OPENING_LEN],
        paths: u8,
        from: IpAddr,
        host: &mut dyn Host,
    ) -> Claimed {
        let required = self.required();
        if paths < required && required > 1 {
            self.claim = Claim::TurnedAway;
            self.pending.clear();
            self.say(Record::Require(required));
            return Claimed::TooFewPaths { required };
        }
        self.require(paths);
        let token = self.identity.token(self.role);
        let claim = host.claim_opening(now, self.opening_name(id), from, token);
        match claim {
            OpeningClaim::Granted => self.claim = Claim::Settled,
            OpeningClaim::Taken(token) => {
                self.claim = Claim::TurnedAway;
                self.pending.clear();
                self.say(Record::Opened(token));
            }
            OpeningClaim::Full => return self.refuse_opening(now, RefusalReason::Full),
        }
        Claimed::Known(claim)
    }

    /// OPENING has been verified, and its opener may not have a connection: says why, and nothing else.
    pub(crate) fn refuse_opening(&mut self, now: Instant, reason: RefusalReason) -> Claimed {
        self.claim = Claim::TurnedAway;
        self.refused_at = Some(now);
        self.pending.clear();
        if self.peer_can(Capability::Refused) {
            self.say(Record::Refused(reason));
        }
        Claimed::Refused
    }

    /// Whether its opening was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused_at.is_some()
    }

    /// Returns when an unclaimed attempt is given up, if it has been without any subflow since `no_subflow_since`, and
    /// whose opening may take `timeout`.
    pub(super) fn claim_deadline(
        &self,
        no_subflow_since: Option<Instant>,
        timeout: Duration,
    ) -> Option<Instant> {
        let without_subflow = no_subflow_since.map(|since| since + NO_SUBFLOW_TIMEOUT);
        let whole = self.began + timeout;
        let refused = self.refused_at.map(|at| at + REFUSED_TIMEOUT);
        let earliest = [without_subflow, refused].into_iter().flatten().fold(whole, Instant::min);
        self.claim.is_open().then_some(earliest)
    }

    /// OPENING counts as the first record of the opener, and nowhere else. `false` if the peer breaks that rule.
    pub(super) fn admits(&mut self, record: &Record) -> bool {
        match (self.claim, record) {
            (Claim::Awaited, Record::Opening { .. }) => {
                self.claim = Claim::Heard;
                true
            }
            (Claim::Awaited, _) | (_, Record::Opening { .. }) => false,
            (Claim::Said, Record::Opened(token)) => {
                self.claim = Claim::Elsewhere(*token);
                true
            }
            (Claim::Said, Record::Require(_) | Record::Refused(_)) => true,
            (_, Record::Opened(_) | Record::Require(_) | Record::Refused(_)) => false,
            (_, _) => true,
        }
    }
}
