//! TIME-WAIT without the connection (RFC 9293, section 3.10.7.4; RFC 6191).
//!
//! A closed connection still has to acknowledge a repeated FIN, and to keep its four-tuple from reuse while old segments may be in flight.
//! A few numbers suffice for both.
//!
//! An attacker on the path can make a segment with payload from each acknowledgment, so that two hosts in TIME-WAIT answer each other until
//! it ends. Therefore answers are limited, as those of a connection are to segments that prove nothing. The peer's FIN has a limit of its
//! own, which an attacker without knowledge of its number cannot use up.

use plait_base::{Duration, Instant, SeqNum};
use plait_tcp::{Challenge, ChallengeLimit, FourTuple};
use plait_wire::{Flags, OptionBytes, Segment, TcpOption, option_bytes, options};
use std::collections::{BTreeMap, BTreeSet};

use crate::reset::bare_segment;

/// The remains of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeWait {
    pub(crate) tuple: FourTuple,
    /// The sequence number after our FIN.
    pub(crate) seq: SeqNum,
    /// The sequence number after the peer's FIN.
    pub(crate) ack: SeqNum,
    /// The window field of its last segment.
    pub(crate) window: u16,
    /// Its flow label, so that a repeated acknowledgment takes the same route.
    pub(crate) flow_label: u32,
    /// The timestamps, if they were negotiated.
    pub(crate) timestamps: Option<TimeWaitTimestamps>,
    /// 2 MSL.
    pub(crate) lasts: Duration,
}

impl TimeWait {
    /// Returns the remains by the last segment without payload that a subflow has sent: both sequence numbers, and both clocks.
    pub(crate) fn after(now: Instant, last: &Segment, lasts: Duration) -> Self {
        let stamp = timestamps_of(last);
        Self {
            tuple: FourTuple { local: last.source, remote: last.destination },
            seq: last.seq + last.len_seq(),
            ack: last.ack,
            window: last.window,
            flow_label: last.flow_label,
            timestamps: stamp.map(|(value, echo)| TimeWaitTimestamps {
                offset: value.wrapping_sub(now.as_millis() as u32),
                recent: echo,
            }),
            lasts,
        }
    }
}

/// The timestamps of a connection that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeWaitTimestamps {
    /// Added to the millisecond clock for TSval.
    pub(crate) offset: u32,
    /// The last timestamp of the peer.
    pub(crate) recent: u32,
}

/// The result for a segment whose four-tuple may be in TIME-WAIT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The four-tuple is not in TIME-WAIT.
    NotHere,
    /// No answer.
    Ignore,
    /// Answer with this acknowledgment.
    Answer(Segment),
    /// A new connection: the four-tuple has left TIME-WAIT.
    Reused,
}

/// The four-tuples in TIME-WAIT.
pub(crate) struct TimeWaits {
    limit: usize,
    kept: BTreeMap<FourTuple, Kept>,
    order: BTreeSet<(Instant, FourTuple)>,
}

/// The remains of a connection with their end.
#[derive(Clone, Copy)]
struct Kept {
    remnant: TimeWait,
    ends: Instant,
    answers: Answers,
}

/// Limits of the answers.
#[derive(Clone, Copy, Default)]
struct Answers {
    /// For the FIN with which the connection ended.
    fins: ChallengeLimit,
    /// For all other segments with payload.
    others: ChallengeLimit,
}

impl TimeWaits {
    /// Returns an empty table that keeps at most `limit`.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, kept: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Adds `remnant`. Returns `false` if another was removed before its time.
    #[must_use]
    pub(crate) fn insert(&mut self, now: Instant, remnant: TimeWait) -> bool {
        if self.limit == 0 {
            return false;
        }
        let before = self.remove(&remnant.tuple);
        let has_room = self.kept.len() < self.limit;
        if !has_room && let Some((_, tuple)) = self.order.pop_first() {
            self.kept.remove(&tuple);
        }
        let ends = now + remnant.lasts;
        let answers = before.map(|before| before.answers).unwrap_or_default();
        self.order.insert((ends, remnant.tuple));
        self.kept.insert(remnant.tuple, Kept { remnant, ends, answers });
        has_room
    }

