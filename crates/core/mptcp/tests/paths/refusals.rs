//! Silence and refusals, on one path or on all.

use super::*;

#[test]
fn silence_on_all_paths_is_an_error_and_so_is_a_refusal() {
    let mut world = World::new(16, vec![Link { is_black_hole: true, ..Link::default() }], 1);
    world.config(|config| config.tcp.syn_retries = 2);
    world.connect();
    world.wait(60_000);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::TimedOut));

    let mut world = World::new(16, vec![Link::default(); 2], 1);
    world.tap = Box::new(|from, segment| {
        if from == SERVER {
            segment.flags = plait_wire::Flags::RST.with(plait_wire::Flags::ACK);
        }
        Fate::Pass
    });
    world.connect();
    world.wait(5_000);
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::Refused));

    let mut world = World::new(16, vec![Link::default()], 1);
    world.sides[CLIENT].host.paths.insert(plait_mptcp::Path { class: PathClass::Never, ..path(0, CLIENT) });
    world.connect();
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::Unreachable));
}

/// Path 0 answers every SYN with a reset.
fn refuse_on_path_0(world: &mut World) {
    world.tap = Box::new(|from, segment| {
        if from == SERVER && segment.destination.ip() == address(0, CLIENT) {
            segment.flags = plait_wire::Flags::RST.with(plait_wire::Flags::ACK);
            segment.options = plait_wire::OptionBytes::new();
        }
        Fate::Pass
    });
}

#[test]
fn a_refusal_with_silence_on_all_other_paths_is_known_in_two_seconds() {
    let mut world = World::new(18, vec![Link::default(); 2], 1);
    world.links[1].is_black_hole = true;
    refuse_on_path_0(&mut world);
    let time = world.connect().run(Duration::from_secs(30), |world| world.sides[CLIENT].failed.is_some());
    assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::Refused));
    assert!(time < Duration::from_secs(2), "{time:?}");
}

/// An attacker that resets SYNs on one path must not prevent an opening over another, even if the first SYN is lost.
#[test]
fn a_refusal_on_one_path_costs_that_path() {
    let mut world = World::new(19, vec![Link::default(); 2], 1);
    world.links[1].is_black_hole = true;
    refuse_on_path_0(&mut world);
    world.send(CLIENT, b"x").connect();
    world.wait(500);
    world.sides[SERVER].connection = None;
    world.links[1].is_black_hole = false;
    let time =
        world.run(Duration::from_secs(30), |world| world.sides[CLIENT].events.contains(&Event::Connected));
    assert!(world.sides[CLIENT].events.contains(&Event::Connected), "{:?}", world.sides[CLIENT].failed);
    assert!(time < Duration::from_secs(1), "{time:?}");
    world.sides[CLIENT].finishes = false;
    world.wait(10_000);
    assert_eq!(world.sides[CLIENT].failed, None, "the refusal is forgotten");
}

#[test]
fn after_a_refusal_the_last_way_still_has_its_turn_and_its_time() {
    let mut world = World::new(20, vec![Link::default(); 9], 1);
    world.links[1..8].iter_mut().for_each(|link| link.is_black_hole = true);
    refuse_on_path_0(&mut world);
    let timeout = world.sides[CLIENT].config.remaining_attempts_timeout;
    world.connect();
    world.wait(500);
    world.sides[SERVER].connection = None;
    let time =
        world.run(Duration::from_secs(30), |world| world.sides[CLIENT].events.contains(&Event::Connected));
    assert!(world.sides[CLIENT].events.contains(&Event::Connected), "{:?}", world.sides[CLIENT].failed);
    assert!(time + Duration::from_millis(450) > timeout, "it came too early to say anything: {time:?}");
}
