//! Datagrams on one subflow: those in flight, the reports about them, and our reports about the peer's.

use plait_base::{Duration, Instant, SubflowId};
use plait_protect::sealed::Report;
use std::collections::VecDeque;

/// Most datagrams in flight on a subflow.
const MAX_IN_FLIGHT: usize = 4096;
/// Retransmission timeouts without a report after which the datagrams in flight count no more.
const SILENT_TIMEOUTS: u32 = 3;
/// Time between two reports, beside the round trip.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_millis(200);
/// Datagrams after which a report does not wait for its time.
const AT_ONCE: u64 = 8;
/// The unit of the delay in a report.
const UNIT_MICROS: u64 = 100;

#[derive(Clone, Copy, Debug)]
struct Sent {
    counter: u64,
    bytes: u32,
    at: Instant,
}

/// The state of one subflow.
#[derive(Debug)]
pub(crate) struct Lane {
    id: SubflowId,
    /// The counter after the last one sent.
    next: u64,
    in_flight: VecDeque<Sent>,
    bytes: u32,
    /// The last report of the peer, and when it came; before the first, when the subflow began to carry datagrams.
    reported: Report,
    reported_at: Instant,
    /// Datagrams missing below `reported.next`.
    missing: u64,
    /// Of those, how many count as lost: they were missing in two reports.
    lost: u64,
    /// Since when no report has come in time.
    silent_since: Option<Instant>,
    /// Whether the window kept a datagram from leaving since the last report.
    is_limited: bool,
    /// When a loss last counted as congestion.
    reduced_at: Option<Instant>,
    /// When the highest datagram of the peer arrived.
    arrived_at: Instant,
    /// Datagrams of the peer, and those since our last report.
    arrived: u64,
    unsaid: u64,
    said_at: Option<Instant>,
}

/// The content of a report that is news.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Verdict {
    /// Bytes that are no longer in flight.
    pub(crate) bytes: u32,
    /// Datagrams that count as lost since the last report.
    pub(crate) lost: u64,
    /// Whether the loss is the first in a round trip.
    pub(crate) is_congestion: bool,
    /// Whether the window was too small since the last report.
    pub(crate) was_limited: bool,
}

impl Lane {
    pub(super) fn new(now: Instant, id: SubflowId) -> Self {
        Self {
            id,
            next: 0,
            in_flight: VecDeque::new(),
            bytes: 0,
            reported: Report::default(),
            reported_at: now,
            missing: 0,
            lost: 0,
            silent_since: None,
            is_limited: false,
            reduced_at: None,
            arrived_at: now,
            arrived: 0,
            unsaid: 0,
            said_at: None,
        }
    }

    pub(crate) fn id(&self) -> SubflowId {
        self.id
    }

