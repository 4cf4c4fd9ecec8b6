//! Option tags: what they authenticate, and how often an attacker may guess them.

mod listener;
mod raw_peer;
mod sealing;
mod world;

use bytes::Bytes;
use core::net::IpAddr;
use listener::Listener;
use plait_base::{Duration, Random, SeededRandom};
use plait_handshake::Tep;
use plait_mptcp::ConnectionError;
use plait_protect::sealed::Kind;
use plait_wire::{DataAck, Dss, FastClose, Flags, MptcpOption, Segment, TcpOption, option_bytes, options};
use sealing::{assert_carried, sealed};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

/// A segment recorded 4 GiB earlier has the same 32 bits in its DSS option.
#[test]
fn a_block_of_another_4_gib_of_its_subflow_does_not_verify() {
    let mut listener = Listener::open();
    let honest = listener.peer.block(Kind::Data, b"here");
    listener.say(&honest);
    assert_eq!(listener.world.sides[SERVER].received, b"here");

    let here = listener.peer.sent;
    let elsewhere = listener.peer.block_of(Kind::Data, b"there", here + (1 << 32));
    listener.say(&elsewhere);
    assert_eq!(listener.world.status(SERVER).counters.blocks_failed, 1);
    assert_eq!(listener.world.sides[SERVER].received, b"here");
}

/// With every third segment on path 1 an attacker sends an acknowledgment with an invented tag, without end; the honest segments pass.
#[test]
fn guessing_at_tags_for_ever_costs_the_subflow_and_not_the_connection() {
    for seed in 0..3 {
        let link = Link { rate: Some(2_000_000), ..Link::default() };
        let mut world = sealed(seed, vec![link.clone(), link], &[Tep::TcpcryptCurve25519]);
        let (up, down) = (pattern(3_000_000, 1), pattern(2_000_000, 2));
        let guesses: Rc<RefCell<Vec<(usize, Segment)>>> = Rc::default();
        let queue = Rc::clone(&guesses);
        let mut random = SeededRandom::from_number(seed);
        let mut seen = 0;
        world.tap = Box::new(move |from, segment: &mut Segment| {
            let is_other = segment.flags.contains(Flags::SYN) || segment.flags.contains(Flags::RST);
            if path_of(segment) == 1 && !is_other {
                seen += 1;
                if seen % 3 == 0 {
                    queue.borrow_mut().push((1 - from, segment.clone()));
                }
            }
            Fate::Pass
        });
        world.send(CLIENT, &up).send(SERVER, &down).connect();
        let end = world.now + Duration::from_secs(200);
        while world.now < end && !is_over(&world) {
            let waiting = Rc::clone(&guesses);
            let left = end.saturating_since(world.now);
            world.run(left, |world| !waiting.borrow().is_empty() || is_over(world));
            for (to, segment) in guesses.take() {
                let forged = guess(&segment, generation(&mut world, to), &mut random);
                world.deliver(to, &forged);
            }
        }
        assert_carried(&mut world, &up, &down);
        let mut closed = 0;
        for side in [CLIENT, SERVER] {
            let status = world.status(side);
            let joins = status.counters.guessed_closed;
            assert!(status.counters.tags_failed <= 8 * (joins + 2), "{seed}: {status:?}");
            closed += joins;
        }
        assert!(closed > 0, "{seed}: the subflow is left");
        let status = world.status(CLIENT);
        assert_eq!(status.subflows.iter().filter(|subflow| subflow.path.0 == 0).count(), 1, "{status:?}");
    }
}

