//! Changes the use of paths while connections run over them.

use std::sync::Arc;

use plait_mptcp::Path;

use crate::carriers::PathCarriers;
use crate::error::Error;
use crate::network_monitor::Requests;
use crate::path::PathSpec;
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

    /// The same as [`crate::Host::shared_networks`].
    #[must_use]
    pub fn shared_networks(&self) -> Vec<SharedNetwork> {
        self.shared.lock().shared_networks.iter().cloned().collect()
    }

    /// The same as [`crate::Host::tcp_missing`].
    #[must_use]
    pub fn tcp_missing(&self) -> Option<String> {
        self.shared.lock().tcp_missing.clone()
    }

    /// Sets the class of the path of this device, and whether it is a backup. Connections tell their peers by
    /// MP_PRIO (RFC 8684, section 3.3.8), and leave a path that must carry nothing. Dropping the future after its first poll undoes nothing.
    ///
    /// # Errors
    /// The host has no path of this device, or has ended.
    pub async fn set(&self, spec: PathSpec) -> Result<(), Error> {
        self.requests.use_path(spec).await
    }
}

impl std::fmt::Debug for PathControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PathControl").finish_non_exhaustive()
    }
}
