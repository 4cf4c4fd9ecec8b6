//! Selection of what leaves next: resets and SYNs first, then acknowledgments of their own, retransmissions, probes, new data, and pending
//! acknowledgments.

use plait_base::Instant;
use plait_wire::{Flags, MAX_OPTIONS, Segment};

use crate::ack_policy::Urgency;
use crate::acknowledgment::clamp;
use crate::compose::Grant;
use crate::connection::{AckProbe, Connection, SegmentOptions};
use crate::log;
use crate::network::MOST_OPAQUE;
use crate::recovery::Retransmission;
use crate::send_queue::Extent;
use crate::sender::Finish;
use crate::{State, Timer};

/// Largest IP packet that leaves: a virtual link in front of a real one adds 14 bytes, and above 65,535 the
/// kernel cuts a super-segment in software.
const MAX_PACKET: usize = 65_521;

/// The reason for which new data waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// There is no new data.
    Empty,
    /// The congestion window is full.
    Congestion,
    /// The peer's window is full, or too small to be worth a segment.
    Window,
    /// A short segment waits for more (Nagle).
    Nagle,
    /// It is not its turn yet.
    Pace(Instant),
}

impl Connection {
    pub(crate) fn next_segment(
        &mut self,
        now: Instant,
        options: &mut impl SegmentOptions,
    ) -> Option<Segment> {
        if let Some((seq, with_ack)) = self.reset.take() {
            return Some(self.reset_segment(now, seq, with_ack, options));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived if self.opening.due => {
                return Some(self.syn_segment(now, options));
            }
            State::SynSent => return None,
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => {}
        }
        if self.receive.acks.urgency() == Urgency::Alone {
            if let Some(earlier) = self.receive.earlier_acks.pop(self.receive.next()) {
                return Some(self.ack_of(now, &earlier, options));
            }
            return Some(self.bare(now, self.send.next, Flags::ACK, options));
        }
        if self.state != State::SynReceived
            && let Some(segment) = self.data_segment(now, options)
        {
            return Some(segment);
        }
        if self.ack_probe == AckProbe::Due {
            self.ack_probe = AckProbe::Idle;
            // One number before the window: unacceptable on purpose, so that the peer must answer.
            let offset = self.send.una.max(1) - 1;
            return Some(self.bare(now, offset, Flags::ACK, options));
        }
        let is_due = self.receive.acks.urgency() == Urgency::Now && !self.receive.says_nothing_new();
        is_due.then(|| self.bare(now, self.send.next, Flags::ACK, options))
    }

    fn data_segment(&mut self, now: Instant, options: &mut impl SegmentOptions) -> Option<Segment> {
        if let Some(room) = self.send.recovery.doubt().room() {
            let segment = self.forward_data(now, room, options);
            if segment.is_some() || self.send.recovery.doubt().room().is_some() {
                return segment;
            }
        }
        let retransmission = self.retransmission(now, options);
        if retransmission.is_some() {
            return retransmission;
        }
        if self.send.probe.due {
            self.send.probe.due = false;
            let probe = self.tail_probe(now, options);
            if probe.is_some() {
                return probe;
            }
        }
        let probe = self.mtu_probe(now, options);
        if probe.is_some() {
            return probe;
        }
        self.new_data(now, u64::MAX, options)
    }

    /// New data that shows whether a timeout was needed (RFC 5682, section 2.1, step 2b).
    fn forward_data(
        &mut self,
        now: Instant,
        room: u64,
        options: &mut impl SegmentOptions,
    ) -> Option<Segment> {
        if room == 0 {
            return None;
        }
        let before = self.send.next;
        let segment = self.new_data(now, room, options);
        let sent = self.send.next - before;
        if sent > 0 {
            self.send.recovery.doubt_mut().on_sent(sent);
        } else if self.send.pace.budget(now).is_ok() {
            self.send.recovery.doubt_mut().on_nothing_new();
        }
        segment
    }

