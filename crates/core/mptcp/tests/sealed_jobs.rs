//! Sealing and opening by jobs that take time and return results in any order.

mod sealing;
mod world;

use plait_base::{Duration, Random, SeededRandom};
use plait_handshake::Tep;
use plait_mptcp::{ConnectionError, Scheduler};
use plait_wire::{DataSequence, Dss, Flags, MptcpOption, Segment, TcpOption, options};
use sealing::{assert_carried, both_ways, sealed};
use std::cell::RefCell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, address, path, pattern};

const TEP: &[Tep] = &[Tep::TcpcryptCurve25519];
const JOBS: u16 = 8;

fn with_jobs(seed: u64, links: Vec<Link>, longest_ms: u64) -> World {
    let mut world = sealed(seed, links, TEP);
    world.config(|config| config.crypto_jobs = JOBS);
    world.crypto_workers.longest = Duration::from_millis(longest_ms);
    world
}

fn narrow() -> Link {
    Link { rate: Some(2_000_000), ..Link::default() }
}

/// Blocks sealed and opened, by the figures of both sides: what left and what came.
fn blocks(world: &mut World, from: usize) -> (u64, u64) {
    let figures = |world: &mut World, side| world.status(side).sealed.expect("sealed");
    (figures(world, from).sealed_blocks, figures(world, 1 - from).opened_blocks)
}

#[test]
fn the_bytes_are_in_order_whatever_the_order_of_the_results() {
    for longest in [0, 1, 15] {
        for seed in 1..4 {
            let mut world = with_jobs(seed, vec![narrow(), narrow()], longest);
            both_ways(&mut world, 1_500_000);
            assert!(
                longest == 0 || world.crypto_workers.overtaken > 20,
                "{}",
                world.crypto_workers.overtaken
            );
            assert!(world.crypto_workers.most <= 2 * usize::from(JOBS), "{}", world.crypto_workers.most);
            for side in [CLIENT, SERVER] {
                let counters = world.status(side).counters;
                assert_eq!((counters.blocks_failed, counters.forged_acks), (0, 0));
            }
            world.assert_clean_end();
            for side in [CLIENT, SERVER] {
                let (sealed, opened) = blocks(&mut world, side);
                assert!(opened >= sealed, "{opened} of {sealed}");
            }
        }
    }
}

#[test]
fn blocks_leave_in_the_order_of_their_numbers_whichever_is_sealed_first() {
    let mut world = with_jobs(2, vec![narrow()], 15);
    // A server that opens at once acknowledges at once, so that nothing is sent twice.
    world.sides[SERVER].config.crypto_jobs = 0;
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = sent.clone();
    world.tap = Box::new(move |from, segment: &mut Segment| {
        for option in options(&segment.options) {
            if from == CLIENT
                && let Ok(TcpOption::Mptcp(MptcpOption::Dss(Dss { mapping: Some(mapping), .. }))) = option
                && let DataSequence::Long(dsn) = mapping.dsn
            {
                seen.borrow_mut().push(dsn);
            }
        }
        Fate::Pass
    });
    let up = pattern(800_000, 1);
    world.send(CLIENT, &up).send(SERVER, b"").connect();
    world.finish(60);
    assert_carried(&mut world, &up, b"");
    assert!(world.crypto_workers.overtaken > 5, "{}", world.crypto_workers.overtaken);
    let sent = sent.borrow();
    let first = sent[0];
    assert!(sent.is_sorted_by_key(|dsn| dsn.wrapping_sub(first)), "{} segments", sent.len());
}

#[test]
fn jobs_without_a_runner_end_with_the_connection() {
    let mut world = with_jobs(3, vec![narrow()], 0);
    world.connect();
    world.wait(500);
    let now = world.now;
    let connection = world.of(CLIENT);
    connection.write(now, pattern(100_000, 1).into());
    while connection.poll_transmit(now).is_some() {}
    assert!(connection.has_crypto());
    connection.abort(now);
    assert!(!connection.has_crypto() && connection.poll_crypto().is_none());
}

