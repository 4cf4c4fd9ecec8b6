//! Handling of acknowledgments of our data (RFC 9293, section 3.10.7.4, fifth step; RFC 2018, 2883, 5681, 6582, 8985).

use arrayvec::ArrayVec;
use plait_base::Instant;
use plait_wire::Segment;

use crate::congestion::Ack;
use crate::congestion::bbr::{Bbr, PathAck};
use crate::connection::Connection;
use crate::delivery_rate::Sample;
use crate::flight::Sent;
use crate::forward::AckAfterTimeout;
use crate::header_options::{Repeats, SegmentView};
use crate::log;
use crate::mtu_probe::Losses;
use crate::prr::Prr;
use crate::rack::Detection;
use crate::receive_queue::{Block, MAX_BLOCKS};
use crate::recovery::Phase;
use crate::sender::Finish;
use crate::tail_probe::{AckView, ProbeVerdict};
use crate::{Event, Timer};

/// Duplicate acknowledgments that mean a loss without SACK (RFC 5681, section 3.2).
const DUP_THRESHOLD: u32 = 3;

/// The result of one acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    bytes: u64,
    /// Some of it was sent more than once.
    again: bool,
    /// Some of it was sent once, before the last recovery began.
    original: bool,
    /// Earliest and latest transmission of segments sent only once.
    oldest: Option<Instant>,
    newest: Option<Instant>,
    /// Payload of the largest wire segment, and when it left; of equally large ones the last.
    largest: Option<(u64, Instant)>,
}

impl Delivery {
    fn add(&mut self, sent: &Sent) {
        self.bytes += sent.len();
        self.largest = self.largest.max(Some((sent.len().min(sent.size.into()), sent.at)));
        if sent.again {
            self.again = true;
        } else {
            self.oldest = Some(self.oldest.map_or(sent.at, |at| at.min(sent.at)));
            self.newest = Some(self.newest.map_or(sent.at, |at| at.max(sent.at)));
        }
    }
}

/// The SACK blocks of one acknowledgment, as offsets.
#[derive(Clone, Debug, Default)]
struct Blocks {
    delivered: ArrayVec<Block, MAX_BLOCKS>,
    /// What arrived twice (RFC 2883).
    duplicate: Option<Block>,
}

impl Connection {
    /// Takes an acknowledgment whose number is plausible; `seq` is where its segment lies.
    pub(crate) fn take_ack(
        &mut self,
        now: Instant,
        segment: &Segment,
        seq: u64,
        ack: u64,
        view: &SegmentView,
    ) {
        if ack < self.send.una {
            self.take_overtaken_ack(now, ack, view);
            return;
        }
        let opened = self.send.window.update(seq, ack, segment.window);
        self.send.window_probes = 0;
        if self.send.window.size() == 0 {
            // A peer that answers a probe keeps the connection open for as long as it does (RFC 9293, section 3.8.6.1).
            self.send.timeouts = 0;
        }
        let in_flight = self.pipe();
        let una = self.send.una;
        let blocks = self.read_blocks(una, ack, view);
        let echo = view.timestamps.map(|stamp| stamp.echo);
        let delivery = self.deliver(now, ack, echo, &blocks);
        let advanced = ack > una;
        if advanced {
            self.advance(now, ack);
        }
        self.sample_rtt(now, advanced, delivery, echo, in_flight);
        let sample = self.send.delivery_rate.end_sample(now, self.send.rtt.minimum());
        let may_repeat = view.repeats == Repeats::Count && segment.payload.is_empty();
        let repeats = may_repeat && !advanced && !opened && delivery.bytes == 0;
        let lost_before = self.stats.segments_lost;
        if repeats && !self.sack {
            self.count_duplicate(now);
        }
        self.judge_probe(now, ack, &blocks, repeats, echo);
        self.judge_duplicates(una, &blocks);
        self.judge_recovery(echo, advanced, &delivery, repeats);
        self.note_passing(delivery.largest);
        self.detect_losses(now);
        self.judge_path(now, delivery.largest);
        let lost = self.stats.segments_lost > lost_before;
        self.move_recovery(now, in_flight, delivery.bytes, advanced, lost, repeats);
        if delivery.oldest.is_some() {
            self.ecn.on_capable_arrived();
        }
        let is_held = self.take_echo(now, segment, ack, in_flight, advanced || delivery.bytes > 0);
        if advanced && !is_held {
            self.grow_window(now, in_flight, una, delivery.bytes);
        }
        self.learn_of_path(now, sample, &delivery, una);
        self.follow_pace(now);
        self.arm_after_ack(now, advanced);
        if advanced {
            self.report(Event::Acked { offset: self.acked_offset() });
            if self.send.finish == Finish::Sent && self.send.una > self.send.queue.end() {
                self.fin_acked(now);
            }
        }
    }

