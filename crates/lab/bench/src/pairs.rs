//! The tables of path pairs.

use crate::PathPair;

/// Names of a few pairs that differ as much as possible.
pub const QUICK: [&str; 8] = [
    "50/20+50/20",
    "50/20+5/20",
    "50/20+50/400",
    "50/20+5/200",
    "100/20+10/400 queue 10",
    "300/20+80/60",
    "50/20+50/20 loss 0:1",
    "50/20+50/20 jitter 0:25",
];

const ALL: &[&str] = &[
    // Rates.
    "50/20+50/20, 50/20+25/20, 50/20+17/20, 50/20+10/20, 50/20+5/20, 60/20+2/20",
    // Round trips.
    "50/20+50/40, 50/20+50/60, 50/20+50/100, 50/20+50/200, 50/20+50/400",
    // The path with the lower rate has the longer round trip, then the shorter one.
    "50/20+25/40, 50/20+25/100, 50/20+25/200, 50/20+25/400, 50/20+10/40, 50/20+10/100, 50/20+10/200",
    "50/20+10/400, 50/20+5/40, 50/20+5/100, 50/20+5/200, 50/20+5/400, 60/20+2/400",
    "50/40+25/10, 50/40+10/10, 50/40+5/10, 50/40+10/5, 50/40+5/2",
    // The connection is opened over the worse one.
    "5/20+50/20, 50/200+50/20, 5/200+50/20",
    // Queues.
    "50/20+50/20 queue 0.25, 50/20+10/20 queue 0.25, 50/20+50/60 queue 0.25, 50/20+10/100 queue 0.25",
    "50/20+50/20 queue 0.5, 50/20+10/20 queue 0.5, 50/20+50/60 queue 0.5, 50/20+10/100 queue 0.5",
    "50/20+50/20 queue 3, 50/20+10/20 queue 3, 50/20+50/60 queue 3, 50/20+10/100 queue 3",
    "50/20+50/20 queue 10, 50/20+10/20 queue 10, 50/20+50/60 queue 10, 50/20+10/100 queue 10",
    "50/20+50/20 queue 0.25:10, 50/20+10/100 queue 10:0.25",
    // Access networks: a fast line, a slower one, a satellite.
    "300/20+80/60, 100/20+10/400, 100/10+10/200",
    "300/20+80/60 queue 10, 100/20+10/400 queue 10, 100/10+10/200 queue 10",
    "50/20+50/400 queue 10, 100/20+10/20",
    // Loss, on one and on both.
    "50/20+50/20 loss 0:0.01, 50/20+50/20 loss 0.01, 50/20+50/20 loss 0:0.1, 50/20+50/20 loss 0.1",
    "50/20+50/20 loss 0:0.5, 50/20+50/20 loss 0.5, 50/20+50/20 loss 0:1, 50/20+50/20 loss 1",
    "50/20+50/20 loss 0:2, 50/20+50/20 loss 2",
    "50/20+10/100 loss 0:0.1, 50/20+10/100 loss 0:1, 50/20+10/100 loss 1:0",
    // Jitter, on one and on both.
    "50/20+50/20 jitter 0:2, 50/20+50/20 jitter 2, 50/20+50/20 jitter 0:10, 50/20+50/20 jitter 10",
    "50/20+50/20 jitter 0:25, 50/20+50/20 jitter 25, 50/20+10/100 jitter 0:25",
    "300/20+30/60 loss 0:0.5 jitter 0:10, 100/10+20/50 queue 0.5:4 loss 0:0.1 jitter 0:10",
];

