//! Paths that fail, stall, appear, are announced, withdrawn, or kept as backups.

mod changes;
mod refusals;
#[path = "../sealing/mod.rs"]
mod sealing;
#[path = "../world/mod.rs"]
mod world;

use core::net::SocketAddr;
use plait_base::Duration;
use plait_mptcp::{ConnectionError, Event, Joins, Negotiated, PathClass, PlainReason, Scheduler};
use world::{CLIENT, Fate, Link, PORT, SERVER, World, address, path, pattern};

const RATE: Option<u64> = Some(2_000_000);

fn two_paths(seed: u64) -> World {
    let link = Link { rate: RATE, ..Link::default() };
    World::new(seed, vec![link.clone(), link], 1)
}

/// Starts a transfer and lets it run for a while with both subflows.
fn in_mid_transfer(world: &mut World, bytes: usize) -> Vec<u8> {
    let data = pattern(bytes, 9);
    world.send(CLIENT, &data).send(SERVER, b"hello").connect();
    world.wait(600);
    assert!(world.sides[SERVER].received.len() > 200_000, "{}", world.sides[SERVER].received.len());
    world.sides[SERVER].longest_gap = Duration::ZERO;
    data
}

#[test]
fn a_black_hole_in_mid_transfer_costs_less_than_a_second() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant] {
        for dead in [0, 1] {
            let mut world = two_paths(7);
            world.config(|config| config.scheduler = scheduler);
            let data = in_mid_transfer(&mut world, 4_000_000);
            assert_eq!(world.usable(CLIENT), 2);
            world.links[dead].is_black_hole = true;
            world.finish(60);
            assert!(world.sides[SERVER].received == data, "{}", world.sides[SERVER].received.len());
            let gap = world.sides[SERVER].longest_gap;
            assert!(gap < Duration::from_millis(500), "{scheduler:?}, path {dead} dead: {gap:?}");
            world.assert_clean_end();
        }
    }
}

//= rfc8684 3.3.6-03
//= rfc8684 3.6-03
#[test]
fn a_path_that_comes_back_is_used_again() {
    let mut world = two_paths(8);
    let data = in_mid_transfer(&mut world, 60_000_000);
    world.links[1].is_black_hole = true;
    let reasons = std::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
    let log = reasons.clone();
    world.tap = Box::new(move |from, segment| {
        for option in plait_wire::options(&segment.options) {
            if let Ok(plait_wire::TcpOption::Mptcp(plait_wire::MptcpOption::Reset(reset))) = option {
                assert_eq!(reset.reserved, 0);
                log.borrow_mut().push((from, reset.reason));
            }
        }
        Fate::Pass
    });
    world.wait(12_000);
    assert_eq!(world.usable(CLIENT), 1);
    assert!(
        reasons.borrow().contains(&(CLIENT, plait_wire::ResetReason::UnacceptablePerformance)),
        "{:?}",
        reasons.borrow()
    );
    world.links[1].is_black_hole = false;
    let before = world.links[1].carried[CLIENT];
    world.finish(120);
    assert!(world.links[1].carried[CLIENT] > before + 1_000_000, "{:?}", world.links);
    assert!(world.sides[SERVER].received == data);
    world.assert_clean_end();
}

//= rfc8684 3.2-01
//= rfc8684 3.4.2-01
#[test]
fn a_path_that_goes_down_is_left_at_once_and_withdrawn() {
    // A queue that does not overflow: the repair of that would be a gap of its own.
    let link = Link { rate: RATE, queue: 1 << 20, ..Link::default() };
    let mut world = World::new(9, vec![link; 2], 1);
    let data = in_mid_transfer(&mut world, 4_000_000);
    world.links[0].is_black_hole = true;
    let down = plait_mptcp::Path { up: false, ..path(0, CLIENT) };
    world.change_path(CLIENT, down);
    world.wait(1_000);
    assert_eq!(world.usable(CLIENT), 1);
    assert_eq!(world.usable(SERVER), 1, "REMOVE_ADDR has told");
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
    assert!(
        world.sides[SERVER].longest_gap < Duration::from_millis(250),
        "{:?}",
        world.sides[SERVER].longest_gap
    );
    world.assert_clean_end();
}