#[test]
fn nothing_is_lost_when_segments_are() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant] {
        for seed in 1..6 {
            let bad = Link { loss: 0.02, duplicate: 0.01, reorder: 0.05, ..Link::default() };
            let slow = Link { delay: Duration::from_millis(40), ..bad.clone() };
            let mut world = with_jobs(seed, vec![bad, slow], 20);
            world.config(|config| config.scheduler = scheduler);
            both_ways(&mut world, 400_000);
            world.assert_clean_end();
        }
    }
}

#[test]
fn a_block_is_acknowledged_when_it_has_been_opened_and_not_before() {
    let mut world = with_jobs(1, vec![Link::default()], 0);
    world.connect();
    world.wait(500);
    world.sides[CLIENT].outbox.push_back(pattern(30_000, 1).into());
    // Sealing took no time; opening will never end.
    world.crypto_workers.longest = Duration::ZERO;
    world.serve(CLIENT);
    world.crypto_workers.longest = Duration::from_secs(1_000_000);
    world.wait(35);
    assert!(world.crypto_workers.len() > 0, "they are being opened");
    assert_eq!(world.status(CLIENT).bytes_delivered, 0);
    assert!(world.sides[SERVER].received.is_empty());
}

#[test]
fn a_reader_that_pauses_stops_the_writer_and_the_jobs() {
    let mut world = with_jobs(4, vec![Link::default()], 3);
    world.config(|config| config.receive_buffer = 100_000);
    for side in &mut world.sides {
        side.is_paused = true;
    }
    let (up, down) = (pattern(1_000_000, 1), pattern(1_000_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.wait(5_000);
    assert_eq!(world.crypto_workers.len(), 0, "no job runs ahead of the window forever");
    for side in [CLIENT, SERVER] {
        let delivered = world.status(side).bytes_delivered;
        assert!((50_000..250_000).contains(&delivered), "{delivered}");
        world.sides[side].is_paused = false;
    }
    world.serve(CLIENT);
    world.serve(SERVER);
    world.finish(100);
    assert_carried(&mut world, &up, &down);
}

#[test]
fn a_crowd_of_blocks_waits_in_the_window_of_tcp_while_enough_are_being_opened() {
    let mut world = with_jobs(5, vec![Link { delay: Duration::from_millis(1), ..Link::default() }], 400);
    let up = pattern(3_000_000, 1);
    world.send(CLIENT, &up).send(SERVER, b"").connect();
    world.finish(600);
    assert_carried(&mut world, &up, b"");
    assert!(world.crypto_workers.most <= 2 * usize::from(JOBS), "{}", world.crypto_workers.most);
}

#[test]
fn keys_are_changed_while_blocks_are_being_sealed_and_opened() {
    let mut world = with_jobs(6, vec![narrow(), narrow()], 10);
    let (up, down) = (pattern(900_000, 1), pattern(900_000, 2));
    // The hours pass at a stroke, with bytes under way.
    world.config(|config| {
        config.tcp.user_timeout = Some(Duration::from_secs(10_000));
        config.no_subflow_timeout = Duration::from_secs(10_000);
    });
    world.connect();
    for hour in 0..3 {
        let part = hour * 300_000..(hour + 1) * 300_000;
        world.sides[CLIENT].outbox.push_back(up[part.clone()].to_vec().into());
        world.sides[SERVER].outbox.push_back(down[part].to_vec().into());
        world.serve(CLIENT);
        world.serve(SERVER);
        // There are jobs once the peer has confirmed the opening.
        world.wait(if hour == 0 { 80 } else { 20 });
        let has_jobs = (0..500).any(|_| {
            world.wait(1);
            world.crypto_workers.len() > 0
        });
        assert!(has_jobs, "the hour passes in the middle of it");
        world.now += Duration::from_secs(3_700);
        world.wait(10_000);
    }
    for side in [CLIENT, SERVER] {
        let sealing = world.status(side).sealed.expect("sealed");
        assert!(sealing.generations.iter().all(|&generation| generation >= 2), "{sealing:?}");
        assert_eq!(world.status(side).counters.blocks_failed, 0);
    }
    world.send(CLIENT, b"").send(SERVER, b"");
    world.serve(CLIENT);
    world.serve(SERVER);
    world.finish(60);
    assert_carried(&mut world, &up, &down);
    world.assert_clean_end();
}

#[test]
fn reinjection_makes_no_jobs() {
    let mut world = with_jobs(7, vec![narrow(), narrow()], 2);
    let data = pattern(3_000_000, 9);
    world.send(CLIENT, &data).send(SERVER, b"hello").connect();
    world.wait(600);
    world.links[0].is_black_hole = true;
    world.finish(60);
    assert_carried(&mut world, &data, b"hello");
    let status = world.status(CLIENT);
    let reinjected: u64 = status.subflows.iter().map(|subflow| subflow.reinjected).sum();
    assert!(reinjected > 10_000, "{reinjected}");
    // The block that carries DATA_FIN may be on its way when both applications have read their ends.
    world.wait(500);
    let (sealed, opened) = blocks(&mut world, CLIENT);
    assert_eq!(sealed, opened, "each block was encrypted once and decrypted once");
}

#[test]
fn a_path_that_is_lost_takes_nothing_with_it_that_is_being_sealed_or_opened() {
    for seed in 1..5 {
        let mut world = with_jobs(seed, vec![narrow(), narrow()], 30);
        let (up, down) = (pattern(1_500_000, 1), pattern(1_000_000, 2));
        world.send(CLIENT, &up).send(SERVER, &down).connect();
        world.wait(300);
        assert!(world.crypto_workers.len() > 0);
        let mut gone = path(0, CLIENT);
        gone.up = false;
        world.change_path(CLIENT, gone);
        world.links[0].is_black_hole = true;
        world.finish(200);
        assert_carried(&mut world, &up, &down);
    }
}

#[test]
fn a_forged_block_among_those_being_opened_is_dropped_and_the_others_count() {
    let mut world = with_jobs(8, vec![narrow(), narrow()], 10);
    let (up, down) = (pattern(1_500_000, 1), pattern(1_000_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.wait(200);
    let mut random = SeededRandom::from_number(8);
    world.tap = Box::new(move |_, segment: &mut Segment| {
        let is_first =
            segment.source.ip() == address(1, CLIENT) || segment.destination.ip() == address(1, CLIENT);
        if is_first
            && !segment.flags.contains(Flags::SYN)
            && segment.payload.len() > 200
            && random.chance(0.05)
        {
            // Cipher text only: both tags stay what they are, so that the job alone can find it.
            let mut payload = segment.payload.to_vec();
            payload[100] ^= 1;
            segment.payload = payload.into();
        }
        Fate::Pass
    });
    world.finish(200);
    assert_carried(&mut world, &up, &down);
    let failed: u64 = [CLIENT, SERVER].map(|side| world.status(side).counters.blocks_failed).iter().sum();
    assert!(failed > 3, "{failed}");
}

#[test]
fn a_connection_that_has_ended_takes_no_results() {
    for is_abort in [true, false] {
        let mut world = with_jobs(9, vec![narrow(), narrow()], 200);
        let up = pattern(2_000_000, 1);
        world.send(CLIENT, &up).connect();
        world.run(Duration::from_secs(20), |world| world.crypto_workers.len() >= 8);
        assert!(world.crypto_workers.len() > 0);
        let now = world.now;
        if is_abort {
            world.of(CLIENT).abort(now);
            world.serve(CLIENT);
        } else {
            world.links.iter_mut().for_each(|link| link.is_black_hole = true);
        }
        world.run(Duration::from_secs(3_600), |_| false);
        assert_eq!(world.crypto_workers.len(), 0);
        let expected = if is_abort { ConnectionError::Aborted } else { ConnectionError::AllPathsLost };
        assert_eq!(world.sides[CLIENT].failed, Some(expected));
        assert!(!world.sides[SERVER].ended, "it is not the end of the data");
        let received = world.sides[SERVER].received.len();
        assert!(world.sides[SERVER].received == up[..received]);
    }
}
