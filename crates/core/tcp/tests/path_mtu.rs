//! Path MTU discovery: black holes, reports of routers, and the search upwards (RFC 4821, 8899, 5927, 1191).

mod pair;

use std::cell::RefCell;
use std::rc::Rc;

use pair::{Pair, Path, Side, pattern, plain_link};
use plait_base::Duration;
use plait_link::megabits;
use plait_tcp::{Config, Record};
use plait_wire::{IcmpError, IcmpReason, OptionBytes, Segment};

/// Packet sizes are of IPv4 with timestamps.
const HEADERS: usize = 52;

/// Round trip while the queue of 60,000 bytes is full: 48 ms at 10 Mbit/s, and 20.
const FULL_QUEUE: Duration = Duration::from_millis(68);

/// What the path of A takes, and what A has sent over it.
#[derive(Default)]
struct Narrow {
    takes: usize,
    /// Payloads of wire segments that passed.
    passed: Vec<usize>,
    /// Segments that did not.
    refused: Vec<Segment>,
}

/// A connection of 20 ms and 10 Mbit/s, whose path takes what the second says. Routers say nothing.
fn on_narrow_path(config: Config) -> (Pair, Rc<RefCell<Narrow>>) {
    let link = plait_link::LinkConfig { rate: megabits(10), queue_limit: 60_000, ..plain_link() };
    let mut pair = Pair::established(1, config, &Path::of(link));
    let narrow = Rc::new(RefCell::new(Narrow { takes: 1500, ..Narrow::default() }));
    let path = narrow.clone();
    pair.filter = Box::new(move |side, segment| {
        let mut path = path.borrow_mut();
        if side == Side::B {
            return path.takes > 0;
        }
        let passes = segment.payload.len() + segment.options.len() + 40 <= path.takes;
        if passes {
            path.passed.push(segment.payload.len());
        } else {
            path.refused.push(segment.clone());
        }
        passes
    });
    (pair, narrow)
}

fn config() -> Config {
    Config { max_super_segment: 16 * 1448, ..Config::default() }
}

/// Writes so much in records of 32 KiB with 20 bytes of options each, like a connection with mappings.
fn write(pair: &mut Pair, from: usize, len: usize) {
    for at in (from..from + len).step_by(32 << 10) {
        let payload = pattern(at, (from + len - at).min(32 << 10));
        let options = OptionBytes::from_iter([1; 20]);
        pair.a.tcp.send(Record { payload, options, push: false });
    }
}

fn received(pair: &mut Pair) -> usize {
    pair.b().received.len()
}

fn largest(narrow: &RefCell<Narrow>) -> usize {
    narrow.borrow().passed.iter().copied().max().unwrap_or(0) + HEADERS + 20
}

#[test]
fn after_an_outage_segments_are_soon_as_large_as_before() {
    for outage in [2, 8, 40] {
        let (mut pair, narrow) = on_narrow_path(config());
        write(&mut pair, 0, 8 << 20);
        pair.run_for(Duration::from_millis(500));
        narrow.borrow_mut().takes = 0;
        pair.run_for(Duration::from_secs(outage));
        let before = received(&mut pair);
        narrow.borrow_mut().takes = 1500;
        while received(&mut pair) == before {
            pair.run_for(Duration::from_millis(20));
        }
        pair.run_for(Duration::from_millis(500));
        assert_eq!(pair.a.tcp.segment_payload(20), 1428, "after {outage} s");
    }
}

#[test]
fn a_path_that_becomes_narrower_in_silence_is_used_again_within_three_round_trips() {
    let (mut pair, narrow) = on_narrow_path(config());
    write(&mut pair, 0, 12 << 20);
    pair.run_for(Duration::from_secs(1));
    narrow.borrow_mut().takes = 1400;
    pair.run_for(FULL_QUEUE);
    let since = pair.a.tcp.last_progress();
    narrow.borrow_mut().passed.clear();
    // The probe of the tail passes in two pieces; what its answer calls for is the third that passes.
    while narrow.borrow().passed.len() < 3 {
        pair.run_for(Duration::from_millis(1));
        assert!(pair.now < since + Duration::from_secs(60), "never");
    }
    assert_eq!(pair.a.tcp.segment_payload(20), 1128);
    let took = pair.now.saturating_since(since);
    assert!(took <= FULL_QUEUE * 3, "{took:?}");
    // The rest: as large as it takes, but for what is not worth a probe.
    pair.run_for(Duration::from_secs(9));
    assert!((1384..=1400).contains(&largest(&narrow)), "{}", largest(&narrow));
    let all = received(&mut pair);
    assert_eq!(pair.b().received[..], pattern(0, all)[..]);
}