    /// Handles an acknowledgment that a later one has overtaken: its SACK blocks may be news. Its window is old, and it does not show
    /// progress.
    fn take_overtaken_ack(&mut self, now: Instant, ack: u64, view: &SegmentView) {
        let (in_flight, una) = (self.pipe(), self.send.una);
        let blocks = self.read_blocks(una, ack, view);
        let delivery = self.deliver(now, una, None, &blocks);
        self.judge_duplicates(una, &blocks);
        if delivery.bytes == 0 {
            return;
        }
        let sample = self.send.delivery_rate.end_sample(now, self.send.rtt.minimum());
        let lost_before = self.stats.segments_lost;
        self.note_passing(delivery.largest);
        self.detect_losses(now);
        let lost = self.stats.segments_lost > lost_before;
        self.move_recovery(now, in_flight, delivery.bytes, false, lost, false);
        self.learn_of_path(now, sample, &delivery, una);
        self.follow_pace(now);
        self.arm_after_ack(now, false);
    }

    /// Converts the SACK blocks into offsets. An impossible block is ignored. The first may report a duplicate instead (RFC 2883, section
    /// 4.2).
    fn read_blocks(&mut self, una: u64, ack: u64, view: &SegmentView) -> Blocks {
        let mut found = Blocks::default();
        if !self.sack {
            return found;
        }
        let base = self.send.seq(ack);
        let place =
            |edge: plait_base::SeqNum| u64::try_from(ack as i64 + i64::from(edge.distance(base))).ok();
        for (index, &(left, right)) in view.sack.iter().enumerate() {
            let (Some(left), Some(right)) = (place(left), place(right)) else { continue };
            if left >= right || right > self.send.next {
                continue;
            }
            let inside_second = || {
                let second = view.sack.get(1).and_then(|&(l, r)| Some((place(l)?, place(r)?)));
                second.is_some_and(|(l, r)| l <= left && right <= r)
            };
            if index == 0 && (right <= ack || inside_second()) {
                found.duplicate = self.believed_duplicate(una, left, right);
            } else if left >= ack {
                found.delivered.push((left, right));
            }
        }
        // In stream order: otherwise RACK would see reordering without any.
        found.delivered.sort_unstable();
        found
    }

    /// Returns the block of a D-SACK if it can refer to a retransmission. The network may have doubled the segment, and a false D-SACK must
    /// not gain time without limit. It reaches back as far as acknowledgments are accepted (RFC 5961, section 5.2), and covers at most the
    /// bytes that were repeated.
    fn believed_duplicate(&mut self, una: u64, left: u64, right: u64) -> Option<Block> {
        let oldest = una.saturating_sub(self.send.window.largest().into());
        if left < oldest {
            return None;
        }
        let Some(rest) = self.send.unreported.checked_sub(right - left) else {
            self.stats.copies_reported += 1;
            return None;
        };
        self.send.unreported = rest;
        Some((left, right))
    }

