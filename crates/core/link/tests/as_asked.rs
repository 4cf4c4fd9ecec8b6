//! The output of a link matches its configuration: exactly where it is arithmetic, within bounds that a
//! right link misses about once in a million seeds where it is chance.

use plait_base::{Duration, Instant};
use plait_link::{Decision, DropReason, Link, LinkConfig, Loss, Reordering, megabits};

const PACKETS: u64 = 100_000;

#[test]
fn the_default_link_delivers_at_once_and_everything() {
    let mut link = Link::new(LinkConfig::default(), 1);
    for n in 0..1000 {
        let now = Instant::from_micros(n);
        assert_eq!(link.offer(now, 1500), Decision::Deliver { at: now, duplicate_at: None, corrupt: None });
    }
}

#[test]
fn a_packet_longer_than_the_mtu_is_dropped_and_says_why() {
    let mut link = Link::new(LinkConfig { mtu: 1400, ..LinkConfig::default() }, 1);
    assert!(matches!(link.offer(Instant::ZERO, 1400), Decision::Deliver { .. }));
    assert_eq!(link.offer(Instant::ZERO, 1401), Decision::Drop(DropReason::TooBig { mtu: 1400 }));
    assert!(matches!(link.offer_train(Instant::ZERO, 65_000, 1400), Decision::Deliver { .. }));
    assert_eq!((link.stats().offered, link.stats().delivered, link.stats().too_big), (3, 2, 1));
}

