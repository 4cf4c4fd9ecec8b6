//! Paths so unlike that very much arrives long before what lies in front of it: whatever TCP has acknowledged is kept.

mod listener;
mod raw_peer;
mod sealing;
mod world;

use bytes::Bytes;
use listener::Listener;
use plait_base::Duration;
use plait_handshake::Tep;
use plait_mptcp::{ConnectionError, Scheduler};
use plait_protect::sealed::Kind;
use sealing::sealed;
use world::{CLIENT, Link, SERVER, World, pattern};

fn link(round_trip: u64, megabits: Option<u64>) -> Link {
    let delay = Duration::from_millis(round_trip / 2);
    let rate = megabits.map(|megabits| megabits * 125_000);
    // A queue of one bandwidth-delay product.
    let queue = rate.map_or(0, |rate| rate * round_trip / 1000);
    Link { delay, rate, queue, ..Link::default() }
}

/// Nothing was dropped that TCP had acknowledged, so nothing had to be repaired (a Data-ACK may be late).
fn assert_nothing_dropped(world: &mut World) {
    let receiver = world.status(SERVER).counters;
    assert_eq!(
        (receiver.bytes_outside, receiver.mappings_refused, receiver.stripped, receiver.blocks_failed),
        (0, 0, 0, 0),
        "{receiver:?}"
    );
    let sender = world.status(CLIENT).counters;
    assert!(sender.data_timeouts + sender.blocks_repaired <= 1, "{sender:?}");
}

#[test]
fn a_path_of_much_more_delay_costs_nothing_of_a_fast_one() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin] {
        for is_sealed in [false, true] {
            let links = vec![link(20, Some(100)), link(400, Some(10))];
            let mut world = if is_sealed { sealed(2, links, &[Tep::Tls13]) } else { World::new(2, links, 1) };
            world.config(|config| config.scheduler = scheduler);
            let data = pattern(100_000_000, 1);
            world.send(CLIENT, &data).send(SERVER, b"x").connect();
            let time = world.finish(300);
            assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
            assert_nothing_dropped(&mut world);
            // 110 Mbit/s at best.
            assert!(time < Duration::from_secs(11), "{scheduler:?}, sealed: {is_sealed}: {time:?}");
        }
    }
}

/// 45 writes of 60 bytes in each millisecond, for six seconds, each a segment of its own.
fn small_writes(mut world: World) {
    const WRITES: usize = 270_000;
    let data = pattern(60 * WRITES, 3);
    world.connect();
    world.wait(1500);
    for (number, write) in data.chunks(60).enumerate() {
        if number % 45 == 0 {
            world.wait(1);
        }
        world.sides[CLIENT].outbox.push_back(Bytes::copy_from_slice(write));
        world.serve(CLIENT);
    }
    world.sides.iter_mut().for_each(|side| side.finishes = true);
    [CLIENT, SERVER].into_iter().for_each(|side| world.serve(side));
    let time = world.finish(60);
    assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
    assert_nothing_dropped(&mut world);
    assert!(time < Duration::from_secs(1), "one way of the slow path, not {time:?}");
}

#[test]
fn tens_of_thousands_of_small_segments_wait_for_those_of_a_slow_path() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin] {
        let mut world = World::new(4, vec![link(20, None), link(700, None)], 1);
        world.config(|config| config.scheduler = scheduler);
        small_writes(world);
    }
}

#[test]
fn tens_of_thousands_of_small_sealed_blocks_wait_for_those_of_a_slow_path() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin] {
        let mut world = sealed(4, vec![link(20, None), link(700, None)], &[Tep::Tls13]);
        world.config(|config| config.scheduler = scheduler);
        small_writes(world);
    }
}

/// Blocks of 64 KiB, one for each byte of the window that they could begin at, would be kept as often as there are bytes. An
/// honest peer numbers each byte once.
#[test]
fn two_blocks_with_the_same_numbers_end_the_connection() {
    // Both have the same keys, and so the numbers of the one's blocks lie across those of the other's.
    let [mut listener, mut other] = [Listener::open(), Listener::open()];
    let place = listener.peer.sent;
    listener.peer.block(Kind::Data, &[0; 40]);
    listener.peer.sent = place;
    let waiting = listener.peer.block(Kind::Data, &[1; 100]);
    listener.say(&waiting);
    assert!(!listener.world.of(SERVER).is_done(), "it waits for the one before");
    other.peer.block(Kind::Data, &[2; 60]);
    other.peer.sent = listener.peer.sent;
    let across = other.peer.block(Kind::Data, &[3; 10]);
    listener.say(&across);
    assert_eq!(listener.world.sides[SERVER].failed, Some(ConnectionError::Protocol));
}
