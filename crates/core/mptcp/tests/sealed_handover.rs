//! Handover from one path to another without overlap: data in the SYN of a join (docs/protocol.md, section 4).

mod sealing;
mod world;

use bytes::Bytes;
use plait_base::{Duration, PathId};
use plait_mptcp::{Path, Scheduler, Status};
use plait_wire::{Flags, Segment};
use sealing::{assert_carried, sealed};
use std::cell::RefCell;
use std::num::NonZeroU16;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, path, pattern};

const ONE_WAY: Duration = Duration::from_millis(10);

/// Lengths of what SYNs of path 1 brought, from either side, in the order in which they left.
type Seen = Rc<RefCell<Vec<(usize, usize)>>>;

/// A sealed connection over path 0, both of whose hosts have said something; the client has no path 1 yet.
fn over_path_0(seed: u64) -> World {
    over_path_0_as(seed, |_| {})
}

/// The same with other settings.
fn over_path_0_as(seed: u64, set: impl Fn(&mut World)) -> World {
    let mut world = sealed(seed, vec![Link::default(), Link::default()], &plait_handshake::Tep::ALL);
    world.config(|config| config.tcp.no_delay = true);
    set(&mut world);
    world.sides[CLIENT].host.paths.remove(PathId(1));
    world.connect();
    say(&mut world, CLIENT, b"question");
    world.wait(200);
    say(&mut world, SERVER, b"answer");
    world.wait(200);
    assert_eq!(
        (&world.sides[SERVER].received[..], &world.sides[CLIENT].received[..]),
        (&b"question"[..], &b"answer"[..])
    );
    world
}

fn say(world: &mut World, side: usize, data: &[u8]) {
    world.sides[side].outbox.push_back(Bytes::copy_from_slice(data));
    world.serve(side);
}

/// Path 0 is gone, for the client at once, for the server without a word.
fn lose_path_0(world: &mut World) {
    world.links[0].is_black_hole = true;
    world.change_path(CLIENT, Path { up: false, ..path(0, CLIENT) });
}

fn find_path_1(world: &mut World) {
    world.change_path(CLIENT, path(1, CLIENT));
}

fn is_syn_of_path_1(segment: &Segment) -> bool {
    let is_path_1 = |address: std::net::SocketAddr| address.to_string().starts_with("10.0.1.");
    segment.flags.contains(Flags::SYN) && (is_path_1(segment.source) || is_path_1(segment.destination))
}

/// What SYNs of path 1 bring; each goes to `meddle`, with its number among those of its side.
fn watch(world: &mut World, mut meddle: impl FnMut(usize, usize, &mut Segment) -> Fate + 'static) -> Seen {
    let seen = Seen::default();
    let mine = Rc::clone(&seen);
    world.tap = Box::new(move |from, segment| {
        if !is_syn_of_path_1(segment) {
            return Fate::Pass;
        }
        let mut seen = mine.borrow_mut();
        let number = seen.iter().filter(|(side, _)| *side == from).count();
        seen.push((from, segment.payload.len()));
        meddle(from, number, segment)
    });
    seen
}

/// When the other side has all of `data`, from now on.
fn time_until(world: &mut World, side: usize, data: &[u8]) -> Duration {
    let taken = world.run(Duration::from_secs(20), |world| world.sides[side].received.ends_with(data));
    assert!(world.sides[side].received.ends_with(data), "{:?}", world.status(side));
    taken
}

fn failed(status: &Status) -> u64 {
    status.counters.blocks_failed
}

#[test]
fn the_first_byte_on_a_new_path_is_there_half_a_round_trip_after_the_decision() {
    let mut world = over_path_0(1);
    let seen = watch(&mut world, |_, _, _| Fate::Pass);
    // One block was lost with the path, another waits for one.
    world.links[0].is_black_hole = true;
    say(&mut world, CLIENT, b", the second");
    world.wait(20);
    lose_path_0(&mut world);
    say(&mut world, CLIENT, b", the third");
    find_path_1(&mut world);
    assert_eq!(time_until(&mut world, SERVER, b", the second, the third"), ONE_WAY);
    world.wait(1000);
    assert_eq!(world.usable(CLIENT), 1);
    assert_eq!(world.sides[SERVER].received, b"question, the second, the third");
    // Packets of 1,280 bytes at most.
    assert_eq!(seen.borrow()[0], (CLIENT, 1280 - 20 - 52));
    assert_eq!(seen.borrow().len(), 2);
}

