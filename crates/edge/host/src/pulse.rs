//! Evidence that the event loop turns, for watchdogs.

use std::sync::Arc;

use crate::shared::Shared;

/// Counts the turns of the event loop of a [`crate::Host`]. It may outlive the host, whose loop then turns no more.
#[derive(Clone)]
pub struct Pulse {
    shared: Arc<Shared>,
}

impl Pulse {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns the number of turns so far, and asks for another one. A number that is still the same at the next call, some time later,
    /// means that the event loop hangs or has ended.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.shared.wake.ask();
        self.shared.turns()
    }
}

impl std::fmt::Debug for Pulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pulse").finish_non_exhaustive()
    }
}
