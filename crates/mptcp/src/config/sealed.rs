//! What can be chosen about a sealed connection.

use plait_base::Duration;
use plait_protect::handshake::{Capabilities, Handshakes, Policy, Tep};
use plait_tcp::KeepAlive;
use std::sync::Arc;

/// Settings of a sealed connection.
#[derive(Clone, Debug)]
pub struct SealedSettings {
    /// What happens where the peer, or the way to it, does not let us seal.
    pub policy: Policy,
    /// Handshakes, best first. Of these `opener` and `listener` use what can prove the identities that they require
    /// ([`Handshakes::allows`]).
    pub teps: Vec<Tep>,
    /// What connections that we open bring along.
    pub opener: Option<Arc<dyn Handshakes>>,
    /// What connections that we accept bring along.
    pub listener: Option<Arc<dyn Handshakes>>,
    /// How long the handshake may take from the SYN/ACK on.
    pub handshake_timeout: Duration,
    /// Probing of silent subflows, where [`plait_tcp::Config::keep_alive`] does not ask for another. An attacker who cuts all
    /// paths silently leaves a reader who has nothing to send no other way to notice. Probes are TCP's own: an attacker who
    /// can answer for the peer's TCP can answer them.
    pub keep_alive: Option<KeepAlive>,
    /// No byte of the application is sent or taken before so many disjoint paths have given a share to the keys; that of the
    /// handshake is one of them. 0 and 1 ask for nothing. What the peer requires holds as well.
    pub require_paths: u8,
    /// What of the host's capabilities is listed to the peer. Without one of them the connection is as with a peer that lacks it; the models
    /// of what each is for are searched without it, too.
    pub capabilities: Capabilities,
    /// When paths in use are asked for another share.
    pub ratchet: Ratchet,
    /// For connections that we open: the application has declared that it does no harm if the bytes that it writes first are delivered
    /// twice, to two instances of the server. Then they are repeated to whichever instance answers.
    pub may_repeat: bool,
    /// For connections that we accept: answer with flag C (RFC 8684, section 3.1), because a balancer behind our address may lead a join to another host. Peers
    /// then join only addresses that we announce, and send nothing but OPENING before it is acknowledged.
    pub denies_initial: bool,
}

/// How long keys serve until a path is asked for another share: whichever comes first. Who has stolen the memory of a host
/// reads no more than that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratchet {
    /// Time in which anything was sent.
    pub age: Duration,
    /// Bytes of both directions.
    pub bytes: u64,
}

impl Default for Ratchet {
    fn default() -> Self {
        Self { age: Duration::from_secs(120), bytes: 1 << 30 }
    }
}

impl SealedSettings {
    /// For connections that we open: required, all handshakes.
    pub fn opener(settings: Arc<dyn Handshakes>) -> Self {
        Self { opener: Some(settings), ..Self::default() }
    }

    /// For connections that we accept: required, all handshakes.
    pub fn listener(settings: Arc<dyn Handshakes>) -> Self {
        Self { listener: Some(settings), ..Self::default() }
    }

    /// What our SYNs may offer.
    pub(crate) fn teps_to_open(&self) -> Vec<Tep> {
        self.teps_of(self.opener.as_ref())
    }

    /// What our SYN/ACKs may agree to.
    pub(crate) fn teps_to_accept(&self) -> Vec<Tep> {
        self.teps_of(self.listener.as_ref())
    }

    fn teps_of(&self, side: Option<&Arc<dyn Handshakes>>) -> Vec<Tep> {
        let Some(side) = side else { return Vec::new() };
        self.teps.iter().copied().filter(|&tep| side.allows(tep)).collect()
    }
}

impl Default for SealedSettings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            teps: Tep::ALL.to_vec(),
            opener: None,
            listener: None,
            handshake_timeout: Duration::from_secs(20),
            // A silent path is given up after a minute; the connection then waits for another for as long as
            // `Config::no_subflow_timeout` says.
            keep_alive: Some(KeepAlive {
                idle: Duration::from_secs(30),
                interval: Duration::from_secs(10),
                probes: 3,
            }),
            require_paths: 0,
            capabilities: Capabilities::OURS,
            ratchet: Ratchet::default(),
            may_repeat: false,
            denies_initial: false,
        }
    }
}

impl PartialEq for SealedSettings {
    /// Settings of the handshakes are the same if they are one value.
    fn eq(&self, other: &Self) -> bool {
        let Self {
            policy,
            teps,
            opener,
            listener,
            handshake_timeout,
            keep_alive,
            require_paths,
            capabilities,
            ratchet,
            may_repeat,
            denies_initial,
        } = self;
        let same_opener = match (opener, &other.opener) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let same_listener = match (listener, &other.listener) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_opener
            && same_listener
            && *policy == other.policy
            && *teps == other.teps
            && *handshake_timeout == other.handshake_timeout
            && *keep_alive == other.keep_alive
            && *require_paths == other.require_paths
            && *capabilities == other.capabilities
            && *ratchet == other.ratchet
            && *may_repeat == other.may_repeat
            && *denies_initial == other.denies_initial
    }
}