    /// Whether `tuple` is kept.
    pub(crate) fn contains(&self, tuple: &FourTuple) -> bool {
        self.kept.contains_key(tuple)
    }

    /// Returns the number of four-tuples.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns when the first one ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes those whose time is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, tuple)) = self.order.first().copied()
            && at <= now
        {
            self.order.pop_first();
            self.kept.remove(&tuple);
        }
    }

    /// Handles a segment for `tuple`.
    pub(crate) fn handle_segment(&mut self, now: Instant, tuple: &FourTuple, segment: &Segment) -> Verdict {
        let Some(kept) = self.kept.get_mut(tuple) else { return Verdict::NotHere };
        let remnant = kept.remnant;
        if segment.flags.contains(Flags::RST) {
            // A peer that no longer knows the connection answers our acknowledgment with exactly the number in it. It cannot open another
            // connection before this entry is removed. RFC 1337 warns of resets that are merely old: those have another number.
            if segment.seq == remnant.ack {
                self.remove(tuple);
            }
            return Verdict::Ignore;
        }
        if segment.flags.contains(Flags::SYN)
            && !segment.flags.contains(Flags::ACK)
            && is_newer(&remnant, segment)
        {
            self.remove(tuple);
            return Verdict::Reused;
        }
        // An acknowledgment without sequence space is not answered: two hosts in TIME-WAIT would answer each other without end.
        if segment.len_seq() == 0 {
            return Verdict::Ignore;
        }
        let is_fin = segment.flags.contains(Flags::FIN) && segment.seq + segment.len_seq() == remnant.ack;
        let limit = if is_fin { &mut kept.answers.fins } else { &mut kept.answers.others };
        let challenge = limit.ask(now);
        // RFC 9293, section 3.10.7.4: a repeated FIN restarts the time.
        if is_fin {
            let _ = self.insert(now, remnant);
        }
        match challenge {
            Challenge::Answer => Verdict::Answer(acknowledgment(now, &remnant, segment)),
            Challenge::Silent => Verdict::Ignore,
        }
    }

    fn remove(&mut self, tuple: &FourTuple) -> Option<Kept> {
        let kept = self.kept.remove(tuple)?;
        self.order.remove(&(kept.ends, kept.remnant.tuple));
        Some(kept)
    }
}

/// Whether a SYN is distinct from the connection that ended.
///
/// RFC 6191, section 2: by a timestamp that is greater, or equal with a greater sequence number. If one of the two connections has no
/// timestamps, by the sequence number.
fn is_newer(remnant: &TimeWait, syn: &Segment) -> bool {
    let later_seq = syn.seq.is_after(remnant.ack);
    match (remnant.timestamps, timestamps_of(syn)) {
        (Some(old), Some((new, _))) => {
            let ahead = new.wrapping_sub(old.recent).cast_signed();
            ahead > 0 || (ahead == 0 && later_seq)
        }
        // The new connection has timestamps and the old one has none: the new connection can use PAWS at once.
        (None, Some(_)) => true,
        (Some(_) | None, None) => later_seq,
    }
}

/// Returns TSval and TSecr.
fn timestamps_of(segment: &Segment) -> Option<(u32, u32)> {
    options(&segment.options).find_map(|option| match option {
        Ok(TcpOption::Timestamps { value, echo }) => Some((value, echo)),
        Ok(_) | Err(_) => None,
    })
}

