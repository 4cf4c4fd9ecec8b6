//! The pairs of paths: rates from 1:1 to 1:30, round trips from 1:1 to 1:20, queues from 0.25 to 10 bandwidth-delay products, loss
//! from 0 to 2 %, jitter from 0 to 25 ms.

use core::fmt::Write;
use plait_base::Duration;
use plait_sim::{LinkConfig, Loss, megabits, plain_link};

use super::recording::Recording;

/// One path, the same both ways.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PathModel {
    /// Mbit/s.
    pub(crate) rate: u64,
    /// Round-trip time without queues, in milliseconds.
    pub(crate) round_trip: u64,
    /// Length of the queue in each direction, in bandwidth-delay products of the path.
    pub(crate) queue: f64,
    /// Packets lost in each direction, in percent.
    pub(crate) loss: f64,
    /// Most additional delay in each direction, in milliseconds; it varies and keeps the order.
    pub(crate) jitter: u64,
    /// Rates that were recorded, in place of the one above, which is their mean.
    pub(crate) recording: Option<&'static Recording>,
}

/// Two paths.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PathPair {
    /// The connection is opened over the first one.
    pub(crate) paths: [PathModel; 2],
}

/// No queue is shorter than two packets, in bytes.
const SHORTEST_QUEUE: u64 = 3000;

const fn path(rate: u64, round_trip: u64) -> PathModel {
    PathModel { rate, round_trip, queue: 1.0, loss: 0.0, jitter: 0, recording: None }
}

impl PathModel {
    const fn queue(self, queue: f64) -> Self {
        Self { queue, ..self }
    }

    const fn loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    const fn jitter(self, jitter: u64) -> Self {
        Self { jitter, ..self }
    }

    /// The link of the simulator.
    pub(crate) fn link(&self) -> LinkConfig {
        let product = self.rate * 125 * self.round_trip;
        LinkConfig {
            rate: megabits(self.rate),
            delay: Duration::from_micros(self.round_trip * 500),
            queue_limit: ((product as f64 * self.queue) as u64).max(SHORTEST_QUEUE),
            loss: if self.loss > 0.0 {
                Loss::Bernoulli { probability: self.loss / 100.0 }
            } else {
                Loss::None
            },
            jitter: Duration::from_millis(self.jitter),
            ..plain_link()
        }
    }
}

impl PathPair {
    const fn new(first: PathModel, second: PathModel) -> Self {
        Self { paths: [first, second] }
    }

    /// Rate (Mbit/s) and round trip (ms) of both; what else differs from one bandwidth-delay product of queue, no loss, no jitter.
    pub(crate) fn name(&self) -> String {
        let [a, b] = self.paths;
        let rate = |path: PathModel| {
            path.recording.map_or_else(|| path.rate.to_string(), |recording| recording.name().to_owned())
        };
        let mut name = format!("{}/{}+{}/{}", rate(a), a.round_trip, rate(b), b.round_trip);
        let both = |a: &dyn core::fmt::Display, b: &dyn core::fmt::Display| {
            let (a, b) = (a.to_string(), b.to_string());
            if a == b { a } else { format!("{a}:{b}") }
        };
        if (a.queue, b.queue) != (1.0, 1.0) {
            let _ = write!(name, " queue {}", both(&a.queue, &b.queue));
        }
        if (a.loss, b.loss) != (0.0, 0.0) {
            let _ = write!(name, " loss {}", both(&a.loss, &b.loss));
        }
        if (a.jitter, b.jitter) != (0, 0) {
            let _ = write!(name, " jitter {}", both(&a.jitter, &b.jitter));
        }
        name
    }

    /// The highest loss of the two, in percent.
    pub(crate) fn loss(&self) -> f64 {
        self.paths[0].loss.max(self.paths[1].loss)
    }
}

/// Names of pairs that are as unlike each other as a few can be.
pub(crate) const QUICK: [&str; 8] = [
    "50/20+50/20",
    "50/20+5/20",
    "50/20+50/400",
    "50/20+5/200",
    "100/20+10/400 queue 10",
    "300/20+80/60",
    "50/20+50/20 loss 0:1",
    "50/20+50/20 jitter 0:25",
];

/// Pairs like those that publications on Multipath TCP measure with, twice the same access or two that people have at once: fixed
/// lines, Wi-Fi, LTE, 3G with its long queue, Starlink, a geostationary satellite.
pub(crate) fn published() -> Vec<PathPair> {
    let (good, lte) = (path(50, 20), path(30, 50).jitter(10).loss(0.5));
    let starlink = path(100, 40).jitter(10).loss(0.5);
    [
        (good, good),
        (good, path(50, 60)),
        (good, path(50, 120)),
        (good, path(50, 320)),
        (path(100, 20), path(10, 20)),
        (good.jitter(20), good.jitter(20)),
        (good.loss(0.5), good.loss(0.5)),
        (good.loss(2.0), good.loss(2.0)),
        (lte, path(20, 60).jitter(10).loss(0.5)),
        (lte, starlink),
        (starlink, starlink),
        (path(300, 8), path(30, 40).jitter(10).loss(0.5)),
        (path(16, 30).queue(4.0), lte),
        (path(25, 20).jitter(5).loss(1.0), path(9, 64).queue(4.0)),
        (path(8, 20).queue(4.0), path(2, 150).queue(10.0)),
        (path(15, 100).queue(0.5).loss(1.0), path(15, 100).queue(0.5).loss(1.0)),
    ]
    .map(|(first, second)| PathPair::new(first, second))
    .into()
}

