//! Handshakes cost most: limits on those that run with one prefix at once, and in all.

use core::net::SocketAddr;
use plait_base::{Duration, SeqNum};
use plait_endpoint::EndpointConfig;
use plait_handshake::Tep;
use plait_mptcp::Config;
use plait_wire::{Flags, OptionBytes, Segment};

use crate::fixture::{Fixture, sealed, server_address};
use crate::raw_peer::RawPeer;
use crate::tell;

const LIMITS: EndpointConfig =
    EndpointConfig { max_handshakes: 8, max_handshakes_per_prefix: 4, ..EndpointConfig::DEFAULT };

#[test]
fn a_prefix_with_enough_handshakes_is_held_back_and_the_others_are_not() {
    let mut fixture = fixture();
    for number in 0..6 {
        begin(&mut fixture, raw_peer(1, number));
    }
    let counters = fixture.server.counters();
    assert_eq!((counters.handshakes, counters.handshakes_waiting), (4, 2), "{counters:?}");
    let (mut peer, init) = begin(&mut fixture, raw_peer(2, 0));
    finish(&mut fixture, &mut peer, &init);
    assert!(peer.keys.is_some());
}

#[test]
fn a_waiting_client_is_answered_as_soon_as_there_is_room_without_a_repetition() {
    let mut fixture = fixture();
    let first: Vec<_> = (0..4).map(|number| begin(&mut fixture, raw_peer(1, number))).collect();
    let (mut peer, init) = begin(&mut fixture, raw_peer(1, 4));
    assert_eq!(tell(&mut fixture, &init), [], "held back");
    let (_, later) = begin(&mut fixture, raw_peer(1, 5));
    assert_eq!(tell(&mut fixture, &later), [], "behind it");
    fixture.run_for(Duration::from_millis(300));
    let reset =
        Segment { flags: Flags::RST, payload: bytes::Bytes::new(), segment_size: 1, ..first[0].1.clone() };
    assert_eq!(tell(&mut fixture, &reset), []);
    let answers = said_in_time(&mut fixture);
    assert!(answers.iter().all(|answer| answer.destination.port() == 2004), "{answers:?}");
    let mut said: Vec<_> = answers.iter().flat_map(|answer| peer.handle(answer)).collect();
    while let Some(segment) = said.pop() {
        said.extend(tell(&mut fixture, &segment).iter().flat_map(|answer| peer.handle(answer)));
    }
    assert!(peer.keys.is_some());
}

#[test]
fn a_client_dropped_because_too_many_wait_connects_by_a_repetition() {
    let limits = EndpointConfig { max_half_open: 4, ..LIMITS };
    let [_, listener] = sealed();
    let mut fixture = Fixture::new(listener, limits);
    for number in 0..5 {
        begin(&mut fixture, raw_peer(1, number));
    }
    let (mut peer, init) = begin(&mut fixture, raw_peer(1, 5));
    assert_eq!(tell(&mut fixture, &init), [], "held back");
    let counters = fixture.server.counters();
    assert_eq!((counters.handshakes_waiting, counters.handshakes_limited), (1, 2), "{counters:?}");
    // The others have had their 20 seconds.
    fixture.run_for(Duration::from_secs(45));
    finish(&mut fixture, &mut peer, &init);
    assert!(peer.keys.is_some());
}

#[test]
fn when_all_places_are_taken_the_prefix_with_the_most_gives_one_to_a_prefix_with_fewer() {
    let mut fixture = fixture();
    for number in 0..8 {
        begin(&mut fixture, raw_peer(1 + number / 4, number.into()));
    }
    assert_eq!(fixture.server.counters().handshakes, 8);
    let (mut peer, init) = begin(&mut fixture, raw_peer(3, 0));
    finish(&mut fixture, &mut peer, &init);
    assert!(peer.keys.is_some());
    let counters = fixture.server.counters();
    assert_eq!((counters.handshakes_displaced, counters.handshakes_limited), (1, 0), "{counters:?}");
}

#[test]
fn a_segment_that_proves_no_address_takes_no_place() {
    let mut fixture = fixture();
    for number in 0..8 {
        begin(&mut fixture, raw_peer(1 + number / 4, number.into()));
    }
    let mut spoofed = raw_peer(3, 0);
    tell(&mut fixture, &spoofed.syn());
    // The sender of the spoofed SYN does not see the answer, and guesses the acknowledgment number.
    let guess = Segment { ack: SeqNum::new(1), ..spoofed.segment(bytes::Bytes::new(), OptionBytes::new()) };
    tell(&mut fixture, &guess);
    let counters = fixture.server.counters();
    assert_eq!((counters.handshakes, counters.handshakes_displaced), (8, 0), "{counters:?}");
}

#[test]
fn connections_without_a_handshake_take_no_place_of_one() {
    let mut fixture = fixture();
    let plain = SocketAddr::new(server_address().ip(), 80);
    fixture.server.listen(plain.port(), Config::default()).expect("free");
    for number in 0..20 {
        let mut syn =
            Segment { destination: plain, options: OptionBytes::new(), ..raw_peer(1, 100 + number).syn() };
        let answer = tell(&mut fixture, &syn).remove(0);
        syn.flags = Flags::ACK;
        syn.seq += 1;
        syn.ack = answer.seq + 1;
        tell(&mut fixture, &syn);
    }
    let (mut peer, init) = begin(&mut fixture, raw_peer(1, 0));
    finish(&mut fixture, &mut peer, &init);
    assert!(peer.keys.is_some(), "{:?}", fixture.server.counters());
    assert_eq!(fixture.server.counters().handshakes_limited, 0);
}

