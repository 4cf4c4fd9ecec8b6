//! The sending half of a connection.

use plait_base::{Duration, Instant, SeqNum};
use plait_wire::IpVersion;

use crate::Config;
use crate::congestion::Controller;
use crate::delivery_rate::DeliveryRate;
use crate::flight::Flight;
use crate::pace::Pace;
use crate::path_mtu::PathMtu;
use crate::rack::Rack;
use crate::recovery::Recovery;
use crate::rtt::Rtt;
use crate::send_queue::SendQueue;
use crate::send_window::SendWindow;
use crate::tail_probe::TailProbe;

/// How far our side of the stream is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    /// More records may come.
    Open,
    /// A FIN follows the last record.
    Wanted,
    /// It was sent.
    Sent,
}

/// Use of the congestion window by the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unused {
    since: Instant,
    /// Bytes.
    most: u64,
}

impl Unused {
    /// Notes that new data has left, with `in_flight` bytes in flight. Returns the largest use if the window was not full for `rto`.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        in_flight: u64,
        is_full: bool,
        rto: Duration,
    ) -> Option<u64> {
        self.most = self.most.max(in_flight);
        if is_full {
            *self = Self { since: now, most: 0 };
            return None;
        }
        (now.saturating_since(self.since) > rto)
            .then(|| core::mem::replace(self, Self { since: now, most: in_flight }).most)
    }
}

/// The sending half.
pub(crate) struct Sender {
    pub(crate) isn: SeqNum,
    /// SND.UNA and SND.NXT.
    pub(crate) una: u64,
    pub(crate) next: u64,
    pub(crate) finish: Finish,
    pub(crate) queue: SendQueue,
    pub(crate) flight: Flight,
    pub(crate) window: SendWindow,
    pub(crate) rtt: Rtt,
    pub(crate) rack: Rack,
    pub(crate) probe: TailProbe,
    pub(crate) recovery: Recovery,
    pub(crate) congestion: Controller,
    pub(crate) delivery_rate: DeliveryRate,
    pub(crate) pace: Pace,
    pub(crate) path: PathMtu,
    pub(crate) peer_mss: u16,
    /// Duplicate acknowledgments of a peer without SACK.
    pub(crate) dup_acks: u32,
    /// Bytes sent again of which no D-SACK has said that they arrived twice.
    pub(crate) unreported: u64,
    /// Whether the next lost segment leaves whatever the window is.
    pub(crate) forced: bool,
    /// The peer's window is used up to the last byte though it is small (RFC 9293, section 3.8.6.2.1).
    pub(crate) overriding: bool,
    /// Retransmission timeouts in a row: since the last acknowledged byte, or since the last answer of a peer with a closed window.
    pub(crate) timeouts: u8,
    /// Window probes without answer.
    pub(crate) window_probes: u8,
    /// Window probes since the window was last open.
    pub(crate) persist_backoff: u8,
    /// Data below this offset left while the congestion window was full.
    pub(crate) limited_until: u64,
    /// Since when the congestion window has not been full, and the most that was in flight since.
    pub(crate) unused: Unused,
    /// End of the last segment that was not full (Nagle).
    pub(crate) small_until: u64,
    /// Bytes of the owner that are in flight beside the stream.
    pub(crate) beside: u32,
    /// Where the retransmission timeout counts from.
    pub(crate) rto_from: Instant,
    pub(crate) last_sent: Instant,
    pub(crate) progress_at: Instant,
}

impl Sender {
    /// Before anything was sent; the segment size and the first window follow from the MTU.
    pub(crate) fn new(now: Instant, config: &Config, isn: SeqNum, version: IpVersion) -> Self {
        let path = PathMtu::new(config.mtu, version);
        let window = u32::from(config.initial_window.max(1)) * u32::from(path.mss());
        Self {
            isn,
            una: 0,
            next: 1,
            finish: Finish::Open,
            queue: SendQueue::new(),
            flight: Flight::default(),
            window: SendWindow::default(),
            rtt: Rtt::new(config.min_rto, config.syn_timeout).with_longest(config.longest_syn_wait),
            rack: Rack::default(),
            probe: TailProbe::default(),
            recovery: Recovery::new(),
            congestion: Controller::new(config.congestion, path.mss(), window),
            delivery_rate: DeliveryRate::new(now),
            pace: Pace::default(),
            path,
            peer_mss: path.mss(),
            dup_acks: 0,
            unreported: 0,
            forced: false,
            overriding: false,
            timeouts: 0,
            window_probes: 0,
            persist_backoff: 0,
            limited_until: 0,
            unused: Unused { since: now, most: 0 },
            small_until: 0,
            beside: 0,
            rto_from: now,
            last_sent: now,
            progress_at: now,
        }
    }

    /// The sequence number at `offset`.
    pub(crate) fn seq(&self, offset: u64) -> SeqNum {
        self.isn + offset as u32
    }

    /// Largest segment, options included, that path and peer take.
    pub(crate) fn mss(&self) -> u16 {
        self.path.mss().min(self.peer_mss)
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.queue.end().saturating_sub(self.next)
    }

    /// Whether there is anything that the peer must acknowledge, sent or not.
    pub(crate) fn owes(&self) -> bool {
        !self.flight.is_empty() || self.unsent() > 0 || self.finish == Finish::Wanted
    }
}