/// All pairs.
pub(crate) fn all() -> Vec<PathPair> {
    let good = path(50, 20);
    let mut all = vec![PathPair::new(good, good)];
    let mut add = |first, second| all.push(PathPair::new(first, second));
    // Rates.
    for rate in [25, 17, 10, 5] {
        add(good, path(rate, 20));
    }
    add(path(60, 20), path(2, 20));
    // Round trips.
    for round_trip in [40, 60, 100, 200, 400] {
        add(good, path(50, round_trip));
    }
    // The thinner path is the longer one, and the shorter one.
    for (rate, round_trip) in
        [(25, 40), (25, 100), (25, 200), (25, 400), (10, 40), (10, 100), (10, 200), (10, 400), (5, 40)]
    {
        add(good, path(rate, round_trip));
    }
    for round_trip in [100, 200, 400] {
        add(good, path(5, round_trip));
    }
    add(path(60, 20), path(2, 400));
    for (rate, round_trip) in [(25, 10), (10, 10), (5, 10), (10, 5), (5, 2)] {
        add(path(50, 40), path(rate, round_trip));
    }
    // The connection is opened over the worse one.
    add(path(5, 20), good);
    add(path(50, 200), good);
    add(path(5, 200), good);
    // Queues.
    for queue in [0.25, 0.5, 3.0, 10.0] {
        for second in [good, path(10, 20), path(50, 60), path(10, 100)] {
            add(good.queue(queue), second.queue(queue));
        }
    }
    add(good.queue(0.25), good.queue(10.0));
    add(good.queue(10.0), path(10, 100).queue(0.25));
    // What access networks are like: a fast line, a slower one, a satellite.
    for queue in [1.0, 10.0] {
        add(path(300, 20).queue(queue), path(80, 60).queue(queue));
        add(path(100, 20).queue(queue), path(10, 400).queue(queue));
        add(path(100, 10).queue(queue), path(10, 200).queue(queue));
    }
    add(good.queue(10.0), path(50, 400).queue(10.0));
    add(path(100, 20), path(10, 20));
    // Loss, on one and on both.
    for loss in [0.01, 0.1, 0.5, 1.0, 2.0] {
        add(good, good.loss(loss));
        add(good.loss(loss), good.loss(loss));
    }
    add(good, path(10, 100).loss(0.1));
    add(good, path(10, 100).loss(1.0));
    add(good.loss(1.0), path(10, 100));
    // Jitter, on one and on both.
    for jitter in [2, 10, 25] {
        add(good, good.jitter(jitter));
        add(good.jitter(jitter), good.jitter(jitter));
    }
    add(good, path(10, 100).jitter(25));
    add(path(300, 20), path(30, 60).jitter(10).loss(0.5));
    add(path(100, 10).queue(0.5), path(20, 50).queue(4.0).jitter(10).loss(0.1));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_pairs_are_like_published_ones_and_each_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = published().iter().map(PathPair::name).collect();
        assert_eq!(names.len(), 16, "{names:?}");
    }

    #[test]
    fn the_pairs_span_what_they_are_meant_to() {
        let all = all();
        assert!(all.len() >= 60, "{}", all.len());
        let mut names: Vec<_> = all.iter().map(PathPair::name).collect();
        assert!(QUICK.iter().all(|quick| names.iter().any(|name| name == quick)), "{QUICK:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len(), "no pair twice");
        let most = |figure: fn(&PathModel) -> f64| {
            let ratio = |pair: &PathPair| {
                let [a, b] = [figure(&pair.paths[0]), figure(&pair.paths[1])];
                a.max(b) / a.min(b)
            };
            all.iter().map(ratio).fold(1.0, f64::max)
        };
        assert_eq!(most(|path| path.rate as f64), 30.0);
        assert_eq!(most(|path| path.round_trip as f64), 20.0);
        let paths = || all.iter().flat_map(|pair| pair.paths);
        assert_eq!(paths().map(|path| path.queue).fold(1.0, f64::min), 0.25);
        assert_eq!(paths().map(|path| path.queue).fold(1.0, f64::max), 10.0);
        assert_eq!(paths().map(|path| path.loss).fold(0.0, f64::max), 2.0);
        assert_eq!(paths().map(|path| path.jitter).max(), Some(25));
    }
}
