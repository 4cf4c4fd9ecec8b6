//! BBR (draft-ietf-ccwg-bbr) over bottlenecks: what it finds, what it leaves in queues, and what losses and liars do to it.

mod pair;

use pair::{Pair, Path, Side, loss, plain_link, record};
use plait_base::{Duration, Instant};
use plait_link::{LinkConfig, Loss, megabits};
use plait_tcp::congestion::Algorithm;
use plait_tcp::{Config, Stats};
use plait_wire::Flags;

/// 50 Mbit/s and 20 ms: 125 kB on their way.
const RATE: u64 = 50;
const PRODUCT: u64 = 125_000;
const RECORD: usize = 60_000;

/// Queue before the bottleneck, in bandwidth-delay products.
fn bottleneck(queue: f64) -> Path {
    let queue_limit = (PRODUCT as f64 * queue) as u64;
    let forward = LinkConfig { rate: megabits(RATE), queue_limit, ..plain_link() };
    Path { forward, backward: plain_link(), merge: false }
}

fn with_forward(path: &Path, change: impl FnOnce(&mut LinkConfig)) -> Path {
    let mut path = path.clone();
    change(&mut path.forward);
    path
}

fn config(congestion: Algorithm) -> Config {
    Config { congestion, ..Config::default() }
}

/// A sender with as much to send as leaves, looked at each millisecond.
struct Flow {
    pair: Pair,
    given: usize,
    start: Instant,
    /// When which phase began.
    phases: Vec<(Duration, &'static str)>,
    /// Bytes that waited at each look.
    waiting: Vec<u64>,
}

impl Flow {
    fn new(congestion: Algorithm, path: &Path) -> Self {
        Self::seeded(7, congestion, path)
    }

    fn seeded(seed: u64, congestion: Algorithm, path: &Path) -> Self {
        let pair = Pair::established(seed, config(congestion), path);
        let start = pair.now;
        Self { pair, given: 0, start, phases: Vec::new(), waiting: Vec::new() }
    }

    fn feed(&mut self) {
        while self.pair.a.tcp.unsent() < 2 * RECORD {
            self.pair.a.tcp.send(record(self.given, RECORD));
            self.given += RECORD;
        }
    }

    fn elapsed(&self) -> Duration {
        self.pair.now.saturating_since(self.start)
    }

    fn look(&mut self) {
        let phase = self.pair.a.tcp.congestion().phase();
        if self.phases.last().is_none_or(|&(_, last)| last != phase) {
            self.phases.push((self.elapsed(), phase));
        }
        self.waiting.push(self.pair.waiting());
    }

    /// Sends for this time. Returns the goodput as a part of a bottleneck of `RATE`.
    fn run(&mut self, millis: u64) -> f64 {
        let before = self.pair.a.tcp.acked_offset();
        self.waiting.clear();
        for _ in 0..millis {
            self.feed();
            self.pair.run_for(Duration::from_millis(1));
            self.look();
        }
        let bytes = self.pair.a.tcp.acked_offset() - before;
        bytes as f64 / (millis as f64 * (RATE * 125) as f64)
    }

    /// Lets time pass in which nothing is given to be sent.
    fn rest(&mut self, millis: u64) {
        for _ in 0..millis {
            self.pair.run_for(Duration::from_millis(1));
            self.look();
        }
    }

    fn stats(&self) -> Stats {
        self.pair.a.tcp.stats()
    }

    /// Mbit/s at which it wants to send.
    fn pace(&self) -> f64 {
        self.pair.a.tcp.congestion().own_rate().unwrap_or(0) as f64 / 125_000.0
    }

    /// What waited at most and on average in the last run, in products.
    fn queue(&self) -> (f64, f64) {
        let most = self.waiting.iter().copied().max().unwrap_or(0);
        let sum: u64 = self.waiting.iter().sum();
        (most as f64 / PRODUCT as f64, sum as f64 / self.waiting.len().max(1) as f64 / PRODUCT as f64)
    }

    fn began(&self, phase: &str) -> Vec<Duration> {
        self.phases.iter().filter(|(_, name)| *name == phase).map(|(at, _)| *at).collect()
    }