fn withdraws(segment: &plait_wire::Segment) -> bool {
    plait_wire::options(&segment.options).any(|option| {
        matches!(option, Ok(plait_wire::TcpOption::Mptcp(plait_wire::MptcpOption::RemoveAddr(_))))
    })
}

#[test]
fn a_withdrawal_that_is_lost_is_said_again() {
    let mut world = two_paths(9);
    let data = in_mid_transfer(&mut world, 8_000_000);
    let mut said = 0;
    world.tap = Box::new(move |from, segment| {
        let is_lost = from == CLIENT && withdraws(segment) && said < 2;
        said += u32::from(is_lost);
        if is_lost { Fate::Drop } else { Fate::Pass }
    });
    world.links[0].is_black_hole = true;
    world.change_path(CLIENT, plait_mptcp::Path { up: false, ..path(0, CLIENT) });
    world.wait(150);
    assert_eq!(world.usable(SERVER), 2, "it cannot know");
    world.wait(1_000);
    assert_eq!(world.usable(SERVER), 1);
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
    world.assert_clean_end();
}

#[test]
fn an_address_that_is_back_is_withdrawn_no_more() {
    let mut world = two_paths(9);
    in_mid_transfer(&mut world, 60_000_000);
    world.change_path(CLIENT, plait_mptcp::Path { up: false, ..path(0, CLIENT) });
    world.wait(100);
    world.change_path(CLIENT, path(0, CLIENT));
    world.tap = Box::new(|_, segment| {
        assert!(!withdraws(segment), "it is used again");
        Fate::Pass
    });
    world.wait(3_000);
    assert_eq!((world.usable(CLIENT), world.usable(SERVER)), (2, 2));
}

#[test]
fn a_new_path_is_used_by_a_running_connection() {
    let mut world = two_paths(10);
    world.sides[CLIENT].host.paths.remove(plait_base::PathId(1));
    let data = in_mid_transfer(&mut world, 4_000_000);
    assert_eq!(world.usable(CLIENT), 1);
    world.change_path(CLIENT, path(1, CLIENT));
    world.finish(60);
    assert!(world.links[1].carried[CLIENT] > 500_000);
    assert!(world.sides[SERVER].received == data);
    world.assert_clean_end();
}

#[test]
fn a_reset_takes_one_subflow_and_not_the_connection() {
    let mut world = two_paths(11);
    let mut left = 1;
    world.tap = Box::new(move |from, segment| {
        let is_second = segment.source.ip() == address(1, CLIENT);
        if from == CLIENT && is_second && segment.payload.len() > 100 && left > 0 {
            left -= 1;
            segment.flags = plait_wire::Flags::RST;
            segment.payload = bytes::Bytes::new();
        }
        Fate::Pass
    });
    let data = in_mid_transfer(&mut world, 3_000_000);
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
    world.assert_clean_end();
}

#[test]
fn all_paths_lost_is_an_error_and_no_end_of_file() {
    let mut world = two_paths(12);
    world.config(|config| config.no_subflow_timeout = Duration::from_secs(5));
    world.send(CLIENT, &pattern(40_000_000, 9)).connect();
    world.wait(600);
    for number in [0, 1] {
        world.links[number].is_black_hole = true;
        world.change_path(CLIENT, plait_mptcp::Path { up: false, ..path(number, CLIENT) });
    }
    world.wait(7_000);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::AllPathsLost));
    assert!(!world.sides[CLIENT].ended);
    assert!(world.sides[CLIENT].events.contains(&Event::Closed(Some(ConnectionError::AllPathsLost))));
}

