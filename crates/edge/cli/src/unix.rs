//! Users and signals on Unix.

use std::fs;
use std::sync::LazyLock;

use nix::unistd::geteuid;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP.
pub(crate) const HANGUP: i32 = 1;

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether SIGHUP was ignored when this was first asked, as nohup has it. It stays ignored then.
pub(crate) fn ignores_hangup() -> bool {
    static IGNORED: LazyLock<bool> = LazyLock::new(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let signals = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let signals = signals.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or_default();
        signals & (1 << (HANGUP - 1)) != 0
    });
    *IGNORED
}

/// The SIGHUPs of this process from now on. A program that ignores SIGHUP, as nohup has it, does not begin to receive it.
#[derive(Debug)]
pub(crate) struct Hangups(Option<Signal>);

impl Hangups {
    pub(crate) fn listen() -> Self {
        Self((!ignores_hangup()).then(|| signal(SignalKind::hangup()).ok()).flatten())
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
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
        _ = hangup.recv(), if !ignores_hangup() => kinds.2,
    };
    kind.as_raw_value()
}

/// Calls `reopen` at each SIGUSR1. Never returns.
pub(crate) async fn at_each_reopening(reopen: impl Fn()) {
    let Ok(mut signals) = signal(SignalKind::user_defined1()) else { return std::future::pending().await };
    while signals.recv().await.is_some() {
        reopen();
    }
}
