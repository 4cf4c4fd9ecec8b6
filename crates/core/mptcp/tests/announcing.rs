//! ADD_ADDR: one after the other, repeated until it is echoed.

mod world;

use std::cell::RefCell;
use std::rc::Rc;

use world::{CLIENT, Fate, Link, SERVER, World, path};

#[test]
fn an_announcement_is_repeated_until_it_is_echoed() {
    let mut world = World::new(18, vec![Link::default()], 2);
    let mut lost = 2;
    world.tap = Box::new(move |from, segment| {
        let announces = plait_wire::options(&segment.options).any(|option| {
            matches!(option, Ok(plait_wire::TcpOption::Mptcp(plait_wire::MptcpOption::AddAddr(add))) if !add.echo)
        });
        if from == SERVER && announces && lost > 0 {
            lost -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    world.config(|config| config.joins = plait_mptcp::Joins::Mesh);
    world.send(CLIENT, b"x").connect();
    world.sides[CLIENT].finishes = false;
    world.wait(500);
    assert_eq!(world.usable(CLIENT), 1);
    world.wait(10_000);
    assert_eq!(world.usable(CLIENT), 2);
}

/// Records sender, id and echo flag of all ADD_ADDRs, in the order in which they are sent; echoes may be lost.
fn announcements_in(world: &mut World, loses_echoes: bool) -> Rc<RefCell<Vec<(usize, u8, bool)>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    world.tap = Box::new(move |from, segment| {
        let mut is_echo = false;
        for option in plait_wire::options(&segment.options) {
            if let Ok(plait_wire::TcpOption::Mptcp(plait_wire::MptcpOption::AddAddr(add))) = option {
                log.borrow_mut().push((from, add.address_id, add.echo));
                is_echo = add.echo;
            }
        }
        if is_echo && loses_echoes { Fate::Drop } else { Fate::Pass }
    });
    seen
}

//= rfc8684 3.4.1-02
#[test]
fn an_announcement_waits_for_the_echo_of_the_one_before() {
    let mut world = World::new(18, vec![Link::default()], 4);
    let seen = announcements_in(&mut world, false);
    world.send(CLIENT, b"x").connect();
    world.sides[CLIENT].finishes = false;
    world.wait(900);
    let pair = |id| [(SERVER, id, false), (CLIENT, id, true)];
    assert_eq!(*seen.borrow(), [pair(1), pair(2), pair(3)].concat());
}

#[test]
fn without_an_echo_the_next_announcement_follows_the_first_repetition() {
    let mut world = World::new(18, vec![Link::default()], 3);
    let seen = announcements_in(&mut world, true);
    world.send(CLIENT, b"x").connect();
    world.sides[CLIENT].finishes = false;
    world.wait(900);
    assert_eq!(*seen.borrow(), [(SERVER, 1, false), (CLIENT, 1, true)]);
    world.wait(600);
    assert!(seen.borrow().contains(&(SERVER, 2, false)), "{:?}", seen.borrow());
}

//= rfc8684 3.4.2-02
#[test]
fn an_announced_address_that_is_gone_is_withdrawn_although_no_subflow_used_it() {
    let mut world = World::new(23, vec![Link::default()], 2);
    world.send(CLIENT, b"x").connect();
    world.sides[CLIENT].finishes = false;
    world.wait(900);
    assert_eq!(world.usable(CLIENT), 1);
    let withdrawn = Rc::new(RefCell::new(Vec::new()));
    let log = withdrawn.clone();
    world.tap = Box::new(move |from, segment| {
        for option in plait_wire::options(&segment.options) {
            if let Ok(plait_wire::TcpOption::Mptcp(plait_wire::MptcpOption::RemoveAddr(remove))) = option {
                log.borrow_mut().push((from, remove.address_ids.to_vec()));
            }
        }
        Fate::Pass
    });
    world.change_path(SERVER, plait_mptcp::Path { up: false, ..path(1, SERVER) });
    world.wait(100);
    assert_eq!(*withdrawn.borrow(), [(SERVER, vec![1])]);
}

//= rfc8684 3.4.1-09
//= rfc8684 3.4.1-11
#[test]
fn an_address_that_is_back_as_another_one_is_withdrawn_before_it_is_announced_again() {
    let mut world = World::new(24, vec![Link::default()], 2);
    let said = Rc::new(RefCell::new(Vec::new()));
    let log = said.clone();
    world.tap = Box::new(move |from, segment| {
        for option in plait_wire::options(&segment.options) {
            use plait_wire::{MptcpOption, TcpOption};
            match option {
                Ok(TcpOption::Mptcp(MptcpOption::AddAddr(add))) if from == SERVER => {
                    log.borrow_mut().push((add.address_id, Some(add.address)));
                }
                Ok(TcpOption::Mptcp(MptcpOption::RemoveAddr(remove))) if from == SERVER => {
                    log.borrow_mut().extend(remove.address_ids.iter().map(|&id| (id, None)));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Fate::Pass
    });
    world.send(CLIENT, b"x").connect();
    world.sides[CLIENT].finishes = false;
    world.wait(900);
    let other = core::net::Ipv4Addr::new(198, 51, 100, 7);
    world.change_path(SERVER, plait_mptcp::Path { up: false, ..path(1, SERVER) });
    world.wait(900);
    world.change_path(SERVER, plait_mptcp::Path { public_v4: Some(other), ..path(1, SERVER) });
    world.wait(900);
    let mut said = said.take();
    said.dedup();
    let expected = [(1, Some(world::address(1, SERVER))), (1, None), (1, Some(other.into()))];
    assert_eq!(said, expected);
}

#[test]
fn an_opener_announces_one_address_of_each_further_path() {
    for (paths, told) in [(1, 0), (2, 1)] {
        let mut world = World::new(21, vec![Link::default(); paths], 1);
        for number in 0..paths {
            let v6 = Some(core::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9 + number as u16));
            let path = plait_mptcp::Path { v6, ..path(number, CLIENT) };
            world.sides[CLIENT].host.paths.insert(path);
        }
        let seen = announcements_in(&mut world, false);
        world.send(CLIENT, b"x").connect();
        world.sides[CLIENT].finishes = false;
        world.wait(900);
        assert_eq!(
            seen.borrow().iter().filter(|(from, _, echo)| (*from, *echo) == (CLIENT, false)).count(),
            told
        );
    }
}

/// The Linux kernel sends ADD_ADDR alone, and nothing else while the client is silent.
#[test]
fn an_announcement_that_comes_before_any_data_ack_is_echoed_at_once() {
    let mut world = World::new(22, vec![Link::default()], 2);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    world.tap = Box::new(move |from, segment| {
        let mut announces = false;
        world::segments::rewrite(segment, |option| match option {
            plait_wire::MptcpOption::Dss(_) if from == SERVER => None,
            plait_wire::MptcpOption::AddAddr(add) => {
                log.borrow_mut().push((from, add.echo));
                announces = true;
                Some(option)
            }
            option => Some(option),
        });
        let is_silent = from == SERVER && !announces && !segment.flags.contains(plait_wire::Flags::SYN);
        if is_silent { Fate::Drop } else { Fate::Pass }
    });
    world.connect();
    world.wait(5_000);
    assert_eq!(*seen.borrow(), [(SERVER, false), (CLIENT, true)], "once each");
}
