//! Service managers: none is told anything.

use std::time::Duration;

use crate::running::Running;

/// Nothing.
#[derive(Debug)]
pub(crate) struct Service;

/// No service manager waits for messages.
pub(crate) fn is_supervised() -> bool {
    false
}

impl Service {
    pub(crate) fn new(_running: &Running) -> Self {
        Self
    }

    pub(crate) async fn is_ready(&mut self) {}

    pub(crate) async fn stops(&self, _farewell: Duration) {}
}
