//! A share of the keys from every path: the messages on each path, their cost, and the gain of an attacker on one path.

mod sealing;
mod world;

use bytes::Bytes;
use plait_base::{Duration, NetworkId};
use plait_handshake::Tep;
use plait_mptcp::{ConnectionError, Path, Protect, Ratchet};
use plait_wire::{Flags, MpJoin, MptcpOption, Segment, TcpOption, option_bytes, options};
use sealing::{assert_carried, both_ways, sealed};
use std::cell::RefCell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, address, pattern};

/// Length of the messages of an exchange: of the offer, and of the answer.
const MESSAGES: [usize; 2] = [1287, 1191];

fn two_paths(seed: u64, required: [u8; 2]) -> World {
    let mut world =
        sealed(seed, vec![Link { rate: Some(2_000_000), ..Link::default() }; 2], &[Tep::TcpcryptCurve25519]);
    for side in [CLIENT, SERVER] {
        settings(&mut world, side, |settings| settings.require_paths = required[side]);
    }
    world
}

fn settings(world: &mut World, side: usize, change: impl Fn(&mut plait_mptcp::SealedSettings)) {
    if let Protect::Sealed(settings) = &mut world.sides[side].config.protect {
        change(settings);
    }
}

/// Where a message of an exchange begins: MP_EXPERIMENTAL with the low bits 1.
fn announced(segment: &Segment) -> Option<usize> {
    let all = options(&segment.options).filter_map(Result::ok);
    let mut of_mptcp = all.filter_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Unknown { subtype: 0xf, low_bits: 1, data }) => {
            Some(usize::from(u16::from_be_bytes([data[4], data[5]])))
        }
        _ => None,
    });
    of_mptcp.next()
}

fn path_of(segment: &Segment) -> usize {
    let is_of_client = |path: &usize| {
        [segment.source, segment.destination].iter().any(|end| end.ip() == address(*path, CLIENT))
    };
    (0..4).find(is_of_client).expect("a path of the client")
}

fn is_join_syn(segment: &Segment) -> bool {
    let mut all = options(&segment.options).filter_map(Result::ok);
    all.any(|option| matches!(option, TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn { .. }))))
}

/// Records the sender, the part and the path of each message of an exchange, in order.
fn watch(world: &mut World) -> Rc<RefCell<Vec<(usize, usize, usize)>>> {
    let seen: Rc<RefCell<Vec<_>>> = Rc::default();
    let tape = Rc::clone(&seen);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if let Some(length) = announced(segment) {
            tape.borrow_mut().push((path_of(segment), from, length));
        }
        Fate::Pass
    });
    seen
}

fn mixed(world: &mut World, side: usize) -> [usize; 2] {
    world.status(side).sealed.expect("it is sealed").mixed_paths
}

#[test]
fn a_path_that_joins_gives_a_share_and_each_message_crosses_it_alone() {
    for tep in Tep::ALL {
        let mut world = sealed(1, vec![Link { rate: Some(2_000_000), ..Link::default() }; 3], &[tep]);
        let seen = watch(&mut world);
        both_ways(&mut world, 3_000_000);
        for side in [CLIENT, SERVER] {
            assert_eq!(mixed(&mut world, side), [3, 3], "{tep:?}");
            let status = world.status(side);
            assert!(status.sealed.expect("sealed").generations.iter().all(|&each| each >= 1));
            assert_eq!((status.counters.blocks_failed, status.counters.tags_failed), (0, 0));
        }
        for path in 0..3 {
            let on_path: Vec<_> = seen.borrow().iter().filter(|(on, ..)| *on == path).copied().collect();
            // The responder of the join speaks first, and none of it crosses the path of the handshake.
            let expected = [(path, SERVER, MESSAGES[0]), (path, CLIENT, MESSAGES[1])];
            assert_eq!(on_path, if path == 0 { &[][..] } else { &expected[..] });
        }
        world.assert_clean_end();
    }
}