    /// Wire segments lost of those sent since `before`.
    fn lost_since(&self, before: &Stats) -> f64 {
        let now = self.stats();
        (now.segments_lost - before.segments_lost) as f64 / (now.segments_sent - before.segments_sent) as f64
    }
}

#[test]
fn startup_finds_the_rate_in_a_few_round_trips_and_drain_empties_the_queue() {
    let mut flow = Flow::new(Algorithm::Bbr, &bottleneck(10.0));
    flow.run(500);
    let names: Vec<_> = flow.phases.iter().map(|(_, name)| *name).collect();
    assert_eq!(names[0], "Startup", "{:?}", flow.phases);
    let drain = flow.began("Drain")[0];
    assert!(
        drain <= Duration::from_millis(20 * 14),
        "four doublings, and three round trips without: {drain:?}"
    );
    let cruise = flow.began("ProbeBW_CRUISE")[0];
    assert!(cruise - drain <= Duration::from_millis(100), "{:?}", flow.phases);
    assert!((46.0..50.0).contains(&flow.pace()), "{} Mbit/s", flow.pace());
    let waiting = flow.pair.waiting();
    assert!(waiting < PRODUCT / 10, "{waiting} bytes wait");
}

#[test]
fn a_deep_queue_stays_short_where_cubic_fills_it() {
    let mut bbr = Flow::new(Algorithm::Bbr, &bottleneck(10.0));
    bbr.run(2000);
    let goodput = bbr.run(10_000);
    let (most, average) = bbr.queue();
    assert!(goodput > 0.9, "{goodput}");
    assert!(most < 1.5 && average < 0.5, "at most {most} products wait, {average} on average");

    let mut cubic = Flow::new(Algorithm::Cubic, &bottleneck(10.0));
    cubic.run(2000);
    cubic.run(10_000);
    assert!(cubic.queue().0 > 8.0, "{:?}", cubic.queue());
}

#[test]
fn random_loss_of_two_percent_costs_little() {
    let lossy = with_forward(&bottleneck(1.0), |link| link.loss = loss(20.0));
    let mut rates = [5, 6, 7].map(|seed| {
        let mut flow = Flow::seeded(seed, Algorithm::Bbr, &lossy);
        flow.run(1000);
        flow.run(12_000)
    });
    rates.sort_by(f64::total_cmp);
    println!("of the rate at 2 % loss: {rates:.3?}");
    assert!(rates[1] > 0.8, "{rates:?}");
    let mut cubic = Flow::new(Algorithm::Cubic, &lossy);
    cubic.run(1000);
    let rate = cubic.run(12_000);
    assert!(rate < 0.3, "CUBIC: {rate}");
}

#[test]
fn an_owner_with_little_to_send_neither_loses_the_estimate_nor_inflates_it() {
    let mut flow = Flow::new(Algorithm::Bbr, &bottleneck(4.0));
    flow.run(3000);
    let known = flow.pair.a.tcp.congestion().own_rate();
    flow.rest(1000);
    // Two segments each 50 ms: half a megabit in a second, for longer than a cycle and two filters.
    for _ in 0..600 {
        flow.pair.a.tcp.send(record(flow.given, 3000));
        flow.given += 3000;
        flow.pair.drain_both();
        flow.rest(50);
    }
    let pace = flow.pace();
    assert!((35.0..62.0).contains(&pace), "{pace} Mbit/s after {known:?} bytes per second");
    let after = flow.run(300);
    assert!(after > 0.8, "at once as fast as before: {after}");
    assert!(flow.queue().0 < 1.5, "{:?}", flow.queue());
}

#[test]
fn a_rate_that_drops_to_a_fifth_is_found_and_one_that_comes_back_too() {
    let path = bottleneck(4.0);
    let slow = with_forward(&path, |link| link.rate = megabits(RATE / 5));
    let mut flow = Flow::new(Algorithm::Bbr, &path);
    flow.run(3000);
    flow.pair.set_path(&slow);
    flow.run(7000);
    assert!((7.0..13.5).contains(&flow.pace()), "{} Mbit/s over 10", flow.pace());
    let goodput = flow.run(4000);
    let (most, average) = flow.queue();
    println!("{goodput:.3} of the faster rate, queue {most:.2} and {average:.2} of its product");
    assert!(goodput > 0.9 * 0.95 / 5.0, "{goodput}");
    assert!(average < 1.0, "{average}");
    flow.pair.set_path(&path);
    flow.run(6000);
    let goodput = flow.run(3000);
    assert!(goodput > 0.85, "{goodput}");
}

#[test]
fn the_shortest_round_trip_is_looked_for_once_in_five_seconds_and_not_oftener() {
    let mut flow = Flow::new(Algorithm::Bbr, &bottleneck(10.0));
    flow.run(30_000);
    let probes = flow.began("ProbeRTT");
    assert!((4..=6).contains(&probes.len()), "{probes:?}");
    for pair in probes.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(5), "{probes:?}");
    }
    let after = |at: &Duration| flow.phases.iter().find(|(began, _)| began > at).map(|(began, _)| *began);
    for at in &probes {
        let lasted = after(at).map(|end| end - *at);
        assert!(lasted.is_none_or(|lasted| lasted < Duration::from_millis(300)), "{lasted:?}");
    }
}

