//! Statistics of a connection.

use plait_base::Duration;

use crate::connection::Connection;
use crate::sender::Sender;

/// Statistics of one connection, for schedulers and for display.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stats {
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Its variation.
    pub rttvar: Duration,
    /// Smallest sample.
    pub min_rtt: Option<Duration>,
    /// Current retransmission timeout, back-off included.
    pub rto: Duration,
    /// Timeouts in a row without progress.
    pub backoff: u8,
    /// Congestion window, bytes.
    pub congestion_window: u32,
    /// Slow start threshold, bytes.
    pub slow_start_threshold: u32,
    /// Delivery rate of the path in bytes per second, by the last sample that the owner has not limited, or a larger one since
    /// (draft-ietf-ccwg-bbr, section 4.1).
    pub delivery_rate: Option<u64>,
    /// Whether the path may be faster than that, as its owner had nothing to send when it was measured.
    pub delivery_rate_app_limited: bool,
    /// Bytes in flight (sent, not known to be delivered or lost).
    pub in_flight: u32,
    /// Payload bytes sent for the first time.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Wire segments sent (a super-segment counts as many).
    pub segments_sent: u64,
    /// Those of them that have data.
    pub data_segments_sent: u64,
    /// Wire segments received.
    pub segments_received: u64,
    /// Wire segments declared lost.
    pub segments_lost: u64,
    /// D-SACKs about bytes that were sent once: copies made by the network, or reports forged by the peer (RFC 2883).
    pub copies_reported: u64,
    /// Our data is ECN-capable (RFC 3168).
    pub ecn: bool,
    /// Whether marks are counted (Accurate ECN, RFC 9768).
    pub accurate_ecn: bool,
    /// Wire segments with data that arrived with the mark "congestion experienced".
    pub marks_received: u64,
    /// Wire segments of ours that the peer reported as marked: their number if the peer counts them (RFC 9768), else one for each
    /// acknowledgment with a report.
    pub marks_told: u64,
    /// Reductions of the window because the peer told of marks.
    pub mark_reductions: u64,
    /// Reductions that turned out to be mistakes.
    pub spurious_recoveries: u64,
    /// Segments dropped on arrival, all reasons.
    pub segments_dropped: u64,
    /// Longest packet sent, in bytes, IP header included, except for MTU probes.
    pub mtu: u16,
    /// Longest packet that is known to have arrived; 0 if none is.
    pub proven_mtu: u16,
    /// Longest packet of our own link.
    pub link_mtu: u16,
    /// Longest packet with data that was accepted, in bytes, IP header included; 0 while there is none.
    pub longest_received: u16,
}

impl Connection {
    /// Figures.
    pub fn stats(&self) -> Stats {
        let Sender { rtt, congestion, flight, .. } = &self.send;
        Stats {
            srtt: rtt.smoothed(),
            rttvar: rtt.variation(),
            min_rtt: rtt.minimum(),
            rto: rtt.rto(),
            backoff: self.send.timeouts,
            congestion_window: congestion.window(),
            slow_start_threshold: congestion.slow_start_threshold(),
            delivery_rate: self.send.delivery_rate.rate(),
            delivery_rate_app_limited: self.send.delivery_rate.is_rate_app_limited(),
            in_flight: u32::try_from(flight.in_flight()).unwrap_or(u32::MAX),
            ecn: self.ecn.is_capable(),
            accurate_ecn: self.ecn.is_accurate(),
            mtu: self.send.path.mtu(),
            proven_mtu: self.send.path.proven(),
            link_mtu: self.send.path.link(),
            ..self.stats
        }
    }
}