    /// Marks the acknowledged ranges, and passes each new part to RACK.
    fn deliver(&mut self, now: Instant, ack: u64, echo: Option<u32>, blocks: &Blocks) -> Delivery {
        let mut delivery = Delivery::default();
        let clock = self.timestamps;
        let (flight, rack, rtt) = (&mut self.send.flight, &mut self.send.rack, &self.send.rtt);
        let (recovery, rate) = (&self.send.recovery, &mut self.send.delivery_rate);
        let mut on_delivery = |sent: &Sent, of_original: bool| {
            rack.on_delivery(now, sent, rtt, of_original);
            delivery.original |= !sent.again && recovery.is_original(sent.start);
            delivery.add(sent);
            rate.on_delivery(now, sent);
        };
        flight.acknowledge(ack, |sent| {
            let of_original = match (clock, echo) {
                (Some(clock), Some(echo)) => clock.echoes_before(echo, sent.at),
                (Some(_) | None, _) => false,
            };
            on_delivery(sent, of_original);
        });
        for &(start, end) in &blocks.delivered {
            // After a hole the peer echoes the timestamp before it, whatever it answers (RFC 7323, section 4.3).
            flight.deliver(start, end, |sent| on_delivery(sent, false));
        }
        delivery
    }

    /// Advances the cumulative acknowledgment.
    fn advance(&mut self, now: Instant, ack: u64) {
        self.send.una = ack;
        self.send.queue.release(ack);
        self.send.timeouts = 0;
        self.send.dup_acks = 0;
        self.send.forced = false;
        self.send.progress_at = now;
        self.watch_user_timeout(now, true);
    }

    /// Takes one sample per acknowledgment: by the time of transmission if that is certain, else by the echoed timestamp (RFC 7323, section
    /// 4). An acknowledgment of a retransmission may also report segments that have waited behind a hole, so it is not certain for those
    /// either (Karn). Only a sample ends the back-off of the timer (RFC 6298, section 5): if the round trip exceeds it, each answer would
    /// come too late.
    fn sample_rtt(
        &mut self,
        now: Instant,
        advanced: bool,
        delivery: Delivery,
        echo: Option<u32>,
        in_flight: u64,
    ) {
        // Acknowledgments in a round trip, one for two segments (RFC 7323, appendix G).
        let expected = in_flight.div_ceil(2 * u64::from(self.segment_payload(0)));
        let certain = !delivery.again;
        if let (true, Some(oldest), Some(newest)) = (certain, delivery.oldest, delivery.newest) {
            self.send.rtt.sample(now, now.saturating_since(oldest), expected);
            self.send.rtt.shortest(now, now.saturating_since(newest));
        } else if let (true, Some(clock), Some(echo)) = (advanced, self.timestamps, echo)
            && let Some(rtt) = clock.round_trip(now, echo)
            && delivery.bytes > 0
        {
            self.send.rtt.sample(now, rtt, expected);
        }
    }

    /// A duplicate acknowledgment of a peer without SACK (RFC 5681, section 3.2).
    fn count_duplicate(&mut self, now: Instant) {
        if self.send.flight.is_empty() {
            return;
        }
        self.send.dup_acks = self.send.dup_acks.saturating_add(1);
        // Duplicates of the acknowledgment that ended a recovery answer unnecessary retransmissions (RFC 6582, section 3.2).
        let answers_recovery = self.send.recovery.ended_with(self.send.una);
        if self.send.dup_acks == DUP_THRESHOLD && self.send.recovery.is_open() && !answers_recovery {
            self.lose_first(now);
        }
    }

    /// Declares the first outstanding segment lost. It is sent again whatever the window is (RFC 6582, section 3.2).
    fn lose_first(&mut self, now: Instant) {
        let una = self.send.una;
        let size = u64::from(self.segment_payload(0));
        let end = self.send.flight.first().map_or(una, |sent| sent.end.min(una + size));
        let lost = &mut self.stats.segments_lost;
        let (rate, congestion) = (&mut self.send.delivery_rate, &mut self.send.congestion);
        self.send.flight.lose(
            una,
            end,
            |_| true,
            |sent| {
                *lost += sent.segments();
                rate.on_lost(sent);
                congestion.on_lost(now, sent, rate.lost(), rate.delivered());
            },
        );
        self.send.forced = true;
    }

