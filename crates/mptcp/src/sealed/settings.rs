//! What can be chosen about a sealed connection.

use base::Duration;
use handshake::{ListenerSettings, OpenerSettings, Policy, Tep};
use std::sync::Arc;

/// Settings of a sealed connection.
#[derive(Clone, Debug)]
pub struct SealedSettings {
    /// What happens where the peer, or the way to it, does not let us seal.
    pub policy: Policy,
    /// Handshakes, best first.
    pub teps: Vec<Tep>,
    /// What connections that we open bring along.
    pub opener: Option<Arc<OpenerSettings>>,
    /// What connections that we accept bring along.
    pub listener: Option<Arc<ListenerSettings>>,
    /// How long the handshake may take from the SYN/ACK on.
    pub handshake_patience: Duration,
}

impl SealedSettings {
    /// For connections that we open: required, all handshakes.
    pub fn opener(settings: Arc<OpenerSettings>) -> Self {
        Self { opener: Some(settings), ..Self::default() }
    }

    /// For connections that we accept: required, all handshakes.
    pub fn listener(settings: Arc<ListenerSettings>) -> Self {
        Self { listener: Some(settings), ..Self::default() }
    }
}

impl Default for SealedSettings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            teps: Tep::ALL.to_vec(),
            opener: None,
            listener: None,
            handshake_patience: Duration::from_secs(20),
        }
    }
}

impl PartialEq for SealedSettings {
    /// Settings of the handshakes are the same if they are one value.
    fn eq(&self, other: &Self) -> bool {
        let Self { policy, teps, opener, listener, handshake_patience } = self;
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
            && *handshake_patience == other.handshake_patience
    }
}
