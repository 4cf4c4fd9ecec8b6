//! Sealed connections: their transfers, and their cost.

mod sealing;
mod world;

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_handshake::Tep;
use plait_mptcp::{Event, Scheduler};
use plait_wire::{Flags, Segment};
use sealing::{SEALED, assert_carried, both_ways, sealed};
use std::cell::Cell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

#[test]
fn one_subflow_carries_both_directions_and_closes_cleanly() {
    for tep in Tep::ALL {
        let mut world = sealed(1, vec![Link::default()], &[tep]);
        both_ways(&mut world, 1_000_000);
        for side in [CLIENT, SERVER] {
            let status = world.status(side);
            assert_eq!(status.negotiated, SEALED);
            let sealing = status.sealed.expect("it is sealed");
            assert_eq!((sealing.handshake, sealing.failure), (Some(tep.name()), None));
            let counters = status.counters;
            assert_eq!((counters.blocks_failed, counters.forged_acks, counters.blocks_repaired), (0, 0, 0));
        }
        world.assert_clean_end();
        assert_eq!(world.status(CLIENT).bytes_delivered, 1_000_000);
    }
}

/// Each host hears of a segment size of 48 bytes, of which a mapping and timestamps leave eight: blocks, shares of the keys and the
/// handshake go through in these, and no segment is longer.
#[test]
fn two_hosts_that_take_48_bytes_in_a_segment_are_sent_no_more() {
    let plain = World::new(2, vec![Link::default(), Link::default()], 1);
    for mut world in [plain, sealed(2, vec![Link::default(), Link::default()], &Tep::ALL)] {
        let is_cut = Rc::new(Cell::new(false));
        let cut = Rc::clone(&is_cut);
        world.tap = Box::new(move |_, segment: &mut Segment| {
            if segment.flags.contains(Flags::SYN) {
                assert_eq!(segment.options[..2], [2, 4], "the segment size comes first");
                segment.options[2..4].copy_from_slice(&48_u16.to_be_bytes());
            } else if !segment.payload.is_empty() {
                let longest = segment.payload.len().min(segment.segment_size.into());
                assert!(longest + segment.options.len() <= 48, "{segment:?}");
                cut.set(true);
            }
            Fate::Pass
        });
        both_ways(&mut world, 20_000);
        assert!(is_cut.get());
        world.assert_clean_end();
    }
}

#[test]
fn what_fills_the_send_buffer_behind_opening_and_before_its_acknowledgment_arrives_whole() {
    for tep in Tep::ALL {
        let mut world = sealed(1, vec![Link::default()], &[tep]);
        world.config(|config| config.send_buffer = 20_000);
        world.connect();
        world.run(Duration::from_secs(5), |world| world.sides[CLIENT].events.contains(&Event::Connected));
        let data = Bytes::from(pattern(20_000, 7));
        for piece in [data.slice(..1000), data.slice(1000..)] {
            let now = world.now;
            assert_eq!(world.of(CLIENT).write(now, piece.clone()), piece.len());
            world.serve(CLIENT);
        }
        assert!(world.of(CLIENT).token().is_none(), "the opening is not settled yet");
        world.wait(2000);
        assert_eq!(world.sides[SERVER].received, data);
    }
}

#[test]
fn nothing_is_lost_when_segments_are() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant] {
        for seed in 1..6 {
            let bad = Link { loss: 0.02, duplicate: 0.01, reorder: 0.05, ..Link::default() };
            let slow = Link { delay: Duration::from_millis(40), ..bad.clone() };
            let mut world = sealed(seed, vec![bad, slow], &[Tep::TcpcryptCurve25519]);
            world.config(|config| config.scheduler = scheduler);
            both_ways(&mut world, 400_000);
            world.assert_clean_end();
        }
    }
}

#[test]
fn two_paths_are_joined_and_both_carry() {
    let link = Link { rate: Some(2_000_000), ..Link::default() };
    let mut world = sealed(2, vec![link.clone(), link], &[Tep::TcpcryptCurve25519]);
    both_ways(&mut world, 4_000_000);
    let carried: Vec<_> = world.links.iter().map(|link| link.carried[CLIENT]).collect();
    assert!(carried.iter().all(|&bytes| bytes > 1_200_000), "{carried:?}");
    world.assert_clean_end();
}

#[test]
fn half_a_connection_goes_on_for_as_long_as_the_other_half_has_something_to_say() {
    let mut world = sealed(3, vec![Link::default()], &[Tep::TcpcryptCurve25519]);
    world.config(|config| config.receive_buffer = 100_000);
    let down = pattern(2_000_000, 3);
    world.send(CLIENT, b"please").send(SERVER, &down).connect();
    world.finish(200);
    assert_carried(&mut world, b"please", &down);
    world.assert_clean_end();
}

