//! The end of a sealed connection whose last acknowledgments are lost: how long each side waits, and what it reports.

mod sealing;
mod world;

use bytes::Bytes;
use plait_base::Duration;
use plait_handshake::Tep;
use plait_mptcp::ConnectionError;
use plait_wire::Segment;
use sealing::sealed;
use world::{CLIENT, Fate, Link, SERVER, World, address, pattern};

#[test]
fn an_end_that_lacks_only_the_acknowledgment_of_its_end_is_over_within_five_seconds_and_says_so() {
    for silent in [true, false] {
        let mut world = sealed(6, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
        let (up, down) = (pattern(60_000, 1), pattern(40_000, 2));
        world.connect();
        write(&mut world, CLIENT, &up);
        world.wait(1000);
        write(&mut world, SERVER, &down);
        finish(&mut world, SERVER);
        world.wait(1000);
        assert!(world.sides[CLIENT].ended, "the client has the end of the server");
        // The client's end gets through, and nothing comes back.
        world.tap = Box::new(move |from, _| match (from, silent) {
            (CLIENT, _) => Fate::Pass,
            (_, true) => Fate::Drop,
            (_, false) => Fate::Reset { back_after: Duration::from_millis(30) },
        });
        finish(&mut world, CLIENT);
        let took =
            world.run(Duration::from_secs(150), |world| world.sides.iter().all(|side| end(side).is_some()));
        assert!(took <= Duration::from_millis(5500), "silent {silent}: {took:?}");
        assert_eq!(end(&world.sides[CLIENT]), Some(Some(ConnectionError::EndUnacknowledged)));
        assert_eq!(end(&world.sides[SERVER]), Some(None), "it has everything, and knows that the client has");
        assert!(world.sides[CLIENT].received == down && world.sides[SERVER].received == up);
    }
}

/// Both ends have every byte of the other and its end, and no acknowledgment of the last bytes gets through.
fn without_last_acknowledgments() -> World {
    let mut world = sealed(6, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
    world.connect();
    world.wait(1000);
    for (side, seed) in [(CLIENT, 1), (SERVER, 2)] {
        write(&mut world, side, &pattern(8_000, seed));
        finish(&mut world, side);
    }
    // What both say at once arrives.
    world.wait(5);
    world.tap = Box::new(|_, _| Fate::Drop);
    world.run(Duration::from_secs(1), |world| world.sides.iter().all(|side| side.ended));
    assert!(
        world.sides[CLIENT].received == pattern(8_000, 2)
            && world.sides[SERVER].received == pattern(8_000, 1)
    );
    assert!(
        world.sides.iter().all(|side| end(side).is_none()),
        "neither knows that the other has its last bytes"
    );
    world
}

#[test]
fn both_ends_are_over_within_five_seconds_where_every_subflow_and_join_is_reset() {
    let mut world = without_last_acknowledgments();
    world.tap = Box::new(|_, _| Fate::Reset { back_after: Duration::from_millis(30) });
    let took =
        world.run(Duration::from_secs(150), |world| world.sides.iter().all(|side| end(side).is_some()));
    // The resets come when a segment is sent: the tail is sent again after a timeout.
    assert!(took <= Duration::from_secs(6), "{took:?}");
    for side in &world.sides {
        assert_eq!(end(side), Some(Some(ConnectionError::TailUnacknowledged)));
    }
}

#[test]
fn both_ends_wait_for_a_path_that_is_silent_though_all_is_reset_on_the_other_one() {
    let mut world = without_last_acknowledgments();
    world.tap = Box::new(|_, segment: &mut Segment| {
        match [segment.source.ip(), segment.destination.ip()].contains(&address(1, CLIENT)) {
            true => Fate::Drop,
            false => Fate::Reset { back_after: Duration::from_millis(30) },
        }
    });
    world.wait(30_000);
    assert!(world.sides.iter().all(|side| end(side).is_none()), "an outage may end");
    world.tap = Box::new(|_, _| Fate::Pass);
    let took = world.run(Duration::from_secs(60), |world| world.sides.iter().all(|side| end(side).is_some()));
    assert!(took <= Duration::from_secs(3), "{took:?}");
    assert!(world.sides.iter().all(|side| end(side) == Some(None)), "both know all");
}

#[test]
fn an_end_whose_acknowledgment_is_only_late_waits_for_it_as_long_as_the_peer_lives() {
    let mut world = sealed(6, two_megabytes_a_second(2), &[Tep::TcpcryptCurve25519]);
    world.connect();
    write(&mut world, CLIENT, &pattern(60_000, 1));
    world.wait(1000);
    finish(&mut world, SERVER);
    world.wait(1000);
    // Path 0 dies; over path 1 the client's blocks are lost for ten seconds, and its questions are answered.
    let until = world.now + Duration::from_secs(10);
    world.links[0].is_black_hole = true;
    world.tap = Box::new(
        move |from, segment: &mut Segment| {
            if from == CLIENT && !segment.payload.is_empty() { Fate::Drop } else { Fate::Pass }
        },
    );
    finish(&mut world, CLIENT);
    world.run(until.saturating_since(world.now), |_| false);
    assert_eq!(end(&world.sides[CLIENT]), None, "the peer has answered all the time");
    world.tap = Box::new(|_, _| Fate::Pass);
    world.run(Duration::from_secs(20), |world| end(&world.sides[CLIENT]).is_some());
    assert_eq!(end(&world.sides[CLIENT]), Some(None));
}

fn finish(world: &mut World, side: usize) {
    let now = world.now;
    world.of(side).finish(now);
    world.serve(side);
}

/// How the connection has ended on a side.
fn end(side: &world::Side) -> Option<Option<ConnectionError>> {
    side.events.iter().find_map(|event| match event {
        plait_mptcp::Event::Closed(end) => Some(*end),
        _ => None,
    })
}

fn two_megabytes_a_second(paths: usize) -> Vec<Link> {
    vec![Link { rate: Some(2_000_000), ..Link::default() }; paths]
}

fn write(world: &mut World, side: usize, data: &[u8]) {
    let now = world.now;
    world.of(side).write(now, Bytes::copy_from_slice(data));
    world.serve(side);
}
