//! Explicit congestion notification (RFC 3168): what the SYNs agree on, what is told to the peer about marks that arrive,
//! and what the peer tells about ours.
//!
//! New data is ECN-capable; SYNs, acknowledgments, probes and whatever is sent again are not (RFC 3168, sections 6.1.1 and
//! 6.1.4 to 6.1.6). Marks and their echoes can be invented by anybody on the path: they halve the window once per round trip,
//! never below its floor, and where that goes on at the floor they are no longer listened to.

use plait_base::Instant;
use plait_wire::{Flags, Segment};

use crate::acknowledgment::clamp;
use crate::connection::Connection;
use crate::log;
use crate::{Ecn, ack_policy::Urgency};

/// ECT(0), the mark of ECN-capable packets, and CE, "congestion experienced" (RFC 3168, section 5).
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// Round trips in a row that tell of congestion though the window cannot shrink any more: the path marks everything, or the
/// peer says so.
const ROUNDS_AT_FLOOR: u8 = 8;

/// Timeouts in a row, each after progress, between which nothing has arrived that was sent once: what is ECN-capable is lost,
/// and what is sent again passes.
const TIMEOUTS_OF_CAPABLE: u8 = 2;

/// Both halves of a connection, as far as ECN goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marking {
    setting: Ecn,
    /// An ECN-setup SYN of ours has left.
    asked: bool,
    /// A SYN without ECN has left or come, so that no data may be ECN-capable (RFC 3168, section 6.1.1).
    withdrawn: bool,
    /// The peer may send ECN-capable data: marks are echoed.
    echoes: bool,
    /// Our data is ECN-capable.
    capable: bool,
    /// ECE is set until the peer says that it has reduced its window.
    echoing: bool,
    /// CWR is due with the next new data.
    reduced: bool,
    /// An echo counts once it acknowledges more than this offset: CWR has arrived then.
    counts_beyond: u64,
    rounds_at_floor: u8,
    timeouts: u8,
}

impl Marking {
    pub(crate) fn new(setting: Ecn) -> Self {
        Self {
            setting,
            asked: false,
            withdrawn: false,
            echoes: false,
            capable: false,
            echoing: false,
            reduced: false,
            counts_beyond: 0,
            rounds_at_floor: 0,
            timeouts: 0,
        }
    }

    /// Whether our data is ECN-capable.
    pub(crate) fn is_capable(&self) -> bool {
        self.capable && !self.withdrawn
    }

    /// What our SYN or SYN/ACK says beside SYN and ACK. A SYN that is repeated does not ask: something on the path may drop
    /// those that do (RFC 3168, section 6.1.1.1).
    pub(crate) fn syn_flags(&mut self, answers: bool, attempt: u8) -> Flags {
        if answers {
            return if self.is_capable() { Flags::ECE } else { Flags::default() };
        }
        if self.setting == Ecn::Ask && attempt == 0 {
            self.asked = true;
            return Flags::ECE.with(Flags::CWR);
        }
        self.withdrawn = true;
        Flags::default()
    }

    /// The peer's SYN, where we open passively, or its SYN/ACK. An answer that mirrors both flags agrees to nothing, nor does
    /// a SYN whose IP header says something already: the path misuses these bits.
    pub(crate) fn on_syn(&mut self, passive: bool, syn: &Segment) {
        let (ece, cwr) = (syn.flags.contains(Flags::ECE), syn.flags.contains(Flags::CWR));
        let agreed = if syn.flags.contains(Flags::ACK) {
            self.asked && ece && !cwr
        } else {
            passive && self.setting != Ecn::Off && ece && cwr && syn.ecn == 0
        };
        self.echoes = agreed;
        self.capable = agreed;
    }

    /// The peer's SYN came again. What it sends meanwhile may be ECN-capable all the same.
    pub(crate) fn on_repeated_syn(&mut self, syn: &Segment) {
        self.withdrawn |= !syn.flags.contains(Flags::ECE.with(Flags::CWR));
    }

    /// Data arrived. Returns whether there is something new to tell.
    fn on_data(&mut self, segment: &Segment) -> bool {
        if !self.echoes {
            return false;
        }
        let before = self.echoing;
        self.echoing &= !segment.flags.contains(Flags::CWR);
        self.echoing |= segment.ecn == CE;
        self.echoing != before
    }

    /// What a segment says that acknowledges.
    pub(crate) fn ack_flags(&self) -> Flags {
        if self.echoing { Flags::ECE } else { Flags::default() }
    }

    /// Marks new data that leaves.
    pub(crate) fn on_new_data(&mut self, segment: &mut Segment) {
        if !self.is_capable() || segment.payload.is_empty() {
            return;
        }
        segment.ecn = ECT_0;
        if core::mem::take(&mut self.reduced) {
            segment.flags = segment.flags.with(Flags::CWR);
        }
    }

    /// The window was reduced, for whatever reason, when all before `next` had left (RFC 3168, section 6.1.2).
    pub(crate) fn on_reduction(&mut self, next: u64) {
        self.reduced = true;
        self.counts_beyond = next;
    }

    /// The retransmission timer fired for the first time since there was progress.
    pub(crate) fn on_timeout(&mut self, next: u64) {
        self.on_reduction(next);
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= TIMEOUTS_OF_CAPABLE && self.is_capable() {
            log::debug!("ECN off: what is ECN-capable does not arrive");
            self.capable = false;
        }
    }

    /// Something arrived that was sent once: ECN-capable packets pass.
    pub(crate) fn on_capable_arrived(&mut self) {
        self.timeouts = 0;
    }
}

impl Connection {
    /// Data arrived: notes whether it is marked.
    pub(crate) fn note_mark(&mut self, segment: &Segment) {
        if segment.payload.is_empty() {
            return;
        }
        if segment.ecn == CE {
            self.stats.marks_received += segment.wire_segments() as u64;
        }
        if self.ecn.on_data(segment) {
            self.receive.acks.want(Urgency::Now);
        }
    }

    /// What an acknowledgment up to `ack` says about marks on what we sent; `in_flight` is what was outstanding before it.
    /// Returns whether it keeps the window from growing (RFC 3168, section 6.1.2).
    pub(crate) fn take_echo(&mut self, now: Instant, flags: Flags, ack: u64, in_flight: u64) -> bool {
        if !self.ecn.is_capable() {
            return false;
        }
        let is_new = ack > self.ecn.counts_beyond;
        if !flags.contains(Flags::ECE) {
            if is_new {
                self.ecn.rounds_at_floor = 0;
            }
            return false;
        }
        if !is_new || !self.send.recovery.is_open() || in_flight == 0 {
            return true;
        }
        let before = self.send.congestion.window();
        self.send.congestion.on_congestion_experienced(now, clamp(in_flight));
        let window = self.send.congestion.window();
        log::debug!(ack, in_flight, before, window, "congestion experienced");
        self.stats.mark_reductions += 1;
        self.ecn.on_reduction(self.send.next);
        self.ecn.rounds_at_floor = if window < before { 0 } else { self.ecn.rounds_at_floor + 1 };
        if self.ecn.rounds_at_floor >= ROUNDS_AT_FLOOR {
            log::debug!("ECN off: every round trip tells of congestion, whatever is sent");
            self.ecn.capable = false;
        }
        true
    }
}
