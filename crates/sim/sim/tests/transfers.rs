//! Bytes get through, whatever the paths do to them.

use plait_base::Duration;
use plait_mptcp::{Config, Negotiated, Scheduler, Status};
use plait_sim::{
    AckLoss, CloseMode, Coalescer, Conversation, Cutter, Direction, Element, Families, Link, LinkConfig,
    Loss, NarrowLink, Nat, Pair, Recorder, Reordering, SequenceRewriter, Workload, World, megabits,
    plain_link,
};

const MIB: u64 = 1 << 20;
const MINUTES: Duration = Duration::from_secs(600);

#[test]
fn one_path_carries_both_directions_over_ipv4() {
    both_directions(Families::V4, 1);
}

#[test]
fn one_path_carries_both_directions_over_ipv6() {
    both_directions(Families::V6, 1);
}

#[test]
fn two_paths_carry_both_directions_over_ipv4() {
    both_directions(Families::V4, 2);
}

#[test]
fn two_paths_carry_both_directions_over_ipv6() {
    both_directions(Families::V6, 2);
}

#[test]
fn paths_with_both_families_carry_both_directions() {
    both_directions(Families::Both, 2);
}

fn both_directions(families: Families, paths: usize) {
    let mut pair = Pair::new(1, paths, families);
    let talk = pair.talk(&Config::default(), Workload::of(2 * MIB), Workload::of(3 * MIB), MINUTES);
    assert_multipath(&talk);
    assert_eq!(talk.client.result, Ok(()));
    assert_eq!(talk.server.result, Ok(()));
    pair.assert_clean();
}

#[test]
fn nothing_to_say_on_either_side_is_an_orderly_end_too() {
    let mut pair = Pair::new(2, 1, Families::V4);
    let talk = pair.talk(&Config::default(), Workload::of(0), Workload::of(0), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    pair.assert_clean();
}

#[test]
fn one_byte_is_enough() {
    let mut pair = Pair::new(3, 1, Families::V4);
    let talk = pair.talk(&Config::default(), Workload::of(1), Workload::of(1), MINUTES);
    assert_eq!((talk.client.heard, talk.server.heard), (1, 1));
    assert_multipath(&talk);
    pair.assert_clean();
}

#[test]
fn two_equal_paths_share_the_load() {
    let mut pair = Pair::new(4, 2, Families::V4);
    for path in 0..2 {
        pair.link(path, LinkConfig { rate: megabits(20), ..plain_link() });
    }
    let talk = pair.talk(&streaming(), Workload::of(8 * MIB), patient(), MINUTES);
    let shares = shares(&talk.client.status);
    println!("{:?} for 8 MiB over 2 x 20 Mbit/s, shares {shares:?}", talk.duration);
    assert_eq!(shares.len(), 2);
    assert!(shares.iter().all(|share| *share >= 0.3), "{shares:?}");
    assert_multipath(&talk);
}

#[test]
fn two_paths_are_nearly_twice_as_fast_as_one() {
    let [one, two] = [1, 2].map(|paths| {
        let mut pair = Pair::new(5, paths, Families::V4);
        for path in 0..paths {
            pair.link(path, LinkConfig { rate: megabits(50), ..plain_link() });
        }
        pair.talk(&streaming(), Workload::of(16 * MIB), patient(), MINUTES).duration
    });
    let gain = one.as_secs_f64() / two.as_secs_f64();
    println!("16 MiB: {one:?} over one path, {two:?} over two: {gain:.2}");
    assert!(gain >= 1.7, "{gain:.2}");
}

/// How long it takes until all is there, over paths of these rates (Mbit/s) and round trips (ms), with queues of one bandwidth-delay
/// product.
fn time_over(config: &Config, paths: &[(u64, u64)], bytes: u64) -> Duration {
    let mut pair = Pair::new(13, paths.len(), Families::V4);
    for (number, &(rate, round_trip)) in paths.iter().enumerate() {
        let delay = Duration::from_micros(500 * round_trip);
        let queue_limit = 125 * rate * round_trip;
        pair.link(number, LinkConfig { rate: megabits(rate), delay, queue_limit, ..plain_link() });
    }
    pair.serve(config, patient());
    let begin = pair.world.now();
    pair.open(config, Workload::of(bytes));
    let server = pair.server;
    let is_over = |world: &World| world.accepted(server).any(|reader| reader.heard() == bytes);
    assert!(pair.world.run_until(MINUTES, is_over));
    pair.world.now().saturating_since(begin)
}

#[test]
fn a_path_that_is_much_worse_does_not_make_a_transfer_slower() {
    for (good, bad, bytes) in [((60, 20), (2, 20), MIB), ((50, 20), (5, 200), 10 * MIB)] {
        let [alone, both] =
            [&[good][..], &[good, bad]].map(|paths| time_over(&Config::default(), paths, bytes));
        println!("{bytes} bytes over {good:?}: {alone:?}, with {bad:?}: {both:?}");
        assert!(both.as_secs_f64() <= alone.as_secs_f64() / 0.9, "{bad:?}: {both:?} in place of {alone:?}");
    }
}

#[test]
fn a_short_sealed_transfer_is_not_slower_for_a_thin_second_path() {
    let [alone, both] =
        [&[(100, 20)][..], &[(100, 20), (10, 20)]].map(|paths| time_over(&plait_sim::sealed(), paths, MIB));
    assert!(both.as_secs_f64() <= alone.as_secs_f64() / 0.97, "{both:?} in place of {alone:?}");
}

#[test]
fn what_was_written_at_once_uses_both_paths_although_the_writer_has_gone() {
    let mut pair = Pair::new(5, 2, Families::V4);
    for path in 0..2 {
        pair.link(path, LinkConfig { rate: megabits(20), ..plain_link() });
    }
    let recorder = Recorder::default();
    let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 1);
    pair.chain(1, vec![Box::new(recorder.clone()), Box::new(link)]);
    pair.talk(&Config::default(), Workload::of(8 * MIB).leaving(CloseMode::Hasty), patient(), MINUTES);
    let second = recorder.payload_bytes(Direction::Forward) as u64;
    assert!(second > 2 * MIB, "{second} bytes on the second path");
}

