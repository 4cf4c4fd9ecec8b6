//! An attacker on all paths: the bytes that arrive are those that were sent, and missing bytes are an error.

mod sealing;
mod world;

use bytes::Bytes;
use plait_base::Duration;
use plait_handshake::Tep;
use plait_mptcp::{ConnectionError, Event};
use plait_wire::{Flags, Segment};
use sealing::sealed;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

fn two_paths(seed: u64) -> World {
    let link = Link { rate: Some(2_000_000), ..Link::default() };
    sealed(seed, vec![link.clone(), link], &[Tep::TcpcryptCurve25519])
}

#[test]
fn all_paths_cut_is_an_error_that_is_not_the_end_of_the_data() {
    let mut world = two_paths(11);
    // An end that only receives asks at intervals.
    world.config(|config| {
        config.tcp.keep_alive = Some(plait_tcp::KeepAlive {
            idle: Duration::from_secs(10),
            interval: Duration::from_secs(5),
            probes: 4,
        });
    });
    let up = pattern(4_000_000, 1);
    world.send(CLIENT, &up).connect();
    world.wait(600);
    for link in &mut world.links {
        link.is_black_hole = true;
    }
    world.run(Duration::from_secs(2000), |world| world.sides.iter().all(|side| side.failed.is_some()));
    for side in [CLIENT, SERVER] {
        assert!(!world.sides[side].ended, "{side}");
        assert_eq!(world.sides[side].failed, Some(ConnectionError::AllPathsLost), "{side}");
    }
    let received = &world.sides[SERVER].received;
    assert!(received[..] == up[..received.len()]);
}

#[test]
fn all_paths_cut_while_both_send_is_an_error_within_minutes() {
    fails_within_minutes(13, |world| world.links.iter_mut().for_each(|link| link.is_black_hole = true));
}

#[test]
fn all_paths_that_harm_every_block_are_an_error_within_minutes() {
    fails_within_minutes(12, |world| {
        world.tap = Box::new(|_, segment: &mut Segment| {
            if !segment.payload.is_empty() {
                let mut payload = segment.payload.to_vec();
                payload[0] ^= 1;
                segment.payload = payload.into();
            }
            Fate::Pass
        });
    });
}

/// Both ends learn that all paths are lost, while both were sending, and have been given no wrong byte.
fn fails_within_minutes(seed: u64, strike: impl FnOnce(&mut World)) {
    let mut world = two_paths(seed);
    let (up, down) = (pattern(4_000_000, 1), pattern(4_000_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.wait(600);
    strike(&mut world);
    let took =
        world.run(Duration::from_secs(2000), |world| world.sides.iter().all(|side| side.failed.is_some()));
    assert!(took < Duration::from_secs(140), "{took:?}");
    for (side, sent) in [(CLIENT, &down), (SERVER, &up)] {
        let side = &world.sides[side];
        // Options still cross paths that harm the blocks: one end can hear it from the other.
        let is_lost = matches!(side.failed, Some(ConnectionError::AllPathsLost | ConnectionError::FastClose));
        assert!(is_lost && !side.ended, "{:?}", side.failed);
        assert!(side.received[..] == sent[..side.received.len()]);
    }
}

#[test]
fn a_stream_ends_only_where_its_sender_ended_it() {
    // The attacker lets the connection die at a moment of its choice, and adds ends of all kinds.
    for seed in 0..8 {
        let mut world = two_paths(20 + seed);
        let up = pattern(4_000_000, 1);
        world.send(CLIENT, &up).connect();
        world.wait(150 + 40 * seed);
        world.tap = Box::new(|from, segment: &mut Segment| {
            if from != CLIENT || segment.flags.contains(Flags::SYN) {
                return Fate::Pass;
            }
            segment.payload = Bytes::new();
            segment.flags = Flags::FIN.with(Flags::ACK);
            Fate::Pass
        });
        world.run(Duration::from_secs(300), |world| world.sides.iter().any(|side| side.failed.is_some()));
        let server = &world.sides[SERVER];
        assert!(!server.ended && server.received[..] == up[..server.received.len()], "{seed}");
        assert!(!server.events.contains(&Event::Closed(None)));
    }
}
