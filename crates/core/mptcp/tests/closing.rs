//! Ends of connections: both orders, half-close, simultaneous close, and the remaining state.

mod world;

use bytes::Bytes;
use plait_base::Duration;
use plait_mptcp::{ConnectionError, Event, Negotiated, ReadError};
use plait_wire::{Flags, MptcpOption, Segment, TcpOption, options};
use std::cell::RefCell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

const MULTIPATH: Negotiated = Negotiated::Multipath { version: 1, checksum: false };

fn open(seed: u64, loss: f64) -> World {
    let mut world = World::new(seed, vec![Link { loss, ..Link::default() }; 2], 1);
    world.connect();
    world.wait(300);
    world
}

fn write(world: &mut World, side: usize, data: &[u8]) {
    world.sides[side].outbox.push_back(Bytes::copy_from_slice(data));
    world.serve(side);
}

fn finish(world: &mut World, side: usize) {
    world.sides[side].finishes = true;
    world.serve(side);
}

#[test]
fn either_side_may_finish_first_and_the_other_goes_on() {
    for first in [CLIENT, SERVER] {
        for loss in [0.0, 0.1] {
            let mut world = open(1, loss);
            write(&mut world, first, b"first");
            finish(&mut world, first);
            world.wait(10_000);
            assert!(world.sides[1 - first].ended && !world.sides[first].ended);
            let answer = pattern(100_000, 5);
            write(&mut world, 1 - first, &answer);
            world.wait(20_000);
            assert!(world.sides[first].received == answer, "half-closed, not closed");
            finish(&mut world, 1 - first);
            world.wait(20_000);
            assert!(world.sides[first].ended);
            world.assert_clean_end();
        }
    }
}

#[test]
fn both_finish_at_once_without_a_byte() {
    for loss in [0.0, 0.2] {
        let mut world = open(2, loss);
        world.sides.iter_mut().for_each(|side| side.finishes = true);
        [CLIENT, SERVER].into_iter().for_each(|side| world.serve(side));
        world.wait(30_000);
        assert!(world.sides.iter().all(|side| side.ended));
        world.assert_clean_end();
    }
}

#[test]
fn a_lost_data_fin_is_repeated() {
    let mut world = open(3, 0.0);
    let mut lost = 4;
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT && is_data_fin(segment) && lost > 0 {
            lost -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    finish(&mut world, CLIENT);
    world.wait(10_000);
    assert!(world.sides[SERVER].ended);
    finish(&mut world, SERVER);
    world.wait(5_000);
    world.assert_clean_end();
}

#[test]
fn an_abort_reaches_the_peer_as_fast_close() {
    for side in [CLIENT, SERVER] {
        let mut world = open(4, 0.0);
        write(&mut world, side, &pattern(10_000, 1));
        let now = world.now;
        world.of(side).abort(now);
        world.serve(side);
        world.wait(1_000);
        assert_eq!(world.sides[1 - side].failed, Some(ConnectionError::FastClose));
        assert!(world.sides[side].events.contains(&Event::Closed(Some(ConnectionError::Aborted))));
        for side in [CLIENT, SERVER] {
            assert!(world.of(side).is_done());
            assert!(world.sides[side].owners.is_empty());
        }
    }
}

//= rfc8684 3-03
#[test]
fn an_abort_reaches_a_peer_that_misses_data_before_it() {
    let mut world = World::new(9, vec![Link::default()], 1);
    world.connect();
    world.wait(300);
    // What was sent last never arrives: the resets are not where the peer waits for the next byte (RFC 5961).
    world.tap = Box::new(
        |from, segment| {
            if from == CLIENT && !segment.payload.is_empty() { Fate::Drop } else { Fate::Pass }
        },
    );
    write(&mut world, CLIENT, &pattern(10_000, 1));
    world.wait(50);
    let now = world.now;
    world.of(CLIENT).abort(now);
    world.serve(CLIENT);
    world.wait(1_000);
    assert_eq!(world.sides[SERVER].failed, Some(ConnectionError::FastClose));
    assert!(world.of(SERVER).is_done());
}

#[test]
fn an_abort_of_plain_tcp_is_a_reset() {
    let mut world = World::new(5, vec![Link::default()], 1);
    world.config(|config| config.multipath = false);
    world.connect();
    world.wait(300);
    let now = world.now;
    world.of(CLIENT).abort(now);
    world.serve(CLIENT);
    world.wait(1_000);
    assert_eq!(world.sides[SERVER].failed, Some(ConnectionError::Reset));
    assert!(world.of(SERVER).is_done());
}

#[test]
fn data_for_a_reader_that_has_gone_closes_at_once() {
    let mut world = open(6, 0.0);
    let now = world.now;
    world.of(SERVER).stop_reading(now);
    world.sides[SERVER].is_paused = true;
    world.serve(SERVER);
    write(&mut world, CLIENT, b"is it working?");
    world.wait(1_000);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::FastClose));
}