#[test]
fn the_link_is_filled() {
    let mut pair = Pair::new(6, 1, Families::V4);
    pair.link(0, LinkConfig { rate: megabits(50), ..plain_link() });
    let talk = pair.talk(&Config::default(), Workload::of(16 * MIB), patient(), MINUTES);
    let goodput = 16.0 * MIB as f64 * 8.0 / talk.duration.as_secs_f64() / 1e6;
    println!("{goodput:.1} of 50 Mbit/s");
    assert!(goodput > 40.0, "{goodput:.1} Mbit/s");
}

#[test]
fn every_scheduler_delivers() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant] {
        let mut pair = Pair::new(7, 2, Families::V4);
        pair.link(
            1,
            LinkConfig {
                delay: Duration::from_millis(30),
                loss: Loss::Bernoulli { probability: 0.01 },
                ..plain_link()
            },
        );
        let config = Config { scheduler, ..Config::default() };
        let talk = pair.talk(&config, Workload::of(2 * MIB), Workload::of(MIB), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "{scheduler:?}");
        pair.assert_clean();
    }
}

#[test]
fn a_reader_that_sleeps_holds_the_writer_back_and_loses_nothing() {
    let mut pair = Pair::new(8, 2, Families::V4);
    let config = Config { receive_buffer: 256 << 10, send_buffer: 512 << 10, ..Config::default() };
    let awake = pair.in_time(Duration::from_secs(20));
    let sleeper = patient().reading_from(awake);
    let talk = pair.talk(&config, Workload::of(4 * MIB), sleeper, MINUTES);
    assert_eq!(talk.server.heard, 4 * MIB);
    assert!(talk.duration > Duration::from_secs(20));
    pair.assert_clean();
}

#[test]
fn random_loss_is_repaired() {
    impaired(LinkConfig { loss: Loss::Bernoulli { probability: 0.02 }, ..plain_link() });
}

#[test]
fn bursts_of_loss_are_repaired() {
    impaired(LinkConfig { loss: Loss::bursts(0.015, 5.0), ..plain_link() });
}

#[test]
fn reordering_is_put_right() {
    impaired(LinkConfig {
        reordering: Reordering { probability: 0.05, extra_delay: Duration::from_millis(5) },
        ..plain_link()
    });
}

#[test]
fn jitter_does_no_harm() {
    impaired(LinkConfig { jitter: Duration::from_millis(15), ..plain_link() });
}

#[test]
fn duplicates_are_dropped() {
    impaired(LinkConfig { duplication: 0.1, ..plain_link() });
}

#[test]
fn flipped_bits_are_noticed_by_the_checksum() {
    impaired(LinkConfig { corruption: 0.02, ..plain_link() });
}

#[test]
fn a_short_queue_is_lived_with() {
    impaired(LinkConfig { rate: megabits(20), queue_limit: 15_000, ..plain_link() });
}

#[test]
fn everything_at_once_is_survived() {
    impaired(LinkConfig {
        delay: Duration::from_millis(25),
        jitter: Duration::from_millis(5),
        rate: megabits(30),
        loss: Loss::Bernoulli { probability: 0.01 },
        reordering: Reordering { probability: 0.02, extra_delay: Duration::from_millis(5) },
        duplication: 0.02,
        corruption: 0.01,
        ..plain_link()
    });
}

