//! Opening: SYN-SENT, SYN-RECEIVED and the negotiation of options (RFC 9293, sections 3.5 and 3.10.7.3).

use plait_base::{Duration, Instant};
use plait_wire::{Flags, IpVersion, Segment};

use crate::ack_policy::Urgency;
use crate::congestion::Controller;
use crate::connection::{Connection, Role};
use crate::header_options::SynOptions;
use crate::log;
use crate::send_window::SendWindow;
use crate::{Arrival, Closed, DropReason, Event, State, Timer};

/// Assumed segment size of a peer that sends none (RFC 9293, section 3.7.1).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1220;
/// Smallest segment size accepted (RFC 9293, section 3.7.1, MUST-16). Options take up to 40 bytes of it, and a mapping with timestamps
/// takes 38: eight bytes of payload are left. With a smaller size most of the bytes would be headers, and with 40 all of them. A peer that
/// sends a smaller size gets segments of this one, as from Linux (`net.ipv4.tcp_min_snd_mss`).
const MIN_PEER_MSS: u16 = 48;
/// Time between answers to repetitions of a SYN: as Linux has it (`tcp_invalid_ratelimit`). An honest peer waits longer.
const REPEATED_SYN_INTERVAL: Duration = Duration::from_millis(500);
/// Repetitions of an unanswered SYN/ACK, as in Linux (`tcp_synack_retries`). The peer's address may be forged and belong to a host that did
/// not ask for them.
pub(crate) const SYN_ACK_RETRIES: u8 = 5;
/// The resolution of timestamps.
const STAMP_TICK: Duration = Duration::from_millis(1);

/// The handshake, as long as it lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) role: Role,
    /// SYN or SYN/ACK segments sent.
    pub(crate) attempts: u8,
    /// When the first one left, and the last.
    pub(crate) began_at: Instant,
    pub(crate) sent_at: Instant,
    /// The peer has answered a repetition, and not the first.
    pub(crate) was_lost: bool,
    /// When a repetition of the peer's SYN was answered last.
    pub(crate) repeat_answered_at: Option<Instant>,
    /// One is to be sent.
    pub(crate) due: bool,
    /// The options of the peer's SYN, once it has arrived.
    pub(crate) theirs: Option<PeerSyn>,
}

/// TCP's own options in the SYN or SYN/ACK of the peer, as it arrived: middleboxes remove and change them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerSyn {
    /// The segment size that it names (RFC 9293, section 3.7.1).
    pub mss: Option<u16>,
    /// Whether it offers to scale windows (RFC 7323).
    pub window_scale: bool,
    /// Whether it permits selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Whether it has a timestamp (RFC 7323).
    pub timestamps: bool,
}

impl Connection {
    /// Whether our SYN, or SYN/ACK, had to be sent again before the peer answered. `false` if the peer has answered the first one late, as
    /// far as timestamps show.
    pub fn has_lost_syn(&self) -> bool {
        self.opening.was_lost
    }

    /// Returns TCP's own options in the SYN or SYN/ACK of the peer, once it has arrived.
    pub fn peer_syn(&self) -> Option<PeerSyn> {
        self.opening.theirs
    }

    /// A segment in SYN-SENT, in the order of RFC 9293, section 3.10.7.3.
    pub(crate) fn arrive_in_syn_sent(&mut self, now: Instant, segment: &Segment) -> Arrival {
        let acks_syn = segment.ack == self.send.seq(1);
        if segment.flags.contains(Flags::ACK) && !acks_syn {
            if !segment.flags.contains(Flags::RST) {
                log::debug!(
                    ack = segment.ack.bits(),
                    "reset: the answer to the SYN acknowledges something else"
                );
                self.reset = Some((segment.ack, false));
            }
            return Arrival::Dropped(DropReason::UnacceptableAck);
        }
        if segment.flags.contains(Flags::RST) {
            if !segment.flags.contains(Flags::ACK) {
                return Arrival::Dropped(DropReason::MissingAck);
            }
            self.close(Closed::Refused);
            return Arrival::Accepted { offset: 1, window: 0 };
        }
        if !segment.flags.contains(Flags::SYN) {
            return Arrival::Dropped(DropReason::MissingAck);
        }
        self.take_syn(now, segment);
        if segment.flags.contains(Flags::ACK) {
            let echo = SynOptions::parse(&segment.options).timestamps.map(|stamp| stamp.echo);
            let sample = self.handshake_sample(now, echo);
            self.establish(now, sample);
            self.receive.acks.want(Urgency::Alone);
        } else {
            // Simultaneous open: our SYN/ACK is a segment of its own, with its own attempts.
            self.state = State::SynReceived;
            self.opening.attempts = 0;
            self.opening.due = true;
        }
        Arrival::Accepted { offset: 1, window: u32::from(segment.window) }
    }