#[test]
fn nothing_can_be_written_after_the_end_and_reading_goes_on() {
    let mut world = open(7, 0.0);
    write(&mut world, SERVER, b"abc");
    world.wait(100);
    finish(&mut world, CLIENT);
    let now = world.now;
    assert_eq!(world.of(CLIENT).writable(), 0);
    assert_eq!(world.of(CLIENT).write(now, Bytes::from_static(b"more")), 0);
    assert_eq!(world.sides[CLIENT].received, b"abc");
    assert_eq!(world.of(CLIENT).read(now), Err(ReadError::WouldBlock));
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender_and_not_the_connection() {
    for paths in [1, 2] {
        let mut world = World::new(8, vec![Link::default(); paths], 1);
        world.config(|config| config.receive_buffer = 100_000);
        world.sides[SERVER].is_paused = true;
        let data = pattern(1_000_000, 1);
        world.send(CLIENT, &data).send(SERVER, b"x").connect();
        world.wait(40_000);
        assert_eq!(world.usable(CLIENT), paths, "a closed window is no failure");
        world.sides[SERVER].is_paused = false;
        world.serve(SERVER);
        world.finish(120);
        assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
        world.assert_clean_end();
    }
}

#[test]
fn a_slow_reader_gets_everything_over_lossy_paths() {
    let bad = Link { loss: 0.03, reorder: 0.1, ..Link::default() };
    for seed in 0..4 {
        let mut world = World::new(20 + seed, vec![bad.clone(); 2], 1);
        world.config(|config| config.receive_buffer = 30_000);
        let data = pattern(300_000, 1);
        world.send(CLIENT, &data).send(SERVER, b"x").connect();
        for _ in 0..3000 {
            world.sides[SERVER].is_paused = true;
            world.wait(40);
            world.sides[SERVER].is_paused = false;
            world.serve(SERVER);
            if world.sides[SERVER].ended {
                break;
            }
        }
        assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
        let _ = Duration::ZERO;
    }
}

fn mptcp(segment: &Segment) -> impl Iterator<Item = MptcpOption<'_>> {
    options(&segment.options).filter_map(|option| match option {
        Ok(TcpOption::Mptcp(option)) => Some(option),
        Ok(_) | Err(_) => None,
    })
}

fn is_data_fin(segment: &Segment) -> bool {
    mptcp(segment).any(|option| matches!(option, MptcpOption::Dss(dss) if dss.data_fin))
}