#[test]
fn paths_that_come_back_in_time_save_the_connection() {
    let mut world = two_paths(13);
    let data = in_mid_transfer(&mut world, 6_000_000);
    for number in [0, 1] {
        world.links[number].is_black_hole = true;
        world.change_path(CLIENT, plait_mptcp::Path { up: false, ..path(number, CLIENT) });
    }
    world.wait(5_000);
    assert_eq!(world.usable(CLIENT), 0);
    world.links[1].is_black_hole = false;
    world.change_path(CLIENT, path(1, CLIENT));
    world.finish(60);
    assert!(world.sides[SERVER].received == data, "{:?}", world.sides[CLIENT].failed);
    world.assert_clean_end();
}

#[test]
fn a_dead_first_path_does_not_prevent_a_connection() {
    for dead in [0, 1, 2] {
        let mut world = World::new(14, vec![Link::default(); 3], 1);
        (0..=dead).filter(|&p| p < 2).for_each(|p| world.links[p].is_black_hole = true);
        world.send(CLIENT, b"hello").send(SERVER, b"world").connect();
        let time = world
            .run(Duration::from_secs(20), |world| world.sides[CLIENT].events.contains(&Event::Connected));
        assert!(time < Duration::from_millis(1500), "{time:?}");
        world.finish(5);
        assert_eq!(world.sides[SERVER].received, b"hello");
        assert_eq!(world.sides[CLIENT].received, b"world");
    }
}

#[test]
fn two_addresses_of_the_peer_are_raced_crosswise() {
    let mut world = World::new(15, vec![Link::default(); 2], 2);
    world.links[0].is_black_hole = true;
    let remotes = [0, 1].map(|number| SocketAddr::new(address(number, SERVER), PORT));
    world.send(CLIENT, b"x").send(SERVER, b"y").connect_to(&remotes);
    let time =
        world.run(Duration::from_secs(20), |world| world.sides[CLIENT].events.contains(&Event::Connected));
    assert!(world.sides[CLIENT].events.contains(&Event::Connected));
    assert!(time < Duration::from_millis(400), "{time:?}");
}

//= rfc8684 3.2-03
//= rfc8684 3.4.1-03
//= rfc8684 3.4.1-05
#[test]
fn an_announced_address_is_joined_and_echoed() {
    let mut world = World::new(17, vec![Link { rate: RATE, ..Link::default() }], 3);
    world.config(|config| config.joins = Joins::Mesh);
    let data = in_mid_transfer(&mut world, 2_000_000);
    assert_eq!(world.usable(CLIENT), 3, "one path of ours to three addresses");
    let mut remotes: Vec<_> =
        world.status(CLIENT).subflows.iter().map(|subflow| subflow.tuple.remote).collect();
    remotes.sort();
    let expected = [0, 1, 2].map(|number| SocketAddr::new(address(number, SERVER), PORT));
    assert_eq!(remotes, expected, "announced without a port");
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
    assert_eq!(world.status(CLIENT).counters.bad_address_hmacs, 0);
    world.assert_clean_end();
}

#[test]
fn the_side_that_was_called_joins_what_was_announced_to_it() {
    let mut world = two_paths(19);
    world.sides[CLIENT].config.joins = Joins::None;
    world.sides[SERVER].config.passive_joins = Joins::OnePerPath;
    let data = pattern(8_000_000, 9);
    world.send(CLIENT, &data).send(SERVER, b"hello").connect();
    world.wait(2_000);
    assert_eq!(world.usable(SERVER), 2);
    world.finish(60);
    assert!(world.links[1].carried[CLIENT] > 500_000);
    assert!(world.sides[SERVER].received == data);
    world.assert_clean_end();
}

//= rfc8684 3.1-12
#[test]
fn a_peer_that_allows_no_subflows_to_its_first_address_is_obeyed() {
    let mut world = two_paths(20);
    world.tap = Box::new(|_, segment| {
        world::segments::rewrite(segment, |option| match option {
            plait_wire::MptcpOption::Capable(mut capable) => {
                capable.flags.0 |= plait_wire::CapableFlags::DENY_JOIN_ID0;
                Some(plait_wire::MptcpOption::Capable(capable))
            }
            other => Some(other),
        });
        Fate::Pass
    });
    in_mid_transfer(&mut world, 2_000_000);
    assert_eq!(world.usable(CLIENT), 1);
}

