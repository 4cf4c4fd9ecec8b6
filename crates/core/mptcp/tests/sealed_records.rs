//! Control records: each has its effect when the peer has sealed it, and none as a plain option, forged, or played again.

mod sealing;
mod world;

use core::net::IpAddr;
use plait_base::Duration;
use plait_handshake::Tep;
use plait_mptcp::{Path, Protect, Ratchet};
use plait_protect::handshake::Capability;
use plait_wire::{
    AddAddr, Dss, Flags, Mapping, MpJoin, MpPrio, MptcpOption, RemoveAddr, Segment, TcpOption, option_bytes,
    options,
};
use sealing::{assert_carried, sealed};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, address, path, pattern};

/// Recorded segments: the last one of each side on each path, and all with payload since the tape was cleared.
#[derive(Default)]
struct Tape {
    last: BTreeMap<(usize, u8), Segment>,
    blocks: Vec<Segment>,
    /// Tokens in the SYNs of joins.
    tokens: Vec<u32>,
    /// ADD_ADDR, REMOVE_ADDR and MP_PRIO as plain options.
    plain: usize,
}

type Shared = Rc<RefCell<Tape>>;

/// An idle connection over two paths, with everything taped.
fn idle(seed: u64, taken_tokens: u8) -> (World, Shared) {
    idle_as(seed, |world| world.sides[SERVER].host.taken_tokens = taken_tokens)
}

/// The same with other hosts.
fn idle_as(seed: u64, prepare: impl FnOnce(&mut World)) -> (World, Shared) {
    let mut world = sealed(seed, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]);
    prepare(&mut world);
    let tape = Shared::default();
    record(&mut world, &tape, |_, _| Fate::Pass);
    world.config(|config| {
        config.joins = plait_mptcp::Joins::Mesh;
        // Keys are updated by their age alone.
        if let Protect::Sealed(settings) = &mut config.protect {
            settings.ratchet = Ratchet { age: Duration::MAX, bytes: u64::MAX };
        }
    });
    world.connect();
    world.wait(2000);
    assert_eq!(world.usable(CLIENT), 2);
    (world, tape)
}

/// Tapes what passes, and lets `attack` have it.
fn record(world: &mut World, tape: &Shared, mut attack: impl FnMut(usize, &mut Segment) -> Fate + 'static) {
    let tape = Rc::clone(tape);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        let mut tape = tape.borrow_mut();
        tape.last.insert((from, client_path(segment)), segment.clone());
        if !segment.payload.is_empty() {
            tape.blocks.push(segment.clone());
        }
        for option in options(&segment.options) {
            match option {
                Ok(TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn { token, .. }))) => tape.tokens.push(token),
                Ok(TcpOption::Mptcp(
                    MptcpOption::AddAddr(_) | MptcpOption::RemoveAddr(_) | MptcpOption::Prio(_),
                )) => tape.plain += 1,
                _ => {}
            }
        }
        attack(from, segment)
    });
}

fn client_path(segment: &Segment) -> u8 {
    let is_clients = |address: &IpAddr| (0..4).any(|path| *address == world::address(path, CLIENT));
    let client =
        [segment.source.ip(), segment.destination.ip()].into_iter().find(is_clients).expect("one end");
    match client {
        IpAddr::V4(v4) => v4.octets()[2],
        IpAddr::V6(_) => unreachable!("all tests speak IPv4"),
    }
}

/// Returns the next segment of `from` on the path with an option that an attacker adds.
fn forged(tape: &Shared, from: usize, path: u8, option: MptcpOption<'_>) -> Segment {
    let last = tape.borrow().last[&(from, path)].clone();
    let options = option_bytes(timestamps(&last).chain([TcpOption::Mptcp(option)])).expect("it fits");
    Segment {
        seq: last.seq + last.len_seq(),
        flags: Flags::ACK,
        options,
        payload: bytes::Bytes::new(),
        ..last
    }
}

/// The block in the place where the next one is awaited, with a mapping that says so.
fn again(tape: &Shared, from: usize, block: &Segment) -> Segment {
    let last = tape.borrow().last[&(from, client_path(block))].clone();
    let seq = last.seq + last.len_seq();
    let moved_by = seq.distance(block.seq) as u32;
    let mappings = options(&block.options).filter_map(|option| match option {
        Ok(TcpOption::Mptcp(MptcpOption::Dss(Dss { mapping: Some(mapping), data_ack, data_fin }))) => {
            let mapping = Some(Mapping { ssn: mapping.ssn + moved_by, ..mapping });
            Some(TcpOption::Mptcp(MptcpOption::Dss(Dss { mapping, data_ack, data_fin })))
        }
        _ => None,
    });
    let options = option_bytes(timestamps(&last).chain(mappings)).expect("it fits");
    Segment { seq, ack: last.ack, options, ..block.clone() }
}

