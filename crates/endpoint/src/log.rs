//! Logs, where the feature `tracing` is on; else the macros are empty, and what they would have said is not even computed.
//!
//! `info` tells of connections and paths that come and go, without addresses; `debug` of what is dropped, refused or limited, and why;
//! `trace` of each segment that belongs to no connection (the others are told of by `tcp`). Values are fields. Payload and options never are.
//!
//! Up to `debug` a stranger cannot fill the log: of what anybody can bring about a few lines are written, and then one in a while
//! that says how many more there were like it (`more_like_it`).

#[cfg(feature = "tracing")]
mod on {
    use core::net::SocketAddr;
    use plait_base::Instant;
    use plait_mptcp::Status;

    use crate::{ConnectionId, Endpoint};

    /// Lines about segments, for each kind.
    const MOST_OF_SEGMENTS: u32 = 4;
    /// Connections of others that are told of as ours are.
    const MOST_CONNECTIONS: u32 = 64;

    impl Endpoint {
        /// A stranger's segment is treated like this.
        pub(crate) fn note_stranger(&mut self, now: Instant, from: SocketAddr, what: &'static str) {
            if let Some(more_like_it) = self.repetitions.note(now, what, MOST_OF_SEGMENTS) {
                debug!(%from, more_like_it, "{what}");
            }
        }

        /// Whether one more connection of somebody else, to which `what` has happened, is told of.
        pub(crate) fn is_told(&mut self, now: Instant, what: &'static str) -> bool {
            match self.repetitions.note(now, what, MOST_CONNECTIONS) {
                Some(0) => true,
                Some(more_like_it) => {
                    info!(what, more_like_it, "connections of others were not told of");
                    true
                }
                None => false,
            }
        }
    }

    /// As [`within`], unless it is not told of.
    pub(crate) fn of<T>(id: ConnectionId, is_quiet: bool, act: impl FnOnce() -> T) -> T {
        if is_quiet { unheard(act) } else { within(id, act) }
    }

    pub(crate) use tracing::{debug, info, trace};

    /// What is said while this runs is said of the connection.
    pub(crate) fn within<T>(id: ConnectionId, act: impl FnOnce() -> T) -> T {
        tracing::debug_span!("connection", id = id.0).in_scope(act)
    }

    /// Of what this does nothing is said: it is done for an answer to a stranger.
    pub(crate) fn unheard<T>(act: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&tracing::Dispatch::none(), act)
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
    use core::net::SocketAddr;
    use plait_base::Instant;

    use crate::{ConnectionId, Endpoint};

    impl Endpoint {
        pub(crate) fn note_stranger(&mut self, _: Instant, _: SocketAddr, _: &'static str) {}

        pub(crate) fn is_told(&mut self, _: Instant, _: &'static str) -> bool {
            true
        }
    }

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

    pub(crate) fn of<T>(_: ConnectionId, _: bool, act: impl FnOnce() -> T) -> T {
        act()
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{debug, info, of, trace, unheard, within};
#[cfg(feature = "tracing")]
pub(crate) use on::{debug, info, of, protection, trace, unheard, within};