//= rfc8684 3.3.8-01
//= rfc8684 3.3.8-02
#[test]
fn a_backup_path_carries_only_when_it_must() {
    let mut world = two_paths(21);
    let backup = plait_mptcp::Path { backup: true, ..path(1, CLIENT) };
    world.sides[CLIENT].host.paths.insert(backup);
    let data = in_mid_transfer(&mut world, 3_000_000);
    assert_eq!(world.usable(CLIENT), 2);
    assert_eq!(world.links[1].carried, [0, 0], "nothing on the backup, from neither side");
    world.links[0].is_black_hole = true;
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
    assert!(
        world.sides[SERVER].longest_gap < Duration::from_secs(1),
        "{:?}",
        world.sides[SERVER].longest_gap
    );
}

#[test]
fn a_path_becomes_a_backup_while_it_is_used_and_the_peer_follows() {
    let mut world = two_paths(22);
    let down = pattern(8_000_000, 3);
    world.send(SERVER, &down).connect();
    world.wait(500);
    assert!(world.links[1].carried[SERVER] > 100_000);
    world.change_path(CLIENT, plait_mptcp::Path { backup: true, ..path(1, CLIENT) });
    world.wait(300);
    let carried = world.links[1].carried[SERVER];
    world.wait(400);
    assert_eq!(world.links[1].carried[SERVER], carried, "MP_PRIO took it out of use");
    world.change_path(CLIENT, path(1, CLIENT));
    world.wait(400);
    assert!(world.links[1].carried[SERVER] > carried, "and put it back");
}

#[test]
fn a_path_of_class_never_carries_nothing() {
    let mut world = two_paths(23);
    world.sides[CLIENT].host.paths.insert(plait_mptcp::Path { class: PathClass::Never, ..path(1, CLIENT) });
    in_mid_transfer(&mut world, 2_000_000);
    assert_eq!(world.usable(CLIENT), 1);
    assert_eq!(world.status(CLIENT).subflows.len(), 1);
}

#[test]
fn a_slow_path_does_not_make_it_slower() {
    let fast = Link { rate: Some(4_000_000), ..Link::default() };
    let slow = Link { rate: Some(100_000), delay: Duration::from_millis(300), ..Link::default() };
    let data = pattern(6_000_000, 4);
    let time = |links: Vec<Link>| {
        let mut world = World::new(24, links, 1);
        world.send(CLIENT, &data).send(SERVER, b"x").connect();
        let time = world.finish(60);
        assert!(world.sides[SERVER].received == data);
        time
    };
    let alone = time(vec![fast.clone()]);
    let both = time(vec![fast, slow]);
    assert!(both.as_secs_f64() < 1.25 * alone.as_secs_f64(), "{alone:?} alone, {both:?} with the slow one");
}

