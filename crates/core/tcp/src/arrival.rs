//! Arriving segments of a synchronised connection, in the order of RFC 9293, section 3.10.7.4, with the checks of RFC 5961 and RFC 7323.

use plait_base::Instant;
use plait_wire::{Flags, Segment};

use crate::ack_policy::Urgency;
use crate::challenge::Challenge;
use crate::connection::{Connection, Role};
use crate::earlier_acks::Duplicate;
use crate::handshake::SynRepeat;
use crate::header_options::{Repeats, SegmentView};
use crate::log;
use crate::receive_queue::Received;
use crate::{Arrival, Closed, DropReason, Event, State, Timer};

/// The answer to a segment that is not acceptable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// By an ACK, always: it carries data or a FIN that the peer must learn about.
    Always,
    /// By an ACK, within the limit of RFC 5961.
    Limited,
    /// Not at all.
    Never,
}

/// The place of an acceptable segment.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Offset of its first payload byte.
    offset: u64,
}

impl Connection {
    pub(crate) fn take_segment(&mut self, now: Instant, segment: &Segment, repeats: Repeats) -> Arrival {
        let _span = log::enter(&self.tuple);
        self.stats.segments_received += segment.wire_segments() as u64;
        log::trace!(
            seq = segment.seq.bits(),
            ack = segment.ack.bits(),
            len = segment.payload.len(),
            flags = ?segment.flags,
            window = segment.window,
            "segment arrives"
        );
        let arrival = match self.state {
            State::Closed => Arrival::Dropped(DropReason::Closed),
            State::SynSent => self.arrive_in_syn_sent(now, segment),
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.arrive_synchronized(now, segment, repeats),
        };
        if let Arrival::Dropped(_) = arrival {
            log::debug!(
                ?arrival,
                state = ?self.state,
                seq = segment.seq.bits(),
                ack = segment.ack.bits(),
                len = segment.payload.len(),
                flags = ?segment.flags,
                "segment dropped"
            );
            self.stats.segments_dropped += segment.wire_segments() as u64;
        }
        arrival
    }

    fn arrive_synchronized(&mut self, now: Instant, segment: &Segment, repeats: Repeats) -> Arrival {
        match self.repeats_syn(segment) {
            Some(SynRepeat::AnswerLost) => {
                self.ecn.on_repeated_syn(segment);
                self.answer_repeated_syn(now);
                return self.refuse(now, Answer::Never, DropReason::UnexpectedSyn);
            }
            Some(SynRepeat::Crossed) => return self.complete_simultaneous_open(now, segment),
            None => {}
        }
        let view = SegmentView { repeats, ..SegmentView::parse(&segment.options) };
        let place = match self.check_acceptable(now, segment, &view) {
            Ok(place) => place,
            Err((answer, reason)) => return self.refuse(now, answer, reason),
        };
        if segment.flags.contains(Flags::RST) {
            return self.take_reset(now, segment);
        }
        if segment.flags.contains(Flags::SYN) {
            return self.refuse(now, Answer::Limited, DropReason::UnexpectedSyn);
        }
        if !segment.flags.contains(Flags::ACK) {
            return self.refuse(now, Answer::Never, DropReason::MissingAck);
        }
        let ack = match self.check_ack(now, segment, &view) {
            Ok(ack) => ack,
            Err((answer, reason)) => return self.refuse(now, answer, reason),
        };
        self.receive.last_arrival = now;
        self.receive.keep_alives = 0;
        if let (Some(clock), Some(stamp)) = (&mut self.timestamps, view.timestamps) {
            // RFC 7323, section 4.3: only segments at or before the last acknowledgment.
            if place.offset <= self.receive.last_ack {
                clock.update(now, stamp.value);
            }
            if !segment.payload.is_empty()
                && let Some(elapsed) = clock.round_trip(now, stamp.echo)
            {
                self.receive.round_trip.on_data(now, stamp.echo, elapsed, self.send.rtt.smoothed());
            }
        }
        self.take_ack(now, segment, place.offset, ack, &view);
        if self.state != State::Closed {
            self.take_payload(now, segment, place.offset);
        }
        Arrival::Accepted { offset: place.offset, window: self.send.window.scaled(segment.window) }
    }

    fn complete_simultaneous_open(&mut self, now: Instant, segment: &Segment) -> Arrival {
        // The crossed segment answers our SYN and not our SYN/ACK: only its timestamp gives the round trip.
        let echo = SegmentView::parse(&segment.options).timestamps.map(|stamp| stamp.echo);
        let sample = self.timestamps.zip(echo).and_then(|(clock, echo)| clock.round_trip(now, echo));
        self.establish(now, sample);
        self.receive.acks.want(Urgency::Alone);
        Arrival::Accepted { offset: 1, window: u32::from(segment.window) }
    }