    fn judge_probe(&mut self, now: Instant, ack: u64, blocks: &Blocks, repeats: bool, echo: Option<u32>) {
        let Some(end) = self.send.probe.end() else { return };
        let duplicate = blocks.duplicate.is_some_and(|(left, right)| left < end && end <= right);
        match self.send.probe.on_ack(AckView { ack, duplicate, repeats, echo }) {
            ProbeVerdict::Nothing | ProbeVerdict::NothingWasLost => {}
            ProbeVerdict::RepairedLoss => {
                self.note_vanished(now);
                if self.send.recovery.is_open() {
                    let in_flight = clamp(self.pipe());
                    let rate = &self.send.delivery_rate;
                    let (lost, delivered) = (rate.lost(), rate.delivered());
                    self.send.congestion.on_repaired_loss(now, in_flight, lost, delivered);
                    self.ecn.on_reduction(self.send.next);
                }
            }
        }
    }

    fn judge_duplicates(&mut self, una: u64, blocks: &Blocks) {
        if let Some((left, right)) = blocks.duplicate {
            self.send.rack.on_duplicate(una, self.send.next);
            self.send.recovery.on_duplicate(left, right);
        }
    }

    /// Reverts the last reduction if it was a mistake. This is shown by the echoed timestamp (RFC 3522), by the arrival of a segment that
    /// was not sent again after a timeout (RFC 5682), or by the double arrival of every retransmission (RFC 3708).
    fn judge_recovery(&mut self, echo: Option<u32>, advanced: bool, delivery: &Delivery, repeats: bool) {
        let was_early = self.send.recovery.was_early(AckAfterTimeout {
            advanced,
            ends: self.send.recovery.ends_at(self.send.una),
            delivers_original: delivery.original,
            repeats: repeats || delivery.bytes > 0,
            segment: self.segment_payload(0).into(),
        });
        if was_early {
            self.send.rack.forget_newest();
        }
        let answered = self.send.recovery.answered_retransmission(self.send.una).filter(|_| advanced);
        let by_timestamp = match (self.timestamps, echo, answered) {
            (Some(clock), Some(echo), Some(sent)) => clock.echoes_before(echo, sent),
            (_, _, _) => false,
        };
        if was_early || by_timestamp || self.send.recovery.was_mistake(self.send.una) {
            log::debug!(una = self.send.una, was_early, by_timestamp, "recovery undone: nothing was lost");
            self.send.recovery.undo();
            self.send.rack.on_mistake();
            self.send.path.on_mistake();
            self.send.congestion.undo();
            self.send.flight.unlose();
            self.stats.spurious_recoveries += 1;
        }
    }

    /// Runs the loss detection of RACK and sets the timer for the rest (RFC 8985, section 6.2, step 5).
    pub(crate) fn detect_losses(&mut self, now: Instant) {
        self.timers.stop(Timer::Reorder);
        if !self.sack {
            return;
        }
        let size = u64::from(self.segment_payload(0));
        // Rounded up: options make segments a little smaller than the size.
        let delivered = self.send.flight.delivered().div_ceil(size);
        let recovering = !self.send.recovery.is_open();
        match self.send.rack.judge(now, &self.send.rtt, delivered, recovering) {
            Detection::NothingDelivered => {}
            Detection::Judged { overdue, next } => {
                let headers = (self.send.path.headers() + self.stamp_len()) as u64;
                let mut losses = Losses::default();
                let (flight, path) = (&mut self.send.flight, &mut self.send.path);
                let (rate, congestion) = (&mut self.send.delivery_rate, &mut self.send.congestion);
                flight.mark_overdue(overdue, |sent| {
                    if losses.add(sent, path, headers) {
                        rate.on_lost(sent);
                        congestion.on_lost(now, sent, rate.lost(), rate.delivered());
                    }
                });
                self.judge_losses(now, losses);
                if self.send.flight.awaits(overdue.newest, overdue.end) {
                    self.timers.set(Timer::Reorder, next);
                }
            }
        }
    }