const PUBLISHED: &[&str] = &[
    "50/20+50/20, 50/20+50/60, 50/20+50/120, 50/20+50/320, 100/20+10/20",
    "50/20+50/20 jitter 20, 50/20+50/20 loss 0.5, 50/20+50/20 loss 2",
    // Two LTE, LTE and Starlink, two Starlink.
    "30/50+20/60 loss 0.5 jitter 10, 30/50+100/40 loss 0.5 jitter 10, 100/40+100/40 loss 0.5 jitter 10",
    // Fixed lines and LTE, Wi-Fi and 3G, 3G with its long queue.
    "300/8+30/40 loss 0:0.5 jitter 0:10, 16/30+30/50 queue 4:1 loss 0:0.5 jitter 0:10",
    "25/20+9/64 queue 1:4 loss 1:0 jitter 5:0, 8/20+2/150 queue 4:10, 15/100+15/100 queue 0.5 loss 1",
];

const LAB: &[&str] = &[
    "50/20+50/20, 300/20+300/20, 100/20+10/20, 100/20+10/400, 300/20+30/60 loss 0:0.5 jitter 0:10",
    "50/20+5/40, 50/20+50/60 queue 1:3, 50/200+50/20, 100/20+50/40 queue 0.25",
    "20/40+100/20 queue 10:1 loss 0:0.1",
    // Random losses: two lines, two LTE, LTE and Starlink, delays that vary.
    "50/20+50/20 loss 0.5, 50/20+50/20 loss 2, 30/50+20/60 loss 0.5 jitter 10",
    "30/50+100/40 loss 0.5 jitter 10, 50/20+50/20 jitter 20",
];

/// Returns 80 pairs. They span rates from 1:1 to 1:30, round trips from 1:1 to 1:20, queues from 0.25 to 10
/// bandwidth-delay products, loss from 0 to 2 %, jitter from 0 to 25 ms.
pub fn all() -> Vec<PathPair> {
    read(ALL)
}

/// Returns sixteen pairs like those in publications on Multipath TCP: twice the same access, or two different ones. The accesses are fixed
/// lines, Wi-Fi, LTE, 3G with its long queue, Starlink, and a geostationary satellite.
pub fn published() -> Vec<PathPair> {
    read(PUBLISHED)
}

/// Returns the fifteen pairs for measurements in namespaces, in real time.
pub fn in_the_lab() -> Vec<PathPair> {
    read(LAB)
}

fn read(table: &[&str]) -> Vec<PathPair> {
    let names = table.iter().flat_map(|line| line.split(", "));
    names.map(|name| name.parse().expect("a test reads all tables")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathModel;

    #[test]
    fn each_pair_has_a_name_of_its_own_which_is_that_of_the_table() {
        for (table, count) in [(ALL, 80), (PUBLISHED, 16), (LAB, 15)] {
            let mut names: Vec<String> = read(table).iter().map(ToString::to_string).collect();
            assert_eq!(names.join(", "), table.join(", "));
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "no pair twice");
        }
    }

    #[test]
    fn the_quick_pairs_are_among_all_pairs() {
        let names: Vec<String> = all().iter().map(ToString::to_string).collect();
        assert!(QUICK.iter().all(|quick| names.iter().any(|name| name == quick)), "{QUICK:?}");
    }

    #[test]
    fn the_pairs_span_what_they_are_meant_to() {
        let all = all();
        let most = |figure: fn(&PathModel) -> f64| {
            let ratio = |PathPair([a, b]): &PathPair| figure(a).max(figure(b)) / figure(a).min(figure(b));
            all.iter().map(ratio).fold(1.0, f64::max)
        };
        assert_eq!(most(|path| path.rate as f64), 30.0);
        assert_eq!(most(|path| path.round_trip as f64), 20.0);
        let paths = || all.iter().flat_map(|pair| pair.0);
        assert_eq!(paths().map(|path| path.queue).fold(1.0, f64::min), 0.25);
        assert_eq!(paths().map(|path| path.queue).fold(1.0, f64::max), 10.0);
        assert_eq!(paths().map(|path| path.loss).fold(0.0, f64::max), 2.0);
        assert_eq!(paths().map(|path| path.jitter).max(), Some(25));
    }
}
