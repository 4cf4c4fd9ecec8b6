//! Very unequal paths: much data arrives long before the bytes in front of it. Everything that TCP has acknowledged is kept.

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

#[test]
fn a_thin_path_that_loses_the_first_block_of_the_stream_costs_the_fast_one_no_more_than_a_moment() {
    // Queues of half a bandwidth-delay product: slow start loses on both, and the stream stands still until both have repaired it.
    let shallow = |rate| {
        let full = link(20, Some(rate));
        Link { queue: full.queue / 2, ..full }
    };
    let time = |links| {
        let mut world = sealed(2, links, &[Tep::Tls13]);
        let data = pattern(1 << 20, 1);
        world.send(CLIENT, &data).send(SERVER, b"x").connect();
        let time = world.finish(30);
        assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
        time.as_secs_f64()
    };
    let alone = time(vec![shallow(50)]);
    let thin = [5, 8, 10, 12, 15, 20, 25];
    let beside = thin.map(|rate| time(vec![shallow(50), shallow(rate)]) / alone);
    let mean = beside.iter().sum::<f64>() / beside.len() as f64;
    assert!(mean < 1.06 && beside.iter().all(|&part| part < 1.2), "{mean:.2} in the mean of {beside:.2?}");
}

#[test]
fn a_queue_that_overflows_once_is_not_taken_for_a_path_of_small_packets() {
    // Slow start overruns the queue, and what arrives next is the small end of a block.
    let mut world = sealed(2, vec![link(20, Some(60)), link(400, Some(2))], &[Tep::Tls13]);
    let data = pattern(1 << 20, 1);
    world.send(CLIENT, &data).send(SERVER, b"x").connect();
    world.run(Duration::from_secs(5), |world| world.sides[SERVER].received.len() == data.len());
    let flow = world.status(CLIENT).subflows[0].tcp;
    assert!(flow.segments_lost > 20, "nothing was shown: {flow:?}");
    assert_eq!(flow.mtu, flow.link_mtu, "{flow:?}");
    assert!(
        flow.bytes_retransmitted <= flow.segments_lost * 1448,
        "nothing goes out again but what was lost: {flow:?}"
    );
}

#[test]
fn a_thin_path_of_little_delay_reports_its_losses_while_the_other_moves_the_stream_on() {
    // What it carries lies far ahead of the stream: each of its acknowledgments has a new Data-ACK, beside which there is no room for
    // the selective ones.
    let mut world = sealed(2, vec![link(40, Some(50)), link(5, Some(10))], &[Tep::Tls13]);
    let data = pattern(40_000_000, 1);
    world.send(CLIENT, &data).send(SERVER, b"x").connect();
    let time = world.finish(60);
    assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
    let sender = world.status(CLIENT).counters;
    assert_eq!((sender.stalls, sender.attacked_closed), (0, 0), "{sender:?}");
    // 5.8 s at best, 6.8 over the first path alone.
    assert!(time < Duration::from_millis(6500), "{time:?}");
}

#[test]
fn a_path_that_is_late_by_its_own_queue_is_given_new_blocks_before_it_is_empty() {
    // A round trip of 200 ms, and as much again in a full queue: longer than a sealed connection waits for a queue.
    let parts = [30, 40, 50, 60].map(|rate| {
        let mut world = sealed(2, vec![link(20, Some(50)), link(200, Some(rate))], &[Tep::Tls13]);
        let data = pattern(120_000_000, 1);
        world.send(CLIENT, &data).send(SERVER, b"x").connect();
        let time = world.finish(60);
        assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
        960.0 / time.as_secs_f64() / (50 + rate) as f64
    });
    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
    assert!(mean > 0.815, "{mean:.3} of both paths in the mean of {parts:.3?}");
}

/// Seconds that 50 MB take with a send buffer of so many bytes, and what part of them the second path carries.
fn carried(is_sealed: bool, links: Vec<Link>, send_buffer: usize) -> (f64, f64) {
    const BYTES: usize = 50_000_000;
    let mut world = if is_sealed { sealed(2, links, &[Tep::Tls13]) } else { World::new(2, links, 1) };
    world.config(|config| config.send_buffer = send_buffer);
    world.send(CLIENT, &pattern(BYTES, 1)).send(SERVER, b"x").connect();
    let time = world.finish(60);
    assert_eq!(world.sides[SERVER].received.len(), BYTES);
    let flows = world.status(CLIENT).subflows;
    let on_second = flows.iter().filter(|flow| flow.path != flows[0].path).map(|flow| flow.tcp.bytes_sent);
    (time.as_secs_f64(), on_second.sum::<u64>() as f64 / BYTES as f64)
}

/// A block is under way for 60 ms on the second path. In that time the first would send 2.2 MB behind it, and stands still once the
/// send buffer is full: with 1 MiB it would carry less than half of its rate, which the second does not make up for.
#[test]
fn a_second_path_is_used_where_the_send_buffer_has_room_for_what_the_first_sends_meanwhile() {
    for is_sealed in [false, true] {
        let links = || vec![link(20, Some(300)), link(60, Some(80))];
        for (send_buffer, least, most) in [(1 << 20, 0.0, 0.01), (16 << 20, 0.1, 0.3)] {
            let (alone, _) = carried(is_sealed, links()[..1].to_vec(), send_buffer);
            let (both, share) = carried(is_sealed, links(), send_buffer);
            println!(
                "sealed: {is_sealed}, {send_buffer}: alone {alone:.2} s, both {both:.2} s, {share:.2} over the second"
            );
            assert!(both <= 1.03 * alone, "sealed: {is_sealed}, {send_buffer}: {both} beside {alone}");
            assert!((least..=most).contains(&share), "sealed: {is_sealed}, {send_buffer}: {share}");
        }
    }
}

/// Ten bandwidth-delay products of queue: what the slow path carries is copied only where the stream stands still for it, and it gets less
/// after that.
#[test]
fn a_deep_queue_of_a_slow_path_draws_few_copies() {
    const BYTES: usize = 50_000_000;
    for is_sealed in [false, true] {
        let deep = |round_trip| {
            let link = link(round_trip, Some(50));
            Link { queue: 10 * link.queue, ..link }
        };
        let links = vec![deep(20), deep(400)];
        let mut world = if is_sealed { sealed(2, links, &[Tep::Tls13]) } else { World::new(2, links, 1) };
        world.config(|config| config.scheduler = Scheduler::RoundRobin);
        world.send(CLIENT, &pattern(BYTES, 1)).send(SERVER, b"x").connect();
        let time = world.finish(60).as_secs_f64();
        assert_eq!(world.sides[SERVER].received.len(), BYTES);
        let again: u64 = world.status(CLIENT).subflows.iter().map(|flow| flow.reinjected).sum();
        let copies = again as f64 / BYTES as f64;
        println!("sealed: {is_sealed}: {time:.1} s, {:.1} % again", 100.0 * copies);
        assert!(copies < 0.15, "sealed: {is_sealed}: {copies}");
        assert!(time < 8.0, "sealed: {is_sealed}: {time} s, where the first path alone takes 8.4 s");
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