#[test]
fn a_reader_that_pauses_stops_the_writer_and_control_goes_on() {
    let mut world = sealed(4, vec![Link::default()], &[Tep::TcpcryptCurve25519]);
    world.config(|config| config.receive_buffer = 100_000);
    for side in &mut world.sides {
        side.is_paused = true;
    }
    let (up, down) = (pattern(1_000_000, 1), pattern(1_000_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    // Longer than paths may be silent: an end that waits for a reader gets signs of life.
    world.wait(600_000);
    for side in [CLIENT, SERVER] {
        let delivered = world.status(side).bytes_delivered;
        assert!((50_000..250_000).contains(&delivered), "{delivered}");
    }
    // One reads; what it tells the other is not held up by the window of the other direction.
    world.sides[CLIENT].is_paused = false;
    world.serve(CLIENT);
    world.wait(5_000);
    assert!(world.sides[CLIENT].received == down, "{}", world.sides[CLIENT].received.len());
    world.sides[SERVER].is_paused = false;
    world.serve(SERVER);
    world.finish(100);
    assert_carried(&mut world, &up, &down);
}

#[test]
fn reinjection_encrypts_nothing() {
    let link = Link { rate: Some(2_000_000), ..Link::default() };
    let mut world = sealed(5, vec![link.clone(), link], &[Tep::TcpcryptCurve25519]);
    let data = pattern(3_000_000, 9);
    world.send(CLIENT, &data).send(SERVER, b"hello").connect();
    world.wait(600);
    world.links[0].is_black_hole = true;
    world.finish(60);
    assert_carried(&mut world, &data, b"hello");
    // What was sealed last may still be under way when both have read the end.
    world.wait(1_000);
    let status = world.status(CLIENT);
    let reinjected: u64 = status.subflows.iter().map(|subflow| subflow.reinjected).sum();
    assert!(reinjected > 10_000, "{reinjected}");
    let (ours, theirs) = (status.sealed.expect("sealed"), world.status(SERVER).sealed.expect("sealed"));
    assert_eq!(ours.sealed_blocks, theirs.opened_blocks, "each block was encrypted once and decrypted once");
}

#[test]
fn keys_are_changed_every_hour_while_data_flows() {
    let mut world = sealed(6, vec![Link::default(), Link::default()], &[Tep::TcpcryptCurve25519]);
    let (up, down) = (pattern(300_000, 1), pattern(300_000, 2));
    world.connect();
    for hour in 0..3 {
        let part = hour * 100_000..(hour + 1) * 100_000;
        world.sides[CLIENT].outbox.push_back(up[part.clone()].to_vec().into());
        world.sides[SERVER].outbox.push_back(down[part].to_vec().into());
        world.serve(CLIENT);
        world.serve(SERVER);
        world.wait(10_000);
        world.now += Duration::from_secs(3_700);
    }
    for side in [CLIENT, SERVER] {
        let sealing = world.status(side).sealed.expect("sealed");
        assert!(sealing.generations.iter().all(|&generation| generation >= 2), "{sealing:?}");
    }
    world.send(CLIENT, b"").send(SERVER, b"");
    world.serve(CLIENT);
    world.serve(SERVER);
    world.finish(60);
    assert_carried(&mut world, &up, &down);
    world.assert_clean_end();
}

/// The runner that lost the race is reset while the handshake runs on the other one: that is no end of anything.
#[test]
fn a_dead_first_path_costs_the_start_of_the_second_and_no_more() {
    for tep in Tep::ALL {
        let dead = Link { is_black_hole: true, ..Link::default() };
        let mut world = sealed(6, vec![dead, Link::default()], &[tep]);
        both_ways(&mut world, 100_000);
        assert_eq!(world.status(CLIENT).negotiated, SEALED);
        assert!(world.now < Instant::from_millis(3000), "{tep:?}: {:?}", world.now);
    }
}

/// Sealed bytes need more room than written ones: the room may be gone when the writer checks, although no write was refused.
#[test]
fn a_writer_that_finds_no_room_is_told_when_there_is_some() {
    let mut world = sealed(12, vec![Link::default()], &[Tep::Tls13]);
    world.config(|config| config.send_buffer = 64 << 10);
    world.connect();
    world.wait(1000);
    let now = world.now;
    let room = world.of(CLIENT).writable();
    assert_eq!(world.of(CLIENT).write(now, pattern(room - 1, 1).into()), room - 1);
    assert_eq!(world.of(CLIENT).writable(), 1);
    world.serve(CLIENT);
    assert_eq!(world.of(CLIENT).writable(), 0, "taken by the header of a block");
    world.sides[CLIENT].events.clear();
    world.wait(1000);
    assert!(world.of(CLIENT).writable() > 0);
    assert!(world.sides[CLIENT].events.contains(&Event::Writable), "{:?}", world.sides[CLIENT].events);
}
