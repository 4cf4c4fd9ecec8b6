//! The books of what is in flight.

use super::Fate::{Delivered, InFlight, Lost};
use super::*;

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn shape(flight: &Flight) -> Vec<(u64, u64, Fate)> {
    flight.ranges.iter().map(|sent| (sent.start, sent.end, sent.fate)).collect()
}

fn check(flight: &Flight) {
    let sum = |fate| flight.ranges.iter().filter(|s| s.fate == fate).map(Sent::len).sum::<u64>();
    assert_eq!(flight.in_flight, sum(InFlight));
    assert_eq!(flight.delivered, sum(Delivered));
    assert_eq!(flight.lost, sum(Lost));
    for (a, b) in flight.ranges.iter().zip(flight.ranges.iter().skip(1)) {
        assert_eq!(a.end, b.start);
        assert!(a.start < a.end);
        assert!(a.fate != Delivered || b.fate != Delivered, "delivered neighbours are joined");
    }
}

#[test]
fn a_super_segment_is_split_where_a_block_goes_through_it() {
    let mut flight = Flight::default();
    flight.push(1, 1001, at(0), 100, Departure::default());
    let mut news = Vec::new();
    flight.deliver(301, 401, |sent| news.push((sent.start, sent.end)));
    assert_eq!(shape(&flight), [(1, 301, InFlight), (301, 401, Delivered), (401, 1001, InFlight)]);
    flight.deliver(301, 501, |sent| news.push((sent.start, sent.end)));
    assert_eq!(shape(&flight), [(1, 301, InFlight), (301, 501, Delivered), (501, 1001, InFlight)]);
    flight.deliver(801, 1001, |sent| news.push((sent.start, sent.end)));
    flight.deliver(301, 1001, |sent| news.push((sent.start, sent.end)));
    assert_eq!(shape(&flight), [(1, 301, InFlight), (301, 1001, Delivered)]);
    assert_eq!(news, [(301, 401), (401, 501), (801, 1001), (501, 801)], "each part is news once");
    check(&flight);
}

#[test]
fn an_acknowledgment_inside_a_range_leaves_the_rest() {
    let mut flight = Flight::default();
    flight.push(1, 1001, at(0), 100, Departure::default());
    let mut acked = 0;
    flight.acknowledge(251, |sent| acked += sent.len());
    assert_eq!((acked, flight.in_flight()), (250, 750));
    assert_eq!(shape(&flight), [(251, 1001, InFlight)]);
}

#[test]
fn a_stream_that_never_pauses_leaves_nothing_behind() {
    let mut flight = Flight::default();
    flight.push(1, 1001, at(0), 100, Departure::default());
    for n in 1..1000 {
        flight.push(n * 1000 + 1, n * 1000 + 1001, at(n), 100, Departure::default());
        flight.acknowledge(n * 1000 + 1, |_| {});
    }
    assert_eq!((flight.ranges.len(), flight.log.len()), (1, 1));
}

#[test]
fn only_what_was_sent_before_the_newest_delivery_is_overdue() {
    let mut flight = Flight::default();
    flight.push(1, 1001, at(0), 100, Departure::default());
    flight.push(1001, 2001, at(1), 100, Departure::default());
    flight.deliver(501, 601, |_| {});
    flight.mark_overdue(Overdue { newest: at(0), end: 601, sent_by: at(5) }, |_| {});
    assert_eq!(
        shape(&flight),
        [(1, 501, Lost), (501, 601, Delivered), (601, 1001, InFlight), (1001, 2001, InFlight)],
        "the rest of the same super-segment was sent after it"
    );
    flight.retransmit(1, 501, at(6), 100, Departure::default());
    flight.mark_overdue(Overdue { newest: at(1), end: 2001, sent_by: at(5) }, |_| {});
    assert_eq!(
        shape(&flight),
        [(1, 501, InFlight), (501, 601, Delivered), (601, 1001, Lost), (1001, 2001, Lost)],
        "the retransmission was sent later than all of them"
    );
    check(&flight);
}

#[test]
fn a_lost_retransmission_is_found_by_its_own_time() {
    let mut flight = Flight::default();
    flight.push(1, 101, at(0), 100, Departure::default());
    flight.push(101, 201, at(0), 100, Departure::default());
    flight.deliver(101, 201, |_| {});
    flight.mark_overdue(Overdue { newest: at(0), end: 201, sent_by: at(9) }, |_| {});
    flight.retransmit(1, 101, at(10), 100, Departure::default());
    flight.push(201, 301, at(11), 100, Departure::default());
    flight.deliver(201, 301, |_| {});
    let mut lost = Vec::new();
    flight.mark_overdue(Overdue { newest: at(11), end: 301, sent_by: at(20) }, |sent| lost.push(*sent));
    assert_eq!(lost.len(), 1);
    assert!(lost[0].again && lost[0].start == 1);
}

#[test]
fn a_mistake_is_taken_back_and_can_be_found_again() {
    let mut flight = Flight::default();
    flight.push(1, 101, at(0), 100, Departure::default());
    flight.push(101, 201, at(1), 100, Departure::default());
    flight.lose(1, 201, |_| true, |_| {});
    flight.unlose();
    assert_eq!((flight.in_flight(), flight.lost()), (200, 0));
    flight.mark_overdue(Overdue { newest: at(1), end: 201, sent_by: at(0) }, |_| {});
    assert_eq!(shape(&flight), [(1, 101, Lost), (101, 201, InFlight)]);
    assert_eq!(flight.first_lost().map(|sent| sent.start), Some(1));
}