//= rfc8684 3.2-04
#[test]
fn a_third_ack_that_is_lost_is_repeated() {
    let mut world = two_paths(25);
    let mut lost = 3;
    world.tap = Box::new(move |from, segment| {
        let is_hmac = plait_wire::options(&segment.options).any(|option| {
            matches!(
                option,
                Ok(plait_wire::TcpOption::Mptcp(plait_wire::MptcpOption::Join(
                    plait_wire::MpJoin::Ack { .. }
                )))
            )
        });
        if from == CLIENT && is_hmac && lost > 0 {
            lost -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    world.send(CLIENT, &pattern(10_000_000, 1)).connect();
    world.wait(3_000);
    assert_eq!((world.usable(CLIENT), world.usable(SERVER)), (2, 2));
    assert_eq!(world.status(SERVER).counters.bad_join_hmacs, 0);
}

fn reset_reason(segment: &plait_wire::Segment) -> Option<plait_wire::ResetReason> {
    plait_wire::options(&segment.options).find_map(|option| match option {
        Ok(plait_wire::TcpOption::Mptcp(plait_wire::MptcpOption::Reset(reset))) => Some(reset.reason),
        Ok(_) | Err(_) => None,
    })
}

//= rfc8684 3.2-08
//= rfc8684 3.2-09
//= rfc8684 3.2-10
//= rfc8684 3.2-11
//= rfc8684 3.7-03
//= rfc8684 3.9.3-02
#[test]
fn joins_that_lose_their_options_are_closed_and_the_connection_goes_on() {
    use plait_wire::ResetReason::{MiddleboxInterference, Mptcp};
    for (from_side, strips_syns, reason) in [
        // The server does not know a SYN without MP_JOIN.
        (CLIENT, true, None),
        (CLIENT, false, Some(Mptcp)),
        (SERVER, true, Some(MiddleboxInterference)),
        (SERVER, false, Some(MiddleboxInterference)),
    ] {
        let mut world = two_paths(26);
        let resets = std::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
        let log = resets.clone();
        world.tap = Box::new(move |from, segment| {
            let client = if from == CLIENT { segment.source.ip() } else { segment.destination.ip() };
            let is_second = client == address(1, CLIENT);
            if is_second && segment.flags.contains(plait_wire::Flags::RST) {
                log.borrow_mut().push((from, reset_reason(segment)));
            }
            let is_stripped = strips_syns || !segment.flags.contains(plait_wire::Flags::SYN);
            if from == from_side && is_second && is_stripped {
                world::segments::strip(segment);
            }
            Fate::Pass
        });
        let data = in_mid_transfer(&mut world, 1_500_000);
        assert_eq!(world.usable(CLIENT), 1);
        assert_eq!(resets.borrow().first(), Some(&(1 - from_side, reason)), "the other side resets it");
        world.finish(60);
        assert!(world.sides[SERVER].received == data);
        let negotiated = world.status(CLIENT).negotiated;
        assert_ne!(negotiated, Negotiated::Plain(PlainReason::NoDss));
    }
}

#[test]
fn a_dead_subflow_does_not_hold_up_the_end_of_the_receiver() {
    let mut world = two_paths(27);
    let data = in_mid_transfer(&mut world, 3_000_000);
    world.links[0].is_black_hole = true;
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
    // The server has sent nothing on the dead path, and only its FIN finds out.
    let time = world.run(Duration::from_secs(30), |world| world.of(SERVER).is_time_wait());
    assert!(time < Duration::from_secs(1), "{time:?}");
}

/// Each says its own wish (RFC 8684, section 3.2): the answer to a join does not repeat that of the SYN.
#[test]
fn the_backup_bit_of_a_join_says_what_its_sender_wants() {
    use plait_wire::{MpJoin, MptcpOption, TcpOption};
    for (is_backup, bits) in
        [([false, false], [false, false]), ([true, false], [true, false]), ([false, true], [false, true])]
    {
        let mut world = two_paths(29);
        world.sides[SERVER].host.paths.insert(path(1, SERVER));
        for side in [CLIENT, SERVER] {
            let path = plait_mptcp::Path { backup: is_backup[side], ..path(1, side) };
            world.sides[side].host.paths.insert(path);
        }
        let said = std::rc::Rc::new(core::cell::RefCell::new([None; 2]));
        let log = said.clone();
        world.tap = Box::new(move |from, segment| {
            for option in plait_wire::options(&segment.options) {
                let Ok(TcpOption::Mptcp(MptcpOption::Join(join))) = option else { continue };
                if let MpJoin::Syn { backup, .. } | MpJoin::SynAck { backup, .. } = join {
                    log.borrow_mut()[from] = Some(backup);
                }
            }
            Fate::Pass
        });
        let remotes = [0, 1].map(|number| SocketAddr::new(address(number, SERVER), PORT));
        world.send(CLIENT, &pattern(3_000_000, 3)).connect_to(&remotes);
        world.wait(600);
        assert_eq!(*said.borrow(), bits.map(Some));
        let carries = world.links[1].carried[CLIENT] > 0;
        assert_eq!(carries, is_backup == [false; 2], "{is_backup:?}");
    }
}