#[test]
fn the_peer_answers_with_what_it_had_to_say_one_round_trip_after_the_decision() {
    let mut world = over_path_0(2);
    let seen = watch(&mut world, |_, _, _| Fate::Pass);
    lose_path_0(&mut world);
    // The server does not know yet: its segment is lost.
    say(&mut world, SERVER, b", more");
    world.wait(20);
    // The client has nothing to say.
    find_path_1(&mut world);
    assert_eq!(time_until(&mut world, CLIENT, b"answer, more"), ONE_WAY * 2);
    let syn = seen.borrow()[0];
    let answer = seen.borrow()[1];
    assert!(answer.1 > 0 && answer.1 < syn.1, "{seen:?}");
    world.wait(1000);
    assert_eq!(world.sides[CLIENT].received, b"answer, more");
}

#[test]
fn a_join_beside_a_path_that_works_brings_nothing_and_neither_does_one_of_a_plain_connection() {
    let mut world = over_path_0(3);
    let seen = watch(&mut world, |_, _, _| Fate::Pass);
    say(&mut world, CLIENT, b", again");
    find_path_1(&mut world);
    world.wait(500);
    assert_eq!(*seen.borrow(), [(CLIENT, 0), (SERVER, 0)]);

    let mut world = World::new(3, vec![Link::default(), Link::default()], 1);
    world.sides[CLIENT].host.paths.remove(PathId(1));
    world.connect();
    say(&mut world, CLIENT, b"question");
    world.wait(200);
    let seen = watch(&mut world, |_, _, _| Fate::Pass);
    lose_path_0(&mut world);
    say(&mut world, CLIENT, b", again");
    find_path_1(&mut world);
    // SYN, SYN/ACK, third ACK, fourth ACK: then data.
    assert_eq!(time_until(&mut world, SERVER, b"question, again"), ONE_WAY * 5);
    assert_eq!(*seen.borrow(), [(CLIENT, 0), (SERVER, 0)]);
}

#[test]
fn dispersion_or_no_wish_for_data_in_the_syn_neither_asks_nor_answers_with_any() {
    for side in [CLIENT, SERVER] {
        for disperses in [true, false] {
            let mut world = over_path_0_as(11, |world| {
                let config = &mut world.sides[side].config;
                if disperses {
                    config.scheduler = Scheduler::Dispersed { max_exposure: NonZeroU16::MAX };
                } else {
                    config.join_data = false;
                }
            });
            let seen = watch(&mut world, |_, _, _| Fate::Pass);
            lose_path_0(&mut world);
            say(&mut world, SERVER, b", more");
            find_path_1(&mut world);
            time_until(&mut world, CLIENT, b"answer, more");
            let answers = seen.borrow().iter().any(|(from, bytes)| *from == SERVER && *bytes > 0);
            let asks = seen.borrow().iter().any(|(from, bytes)| *from == CLIENT && *bytes > 0);
            assert_eq!((asks, answers), (side == SERVER, false), "{side}, {disperses}: {seen:?}");
        }
    }
}

