//! The memory of a host has a cap: peers that fill every buffer they can, and never read, stay under it together, and one that
//! does as it should still moves.

use plait_base::{Duration, Instant};
use plait_endpoint::EndpointConfig;
use plait_mptcp::{Config, Protect};
use plait_sim::{CloseMode, Families, HostIndex, Workload, World};
use plait_wire::IpVersion;
use std::net::SocketAddr;

const GREEDY_PORT: u16 = 1000;
const PORT: u16 = 2000;
const MINUTE: Duration = Duration::from_secs(60);
const NEVER: Instant = Instant::from_millis(u64::MAX / 2_000_000);
/// Of each connection, both ways: more than it is ever given.
const MUCH: u64 = 8 << 20;

/// What came of it.
struct Outcome {
    most_used: u64,
    most_set_aside: u64,
    honest_took: Duration,
    counters: plait_endpoint::Counters,
}

/// `greedy` connections to a server with `memory`, on which both sides write and neither reads; then an honest one.
fn fill(memory: u64, greedy: u32, protect: &Protect) -> Outcome {
    let mut world = World::new(7);
    let client = world.add_host(EndpointConfig { memory: u64::MAX / 2, ..EndpointConfig::DEFAULT });
    let server = world.add_host(EndpointConfig { memory, ..EndpointConfig::DEFAULT });
    let path = world.add_path(client, server, Families::V4);
    let honest = Config { protect: protect.clone(), ..Config::default() };
    let config = Config { send_buffer: 1 << 20, ..honest.clone() };
    let deaf = Workload::of(MUCH).reading_from(NEVER).leaving(CloseMode::Waiting);
    world.serve(server, GREEDY_PORT, config.clone(), deaf);
    world.serve(server, PORT, honest.clone(), Workload::of(1_000_000));
    let at = |port| SocketAddr::new(world.address(path, 1, IpVersion::V4), port);
    let [greedy_at, honest_at] = [at(GREEDY_PORT), at(PORT)];
    let mut most = (0, 0);
    let mut watch = |world: &World, server: HostIndex| {
        let counters = world.endpoint(server).counters();
        most = (counters.memory_used.max(most.0), counters.memory_set_aside.max(most.1));
    };
    for _ in 0..greedy {
        world.open(client, config.clone(), &[greedy_at], deaf);
        world.run_for(Duration::from_millis(5));
        watch(&world, server);
    }
    for _ in 0..20 {
        world.run_for(Duration::from_millis(500));
        watch(&world, server);
    }
    let begin = world.now();
    let id = world.open(client, honest, &[honest_at], Workload::of(1_000_000));
    world.run_until(MINUTE, |world| {
        watch(world, server);
        world.application(client, id).outcome().is_some()
    });
    let outcome = world.application(client, id).outcome().expect("the honest one has ended");
    assert_eq!((outcome.result, outcome.heard), (Ok(()), 1_000_000));
    let honest_took = outcome.at.saturating_since(begin);
    let (most_used, most_set_aside) = most;
    Outcome { most_used, most_set_aside, honest_took, counters: world.endpoint(server).counters() }
}

#[test]
fn a_thousand_peers_that_fill_every_buffer_stay_under_the_cap_and_an_honest_one_moves() {
    const CAP: u64 = 256 << 20;
    let Outcome { most_used, most_set_aside, honest_took, counters } = fill(CAP, 1000, &Protect::Plain);
    println!(
        "at most {most_used} bytes in use and {most_set_aside} set aside of {CAP}; the honest one took {honest_took:?}; {counters:?}"
    );
    assert!(most_set_aside <= CAP, "{most_set_aside}");
    assert!(most_used > CAP / 4, "they do fill it: {most_used}");
    assert_eq!(
        (counters.memory_dropped, counters.memory_limited),
        (0, 0),
        "windows are smaller, and nothing is dropped"
    );
    assert!(honest_took < Duration::from_secs(5), "{honest_took:?}");
}

#[test]
fn so_do_peers_of_sealed_connections() {
    const CAP: u64 = 16 << 20;
    let Outcome { most_used, most_set_aside, honest_took, counters } =
        fill(CAP, 60, &plait_sim::sealed().protect);
    println!(
        "at most {most_used} bytes in use and {most_set_aside} set aside of {CAP}; the honest one took {honest_took:?}"
    );
    assert!(most_set_aside <= CAP && most_used > CAP / 4, "{most_set_aside} {most_used}");
    assert_eq!((counters.memory_dropped, counters.memory_limited), (0, 0));
    assert!(honest_took < Duration::from_secs(5), "{honest_took:?}");
}

/// The same peers without a cap that binds them: what the one above would be without it.
#[test]
fn without_the_cap_a_hundred_of_them_take_more_than_their_part_of_it() {
    let Outcome { most_used, .. } = fill(8 << 30, 100, &Protect::Plain);
    println!("{most_used} bytes in use");
    assert!(most_used > (256 << 20) / 10, "{most_used}");
}

#[test]
fn where_there_is_no_room_for_one_more_it_waits_until_there_is() {
    let mut world = World::new(8);
    let client = world.add_host(EndpointConfig::default());
    // Room for four.
    let server = world.add_host(EndpointConfig { memory: 512 << 10, ..EndpointConfig::DEFAULT });
    let path = world.add_path(client, server, Families::V4);
    let patient = Workload::of(1000).leaving(CloseMode::Waiting);
    world.serve(server, PORT, Config::default(), patient);
    let remote = SocketAddr::new(world.address(path, 1, IpVersion::V4), PORT);
    let first: Vec<_> = (0..4)
        .map(|_| {
            world.open(client, Config::default(), &[remote], Workload::of(1000).leaving(CloseMode::Waiting))
        })
        .collect();
    world.run_for(Duration::from_secs(1));
    let late = world.open(client, Config::default(), &[remote], Workload::of(1000));
    world.run_for(Duration::from_secs(1));
    assert!(world.endpoint(server).counters().memory_limited > 0, "{:?}", world.endpoint(server).counters());
    for id in first {
        world.with_endpoint(client, |now, endpoint| endpoint.abort(now, id));
    }
    world.run_until(MINUTE, |world| world.application(client, late).outcome().is_some());
    let outcome = world.application(client, late).outcome().expect("it has ended");
    assert_eq!((outcome.result, outcome.heard), (Ok(()), 1000));
}
