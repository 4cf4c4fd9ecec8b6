//! The subflows of a connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ::plait_host::{Path, SubflowStatus};

use crate::carrier::Carrier;

/// One subflow of a connection, present or past: a path of ours and an address of the peer (RFC 8684, section 1.3).
#[derive(Clone, Debug)]
pub struct Subflow {
    subflow: SubflowStatus,
    device: String,
    local: SocketAddr,
}

impl Subflow {
    pub(crate) fn new(subflow: &SubflowStatus, paths: &[Path]) -> Self {
        let path = paths.iter().find(|path| path.id == subflow.path);
        // The stack's own addresses are private: what others see is the device's.
        let public = path.and_then(|path| match subflow.tuple.local.ip() {
            IpAddr::V4(_) => path.public_v4.map(IpAddr::V4),
            IpAddr::V6(_) => path.public_v6.map(IpAddr::V6),
        });
        let local = SocketAddr::new(public.unwrap_or(subflow.tuple.local.ip()), subflow.tuple.local.port());
        let device = path.map_or_else(String::new, |path| path.name.clone());
        Self { subflow: subflow.clone(), device, local }
    }

    /// Its number on this connection, counted from 0.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.subflow.id.0
    }

    /// The device of its path.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What carries its segments.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        ::plait_host::Carrier::of(self.subflow.path).into()
    }

    /// Our address on it, as others see it without another address translation in between.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Our address on it, as it stands in captures of the stack's packets: a private one that the kernel translates.
    #[must_use]
    pub fn stack_addr(&self) -> SocketAddr {
        self.subflow.tuple.local
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

    /// The smoothed round-trip time (RFC 6298), once there is one.
    #[must_use]
    pub fn round_trip_time(&self) -> Option<Duration> {
        self.subflow.tcp.srtt
    }

    /// The smallest round-trip time so far.
    #[must_use]
    pub fn min_round_trip_time(&self) -> Option<Duration> {
        self.subflow.tcp.min_rtt
    }

    /// The congestion window (RFC 5681), in bytes.
    #[must_use]
    pub fn congestion_window(&self) -> u32 {
        self.subflow.tcp.congestion_window
    }

    /// Bytes of payload sent on it for the first time, those among them that another subflow had sent before.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.subflow.tcp.bytes_sent
    }

    /// Bytes of payload received on it, in order.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.subflow.tcp.bytes_received
    }

    /// Bytes of payload that it has sent more than once.
    #[must_use]
    pub fn bytes_retransmitted(&self) -> u64 {
        self.subflow.tcp.bytes_retransmitted
    }

    /// Bytes that it has sent after another subflow had.
    #[must_use]
    pub fn bytes_reinjected(&self) -> u64 {
        self.subflow.reinjected
    }

    /// Segments sent, as they are on the wire.
    #[must_use]
    pub fn segments_sent(&self) -> u64 {
        self.subflow.tcp.segments_sent
    }

    /// Those of them that have data: the others are not missed where they are lost.
    #[must_use]
    pub fn data_segments_sent(&self) -> u64 {
        self.subflow.tcp.data_segments_sent
    }

    /// Segments received, as they were on the wire.
    #[must_use]
    pub fn segments_received(&self) -> u64 {
        self.subflow.tcp.segments_received
    }

    /// Segments of ours that were taken for lost.
    #[must_use]
    pub fn segments_lost(&self) -> u64 {
        self.subflow.tcp.segments_lost
    }

    /// Segments that came and were not acceptable.
    #[must_use]
    pub fn segments_dropped(&self) -> u64 {
        self.subflow.tcp.segments_dropped
    }

    /// Sealed blocks of the peer that failed verification here: bytes are changed on this path.
    #[must_use]
    pub fn blocks_failed(&self) -> u64 {
        self.subflow.blocks_failed
    }

    /// Option tags that were wrong here: options are changed on this path, or tags are guessed.
    #[must_use]
    pub fn tags_failed(&self) -> u64 {
        self.subflow.tags_failed
    }
}
