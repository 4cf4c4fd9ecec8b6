//! Connections of programs that cannot be accepted yet, most likely because no file descriptor is free.

use std::io;
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The failures of one listener.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    logged: Option<Instant>,
}

impl Shortage {
    /// Waits a moment after a failed accept: the connection stays in the kernel until some descriptors are free. Logs the failure, unless the
    /// log has a recent one.
    pub(crate) async fn wait(&mut self, error: &io::Error) {
        if self.logged.is_none_or(|logged| logged.elapsed() >= INTERVAL) {
            self.logged = Some(Instant::now());
            tracing::warn!(
                "connections wait: {error}\n  fix: if too many files are open, a higher limit (LimitNOFILE= of systemd, ulimit -Hn)"
            );
        }
        sleep(PAUSE).await;
    }
}

/// Time between two lines of the log.
const INTERVAL: Duration = Duration::from_secs(60);
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(100);
