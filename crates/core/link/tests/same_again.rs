//! The same seed gives the same decisions, and decisions of one kind leave those of another alone.

use plait_base::{Duration, Instant};
use plait_link::{Decision, Link, LinkConfig, Loss, Reordering, megabits};
use proptest::prelude::*;

#[test]
fn another_seed_decides_otherwise() {
    let run = |seed| decisions(lossy(), seed);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn adding_one_kind_of_chance_does_not_change_the_others() {
    let lost =
        |config| decisions(config, 9).iter().map(|v| matches!(v, Decision::Drop(_))).collect::<Vec<_>>();
    let only_loss = LinkConfig { loss: lossy().loss, ..LinkConfig::default() };
    let everything = LinkConfig { rate: None, ..lossy() };
    assert_eq!(lost(only_loss), lost(everything));
}

#[test]
fn only_a_faithful_link_may_carry_trains() {
    let plain = LinkConfig { rate: megabits(1), jitter: Duration::from_millis(1), ..LinkConfig::default() };
    assert!(plain.is_faithful());
    let reordering = Reordering { probability: 0.1, extra_delay: Duration::from_millis(1) };
    for unfaithful in [
        LinkConfig { loss: Loss::ALL, ..plain.clone() },
        LinkConfig { reordering, ..plain.clone() },
        LinkConfig { duplication: 0.1, ..plain.clone() },
        LinkConfig { corruption: 0.1, ..plain },
    ] {
        assert!(!unfaithful.is_faithful());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No packet arrives before it could have, or is heard of twice without being duplicated; the books
    /// balance; what is not held back keeps its order, over changes of the configuration too.
    #[test]
    fn any_link_is_causal_and_its_books_balance(
        configs in prop::collection::vec(config(), 1..4),
        offers in prop::collection::vec((0..3_000_000u64, 0..2000u32), 1..200),
        seed: u64,
    ) {
        let mut link = Link::new(configs[0].clone(), seed);
        let mut again = Link::new(configs[0].clone(), seed);
        let (mut now, mut last) = (Instant::ZERO, Instant::ZERO);
        for (n, (gap, len)) in offers.iter().enumerate() {
            now += Duration::from_nanos(*gap);
            if n % 50 == 49 {
                let config = &configs[n / 50 % configs.len()];
                link.set_config(now, config.clone());
                again.set_config(now, config.clone());
            }
            let reordered = link.stats().reordered;
            let decision = link.offer(now, *len);
            prop_assert_eq!(decision, again.offer(now, *len));
            prop_assert!(link.waiting(now) <= link.config().queue_limit.max(2000) || n >= 49);
            if let Decision::Deliver { at, duplicate_at, corrupt } = decision {
                prop_assert!(at >= now + link.config().delay);
                prop_assert!(duplicate_at.is_none_or(|duplicate| duplicate >= at));
                prop_assert!(corrupt.is_none_or(|bit| bit < u64::from(*len) * 8));
                if link.stats().reordered == reordered {
                    prop_assert!(at >= last, "order is kept");
                    last = at;
                }
            }
        }
        let stats = link.stats();
        prop_assert_eq!(stats.offered, offers.len() as u64);
        prop_assert_eq!(stats.offered, stats.delivered + stats.lost + stats.queue_full + stats.too_big);
    }
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let loss = prop_oneof![
        Just(Loss::None),
        (0.0..1.0f64).prop_map(|probability| Loss::Bernoulli { probability }),
        (0.0..0.9f64, 1.0..20.0f64).prop_map(|(share, length)| Loss::bursts(share, length)),
    ];
    let millis = || (0..200u64).prop_map(Duration::from_millis);
    (
        (prop_oneof![Just(0), 1..2000u64], 0..100_000u64, 0..200_000u64, 500..2000u32),
        (millis(), millis(), loss, 0.0..1.0f64, millis(), 0.0..1.0f64, 0.0..1.0f64),
    )
        .prop_map(|((mbits, burst, queue_limit, mtu), rest)| {
            let (delay, jitter, loss, probability, extra_delay, duplication, corruption) = rest;
            let reordering = Reordering { probability, extra_delay };
            let rate = megabits(mbits);
            let config = LinkConfig { rate, burst, queue_limit, mtu, ..LinkConfig::default() };
            LinkConfig { delay, jitter, loss, reordering, duplication, corruption, ..config }
        })
}

fn lossy() -> LinkConfig {
    LinkConfig {
        rate: megabits(100),
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(2),
        loss: Loss::bursts(0.05, 3.0),
        reordering: Reordering { probability: 0.1, extra_delay: Duration::from_millis(1) },
        duplication: 0.1,
        corruption: 0.1,
        ..LinkConfig::default()
    }
}

fn decisions(config: LinkConfig, seed: u64) -> Vec<Decision> {
    let mut link = Link::new(config, seed);
    (0..2000).map(|n| link.offer(Instant::from_micros(n * 120), 1500)).collect()
}
