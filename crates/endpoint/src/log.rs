//! Logs, where the feature `tracing` is on; else the macros are empty, and what they would have said is not even computed.
//!
//! `info` tells of connections and paths that come and go, without addresses; `debug` of what is dropped, refused or limited, and why;
//! `trace` of each segment that belongs to no connection (the others are told of by `tcp`). Values are fields. Payload and options never are.

#[cfg(feature = "tracing")]
mod on {
    use plait_mptcp::Status;

    use crate::ConnectionId;

    pub(crate) use tracing::{debug, info, trace};

    /// What is said while this runs is said of the connection.
    pub(crate) fn within<T>(id: ConnectionId, act: impl FnOnce() -> T) -> T {
        tracing::debug_span!("connection", id = id.0).in_scope(act)
    }

    /// Of what this does nothing is said: it is done for an answer to a stranger.
    pub(crate) fn unheard<T>(act: impl FnOnce() -> T) -> T {
        tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), act)
    }

    /// What protects the bytes of a connection, in words.
    pub(crate) fn protection(status: &Status) -> String {
        if let Some(sealed) = &status.sealed
            && let Some(suite) = sealed.suite
        {
            return format!("sealed by {suite} after {}", sealed.handshake.unwrap_or("no handshake"));
        }
        let is_scrambled = status.scrambling.is_some();
        if is_scrambled { "scrambled, which is not encryption" } else { "none" }.to_owned()
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::ConnectionId;

    macro_rules! nothing {
        ($($field:tt)*) => {};
    }

    pub(crate) use {nothing as debug, nothing as info, nothing as trace};

    pub(crate) fn within<T>(_: ConnectionId, act: impl FnOnce() -> T) -> T {
        act()
    }

    pub(crate) fn unheard<T>(act: impl FnOnce() -> T) -> T {
        act()
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{debug, info, trace, unheard, within};
#[cfg(feature = "tracing")]
pub(crate) use on::{debug, info, protection, trace, unheard, within};
