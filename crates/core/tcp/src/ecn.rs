//! Explicit congestion notification (RFC 3168; Accurate ECN, RFC 9768): the negotiation in the SYNs, our reports to the peer about
//! marks that arrive, and what the peer tells about ours. Of Accurate ECN the count in the header is used, and no option: beside
//! those of Multipath TCP there is no room for it.
//!
//! New data is ECN-capable. SYNs, acknowledgments, probes and all retransmissions are not (RFC 3168, sections 6.1.1 and 6.1.4 to 6.1.6). An
//! attacker on the path can forge marks and their echoes. They halve the window once per round trip, never below its floor. If they
//! continue at the floor, they are ignored.

use plait_base::Instant;
use plait_wire::{Flags, Segment};

use crate::acknowledgment::clamp;
use crate::connection::Connection;
use crate::log;
use crate::{Ecn, ack_policy::Urgency};

/// The field in the IP header (RFC 3168, section 5): ECN-capable, by either mark, or not, and "congestion experienced".
const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// First value of the count of marked packets, which distinguishes a count from cleared flags (RFC 9768, section 3.2.1).
const FIRST_COUNT: u8 = 5;
/// Both counts are known modulo this.
const COUNTS: u8 = 8;

/// Round trips in a row with reported congestion although the window cannot shrink any more: the path marks everything, or the
/// peer claims it.
const ROUNDS_AT_FLOOR: u8 = 8;

/// Timeouts in a row, each after progress, between which nothing has arrived that was sent once: what is ECN-capable is lost,
/// and what is sent again passes.
const TIMEOUTS_OF_CAPABLE: u8 = 2;

/// The form in which each side reports marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Feedback {
    /// Not at all.
    Nothing,
    /// By a flag that is set from a mark on until the peer says that it has reduced its window (RFC 3168).
    Flag {
        /// It is set.
        echoing: bool,
        /// CWR is due with our next new data.
        reduced: bool,
    },
    /// By counting (RFC 9768).
    Counts(Counts),
}

/// The counts of both directions, modulo [`COUNTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    /// Marked packets of the peer that have arrived.
    arrived: u8,
    /// Marked packets of ours, as the peer has said last.
    told: u8,
    /// How the peer's SYN/ACK was marked, until our first acknowledgment has said so (RFC 9768, section 3.2.2.1).
    syn_ack: Option<u8>,
    /// The peer's next segment reports that mark; it has no count.
    awaits_third: bool,
}

