//! Systems without the users and signals of Unix.

/// A signal that never comes.
pub(crate) const HANGUP: i32 = 1;

/// SIGINT on Unix: what Ctrl-C is there.
const INTERRUPT: i32 = 2;

/// Returns false: root has no separate directories here, and no environment made by other users.
pub(crate) fn is_root() -> bool {
    false
}

/// There is no SIGHUP.
pub(crate) fn ignores_hangup() -> bool {
    true
}

/// Waits for Ctrl-C; never ready if it cannot be caught.
pub(crate) async fn caught() -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => INTERRUPT,
        Err(_) => std::future::pending().await,
    }
}

/// No signal opens log files again.
pub(crate) async fn at_each_reopening(_reopen: impl Fn()) {
    std::future::pending().await
}
