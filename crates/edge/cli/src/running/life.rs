//! The progress of a connection, and the evidence that its peer still has it.

use std::net::SocketAddr;
use std::time::Duration;

use plait::{Status, Subflow};
use plait_proxy::convert::Instance;

/// One connection, for a monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub(crate) number: u64,
    /// The server of the connection, once it has answered.
    pub(crate) instance: Option<Instance>,
    /// Bytes that the peer has acknowledged.
    pub(crate) delivered: u64,
    /// Bytes that were read.
    pub(crate) read: u64,
    pub(crate) life: Life,
}

/// Evidence that the peer still has the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Life {
    /// The last verification of any of its subflows, on the clock of the host.
    pub(crate) verified: Option<Duration>,
    /// The address of the server on that subflow; the address on the first subflow if none is ever verified.
    pub(crate) server: Option<SocketAddr>,
    /// Whether a verified subflow still exists and answers questions.
    pub(crate) is_there: bool,
}

impl Life {
    pub(super) fn of(status: &Status) -> Self {
        let subflows = status.subflows();
        let latest = subflows.iter().filter(|subflow| subflow.verified_at().is_some());
        let latest = latest.max_by_key(|subflow| subflow.verified_at());
        Self {
            verified: latest.and_then(Subflow::verified_at),
            server: latest.or(subflows.first()).map(Subflow::peer_addr),
            is_there: subflows.iter().any(|subflow| {
                subflow.verified_at().is_some() && !subflow.is_doubted() && subflow.end().is_none()
            }),
        }
    }
}