fn timestamps(segment: &Segment) -> impl Iterator<Item = TcpOption<'_>> {
    options(&segment.options)
        .filter_map(Result::ok)
        .filter(|option| matches!(option, TcpOption::Timestamps { .. }))
}

/// Paths of the client that the server takes for backups.
fn backups(world: &mut World) -> Vec<u8> {
    let subflows = world.status(SERVER).subflows;
    let backups = subflows.iter().filter(|subflow| subflow.usable && subflow.backup);
    backups
        .map(|subflow| match subflow.tuple.remote.ip() {
            IpAddr::V4(v4) => v4.octets()[2],
            IpAddr::V6(_) => unreachable!("all tests speak IPv4"),
        })
        .collect()
}

fn set_backup(world: &mut World, number: usize, backup: bool) {
    world.change_path(CLIENT, Path { backup, ..path(number, CLIENT) });
    world.wait(500);
}

#[test]
fn prio_makes_a_backup_of_a_subflow_as_a_record_and_does_nothing_as_an_option() {
    let (mut world, tape) = idle(1, 0);
    for path in [0, 1] {
        let option = forged(&tape, CLIENT, path, MptcpOption::Prio(MpPrio { backup: true }));
        world.deliver(SERVER, &option);
    }
    world.wait(500);
    assert_eq!(backups(&mut world), [], "an attacker could have written that");

    set_backup(&mut world, 1, true);
    assert_eq!(backups(&mut world), [1]);
    assert_eq!(tape.borrow().plain, 0, "it went as a record alone");
}

#[test]
fn prio_that_is_played_again_or_changed_on_the_way_does_nothing() {
    let (mut world, tape) = idle(2, 0);
    tape.borrow_mut().blocks.clear();
    set_backup(&mut world, 1, true);
    let old: Vec<_> =
        tape.borrow().blocks.iter().filter(|s| s.destination.port() == world::PORT).cloned().collect();
    assert!(!old.is_empty());
    set_backup(&mut world, 1, false);
    assert_eq!(backups(&mut world), []);

    for block in &old {
        world.deliver(SERVER, block);
        world.deliver(SERVER, &again(&tape, CLIENT, block));
        world.wait(500);
        assert_eq!(backups(&mut world), [], "it was said before, and unsaid");
    }
    assert!(world.status(SERVER).counters.blocks_failed > 0, "and in another place it is no block at all");

    // The next one is changed on its first way.
    let mut left = 1;
    record(&mut world, &tape, move |from, segment| {
        if from == CLIENT && !segment.payload.is_empty() && left > 0 {
            left -= 1;
            let mut payload = segment.payload.to_vec();
            payload[3] ^= 1;
            segment.payload = payload.into();
        }
        Fate::Pass
    });
    let failed = world.status(SERVER).counters.blocks_failed;
    world.change_path(CLIENT, Path { backup: true, ..path(0, CLIENT) });
    world.wait(12);
    assert_eq!(world.status(SERVER).counters.blocks_failed, failed + 1);
    assert_eq!(backups(&mut world), []);
    world.wait(2000);
    assert_eq!(backups(&mut world), [0], "it was sent again, and this time it was genuine");
}

#[test]
fn add_addr_and_remove_addr_work_as_records_and_do_nothing_as_options() {
    let (mut world, tape) = idle(3, 0);
    let IpAddr::V4(other) = address(1, SERVER) else { unreachable!("all tests speak IPv4") };
    let add = AddAddr { echo: false, address_id: 1, address: other.into(), port: None, hmac: Some([7; 8]) };
    for add in [add, AddAddr { echo: true, hmac: None, ..add }] {
        let option = forged(&tape, SERVER, 0, MptcpOption::AddAddr(add));
        world.deliver(CLIENT, &option);
        world.wait(500);
        assert_eq!(world.status(CLIENT).subflows.len(), 2, "no address was learnt");
    }

    // The server has another address, and says so by a record.
    world.change_path(SERVER, path(1, SERVER));
    world.wait(2000);
    let to_other = |world: &mut World| {
        let subflows = world.status(CLIENT).subflows;
        subflows.iter().filter(|subflow| subflow.usable && subflow.tuple.remote.ip() == other).count()
    };
    assert_eq!(to_other(&mut world), 2, "from both paths of the client");
    assert_eq!(tape.borrow().plain, 0);

    let option = forged(&tape, SERVER, 0, MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[1] }));
    world.deliver(CLIENT, &option);
    world.wait(500);
    assert_eq!(to_other(&mut world), 2, "an attacker could have written that");

    // It is gone without a word of its own: the record is all that the client learns.
    record(&mut world, &tape, move |_, segment| {
        let is_other = segment.source.ip() == other || segment.destination.ip() == other;
        if is_other { Fate::Drop } else { Fate::Pass }
    });
    world.change_path(SERVER, Path { up: false, ..path(1, SERVER) });
    world.wait(100);
    assert_eq!(to_other(&mut world), 0);
    assert_eq!((world.usable(CLIENT), tape.borrow().plain), (2, 0));
}

