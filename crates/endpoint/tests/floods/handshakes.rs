//! Handshakes cost most: so many run with one prefix at once, and so many in all.

use core::net::SocketAddr;
use plait_base::{Duration, SeqNum};
use plait_endpoint::EndpointConfig;
use plait_handshake::Tep;
use plait_mptcp::Config;
use plait_wire::{Flags, OptionBytes, Segment};

use crate::raw_peer::RawPeer;
use crate::scene::{Scene, sealed, server_address};
use crate::tell;

const LIMITS: EndpointConfig =
    EndpointConfig { max_handshakes: 8, max_handshakes_per_prefix: 4, ..EndpointConfig::DEFAULT };

#[test]
fn a_prefix_with_enough_handshakes_is_held_back_and_the_others_are_not() {
    let mut scene = scene();
    for number in 0..6 {
        begin(&mut scene, raw_peer(1, number));
    }
    let counters = scene.server.counters();
    assert_eq!((counters.handshakes, counters.handshakes_limited), (4, 2), "{counters:?}");
    let (mut peer, init) = begin(&mut scene, raw_peer(2, 0));
    finish(&mut scene, &mut peer, &init);
    assert!(peer.keys.is_some());
}

#[test]
fn who_was_held_back_gets_in_by_saying_it_again_when_there_is_room() {
    let mut scene = scene();
    for number in 0..4 {
        begin(&mut scene, raw_peer(1, number));
    }
    let (mut peer, init) = begin(&mut scene, raw_peer(1, 4));
    assert_eq!(tell(&mut scene, &init), [], "held back");
    // The others have had their 20 seconds.
    scene.run_for(Duration::from_secs(25));
    finish(&mut scene, &mut peer, &init);
    assert!(peer.keys.is_some());
}

#[test]
fn when_all_places_are_taken_the_prefix_with_the_most_gives_one_to_a_prefix_with_fewer() {
    let mut scene = scene();
    for number in 0..8 {
        begin(&mut scene, raw_peer(1 + number / 4, number.into()));
    }
    assert_eq!(scene.server.counters().handshakes, 8);
    let (mut peer, init) = begin(&mut scene, raw_peer(3, 0));
    finish(&mut scene, &mut peer, &init);
    assert!(peer.keys.is_some());
    let counters = scene.server.counters();
    assert_eq!((counters.handshakes_displaced, counters.handshakes_limited), (1, 0), "{counters:?}");
}

#[test]
fn a_segment_that_proves_no_address_takes_nobodys_place() {
    let mut scene = scene();
    for number in 0..8 {
        begin(&mut scene, raw_peer(1 + number / 4, number.into()));
    }
    let mut spoofed = raw_peer(3, 0);
    tell(&mut scene, &spoofed.syn());
    // Whoever has spoofed the SYN does not see the answer, and guesses what it acknowledges.
    let guess = Segment { ack: SeqNum::new(1), ..spoofed.segment(bytes::Bytes::new(), OptionBytes::new()) };
    tell(&mut scene, &guess);
    let counters = scene.server.counters();
    assert_eq!((counters.handshakes, counters.handshakes_displaced), (8, 0), "{counters:?}");
}

#[test]
fn connections_without_a_handshake_take_no_place_of_one() {
    let mut scene = scene();
    let plain = SocketAddr::new(server_address().ip(), 80);
    scene.server.listen(plain.port(), Config::default()).expect("free");
    for number in 0..20 {
        let mut syn =
            Segment { destination: plain, options: OptionBytes::new(), ..raw_peer(1, 100 + number).syn() };
        let answer = tell(&mut scene, &syn).remove(0);
        syn.flags = Flags::ACK;
        syn.seq += 1;
        syn.ack = answer.seq + 1;
        tell(&mut scene, &syn);
    }
    let (mut peer, init) = begin(&mut scene, raw_peer(1, 0));
    finish(&mut scene, &mut peer, &init);
    assert!(peer.keys.is_some(), "{:?}", scene.server.counters());
    assert_eq!(scene.server.counters().handshakes_limited, 0);
}

fn scene() -> Scene {
    let [_, listener] = sealed();
    Scene::new(listener, LIMITS)
}

fn raw_peer(network: u8, number: u16) -> RawPeer {
    let address = SocketAddr::from(([203, 0, network, 9], 2000 + number));
    RawPeer::new(address, server_address(), Tep::TcpcryptCurve25519, number.into())
}

/// Says the first and the third segment of TCP's handshake; what comes next goes with the latter.
fn begin(scene: &mut Scene, mut peer: RawPeer) -> (RawPeer, Segment) {
    let answer = tell(scene, &peer.syn()).remove(0);
    let init = peer.handle(&answer).remove(0);
    let third = Segment { payload: bytes::Bytes::new(), segment_size: 1, ..init.clone() };
    assert_eq!(tell(scene, &third), []);
    (peer, init)
}

/// Goes on to the end of the handshake, as far as it is answered.
fn finish(scene: &mut Scene, peer: &mut RawPeer, init: &Segment) {
    let mut said = vec![init.clone()];
    while let Some(segment) = said.pop() {
        said.extend(tell(scene, &segment).iter().flat_map(|answer| peer.handle(answer)));
    }
}