#[test]
fn a_queue_that_others_have_built_drains_while_the_round_trip_is_looked_for() {
    let path = bottleneck(10.0);
    let mut flow = Flow::new(Algorithm::Bbr, &path);
    let mut other = Flow::new(Algorithm::Bbr, &path);
    other.pair.share_forward(&flow.pair);
    run_both(&mut flow, &mut other, 1000, true);
    run_both(&mut flow, &mut other, 19_000, true);
    assert!(!flow.began("ProbeRTT").is_empty() && !other.began("ProbeRTT").is_empty());
    let least = flow.waiting.iter().copied().min().unwrap_or(0);
    assert!(least < PRODUCT / 20, "{least} bytes wait at the least");
    let shortest = flow.stats().min_rtt.unwrap_or_default();
    assert!(shortest < Duration::from_millis(24), "{shortest:?}");
    let (_, average) = flow.queue();
    assert!(average < 2.0, "{average}");
}

#[test]
fn a_shallow_queue_does_not_lose_much() {
    for queue in [0.25, 0.5] {
        let mut flow = Flow::new(Algorithm::Bbr, &bottleneck(queue));
        flow.run(2000);
        let before = flow.stats();
        let goodput = flow.run(15_000);
        let lost = flow.lost_since(&before);
        println!("queue of {queue}: {goodput:.3} of the rate, {:.2} % lost", 100.0 * lost);
        assert!(goodput > 0.8, "{queue}: {goodput}");
        assert!(lost < 0.05, "{queue}: {lost}");
    }
}

#[test]
fn a_policer_without_a_queue_does_not_lose_much() {
    // Tokens for 20 ms and nothing that waits.
    let policer = with_forward(&bottleneck(0.0), |link| (link.burst, link.queue_limit) = (PRODUCT, 3000));
    let mut flow = Flow::new(Algorithm::Bbr, &policer);
    flow.run(3000);
    let before = flow.stats();
    let goodput = flow.run(15_000);
    let lost = flow.lost_since(&before);
    println!("policer: {goodput:.3} of the rate, {:.2} % lost", 100.0 * lost);
    assert!(goodput > 0.75 && lost < 0.05, "{goodput} of the rate, {lost} lost");
}

#[test]
fn acknowledgments_in_bunches_do_not_show_more_than_was_sent() {
    // All acknowledgments of 15 ms come at once, each time.
    let path = bottleneck(4.0);
    let mut flow = Flow::new(Algorithm::Bbr, &path);
    let bunched = |millis: u64| LinkConfig { delay: Duration::from_millis(millis), ..plain_link() };
    let mut most: f64 = 0.0;
    for round in 0..600 {
        // The way back takes less and less for 15 ms, so that all that left in them arrive together.
        let backward = bunched(10 + 15 - round % 15);
        flow.pair.set_path(&Path { backward, ..path.clone() });
        flow.run(1);
        if flow.elapsed() > Duration::from_millis(400) {
            most = most.max(flow.stats().delivery_rate.unwrap_or(0) as f64 / 125_000.0);
        }
    }
    // The bottleneck lets 48 Mbit/s of payload through; a quarter more leaves at most.
    assert!(most < 62.5, "{most} Mbit/s");
    flow.pair.set_path(&path);
    assert!(flow.run(2000) > 0.85);
}

#[test]
fn a_peer_that_acknowledges_what_it_has_not_got_raises_the_rate_no_faster_than_what_was_sent() {
    // Each segment is acknowledged as it leaves, whatever the bottleneck does with it: the path looks like one of any rate.
    let mut flow = Flow::new(Algorithm::Bbr, &bottleneck(1.0));
    flow.run(1000);
    let mut fastest = flow.pace();
    for _ in 0..40 {
        for _ in 0..5 {
            fastest = flow.pace().max(fastest);
            flow.run(1);
        }
        // One byte, and a millisecond later all that has left in six: by the time between them it is six times the rate.
        let acked = flow.pair.a.tcp.acked_offset();
        flow.pair.optimistic_ack(acked + 1);
        fastest = flow.pace().max(fastest);
        flow.run(1);
        let next = flow.pair.a.tcp.next_offset() - flow.pair.a.tcp.unsent() as u64;
        flow.pair.optimistic_ack(next);
        let shown = flow.stats().delivery_rate.unwrap_or(0) as f64 / 125_000.0;
        assert!(shown < 1.3 * fastest, "{shown} Mbit/s where {fastest} left at most");
    }
}