#[test]
fn token_names_the_connection_anew_where_another_has_its_derived_one() {
    // Of the derived token and the first that the server draws, both are taken.
    let (mut world, tape) = idle(4, 2);
    let token = world.of(SERVER).token().expect("it has one");
    assert_eq!(tape.borrow().tokens.last(), Some(&token), "the join carries what the record said");
    let (mut usual, usual_tape) = idle(4, 0);
    let derived = usual.of(SERVER).token().expect("it has one");
    assert_ne!(token, derived, "with the same secrets");
    assert_eq!(usual_tape.borrow().tokens, [derived]);
}

#[test]
fn max_data_binds_the_sender_and_the_window_of_tcp_does_not() {
    let mut world = sealed(5, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]);
    world.sides[SERVER].config.receive_buffer = 100_000;
    world.sides[SERVER].is_paused = true;
    // An attacker sets the windows of one path to the maximum, and closes those of the other.
    world.tap = Box::new(|from, segment: &mut Segment| {
        if from == SERVER && !segment.flags.contains(Flags::SYN) {
            segment.window = if client_path(segment) == 0 { u16::MAX } else { 0 };
        }
        Fate::Pass
    });
    let up = pattern(1_000_000, 1);
    world.send(CLIENT, &up).send(SERVER, b"").connect();
    world.wait(20_000);
    let sent = world.status(CLIENT).bytes_delivered;
    assert!((50_000..200_000).contains(&sent), "{sent}");
    assert_eq!(
        world.status(SERVER).counters.bytes_outside,
        0,
        "nothing was sent that the record does not allow"
    );

    world.sides[SERVER].is_paused = false;
    world.serve(SERVER);
    world.finish(100);
    assert_carried(&mut world, &up, b"");
}

#[test]
fn news_of_the_window_reach_the_sender_whichever_path_has_died() {
    for dead in [0, 1] {
        let mut world = sealed(5, vec![Link::default(); 2], &[Tep::TcpcryptCurve25519]);
        world.sides[SERVER].config.receive_buffer = 100_000;
        world.sides[SERVER].is_paused = true;
        let up = pattern(1_000_000, 1);
        world.send(CLIENT, &up).send(SERVER, b"").connect();
        world.wait(5000);
        let sent = |world: &mut World| {
            world.status(CLIENT).subflows.iter().map(|flow| flow.tcp.bytes_sent).sum::<u64>()
        };
        let full = sent(&mut world);
        // Neither end knows yet: nothing is in flight there.
        world.tap = Box::new(move |_, segment: &mut Segment| match client_path(segment) {
            path if path == dead => Fate::Drop,
            _ => Fate::Pass,
        });
        world.sides[SERVER].is_paused = false;
        world.serve(SERVER);
        world.wait(60);
        assert!(sent(&mut world) > full, "path {dead} is dead: nothing was sent in three round trips");
        world.finish(100);
        assert_carried(&mut world, &up, b"");
    }
}

