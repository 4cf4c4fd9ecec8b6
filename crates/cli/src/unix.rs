//! Users and signals on Unix.

use nix::unistd::geteuid;
use tokio::signal::unix::{SignalKind, signal};

/// SIGHUP.
pub(crate) const HANGUP: i32 = 1;

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Waits for SIGINT, SIGTERM or SIGHUP: its number; never ready if they cannot be caught.
pub(crate) async fn caught() -> i32 {
    let kinds = (SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup());
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(kinds.0), signal(kinds.1), signal(kinds.2))
    else {
        return std::future::pending().await;
    };
    let kind = tokio::select! {
        _ = interrupt.recv() => kinds.0,
        _ = terminate.recv() => kinds.1,
        _ = hangup.recv() => kinds.2,
    };
    kind.as_raw_value()
}