    /// The lowest range that is lost, as far as the window allows.
    fn retransmission(&mut self, now: Instant, options: &mut impl SegmentOptions) -> Option<Segment> {
        let lost = self.send.flight.first_lost()?;
        let budget = match self.send.pace.budget(now) {
            Ok(budget) => budget,
            // A forced segment does not wait for pacing either.
            Err(_) if self.send.forced => 0,
            Err(at) => {
                self.timers.set(Timer::Pace, at);
                return None;
            }
        };
        let room = self.congestion_room();
        let data_end = self.send.queue.end();
        if lost.start >= data_end {
            if room == 0 && !self.send.forced {
                return None;
            }
            return Some(self.send_again(now, lost.start, Grant { len: 0, size: lost.size }, options));
        }
        let record = self.send.queue.record_at(lost.start)?;
        let size = self.segment_payload(record.options);
        let whole = u64::from(size);
        let limit = lost.end.min(record.end) - lost.start;
        // What was sent may lie beyond a window that shrank; the first segment is tried all the same.
        let edge = (self.send.una + u64::from(self.send.window.size())).max(self.send.una + whole);
        let mut len = limit.min(self.longest(size) as u64).min(edge.saturating_sub(lost.start));
        if len > room.min(budget) {
            len = room.min(budget) / whole * whole;
        }
        if len == 0 {
            if !self.send.forced {
                return None;
            }
            len = limit.min(whole);
        }
        // After a timeout, so that a path which has become narrower answers.
        let cautious = self.cautious_size(record.options).filter(|_| self.send.timeouts > 0);
        let size = cautious.unwrap_or(size);
        Some(self.send_again(now, lost.start, Grant { len: len as usize, size }, options))
    }

    /// Sends `grant` from `start` on again, and the FIN if that follows.
    fn send_again(
        &mut self,
        now: Instant,
        start: u64,
        grant: Grant,
        options: &mut impl SegmentOptions,
    ) -> Segment {
        let data_end = self.send.queue.end();
        let end = start + grant.len as u64;
        let (range_end, repeated) =
            self.send.flight.range_at(start).map_or((start, false), |sent| (sent.end, sent.again));
        let with_fin = self.send.finish == Finish::Sent && end == data_end && range_end > data_end;
        let sent_end = if with_fin { end + 1 } else { end };
        let again = sent_end - start;
        let departure = self.send.delivery_rate.on_send(now, self.send.flight.in_flight(), again);
        self.send.flight.retransmit(start, sent_end, now, grant.size, departure);
        if self.send.path.probe().is_some_and(|probe| start < probe.end && probe.start < sent_end) {
            self.send.path.forget_probe(now);
        }
        self.send.forced = false;
        self.send.recovery.on_send(again);
        self.send.recovery.on_retransmission(Retransmission { at: now, start, end: sent_end, repeated });
        self.stats.bytes_retransmitted += grant.len as u64;
        self.send.unreported += again;
        self.send.last_sent = now;
        self.pace_sent(now, again);
        if start == self.send.una || !self.timers.is_set(Timer::Retransmit) {
            self.restart_rto(now);
        }
        self.cut(now, start, grant, with_fin, true, options)
    }

    /// The probe of RFC 8985, section 7.3: new data if there is some, else the last segment again.
    fn tail_probe(&mut self, now: Instant, options: &mut impl SegmentOptions) -> Option<Segment> {
        let new = self.new_data(now, 0, options);
        let probe = match new {
            Some(segment) => {
                self.send.probe.on_sent(self.send.next, false, None);
                segment
            }
            None => {
                let last = *self.send.flight.last()?;
                let data_end = self.send.queue.end().min(last.end);
                let size = u64::from(last.size.max(1));
                let mut start = last.start + (data_end.saturating_sub(last.start + 1)) / size * size;
                let mut grant = Grant { len: 0, size: last.size };
                if let Some(record) =
                    self.send.queue.record_at(data_end.saturating_sub(1)).filter(|_| data_end > start)
                {
                    start = start.max(record.start);
                    grant.size = self.segment_payload(record.options);
                    start = start.max(data_end.saturating_sub(u64::from(grant.size)));
                    grant.len = (data_end - start) as usize;
                    grant.size = self.cautious_size(record.options).unwrap_or(grant.size);
                } else {
                    start = data_end;
                }
                let segment = self.send_again(now, start, grant, options);
                let stamp = self.timestamps.map(|clock| clock.value(now));
                self.send.probe.on_sent(self.send.next, true, stamp);
                segment
            }
        };
        log::debug!(una = self.send.una, len = probe.payload.len(), "tail loss probe");
        self.timers.stop(Timer::LossProbe);
        self.restart_rto(now);
        Some(probe)
    }

