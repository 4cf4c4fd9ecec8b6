//! Two paths of a measurement, and their name.

use core::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Error, Result, bail, ensure};

/// One path, the same both ways.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathModel {
    /// Mbit/s.
    pub rate: u64,
    /// Round-trip time without queues, in milliseconds.
    pub round_trip: u64,
    /// Length of the queue in each direction, in bandwidth-delay products of the path.
    pub queue: f64,
    /// Packets lost in each direction, in percent.
    pub loss: f64,
    /// Largest additional delay in each direction, in milliseconds. The delay varies and keeps the order of packets.
    pub jitter: u64,
}

impl PathModel {
    /// Returns a path with a queue of one bandwidth-delay product, no loss and no jitter.
    pub const fn new(rate: u64, round_trip: u64) -> Self {
        Self { rate, round_trip, queue: 1.0, loss: 0.0, jitter: 0 }
    }

    /// Returns the length of the queue in bytes, and at least `shortest`.
    pub fn queue_bytes(&self, shortest: u64) -> u64 {
        let product = self.rate * 125 * self.round_trip;
        ((product as f64 * self.queue) as u64).max(shortest)
    }
}

/// Two paths; a connection is opened over the first one.
///
/// The text form is the rate (Mbit/s) and the round trip (ms) of both. Properties follow that differ from [`PathModel::new`], with one value for
/// both paths or one for each: `50/20+10/100 queue 0.25 loss 0:1`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathPair(pub [PathModel; 2]);

impl fmt::Display for PathPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = &self.0;
        write!(f, "{}/{}+{}/{}", a.rate, a.round_trip, b.rate, b.round_trip)?;
        for (word, both, usual) in [
            ("queue", [a.queue, b.queue], 1.0),
            ("loss", [a.loss, b.loss], 0.0),
            ("jitter", [a.jitter as f64, b.jitter as f64], 0.0),
        ] {
            match both {
                both if both == [usual; 2] => {}
                [a, b] if a == b => write!(f, " {word} {a}")?,
                [a, b] => write!(f, " {word} {a}:{b}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for PathPair {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let both = words.next().and_then(|both| both.split_once('+'));
        let (a, b) = both.with_context(|| format!("{text:?}: two paths are written RATE/RTT+RATE/RTT"))?;
        let mut pair = Self([path(a)?, path(b)?]);
        while let Some(property) = words.next() {
            let values = words.next().with_context(|| format!("{text:?}: no value of {property}"))?;
            let values = values.split_once(':').unwrap_or((values, values));
            for (path, value) in pair.0.iter_mut().zip([values.0, values.1]) {
                match property {
                    "queue" => path.queue = up_to(1e3, property, value)?,
                    "loss" => path.loss = up_to(1e2, property, value)?,
                    "jitter" => path.jitter = milliseconds(value)?,
                    _ => bail!("{text:?}: a path has queue, loss and jitter, and no {property}"),
                }
            }
        }
        Ok(pair)
    }
}

fn up_to(most: f64, property: &str, value: &str) -> Result<f64> {
    let number: f64 = value.parse().with_context(|| format!("not a number: {value:?}"))?;
    ensure!((0.0..=most).contains(&number), "{property} {value}: it is 0 to {most}");
    Ok(number)
}

fn milliseconds(value: &str) -> Result<u64> {
    let number: u64 = value.parse().with_context(|| format!("not a whole number of ms: {value:?}"))?;
    ensure!(number <= 1000, "jitter {value}: it is 0 to 1000");
    Ok(number)
}

fn path(text: &str) -> Result<PathModel> {
    let (rate, round_trip) = text.split_once('/').with_context(|| format!("{text:?} is not RATE/RTT"))?;
    let number = |text: &str| text.parse::<u32>().with_context(|| format!("not a number: {text:?}"));
    Ok(PathModel::new(number(rate)?.into(), number(round_trip)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> Result<PathPair> {
        text.parse()
    }

    #[test]
    fn a_name_has_what_differs_for_both_paths_or_for_each() {
        let [a, b] = pair("50/20+10/100 queue 0.25 loss 0:1 jitter 25").expect("a pair").0;
        assert_eq!(a, PathModel { queue: 0.25, jitter: 25, ..PathModel::new(50, 20) });
        assert_eq!(b, PathModel { queue: 0.25, loss: 1.0, jitter: 25, ..PathModel::new(10, 100) });
        assert_eq!(PathPair([a, a]).to_string(), "50/20+50/20 queue 0.25 jitter 25");
    }

    #[test]
    fn what_is_no_pair_is_an_error_that_names_it() {
        for text in
            ["", "50/20", "50/20+10", "50/20+10/x", "50/20+5/20 loss", "50/20+5/20 loss -1", "1/1+1/1 hops 2"]
        {
            assert!(pair(text).is_err(), "{text:?}");
        }
        let error = pair("1/1+1/1 hops 2").expect_err("no property");
        assert!(error.to_string().contains("no hops"), "{error}");
    }

    #[test]
    fn a_value_outside_its_range_is_an_error_that_names_it() {
        for (property, error) in [
            ("loss 101", "loss 101: it is 0 to 100"),
            ("loss NaN", "loss NaN: it is 0 to 100"),
            ("queue 1001", "queue 1001: it is 0 to 1000"),
            ("jitter 2.5", "not a whole number of ms: \"2.5\""),
            ("jitter 0:-1", "not a whole number of ms: \"-1\""),
            ("jitter 1001", "jitter 1001: it is 0 to 1000"),
        ] {
            let told = pair(&format!("50/20+5/20 {property}")).expect_err("outside").to_string();
            assert_eq!(told, error);
        }
        assert!(pair("50/20+5/20 loss 100 jitter 1000").is_ok());
    }

    #[test]
    fn a_queue_has_bandwidth_delay_products_and_never_less_than_the_shortest() {
        assert_eq!(PathModel::new(50, 20).queue_bytes(3000), 125_000);
        assert_eq!(PathModel { queue: 0.25, ..PathModel::new(1, 20) }.queue_bytes(3000), 3000);
    }
}
