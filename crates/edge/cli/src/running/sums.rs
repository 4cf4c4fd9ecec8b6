//! Sums over all connections of a process, those that have ended included.
//!
//! The counters of a connection are read, not kept beside it: at a survey those of the open connections, and once at the end of each.

use std::collections::BTreeMap;
use std::time::Duration;

use plait::{PathTotals, Status};
use serde::Serialize;

/// Most paths with sums of their own; devices of a pattern such as `usb*` come and go under new names. The others are one path, [`OTHER`].
const MAX_PATHS: usize = 64;
/// The name of all paths beyond [`MAX_PATHS`].
const OTHER: &str = "other";

/// The device and the carrier of a path.
pub(crate) type PathName = (String, String);

/// The traffic of all connections over one path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct PathSum {
    pub(crate) subflows: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_retransmitted: u64,
    pub(crate) bytes_reinjected: u64,
    pub(crate) segments_sent: u64,
    pub(crate) segments_lost: u64,
    pub(crate) blocks_failed: u64,
    pub(crate) tags_failed: u64,
}

/// The subflows over one path now.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub(crate) struct PathLoad {
    pub(crate) subflows_open: u64,
    /// The smallest of its open subflows'.
    pub(crate) rtt_ms: Option<f64>,
}

/// Sums of some connections.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    pub(crate) paths: BTreeMap<PathName, PathSum>,
    pub(crate) counters: BTreeMap<&'static str, u64>,
    pub(crate) bytes_delivered: u64,
    pub(crate) bytes_read: u64,
}

impl PathSum {
    fn of(totals: &PathTotals) -> Self {
        Self {
            subflows: totals.subflows,
            bytes_sent: totals.bytes_sent,
            bytes_received: totals.bytes_received,
            bytes_retransmitted: totals.bytes_retransmitted,
            bytes_reinjected: totals.bytes_reinjected,
            segments_sent: totals.segments_sent,
            segments_lost: totals.segments_lost,
            blocks_failed: totals.blocks_failed,
            tags_failed: totals.tags_failed,
        }
    }

    /// Joins each figure with that of `other`.
    fn join(self, other: Self, by: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            subflows: by(self.subflows, other.subflows),
            bytes_sent: by(self.bytes_sent, other.bytes_sent),
            bytes_received: by(self.bytes_received, other.bytes_received),
            bytes_retransmitted: by(self.bytes_retransmitted, other.bytes_retransmitted),
            bytes_reinjected: by(self.bytes_reinjected, other.bytes_reinjected),
            segments_sent: by(self.segments_sent, other.segments_sent),
            segments_lost: by(self.segments_lost, other.segments_lost),
            blocks_failed: by(self.blocks_failed, other.blocks_failed),
            tags_failed: by(self.tags_failed, other.tags_failed),
        }
    }
}

impl Sums {
    pub(crate) fn of(status: &Status) -> Self {
        let mut paths = BTreeMap::<PathName, PathSum>::new();
        // A removed path has no name any more: its bytes are known from the last survey before.
        for totals in status.path_totals().iter().filter(|totals| !totals.device.is_empty()) {
            let sum = paths.entry((totals.device.clone(), totals.carrier.to_string())).or_default();
            *sum = sum.join(PathSum::of(totals), u64::saturating_add);
        }
        Self {
            paths,
            counters: status.counters().iter().collect(),
            bytes_delivered: status.bytes_delivered(),
            bytes_read: status.bytes_read(),
        }
    }

    /// Adds the sums of other connections.
    pub(crate) fn add(&mut self, other: &Self) {
        for (name, sum) in &other.paths {
            let has_room = self.paths.len() < MAX_PATHS || self.paths.contains_key(name);
            let name = if has_room { name.clone() } else { (OTHER.to_owned(), name.1.clone()) };
            let own = self.paths.entry(name).or_default();
            *own = own.join(*sum, u64::saturating_add);
        }
        for (name, count) in &other.counters {
            *self.counters.entry(name).or_default() += count;
        }
        self.bytes_delivered += other.bytes_delivered;
        self.bytes_read += other.bytes_read;
    }

    /// Takes later sums of the same connections. What was counted over a path stays counted if the path is removed meanwhile.
    pub(crate) fn renew(&mut self, later: Self) {
        let mut paths = later.paths;
        for (name, before) in std::mem::take(&mut self.paths) {
            let sum = paths.entry(name).or_default();
            *sum = sum.join(before, u64::max);
        }
        *self = Self { paths, ..later };
    }
}

/// Adds the open subflows of a connection to the load of the paths.
pub(crate) fn add_load(load: &mut BTreeMap<PathName, PathLoad>, status: &Status) {
    for subflow in status.subflows().iter().filter(|subflow| subflow.end().is_none()) {
        let path = load.entry((subflow.device().to_owned(), subflow.carrier().to_string())).or_default();
        path.subflows_open += 1;
        let rtt =
            subflow.round_trip_time().as_ref().map(Duration::as_secs_f64).map(|seconds| seconds * 1000.0);
        path.rtt_ms = match (path.rtt_ms, rtt) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(path: &str, bytes_sent: u64) -> Sums {
        let sum = PathSum { bytes_sent, ..PathSum::default() };
        Sums { paths: [((path.to_owned(), "udp".to_owned()), sum)].into(), ..Sums::default() }
    }

    fn sent(sums: &Sums, path: &str) -> u64 {
        sums.paths.get(&(path.to_owned(), "udp".to_owned())).map_or(0, |sum| sum.bytes_sent)
    }

    #[test]
    fn bytes_over_a_path_stay_counted_after_the_path_was_removed() {
        let mut connection = over("a", 5);
        connection.renew(over("b", 2));
        assert_eq!((sent(&connection, "a"), sent(&connection, "b")), (5, 2));
        connection.renew(over("a", 1));
        assert_eq!((sent(&connection, "a"), sent(&connection, "b")), (5, 2), "no sum gets smaller");
        let mut all = over("a", 10);
        all.add(&connection);
        assert_eq!((sent(&all, "a"), sent(&all, "b")), (15, 2));
    }

    #[test]
    fn the_names_of_paths_are_bounded_and_no_byte_is_lost() {
        let mut all = Sums::default();
        for number in 0..1000 {
            all.add(&over(&format!("usb{number}"), 1));
        }
        assert_eq!(all.paths.len(), MAX_PATHS + 1);
        assert_eq!(all.paths.values().map(|sum| sum.bytes_sent).sum::<u64>(), 1000);
    }
}
