//! Interference with the end of a sealed connection on every path. An end that both sides have verified needs no further acknowledgment. An
//! unverified end is never reported as a clean end.

mod sealing;
mod world;

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::Duration;
use plait_handshake::Tep;
use plait_mptcp::Event;
use plait_wire::{Flags, MptcpOption, Segment, TcpOption, options};
use sealing::sealed;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

/// From the moment at which both applications have read the end.
const LIMIT: Duration = Duration::from_secs(3);

/// The side that ends its stream first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Client,
    Server,
    Both,
}

const ORDERS: [First; 3] = [First::Client, First::Server, First::Both];

/// Two paths, data both ways, and the interference from when all data is delivered.
fn transfer(seed: u64, tap: impl FnMut(usize, &mut Segment) -> Fate + 'static) -> World {
    let mut world = sealed(seed, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]);
    world.connect();
    world.wait(300);
    assert_eq!(world.usable(CLIENT), 2);
    for side in [CLIENT, SERVER] {
        world.sides[side].outbox.push_back(Bytes::from(pattern(100_000, side as u64)));
        world.serve(side);
    }
    world.wait(2_000);
    assert_received(&world);
    world.tap = Box::new(tap);
    world
}

fn assert_received(world: &World) {
    for side in [CLIENT, SERVER] {
        assert!(world.sides[1 - side].received == pattern(100_000, side as u64), "side {side} was cut short");
    }
}

/// Both sides end their streams, in this order.
fn end(world: &mut World, first: First) {
    let begin: &[usize] = match first {
        First::Client => &[CLIENT],
        First::Server => &[SERVER],
        First::Both => &[CLIENT, SERVER],
    };
    for &side in begin {
        world.sides[side].finishes = true;
        world.serve(side);
    }
    world.run(Duration::from_secs(60), |world| world.sides.iter().any(|side| side.ended));
    for side in [CLIENT, SERVER] {
        world.sides[side].finishes = true;
        world.serve(side);
    }
}

fn is_told(world: &World, side: usize) -> bool {
    world.sides[side].events.contains(&Event::Closed(None))
}

/// Both applications hear of the clean end, soon, and nothing is kept for long.
fn assert_ends_in_time(world: &mut World, what: &str) {
    world.finish(60);
    assert!(world.sides.iter().all(|side| side.ended), "{what}: the end is not read");
    world.run(LIMIT, |world| [CLIENT, SERVER].iter().all(|&side| is_told(world, side)));
    for side in [CLIENT, SERVER] {
        assert!(is_told(world, side), "{what}: side {side} is told nothing");
    }
    assert_received(world);
    world.wait(10_000);
    for side in [CLIENT, SERVER] {
        let is_over = world.of(side).is_done() || world.of(side).is_time_wait();
        assert!(is_over, "{what}: side {side} keeps {:?}", world.status(side).subflows);
        let closed = |event: &&Event| matches!(event, Event::Closed(_));
        assert_eq!(world.sides[side].events.iter().filter(closed).count(), 1, "{what}: told once");
    }
}

fn says_end(segment: &Segment) -> bool {
    segment.flags.contains(Flags::FIN)
        || options(&segment.options)
            .any(|option| matches!(option, Ok(TcpOption::Mptcp(MptcpOption::Dss(dss))) if dss.data_fin))
}

fn into_reset(segment: &mut Segment) {
    segment.flags = Flags::RST.with(Flags::ACK);
    segment.options.clear();
    segment.payload = Bytes::new();
}

fn ends_of(segment: &Segment) -> [SocketAddr; 2] {
    let mut ends = [segment.source, segment.destination];
    ends.sort_unstable();
    ends
}

/// From the segment on for which `begins` says so each subflow that then lives is reset, at both ends.
fn resets(mut begins: impl FnMut(&Segment) -> bool) -> impl FnMut(usize, &mut Segment) -> Fate {
    let mut is_on = false;
    let mut joined_later = BTreeSet::new();
    move |_, segment| {
        is_on |= begins(segment);
        if is_on && segment.flags.contains(Flags::SYN) {
            joined_later.insert(ends_of(segment));
        }
        if is_on && !joined_later.contains(&ends_of(segment)) {
            into_reset(segment);
        }
        Fate::Pass
    }
}