#[test]
fn an_idle_link_adds_transmission_and_propagation() {
    let config = LinkConfig { rate: megabits(10), delay: Duration::from_millis(30), ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    for second in 0..10 {
        let now = Instant::from_millis(1000 * second);
        let sent = Duration::from_micros(1200);
        assert_eq!(arrival(link.offer(now, 1500)), Some(now + sent + Duration::from_millis(30)));
    }
}

#[test]
fn a_flooded_link_carries_exactly_its_rate() {
    for mbits in [1, 7, 100, 9_999] {
        let config = LinkConfig { rate: megabits(mbits), queue_limit: 100_000, ..LinkConfig::default() };
        let mut link = Link::new(config, 1);
        let (mut last, mut bytes) = (Instant::ZERO, 0u64);
        // Twice the rate, whatever it is.
        for n in 0..PACKETS {
            let now = Instant::from_nanos(n * 1500 * 8 * 1000 / (2 * mbits));
            if let Some(at) = arrival(link.offer(now, 1500)) {
                (last, bytes) = (at, bytes + 1500);
            }
        }
        let measured = bytes as f64 * 8.0 / (last.as_nanos() as f64 / 1e9) / 1e6;
        assert!((measured / mbits as f64 - 1.0).abs() < 1e-6, "{measured} of {mbits} Mbit/s");
        let stats = link.stats();
        assert_eq!(stats.delivered + stats.queue_full, PACKETS);
        assert!(
            stats.queue_full.abs_diff(PACKETS / 2) < 100,
            "{} dropped at twice the rate",
            stats.queue_full
        );
    }
}

#[test]
fn the_queue_holds_what_it_may_and_no_more() {
    let config = LinkConfig { rate: megabits(8), queue_limit: 10_000, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    let accepted = (0..100).filter(|_| arrival(link.offer(Instant::ZERO, 1000)).is_some()).count();
    assert_eq!((accepted, link.waiting(Instant::ZERO)), (10, 10_000));
    let later = Instant::from_micros(2500);
    assert_eq!(link.waiting(later), 7500, "8 Mbit/s are a byte per microsecond");
    assert_eq!(link.offer(later, 2501), Decision::Drop(DropReason::TooBig { mtu: 1500 }));
    assert_eq!(arrival(link.offer(later, 1500)), Some(Instant::from_micros(11_500)));
    assert_eq!(arrival(link.offer(later, 1001)), None);
    assert_eq!(arrival(link.offer(later, 1000)), Some(Instant::from_micros(12_500)));
    assert_eq!(link.offer(later, 1), Decision::Drop(DropReason::QueueFull));
}

#[test]
fn without_a_queue_a_free_link_still_takes_a_packet() {
    let mut link = Link::new(LinkConfig { rate: megabits(8), queue_limit: 0, ..LinkConfig::default() }, 1);
    assert!(arrival(link.offer(Instant::ZERO, 1000)).is_some());
    assert!(arrival(link.offer(Instant::from_micros(999), 1000)).is_none());
    assert!(arrival(link.offer(Instant::from_micros(1000), 1000)).is_some());
}

#[test]
fn a_burst_passes_at_once_after_idling_and_not_twice() {
    let config = LinkConfig { rate: megabits(8), burst: 5000, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    let flood = |link: &mut Link, now| (0..7).map(|_| arrival(link.offer(now, 1000))).collect::<Vec<_>>();
    let at = |micros| Some(Instant::from_micros(micros));
    assert_eq!(flood(&mut link, Instant::ZERO), [0, 0, 0, 0, 0, 1000, 2000].map(at));
    let soon = Instant::from_micros(4000);
    assert_eq!(flood(&mut link, soon)[..3], [4000, 4000, 5000].map(at), "two of five are back");
    let late = Instant::from_millis(100);
    assert_eq!(flood(&mut link, late)[4..6], [100_000, 101_000].map(at), "all are back");
}

#[test]
fn a_change_of_rate_keeps_the_queue_and_the_order() {
    let config = LinkConfig { rate: megabits(8), delay: Duration::from_millis(50), ..LinkConfig::default() };
    let mut link = Link::new(config.clone(), 1);
    let before = (0..10).filter_map(|_| arrival(link.offer(Instant::ZERO, 1000))).last();
    let now = Instant::from_micros(5000);
    link.set_config(now, LinkConfig { rate: megabits(80), delay: Duration::ZERO, ..config.clone() });
    assert_eq!(link.waiting(now), 5000);
    assert_eq!(arrival(link.offer(now, 1000)), before, "not before those that are on their way");
    link.set_config(now, LinkConfig { rate: None, delay: Duration::ZERO, ..config });
    assert_eq!(link.waiting(now), 0);
    let late = Instant::from_millis(200);
    assert_eq!(arrival(link.offer(late, 1000)), Some(late));
}

#[test]
fn bernoulli_loss_is_as_frequent_as_asked_and_not_in_bursts() {
    for probability in [0.001, 0.02, 0.3] {
        let lost = losses(Loss::Bernoulli { probability });
        let (share, run) = (share(&lost), mean_run(&lost));
        assert!((share / probability - 1.0).abs() < 5.0 / (probability * PACKETS as f64).sqrt(), "{share}");
        assert!((run * (1.0 - probability) - 1.0).abs() < 0.1, "runs of {run}");
    }
    assert_eq!(share(&losses(Loss::ALL)), 1.0);
    assert_eq!(share(&losses(Loss::Bernoulli { probability: 0.0 })), 0.0);
    assert_eq!(share(&losses(Loss::Bernoulli { probability: f64::NAN })), 0.0);
}

#[test]
fn burst_loss_is_as_frequent_and_as_long_as_asked() {
    for (probability, length) in [(0.01, 5.0), (0.1, 20.0), (0.05, 1.0)] {
        let lost = losses(Loss::bursts(probability, length));
        let (share, run) = (share(&lost), mean_run(&lost));
        let bursts = probability * PACKETS as f64 / length;
        let bound = 8.0 / bursts.sqrt();
        assert!((share / probability - 1.0).abs() < bound, "{share} of {probability}");
        assert!((run / length - 1.0).abs() < bound, "bursts of {run}, asked {length}");
    }
}

#[test]
fn jitter_stays_within_its_bounds_uses_them_and_does_not_reorder() {
    let (delay, jitter) = (Duration::from_millis(20), Duration::from_millis(10));
    for gap in [1_000, 100_000, 7_777_777] {
        let mut link = Link::new(LinkConfig { delay, jitter, ..LinkConfig::default() }, 3);
        let (mut last, mut sum, mut low, mut high) = (Instant::ZERO, 0.0, Duration::MAX, Duration::ZERO);
        for n in 0..PACKETS * if gap == 1000 { 10 } else { 1 } {
            let now = Instant::from_nanos(n * gap);
            let at = arrival(link.offer(now, 1500)).expect("nothing is lost");
            assert!(at >= last, "in order");
            last = at;
            let took = at.saturating_since(now);
            (low, high) = (low.min(took), high.max(took));
            sum += took.as_secs_f64() / if gap == 1000 { 10.0 } else { 1.0 };
        }
        assert!(low >= delay && high <= delay + jitter, "{low:?} to {high:?}");
        assert!(low < Duration::from_millis(22) && high > Duration::from_millis(28), "{low:?} to {high:?}");
        let mean = sum / PACKETS as f64;
        assert!((mean - 0.025).abs() < 0.0025, "mean {mean} s at a gap of {gap} ns");
    }
}

/// A delay that falls as fast as time passes would bunch packets, one that jumps would need to be held.
#[test]
fn jitter_changes_the_delay_by_half_the_time_that_passes_at_most() {
    for gap in [10_000, 300_000] {
        let config = LinkConfig { jitter: Duration::from_millis(10), ..LinkConfig::default() };
        let mut link = Link::new(config, 6);
        let mut before = None;
        for n in 0..PACKETS {
            let now = Instant::from_nanos(n * gap);
            let took = arrival(link.offer(now, 1500)).expect("nothing is lost").saturating_since(now);
            let change = took.abs_diff(before.unwrap_or(took));
            assert!(change <= Duration::from_nanos(gap / 2 + 2), "{change:?} in {gap} ns");
            before = Some(took);
        }
    }
}

#[test]
fn as_many_packets_as_asked_are_overtaken_and_the_others_keep_their_order() {
    let reordering = Reordering { probability: 0.05, extra_delay: Duration::from_millis(3) };
    let config = LinkConfig { delay: Duration::from_millis(10), reordering, ..LinkConfig::default() };
    let mut link = Link::new(config, 4);
    let mut held = 0u64;
    for n in 0..PACKETS {
        let now = Instant::from_micros(100 * n);
        match arrival(link.offer(now, 1000)).expect("nothing is lost").saturating_since(now).as_millis() {
            10 => {}
            13 => held += 1,
            other => panic!("{other} ms"),
        }
    }
    assert_eq!(held, link.stats().reordered);
    assert!(held.abs_diff(PACKETS / 20) < 350, "{held}");
}

#[test]
fn as_many_packets_as_asked_arrive_twice_or_damaged() {
    let config = LinkConfig { duplication: 0.02, corruption: 0.01, ..LinkConfig::default() };
    let mut link = Link::new(config, 5);
    let (mut twice, mut damaged, mut bits) = (0u64, 0u64, [0u64; 8]);
    for n in 0..PACKETS {
        let Decision::Deliver { at, duplicate_at, corrupt } = link.offer(Instant::from_nanos(n), 1000) else {
            panic!("nothing is lost")
        };
        twice += u64::from(duplicate_at.is_some_and(|duplicate| duplicate >= at));
        if let Some(bit) = corrupt {
            damaged += 1;
            bits[usize::try_from(bit / 1000).expect("inside the packet")] += 1;
        }
    }
    assert_eq!((twice, damaged), (link.stats().duplicated, link.stats().corrupted));
    assert!(twice.abs_diff(PACKETS / 50) < 225, "{twice}");
    assert!(damaged.abs_diff(PACKETS / 100) < 160, "{damaged}");
    assert!(bits.iter().all(|count| count.abs_diff(damaged / 8) < 60), "all over the packet: {bits:?}");
}

fn arrival(decision: Decision) -> Option<Instant> {
    match decision {
        Decision::Deliver { at, .. } => Some(at),
        Decision::Drop(_) => None,
    }
}

fn losses(loss: Loss) -> Vec<bool> {
    let mut link = Link::new(LinkConfig { loss, ..LinkConfig::default() }, 2);
    (0..PACKETS).map(|n| arrival(link.offer(Instant::from_micros(n), 1500)).is_none()).collect()
}

fn share(lost: &[bool]) -> f64 {
    lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
}

/// Mean number of packets lost in a row.
fn mean_run(lost: &[bool]) -> f64 {
    let starts = usize::from(lost[0]) + lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    lost.iter().filter(|lost| **lost).count() as f64 / starts as f64
}