#[test]
fn nothing_is_lost_while_keys_are_mixed_on_paths_that_lose_and_reorder() {
    let (mut generations, mut first) = (0, 0);
    for seed in 0..12 {
        let bad = Link { loss: 0.03, duplicate: 0.02, reorder: 0.1, ..Link::default() };
        let slow = Link { delay: Duration::from_millis(60), ..bad.clone() };
        let mut world = sealed(seed, vec![bad.clone(), slow, bad], &[Tep::TcpcryptCurve25519]);
        // Again and again, on all of them.
        for side in [CLIENT, SERVER] {
            settings(&mut world, side, |settings| {
                settings.ratchet = Ratchet { age: Duration::from_millis(50), bytes: 40_000 };
            });
        }
        let seen = watch(&mut world);
        both_ways(&mut world, 1_500_000);
        let status = world.status(CLIENT);
        generations += status.sealed.map_or(0, |sealed| sealed.generations[0]);
        first += seen.borrow().iter().filter(|&&(path, from, _)| path == 0 && from == CLIENT).count();
        assert_eq!(status.counters.blocks_failed, 0, "{seed}");
        world.assert_clean_end();
    }
    assert!(
        generations > 15 && first > 12,
        "keys are mixed in each run, with shares of the first path: {generations}, {first}"
    );
}

#[test]
fn with_two_required_paths_no_byte_of_the_application_leaves_before_both_are_in_the_keys() {
    for required in [[2, 2], [2, 0]] {
        let mut world = two_paths(1, required);
        let seen = watch(&mut world);
        let (up, down) = (pattern(300_000, 1), pattern(200_000, 2));
        world.send(CLIENT, &up).send(SERVER, &down).connect();
        world.run(Duration::from_secs(5), |_| seen.borrow().len() == 2);
        let carried: u64 = world.links.iter().flat_map(|link| link.carried).sum();
        assert!(carried < 4000, "{carried}: the handshake, both shares and control blocks");
        for side in [CLIENT, SERVER] {
            assert!(world.sides[side].received.is_empty(), "{required:?}");
        }
        world.finish(100);
        assert_carried(&mut world, &up, &down);
        for side in [CLIENT, SERVER] {
            assert_eq!(mixed(&mut world, side), [2, 2]);
        }
        world.assert_clean_end();
    }
}

#[test]
fn two_carriers_over_one_device_are_one_path() {
    let mut world = two_paths(7, [2, 2]);
    let twin = Path { name: "path0".to_owned(), ..world::path(1, CLIENT) };
    world.sides[CLIENT].host.paths.insert(twin);
    // So that both are joined.
    world.config(|config| config.joins = plait_mptcp::Joins::Mesh);
    world.send(CLIENT, b"please").send(SERVER, b"secret").connect();
    world.run(Duration::from_secs(60), |world| world.sides[CLIENT].failed.is_some());
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::PathsMissing));
}

/// A path of the client that leaves by this network.
fn in_network(path: usize, network: Option<NetworkId>) -> Path {
    Path { network, ..world::path(path, CLIENT) }
}

#[test]
fn two_devices_of_one_network_are_one_path_and_those_of_two_networks_are_two() {
    let run = |networks: [u8; 2]| {
        let mut world = two_paths(8, [2, 2]);
        for (path, network) in networks.into_iter().enumerate() {
            world.change_path(CLIENT, in_network(path, Some(NetworkId(network))));
        }
        world.send(CLIENT, b"please").send(SERVER, b"secret").connect();
        world.run(Duration::from_secs(60), |world| {
            world.sides[CLIENT].failed.is_some() || !world.sides[CLIENT].received.is_empty()
        });
        world
    };
    let mut one = run([3, 3]);
    assert_eq!(one.sides[CLIENT].failed, Some(ConnectionError::PathsMissing));
    assert!(one.sides[SERVER].received.is_empty(), "no byte was sent");
    let why = one.status(CLIENT).sealed.and_then(|sealed| sealed.failure).expect("a reason");
    assert!(why.contains("path0 and path1 share a network and count as one path"), "{why}");
    assert_eq!(mixed(&mut run([3, 4]), CLIENT), [2, 2]);
}

