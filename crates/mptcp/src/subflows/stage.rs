//! The handshake that opens a subflow, and the progress of the subflow.

use plait_base::Instant;

/// The handshake that opened a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// MP_CAPABLE, by us.
    FirstActive,
    /// MP_CAPABLE, by the peer.
    FirstPassive,
    /// MP_JOIN, by us.
    JoinActive {
        nonce: u32,
        /// Taken from the SYN/ACK.
        peer_nonce: Option<u32>,
    },
    /// MP_JOIN, by the peer.
    JoinPassive { nonce: u32, peer_nonce: u32 },
}

/// Progress of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Its handshake is not complete.
    Opening,
    /// Joined by us. The third ACK is repeated until the peer shows that it has received it.
    Unconfirmed {
        /// When to repeat it.
        again: Instant,
        /// How often it was repeated.
        tries: u8,
    },
    /// In use.
    Open,
    /// It is being closed and carries nothing new.
    Leaving,
    /// TCP has ended; TIME-WAIT may be running.
    Over,
}