#[test]
fn key_update_ends_the_use_of_old_keys_and_no_forged_generation_begins_another() {
    // The keys of generation 0 are wiped, those of 3 would be the next, and 4 is beyond.
    for (generation, is_late_copy) in [(0, true), (3, false), (4, false)] {
        let (mut world, tape) = idle(6, 0);
        let first = world.status(SERVER).sealed.expect("sealed").generations[1];
        assert_eq!(first, 1, "the second path has given a share");
        let generation = generation + first as u8;
        tape.borrow_mut().blocks.clear();
        world.sides[CLIENT].outbox.push_back(bytes::Bytes::from_static(b"first"));
        world.serve(CLIENT);
        world.wait(500);
        let old = tape.borrow().blocks.first().cloned().expect("a block");
        for hour in 1..=2u64 {
            world.now += Duration::from_secs(3_700);
            world.sides[CLIENT].outbox.push_back(bytes::Bytes::from_static(b" and more"));
            world.serve(CLIENT);
            world.wait(2000);
            assert_eq!(world.status(SERVER).sealed.expect("sealed").generations[1], first + hour);
        }
        let before = world.status(SERVER).counters;
        let mut block = again(&tape, CLIENT, &old);
        let mut payload = block.payload.to_vec();
        payload[0] = payload[0] & 0xc0 | generation;
        block.payload = payload.into();
        world.deliver(SERVER, &block);
        world.wait(500);
        let status = world.status(SERVER);
        let after = status.counters;
        assert_eq!(after.bytes_duplicate > before.bytes_duplicate, is_late_copy, "{generation}: {after:?}");
        assert_eq!(after.blocks_failed > before.blocks_failed, !is_late_copy, "{generation}: {after:?}");
        assert_eq!(status.sealed.expect("sealed").generations[1], first + 2, "{generation}");
        assert_eq!(world.sides[SERVER].received, b"first and more and more");
    }
}

#[test]
fn a_host_is_told_how_its_subflows_look_at_the_other_end_by_no_more_bytes_than_it_has_asked_with() {
    let (mut world, tape) = idle(31, 0);
    for (round, bytes) in [(1, 9000), (2, 64), (3, 1 << 20)] {
        tape.borrow_mut().blocks.clear();
        assert!(world.of(CLIENT).look(bytes));
        world.serve(CLIENT);
        world.wait(1000);
        for subflow in world.status(CLIENT).subflows {
            let seen = subflow.seen.expect("both ends speak of it");
            assert_eq!(
                (seen.address, subflow.times_seen),
                (subflow.tuple.local, round),
                "no NAT translates here"
            );
            assert_eq!(Some(seen.mss), subflow.peer_syn.and_then(|syn| syn.mss), "the links are alike");
            assert_eq!(seen.options, 7, "all of them");
        }
        let date = world.status(CLIENT).sealed.expect("sealed").peer_date;
        assert_eq!(date, Some(1_800_000_000), "the first answer has room for it");
        let sent = |side: usize| {
            let is_its = |segment: &&Segment| (0..2).any(|path| segment.source.ip() == address(path, side));
            tape.borrow().blocks.iter().filter(is_its).map(|segment| segment.payload.len()).sum::<usize>()
        };
        let (asked, answered) = (sent(CLIENT), sent(SERVER));
        assert!(answered <= asked && asked >= bytes.min(32 << 10), "{bytes}: {asked} and {answered}");
    }
    // The asking end has received no answer.
    assert!(world.status(SERVER).subflows.iter().all(|subflow| subflow.seen.is_none()));
    let up = pattern(100_000, 1);
    world.send(CLIENT, &up).send(SERVER, b"");
    world.serve(CLIENT);
    world.serve(SERVER);
    world.finish(60);
    assert_carried(&mut world, &up, b"");
}

#[test]
fn a_peer_that_does_not_know_the_record_of_the_date_is_told_how_its_subflows_look_and_no_date() {
    for side in [CLIENT, SERVER] {
        let (mut world, _) = idle_as(31, |world| {
            let capabilities = &mut world.sides[side].host.introduction.capabilities;
            *capabilities = capabilities.without(Capability::Date);
        });
        assert!(world.of(CLIENT).look(9000));
        world.serve(CLIENT);
        world.wait(1000);
        let status = world.status(CLIENT);
        assert!(status.subflows.iter().all(|subflow| subflow.times_seen == 1), "the connection goes on");
        assert_eq!(status.sealed.expect("sealed").peer_date, None);
    }
}

#[test]
fn a_peer_that_does_not_list_the_question_is_not_asked_how_subflows_look() {
    let (mut world, tape) = idle_as(31, |world| {
        let capabilities = &mut world.sides[SERVER].host.introduction.capabilities;
        *capabilities = capabilities.without(Capability::Look);
    });
    tape.borrow_mut().blocks.clear();
    assert!(!world.of(CLIENT).look(64), "the server does not understand it");
    world.serve(CLIENT);
    world.wait(1000);
    assert!(tape.borrow().blocks.is_empty(), "no record was sent");
    assert!(!world.of(SERVER).look(64), "what either end does not list is used in neither direction");
}