#[test]
fn a_probe_that_is_lost_is_sent_again_in_pieces_and_says_nothing_about_congestion() {
    let (mut pair, narrow) = on_narrow_path(config());
    narrow.borrow_mut().takes = 1240;
    write(&mut pair, 0, 1 << 20);
    pair.run_for(Duration::from_millis(150));
    // The first flight was lost; from here on only probes are.
    narrow.borrow_mut().refused.clear();
    let mut at = received(&mut pair);
    for _ in 0..100 {
        let window = pair.a.tcp.congestion().window();
        pair.run_for(Duration::from_millis(20));
        if pair.a.tcp.stats().segments_lost == 0 {
            assert!(pair.a.tcp.congestion().window() >= window);
        }
        at = received(&mut pair);
    }
    assert_eq!(at, 1 << 20);
    assert_eq!(pair.b().received[..], pattern(0, 1 << 20)[..]);
}

fn too_big(pair: &mut Pair, segment: &Segment, mtu: u32) {
    let reason = IcmpReason::TooBig { mtu };
    let error =
        IcmpError { source: segment.source, destination: segment.destination, seq: segment.seq, reason };
    pair.a.tcp.handle_icmp(pair.now, &error);
}

#[test]
fn a_forged_packet_too_big_changes_nothing_while_full_segments_arrive() {
    let (mut pair, narrow) = on_narrow_path(config());
    write(&mut pair, 0, 4 << 20);
    let seen: Rc<RefCell<Vec<Segment>>> = Rc::default();
    let tap = seen.clone();
    pair.filter = Box::new(move |side, segment| {
        if side == Side::A && !segment.payload.is_empty() {
            tap.borrow_mut().push(segment.clone());
        }
        true
    });
    drop(narrow);
    pair.run_for(Duration::from_millis(200));
    for _ in 0..50 {
        pair.run_for(Duration::from_millis(20));
        // One that is surely in flight.
        let last = seen.borrow().last().cloned();
        if let Some(last) = last {
            too_big(&mut pair, &last, 576);
        }
        assert_eq!(pair.a.tcp.segment_payload(20), 1428);
    }
}

#[test]
fn a_router_that_is_right_is_heard_within_two_round_trips_and_forgotten_after_ten_minutes() {
    let (mut pair, narrow) = on_narrow_path(config());
    write(&mut pair, 0, 8 << 20);
    pair.run_for(Duration::from_millis(500));
    let lost = pair.a.tcp.stats().segments_lost;
    narrow.borrow_mut().takes = 1300;
    while narrow.borrow().refused.is_empty() {
        pair.run_for(Duration::from_millis(1));
    }
    let first = narrow.borrow().refused[0].clone();
    too_big(&mut pair, &first, 1300);
    let deadline = pair.now + FULL_QUEUE * 2;
    while pair.a.tcp.segment_payload(20) == 1428 && pair.now < deadline {
        pair.run_for(Duration::from_millis(1));
    }
    assert_eq!(pair.a.tcp.segment_payload(20), 1300 - HEADERS as u16 - 20);
    assert_eq!(pair.a.tcp.stats().segments_lost, lost, "no sign of congestion");
    pair.run_for(Duration::from_secs(15));
    narrow.borrow_mut().takes = 1500;
    let (from, size) = (received(&mut pair), |pair: &Pair| pair.a.tcp.segment_payload(20));
    assert_eq!(from, 8 << 20);
    write(&mut pair, from, 1 << 20);
    pair.run_for(Duration::from_secs(10));
    assert_eq!(size(&pair), 1228, "a router's word holds for a while");
    pair.run_for(Duration::from_secs(600));
    write(&mut pair, from + (1 << 20), 1 << 20);
    pair.run_for(Duration::from_secs(10));
    assert_eq!(size(&pair), 1428);
}