#[test]
fn a_network_that_changes_its_looks_never_makes_the_device_of_the_handshake_a_second_path() {
    // As an attacker on the path of the handshake can arrange: its network looks like that of the other path, and then no longer.
    let mut world = two_paths(8, [0, 0]);
    for side in [CLIENT, SERVER] {
        settings(&mut world, side, |settings| {
            settings.ratchet = Ratchet { age: Duration::from_millis(50), bytes: 10_000 };
        });
    }
    // The first path of the list is not that of the handshake.
    world.tap = Box::new(|_, segment: &mut Segment| match path_of(segment) {
        0 => Fate::Drop,
        _ => Fate::Pass,
    });
    for path in [0, 1] {
        world.change_path(CLIENT, in_network(path, Some(NetworkId(1))));
    }
    world.send(CLIENT, &pattern(10_000_000, 1)).connect();
    world.run(Duration::from_secs(10), |world| !world.sides[SERVER].received.is_empty());
    for round in 0..20 {
        world.change_path(CLIENT, in_network(0, (round % 2 == 0).then_some(NetworkId(1))));
        world.wait(150);
        for side in [CLIENT, SERVER] {
            assert_eq!(mixed(&mut world, side), [1, 1], "{round}");
        }
    }
    let generations = world.status(CLIENT).sealed.expect("sealed").generations;
    assert!(
        generations.iter().all(|&each| each > 5),
        "the only path has given shares meanwhile: {generations:?}"
    );
}

/// An opener with one path, to a listener with two addresses, of which it has a subflow to each; and a NAT that gives the second subflow another
/// address than the first.
fn one_path_with_two_addresses(seed: u64, required: [u8; 2]) -> World {
    let mut world = World::new(seed, vec![Link { rate: Some(2_000_000), ..Link::default() }], 2);
    // The key of the listener is known, so that what it announces counts.
    for (side, of) in sealing::settings(&[Tep::Tls13], 1).into_iter().enumerate() {
        world.sides[side].config.protect = Protect::Sealed(of);
        settings(&mut world, side, |settings| settings.require_paths = required[side]);
    }
    world.config(|config| config.joins = plait_mptcp::Joins::Mesh);
    let other: core::net::IpAddr = [10, 0, 0, 77].into();
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if from == CLIENT && segment.destination.ip() == address(1, SERVER) {
            segment.source.set_ip(other);
        } else if segment.destination.ip() == other {
            segment.destination.set_ip(address(0, CLIENT));
        }
        Fate::Pass
    });
    world
}

#[test]
fn one_path_that_has_two_addresses_to_the_listener_counts_once_on_both_sides() {
    let mut world = one_path_with_two_addresses(9, [2, 2]);
    world.send(CLIENT, b"please").send(SERVER, &[0x5a; 5000]).connect();
    world.wait(1000);
    let remotes: Vec<_> = world.status(SERVER).subflows.iter().map(|flow| flow.tuple.remote.ip()).collect();
    assert_eq!(remotes, [address(0, CLIENT), [10, 0, 0, 77].into()]);
    let generations = world.status(SERVER).sealed.expect("sealed").generations;
    assert!(generations.iter().all(|&each| each >= 1), "a share of the second subflow is in the keys");
    for side in [CLIENT, SERVER] {
        assert_eq!(mixed(&mut world, side), [1, 1], "and is of the path that was in them before");
    }
    assert!(world.links[0].carried[SERVER] < 5000, "the listener has not sent its bytes");
    // If no end requires two paths, such a share is harmless.
    let mut world = one_path_with_two_addresses(9, [0, 0]);
    both_ways(&mut world, 100_000);
    for side in [CLIENT, SERVER] {
        assert_eq!(mixed(&mut world, side), [1, 1]);
    }
}

