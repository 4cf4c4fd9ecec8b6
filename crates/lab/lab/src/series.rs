//! Arrivals over time: bytes per interval, and their place in the data stream.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Direction;

/// Length of an interval.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// Intervals kept: over two hours.
const MAX_INTERVALS: usize = 1 << 20;
/// Largest difference between two numbers of one connection.
const FAR: u64 = 1 << 32;
/// Samples kept: a 64 GiB transfer in super-segments, 1.4 GB in single packets.
const MAX_SAMPLES: usize = 1 << 20;

/// The arrivals at the ends of a path, injected packets included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Bytes per [`INTERVAL`] towards the server, from the IP header upwards, since the start of the lab.
    pub to_server: Vec<u64>,
    /// The same towards the client.
    pub to_client: Vec<u64>,
    /// Payloads in the order of their arrival.
    pub samples: Vec<Sample>,
}

/// One payload that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the start of the lab.
    pub at: Duration,
    /// Its direction.
    pub direction: Direction,
    /// Number of the TCP connection (subflow) of this path, counted from 1.
    pub flow: u32,
    /// Data sequence number of its first byte, if a mapping for it has been seen in clear.
    pub dsn: Option<u64>,
    /// Place of its first byte in the TCP connection.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

impl Series {
    /// Bytes per interval in one direction.
    pub fn bytes(&self, direction: Direction) -> &[u64] {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    /// Longest time without an arrival of payload in one direction, between its first and its last one.
    pub fn longest_gap(&self, direction: Direction) -> Duration {
        let mine = self.samples.iter().filter(|sample| sample.direction == direction);
        let times: Vec<Duration> = mine.map(|sample| sample.at).collect();
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or_default()
    }

    pub(crate) fn count(&mut self, at: Duration, direction: Direction, bytes: u32) {
        let interval = (at.as_nanos() / INTERVAL.as_nanos()) as usize;
        if interval >= MAX_INTERVALS {
            return;
        }
        let counts = match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        };
        if counts.len() <= interval {
            counts.resize(interval + 1, 0);
        }
        counts[interval] += u64::from(bytes);
    }

    pub(crate) fn sample(&mut self, sample: Sample) {
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(sample);
        }
    }
}

/// One payload that arrived: seconds since a beginning, path, place in the data stream (bytes).
pub type Arrival = (f64, usize, u64);

/// Returns the places in the data stream of the arrivals at one end, over time: of the connection that carried most, all paths
/// together. Each connection chooses its first number, so that their numbers are far apart.
pub fn arrivals(series: &[Series], direction: Direction, began: Duration) -> Vec<Arrival> {
    let mut connections: Vec<(u64, u64, Vec<Arrival>)> = Vec::new();
    for (path, series) in series.iter().enumerate() {
        for sample in series.samples.iter().filter(|sample| sample.direction == direction) {
            let Some(dsn) = sample.dsn else { continue };
            let arrival = (sample.at.saturating_sub(began).as_secs_f64(), path, dsn);
            let known = connections
                .iter_mut()
                .find(|(first, ..)| dsn.wrapping_sub(*first).wrapping_add(FAR) < 2 * FAR);
            match known {
                Some((_, bytes, arrivals)) => {
                    *bytes += u64::from(sample.length);
                    arrivals.push(arrival);
                }
                None => connections.push((dsn, u64::from(sample.length), vec![arrival])),
            }
        }
    }
    let Some((anchor, _, mut all)) = connections.into_iter().max_by_key(|connection| connection.1) else {
        return Vec::new();
    };
    let place = |dsn: u64| dsn.wrapping_sub(anchor).wrapping_add(FAR);
    let first = all.iter().map(|arrival| place(arrival.2)).min().unwrap_or(0);
    all.iter_mut().for_each(|arrival| arrival.2 = place(arrival.2) - first);
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_in_the_interval_of_their_arrival() {
        let mut series = Series::default();
        series.count(Duration::from_millis(25), Direction::ToServer, 100);
        series.count(Duration::from_millis(29), Direction::ToServer, 1);
        series.count(Duration::from_millis(30), Direction::ToServer, 7);
        assert_eq!(series.to_server, [0, 0, 101, 7]);
        assert!(series.to_client.is_empty());
    }

    #[test]
    fn the_longest_gap_is_that_of_one_direction() {
        let mut series = Series::default();
        for (at, direction) in [(0, Direction::ToServer), (5, Direction::ToClient), (30, Direction::ToServer)]
        {
            let at = Duration::from_millis(at);
            series.sample(Sample { at, direction, flow: 1, dsn: None, offset: 0, length: 1 });
        }
        assert_eq!(series.longest_gap(Direction::ToServer), Duration::from_millis(30));
        assert_eq!(series.longest_gap(Direction::ToClient), Duration::ZERO);
    }

    #[test]
    fn the_picture_shows_the_connection_that_carried_the_page_and_no_other() {
        let sample = |at: u64, dsn: u64, length: u32| Sample {
            at: Duration::from_secs(at),
            direction: Direction::ToClient,
            flow: 1,
            dsn: Some(dsn),
            offset: 0,
            length,
        };
        // A greeting on a connection of its own; then the page, with sequence numbers that pass zero.
        let near = Series {
            samples: vec![sample(10, 1 << 60, 20), sample(11, u64::MAX - 999, 1000), sample(13, 1000, 1000)],
            ..Series::default()
        };
        let far = Series { samples: vec![sample(12, 0, 1000)], ..Series::default() };
        let shown = arrivals(&[near, far], Direction::ToClient, Duration::from_secs(10));
        assert_eq!(shown, [(1.0, 0, 0), (2.0, 1, 1000), (3.0, 0, 2000)]);
    }
}
