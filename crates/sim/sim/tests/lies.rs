//! An attacker on the path forges segments.

use plait_base::{Duration, Instant};
use plait_mptcp::{Config, Negotiated, PlainReason};
use plait_sim::{
    CloseMode, Corruptor, Direction, Element, Families, Forger, Forgery, Link, LinkConfig, Mutator, Pair,
    Workload, megabits, plain_link,
};

const MIB: u64 = 1 << 20;
const MINUTES: Duration = Duration::from_secs(600);

#[test]
fn a_changed_payload_costs_a_subflow_and_is_sent_again_on_the_other() {
    for path in [0, 1] {
        let mut pair = Pair::new(1, 2, Families::V4);
        let since = pair.in_time(Duration::from_millis(300));
        liar(&mut pair, path, Corruptor::new(Direction::Forward, since, 1));
        liar(&mut pair, 1 - path, Honest);
        let config = Config { checksum: true, ..Config::default() };
        let talk = pair.talk(&config, Workload::of(8 * MIB), Workload::of(MIB), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "path {path}");
        assert_eq!(talk.server.heard, 8 * MIB);
        assert!(matches!(talk.client.status.negotiated, Negotiated::Multipath { checksum: true, .. }));
        pair.assert_clean();
    }
}

#[test]
fn a_changed_payload_on_the_only_path_ends_multipath_and_not_the_connection() {
    // RFC 8684, section 3.7: with one subflow the box on the way is taken to know what it does; both fall
    // back to TCP, and what it made of the data is delivered.
    let mut pair = Pair::new(2, 1, Families::V4);
    let since = pair.in_time(Duration::from_millis(300));
    liar(&mut pair, 0, Corruptor::new(Direction::Forward, since, 1));
    let config = Config { checksum: true, ..Config::default() };
    let listener = patient().counting_wrong_bytes();
    let talk = pair.talk(&config, Workload::of(4 * MIB), listener, MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    assert_eq!((talk.server.heard, talk.server.wrong), (4 * MIB, 1));
    assert_eq!(talk.server.status.negotiated, Negotiated::Plain(PlainReason::ChecksumFailed));
    pair.assert_clean();
}

#[test]
fn without_the_checksum_a_changed_payload_is_not_detected() {
    let mut pair = Pair::new(2, 2, Families::V4);
    for path in 0..2 {
        // Behind slow start, in which the changed segment may be lost, or come by the other path first.
        let since = pair.in_time(Duration::from_millis(700));
        liar(&mut pair, path, Corruptor::new(Direction::Forward, since, 1));
    }
    let talk =
        pair.talk(&Config::default(), Workload::of(4 * MIB), patient().counting_wrong_bytes(), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    assert_eq!(talk.server.wrong, 2, "which is what the checksum is for");
}

#[test]
fn a_forged_reset_costs_one_subflow_and_no_byte() {
    for path in [0, 1] {
        let mut pair = Pair::new(3, 2, Families::V4);
        liar(&mut pair, path, Forger::new(Direction::Forward, Forgery::Reset, 100));
        liar(&mut pair, 1 - path, Honest);
        let talk = pair.talk(&Config::default(), Workload::of(8 * MIB), patient(), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "path {path}");
        println!("reset on path {path}: longest gap {:?}", talk.server.longest_gap);
        pair.assert_clean();
    }
}

#[test]
fn a_forged_fin_is_not_the_end_of_the_data() {
    for path in [0, 1] {
        let mut pair = Pair::new(4, 2, Families::V4);
        liar(&mut pair, path, Forger::new(Direction::Forward, Forgery::Fin, 100));
        liar(&mut pair, 1 - path, Honest);
        let talk = pair.talk(&Config::default(), Workload::of(8 * MIB), patient(), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "path {path}");
        assert_eq!(talk.server.heard, 8 * MIB);
    }
}

#[test]
fn forged_data_without_a_mapping_is_not_delivered() {
    for path in [0, 1] {
        let mut pair = Pair::new(5, 2, Families::V4);
        liar(&mut pair, path, Forger::new(Direction::Forward, Forgery::Data, 100));
        liar(&mut pair, 1 - path, Honest);
        let talk = pair.talk(&Config::default(), Workload::of(8 * MIB), patient(), MINUTES);
        assert_eq!(talk.server.heard, 8 * MIB, "path {path}");
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "path {path}");
    }
}

#[test]
fn mutated_segments_never_make_a_host_panic() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed, 2, Families::V4);
        let window = Instant::ZERO..pair.in_time(Duration::from_secs(20));
        for path in 0..2 {
            liar(&mut pair, path, Mutator::new(0.05, window.clone(), seed * 2 + path as u64));
        }
        let config = Config { checksum: seed % 2 == 0, ..Config::default() };
        let workload = Workload::of(MIB / 4).counting_wrong_bytes();
        pair.serve(&config, workload);
        for _ in 0..4 {
            pair.open(&config, workload);
        }
        // Some of it may fail, and some of it may be wrong where there is no checksum; all of it ends.
        pair.world.run_for(Duration::from_secs(60));
        for host in [pair.client, pair.server] {
            assert!(pair.world.endpoint(host).counters().connections <= 8);
        }
    }
}

/// A box that does nothing.
struct Honest;

impl Element for Honest {
    fn pass(
        &mut self,
        now: Instant,
        direction: Direction,
        frame: plait_sim::Frame,
        out: &mut plait_sim::Outlet,
    ) {
        out.push(now, direction, frame);
    }
}

/// A path of 20 Mbit/s with this box in it.
fn liar(pair: &mut Pair, path: usize, element: impl Element + 'static) {
    let model = LinkConfig { rate: megabits(20), ..plain_link() };
    pair.chain(path, vec![Box::new(element), Box::new(Link::new(model, path as u64))]);
}

/// Says nothing, and stays until the other side has said all.
fn patient() -> Workload {
    Workload::of(0).leaving(CloseMode::Waiting)
}