/// Both directions over two impaired paths, with and without the checksum of RFC 8684.
fn impaired(model: LinkConfig) {
    for checksum in [false, true] {
        let mut pair = Pair::new(9, 2, Families::V4);
        pair.link(0, model.clone());
        pair.link(1, model.clone());
        let config = Config { checksum, ..Config::default() };
        let talk = pair.talk(&config, Workload::of(2 * MIB), Workload::of(MIB), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "checksum {checksum}");
        assert_multipath(&talk);
        pair.assert_clean();
    }
}

#[test]
fn lost_acknowledgments_do_no_harm() {
    crossed(|| Box::new(AckLoss::new(0.4, 1)));
}

#[test]
fn segments_may_be_split() {
    crossed(|| Box::new(Cutter { size: 500 }));
}

#[test]
fn segments_may_be_merged_on_the_wire() {
    crossed(|| Box::new(Coalescer::wire(4000)));
}

#[test]
fn segments_may_be_merged_by_receive_offload() {
    crossed(|| Box::new(Coalescer::offload()));
}

#[test]
fn sequence_numbers_may_be_rewritten() {
    crossed(|| Box::new(SequenceRewriter { forward: 0x9000_0001, backward: 77 }));
}

#[test]
fn a_router_may_say_that_packets_are_too_big() {
    crossed(|| Box::new(NarrowLink { mtu: 1300, speaks: true }));
}

#[test]
fn a_router_may_swallow_packets_that_are_too_big() {
    crossed(|| Box::new(NarrowLink { mtu: 1300, speaks: false }));
}

/// Both directions over two paths with this box in them.
fn crossed(element: impl Fn() -> Box<dyn Element>) {
    for checksum in [false, true] {
        let mut pair = Pair::new(10, 2, Families::Both);
        for path in 0..2 {
            let link = Link::new(LinkConfig { rate: megabits(50), ..plain_link() }, 3);
            pair.chain(path, vec![Box::new(link), element()]);
        }
        let config = Config { checksum, ..Config::default() };
        let talk = pair.talk(&config, Workload::of(2 * MIB), Workload::of(MIB), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "checksum {checksum}");
        assert_multipath(&talk);
        pair.assert_clean();
    }
}

#[test]
fn a_translator_of_addresses_is_no_obstacle() {
    let mut pair = Pair::new(11, 2, Families::V4);
    for path in 0..2 {
        let public = format!("203.0.113.{}", path + 1).parse().expect("an address");
        let server = pair.server_address(path).ip();
        pair.world.route(server, public, pair.paths[path], Direction::Backward);
        pair.chain_with(path, Nat::new(public));
    }
    let talk = pair.talk(&Config::default(), Workload::of(2 * MIB), Workload::of(MIB), MINUTES);
    assert_multipath(&talk);
    assert_eq!(usable_paths(&talk.client.status), 2, "the second path was joined through its translator");
    pair.assert_clean();
}

#[test]
fn a_server_with_one_address_is_reached_over_both_paths_of_the_client() {
    let mut pair = Pair::new(12, 1, Families::V4);
    let beside = pair.world.add_path_beside(pair.client, pair.paths[0], Families::V4);
    let recorder = Recorder::default();
    pair.world.set_chain(beside, vec![Box::new(recorder.clone()), Box::new(Link::new(plain_link(), 5))]);
    let talk = pair.talk(&Config::default(), Workload::of(4 * MIB), patient(), MINUTES);
    assert_multipath(&talk);
    assert!(recorder.payload_bytes(Direction::Forward) > 0, "the second path carried data");
    pair.assert_clean();
}

/// With buffers that do not swallow a whole transfer at once: the writer stays until nearly the end.
fn streaming() -> Config {
    Config { send_buffer: 1 << 20, ..Config::default() }
}

fn assert_multipath(talk: &Conversation) {
    for (side, outcome) in [("client", &talk.client), ("server", &talk.server)] {
        let negotiated = outcome.status.negotiated;
        assert!(matches!(negotiated, Negotiated::Multipath { version: 1, .. }), "{side}: {negotiated:?}");
    }
}

/// The part of the payload that each path carried.
fn shares(status: &Status) -> Vec<f64> {
    let sent: Vec<_> = status.subflows.iter().map(|subflow| subflow.tcp.bytes_sent as f64).collect();
    let all: f64 = sent.iter().sum();
    sent.iter().filter(|sent| **sent > 0.0).map(|sent| sent / all).collect()
}

/// Subflows that carried something.
fn usable_paths(status: &Status) -> usize {
    shares(status).len()
}

/// Says nothing, and stays until the other side has said all.
fn patient() -> Workload {
    Workload::of(0).leaving(CloseMode::Waiting)
}