    /// New data, or the FIN, at most `congestion` bytes; 0 asks for one segment whatever the congestion window says.
    fn new_data(
        &mut self,
        now: Instant,
        congestion: u64,
        options: &mut impl SegmentOptions,
    ) -> Option<Segment> {
        if !self.may_send_data() {
            return None;
        }
        let rto = self.send.rtt.base_rto();
        if self.send.flight.is_empty() && now.saturating_since(self.send.last_sent) > rto {
            self.send.congestion.on_idle(now);
            self.follow_pace(now);
            if !self.send.congestion.leads_recovery() {
                self.send.pace.restart(self.send.congestion.window().into());
            }
        }
        let start = self.send.next;
        let grant = match self.grant(now, congestion) {
            Ok(grant) => grant,
            Err(hold) => {
                self.hold(now, hold);
                return None;
            }
        };
        Some(self.send_new(now, start, grant, options))
    }

    /// Sends `grant` from `start` on for the first time, and the FIN if that follows.
    pub(crate) fn send_new(
        &mut self,
        now: Instant,
        start: u64,
        grant: Grant,
        options: &mut impl SegmentOptions,
    ) -> Segment {
        let end = start + grant.len as u64;
        let at_end = end == self.send.queue.end();
        let with_fin = at_end && self.send.finish == Finish::Wanted;
        let left = grant.len as u64 + u64::from(with_fin);
        let departure = self.send.delivery_rate.on_send(now, self.send.flight.in_flight(), left);
        if self.send.flight.in_flight() == 0 && self.send.delivery_rate.is_app_limited() {
            self.send.congestion.on_restart(now);
            self.follow_pace(now);
        }
        self.send.flight.push(start, end, now, grant.size, departure);
        if with_fin {
            self.send.flight.push(end, end + 1, now, grant.size, departure);
        }
        self.send.next = start + left;
        self.account_new(now, grant, left);
        let mut segment = self.cut(now, start, grant, with_fin, false, options);
        self.ecn.on_new_data(&mut segment);
        if with_fin {
            self.fin_sent(now);
        }
        segment
    }

    pub(crate) fn may_send_data(&self) -> bool {
        match self.state {
            State::Established | State::CloseWait => true,
            State::SynSent
            | State::SynReceived
            | State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => false,
        }
    }

    /// Books `left` new offsets and sets the timers that follow from them.
    fn account_new(&mut self, now: Instant, grant: Grant, left: u64) {
        let size = u64::from(grant.size);
        if !(grant.len as u64).is_multiple_of(size) {
            self.send.small_until = self.send.next;
        }
        let (in_flight, window) = (self.send.flight.in_flight(), self.congestion_window());
        // In slow start half of the window in use says that the next round will need more (RFC 7661).
        let doubling = self.send.congestion.is_slow_start() && in_flight * 2 > window;
        let is_full = in_flight + size > window || doubling;
        if is_full {
            self.send.limited_until = self.send.next;
        }
        let rto = self.send.rtt.base_rto();
        if let Some(used) = self.send.unused.on_sent(now, in_flight, is_full, rto) {
            self.send.congestion.on_unused(clamp(used));
            self.follow_pace(now);
        }
        if self.send.flight.in_flight() == left {
            self.send.progress_at = now;
        }
        self.send.recovery.on_send(left);
        self.send.overriding = false;
        self.send.last_sent = now;
        self.stats.bytes_sent += grant.len as u64;
        self.pace_sent(now, left);
        self.timers.stop(Timer::Persist);
        if !self.timers.is_set(Timer::Retransmit) {
            self.restart_rto(now);
        }
        self.watch_user_timeout(now, false);
        self.arm_probe(now);
    }