/// Both halves of a connection, as far as ECN goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marking {
    setting: Ecn,
    /// An ECN-setup SYN of ours has left.
    asked: bool,
    /// A SYN without ECN has left or come, so that no data may be ECN-capable (RFC 3168, section 6.1.1).
    withdrawn: bool,
    feedback: Feedback,
    /// How the peer's SYN was marked, for our SYN/ACK.
    syn: u8,
    /// Our data is ECN-capable.
    capable: bool,
    /// A report counts once it acknowledges more than this offset: the reported segments have left after the last reduction.
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
            feedback: Feedback::Nothing,
            syn: NOT_ECT,
            capable: false,
            counts_beyond: 0,
            rounds_at_floor: 0,
            timeouts: 0,
        }
    }

    /// Whether our data is ECN-capable.
    pub(crate) fn is_capable(&self) -> bool {
        self.capable && !self.withdrawn
    }

    /// Whether both sides count marks.
    pub(crate) fn is_accurate(&self) -> bool {
        matches!(self.feedback, Feedback::Counts(_))
    }

    /// Returns the ECN flags of our SYN or SYN/ACK. A SYN requests counts; a peer that supports only the flag reads it as a request for the
    /// flag. A repeated SYN has no request: the path may drop SYNs that have one (RFC 3168, section 6.1.1.1; RFC 9768, section 3.1.4).
    pub(crate) fn syn_flags(&mut self, answers: bool, attempt: u8) -> Flags {
        if answers {
            return match self.feedback {
                Feedback::Counts(_) => Flags::default().with_ace(ace_of_mark(self.syn)),
                Feedback::Flag { .. } if self.is_capable() => Flags::ECE,
                Feedback::Flag { .. } | Feedback::Nothing => Flags::default(),
            };
        }
        if self.setting == Ecn::Ask && attempt == 0 {
            self.asked = true;
            return Flags::AE.with(Flags::CWR).with(Flags::ECE);
        }
        self.withdrawn = true;
        Flags::default()
    }

    /// The peer's SYN, where we open passively, or its SYN/ACK.
    pub(crate) fn on_syn(&mut self, passive: bool, syn: &Segment) {
        self.feedback = if syn.flags.contains(Flags::ACK) {
            self.agree_to_answer(syn)
        } else if passive && self.setting != Ecn::Off {
            self.agree_to_question(syn)
        } else {
            Feedback::Nothing
        };
        self.capable = self.feedback != Feedback::Nothing;
    }

    /// RFC 9768, table 2 and section 3.1.3: every value other than zero and the request of RFC 3168 is a request for counts, including
    /// future extensions. A SYN of RFC 3168 that has a mark in its IP header already gets no agreement: the path misuses these bits.
    fn agree_to_question(&mut self, syn: &Segment) -> Feedback {
        match syn.flags.ace() {
            0b000 => Feedback::Nothing,
            0b011 if syn.ecn == NOT_ECT => FLAG,
            0b011 => Feedback::Nothing,
            _ => {
                self.syn = syn.ecn;
                Feedback::Counts(Counts { awaits_third: true, ..Counts::new() })
            }
        }
    }

    /// The same for an answer. One that mirrors the question agrees to nothing.
    fn agree_to_answer(&mut self, syn_ack: &Segment) -> Feedback {
        if !self.asked {
            return Feedback::Nothing;
        }
        match syn_ack.flags.ace() {
            0b000 | 0b111 => Feedback::Nothing,
            0b001 | 0b101 => FLAG,
            ace => {
                // Our SYN was not ECN-capable: the path has changed the bits.
                self.withdrawn |= ace != ace_of_mark(NOT_ECT);
                let arrived = FIRST_COUNT + u8::from(syn_ack.ecn == CE);
                Feedback::Counts(Counts { arrived, syn_ack: Some(syn_ack.ecn), ..Counts::new() })
            }
        }
    }

    /// The peer's SYN came again. What it sends meanwhile may be ECN-capable all the same.
    pub(crate) fn on_repeated_syn(&mut self, syn: &Segment) {
        self.withdrawn |= !syn.flags.contains(Flags::ECE.with(Flags::CWR));
    }

    /// A segment behind the SYNs arrived. Returns whether there is something to tell at once.
    fn on_segment(&mut self, segment: &Segment) -> bool {
        let has_data = !segment.payload.is_empty();
        match &mut self.feedback {
            Feedback::Nothing => false,
            Feedback::Flag { echoing, reduced: _ } => {
                let before = *echoing;
                if has_data {
                    *echoing &= !segment.flags.contains(Flags::CWR);
                    *echoing |= segment.ecn == CE;
                }
                *echoing != before
            }
            Feedback::Counts(counts) => {
                let is_marked = segment.ecn == CE;
                if is_marked {
                    counts.arrived =
                        (counts.arrived + (segment.wire_segments() % usize::from(COUNTS)) as u8) % COUNTS;
                }
                // RFC 9768, section 3.2.2.5.1. A marked acknowledgment waits for the next that is due.
                is_marked && has_data
            }
        }
    }

    /// Returns the ECN flags of a segment after the SYNs; `alone` if it has no payload.
    pub(crate) fn ack_flags(&mut self, alone: bool) -> Flags {
        match &mut self.feedback {
            Feedback::Nothing => Flags::default(),
            Feedback::Flag { echoing, .. } => {
                if *echoing {
                    Flags::ECE
                } else {
                    Flags::default()
                }
            }
            Feedback::Counts(counts) => {
                let ace = match counts.syn_ack.take() {
                    Some(mark) if alone => ace_of_mark(mark),
                    Some(_) | None => counts.arrived,
                };
                Flags::default().with_ace(ace)
            }
        }
    }

    /// Whether send offload would take from all segments of a train but the first what they are to say: it takes CWR, which is
    /// part of the count.
    pub(crate) fn forbids_trains(&self) -> bool {
        matches!(self.feedback, Feedback::Counts(counts) if Flags::default().with_ace(counts.arrived).contains(Flags::CWR))
    }

    /// Marks new data that leaves.
    pub(crate) fn on_new_data(&mut self, segment: &mut Segment) {
        if !self.is_capable() || segment.payload.is_empty() {
            return;
        }
        segment.ecn = ECT_0;
        if let Feedback::Flag { reduced, .. } = &mut self.feedback
            && core::mem::take(reduced)
        {
            segment.flags = segment.flags.with(Flags::CWR);
        }
    }

    /// The window was reduced, for whatever reason, when all before `next` had left (RFC 3168, section 6.1.2).
    pub(crate) fn on_reduction(&mut self, next: u64) {
        if let Feedback::Flag { reduced, .. } = &mut self.feedback {
            *reduced = true;
        }
        self.counts_beyond = next;
    }

    /// The retransmission timer fired for the first time since there was progress.
    pub(crate) fn on_timeout(&mut self, next: u64) {
        self.on_reduction(next);
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= TIMEOUTS_OF_CAPABLE && self.is_capable() {
            log::debug!("ECN off: ECN-capable packets do not arrive");
            self.capable = false;
        }
    }

    /// Something arrived that was sent once: ECN-capable packets pass.
    pub(crate) fn on_capable_arrived(&mut self) {
        self.timeouts = 0;
    }

    /// What the peer says of marks on what we sent, in an acknowledgment that has no payload if `alone` and that brings news if
    /// `is_new`: how many there were, or at least one.
    ///
    /// A count may have gone round once or more, where one acknowledgment is for many segments. RFC 9768, section 3.2.2.5.2, asks to
    /// assume the most in such a case. Here it is of no consequence but where the number is a multiple of eight exactly, since the
    /// window shrinks once in a round trip, however many there were.
    fn heard(&mut self, flags: Flags, alone: bool, is_new: bool) -> u8 {
        match &mut self.feedback {
            Feedback::Nothing => 0,
            Feedback::Flag { .. } => u8::from(flags.contains(Flags::ECE)),
            Feedback::Counts(counts) => {
                if core::mem::take(&mut counts.awaits_third) && alone {
                    // No count yet, and never zero: the path clears these flags (RFC 9768, section 3.2.2.1). A mark on our SYN/ACK is the first
                    // that the peer counts; there was no data to reduce.
                    self.capable &= flags.ace() != 0;
                    counts.told += u8::from(flags.ace() == ace_of_mark(CE));
                    return 0;
                }
                // An overtaken acknowledgment reports an old state.
                if !is_new {
                    return 0;
                }
                let more = (flags.ace() + COUNTS - counts.told) % COUNTS;
                counts.told = flags.ace();
                more
            }
        }
    }
}

