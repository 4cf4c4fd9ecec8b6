//! Paths come, go, die and lie idle.

use plait_base::{Duration, Instant, PathId};
use plait_mptcp::{Config, Joins, Negotiated, Status};
use plait_sim::{
    BlackHole, CloseMode, Direction, Families, Link, LinkConfig, Moment, Pair, Recorder, Stripper, Workload,
    megabits, plain_link,
};

const MIB: u64 = 1 << 20;
const MINUTES: Duration = Duration::from_secs(600);
const FOREVER: Instant = Instant::from_millis(1 << 40);

#[test]
fn a_dead_first_path_does_not_prevent_a_connection() {
    let mut pair = Pair::new(1, 2, Families::V4);
    pair.chain_with(0, BlackHole { during: Instant::ZERO..FOREVER });
    pair.serve(&Config::default(), Workload::of(MIB));
    let begin = pair.world.now();
    let remotes = [pair.server_address(0), pair.server_address(1)];
    let id = pair.world.open(pair.client, Config::default(), &remotes, Workload::of(MIB));
    let (client, server) = (pair.client, pair.server);
    assert!(pair.world.run_until(Duration::from_secs(5), |world| world.accepted(server).count() == 1));
    let time = pair.world.now().saturating_since(begin);
    println!("connected after {time:?}");
    assert!(time < Duration::from_millis(1500));
    assert!(pair.world.run_talk(MINUTES));
    assert_eq!(pair.world.application(client, id).outcome().expect("it is over").result, Ok(()));
    pair.assert_clean();
}

#[test]
fn a_black_hole_in_mid_transfer_loses_nothing_and_is_soon_left() {
    for dead in [0, 1] {
        let mut pair = two_paths(2);
        let hole = pair.in_time(Duration::from_millis(800))..FOREVER;
        let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 1);
        pair.chain(dead, vec![Box::new(BlackHole { during: hole }), Box::new(link)]);
        let talk = pair.talk(&Config::default(), Workload::of(8 * MIB), patient(), MINUTES);
        println!("path {dead} swallowed: longest gap {:?}", talk.server.longest_gap);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
        assert!(
            talk.server.longest_gap < Duration::from_secs(1),
            "path {dead}: {:?}",
            talk.server.longest_gap
        );
        pair.assert_clean();
    }
}

#[test]
fn a_black_hole_on_both_paths_is_sat_out() {
    let mut pair = two_paths(3);
    let from = pair.in_time(Duration::from_millis(500));
    for path in 0..2 {
        pair.chain_with(path, BlackHole { during: from..from + Duration::from_secs(10) });
    }
    let talk = pair.talk(&Config::default(), Workload::of(32 * MIB), patient(), MINUTES);
    println!("longest gap {:?}", talk.server.longest_gap);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    assert!(talk.server.longest_gap < Duration::from_secs(30));
    pair.assert_clean();
}

#[test]
fn a_path_taken_down_is_left_at_once() {
    for gone in [0, 1] {
        let mut pair = two_paths(4);
        pair.serve(&Config::default(), patient());
        let id = pair.open(&Config::default(), Workload::of(8 * MIB));
        pair.world.run_for(Duration::from_millis(800));
        pair.chain_with(gone, BlackHole { during: Instant::ZERO..FOREVER });
        let path = pair.paths[gone];
        pair.world.change_path(pair.client, path, |path| path.up = false);
        assert!(pair.world.run_talk(MINUTES));
        let server = pair.world.accepted(pair.server).next().expect("one").outcome().expect("over").clone();
        println!("path {gone} down: longest gap {:?}", server.longest_gap);
        assert_eq!((server.result, server.heard), (Ok(()), 8 * MIB));
        assert!(server.longest_gap < Duration::from_secs(1), "{:?}", server.longest_gap);
        assert_eq!(pair.world.application(pair.client, id).outcome().expect("over").result, Ok(()));
        pair.assert_clean();
    }
}

#[test]
fn a_path_that_is_taken_away_is_announced_and_never_used_again() {
    let mut pair = two_paths(5);
    let recorder = Recorder::default();
    let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 1);
    pair.chain(1, vec![Box::new(recorder.clone()), Box::new(link)]);
    pair.serve(&Config::default(), Workload::of(8 * MIB));
    pair.open(&Config::default(), patient());
    pair.world.run_for(Duration::from_millis(800));
    let path = pair.paths[1];
    pair.world.remove_path(pair.client, path);
    pair.world.run_for(Duration::from_millis(200));
    let so_far = recorder.payload_bytes(Direction::Backward);
    assert!(so_far > 0, "the path was in use");
    assert!(pair.world.run_talk(MINUTES));
    assert_eq!(recorder.payload_bytes(Direction::Backward), so_far, "REMOVE_ADDR has reached the server");
    pair.assert_clean();
}