#[test]
fn a_peer_that_reneges_gets_everything_again() {
    let mut flight = Flight::default();
    flight.push(1, 301, at(0), 100, Departure::default());
    flight.deliver(101, 201, |_| {});
    flight.renege();
    assert_eq!((flight.delivered(), flight.lost()), (0, 100));
    assert_eq!(flight.first_lost().map(|sent| (sent.start, sent.end)), Some((101, 201)));
    check(&flight);
}

#[test]
fn a_block_counts_for_the_wire_segments_that_lie_wholly_inside() {
    let mut flight = Flight::default();
    flight.push(1, 951, at(0), 100, Departure::default());
    let mut news = Vec::new();
    for (start, end) in [(150, 160), (101, 200), (102, 201), (150, 451), (750, 951)] {
        flight.deliver(start, end, |sent| news.push((sent.start, sent.end)));
    }
    assert_eq!(news, [(201, 401), (801, 951)], "the last segment is a short one");
    flight.acknowledge(30, |_| {});
    flight.deliver(29, 150, |sent| news.push((sent.start, sent.end)));
    assert_eq!(news[2..], [(30, 101)], "of the first, what was not acknowledged is enough");
    check(&flight);
}

#[test]
fn a_peer_cannot_make_more_ranges_than_wire_segments_were_sent() {
    let mut flight = Flight::default();
    flight.push(1, 1_000_001, at(0), 1000, Departure::default());
    for byte in (1..100_000).step_by(2) {
        flight.deliver(byte, byte + 1, |_| {});
    }
    assert_eq!(flight.ranges.len(), 1);
    for start in (1..1_000_000).step_by(2000) {
        flight.deliver(start, start + 1000, |_| {});
    }
    assert_eq!(flight.ranges.len(), 1000);
    flight.deliver(1, 1_000_001, |_| {});
    assert_eq!(shape(&flight), [(1, 1_000_001, Delivered)]);
    check(&flight);
}

#[test]
fn a_peer_cannot_make_more_ranges_than_the_limit() {
    let mut flight = Flight::default();
    flight.push(1, 10_000_001, at(0), 100, Departure::default());
    for start in (101..10_000_000).step_by(200) {
        flight.deliver(start, start + 100, |_| {});
    }
    assert!(flight.ranges.len() <= MAX_RANGES, "{}", flight.ranges.len());
    check(&flight);
    flight.deliver(101, 10_000_001, |_| {});
    assert_eq!(
        shape(&flight),
        [(1, 101, InFlight), (101, 10_000_001, Delivered)],
        "whole ranges still count"
    );
    check(&flight);
}

#[test]
fn what_was_lost_at_several_times_is_one_range_again() {
    let mut flight = Flight::default();
    flight.push(1, 1001, at(0), 100, Departure::default());
    flight.deliver(301, 401, |_| {});
    flight.mark_overdue(Overdue { newest: at(0), end: 401, sent_by: at(9) }, |_| {});
    flight.renege();
    flight.lose(1, 1001, |_| true, |_| {});
    assert_eq!(shape(&flight), [(1, 1001, Lost)]);
    check(&flight);
}

#[test]
fn the_log_of_transmissions_does_not_outgrow_what_is_outstanding() {
    let mut flight = Flight::default();
    flight.push(1, 1001, at(0), 100, Departure::default());
    for n in 1..10_000 {
        flight.lose(101, 201, |_| true, |_| {});
        flight.retransmit(101, 201, at(n), 100, Departure::default());
    }
    assert!(flight.log.len() < 200, "{}", flight.log.len());
    flight.mark_overdue(Overdue { newest: at(20_000), end: 1001, sent_by: at(20_000) }, |_| {});
    assert_eq!((flight.in_flight(), flight.lost()), (0, 1000), "nothing in flight was forgotten");
    check(&flight);
}

#[test]
fn random_operations_keep_the_books_balanced() {
    use plait_base::Random;
    let mut random = plait_base::SeededRandom::from_number(7);
    for _ in 0..40 {
        let (mut flight, mut una, mut next) = (Flight::default(), 1u64, 1u64);
        let mut now = 0;
        for _ in 0..300 {
            now += random.below(3);
            let outstanding = next - una;
            let (a, b) = (una + random.below(outstanding + 1), una + random.below(outstanding + 1));
            match random.below(7) {
                0 | 1 => {
                    let end = next + 1 + random.below(2000);
                    flight.push(next, end, at(now), 100, Departure::default());
                    next = end;
                }
                2 => flight.deliver(a.min(b), a.max(b), |_| {}),
                3 => {
                    una = a;
                    flight.acknowledge(a, |_| {});
                }
                4 => flight.lose(a.min(b), a.max(b), |_| true, |_| {}),
                5 => {
                    if let Some(lost) = flight.first_lost() {
                        flight.retransmit(
                            lost.start,
                            lost.end.min(lost.start + 150),
                            at(now),
                            100,
                            Departure::default(),
                        );
                    }
                }
                _ => {
                    let overdue = Overdue { newest: at(now), end: b, sent_by: at(now.saturating_sub(5)) };
                    flight.mark_overdue(overdue, |_| {});
                }
            }
            check(&flight);
        }
    }
}