#[test]
fn two_paths_that_have_one_address_to_the_listener_count_twice_on_both_sides() {
    let mut world = two_paths(10, [2, 2]);
    // A NAT gives both the address of the first.
    let mut ports = Vec::new();
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if from == CLIENT && segment.source.ip() == address(1, CLIENT) {
            ports.push(segment.source.port());
            segment.source.set_ip(address(0, CLIENT));
        } else if from == SERVER && ports.contains(&segment.destination.port()) {
            segment.destination.set_ip(address(1, CLIENT));
        }
        Fate::Pass
    });
    let (up, down) = (pattern(300_000, 1), pattern(200_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.finish(100);
    assert_carried(&mut world, &up, &down);
    for side in [CLIENT, SERVER] {
        assert_eq!(mixed(&mut world, side), [2, 2]);
    }
    let remotes: Vec<_> = world.status(SERVER).subflows.iter().map(|flow| flow.tuple.remote.ip()).collect();
    assert!(remotes.iter().all(|&remote| remote == address(0, CLIENT)), "{remotes:?}");
}

#[test]
fn without_an_authenticated_listener_the_paths_meet_at_its_first_address() {
    let links = vec![Link { rate: Some(2_000_000), ..Link::default() }; 2];
    let teps = [Tep::TcpcryptCurve25519];
    let mut world = World::new(6, links, 2);
    for (side, of) in sealing::settings(&teps, 1).into_iter().enumerate() {
        world.sides[side].config.protect =
            Protect::Sealed(plait_mptcp::SealedSettings { require_paths: 2, ..of });
    }
    let (up, down) = (pattern(300_000, 1), pattern(200_000, 2));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    world.run(Duration::from_secs(10), |world| !world.sides[SERVER].received.is_empty());
    let remotes: Vec<_> = world.status(CLIENT).subflows.iter().map(|flow| flow.tuple.remote.ip()).collect();
    assert_eq!(
        remotes,
        [address(0, SERVER); 2],
        "an announced address could be that of an attacker on the path"
    );
    world.finish(100);
    assert_carried(&mut world, &up, &down);
}

#[test]
fn a_listener_that_requires_more_than_the_opener_says_so_and_gives_it_nothing() {
    let mut world = two_paths(2, [0, 2]);
    world.send(CLIENT, b"please").send(SERVER, b"secret").connect();
    world.run(Duration::from_secs(30), |world| world.sides[CLIENT].failed.is_some());
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::PathsMissing));
    let failure = world.status(CLIENT).sealed.and_then(|sealed| sealed.failure).unwrap_or_default();
    assert!(failure.contains("the peer requires 2 paths"), "{failure}");
    let failure = world.status(SERVER).sealed.and_then(|sealed| sealed.failure).unwrap_or_default();
    assert_eq!(failure, "2 paths in the keys are required here, and the peer asks for 1");
    assert!(world.sides[SERVER].received.is_empty() && world.sides[CLIENT].received.is_empty());
}

/// What an attacker does on one of two paths that are both required; nothing is to be read or written, and the error is to say
/// this.
fn attacked(path: usize, says: &str, mut attack: impl FnMut(usize, &mut Segment) -> Fate + 'static) {
    let mut world = two_paths(3, [2, 2]);
    world.tap = Box::new(
        move |from, segment: &mut Segment| {
            if path_of(segment) == path { attack(from, segment) } else { Fate::Pass }
        },
    );
    world.send(CLIENT, b"please").send(SERVER, b"secret").connect();
    world.run(Duration::from_secs(60), |world| world.sides[CLIENT].failed.is_some());
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::PathsMissing), "{says}");
    let failure = world.status(CLIENT).sealed.and_then(|sealed| sealed.failure).unwrap_or_default();
    assert!(failure.contains(says), "{says}: {failure}");
    assert!(world.sides[SERVER].received.is_empty() && world.sides[CLIENT].received.is_empty(), "{says}");
}

