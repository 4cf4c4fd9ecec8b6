//! Networks that choose one of several ways by the flow label (RFC 6438), where one of them is dead.

use plait_base::{Duration, Instant};
use plait_mptcp::Config;
use plait_sim::{Conversation, Direction, Element, Families, Frame, Outlet, Pair, Workload};

const MIB: u64 = 1 << 20;
const MINUTES: Duration = Duration::from_secs(600);

/// A path with several ways of equal cost, a power of two; from some moment on one of them swallows what goes over it.
struct EqualCost {
    ways: u32,
    /// The way that the first segment in this direction takes is the one that dies.
    fails: Direction,
    from: Instant,
    dead: Option<u32>,
}

impl Element for EqualCost {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(segment) = frame.segment() else { return };
        let way = segment.flow_label.wrapping_mul(0x9e37_79b1) >> 16 & (self.ways - 1);
        if direction == self.fails {
            let dead = *self.dead.get_or_insert(way);
            if now >= self.from && way == dead {
                return;
            }
        }
        out.push(now, direction, frame);
    }
}

fn over(families: Families, fails: Direction, seed: u64, after: Duration) -> Conversation {
    let mut pair = Pair::new(seed, 1, families);
    let from = pair.in_time(after);
    pair.chain_with(0, EqualCost { ways: 8, fails, from, dead: None });
    let talk = pair.talk(&Config::default(), Workload::of(2 * MIB), Workload::of(2 * MIB), MINUTES);
    pair.assert_clean();
    talk
}

#[test]
fn a_connection_leaves_a_dead_way_by_its_timeouts() {
    for seed in 0..8 {
        for fails in [Direction::Forward, Direction::Backward] {
            let talk = over(Families::V6, fails, seed, Duration::from_millis(100));
            assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
            let gap = talk.client.longest_gap.max(talk.server.longest_gap);
            println!("seed {seed}, {fails:?}: longest gap {gap:?}");
            assert!(gap < Duration::from_secs(3), "seed {seed}, {fails:?}: {gap:?}");
        }
    }
}

#[test]
fn a_connection_is_opened_though_its_first_way_is_dead() {
    for seed in 0..8 {
        for fails in [Direction::Forward, Direction::Backward] {
            let talk = over(Families::V6, fails, seed, Duration::ZERO);
            assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
            println!("seed {seed}, {fails:?}: {:?}", talk.duration);
            assert!(talk.duration < Duration::from_secs(20), "seed {seed}, {fails:?}: {:?}", talk.duration);
        }
    }
}

/// The twin that fails: all IPv4 packets between two ports go the same way.
#[test]
fn without_labels_a_dead_way_is_not_left() {
    let mut pair = Pair::new(1, 1, Families::V4);
    let from = pair.in_time(Duration::from_millis(100));
    pair.chain_with(0, EqualCost { ways: 8, fails: Direction::Forward, from, dead: None });
    pair.serve(&Config::default(), Workload::of(2 * MIB));
    let id = pair.open(&Config::default(), Workload::of(2 * MIB));
    pair.world.run_for(Duration::from_secs(30));
    assert!(pair.world.application(pair.client, id).outcome().is_none(), "nothing arrives any more");
}