    /// Takes the options of the peer's SYN. Its payload, if any, is ignored, and the peer sends it again.
    pub(crate) fn take_syn(&mut self, now: Instant, syn: &Segment) {
        let offered = SynOptions::parse(&syn.options);
        self.opening.theirs = Some(PeerSyn {
            mss: offered.mss,
            window_scale: offered.scale.is_some(),
            sack: offered.sack,
            timestamps: offered.timestamps.is_some(),
        });
        self.receive.irs = syn.seq;
        self.receive.last_arrival = now;
        let default = match IpVersion::of(&self.tuple.remote.ip()) {
            IpVersion::V4 => DEFAULT_MSS_V4,
            IpVersion::V6 => DEFAULT_MSS_V6,
        };
        self.send.peer_mss = offered.mss.filter(|&mss| mss > 0).unwrap_or(default).max(MIN_PEER_MSS);
        self.send.path.limit(self.send.peer_mss);
        self.sack &= offered.sack;
        self.ecn.on_syn(self.opening.role == Role::Passive, syn);
        match (&mut self.timestamps, offered.timestamps) {
            (Some(clock), Some(stamp)) => clock.start(now, stamp.value),
            (Some(_), None) => self.timestamps = None,
            (None, _) => {}
        }
        let scale = offered.scale.unwrap_or(0);
        if offered.scale.is_none() {
            self.receive.window.forbid_scaling();
        }
        self.send.window = SendWindow::from_syn(syn.window, scale);
    }

    /// The round trip of the handshake: by the time the SYN left if it left once, else by its timestamp.
    pub(crate) fn handshake_sample(&self, now: Instant, echo: Option<u32>) -> Option<Duration> {
        if self.opening.attempts <= 1 {
            return Some(now.saturating_since(self.opening.sent_at));
        }
        self.timestamps?.round_trip(now, echo?)
    }

    /// Whether a round trip of `rtt` that ends now began with the first SYN: then the answer was slow, and nothing was lost.
    fn answers_first(&self, now: Instant, rtt: Duration) -> bool {
        rtt + STAMP_TICK > now.saturating_since(self.opening.began_at)
    }

    /// Our SYN is acknowledged and theirs has arrived.
    pub(crate) fn establish(&mut self, now: Instant, sample: Option<Duration>) {
        let once = self.opening.attempts <= 1 || sample.is_some_and(|rtt| self.answers_first(now, rtt));
        self.opening.was_lost = !once;
        self.state = State::Established;
        self.send.una = 1;
        self.opening.due = false;
        self.timers.stop(Timer::Retransmit);
        if let Some(rtt) = sample {
            self.send.rtt.sample(now, rtt, 1);
        }
        self.send.rtt.handshake_done(!once);
        self.send.progress_at = now;
        // A lost SYN is a sign of congestion (RFC 5681, section 3.1).
        let segments = if once { u32::from(self.config.initial_window.max(1)) } else { 1 };
        let size = self.segment_payload(0);
        let seed = u64::from(self.send.isn.bits()) << 32 | u64::from(self.receive.irs.bits());
        self.send.congestion = Controller::new(self.config.congestion, size, segments * u32::from(size))
            .for_connection(seed, self.sack);
        self.send.pace.restart(self.send.congestion.window().into());
        self.watch_silence(now);
        self.watch_user_timeout(now, true);
        self.report(Event::Established);
    }

    /// Handles a repeated SYN of the peer: our SYN/ACK may be lost and is sent again, unless that was done a moment ago. Copies of a SYN
    /// cause no more answers than from Linux.
    pub(crate) fn answer_repeated_syn(&mut self, now: Instant) {
        let opening = &mut self.opening;
        let is_recent = |at: Instant| now.saturating_since(at) < REPEATED_SYN_INTERVAL;
        if opening.repeat_answered_at.is_some_and(is_recent) {
            return;
        }
        opening.repeat_answered_at = Some(now);
        opening.due = true;
        self.flow_label.draw(now);
    }

    /// In SYN-RECEIVED: a segment that repeats the peer's SYN. One with an ACK is the other half of a
    /// simultaneous open, one without says that our SYN/ACK was lost.
    pub(crate) fn repeats_syn(&mut self, segment: &Segment) -> Option<SynRepeat> {
        let repeats = self.state == State::SynReceived
            && segment.flags.contains(Flags::SYN)
            && segment.seq == self.receive.irs;
        if !repeats {
            return None;
        }
        if !segment.flags.contains(Flags::ACK) {
            return Some(SynRepeat::AnswerLost);
        }
        (self.opening.role == Role::Active && segment.ack == self.send.seq(1)).then_some(SynRepeat::Crossed)
    }
}

/// The meaning of a repeated SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SynRepeat {
    AnswerLost,
    Crossed,
}