/// Returns the last acknowledgment of the connection once more.
fn acknowledgment(now: Instant, remnant: &TimeWait, segment: &Segment) -> Segment {
    let mut ack = bare_segment(segment, remnant.seq, remnant.ack, Flags::ACK);
    ack.window = remnant.window;
    ack.flow_label = remnant.flow_label;
    if let Some(timestamps) = remnant.timestamps {
        let value = (now.as_millis() as u32).wrapping_add(timestamps.offset);
        let option = TcpOption::Timestamps { value, echo: timestamps.recent };
        ack.options = option_bytes([option]).unwrap_or_else(OptionBytes::new);
    }
    ack
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use core::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn a_repeated_fin_is_acknowledged_again() {
        let mut table = table(8);
        let fin = segment(1, Flags::FIN.with(Flags::ACK), 499, None);
        let Verdict::Answer(ack) = table.handle_segment(Instant::from_millis(40), &tuple(1), &fin) else {
            panic!("a FIN is answered")
        };
        assert_eq!((ack.seq, ack.ack, ack.flags), (SeqNum::new(900), SeqNum::new(500), Flags::ACK));
        assert_eq!((ack.source, ack.destination), (tuple(1).local, tuple(1).remote));
        let timestamps = options(&ack.options).next().expect("one").expect("well-formed");
        assert_eq!(timestamps, TcpOption::Timestamps { value: 47, echo: 1000 });
    }

    #[test]
    fn a_repeated_fin_begins_the_time_anew() {
        let mut table = table(8);
        let fin = segment(1, Flags::FIN.with(Flags::ACK), 499, None);
        let later = NOW + Duration::from_secs(59);
        assert!(matches!(table.handle_segment(later, &tuple(1), &fin), Verdict::Answer(_)));
        assert_eq!(table.next_end(), Some(later + Duration::from_secs(60)));
        assert_eq!(table.order.len(), table.kept.len());
    }

    #[test]
    fn bytes_that_come_again_and_again_are_answered_ten_times_in_five_seconds() {
        let mut table = table(8);
        let answered = (0..40)
            .map(|number| {
                (
                    Instant::from_millis(100 + number * 100),
                    if number % 2 == 0 { Flags::FIN } else { Flags::PSH },
                )
            })
            .map(|(at, flags)| {
                let mut again = segment(1, flags.with(Flags::ACK), 490, None);
                again.payload = Bytes::from_static(&[0; 9]);
                table.handle_segment(at, &tuple(1), &again)
            })
            .filter(|verdict| matches!(verdict, Verdict::Answer(_)));
        assert_eq!(answered.count(), 20, "the FIN, and other bytes");
        let later = Instant::from_millis(5100);
        let fin = segment(1, Flags::FIN.with(Flags::ACK), 499, None);
        assert!(matches!(table.handle_segment(later, &tuple(1), &fin), Verdict::Answer(_)));
    }

    #[test]
    fn segments_of_a_blind_attacker_do_not_prevent_the_answer_to_a_fin() {
        let mut table = table(8);
        let end = table.next_end();
        for seq in (10_000..).step_by(5000).take(50) {
            let _ = table.handle_segment(NOW, &tuple(1), &segment(1, Flags::FIN.with(Flags::ACK), seq, None));
        }
        assert_eq!(table.next_end(), end, "nor do they begin the time anew");
        let fin = segment(1, Flags::FIN.with(Flags::ACK), 499, None);
        assert!(matches!(table.handle_segment(NOW, &tuple(1), &fin), Verdict::Answer(_)));
    }

    #[test]
    fn the_last_acknowledgment_says_all_that_is_needed() {
        let mut table = table(8);
        let fin = segment(1, Flags::FIN.with(Flags::ACK), 499, None);
        let Verdict::Answer(ack) = table.handle_segment(NOW, &tuple(1), &fin) else { panic!("answered") };
        assert_eq!(TimeWait::after(NOW, &ack, Duration::from_secs(60)), remnant(1, 60));
    }

    #[test]
    fn old_resets_and_bare_acknowledgments_are_left_alone() {
        let mut table = table(8);
        for (flags, seq) in [(Flags::RST, 499), (Flags::RST.with(Flags::ACK), 501), (Flags::ACK, 500)] {
            assert_eq!(table.handle_segment(NOW, &tuple(1), &segment(1, flags, seq, None)), Verdict::Ignore);
        }
        assert!(table.contains(&tuple(1)));
    }

    #[test]
    fn a_reset_with_exactly_the_next_number_makes_room_for_a_new_connection() {
        let mut table = table(8);
        let reset = segment(1, Flags::RST, 500, None);
        assert_eq!(table.handle_segment(NOW, &tuple(1), &reset), Verdict::Ignore);
        assert!(!table.contains(&tuple(1)));
    }

    //= rfc9293 3.6.1-03
    #[test]
    fn a_syn_with_a_later_timestamp_begins_a_new_connection() {
        for (timestamp, seq, reused) in [
            (1001, 1, true),
            (1000, 501, true),
            (1000, 500, false),
            (999, 501, false),
            (1000u32.wrapping_sub(1 << 31).wrapping_add(1), 1, false),
        ] {
            let mut table = table(8);
            let verdict = table.handle_segment(NOW, &tuple(1), &segment(1, Flags::SYN, seq, Some(timestamp)));
            assert_eq!(verdict == Verdict::Reused, reused, "timestamp {timestamp}, sequence number {seq}");
            assert_eq!(table.contains(&tuple(1)), !reused);
        }
    }

    #[test]
    fn without_timestamps_the_sequence_number_decides() {
        for (seq, reused) in [(501, true), (500, false), (500u32.wrapping_sub(9), false)] {
            let mut table = TimeWaits::new(8);
            assert!(table.insert(NOW, TimeWait { timestamps: None, ..remnant(1, 60) }));
            let verdict = table.handle_segment(NOW, &tuple(1), &segment(1, Flags::SYN, seq, None));
            assert_eq!(verdict == Verdict::Reused, reused, "sequence number {seq}");
        }
    }

    #[test]
    fn every_one_ends_in_its_time() {
        let mut table = TimeWaits::new(8);
        for (port, seconds) in [(1, 60), (2, 30), (3, 90)] {
            assert!(table.insert(NOW, remnant(port, seconds)));
        }
        assert!(table.insert(NOW, remnant(2, 70)), "the same once more, later");
        assert_eq!(table.next_end(), Some(NOW + Duration::from_secs(60)));
        table.handle_timeout(NOW + Duration::from_secs(69));
        assert!(!table.contains(&tuple(1)) && table.contains(&tuple(2)));
        table.handle_timeout(NOW + Duration::from_secs(90));
        assert_eq!((table.len(), table.next_end()), (0, None));
    }

    #[test]
    fn when_there_are_too_many_the_one_nearest_its_end_goes() {
        let mut table = TimeWaits::new(2);
        assert!(table.insert(NOW, remnant(1, 60)));
        assert!(table.insert(NOW, remnant(2, 30)));
        assert!(!table.insert(NOW, remnant(3, 90)));
        assert!(table.contains(&tuple(1)) && !table.contains(&tuple(2)) && table.contains(&tuple(3)));
        assert_eq!(table.order.len(), table.kept.len());
    }

    const NOW: Instant = Instant::from_millis(40);

    fn table(limit: usize) -> TimeWaits {
        let mut table = TimeWaits::new(limit);
        assert!(table.insert(NOW, remnant(1, 60)));
        table
    }

    fn remnant(port: u16, seconds: u64) -> TimeWait {
        TimeWait {
            tuple: tuple(port),
            seq: SeqNum::new(900),
            ack: SeqNum::new(500),
            window: 64,
            flow_label: 5,
            timestamps: Some(TimeWaitTimestamps { offset: 7, recent: 1000 }),
            lasts: Duration::from_secs(seconds),
        }
    }

    fn tuple(port: u16) -> FourTuple {
        let address = |last, port| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), port));
        FourTuple { local: address(1, 80), remote: address(2, port) }
    }

    fn segment(port: u16, flags: Flags, seq: u32, timestamp: Option<u32>) -> Segment {
        let option = timestamp.map(|value| TcpOption::Timestamps { value, echo: 0 });
        Segment {
            source: tuple(port).remote,
            destination: tuple(port).local,
            seq: SeqNum::new(seq),
            ack: SeqNum::new(900),
            flags,
            window: 64,
            urgent: 0,
            options: option_bytes(option).expect("one option fits"),
            payload: Bytes::new(),
            segment_size: 1460,
            ecn: 0,
            flow_label: 0,
        }
    }
}