#[test]
fn a_new_path_is_used_by_a_running_connection() {
    let mut pair = two_paths(6);
    let path = pair.paths[1];
    for host in [pair.client, pair.server] {
        pair.world.change_path(host, path, |path| path.up = false);
    }
    let recorder = Recorder::default();
    let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 1);
    pair.chain(1, vec![Box::new(recorder.clone()), Box::new(link)]);
    pair.serve(&Config::default(), patient());
    pair.open(&Config::default(), Workload::of(8 * MIB));
    pair.world.run_for(Duration::from_millis(500));
    assert_eq!(recorder.payload_bytes(Direction::Forward), 0);
    for host in [pair.server, pair.client] {
        pair.world.change_path(host, path, |path| path.up = true);
    }
    assert!(pair.world.run_talk(MINUTES));
    assert!(
        recorder.payload_bytes(Direction::Forward) > 1 << 20,
        "{}",
        recorder.payload_bytes(Direction::Forward)
    );
    pair.assert_clean();
}

#[test]
fn a_backup_path_is_silent_until_it_is_needed() {
    let mut pair = two_paths(7);
    let path = pair.paths[1];
    pair.world.change_path(pair.client, path, |path| path.backup = true);
    let recorder = Recorder::default();
    let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 1);
    pair.chain(1, vec![Box::new(recorder.clone()), Box::new(link)]);
    pair.serve(&Config::default(), patient());
    pair.open(&Config::default(), Workload::of(8 * MIB));
    pair.world.run_for(Duration::from_secs(1));
    assert_eq!(recorder.payload_bytes(Direction::Forward), 0, "nothing while the first path works");
    assert!(!recorder.crossings().is_empty(), "but it is open");
    pair.chain_with(0, BlackHole { during: Instant::ZERO..FOREVER });
    assert!(pair.world.run_talk(MINUTES));
    let server = pair.world.accepted(pair.server).next().expect("one").outcome().expect("over").clone();
    println!("switched to the backup: longest gap {:?}", server.longest_gap);
    assert_eq!((server.result, server.heard), (Ok(()), 8 * MIB));
    pair.assert_clean();
}

#[test]
fn a_path_made_a_backup_in_mid_transfer_carries_no_more_data() {
    let mut pair = two_paths(8);
    let recorder = Recorder::default();
    let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 1);
    pair.chain(1, vec![Box::new(recorder.clone()), Box::new(link)]);
    // The server sends: it has to believe what the client says about the priority (MP_PRIO).
    pair.serve(&Config::default(), Workload::of(8 * MIB));
    pair.open(&Config::default(), patient());
    pair.world.run_for(Duration::from_millis(800));
    assert!(recorder.payload_bytes(Direction::Backward) > 0);
    let path = pair.paths[1];
    pair.world.change_path(pair.client, path, |path| path.backup = true);
    pair.world.run_for(Duration::from_millis(500));
    let so_far = recorder.payload_bytes(Direction::Backward);
    assert!(pair.world.run_talk(MINUTES));
    assert_eq!(recorder.payload_bytes(Direction::Backward), so_far);
    pair.assert_clean();
}

#[test]
fn a_path_that_was_lost_is_joined_again_when_it_is_back() {
    let mut pair = two_paths(9);
    let from = pair.in_time(Duration::from_millis(500));
    let recorder = Recorder::default();
    let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 1);
    let hole = BlackHole { during: from..from + Duration::from_secs(5) };
    pair.chain(1, vec![Box::new(hole), Box::new(recorder.clone()), Box::new(link)]);
    pair.serve(&Config::default(), patient());
    pair.open(&Config::default(), Workload::of(192 * MIB));
    pair.world.run_for(Duration::from_secs(6));
    let before = recorder.payload_bytes(Direction::Forward);
    pair.world.run_for(Duration::from_secs(40));
    let after = recorder.payload_bytes(Direction::Forward);
    println!("{before} bytes before and {} behind the hole", after - before);
    assert!(after - before > 1 << 20);
}