    /// Enters, paces or leaves recovery.
    fn move_recovery(
        &mut self,
        now: Instant,
        in_flight: u64,
        delivered: u64,
        advanced: bool,
        lost: bool,
        repeats: bool,
    ) {
        if self.send.recovery.ends_at(self.send.una) {
            log::debug!(una = self.send.una, window = self.send.congestion.window(), "recovery ends");
            self.send.recovery.finish();
            self.send.congestion.on_recovered();
            self.send.rack.on_recovered();
        }
        if !self.sack && advanced && !self.send.recovery.is_open() {
            // A partial acknowledgment without SACK: the next segment is lost as well (RFC 6582).
            self.lose_first(now);
        }
        // Each duplicate without SACK stands for one segment that arrived.
        let arrived = if repeats && !self.sack { u64::from(self.segment_payload(0)) } else { delivered };
        if lost && self.send.recovery.is_open() {
            self.enter_recovery(now, in_flight, arrived);
        } else {
            let pipe = self.pipe();
            self.send.recovery.on_ack(arrived, pipe, advanced && !lost);
        }
    }

    /// Begins a recovery: the window is reduced once, and [`Prr`] limits the sending meanwhile.
    pub(crate) fn enter_recovery(&mut self, now: Instant, in_flight: u64, delivered: u64) {
        self.send.congestion.on_congestion(now, clamp(in_flight));
        self.ecn.on_reduction(self.send.next);
        let threshold = u64::from(self.send.congestion.window());
        let segment = u64::from(self.segment_payload(0));
        let mut prr = Prr::new(in_flight, threshold, segment);
        prr.on_ack(delivered, self.pipe(), false);
        self.send.recovery.enter_fast(self.send.una, self.send.next, prr);
        self.send.probe.reset();
        log::debug!(
            una = self.send.una,
            in_flight,
            lost = self.send.flight.lost(),
            threshold,
            "recovery begins"
        );
    }

    /// Grows the window after an advance of the cumulative acknowledgment. Segments that are only selectively acknowledged release new
    /// segments one for one (RFC 3042) and do not grow the window (RFC 5681, section 3.1).
    fn grow_window(&mut self, now: Instant, in_flight: u64, una: u64, delivered: u64) {
        let (growing, after_timeout) = match self.send.recovery.phase() {
            Phase::Open => (delivered > 0, false),
            Phase::Timeout => (delivered > 0, true),
            Phase::Fast(_) => (false, false),
        };
        if growing {
            self.send.congestion.on_ack(&Ack {
                now,
                bytes: clamp(delivered),
                in_flight: clamp(in_flight),
                srtt: self.send.rtt.smoothed(),
                min_rtt: self.send.rtt.minimum(),
                latest_rtt: self.send.rtt.latest(),
                // A window of one segment delays the retransmissions, whatever was in flight before the timeout.
                window_limited: after_timeout || una < self.send.limited_until,
            });
        }
    }

    /// Reports a delivery to a controller with a model of the path, in every phase of a recovery.
    fn learn_of_path(&mut self, now: Instant, sample: Option<Sample>, delivery: &Delivery, una: u64) {
        let Some(sample) = sample.filter(|_| self.send.congestion.watches_path()) else { return };
        let in_flight = self.pipe();
        // Together with a retransmission, it may not be certain which transmission is answered.
        let newest = delivery.newest.filter(|_| !delivery.again);
        self.send.congestion.on_path_ack(&PathAck {
            now,
            sample,
            bytes: delivery.bytes,
            lost: self.send.delivery_rate.lost(),
            in_flight,
            round_trip: newest.map(|sent| now.saturating_since(sent)),
            smoothed: self.send.rtt.smoothed(),
            window_limited: una < self.send.limited_until,
        });
        if self.send.congestion.bbr().is_some_and(Bbr::is_probing_round_trip) {
            self.send.delivery_rate.limit(in_flight);
        }
    }
}

pub(crate) fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
