//! Log macros. Without the feature `tracing` they are empty, and their arguments are not evaluated.
//!
//! `info` reports connections and paths that come and go, without addresses. `debug` reports dropped, refused or limited events with their
//! reason. `trace` reports each segment that belongs to no connection (`tcp` reports the others). Values are fields. Payload and options
//! are never logged.
//!
//! Up to `debug` an unknown peer cannot fill the log. Of events that any host can cause, a few lines are written. After that, one line at
//! intervals gives the number of further such events (`more_like_it`).

#[cfg(feature = "tracing")]
mod on {
    use core::net::SocketAddr;
    use plait_base::Instant;
    use plait_mptcp::{Negotiated, Status};

    use crate::{ConnectionId, Endpoint};

    /// Lines about segments, for each kind.
    const MOST_OF_SEGMENTS: u32 = 4;
    /// Connections of other hosts that are logged like our own.
    const MOST_CONNECTIONS: u32 = 64;

    impl Endpoint {
        /// Logs the treatment of a segment from an unknown peer.
        pub(crate) fn note_stranger(&mut self, now: Instant, from: SocketAddr, what: &'static str) {
            if let Some(more_like_it) = self.repetitions.note(now, what, MOST_OF_SEGMENTS) {
                debug!(%from, more_like_it, "{what}");
            }
        }

        /// Whether one more connection of another host, to which `what` has happened, is logged.
        pub(crate) fn is_told(&mut self, now: Instant, what: &'static str) -> bool {
            match self.repetitions.note(now, what, MOST_CONNECTIONS) {
                Some(0) => true,
                Some(more_like_it) => {
                    info!(what, more_like_it, "connections of other hosts were not logged");
                    true
                }
                None => false,
            }
        }
    }

    /// Runs `act` as [`within`] does, unless the connection is not logged.
    pub(crate) fn of<T>(id: ConnectionId, is_quiet: bool, act: impl FnOnce() -> T) -> T {
        if is_quiet { unheard(act) } else { within(id, act) }
    }

    pub(crate) use tracing::{debug, info, trace};

    /// Runs `act` in the log span of the connection.
    pub(crate) fn within<T>(id: ConnectionId, act: impl FnOnce() -> T) -> T {
        tracing::debug_span!("connection", id = id.0).in_scope(act)
    }

    /// Runs `act` without logging, for an answer to an unknown peer.
    pub(crate) fn unheard<T>(act: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&tracing::Dispatch::none(), act)
    }

    /// The words in the name of a reason: `TimedOut` is "timed out", `RefusedByPeer(Full)` is "refused by peer (full)".
    pub(crate) fn reason(reason: impl core::fmt::Debug) -> String {
        let mut words = String::new();
        for letter in format!("{reason:?}").chars() {
            if (letter.is_uppercase() && words.ends_with(char::is_alphanumeric)) || letter == '(' {
                words.push(' ');
            }
            words.extend(letter.to_lowercase());
        }
        words
    }

    /// Describes the negotiated protocol.
    pub(crate) fn negotiated(status: &Status) -> String {
        match status.negotiated {
            Negotiated::Opening => "nothing yet".to_owned(),
            Negotiated::Multipath { version, checksum } => {
                let checksums = if checksum { ", with checksums" } else { "" };
                format!("Multipath TCP version {version}{checksums}")
            }
            Negotiated::Plain(why) => format!("plain TCP: {}", reason(why)),
        }
    }

    /// Describes the protection of a connection.
    pub(crate) fn protection(status: &Status) -> String {
        if let Some(sealed) = &status.sealed
            && let Some(suite) = sealed.suite
        {
            return format!("sealed by {suite} after {}", sealed.handshake.unwrap_or("no handshake"));
        }
        let is_scrambled = status.scrambling.is_some();
        if is_scrambled { "scrambled, which is not encryption" } else { "none" }.to_owned()
    }

    #[cfg(test)]
    mod tests {
        use plait_mptcp::ConnectionError;

        use super::reason;

        #[test]
        fn reasons_are_in_words() {
            assert_eq!(reason(ConnectionError::TimedOut), "timed out");
            assert_eq!(
                reason(ConnectionError::RefusedByPeer(plait_mptcp::RefusalReason::NotAuthorized)),
                "refused by peer (not authorized)"
            );
        }
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
pub(crate) use on::{debug, info, negotiated, of, protection, reason, trace, unheard, within};