    fn refuse(&mut self, now: Instant, answer: Answer, reason: DropReason) -> Arrival {
        let answer = match answer {
            Answer::Always => Challenge::Answer,
            Answer::Limited => self.challenge.ask(now),
            Answer::Never => Challenge::Silent,
        };
        match answer {
            Challenge::Answer => self.receive.acks.want(Urgency::Alone),
            Challenge::Silent => {}
        }
        Arrival::Dropped(reason)
    }

    /// First step: timestamps and sequence number.
    fn check_acceptable(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &SegmentView,
    ) -> Result<Place, (Answer, DropReason)> {
        let reset = segment.flags.contains(Flags::RST);
        let next = self.receive.next();
        let start = next as i64 + i64::from(segment.seq.distance(self.receive.irs + next as u32));
        let has_syn = segment.flags.contains(Flags::SYN);
        if !reset {
            self.check_timestamp(now, segment, view, start == next as i64)?;
        }
        let end = start + i64::from(segment.len_seq());
        let furthest = self.receive.window.furthest().max(next) as i64;
        let next = next as i64;
        // Data of the same sender that is not acknowledged yet may have overtaken an acknowledgment.
        let overtaken = self.receive.last_ack.min(next as u64) as i64;
        let inside = if segment.len_seq() == 0 { start >= overtaken } else { end > next };
        if inside && start <= furthest && start >= 1 {
            return Ok(Place { offset: start as u64 });
        }
        if has_syn && !reset {
            // RFC 5961, section 4: for every sequence number.
            return Err((Answer::Limited, DropReason::UnexpectedSyn));
        }
        if segment.len_seq() == 0 || reset {
            let answer = if reset { Answer::Never } else { Answer::Limited };
            return Err((answer, DropReason::OutOfWindow));
        }
        if end <= next && end > 1 {
            let old_end = (end as u64).min(self.receive.queue.next());
            let old_start = start.max(1) as u64;
            self.keep_earlier_ack();
            let stamp = view.timestamps.as_ref().map(|stamp| stamp.value);
            self.receive.duplicate =
                (old_start < old_end).then_some(Duplicate { block: (old_start, old_end), stamp });
            self.flow_label.on_repeated(now, old_start, self.send.rtt.base_rto());
            self.old_segment_in_time_wait(now, segment);
        }
        Err((Answer::Always, DropReason::OutOfWindow))
    }

    /// Protection against wrapped sequence numbers (RFC 7323, section 5.3). `is_next`: the segment has the next expected sequence number.
    fn check_timestamp(
        &self,
        now: Instant,
        segment: &Segment,
        view: &SegmentView,
        is_next: bool,
    ) -> Result<(), (Answer, DropReason)> {
        let Some(clock) = &self.timestamps else { return Ok(()) };
        let Some(stamp) = view.timestamps else {
            // A peer that has restarted does not have the timestamps of the previous connection (RFC 5961, section 4). All other segments
            // are dropped: an attacker that cannot see timestamps must not be able to write into the stream (RFC 7323, section 3.2).
            let has_syn = segment.flags.contains(Flags::SYN);
            let refusal = if has_syn {
                (Answer::Limited, DropReason::UnexpectedSyn)
            } else {
                (Answer::Never, DropReason::MissingTimestamp)
            };
            return Err(refusal);
        };
        if !clock.is_old(now, stamp.value) {
            return Ok(());
        }
        let answer = match segment.len_seq() {
            // An acknowledgment that was overtaken: the peer has sent more since.
            0 if is_next => Answer::Never,
            0 => Answer::Limited,
            _ => Answer::Always,
        };
        Err((answer, DropReason::Paws))
    }

    /// Second step: RFC 5961, section 3. Only a RST exactly at the expected number counts.
    fn take_reset(&mut self, now: Instant, segment: &Segment) -> Arrival {
        let next = self.receive.next();
        if segment.seq != self.receive.irs + next as u32 {
            return self.refuse(now, Answer::Limited, DropReason::InexactReset);
        }
        match self.state {
            State::SynReceived if self.opening.role == Role::Active => self.close(Closed::Refused),
            // All data was exchanged: the RST only ends the wait.
            State::TimeWait => self.end_time_wait(),
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::SynSent
            | State::Closed => self.close(Closed::ResetByPeer),
        }
        Arrival::Accepted { offset: next, window: self.send.window.scaled(segment.window) }
    }

    /// Whether `segment` completes the peer's handshake: it acknowledges our SYN (RFC 9293, section 3.10.7.4, fifth step).
    #[must_use]
    pub fn is_third_segment(&self, segment: &Segment) -> bool {
        self.state == State::SynReceived
            && segment.flags.contains(Flags::ACK)
            && !segment.flags.contains(Flags::RST)
            && self.check_third(segment).is_some()
    }

