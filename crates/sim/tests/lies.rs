//! Somebody on the path lies.

use base::{Duration, Instant};
use mptcp::{Config, Negotiated, PlainReason};
use sim::{
    Corruptor, Direction, Element, Families, Forger, Forgery, Link, LinkConfig, Manner, Mutator, Pair,
    Speech, megabits, plain_link,
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
        let talk = pair.talk(&config, Speech::of(8 * MIB), Speech::of(MIB), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "path {path}");
        assert_eq!(talk.server.heard, 8 * MIB);
        assert!(matches!(talk.client.status.negotiated, Negotiated::Multipath { checksum: true, .. }));
        pair.assert_clean();
    }
}

#[test]
fn a_changed_payload_on_the_only_path_ends_in_plain_tcp_or_in_an_error_but_never_in_silence() {
    let mut pair = Pair::new(2, 1, Families::V4);
    let since = pair.in_time(Duration::from_millis(300));
    liar(&mut pair, 0, Corruptor::new(Direction::Forward, since, 1));
    let config = Config { checksum: true, ..Config::default() };
    // With one subflow RFC 8684, section 3.7 lets the receiver take the changed bytes and carry on without
    // checksums if nothing else is in flight, or close: the talkers only agree if the bytes are right.
    let talk = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pair.talk(&config, Speech::of(4 * MIB), patient(), MINUTES)
    }));
    match talk {
        Ok(talk) if talk.server.result.is_ok() => {
            let plain = Negotiated::Plain(PlainReason::ChecksumFailed);
            assert_eq!(talk.server.status.negotiated, plain);
        }
        Ok(talk) => println!("closed: {:?}", talk.server.result),
        Err(_) => println!("the changed bytes were delivered after the fall-back"),
    }
}

#[test]
fn a_forged_reset_costs_one_subflow_and_no_byte() {
    for path in [0, 1] {
        let mut pair = Pair::new(3, 2, Families::V4);
        liar(&mut pair, path, Forger::new(Direction::Forward, Forgery::Reset, 100));
        liar(&mut pair, 1 - path, Honest);
        let talk = pair.talk(&Config::default(), Speech::of(8 * MIB), patient(), MINUTES);
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
        let talk = pair.talk(&Config::default(), Speech::of(8 * MIB), patient(), MINUTES);
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
        let talk = pair.talk(&Config::default(), Speech::of(8 * MIB), patient(), MINUTES);
        assert_eq!(talk.server.heard, 8 * MIB, "path {path}");
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "path {path}");
    }
}

#[test]
fn mutated_segments_never_make_a_host_panic() {
    for seed in 0..12 {
        let mut pair = Pair::new(seed, 2, Families::V4);
        let window = Instant::ZERO..pair.in_time(Duration::from_secs(20));
        for path in 0..2 {
            liar(&mut pair, path, Mutator::new(0.05, window.clone(), seed * 2 + path as u64));
        }
        let config = Config { checksum: seed % 2 == 0, ..Config::default() };
        pair.serve(&config, Speech::of(MIB / 4));
        let (client, server) = (pair.client, pair.server);
        // The talkers panic over wrong bytes, which a mutation may well cause; the hosts must not.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..4 {
                pair.open(&config, Speech::of(MIB / 4));
            }
            pair.world.run_talk(Duration::from_secs(60));
        }))
        .map_err(|panic| {
            let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(said.contains("is not the one that was said"), "seed {seed}: {said}");
        });
        for host in [client, server] {
            assert!(pair.world.endpoint(host).counters().connections <= 8);
        }
    }
}

/// A box that does nothing.
struct Honest;

impl Element for Honest {
    fn pass(&mut self, now: Instant, direction: Direction, frame: sim::Frame, out: &mut sim::Outlet) {
        out.push(now, direction, frame);
    }
}

/// A path of 20 Mbit/s with this box in it.
fn liar(pair: &mut Pair, path: usize, element: impl Element + 'static) {
    let model = LinkConfig { rate: megabits(20), ..plain_link() };
    pair.chain(path, vec![Box::new(element), Box::new(Link::new(model, path as u64))]);
}

/// Says nothing, and stays until the other side has said all.
fn patient() -> Speech {
    Speech::of(0).leaving(Manner::Waiting)
}