#[test]
fn a_required_path_that_is_silent_refuses_or_strips_is_named_in_the_error_before_a_byte_was_sent() {
    attacked(1, "on path path1: the join was not answered", |_, _| Fate::Drop);
    attacked(1, "on path path1: the join was refused", |_, segment| {
        if is_join_syn(segment) { Fate::Reset { back_after: Duration::from_millis(10) } } else { Fate::Pass }
    });
    attacked(1, "on path path1: MP_JOIN was stripped there", |from, segment| {
        if from == SERVER && segment.flags.contains(Flags::SYN) {
            world::segments::strip(segment);
        }
        Fate::Pass
    });
}

#[test]
fn an_altered_share_costs_its_subflow_and_the_next_one_gives_another() {
    for victim in [CLIENT, SERVER] {
        let mut world = two_paths(4, [2, 2]);
        let mut left = 1;
        world.tap = Box::new(move |from, segment: &mut Segment| {
            if from == victim && announced(segment).is_some() && left > 0 && !segment.payload.is_empty() {
                left -= 1;
                let mut bytes = segment.payload.to_vec();
                bytes[40] ^= 1;
                segment.payload = bytes.into();
            }
            Fate::Pass
        });
        let (up, down) = (pattern(30_000, 1), pattern(20_000, 2));
        world.send(CLIENT, &up).send(SERVER, &down).connect();
        world.finish(60);
        assert_carried(&mut world, &up, &down);
        let subflows = world.status(CLIENT).subflows;
        let joined = subflows.iter().filter(|subflow| subflow.path.0 == 1).count();
        assert_eq!(joined, 2, "{subflows:?}");
    }
    // Where each is altered nothing is sent, and the error says why.
    attacked(1, "on path path1: the share of the keys was altered there", |_, segment| {
        if announced(segment).is_some() && !segment.payload.is_empty() {
            let mut bytes = segment.payload.to_vec();
            bytes[40] ^= 1;
            segment.payload = bytes.into();
        }
        Fate::Pass
    });
}

#[test]
fn a_share_of_an_earlier_exchange_is_not_answered_again() {
    let mut world = two_paths(5, [0, 0]);
    let tape: Rc<RefCell<Vec<Segment>>> = Rc::default();
    let record = Rc::clone(&tape);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if from == SERVER && path_of(segment) == 1 {
            record.borrow_mut().push(segment.clone());
        }
        Fate::Pass
    });
    world.connect();
    world.wait(2000);
    assert_eq!(mixed(&mut world, CLIENT), [2, 2]);
    let (question, last) = {
        let tape = tape.borrow();
        let question = tape.iter().find(|segment| announced(segment).is_some()).cloned().expect("a share");
        (question, tape.last().cloned().expect("more came"))
    };
    let generations = world.status(CLIENT).sealed.expect("sealed").generations;
    // The same bytes, at the end of what the server has sent there: TCP takes them.
    let seq = last.seq + last.len_seq();
    let offset = seq.distance(question.seq).cast_unsigned();
    let mut replayed = Segment { seq, ack: last.ack, ..question };
    let option = {
        let raw = &replayed.options;
        let at = raw.windows(3).position(|bytes| bytes == [30, 9, 0xf1]).expect("the option");
        let mut option: [u8; 9] = raw[at..at + 9].try_into().expect("nine");
        let ssn = u32::from_be_bytes(option[3..7].try_into().expect("four")) + offset;
        option[3..7].copy_from_slice(&ssn.to_be_bytes());
        option
    };
    // With the timestamps of now.
    let all = options(&last.options).filter_map(Result::ok);
    let timestamps = all.filter(|option| matches!(option, TcpOption::Timestamps { .. }));
    replayed.options = option_bytes(timestamps).expect("they fit");
    replayed.options.extend(option);
    plait_wire::pad_options(&mut replayed.options);
    let before = world.status(CLIENT).counters.blocks_failed;
    let answers = |tape: &Rc<RefCell<Vec<usize>>>| tape.borrow().len();
    let seen: Rc<RefCell<Vec<usize>>> = Rc::default();
    let record = Rc::clone(&seen);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        record.borrow_mut().extend(announced(segment).filter(|_| from == CLIENT));
        Fate::Pass
    });
    world.deliver(CLIENT, &replayed);
    world.wait(5);
    let status = world.status(CLIENT);
    assert_eq!(status.counters.blocks_failed, before + 1, "it costs the subflow");
    assert_eq!((answers(&seen), status.sealed.expect("sealed").generations), (0, generations));
    world.wait(5000);
    assert_eq!(answers(&seen), 1, "to the share of the path that has joined again");
    let now = world.now;
    assert!(world.of(CLIENT).write(now, Bytes::from_static(b"still there")) > 0);
    world.serve(CLIENT);
    world.wait(500);
    assert_eq!(world.sides[SERVER].received, b"still there");
}