#[test]
fn no_fin_and_no_data_fin_on_any_path_holds_up_the_end() {
    for first in ORDERS {
        let mut world = transfer(1, |_, segment| if says_end(segment) { Fate::Drop } else { Fate::Pass });
        end(&mut world, first);
        assert_ends_in_time(&mut world, &format!("{first:?} first"));
    }
}

#[test]
fn resets_on_all_paths_where_the_first_fin_or_data_fin_shows_do_not_hold_up_the_end() {
    for first in ORDERS {
        let mut world = transfer(2, resets(says_end));
        end(&mut world, first);
        assert_ends_in_time(&mut world, &format!("{first:?} first"));
    }
}

#[test]
fn resets_on_all_paths_at_any_segment_of_the_end_do_not_hold_it_up() {
    for first in ORDERS {
        for number in 0..24 {
            let mut count = 0;
            let begins = move |_: &Segment| {
                count += 1;
                count > number
            };
            let mut world = transfer(3, resets(begins));
            end(&mut world, first);
            assert_ends_in_time(&mut world, &format!("{first:?} first, from segment {number} on"));
        }
    }
}

/// On each subflow, those that join later included. The attacker is by the client, half way, or by the server: what a reset
/// overtakes differs.
#[test]
fn resets_in_place_of_each_fin_and_data_fin_do_not_hold_up_the_end() {
    let trip = 2 * Link::default().delay;
    for first in ORDERS {
        for [client, server] in [[0, 2], [1, 1], [2, 0]] {
            let back = [trip / 2 * client, trip / 2 * server];
            let mut world = transfer(5, move |from, segment| {
                if says_end(segment) { Fate::Reset { back_after: back[from] } } else { Fate::Pass }
            });
            end(&mut world, first);
            assert_ends_in_time(&mut world, &format!("{first:?} first, resets after {back:?}"));
        }
    }
}

/// The same where not even the last bytes have arrived when the first end is said.
#[test]
fn resets_in_place_of_each_fin_and_data_fin_do_not_hold_up_the_last_bytes() {
    let trip = 2 * Link::default().delay;
    for [client, server] in [[0, 2], [1, 1], [2, 0]] {
        let back = [trip / 2 * client, trip / 2 * server];
        let mut world =
            transfer(
                6,
                move |from, segment| {
                    if says_end(segment) { Fate::Reset { back_after: back[from] } } else { Fate::Pass }
                },
            );
        for side in [CLIENT, SERVER] {
            world.sides[side].outbox.push_back(Bytes::from(pattern(20_000, side as u64)));
            world.sides[1 - side].received.clear();
            world.sides[side].finishes = true;
            world.serve(side);
        }
        world.finish(60);
        let words = format!("resets after {back:?}");
        for side in [CLIENT, SERVER] {
            assert!(
                world.sides[1 - side].received == pattern(20_000, side as u64),
                "{words}: {side} is cut short"
            );
        }
        world.run(LIMIT, |world| [CLIENT, SERVER].iter().all(|&side| is_told(world, side)));
        for side in [CLIENT, SERVER] {
            assert!(
                world.sides[side].ended && is_told(&world, side),
                "{words}: side {side} is not told of the end"
            );
        }
    }
}

#[test]
fn a_clean_end_is_told_only_where_the_other_side_has_everything() {
    for first in ORDERS {
        let mut clean = [0; 2];
        for number in 0..24 {
            let seen = Rc::new(Cell::new(0));
            let count = seen.clone();
            let mut world = transfer(4, move |_, _| {
                count.set(count.get() + 1);
                if count.get() > number { Fate::Drop } else { Fate::Pass }
            });
            end(&mut world, first);
            world.wait(400_000);
            for side in [CLIENT, SERVER] {
                if is_told(&world, side) {
                    clean[side] += 1;
                    let what = format!("{first:?} first, nothing after segment {number}");
                    assert!(
                        world.sides[1 - side].ended,
                        "{what}: side {side} ends, the other has not heard it"
                    );
                    assert!(world.sides[side].ended, "{what}: side {side} ends and has not heard the other");
                } else {
                    assert!(world.sides[side].failed.is_some() || world.sides[side].ended);
                    let failed = |event: &Event| matches!(event, Event::Closed(Some(_)));
                    assert!(world.sides[side].events.iter().any(failed), "side {side} is told nothing");
                }
            }
            assert_received(&world);
        }
        assert!(clean.iter().all(|&clean| clean > 0 && clean < 24), "{clean:?}");
    }
}
