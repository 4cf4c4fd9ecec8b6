//! What there is to say about a connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ::plait_host::{Negotiated, PeerIdentity};
use plait_handshake::Fingerprint;

/// Who the peer of a connection is, as far as it was proved.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Peer {
    /// Nobody knows: the connection is not sealed.
    Unknown,
    /// Nobody in particular: encrypted, not authenticated.
    Anonymous,
    /// The owner of this key.
    Key(Fingerprint),
    /// The owner of a certificate that our authorities vouch for.
    Certificate,
}

/// A connection at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    status: ::plait_host::Status,
    paths: Vec<::plait_host::Path>,
}

/// One subflow of a connection: a path of ours and an address of the peer.
#[derive(Clone, Debug)]
pub struct Subflow {
    subflow: ::plait_host::SubflowStatus,
    device: String,
    local: SocketAddr,
}

/// Looks at a connection that others read and write, and can end it. It keeps the connection from being let go of.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub(crate) inner: ::plait_host::Monitor,
    pub(crate) control: ::plait_host::PathControl,
}

impl Monitor {
    /// The connection now; `None` when its host is gone.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        Some(Status { status: self.inner.status()?, paths: self.control.paths() })
    }

    /// Ends the connection at once, in both directions.
    pub fn abort(&self) {
        self.inner.abort();
    }
}

impl Status {
    /// Whether it is Multipath TCP, and not TCP that it fell back to.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        matches!(self.status.negotiated, Negotiated::Multipath { .. })
    }

    /// Whether its bytes are encrypted and authenticated.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.status.sealed.as_ref().is_some_and(|sealed| sealed.suite.is_some())
    }

    /// The cipher suite, by name, if it is sealed.
    #[must_use]
    pub fn cipher_suite(&self) -> Option<&str> {
        self.status.sealed.as_ref()?.suite
    }

    /// Who the peer is.
    #[must_use]
    pub fn peer(&self) -> Peer {
        let sealed = self.status.sealed.as_ref().filter(|sealed| sealed.suite.is_some());
        match sealed.map(|sealed| &sealed.peer) {
            None => Peer::Unknown,
            Some(PeerIdentity::Anonymous) => Peer::Anonymous,
            Some(PeerIdentity::Certificate) => Peer::Certificate,
            Some(PeerIdentity::Key { fingerprint, .. }) => {
                fingerprint.parse().map_or(Peer::Anonymous, Peer::Key)
            }
        }
    }

    /// Its subflows, those that have ended among them.
    #[must_use]
    pub fn subflows(&self) -> Vec<Subflow> {
        self.status.subflows.iter().map(|subflow| self.subflow(subflow)).collect()
    }

    /// Bytes that were written and that the peer has acknowledged.
    #[must_use]
    pub fn bytes_delivered(&self) -> u64 {
        self.status.bytes_delivered
    }

    /// Bytes that were read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.status.bytes_read
    }

    /// Time since it was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.status.age
    }

    fn subflow(&self, subflow: &::plait_host::SubflowStatus) -> Subflow {
        let path = self.paths.iter().find(|path| path.id == subflow.path);
        // The stack's own addresses are private: what others see is the device's.
        let public = path.and_then(|path| match subflow.tuple.local.ip() {
            IpAddr::V4(_) => path.public_v4.map(IpAddr::V4),
            IpAddr::V6(_) => path.public_v6.map(IpAddr::V6),
        });
        let local = SocketAddr::new(public.unwrap_or(subflow.tuple.local.ip()), subflow.tuple.local.port());
        let device = path.map_or_else(String::new, |path| path.name.clone());
        Subflow { subflow: subflow.clone(), device, local }
    }
}

impl Subflow {
    /// The device of its path.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Our address on it, as others see it without another address translation in between.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.subflow.tuple.remote
    }

    /// Whether data can be sent on it now.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.subflow.usable
    }

    /// Whether it is used only when no other works, by our wish or the peer's.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.subflow.backup
    }

    /// The smoothed round-trip time, once there is one.
    #[must_use]
    pub fn round_trip_time(&self) -> Option<Duration> {
        self.subflow.tcp.srtt
    }

    /// Bytes sent on it for the first time.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.subflow.tcp.bytes_sent
    }

    /// Bytes received on it.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.subflow.tcp.bytes_received
    }
}
