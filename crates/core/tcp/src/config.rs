//! Settings of a connection.

use plait_base::Duration;

use crate::congestion;

/// Keep-alive probing (RFC 9293, section 3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub probes: u8,
}

/// Explicit congestion notification (RFC 3168): whether routers may mark packets where they would drop them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// ECN is neither requested nor accepted.
    #[default]
    Off,
    /// ECN is accepted if the peer requests it, including Accurate ECN (RFC 9768) (Linux: `net.ipv4.tcp_ecn=5`, from 6.19 on).
    Answer,
    /// The first SYN requests ECN, and Accurate ECN if the peer has it. A repeated SYN does not (`net.ipv4.tcp_ecn=3`).
    Ask,
}

/// Settings of one connection; [`Config::default`] is what a host uses on the Internet.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// MTU of the local link, IP header included, in bytes.
    pub mtu: u16,
    /// Largest window this host will ever offer, in bytes; gives the window scale.
    pub max_receive_window: u32,
    /// Offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Send small segments at once (no Nagle, RFC 9293 section 3.7.4).
    pub no_delay: bool,
    /// Longest time an acknowledgment is held back (RFC 9293, section 3.8.6.3; at most 500 ms).
    pub delayed_ack: Duration,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Congestion control.
    pub congestion: congestion::Algorithm,
    /// Spread segments over the round trip instead of sending windows in bursts, in super-segments of about a millisecond
    /// of the rate: twice the window per round trip in slow start, 1.2 times later.
    pub pacing: bool,
    /// Initial window, in segments (RFC 6928).
    pub initial_window: u8,
    /// Lower bound of the retransmission timeout (RFC 6298 says 1 s; hosts today use 200 ms).
    pub min_rto: Duration,
    /// Probing of silent connections, off by default (RFC 9293, section 3.8.4).
    pub keep_alive: Option<KeepAlive>,
    /// Give up when data stays unacknowledged for so long (RFC 9293, section 3.8.3). `None`: by count of retries.
    pub user_timeout: Option<Duration>,
    /// Time until a SYN or SYN/ACK without an answer is repeated for the first time (RFC 6298, section 2.1: 1 s); doubles.
    pub syn_timeout: Duration,
    /// How long an unanswered SYN of an active open is repeated at intervals of `syn_timeout`, before these double. Zero as in RFC 6298,
    /// section 5.5; Linux repeats the first four SYNs so (`tcp_syn_linear_timeouts`).
    pub steady_syns: Duration,
    /// The longest wait before a SYN, or its answer, is sent again: the waits double up to there.
    pub longest_syn_wait: Duration,
    /// Attempts to open before giving up; a SYN/ACK is repeated five times at most.
    pub syn_retries: u8,
    /// Retransmissions of the same data before giving up.
    pub retries: u8,
    /// How long TIME-WAIT lasts (2 MSL).
    pub time_wait: Duration,
    /// Longest payload of an outgoing super-segment, in bytes; the segment size where there is no offload.
    pub max_super_segment: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 1500,
            max_receive_window: 16 << 20,
            timestamps: true,
            sack: true,
            no_delay: false,
            delayed_ack: Duration::from_millis(40),
            ecn: Ecn::Off,
            congestion: congestion::Algorithm::default(),
            pacing: true,
            initial_window: 10,
            min_rto: Duration::from_millis(200),
            keep_alive: None,
            user_timeout: None,
            syn_timeout: Duration::from_secs(1),
            steady_syns: Duration::ZERO,
            longest_syn_wait: Duration::from_secs(120),
            syn_retries: 6,
            retries: 15,
            time_wait: Duration::from_secs(60),
            max_super_segment: 64_768,
        }
    }
}