    /// Returns the bytes in flight.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the number of datagrams in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.len() as u64
    }

    /// Since when no report has come in time, if none has.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.silent_since
    }

    /// Returns the number of datagrams of the peer that have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns the number of datagrams that count as lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the counter after the last one sent.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether so many bytes may leave. `window` is that of the congestion control, `stream` what the stream has in flight, `least` the
    /// smallest window. While the stream waits for the window, datagrams have half of it. One datagram may always be in flight.
    pub(crate) fn has_room(
        &self,
        bytes: u32,
        window: u32,
        stream: u32,
        stream_waits: bool,
        least: u32,
    ) -> bool {
        let limit = if self.silent_since.is_some() {
            least
        } else if stream_waits {
            window / 2
        } else {
            (window / 2).max(window.saturating_sub(stream))
        };
        self.in_flight.is_empty()
            || (self.bytes + bytes <= limit && self.in_flight.len() + 4 <= MAX_IN_FLIGHT)
    }

    /// Notes that the window has kept a datagram from leaving.
    pub(crate) fn on_limited(&mut self) {
        self.is_limited = true;
    }

    /// Notes that a datagram has left.
    pub(crate) fn on_sent(&mut self, now: Instant, counter: u64, bytes: u32) {
        if self.in_flight.is_empty() {
            // The wait for a report begins.
            self.reported_at = self.reported_at.max(now);
        }
        self.next = counter + 1;
        self.bytes += bytes;
        self.in_flight.push_back(Sent { counter, bytes, at: now });
    }

    /// Takes a verified report. `None` if it says nothing new, or what cannot be.
    pub(crate) fn on_report(
        &mut self,
        now: Instant,
        report: Report,
        round_trip: Duration,
    ) -> Option<Verdict> {
        let Report { next, count, delay: _ } = report;
        let before = self.reported;
        let is_possible = next <= self.next && count <= next;
        if !is_possible || next < before.next || count < before.count {
            return None;
        }
        if (next, count) == (before.next, before.count) {
            return None;
        }
        let mut bytes = 0;
        while let Some(sent) = self.in_flight.front().filter(|sent| sent.counter < next) {
            bytes += sent.bytes;
            self.in_flight.pop_front();
        }
        self.bytes -= bytes;
        // What is missing for the first time may only be late.
        let missing = next - count;
        let lost = self.missing.min(missing).saturating_sub(self.lost);
        self.lost += lost;
        self.missing = missing;
        let is_congestion =
            lost > 0 && self.reduced_at.is_none_or(|at| now.saturating_since(at) >= round_trip);
        if is_congestion {
            self.reduced_at = Some(now);
        }
        self.reported = report;
        self.reported_at = now;
        self.silent_since = None;
        let was_limited = core::mem::take(&mut self.is_limited);
        Some(Verdict { bytes, lost, is_congestion, was_limited })
    }

    fn silent_at(&self, rto: Duration) -> Option<Instant> {
        let oldest = self.in_flight.front()?.at;
        Some(oldest.max(self.reported_at) + rto * SILENT_TIMEOUTS)
    }

    /// If no report has come for too long, nothing is in flight any more, and the window is the smallest until one comes. Returns the number
    /// of datagrams that were given up.
    pub(crate) fn give_up(&mut self, now: Instant, rto: Duration) -> u64 {
        if self.silent_at(rto).is_none_or(|at| at > now) {
            return 0;
        }
        self.silent_since = Some(now);
        self.bytes = 0;
        let given_up = self.in_flight.len() as u64;
        self.in_flight.clear();
        given_up
    }

    /// Notes that a datagram of the peer has arrived, as the highest or not.
    pub(crate) fn on_arrival(&mut self, now: Instant, is_highest: bool) {
        if is_highest {
            self.arrived_at = now;
        }
        self.arrived += 1;
        self.unsaid += 1;
    }

    /// Returns when a report is due, if one is.
    pub(crate) fn report_at(&self, round_trip: Duration) -> Option<Instant> {
        let interval = round_trip.max(MIN_INTERVAL).min(MAX_INTERVAL);
        match (self.unsaid, self.said_at) {
            (0, _) => None,
            (1.., None) | (AT_ONCE.., Some(_)) => Some(self.arrived_at),
            (1.., Some(said)) => Some(said + interval),
        }
    }

    /// Notes that a report leaves, and returns the delay in it.
    pub(crate) fn on_said(&mut self, now: Instant) -> u16 {
        self.unsaid = 0;
        self.said_at = Some(now);
        let units = now.saturating_since(self.arrived_at).as_micros() as u64 / UNIT_MICROS;
        u16::try_from(units).unwrap_or(u16::MAX)
    }

    pub(super) fn deadline(&self, round_trip: Duration, rto: Duration) -> Option<Instant> {
        [self.report_at(round_trip), self.silent_at(rto)].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);
    const RTO: Duration = Duration::from_millis(200);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn report(next: u64, count: u64) -> Report {
        Report { next, count, delay: 0 }
    }

    fn lane_with(sent: u64) -> Lane {
        let mut lane = Lane::new(at(0), SubflowId(0));
        for counter in 0..sent {
            lane.on_sent(at(counter), counter, 100);
        }
        lane
    }

    #[test]
    fn a_datagram_counts_as_lost_when_two_reports_miss_it() {
        let mut lane = lane_with(10);
        let first = lane.on_report(at(30), report(5, 4), RTT).expect("it is news");
        assert_eq!((first.bytes, first.lost), (500, 0), "it may be late");
        let second = lane.on_report(at(50), report(8, 6), RTT).expect("it is news");
        assert_eq!((second.bytes, second.lost, second.is_congestion), (300, 1, true));
        let third = lane.on_report(at(51), report(10, 8), RTT).expect("it is news");
        assert_eq!((third.lost, third.is_congestion), (1, false), "once in a round trip");
        let late = lane.on_report(at(52), report(10, 10), RTT).expect("both were late");
        assert_eq!((late.lost, lane.bytes()), (0, 0));
    }

    #[test]
    fn reports_only_go_up_and_say_nothing_about_what_was_not_sent() {
        let mut lane = lane_with(10);
        assert!(lane.on_report(at(30), report(8, 8), RTT).is_some());
        for wrong in [report(8, 8), report(7, 7), report(9, 7), report(11, 9), report(9, 10)] {
            assert_eq!(lane.on_report(at(31), wrong, RTT), None, "{wrong:?}");
        }
        assert_eq!(lane.bytes(), 200);
    }

    #[test]
    fn without_reports_for_three_timeouts_the_window_is_the_smallest_until_one_comes() {
        let mut lane = lane_with(50);
        let window = 10_000;
        assert!(lane.has_room(100, window, 0, false, 200) && !lane.has_room(100, window, 0, true, 200));
        assert_eq!(lane.give_up(at(599), RTO), 0);
        assert_eq!((lane.give_up(at(600), RTO), lane.bytes()), (50, 0));
        for counter in 50..52 {
            assert!(lane.has_room(100, window, 0, false, 200));
            lane.on_sent(at(600), counter, 100);
        }
        assert!(!lane.has_room(100, window, 0, false, 200));
        assert_eq!(lane.deadline(RTT, RTO), Some(at(1200)));
        assert!(lane.on_report(at(700), report(52, 2), RTT).is_some());
        assert!(lane.has_room(5000, window, 0, false, 200));
    }

    #[test]
    fn a_report_is_due_after_a_round_trip_or_eight_datagrams() {
        let mut lane = lane_with(0);
        assert_eq!(lane.report_at(RTT), None);
        lane.on_arrival(at(5), true);
        assert_eq!(lane.report_at(RTT), Some(at(5)), "the first at once");
        assert_eq!(lane.on_said(at(7)), 20);
        for _ in 0..7 {
            lane.on_arrival(at(9), false);
        }
        assert_eq!(lane.report_at(RTT), Some(at(27)));
        lane.on_arrival(at(10), true);
        assert_eq!(lane.report_at(RTT), Some(at(10)));
        lane.on_said(at(10));
        assert_eq!(lane.deadline(RTT, RTO), None);
    }
}