#[test]
fn a_timeout_leaves_one_segment_and_the_rate_comes_back() {
    let path = bottleneck(4.0);
    let mut flow = Flow::new(Algorithm::Bbr, &path);
    flow.run(3000);
    let silent = with_forward(&path, |link| link.loss = Loss::Bernoulli { probability: 1.0 });
    flow.pair.set_path(&silent);
    flow.run(600);
    assert!(flow.stats().backoff > 0, "the timer has fired");
    assert!(flow.stats().congestion_window < 3000, "{} bytes", flow.stats().congestion_window);
    flow.run(9400);
    flow.pair.set_path(&path);
    flow.run(8000);
    let goodput = flow.run(3000);
    assert!(goodput > 0.85, "{goodput}");
}

#[test]
fn a_loss_that_was_none_costs_nothing() {
    let path = bottleneck(4.0);
    let mut flow = Flow::new(Algorithm::Bbr, &path);
    flow.run(2800);
    let window = flow.stats().congestion_window;
    // The path becomes longer at once: what is on its way arrives in time, and what follows after the timeout.
    let long = |link: &LinkConfig| LinkConfig { delay: Duration::from_millis(400), ..link.clone() };
    flow.pair.set_path(&Path { forward: long(&path.forward), backward: path.backward.clone(), merge: false });
    flow.run(700);
    assert!(flow.stats().spurious_recoveries > 0, "{:?}", flow.stats());
    assert!(
        flow.stats().congestion_window >= window / 2,
        "{} after {window}",
        flow.stats().congestion_window
    );
    flow.pair.set_path(&path);
    flow.run(1500);
    let goodput = flow.run(3000);
    assert!(goodput > 0.85, "{goodput}");
}

/// Two flows over one bottleneck, in the order of time.
fn run_both(one: &mut Flow, other: &mut Flow, millis: u64, both_have_much: bool) -> [f64; 2] {
    let before = [one.pair.a.tcp.acked_offset(), other.pair.a.tcp.acked_offset()];
    for _ in 0..millis {
        let end = one.pair.now + Duration::from_millis(1);
        one.feed();
        if both_have_much {
            other.feed();
        }
        loop {
            one.pair.drain_both();
            other.pair.drain_both();
            let next = [one.pair.next_at(), other.pair.next_at()].map(|at| at.filter(|&at| at <= end));
            let first = match next {
                [None, None] => break,
                [Some(a), Some(b)] if b < a => &mut other.pair,
                [None, Some(_)] => &mut other.pair,
                [Some(_), _] => &mut one.pair,
            };
            assert!(first.step(end));
        }
        one.pair.run_for(end.saturating_since(one.pair.now));
        other.pair.run_for(end.saturating_since(other.pair.now));
        one.look();
        other.look();
    }
    let after = [one.pair.a.tcp.acked_offset(), other.pair.a.tcp.acked_offset()];
    [0, 1].map(|n| (after[n] - before[n]) as f64 / (millis as f64 * (RATE * 125) as f64))
}

#[test]
fn beside_cubic_on_a_queue_of_one_product_neither_starves() {
    let path = bottleneck(1.0);
    let mut bbr = Flow::new(Algorithm::Bbr, &path);
    let mut cubic = Flow::new(Algorithm::Cubic, &path);
    cubic.pair.share_forward(&bbr.pair);
    run_both(&mut bbr, &mut cubic, 10_000, true);
    let [of_bbr, of_cubic] = run_both(&mut bbr, &mut cubic, 40_000, true);
    let share = of_bbr / (of_bbr + of_cubic);
    println!("beside CUBIC: {of_bbr:.3} and {of_cubic:.3} of the rate, share {share:.3}");
    assert!((0.15..=0.85).contains(&share), "{of_bbr} beside {of_cubic}");
    assert!(of_bbr + of_cubic > 0.85);
}

#[test]
fn two_of_them_divide_a_path() {
    let path = bottleneck(1.0);
    let mut one = Flow::seeded(7, Algorithm::Bbr, &path);
    let mut other = Flow::seeded(8, Algorithm::Bbr, &path);
    other.pair.share_forward(&one.pair);
    run_both(&mut one, &mut other, 15_000, true);
    let [first, second] = run_both(&mut one, &mut other, 20_000, true);
    println!("two: {first:.3} and {second:.3} of the rate");
    assert!((0.25..=0.75).contains(&(first / (first + second))), "{first} beside {second}");
    assert!(first + second > 0.85);
}

#[test]
fn it_does_not_agree_to_marks_that_it_would_not_answer() {
    let both = Config { ecn: plait_tcp::Ecn::Ask, ..config(Algorithm::Bbr) };
    let mut pair = Pair::new(7, both, &bottleneck(1.0));
    pair.filter = Box::new(|side, segment| {
        assert!(side == Side::B || !segment.flags.contains(Flags::ECE), "no SYN that asks");
        true
    });
    pair.run_for(Duration::from_millis(500));
    assert!(!pair.a.tcp.stats().ecn && !pair.b().tcp.stats().ecn);
}