#[test]
fn where_a_network_drops_syns_with_data_the_next_goes_without_and_the_path_is_remembered() {
    let mut world = over_path_0(4);
    let drop = |_: usize, _: usize, segment: &mut Segment| {
        if segment.payload.is_empty() { Fate::Pass } else { Fate::Drop }
    };
    let seen = watch(&mut world, drop);
    lose_path_0(&mut world);
    say(&mut world, CLIENT, b", again");
    find_path_1(&mut world);
    let taken = time_until(&mut world, SERVER, b"question, again");
    // What was lost is taken for congestion: one segment to begin with, and a share of the keys is the first.
    assert_eq!(taken, Duration::from_millis(250) + ONE_WAY * 7);
    assert_eq!(seen.borrow().iter().map(|(_, bytes)| *bytes > 0).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(world.sides[CLIENT].host.syn_data_dropped, [PathId(1)]);

    world.wait(1000);
    seen.borrow_mut().clear();
    world.change_path(CLIENT, Path { up: false, ..path(1, CLIENT) });
    world.wait(1000);
    say(&mut world, CLIENT, b", and again");
    find_path_1(&mut world);
    time_until(&mut world, SERVER, b"question, again, and again");
    assert_eq!(*seen.borrow(), [(CLIENT, 0), (SERVER, 0)]);
}

#[test]
fn an_answer_that_is_only_slow_is_no_reason_to_go_without_data() {
    let mut world = over_path_0(5);
    world.links[1].delay = Duration::from_millis(200);
    let seen = watch(&mut world, |_, _, _| Fate::Pass);
    lose_path_0(&mut world);
    say(&mut world, CLIENT, b", again");
    find_path_1(&mut world);
    assert_eq!(time_until(&mut world, SERVER, b"question, again"), Duration::from_millis(200));
    world.wait(2000);
    assert!(seen.borrow().iter().filter(|(from, _)| *from == CLIENT).count() > 1, "{seen:?}");
    assert!(world.sides[CLIENT].host.syn_data_dropped.is_empty());
    let window = world.status(CLIENT).subflows.iter().map(|subflow| subflow.tcp.congestion_window).max();
    assert!(window > Some(10_000), "a SYN that was not lost says nothing about congestion: {window:?}");
}

#[test]
fn a_network_that_takes_the_data_away_costs_only_its_time() {
    let mut world = over_path_0(6);
    let strip = |_: usize, _: usize, segment: &mut Segment| {
        segment.payload = Bytes::new();
        Fate::Pass
    };
    watch(&mut world, strip);
    lose_path_0(&mut world);
    say(&mut world, CLIENT, b", again");
    find_path_1(&mut world);
    assert_eq!(time_until(&mut world, SERVER, b"question, again"), ONE_WAY * 5);
    assert!(world.sides[CLIENT].host.syn_data_dropped.is_empty());
}

#[test]
fn altered_data_in_a_syn_is_not_delivered_and_not_answered_with_data() {
    // The Data-ACK; of the first block (its path is withdrawn) the number, the length, the cipher text, the option tag; padding.
    for place in [0, 12, 17, 20, 18 + 34, 1000] {
        let mut world = over_path_0(7);
        let flip = move |from: usize, _: usize, segment: &mut Segment| {
            if from == CLIENT {
                let mut payload = segment.payload.to_vec();
                payload[place] ^= 1;
                segment.payload = payload.into();
            }
            Fate::Pass
        };
        let seen = watch(&mut world, flip);
        lose_path_0(&mut world);
        say(&mut world, CLIENT, b", again");
        say(&mut world, SERVER, b", more");
        find_path_1(&mut world);
        let taken = time_until(&mut world, SERVER, b"question, again");
        if place == 1000 {
            assert_eq!(taken, ONE_WAY, "padding says nothing");
            continue;
        }
        assert_eq!(taken, ONE_WAY * 5, "{place}");
        assert_eq!(seen.borrow()[1], (SERVER, 0), "{place}");
        time_until(&mut world, CLIENT, b"answer, more");
        assert!(failed(&world.status(SERVER)) <= 1);
        assert_eq!(world.usable(CLIENT), 1, "the join is as good as any");
    }
}

#[test]
fn altered_data_in_the_answer_counts_against_that_subflow() {
    let mut world = over_path_0(8);
    let flip = |from: usize, _: usize, segment: &mut Segment| {
        if from == SERVER {
            let mut payload = segment.payload.to_vec();
            payload[30] ^= 1;
            segment.payload = payload.into();
        }
        Fate::Pass
    };
    watch(&mut world, flip);
    lose_path_0(&mut world);
    say(&mut world, SERVER, b", more");
    find_path_1(&mut world);
    assert!(time_until(&mut world, CLIENT, b"answer, more") > ONE_WAY * 2);
    let status = world.status(CLIENT);
    assert_eq!((failed(&status), status.counters.joins_refused), (1, 0));
}

#[test]
fn a_syn_that_is_sent_again_in_the_name_of_others_delivers_nothing_twice_and_gets_no_longer_answer() {
    let mut world = over_path_0(9);
    let first = Rc::new(RefCell::new(None));
    let kept = Rc::clone(&first);
    let keep = move |from: usize, _: usize, segment: &mut Segment| {
        if from == CLIENT && kept.borrow().is_none() {
            *kept.borrow_mut() = Some(segment.clone());
        }
        Fate::Pass
    };
    watch(&mut world, keep);
    lose_path_0(&mut world);
    say(&mut world, CLIENT, b", again");
    find_path_1(&mut world);
    time_until(&mut world, SERVER, b"question, again");
    world.wait(500);
    // Blocks without an acknowledgment: these would go into an answer.
    world.links[1].is_black_hole = true;
    say(&mut world, SERVER, &pattern(20_000, 3));
    let syn = first.borrow_mut().take().expect("it was kept");
    let longest = Rc::new(RefCell::new(0));
    let mine = Rc::clone(&longest);
    world.tap = Box::new(move |_, segment| {
        if segment.flags.contains(Flags::SYN) {
            let mut longest = mine.borrow_mut();
            *longest = (*longest).max(segment.header_len() + segment.payload.len());
        }
        Fate::Pass
    });
    for port in 50_000..50_040 {
        let source = std::net::SocketAddr::new(syn.source.ip(), port);
        world.deliver(SERVER, &Segment { source, ..syn.clone() });
    }
    world.wait(3000);
    assert_eq!(world.sides[SERVER].received, b"question, again");
    assert!(*longest.borrow() <= syn.header_len() + syn.payload.len(), "{longest:?}");
    assert_eq!(world.sides[SERVER].failed, None);
}

#[test]
fn a_syn_that_is_played_again_from_anywhere_is_answered_without_data() {
    let mut world = over_path_0(12);
    let kept = Rc::new(RefCell::new(None));
    let first = Rc::clone(&kept);
    let seen = watch(&mut world, move |from, _, segment| {
        if from == CLIENT {
            first.borrow_mut().get_or_insert_with(|| segment.clone());
        }
        Fate::Pass
    });
    lose_path_0(&mut world);
    say(&mut world, CLIENT, b", again");
    say(&mut world, SERVER, b", more");
    find_path_1(&mut world);
    time_until(&mut world, SERVER, b"question, again");
    assert!(seen.borrow()[1].1 > 0, "the first is answered with data: {seen:?}");
    // The join comes no further, so that the keys of the SYN are kept. What the server says now goes out over path 0.
    world.links[1].is_black_hole = true;
    say(&mut world, SERVER, b", and a secret");
    seen.borrow_mut().clear();
    let syn: Segment = kept.borrow_mut().take().expect("it was kept");
    assert!(!syn.payload.is_empty());
    for port in 50_000..50_004 {
        let source = std::net::SocketAddr::new([10, 0, 1, 77].into(), port);
        world.deliver(SERVER, &Segment { source, ..syn.clone() });
    }
    world.wait(100);
    let answers: Vec<_> = seen.borrow().iter().filter(|(from, _)| *from == SERVER).copied().collect();
    assert!(answers.len() >= 4 && answers.iter().all(|(_, bytes)| *bytes == 0), "{answers:?}");
}

#[test]
fn a_block_that_does_not_fit_keeps_its_place_and_nothing_overtakes_it() {
    let mut world = over_path_0(10);
    let seen = watch(&mut world, |_, _, _| Fate::Pass);
    let long = pattern(100_000, 4);
    world.links[0].is_black_hole = true;
    say(&mut world, CLIENT, &long);
    world.wait(20);
    lose_path_0(&mut world);
    find_path_1(&mut world);
    time_until(&mut world, SERVER, &long);
    assert_eq!(world.sides[SERVER].received.len(), 8 + long.len());
    assert_eq!(seen.borrow()[0].0, CLIENT);
}

#[test]
fn nothing_is_lost_or_doubled_where_paths_come_and_go_and_lose_and_reorder() {
    for seed in 20..32 {
        let link =
            Link { loss: 0.02, reorder: 0.05, duplicate: 0.02, rate: Some(200_000), ..Link::default() };
        let mut world = sealed(seed, vec![link.clone(), link], &plait_handshake::Tep::ALL);
        let (up, down) = (pattern(400_000, 1), pattern(200_000, 2));
        world.sides[CLIENT].host.paths.remove(PathId(1));
        world.send(CLIENT, &up).send(SERVER, &down).connect();
        for turn in 0..12 {
            world.wait(150 + seed * 7);
            let (old, new) = (turn % 2, 1 - turn % 2);
            world.links[old].is_black_hole = true;
            world.change_path(CLIENT, Path { up: false, ..path(old, CLIENT) });
            world.wait(30);
            world.links[new].is_black_hole = false;
            world.change_path(CLIENT, path(new, CLIENT));
        }
        world.finish(200);
        assert_carried(&mut world, &up, &down);
    }
}
