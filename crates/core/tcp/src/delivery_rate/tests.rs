//! Samples of the rate, as traces of what left and what was acknowledged when.

use super::*;
use crate::flight::Flight;

const LEN: u64 = 1000;

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A sender of segments of 1000 bytes over a path whose shortest round trip is 10 ms.
struct Trace {
    flight: Flight,
    rate: DeliveryRate,
    next: u64,
}

impl Trace {
    fn new() -> Self {
        Self { flight: Flight::default(), rate: DeliveryRate::new(at(0)), next: 1 }
    }

    fn send(&mut self, millis: u64, segments: u64) {
        let departure = self.rate.on_send(at(millis), self.flight.in_flight(), segments * LEN);
        let end = self.next + segments * LEN;
        self.flight.push(self.next, end, at(millis), LEN as u16, departure);
        self.next = end;
    }

    /// The first `segments` have arrived.
    fn ack(&mut self, millis: u64, segments: u64) -> Option<u64> {
        let rate = &mut self.rate;
        self.flight.acknowledge(1 + segments * LEN, |sent| rate.on_delivery(at(millis), sent));
        self.rate.end_sample(at(millis), Some(Duration::from_millis(10)));
        self.rate.rate()
    }

    /// One segment leaves and one arrives each millisecond, from `millis` on, ten of them on their way.
    fn steady(&mut self, millis: u64, count: u64) -> Option<u64> {
        let acked = (self.next - 1 - self.flight.in_flight()) / LEN;
        (0..count).fold(None, |_, step| {
            let rate = self.ack(millis + step, acked + step + 1);
            self.send(millis + step, 1);
            rate
        })
    }

    fn at_a_megabyte() -> Self {
        let mut trace = Self::new();
        (0..10).for_each(|millis| trace.send(millis, 1));
        assert_eq!(trace.steady(10, 20), Some(1_000_000), "1000 bytes a millisecond");
        trace
    }
}

#[test]
fn the_rate_is_what_arrives_in_a_round_trip() {
    Trace::at_a_megabyte();
}

#[test]
fn a_window_that_leaves_at_once_shows_what_a_round_trip_delivers_and_no_more() {
    let mut trace = Trace::new();
    trace.send(0, 10);
    assert_eq!(trace.ack(10, 10), Some(1_000_000));
}

#[test]
fn acknowledgments_that_come_in_a_bunch_do_not_show_more_than_was_sent() {
    let mut trace = Trace::at_a_megabyte();
    (30..40).for_each(|millis| trace.send(millis, 1));
    // All that were held back since 30 ms come at 40, and what leaves after the first of them is delivered by 50: twenty
    // segments in ten milliseconds, which it took twenty to send.
    let first = trace.ack(40, 21);
    trace.send(40, 1);
    let rates = [first, trace.ack(40, 40), trace.ack(50, 41)];
    assert!(rates.iter().all(|&rate| rate < Some(1_000_010)), "{rates:?}");
}

#[test]
fn a_stretch_acknowledgment_shows_the_same_as_many() {
    let mut trace = Trace::at_a_megabyte();
    (30..40).for_each(|millis| trace.send(millis, 1));
    let rate = trace.ack(40, 31).expect("a sample");
    // Spans are cut to 256 ns.
    assert!((900_000..1_000_010).contains(&rate), "{rate}");
}

#[test]
fn a_time_below_the_shortest_round_trip_gives_no_rate() {
    let mut trace = Trace::new();
    trace.send(0, 10);
    assert_eq!(trace.ack(9, 10), None);
    trace.send(20, 10);
    assert_eq!(trace.ack(20, 20), None, "no time at all");
}

#[test]
fn an_owner_with_little_to_send_does_not_lower_the_rate() {
    let mut trace = Trace::at_a_megabyte();
    trace.ack(39, 30);
    trace.rate.on_starved(at(40));
    trace.send(60, 1);
    assert_eq!(trace.ack(70, 31), Some(1_000_000), "100 kB/s is what was sent, not what the path can do");
}

#[test]
fn an_owner_with_little_to_send_raises_the_rate_where_it_shows_more() {
    let mut trace = Trace::at_a_megabyte();
    trace.ack(39, 30);
    trace.rate.on_starved(at(40));
    trace.send(60, 20);
    assert_eq!(trace.ack(70, 50), Some(2_000_000));
}

#[test]
fn a_path_that_gets_slower_lowers_the_rate_once_the_owner_keeps_up_again() {
    let mut trace = Trace::at_a_megabyte();
    trace.ack(39, 30);
    trace.rate.on_starved(at(40));
    trace.send(60, 1);
    trace.ack(70, 31);
    trace.send(70, 5);
    assert_eq!(trace.ack(80, 36), Some(500_000), "the pause is delivered");
}

#[test]
fn what_comes_at_the_moment_of_the_question_is_no_pause() {
    let mut trace = Trace::at_a_megabyte();
    trace.ack(39, 30);
    trace.rate.on_starved(at(40));
    trace.send(40, 5);
    assert_eq!(trace.ack(50, 35), Some(500_000), "believed down");
}

#[test]
fn an_idle_time_is_not_counted() {
    let mut trace = Trace::at_a_megabyte();
    trace.ack(39, 30);
    trace.send(100_000, 10);
    assert_eq!(trace.ack(100_010, 40), Some(1_000_000));
}

#[test]
fn counters_wrap_and_spans_end_without_harm() {
    let mut trace = Trace::at_a_megabyte();
    trace.rate.delivered = u64::from(u32::MAX) - 500;
    trace.ack(39, 30);
    trace.send(50, 10);
    assert_eq!(trace.ack(60, 40), Some(1_000_000));
    trace.send(70, 1);
    trace.send(70 + 3_600_000, 1);
    assert!(trace.ack(3_600_080, 42).is_some_and(|rate| rate < 10), "an hour is taken for 18 minutes");
}