#[test]
fn after_thousands_of_wrong_tags_one_is_enough_and_the_connection_still_lives() {
    let (mut world, tape) = idle(4);
    let mut random = SeededRandom::from_number(4);
    let mut rounds = 0;
    while world.status(SERVER).counters.tags_failed < 4096 {
        rounds += 1;
        assert!(rounds < 1000, "{:?}", world.status(SERVER));
        let before = world.status(SERVER).counters;
        for _ in 0..8 {
            let now = generation(&mut world, SERVER);
            let forged = next_on(&tape, 1, |last| guess(last, now, &mut random));
            world.deliver(SERVER, &forged);
        }
        let after = world.status(SERVER).counters;
        assert_eq!(
            (after.tags_failed, after.guessed_closed),
            (before.tags_failed + 8, before.guessed_closed + 1)
        );
        world.wait(100);
        world.run(Duration::from_secs(100), |world| world.usable(CLIENT) == 2);
        world.wait(100);
    }
    let before = world.status(SERVER).counters;
    let now = generation(&mut world, SERVER);
    let forged = next_on(&tape, 1, |last| guess(last, now, &mut random));
    world.deliver(SERVER, &forged);
    assert_eq!(world.status(SERVER).counters.guessed_closed, before.guessed_closed + 1, "at the first one");

    let (up, down) = (pattern(100_000, 1), pattern(100_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down);
    world.serve(CLIENT);
    world.serve(SERVER);
    world.finish(60);
    assert_carried(&mut world, &up, &down);
    let status = world.status(CLIENT);
    assert_eq!(status.subflows.iter().filter(|subflow| subflow.path.0 == 0).count(), 1, "{status:?}");
}

/// The same outside the window: an attacker that knows the addresses and ports can guess there.
#[test]
fn guessing_at_the_key_of_mp_fastclose_ends_after_a_while_on_its_subflow_only() {
    for path in [0, 1] {
        let (mut world, tape) = idle(5);
        for _ in 0..64 {
            let forged = next_on(&tape, 1, |last| {
                let wrong = TcpOption::Mptcp(MptcpOption::FastClose(FastClose { receiver_key: [7; 8] }));
                let options = option_bytes(timestamps(last).chain([wrong])).expect("it fits");
                Segment { seq: last.seq + (1 << 30), options, ..last.clone() }
            });
            world.deliver(SERVER, &forged);
        }
        assert_eq!(world.status(SERVER).counters.bad_fast_closes, 64);
        // The genuine one comes on this path alone.
        world.tap = Box::new(
            move |_, segment: &mut Segment| {
                if path_of(segment) == path { Fate::Pass } else { Fate::Drop }
            },
        );
        let now = world.now;
        world.of(CLIENT).abort(now);
        world.serve(CLIENT);
        world.wait(50);
        let believed = world.sides[SERVER].failed == Some(ConnectionError::FastClose);
        assert_eq!(believed, path == 0, "on path {path}: {:?}", world.sides[SERVER].failed);
    }
}

fn is_over(world: &World) -> bool {
    world.sides.iter().all(|side| side.ended || side.failed.is_some())
}

/// The last segment of the client on each path.
type Tape = Rc<RefCell<BTreeMap<u8, Segment>>>;

/// An idle connection over two paths.
fn idle(seed: u64) -> (World, Tape) {
    let mut world = sealed(seed, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]);
    let tape = Tape::default();
    let last = Rc::clone(&tape);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if from == CLIENT {
            last.borrow_mut().insert(path_of(segment), segment.clone());
        }
        Fate::Pass
    });
    world.connect();
    world.wait(2000);
    assert_eq!(world.usable(CLIENT), 2);
    (world, tape)
}

/// Returns a segment in the place of the client's next one on the path.
fn next_on(tape: &Tape, path: u8, make: impl FnOnce(&Segment) -> Segment) -> Segment {
    let last = tape.borrow()[&path].clone();
    let next = Segment { seq: last.seq + last.len_seq(), flags: Flags::ACK, payload: Bytes::new(), ..last };
    make(&next)
}

/// The generation of the keys by which this side verifies tags, as it stands on the wire.
fn generation(world: &mut World, of: usize) -> u8 {
    let sealed = world.status(of).sealed;
    sealed.map_or(0, |sealed| (sealed.generations[1] & 0x3f) as u8)
}

/// A Data-ACK with an invented tag, in the place of the segment.
fn guess(segment: &Segment, generation: u8, random: &mut SeededRandom) -> Segment {
    let dss = Dss { data_ack: Some(DataAck::Long(random.next_u64())), mapping: None, data_fin: false };
    let mut options =
        option_bytes(timestamps(segment).chain([TcpOption::Mptcp(MptcpOption::Dss(dss))])).expect("it fits");
    options.extend([30, 12, 0xf0, generation]);
    options.extend(random.next_u64().to_be_bytes());
    Segment { options, flags: Flags::ACK, payload: Bytes::new(), ..segment.clone() }
}

fn timestamps(segment: &Segment) -> impl Iterator<Item = TcpOption<'_>> {
    options(&segment.options)
        .filter_map(Result::ok)
        .filter(|option| matches!(option, TcpOption::Timestamps { .. }))
}

/// The server has one address, on path 0; the client's tells.
fn path_of(segment: &Segment) -> u8 {
    let ends = [segment.source.ip(), segment.destination.ip()];
    let paths = ends.map(|end| match end {
        IpAddr::V4(end) => end.octets()[2],
        IpAddr::V6(_) => unreachable!("all tests speak IPv4"),
    });
    paths.into_iter().max().expect("two ends")
}