/// Whether the client closes before it is connected or afterwards, and whatever was lost of its opening.
#[test]
fn a_client_that_has_nothing_to_say_ends_its_stream_at_once() {
    for (delay, lost, at_most) in
        [(0, 0, 40), (15, 0, 40), (25, 0, 40), (300, 0, 320), (0, 1, 1100), (0, 2, 1100)]
    {
        let mut world = World::new(2, vec![Link::default()], 1);
        let mut count = 0;
        world.tap = Box::new(move |from, segment| {
            count += usize::from(from == CLIENT && !segment.flags.contains(Flags::SYN));
            if from == CLIENT && (1..=lost).contains(&count) { Fate::Drop } else { Fate::Pass }
        });
        world.connect();
        world.wait(delay);
        world.sides[CLIENT].finishes = true;
        world.serve(CLIENT);
        let time = world.run(Duration::from_secs(60), |world| world.sides[SERVER].ended);
        let case = format!("closed after {delay} ms, {lost} lost");
        assert!(time + Duration::from_millis(delay) <= Duration::from_millis(at_most), "{case}: {time:?}");
        assert_eq!([CLIENT, SERVER].map(|side| world.status(side).negotiated), [MULTIPATH; 2], "{case}");
        world.sides[SERVER].finishes = true;
        world.serve(SERVER);
        world.assert_clean_end();
    }
}

/// The kernel's third ACK is answered by nothing, so nothing has confirmed the options when the client closes.
#[test]
fn a_data_fin_does_not_wait_for_a_server_that_is_silent() {
    let mut world = World::new(3, vec![Link::default()], 1);
    let said = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&said);
    world.tap = Box::new(move |from, segment| match from {
        CLIENT if !segment.flags.contains(Flags::SYN) => {
            let has_keys = mptcp(segment).any(|option| matches!(option, MptcpOption::Capable(_)));
            log.borrow_mut().push((has_keys, is_data_fin(segment)));
            Fate::Pass
        }
        SERVER if !segment.flags.contains(Flags::SYN) => Fate::Drop,
        _ => Fate::Pass,
    });
    world.connect();
    world.wait(100);
    world.sides[CLIENT].finishes = true;
    world.serve(CLIENT);
    assert_eq!(*said.borrow(), [(true, false), (false, true)], "the keys, and then the end");
    // Either may be lost: both are repeated.
    world.wait(1000);
    assert_eq!(said.borrow()[2..], [(true, false), (false, true)]);
}

/// The path that the end comes over carries nothing back, and the other one loses each DATA_FIN.
#[test]
fn an_end_is_acknowledged_on_every_subflow() {
    for data in [&b""[..], b"the last words"] {
        let mut world = open(10, 0.0);
        let on_first = |segment: &Segment| {
            [segment.source.ip(), segment.destination.ip()].contains(&world::address(0, CLIENT))
        };
        let ends = Rc::new(RefCell::new(0));
        let count = Rc::clone(&ends);
        world.tap = Box::new(move |from, segment| {
            *count.borrow_mut() += usize::from(from == CLIENT && is_data_fin(segment));
            let is_lost = if on_first(segment) { from == SERVER } else { is_data_fin(segment) };
            if is_lost { Fate::Drop } else { Fate::Pass }
        });
        write(&mut world, CLIENT, data);
        finish(&mut world, CLIENT);
        world.wait(3_000);
        assert!(world.sides[SERVER].ended);
        assert_eq!(world.status(CLIENT).counters.data_timeouts, 0);
        assert_eq!(*ends.borrow(), 2, "said once on each");
    }
}

/// Twice the smallest timeout of TCP and a little more: until then TCP repairs what is lost by itself.
#[test]
fn a_data_fin_that_is_lost_everywhere_is_repeated_after_half_a_second() {
    let mut world = open(11, 0.0);
    let mut lost = 0;
    world.tap = Box::new(move |from, segment| {
        let is_lost = from == CLIENT && is_data_fin(segment) && lost < 2;
        lost += usize::from(is_lost);
        if is_lost { Fate::Drop } else { Fate::Pass }
    });
    finish(&mut world, CLIENT);
    let time = world.run(Duration::from_secs(60), |world| world.sides[SERVER].ended);
    assert!((500..=600).contains(&time.as_millis()), "{time:?}");
}
