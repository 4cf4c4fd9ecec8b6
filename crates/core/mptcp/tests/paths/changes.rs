//! Paths that change under a connection that is being opened, or that has one subflow only.

use super::*;
use crate::sealing::sealed;
use plait_base::{Instant, PathId};
use plait_handshake::Tep;
use plait_mptcp::Path;

/// A change of the only path, after which it works.
type Change = fn(&mut World);

fn is_back(world: &mut World) {
    world.change_path(CLIENT, Path { up: false, ..path(0, CLIENT) });
    world.wait(500);
    world.links[0].is_black_hole = false;
    world.change_path(CLIENT, path(0, CLIENT));
}

/// As the network monitor reports it if carriers keep an address of their own.
fn has_lost_its_address(world: &mut World) {
    world.links[0].is_black_hole = false;
    world.change_path(CLIENT, Path { v4: None, ..path(0, CLIENT) });
    world.change_path(CLIENT, path(0, CLIENT));
}

fn has_another_address(world: &mut World) {
    world.links[0].is_black_hole = false;
    world.change_path(CLIENT, Path { v4: Some([10, 0, 0, 77].into()), ..path(0, CLIENT) });
}

/// The default route moves: the path of another device comes, and the first goes.
fn is_another(world: &mut World) {
    world.change_path(CLIENT, path(1, CLIENT));
    remove(world, 0);
}

/// The same in the other order.
fn is_another_later(world: &mut World) {
    remove(world, 0);
    world.wait(100);
    world.change_path(CLIENT, path(1, CLIENT));
}

fn remove(world: &mut World, number: u8) {
    world.sides[CLIENT].host.paths.remove(PathId(number));
    let (now, side) = (world.now, &mut world.sides[CLIENT]);
    side.connection.as_mut().expect("opened").handle_paths(now, &mut side.host);
    world.serve(CLIENT);
}

fn is_connected(world: &mut World) -> bool {
    world.sides[CLIENT].events.contains(&Event::Connected)
}

#[test]
fn an_opening_begins_again_at_once_when_a_path_is_there() {
    let changes: [(&str, Change); 5] = [
        ("back", is_back),
        ("address lost", has_lost_its_address),
        ("another address", has_another_address),
        ("another path", is_another),
        ("another path, later", is_another_later),
    ];
    for (name, change) in changes {
        let mut world = World::new(21, vec![Link::default(); 2], 1);
        world.sides[CLIENT].host.paths.remove(PathId(1));
        world.links[0].is_black_hole = true;
        world.send(CLIENT, b"x").send(SERVER, b"y").connect();
        // Its SYNs have been sent again, and the next would take seconds.
        world.wait(12_500);
        change(&mut world);
        let time = world.run(Duration::from_secs(30), is_connected);
        assert!(is_connected(&mut world), "{name}: {:?}", world.sides[CLIENT].failed);
        assert!(time < Duration::from_millis(100), "{name}: {time:?}");
        world.finish(5);
        assert_eq!(world.sides[SERVER].received, b"x", "{name}");
        assert_eq!(world.sides[CLIENT].received, b"y", "{name}");
    }
}

/// Whatever the opening was doing when its path went: it goes on, or begins again, when the path is back.
#[test]
fn a_sealed_opening_survives_the_loss_of_its_path_at_any_moment() {
    for after in (15..150).step_by(10) {
        for pause in [0, 400] {
            let mut world = sealed(25, vec![Link::default()], &[Tep::Tls13]);
            world.send(CLIENT, b"x").connect();
            world.wait(after);
            world.change_path(CLIENT, Path { v4: None, ..path(0, CLIENT) });
            world.wait(pause);
            if !is_connected(&mut world) {
                // The server of this test has one connection only.
                world.sides[SERVER].connection = None;
                world.sides[SERVER].owners.clear();
            }
            world.change_path(CLIENT, path(0, CLIENT));
            let is_there = |world: &mut World| world.sides[SERVER].received == b"x";
            let time = world.run(Duration::from_secs(30), is_there);
            let failed = [CLIENT, SERVER].map(|side| world.sides[side].failed);
            assert!(is_there(&mut world), "{after} {pause}: {failed:?}");
            assert!(time < Duration::from_millis(1_000), "{after} {pause}: {time:?}");
        }
    }
}

/// The opener is through, and its last flight was lost with its path: the server has no keys, and refuses each join. Another attempt begins
/// over the path as it is now.
#[test]
fn a_sealed_opening_begins_again_if_its_last_flight_was_lost_with_its_path() {
    let mut is_lost = false;
    for after in (15..150).step_by(5) {
        let mut world = sealed(26, vec![Link::default()], &[Tep::Tls13]);
        world.send(CLIENT, b"x").connect();
        world.wait(after);
        world.links[0].is_black_hole = true;
        world.wait(30);
        if !world.sides[SERVER].events.contains(&Event::Connected) {
            is_lost |= is_connected(&mut world);
            // The server of this test has one connection only.
            world.sides[SERVER].connection = None;
            world.sides[SERVER].owners.clear();
        }
        has_lost_its_address(&mut world);
        let is_there = |world: &mut World| world.sides[SERVER].received == b"x";
        let time = world.run(Duration::from_secs(30), is_there);
        let failed = [CLIENT, SERVER].map(|side| world.sides[side].failed);
        assert!(is_there(&mut world), "{after}: {failed:?}");
        assert!(time < Duration::from_millis(1_500), "{after}: {time:?}");
    }
    assert!(is_lost, "the opener was through at some moment, and the server was not");
}

#[test]
fn an_obstacle_that_goes_is_noticed_within_a_second() {
    for gone_after in [1_500, 4_000, 9_900] {
        let mut world = World::new(24, vec![Link { is_black_hole: true, ..Link::default() }], 1);
        world.connect();
        world.wait(gone_after);
        world.links[0].is_black_hole = false;
        let time = world.run(Duration::from_secs(30), is_connected);
        assert!(time < Duration::from_millis(1_100), "{gone_after}: {time:?}");
    }
}

#[test]
fn an_opening_whose_path_flaps_without_end_has_an_end() {
    let mut world = World::new(22, vec![Link { is_black_hole: true, ..Link::default() }], 1);
    world.config(|config| config.tcp.syn_retries = 2);
    world.connect();
    for _ in 0..2_000 {
        has_lost_its_address(&mut world);
        world.links[0].is_black_hole = true;
        world.wait(100);
        if world.sides[CLIENT].failed.is_some() {
            return;
        }
    }
    panic!("it goes on for ever");
}

#[test]
fn plain_tcp_goes_on_at_once_when_its_path_is_back() {
    let mut world = World::new(23, vec![Link { rate: RATE, ..Link::default() }], 1);
    world.config(|config| config.multipath = false);
    let data = pattern(6_000_000, 9);
    world.send(CLIENT, &data).send(SERVER, b"y").connect();
    world.wait(600);
    assert!(matches!(world.status(CLIENT).negotiated, Negotiated::Plain(_)));
    world.links[0].is_black_hole = true;
    world.change_path(CLIENT, Path { up: false, ..path(0, CLIENT) });
    world.wait(10_000);
    let before = world.sides[SERVER].received.len();
    world.links[0].is_black_hole = false;
    world.change_path(CLIENT, path(0, CLIENT));
    let from: Instant = world.now;
    world.run(Duration::from_secs(30), |world| world.sides[SERVER].received.len() > before);
    let time = world.now.saturating_since(from);
    assert!(time < Duration::from_millis(100), "{time:?}");
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
}