/// The feedback of RFC 3168.
const FLAG: Feedback = Feedback::Flag { echoing: false, reduced: false };

impl Counts {
    const fn new() -> Self {
        Self { arrived: FIRST_COUNT, told: FIRST_COUNT, syn_ack: None, awaits_third: false }
    }
}

/// How a SYN/ACK, or the first acknowledgment behind it, says how the packet that it answers was marked (RFC 9768, tables 2 and 3).
const fn ace_of_mark(mark: u8) -> u8 {
    match mark {
        ECT_1 => 0b011,
        ECT_0 => 0b100,
        CE => 0b110,
        _ => 0b010,
    }
}

impl Connection {
    /// A segment behind the SYNs arrived: notes whether it is marked.
    pub(crate) fn note_mark(&mut self, segment: &Segment) {
        if segment.ecn == CE {
            self.stats.marks_received += segment.wire_segments() as u64;
        }
        if self.ecn.on_segment(segment) {
            self.receive.acks.want(Urgency::Now);
        }
    }

    /// An acknowledgment arrived: where marks are counted, its own counts, and is told with the next segment that leaves.
    pub(crate) fn note_marked_ack(&mut self, segment: &Segment) {
        let _ = self.ecn.on_segment(segment);
    }

    /// What an acknowledgment up to `ack` says about marks on what we sent; `in_flight` is what was outstanding before it, and
    /// `has_news` whether it acknowledges something that none before it has. Returns whether it keeps the window from growing
    /// (RFC 3168, section 6.1.2).
    pub(crate) fn take_echo(
        &mut self,
        now: Instant,
        segment: &Segment,
        ack: u64,
        in_flight: u64,
        has_news: bool,
    ) -> bool {
        let marks = self.ecn.heard(segment.flags, segment.payload.is_empty(), has_news);
        if !self.ecn.is_capable() {
            return false;
        }
        let is_new = ack > self.ecn.counts_beyond;
        self.stats.marks_told += u64::from(marks);
        if marks == 0 {
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
            log::debug!("ECN off: every round trip reports congestion, whatever is sent");
            self.ecn.capable = false;
        }
        true
    }
}