#[test]
fn what_a_path_has_carried_is_known_after_hundreds_of_flaps() {
    const FLAPS: u64 = 200;
    let mut pair = two_paths(13);
    pair.serve(&Config::default(), patient());
    let written = 192 * MIB;
    let id = pair.open(&Config::default(), Workload::of(written));
    let path = pair.paths[1];
    for _ in 0..FLAPS {
        for is_up in [true, false] {
            pair.world.change_path(pair.client, path, |path| path.up = is_up);
            pair.world.run_for(Duration::from_millis(150));
        }
    }
    let status = pair.world.endpoint(pair.client).status(pair.world.now(), id).expect("it goes on");
    let reports = status.path_reports();
    let [first, flapping] = &reports[..] else { panic!("{reports:?}") };
    println!(
        "{} and {} bytes sent, {} delivered",
        first.bytes_sent, flapping.bytes_sent, status.bytes_delivered
    );
    assert!(flapping.subflows >= FLAPS && status.subflows.len() <= Status::MAX_SUBFLOWS, "{flapping:?}");
    // What was delivered has left by one of the paths, at least once.
    let sent = first.bytes_sent + flapping.bytes_sent - first.bytes_reinjected - flapping.bytes_reinjected;
    assert!(sent >= status.bytes_delivered, "{sent} of {}", status.bytes_delivered);
    assert!(status.bytes_delivered < written, "it was under way all the time");
}

#[test]
fn a_host_that_loses_all_subflows_silently_is_told_in_time() {
    for paths in [1, 2] {
        let mut pair = Pair::new(12, paths, Families::V4);
        for path in 0..paths {
            // The resets of the client arrive bare: MP_FASTCLOSE is taken out of them.
            pair.chain_with(path, Stripper::subtype(Moment::Always, 7));
        }
        let timeout = Duration::from_secs(20);
        let config = Config { no_subflow_timeout: timeout, ..Config::default() };
        let talk =
            pair.talk(&config, Workload::of(1000).leaving(CloseMode::Hasty), Workload::of(32 * MIB), MINUTES);
        println!("{paths} paths: {:?} after {:?}", talk.server.result, talk.duration);
        assert_eq!(talk.server.heard, 1000);
        assert!(talk.server.result.is_err(), "the client never heard what the server said");
        assert!(talk.duration < timeout * 2, "{:?}", talk.duration);
        pair.assert_clean();
    }
}

#[test]
fn the_server_announces_its_other_address_and_the_client_joins_it() {
    let mut pair = Pair::new(10, 2, Families::V4);
    let talk = pair.talk(&Config::default(), Workload::of(4 * MIB), patient(), MINUTES);
    assert!(matches!(talk.client.status.negotiated, Negotiated::Multipath { .. }));
    assert!(carried(&talk.client.status, 1), "{:#?}", talk.client.status.subflows);
    pair.assert_clean();
}

#[test]
fn an_address_that_is_not_announced_is_not_joined() {
    let mut pair = Pair::new(11, 2, Families::V4);
    let quiet = Config { announce: false, joins: Joins::None, ..Config::default() };
    let talk = pair.talk(&quiet, Workload::of(MIB), patient(), MINUTES);
    assert!(!carried(&talk.client.status, 1), "{:#?}", talk.client.status.subflows);
    pair.assert_clean();
}

#[test]
fn after_a_thousand_short_connections_long_ones_have_their_second_path_at_once() {
    let mut pair = two_paths(12);
    pair.serve(&Config::default(), Workload::of(2000).leaving(CloseMode::Waiting));
    // Each is over, or has a second subflow by another address, before some of its joins are answered.
    for _ in 0..20 {
        for _ in 0..50 {
            pair.open(&Config::default(), Workload::of(1000));
        }
        assert!(pair.world.run_talk(MINUTES));
        pair.world.dismiss_finished();
    }
    let long = || Workload::of(16 * MIB).leaving(CloseMode::Waiting);
    let ids: Vec<_> = (0..20).map(|_| pair.open(&Config::default(), long())).collect();
    pair.world.run_for(Duration::from_secs(3));
    let has_second = |id: &_| {
        let status = pair.world.endpoint(pair.client).status(pair.world.now(), *id).expect("it goes on");
        carried(&status, 1)
    };
    assert_eq!(ids.iter().filter(|id| has_second(id)).count(), 20);
}

/// Whether `path` of the client carried payload.
fn carried(status: &Status, path: u8) -> bool {
    status.subflows.iter().any(|subflow| subflow.path == PathId(path) && subflow.tcp.bytes_sent > 0)
}

/// Two paths of 20 Mbit/s.
fn two_paths(seed: u64) -> Pair {
    let mut pair = Pair::new(seed, 2, Families::V4);
    for path in 0..2 {
        pair.link(path, LinkConfig { rate: megabits(20), ..plain_link() });
    }
    pair
}

/// Says nothing, and stays until the other side has said all.
fn patient() -> Workload {
    Workload::of(0).leaving(CloseMode::Waiting)
}