    /// Returns how much of the next record may leave now.
    fn grant(&mut self, now: Instant, congestion: u64) -> Result<Grant, Hold> {
        let start = self.send.next;
        let window = self.window_room();
        if start == self.send.queue.end() {
            let fin = self.send.finish == Finish::Wanted;
            let size = self.segment_payload(0);
            return match (fin, window > 0) {
                (true, true) => Ok(Grant { len: 0, size }),
                (true, false) => Err(Hold::Window),
                (false, _) => Err(Hold::Empty),
            };
        }
        let plain = self.segment_payload(0);
        self.send.queue.fill(start, usize::from(plain));
        let record = self.send.queue.record_at(start).ok_or(Hold::Empty)?;
        let size = self.segment_payload(record.options) - self.reserved_for_blocks(record.options);
        let whole = u64::from(size);
        let probing = congestion == 0;
        let mut len = (record.end - start).min(self.longest(size) as u64);
        if probing {
            len = len.min(whole);
        } else {
            len = len.min(self.paced(now, start, record, size)?);
            let room = self.congestion_room().min(congestion);
            if len > room {
                len = room / whole * whole;
            }
            if len == 0 {
                return Err(Hold::Congestion);
            }
        }
        if len > window {
            let silly = window < u64::from(self.send.window.largest() / 2) && !self.send.overriding;
            len = match window / whole * whole {
                0 if window == 0 || silly => return Err(Hold::Window),
                0 => window,
                some => some,
            };
        }
        let cautious = self.cautious_size(record.options).filter(|_| probing);
        let grant = self.apply_nagle(start, record, Grant { len: len as usize, size })?;
        Ok(Grant { size: cautious.unwrap_or(grant.size), ..grant })
    }

    /// Returns how much of `record`, from `start` on, may leave by pacing. The options of a record age (they may acknowledge something), so
    /// a record that is shorter than a segment, or the rest of one, does not wait. With BBR a record with options leaves as a whole: in
    /// parts, sealed blocks carried less (docs/transport.md).
    fn paced(&self, now: Instant, start: u64, record: Extent, size: u16) -> Result<u64, Hold> {
        let whole = u64::from(size);
        let is_short = record.end - start < whole;
        let has_options = record.options > 0;
        let is_whole = has_options && self.send.congestion.leads_recovery();
        match self.send.pace.budget(now) {
            _ if (has_options && is_short) || (is_whole && start > record.start) => Ok(u64::MAX),
            Ok(_) if is_whole => Ok(u64::MAX),
            Ok(budget) => Ok((budget / whole).max(1) * whole),
            Err(at) => Err(Hold::Pace(at)),
        }
    }

    /// RFC 9293, section 3.7.4, in the form that holds a short segment back only while another short one is
    /// not acknowledged. Records with options are never held: nothing can be added to them.
    fn apply_nagle(&self, start: u64, record: Extent, grant: Grant) -> Result<Grant, Hold> {
        let tail = grant.len % usize::from(grant.size);
        let last = start + grant.len as u64 == self.send.queue.end();
        let hold = tail != 0
            && last
            && record.options == 0
            && !self.config.no_delay
            && !self.send.overriding
            && self.send.finish == Finish::Open
            && self.send.una < self.send.small_until;
        match (hold, grant.len - tail) {
            (false, _) => Ok(grant),
            (true, 0) => Err(Hold::Nagle),
            (true, len) => Ok(Grant { len, ..grant }),
        }
    }

    fn hold(&mut self, now: Instant, hold: Hold) {
        match hold {
            Hold::Empty | Hold::Nagle => {
                let room =
                    self.congestion_room() >= u64::from(self.segment_payload(usize::from(MOST_OPAQUE)));
                if self.send.flight.lost() == 0 && room && self.send.pace.budget(now).is_ok() {
                    self.send.delivery_rate.on_starved(now);
                }
            }
            Hold::Congestion => self.send.limited_until = self.send.next,
            Hold::Pace(at) => self.timers.set(Timer::Pace, at),
            Hold::Window => {
                if self.send.flight.is_empty() {
                    self.timers.start(Timer::Persist, now + self.persist_wait());
                }
            }
        }
    }

    /// Longest payload of one super-segment of segments of `size`.
    fn longest(&self, size: u16) -> usize {
        let size = usize::from(size);
        let headers = self.send.path.headers() + MAX_OPTIONS;
        let longest = usize::from(self.config.max_super_segment).min(MAX_PACKET - headers);
        let segments = if self.ecn.forbids_trains() { 1 } else { (longest / size).max(1) };
        segments * size
    }
}
