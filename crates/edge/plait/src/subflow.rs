//! The subflows of a connection.

use std::net::SocketAddr;
use std::time::Duration;

use ::plait_host::{Closed, Path, PathCarriers, PeerSyn, Seen, SubflowStatus, device_address};

use crate::Carrier;

/// One subflow of a connection, present or past: a path of ours and an address of the peer (RFC 8684, section 1.3).
#[derive(Clone, Debug)]
pub struct Subflow {
    subflow: SubflowStatus,
    device: String,
    carrier: Carrier,
    local: SocketAddr,
}

/// TCP's own options of a SYN, or SYN/ACK, as they have arrived: boxes on the way strip and change them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct SynOptions {
    /// The segment size that it names (RFC 9293, section 3.7.1).
    pub mss: Option<u16>,
    /// Whether it offers to scale windows (RFC 7323).
    pub window_scale: bool,
    /// Whether it permits selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Whether it has a timestamp (RFC 7323).
    pub timestamps: bool,
}

impl From<PeerSyn> for SynOptions {
    fn from(PeerSyn { mss, window_scale, sack, timestamps }: PeerSyn) -> Self {
        Self { mss, window_scale, sack, timestamps }
    }
}

impl From<&Seen> for SynOptions {
    fn from(seen: &Seen) -> Self {
        let has = |bit: u8| seen.options & bit != 0;
        Self {
            mss: Some(seen.mss).filter(|&mss| mss > 0),
            window_scale: has(Seen::WINDOW_SCALE),
            sack: has(Seen::SACK),
            timestamps: has(Seen::TIMESTAMPS),
        }
    }
}

impl Subflow {
    pub(crate) fn new(subflow: &SubflowStatus, paths: &[Path], carriers: &PathCarriers) -> Self {
        let path = paths.iter().find(|path| path.id == subflow.path);
        // The stack's own addresses are private: what others see is the device's.
        let public = path.and_then(|path| device_address(path, subflow.tuple.local.ip()));
        let local = SocketAddr::new(public.unwrap_or(subflow.tuple.local.ip()), subflow.tuple.local.port());
        let device = path.map_or_else(String::new, |path| path.name.clone());
        Self { subflow: subflow.clone(), device, carrier: carriers.of(subflow.path), local }
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

    /// The carrier of its segments.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.carrier
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

    /// The source address of its segments as the peer sees it, if it was asked ([`Stream::ask_view`](crate::Stream::ask_view)). If it differs
    /// from [`Subflow::local_addr`], a NAT has translated it.
    #[must_use]
    pub fn seen_from(&self) -> Option<SocketAddr> {
        self.subflow.seen.map(|seen| seen.address)
    }

    /// How often the peer has said how it sees the subflow.
    #[must_use]
    pub fn times_seen(&self) -> u64 {
        self.subflow.times_seen
    }

    /// TCP's own options of our SYN as they arrived, if the peer was asked and the subflow is one that we have opened.
    #[must_use]
    pub fn our_syn_at_peer(&self) -> Option<SynOptions> {
        self.subflow.seen.as_ref().map(SynOptions::from)
    }

    /// TCP's own options of the peer's SYN or SYN/ACK, as they have arrived.
    #[must_use]
    pub fn peer_syn_here(&self) -> Option<SynOptions> {
        self.subflow.peer_syn.map(SynOptions::from)
    }

    /// The segment size that our SYN has named, in bytes.
    #[must_use]
    pub fn offered_mss(&self) -> u16 {
        self.subflow.tcp.link_mtu.saturating_sub(self.headers())
    }

    /// The longest packet that is sent, in bytes, IP header included; [`Subflow::proven_mtu`] tells what has arrived.
    #[must_use]
    pub fn path_mtu(&self) -> u16 {
        self.subflow.tcp.mtu
    }

    /// The longest packet of ours that is known to have arrived; 0 while none is.
    #[must_use]
    pub fn proven_mtu(&self) -> u16 {
        self.subflow.tcp.proven_mtu
    }

    /// The longest packet that our own device takes.
    #[must_use]
    pub fn link_mtu(&self) -> u16 {
        self.subflow.tcp.link_mtu
    }

    /// The longest packet with data that has arrived from the peer; 0 while none has. Not verified: an attacker on the path may have sent it.
    #[must_use]
    pub fn received_mtu(&self) -> u16 {
        self.subflow.tcp.longest_received
    }

    /// The longest packet that the peer's own device takes, as its SYN or SYN/ACK has arrived; `None` if that names no segment size.
    #[must_use]
    pub fn peer_link_mtu(&self) -> Option<u16> {
        let mss = self.subflow.peer_syn?.mss?;
        Some(mss.saturating_add(self.headers()))
    }

    /// Bytes of the headers of IP and TCP without options.
    fn headers(&self) -> u16 {
        if self.subflow.tuple.local.is_ipv4() { 40 } else { 60 }
    }

    /// Bytes per second that the path has delivered, by the last sample that we have not limited ourselves.
    #[must_use]
    pub fn delivery_rate(&self) -> Option<u64> {
        self.subflow.tcp.delivery_rate
    }

    /// How it has ended, in a few words, if it has.
    #[must_use]
    pub fn end(&self) -> Option<&'static str> {
        Some(match self.subflow.end? {
            Closed::Finished => "closed",
            Closed::ResetByPeer => "reset by the peer, or in its name",
            Closed::Refused => "refused",
            Closed::TimedOut => "not answered",
            Closed::Unreachable => "unreachable",
            Closed::Aborted => "given up here",
        })
    }

    /// Whether the peer has reset it, or another host in the name of the peer.
    pub(crate) fn is_reset(&self) -> bool {
        self.subflow.end == Some(Closed::ResetByPeer)
    }

    /// When something last proved that the peer has it: only on a sealed connection. Counted from an arbitrary moment, the same for all
    /// connections of a host: for comparing.
    #[must_use]
    pub fn verified_at(&self) -> Option<Duration> {
        self.subflow.verified.map(|verified| verified.saturating_since(plait_base::Instant::ZERO))
    }

    /// Whether several questions in a row have gone unanswered since then.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.subflow.doubted
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

    /// Segments with data among them: the loss of other segments is not detected.
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