#[test]
fn an_attacker_that_swallows_the_answers_of_one_path_for_hours_keeps_no_other_path_from_giving_shares() {
    let link = Link { rate: Some(2_000_000), ..Link::default() };
    let mut world = sealed(8, vec![link; 2], &[Tep::TcpcryptCurve25519]);
    let swallowed = Rc::new(RefCell::new(0));
    let count = Rc::clone(&swallowed);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        let is_answer = from == CLIENT && announced(segment).is_some() && path_of(segment) == 1;
        if is_answer && !segment.payload.is_empty() {
            *count.borrow_mut() += 1;
            return Fate::Reset { back_after: Duration::from_millis(1) };
        }
        Fate::Pass
    });
    world.connect();
    for _ in 0..4000 {
        world.wait(60_000);
        if *swallowed.borrow() > 70 {
            break;
        }
    }
    assert!(*swallowed.borrow() > 70, "{} answers, more than are kept", swallowed.borrow());
    world.tap = Box::new(|_, _| Fate::Pass);
    let before = world.status(CLIENT).sealed.expect("sealed").generations;
    assert_eq!(mixed(&mut world, CLIENT), [1, 1]);
    world.run(Duration::from_secs(36_000), |world| world.usable(CLIENT) == 2);
    world.wait(5000);
    assert_eq!(mixed(&mut world, CLIENT), [2, 2], "{before:?}");
}

#[test]
fn a_share_that_goes_out_when_a_block_has_come_does_not_make_the_block_look_altered() {
    // On the subflow with the block: where there is one, and where the peer could send the block again on another.
    for paths in [1, 2] {
        let link = Link { rate: Some(2_000_000), ..Link::default() };
        let mut world = sealed(11, vec![link; paths], &[Tep::TcpcryptCurve25519]);
        settings(&mut world, CLIENT, |settings| {
            settings.ratchet = Ratchet { age: Duration::from_millis(500), ..settings.ratchet }
        });
        let seen = watch(&mut world);
        world.connect();
        world.wait(1000);
        let before = seen.borrow().len();
        for _ in 0..20 {
            let now = world.now;
            // The first bytes after a pause: time for another share, which the client offers as it acknowledges them.
            assert_eq!(world.of(SERVER).write(now, Bytes::from_static(&[7; 500])), 500);
            world.serve(SERVER);
            world.wait(1000);
        }
        assert!(seen.borrow().len() >= before + 20, "{} messages", seen.borrow().len() - before);
        assert_eq!(world.sides[CLIENT].received.len(), 20 * 500);
        let counters = world.status(SERVER).counters;
        assert_eq!((counters.blocks_repaired, counters.attacked_closed), (0, 0), "{paths}");
    }
}