/// Completes handshakes with all places of a network, and says OPENING in none.
fn fill_with_complete(fixture: &mut Fixture, host: u8) {
    for number in 0..4 {
        let (mut peer, init) = begin(fixture, raw_peer_at(1, host, number));
        finish(fixture, &mut peer, &init);
        assert!(peer.keys.is_some(), "{number}");
    }
    assert_eq!(fixture.server.counters().handshakes, 4);
}

#[test]
fn an_address_with_all_places_of_its_network_gives_one_to_its_neighbour_at_once() {
    for is_complete in [true, false] {
        let mut fixture = fixture();
        if is_complete {
            fill_with_complete(&mut fixture, 9);
        } else {
            (0..4).for_each(|number| drop(begin(&mut fixture, raw_peer_at(1, 9, number))));
        }
        let (mut peer, init) = begin(&mut fixture, raw_peer_at(1, 10, 0));
        finish(&mut fixture, &mut peer, &init);
        assert!(peer.keys.is_some(), "{is_complete}");
        let counters = fixture.server.counters();
        assert_eq!((counters.handshakes, counters.handshakes_displaced), (4, 1), "{counters:?}");
    }
}

#[test]
fn behind_one_address_a_complete_handshake_without_an_opening_is_displaced_after_three_seconds() {
    let mut fixture = fixture();
    fill_with_complete(&mut fixture, 9);
    let (mut peer, init) = begin(&mut fixture, raw_peer_at(1, 9, 4));
    assert_eq!(tell(&mut fixture, &init), [], "it waits for a place");
    fixture.run_for(Duration::from_millis(2990));
    assert_eq!(fixture.server.counters().handshakes_displaced, 0);
    fixture.now += Duration::from_millis(20);
    for answer in said_in_time(&mut fixture) {
        if answer.destination.port() == 2004 {
            for said in peer.handle(&answer) {
                finish(&mut fixture, &mut peer, &said);
            }
        }
    }
    assert!(peer.keys.is_some(), "{:?}", fixture.server.counters());
}

#[test]
fn a_handshake_that_no_other_wants_the_place_of_has_its_twenty_seconds() {
    let mut fixture = fixture();
    fill_with_complete(&mut fixture, 9);
    fixture.run_for(Duration::from_secs(19));
    let counters = fixture.server.counters();
    assert_eq!((counters.handshakes, counters.handshakes_displaced), (4, 0), "{counters:?}");
}

/// A round trip of 600 ms, and one in four segments is lost. The neighbour completes handshakes as fast as there are places for them.
#[test]
fn a_slow_client_that_loses_segments_opens_beside_a_neighbour_that_takes_all_places() {
    for has_neighbour in [false, true] {
        let [opener, listener] = sealed();
        let mut fixture = Fixture::new(listener, LIMITS);
        (fixture.one_way, fixture.lost) = (Duration::from_millis(300), Some(4));
        let mut number = 0;
        let mut take_places = |fixture: &mut Fixture, count: u16| {
            for _ in 0..if has_neighbour { count } else { 0 } {
                number += 1;
                let address = SocketAddr::from(([198, 51, 100, 9], 2000 + number));
                let tep = Tep::TcpcryptCurve25519;
                let mut peer = RawPeer::new(address, server_address(), tep, number.into());
                let syn = peer.syn();
                finish(fixture, &mut peer, &syn);
            }
        };
        take_places(&mut fixture, LIMITS.max_handshakes_per_prefix as u16);
        let id = fixture.open(opener);
        let began = fixture.now;
        while !fixture.is_open(id) {
            take_places(&mut fixture, 2);
            fixture.run_for(Duration::from_millis(100));
            let taken = fixture.now.saturating_since(began);
            assert!(taken < Duration::from_secs(20), "{:?}", fixture.server.counters());
        }
        let taken = fixture.now.saturating_since(began);
        println!("neighbour: {has_neighbour}, open after {taken:?}: {:?}", fixture.server.counters());
    }
}

fn fixture() -> Fixture {
    let [_, listener] = sealed();
    Fixture::new(listener, LIMITS)
}

fn raw_peer(network: u8, number: u16) -> RawPeer {
    raw_peer_at(network, 9, number)
}

fn raw_peer_at(network: u8, host: u8, number: u16) -> RawPeer {
    let address = SocketAddr::from(([203, 0, network, host], 2000 + number));
    RawPeer::new(address, server_address(), Tep::TcpcryptCurve25519, number.into())
}

/// Says the first and the third segment of TCP's handshake; what comes next goes with the latter.
fn begin(fixture: &mut Fixture, mut peer: RawPeer) -> (RawPeer, Segment) {
    let answer = tell(fixture, &peer.syn()).remove(0);
    let init = peer.handle(&answer).remove(0);
    let third = Segment { payload: bytes::Bytes::new(), segment_size: 1, ..init.clone() };
    assert_eq!(tell(fixture, &third), []);
    (peer, init)
}

/// Returns the segments that the server sends by itself now.
fn said_in_time(fixture: &mut Fixture) -> Vec<Segment> {
    let due = fixture.server.poll_timeout();
    assert!(due.is_some_and(|due| due <= fixture.now), "something is due: {due:?}");
    fixture.server.handle_timeout(fixture.now);
    std::iter::from_fn(|| fixture.server.poll_transmit(fixture.now))
        .map(|transmit| transmit.segment)
        .collect()
}

/// Goes on to the end of the handshake, as far as it is answered.
fn finish(fixture: &mut Fixture, peer: &mut RawPeer, init: &Segment) {
    let mut said = vec![init.clone()];
    while let Some(segment) = said.pop() {
        said.extend(tell(fixture, &segment).iter().flat_map(|answer| peer.handle(answer)));
    }
}
