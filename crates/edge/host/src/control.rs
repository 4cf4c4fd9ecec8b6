//! Changes the use of paths while connections run over them.

use std::sync::Arc;

use plait_mptcp::Path;

use crate::carriers::PathCarriers;
use crate::error::Error;
use crate::network_monitor::Requests;
use crate::networks::RuleChange;
use crate::path_rule::PathRule;
use crate::shared::Shared;
use crate::shared_networks::SharedNetwork;

/// Reads the state of the paths of a [`crate::Host`] and changes their use. It may outlive the host, and then has
/// no effect.
#[derive(Clone)]
pub struct PathControl {
    shared: Arc<Shared>,
    requests: Requests,
}

impl PathControl {
    pub(crate) fn new(shared: Arc<Shared>, requests: Requests) -> Self {
        Self { shared, requests }
    }

    /// The paths and their current state.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        self.shared.lock().endpoint.paths().iter().cloned().collect()
    }

    /// The carriers of the paths.
    #[must_use]
    pub fn carriers(&self) -> PathCarriers {
        self.shared.lock().carriers.clone()
    }

    /// The networks that several devices of the paths share. Such devices count as one path.
    #[must_use]
    pub fn shared_networks(&self) -> Vec<SharedNetwork> {
        self.shared.lock().shared_networks.iter().cloned().collect()
    }

    /// The reason that an optional path over TCP is missing; `None` if there is one, or none was requested.
    #[must_use]
    pub fn tcp_missing(&self) -> Option<String> {
        self.shared.lock().tcp_missing.clone()
    }

    /// Adds the paths over the devices that this rule selects. Connections join over them. Dropping the future after its first poll undoes
    /// nothing, here and below.
    ///
    /// # Errors
    /// The host has a rule for these devices, or has ended; or the state of the network cannot be read: then it is followed later.
    pub async fn add(&self, rule: PathRule) -> Result<(), Error> {
        self.requests.change_rules(RuleChange::Add(rule)).await
    }

    /// Sets the class of the paths by this rule, or of one path among those of a pattern, and whether it is a backup. Connections tell their
    /// peers by MP_PRIO (RFC 8684, section 3.3.8), and leave a path that must carry nothing.
    ///
    /// # Errors
    /// The host has no such path, or has ended; or the state of the network cannot be read, as above.
    pub async fn set(&self, rule: PathRule) -> Result<(), Error> {
        self.requests.change_rules(RuleChange::Set(rule)).await
    }

    /// Removes the rule for these devices. Connections leave the paths that no other rule selects.
    ///
    /// # Errors
    /// The host has no rule for these devices, or has ended; or the state of the network cannot be read, as above.
    pub async fn remove(&self, rule: PathRule) -> Result<(), Error> {
        self.requests.change_rules(RuleChange::Remove(rule)).await
    }
}

impl std::fmt::Debug for PathControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PathControl").finish_non_exhaustive()
    }
}
