//! More short mappings than a receiver keeps: one segment is missing, and thousands of small ones have come behind it.

mod sealing;
mod world;

use bytes::Bytes;
use core::num::NonZeroU16;
use plait_base::Duration;
use plait_handshake::Tep;
use plait_mptcp::{Event, Scheduler};
use plait_wire::Segment;
use std::cell::Cell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

/// Bytes of one write, and of one mapping: each other one goes the other way, so that no two continue each other.
const WRITE: usize = 20;
/// Writes in all: half of them are more than are kept for one subflow, sealed (4,096) or not (8,192).
const WRITES: usize = 24_000;
/// Writes per millisecond: all of them within the time after which a silent subflow counts as stalled.
const AT_ONCE: usize = 240;

fn path_of(segment: &Segment) -> u8 {
    let octets = |end: core::net::SocketAddr| match end.ip() {
        core::net::IpAddr::V4(v4) => v4.octets()[2],
        core::net::IpAddr::V6(_) => unreachable!("all tests speak IPv4"),
    };
    octets(segment.source).max(octets(segment.destination))
}

/// A segment of the second path is lost, each time that it is sent and on whichever path, until all others are there.
fn small_writes_behind_a_gap(mut world: World) {
    world.config(|config| {
        // One after the other, whatever is to be expected of each.
        config.scheduler = Scheduler::Dispersed { max_exposure: NonZeroU16::MAX };
        config.receive_buffer = 16 << 20;
    });
    world.connect();
    world.wait(300);
    assert_eq!(world.usable(CLIENT), 2);
    // The windows grow.
    let bulk = pattern(16_000_000, 1);
    world.sides[CLIENT].outbox.extend(bulk.chunks(50_000).map(Bytes::copy_from_slice));
    world.serve(CLIENT);
    world.run(Duration::from_secs(20), |world| world.sides[SERVER].received.len() == bulk.len());
    assert!(world.sides[SERVER].received == bulk);

    let is_gap = Rc::new(Cell::new(true));
    let lasts = is_gap.clone();
    let mut lost: Option<Bytes> = None;
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if from != CLIENT || segment.payload.is_empty() || !lasts.get() {
            return Fate::Pass;
        }
        if lost.is_none() && path_of(segment) == 1 {
            lost = Some(segment.payload.clone());
        }
        if lost.as_ref() == Some(&segment.payload) { Fate::Drop } else { Fate::Pass }
    });
    let small = pattern(WRITE * WRITES, 2);
    for (number, write) in small.chunks(WRITE).enumerate() {
        world.sides[CLIENT].outbox.push_back(Bytes::copy_from_slice(write));
        world.serve(CLIENT);
        if number % AT_ONCE == AT_ONCE - 1 {
            world.wait(1);
        }
    }
    world.wait(20);
    is_gap.set(false);
    let time = world
        .run(Duration::from_secs(30), |world| world.sides[SERVER].received.len() == bulk.len() + small.len());
    assert!(world.sides[SERVER].received[bulk.len()..] == small, "after {time:?}");
    // What has no mapping is found out later than what is missing is repaired.
    world.wait(3_000);
    let counters = world.status(SERVER).counters;
    assert!(counters.mappings_refused > 0, "there were too few: {counters:?}");
    for side in [CLIENT, SERVER] {
        let closed = |event: &Event| matches!(event, Event::SubflowClosed { .. });
        assert!(!world.sides[side].events.iter().any(closed), "a subflow was lost: {counters:?}");
    }
    assert_eq!((counters.stripped, counters.blocks_failed), (0, 0), "{counters:?}");
}

#[test]
fn what_tcp_has_acknowledged_keeps_its_mapping_however_short_the_writes() {
    small_writes_behind_a_gap(World::new(1, vec![Link::default(); 2], 1));
}

#[test]
fn what_tcp_has_acknowledged_keeps_its_block_however_short_the_writes() {
    small_writes_behind_a_gap(sealing::sealed(1, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]));
}
