//! Scrambled connections through whole hosts and the boxes between them.

use plait_base::Duration;
use plait_mptcp::{
    Config, ConnectionError, Negotiated, PathClass, Protect, ScrambleSettings, ScrambleStart, Unscrambled,
};
use plait_sim::{Families, LinkConfig, Loss, Moment, Pair, Reordering, Stripper, Workload, plain_link};

fn bad_link() -> LinkConfig {
    LinkConfig {
        loss: Loss::Bernoulli { probability: 0.01 },
        reordering: Reordering { probability: 0.05, extra_delay: Duration::from_millis(15) },
        duplication: 0.01,
        ..plain_link()
    }
}

const MIB: u64 = 1 << 20;

fn scrambled() -> Config {
    Config { protect: Protect::Scramble(ScrambleSettings::default()), ..Config::default() }
}

#[test]
fn every_byte_is_the_right_one_over_bad_paths_both_ways() {
    for (seed, start) in [(1, ScrambleStart::Key8), (2, ScrambleStart::HmacSha1)] {
        let settings = ScrambleSettings { start, ..ScrambleSettings::default() };
        let config = Config { protect: Protect::Scramble(settings), ..Config::default() };
        let mut pair = Pair::new(seed, 2, Families::V4);
        pair.world.change_path(pair.client, pair.paths[1], |path| path.class = PathClass::Untrusted);
        for path in 0..2 {
            pair.link(path, bad_link());
        }
        let talk = pair.talk(&config, Workload::of(2 * MIB), Workload::of(MIB), Duration::from_secs(300));
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
        let version_2 = Negotiated::Multipath { version: 2, checksum: false };
        for side in [&talk.client.status, &talk.server.status] {
            assert_eq!(side.negotiated, version_2);
            assert_eq!(side.scrambling.expect("agreed on").start, start);
        }
        pair.assert_clean();
    }
}

#[test]
fn a_listener_without_scrambling_ends_it_before_the_first_byte() {
    let mut pair = Pair::new(3, 1, Families::V4);
    pair.serve(&Config::default(), Workload::of(10));
    let id = pair.open(&scrambled(), Workload::of(10));
    pair.world.run_for(Duration::from_secs(5));
    let outcome = pair.world.application(pair.client, id).outcome().expect("it is over").clone();
    assert_eq!(outcome.result, Err(ConnectionError::NotScrambled(Unscrambled::Multipath)));
    assert_eq!(outcome.heard, 0);
    pair.assert_clean();
}

#[test]
fn a_box_that_strips_the_options_ends_it_too() {
    for moment in [Moment::Syn, Moment::SynAck, Moment::Later, Moment::Always] {
        let mut pair = Pair::new(4, 1, Families::V4);
        pair.chain_with(0, Stripper::all(moment));
        pair.serve(&scrambled(), Workload::of(10));
        let id = pair.open(&scrambled(), Workload::of(10));
        pair.world.run_for(Duration::from_secs(200));
        let outcome = pair.world.application(pair.client, id).outcome().expect("it is over").clone();
        assert!(outcome.result.is_err(), "{moment:?}");
        assert_eq!(outcome.heard, 0);
        pair.assert_clean();
    }
}