    /// Returns the byte that the third segment of the handshake acknowledges, if it can be that.
    fn check_third(&self, segment: &Segment) -> Option<u64> {
        let una = self.send.una;
        let ack = una as i64 + i64::from(segment.ack.distance(self.send.seq(una)));
        u64::try_from(ack).ok().filter(|ack| (1..=self.send.next).contains(ack))
    }

    /// Fifth step, first half: whether the acknowledgment number can be one of ours. Completes the handshake.
    fn check_ack(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &SegmentView,
    ) -> Result<u64, (Answer, DropReason)> {
        if self.state == State::SynReceived {
            let Some(ack) = self.check_third(segment) else {
                log::debug!(
                    ack = segment.ack.bits(),
                    "reset: the third segment acknowledges what was never sent"
                );
                self.reset = Some((segment.ack, false));
                return Err((Answer::Never, DropReason::UnacceptableAck));
            };
            let sample = self.handshake_sample(now, view.timestamps.map(|stamp| stamp.echo));
            self.establish(now, sample);
            return Ok(ack);
        }
        let una = self.send.una;
        let ack = una as i64 + i64::from(segment.ack.distance(self.send.seq(una)));
        // RFC 5961, section 5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT.
        let oldest = una as i64 - i64::from(self.send.window.largest());
        if ack > self.send.next as i64 || ack < oldest {
            return Err((Answer::Limited, DropReason::UnacceptableAck));
        }
        Ok(ack.max(0) as u64)
    }

    /// Seventh and eighth step: data and FIN.
    fn take_payload(&mut self, now: Instant, segment: &Segment, offset: u64) {
        let has_fin = segment.flags.contains(Flags::FIN);
        if segment.payload.is_empty() && !has_fin {
            self.note_marked_ack(segment);
            return;
        }
        match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => {}
            State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::SynSent
            | State::SynReceived
            | State::Closed => return,
        }
        self.note_mark(segment);
        let fin_at = offset + segment.payload.len() as u64;
        if has_fin && fin_at < self.receive.window.furthest().max(self.receive.next() + 1) {
            self.receive.fin.get_or_insert(fin_at);
        }
        let limit = self.receive.window.furthest().min(self.receive.fin.unwrap_or(u64::MAX));
        let mut data = segment.payload.clone();
        data.truncate(limit.saturating_sub(offset) as usize);
        let cut = data.len() < segment.payload.len();
        let kept = self.keep_earlier_ack();
        let received = self.receive.queue.insert(offset, data);
        self.owe_ack(now, segment, (received, cut), kept);
        if received.in_order > 0 {
            self.stats.bytes_received += received.in_order;
            self.report(Event::Readable);
        }
        if self.receive.fin == Some(self.receive.queue.next()) && !self.receive.finished {
            self.receive.finished = true;
            self.receive.queue.clear_gaps();
            self.receive.acks.want(Urgency::Now);
            self.report(Event::Finished);
            self.peer_finished(now);
        }
    }

    /// Keeps an acknowledgment that must be a segment of its own and has not left, with its present content. Returns whether there is one.
    fn keep_earlier_ack(&mut self) -> bool {
        let receive = &mut self.receive;
        let owed = receive.acks.urgency() == Urgency::Alone;
        let kept = owed && receive.earlier_acks.keep(&receive.queue, receive.next(), receive.duplicate);
        if kept {
            receive.duplicate = None;
        }
        kept
    }

    /// Decides how soon this data is acknowledged.
    fn owe_ack(&mut self, now: Instant, segment: &Segment, (received, cut): (Received, bool), kept: bool) {
        if received.gap || received.duplicate.is_some() || received.refused || cut {
            // RFC 5681, section 4.2: out of order, filling a gap, or repeated.
            self.receive.acks.want(Urgency::Alone);
        } else if kept {
            // The pending acknowledgment can cover this segment as well.
            self.receive.duplicate = self.receive.earlier_acks.take_back().and_then(|ack| ack.duplicate);
        }
        if let Some(block) = received.duplicate {
            self.receive.duplicate = Some(Duplicate { block, stamp: None });
        }
        if !segment.payload.is_empty() {
            let idle = self.send.rtt.base_rto();
            self.receive.acks.on_data(now, segment.wire_segments(), idle);
            self.note_length(segment);
        }
        if self.receive.acks.urgency() == Urgency::Delayed {
            self.timers.start(Timer::DelayedAck, now + self.config.delayed_ack);
        }
    }

    /// Notes the longest packet in which a segment has arrived, IP header included.
    #[inline]
    fn note_length(&mut self, segment: &Segment) {
        let payload = segment.payload.len().min(segment.segment_size.into());
        let length = segment.header_len() + payload;
        if length > usize::from(self.stats.longest_received) {
            self.stats.longest_received = u16::try_from(length).unwrap_or(u16::MAX);
        }
    }
}
