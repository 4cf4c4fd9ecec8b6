//! Settings of a sealed connection.

use plait_base::Duration;
use plait_protect::handshake::{Capabilities, Handshakes, Policy, Tep};
use plait_tcp::KeepAlive;
use std::sync::Arc;

/// Settings of a sealed connection.
#[derive(Clone, Debug)]
pub struct SealedSettings {
    /// What happens if the peer, or the path to it, prevents sealing.
    pub policy: Policy,
    /// Handshakes, best first. Of these, `opener` and `listener` use those that can prove the identities that they require
    /// ([`Handshakes::allows`]).
    pub teps: Vec<Tep>,
    /// Handshake settings for connections that this host opens.
    pub opener: Option<Arc<dyn Handshakes>>,
    /// Handshake settings for connections that this host accepts.
    pub listener: Option<Arc<dyn Handshakes>>,
    /// How long the handshake may take, counted from the SYN/ACK.
    pub handshake_timeout: Duration,
    /// Probing of silent subflows if [`plait_tcp::Config::keep_alive`] does not set another. If an attacker cuts all paths silently, an end
    /// that only reads has no other way to notice. The probes are TCP's own: an attacker that can answer for the peer's TCP can answer
    /// them.
    pub keep_alive: Option<KeepAlive>,
    /// Number of disjoint paths that must have given a share to the keys before any byte of the application is sent or delivered. The path
    /// of the handshake is one of them. 0 and 1 require nothing. The peer's own requirement applies as well.
    pub require_paths: u8,
    /// Capabilities of the host that are listed to the peer. Without one of them the connection behaves as with a peer that lacks it. The
    /// models that show the purpose of each capability are also checked without it.
    pub capabilities: Capabilities,
    /// When paths in use are asked for another share.
    pub ratchet: Ratchet,
    /// For connections that this host opens: the application has declared that its first bytes may be delivered twice, to two instances of
    /// the server. They are then repeated to each instance that answers.
    pub may_repeat: bool,
    /// For connections that this host accepts: answer with flag C (RFC 8684, section 3.1), because a balancer in front of the address may
    /// lead a join to another host. Peers then join only announced addresses, and send only OPENING until it is acknowledged.
    pub denies_initial: bool,
}

/// How long keys are used until a path is asked for another share. The limit that is reached first applies. An attacker that has stolen the
/// memory of a host can read no more than that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratchet {
    /// Time during which bytes were sent.
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
    /// Settings for connections that this host opens: sealing required, all handshakes.
    pub fn opener(settings: Arc<dyn Handshakes>) -> Self {
        Self { opener: Some(settings), ..Self::default() }
    }

    /// Settings for connections that this host accepts: sealing required, all handshakes.
    pub fn listener(settings: Arc<dyn Handshakes>) -> Self {
        Self { listener: Some(settings), ..Self::default() }
    }

    /// Handshakes that our SYNs may offer.
    pub(crate) fn teps_to_open(&self) -> Vec<Tep> {
        self.teps_of(self.opener.as_ref())
    }

    /// Handshakes that our SYN/ACKs may accept.
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
            // A silent path is given up after a minute. The connection then waits for another path for `Config::no_subflow_timeout`.
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
    /// Two handshake settings are equal if they are the same value in memory.
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
