//! A host that does not run for a while: its process is stopped, or the machine is suspended.

use bytes::Bytes;
use plait_base::{Duration, Instant, SeqNum};
use plait_endpoint::ConnectionId;
use plait_mptcp::{Config, ConnectionError};
use plait_sim::{
    CloseMode, Direction, Element, Families, Frame, HostIndex, LinkConfig, Outlet, Pair, PathIndex, Workload,
    megabits, plain_link, sealed,
};
use plait_wire::{Flags, OptionBytes, Segment};

const SECOND: Duration = Duration::from_secs(1);
const LONG: u64 = 200_000_000;

/// The kinds of connections that are checked.
fn configs() -> [(&'static str, Config); 2] {
    [("plain", Config::default()), ("sealed", sealed())]
}

/// Two hosts with two paths, and a download of several minutes that has run for some seconds.
fn downloading(config: &Config) -> (Pair, ConnectionId) {
    let mut pair = Pair::new(7, 2, Families::V4);
    for path in 0..2 {
        pair.link(path, LinkConfig { rate: megabits(4), ..plain_link() });
    }
    pair.serve(config, Workload::of(LONG));
    let id = pair.open(config, Workload::of(0).leaving(CloseMode::Waiting));
    pair.world.run_for(5 * SECOND);
    assert!(heard(&pair, id) > 1_000_000);
    (pair, id)
}

fn heard(pair: &Pair, id: ConnectionId) -> u64 {
    pair.world.application(pair.client, id).heard()
}

fn stop_for(pair: &mut Pair, host: HostIndex, time: Duration) {
    pair.world.stop(host);
    pair.world.run_for(time);
    pair.world.go_on(host);
}

/// The result of the client, and how long after now it comes; at most two minutes are waited.
fn end(pair: &mut Pair, id: ConnectionId) -> Option<(Result<(), ConnectionError>, Duration)> {
    let (begin, client) = (pair.world.now(), pair.client);
    pair.world.run_until(120 * SECOND, |world| world.application(client, id).outcome().is_some());
    let outcome = pair.world.application(client, id).outcome()?;
    Some((outcome.result, outcome.at.saturating_since(begin)))
}

#[test]
fn a_transfer_goes_on_within_a_second_after_either_host_was_stopped() {
    for (name, config) in configs() {
        for seconds in [3, 20, 50, 70, 100] {
            for stopped_is_client in [true, false] {
                let (mut pair, id) = downloading(&config);
                let stopped = if stopped_is_client { pair.client } else { pair.server };
                stop_for(&mut pair, stopped, seconds * SECOND);
                // What has been queued meanwhile is no progress.
                pair.world.run_for(SECOND / 5);
                let before = heard(&pair, id);
                pair.world.run_for(4 * SECOND / 5);
                let after = heard(&pair, id);
                println!("{name}, client {stopped_is_client}, {seconds} s: {} bytes", after - before);
                assert!(after > before + 100_000, "{name}, client {stopped_is_client}, {seconds} s");
            }
        }
    }
}

#[test]
fn a_connection_that_the_server_has_given_up_ends_at_once_with_that_reason() {
    for (name, config) in configs() {
        // Plain TCP repeats its data for a quarter of an hour.
        let long_enough: &[u32] = if name == "plain" { &[1800, 3600] } else { &[180, 300, 3600] };
        for &seconds in long_enough {
            let (mut pair, id) = downloading(&config);
            let client = pair.client;
            stop_for(&mut pair, client, seconds * SECOND);
            let (result, after) = end(&mut pair, id).expect("it ends");
            println!("{name}, {seconds} s: {result:?} after {after:?}");
            assert_eq!(result, Err(ConnectionError::Forgotten), "{name}, {seconds} s");
            assert!(after < SECOND, "{name}, {seconds} s: {after:?}");
        }
    }
}

#[test]
fn a_connection_that_both_hosts_keep_forever_goes_on_after_an_hour() {
    for (name, config) in configs() {
        let config = Config { no_subflow_timeout: Duration::MAX, ..config };
        for stopped_is_client in [true, false] {
            let (mut pair, id) = downloading(&config);
            let stopped = if stopped_is_client { pair.client } else { pair.server };
            stop_for(&mut pair, stopped, 3600 * SECOND);
            pair.world.run_for(SECOND);
            let before = heard(&pair, id);
            pair.world.run_for(2 * SECOND);
            assert!(heard(&pair, id) > before + 100_000, "{name}, client {stopped_is_client}");
        }
    }
}

#[test]
fn a_reset_on_one_path_ends_nothing_while_the_server_has_the_connection() {
    for (name, config) in configs() {
        let (mut pair, id) = downloading(&config);
        let client = pair.client;
        pair.world.stop(client);
        pair.world.run_for(70 * SECOND);
        pair.chain_with(0, Resetter);
        pair.world.go_on(client);
        pair.world.run_for(SECOND);
        let before = heard(&pair, id);
        pair.world.run_for(SECOND);
        assert!(heard(&pair, id) > before + 100_000, "{name}");
    }
}

#[test]
fn a_reset_on_one_path_ends_nothing_while_the_other_one_is_down_or_comes_back() {
    for (name, config) in configs() {
        for away in [1, 10] {
            let (mut pair, id) = downloading(&config);
            let (client, other) = (pair.client, PathIndex(1));
            pair.world.stop(client);
            pair.world.run_for(70 * SECOND);
            pair.chain_with(0, Resetter);
            pair.world.go_on(client);
            pair.world.change_path(client, other, |path| path.up = false);
            pair.world.run_for(away * SECOND);
            assert_eq!(pair.world.application(client, id).outcome(), None, "{name}, {away} s");
            pair.world.change_path(client, other, |path| path.up = true);
            pair.world.run_for(2 * SECOND);
            let before = heard(&pair, id);
            pair.world.run_for(SECOND);
            assert!(heard(&pair, id) > before + 100_000, "{name}, {away} s");
        }
    }
}

/// A box that answers every segment of the client by a reset.
struct Resetter;

impl Element for Resetter {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let segment = frame.segment().filter(|segment| !segment.flags.contains(Flags::RST));
        match (direction, segment) {
            (Direction::Forward, Some(segment)) => {
                let has_ack = segment.flags.contains(Flags::ACK);
                let reset = Segment {
                    source: segment.destination,
                    destination: segment.source,
                    seq: if has_ack { segment.ack } else { SeqNum::new(0) },
                    ack: segment.seq + segment.len_seq(),
                    flags: Flags::RST.with(Flags::ACK),
                    options: OptionBytes::new(),
                    payload: Bytes::new(),
                    ..segment
                };
                out.push(now, Direction::Backward, Frame::of_segment(&reset));
            }
            (Direction::Forward, None) => {}
            (Direction::Backward, _) => out.push(now, direction, frame),
        }
    }
}
