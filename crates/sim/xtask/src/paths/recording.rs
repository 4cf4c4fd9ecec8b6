//! Rates of a path as somewhere recorded, replayed on a link of the simulator.
//!
//! Two formats are read: one number for each second, in Mbit/s (`.mbps`); and that of Mahimahi, the times in milliseconds at which the
//! path could have delivered 1500 bytes (any other name). The files are not part of the project.

use anyhow::{Context as _, Result, ensure};
use core::num::NonZeroU64;
use plait_base::{Duration, Instant};
use plait_sim::{Direction, Element, Frame, Link, Outlet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Step of what is read from a Mahimahi trace, in milliseconds.
const STEP_MILLIS: u64 = 100;
/// Bits delivered at one time of a Mahimahi trace.
const OPPORTUNITY_BITS: u64 = 12_000;
/// Rate in place of none, in bits per second: an outage delivers a packet in a second or so.
const OUTAGE: NonZeroU64 = NonZeroU64::new(10_000).expect("not zero");

/// Rates, each for the same time.
#[derive(Debug, PartialEq)]
pub(crate) struct Recording {
    name: String,
    step: Duration,
    /// Bits per second.
    rates: Vec<NonZeroU64>,
}

impl Recording {
    /// Reads the first `seconds` of a file.
    pub(crate) fn read(path: &Path, seconds: u64) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let is_by_second = path.extension().is_some_and(|extension| extension == "mbps");
        let recording = if is_by_second { Self::by_second(&text) } else { Self::mahimahi(&text) };
        let (step, mut rates) = recording.with_context(|| path.display().to_string())?;
        let steps = Duration::from_secs(seconds).as_nanos() / step.as_nanos();
        rates.truncate(usize::try_from(steps).unwrap_or(usize::MAX).max(1));
        ensure!(!rates.is_empty(), "{}: no rates", path.display());
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Self { name, step, rates })
    }

    fn by_second(text: &str) -> Result<(Duration, Vec<NonZeroU64>)> {
        let rate = |line: &str| -> Result<NonZeroU64> {
            let megabits: f64 = line.trim().parse().with_context(|| format!("not a rate: {line:?}"))?;
            ensure!((0.0..1e6).contains(&megabits), "not a rate: {line:?}");
            Ok(NonZeroU64::new((megabits * 1e6) as u64).unwrap_or(OUTAGE).max(OUTAGE))
        };
        let rates = text.lines().filter(|line| !line.trim().is_empty()).map(rate).collect::<Result<_>>()?;
        Ok((Duration::from_secs(1), rates))
    }

    fn mahimahi(text: &str) -> Result<(Duration, Vec<NonZeroU64>)> {
        let mut counts: Vec<u64> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let at: u64 = line.trim().parse().with_context(|| format!("not a time: {line:?}"))?;
            let place = usize::try_from(at / STEP_MILLIS)?;
            ensure!(place < 1 << 20, "later than a day: {line:?}");
            if counts.len() <= place {
                counts.resize(place + 1, 0);
            }
            counts[place] += 1;
        }
        let rate = |count: u64| count * OPPORTUNITY_BITS * 1000 / STEP_MILLIS;
        let rates = counts.iter().map(|&count| NonZeroU64::new(rate(count)).unwrap_or(OUTAGE)).collect();
        Ok((Duration::from_millis(STEP_MILLIS), rates))
    }

    /// Time from the first to the last rate.
    pub(crate) fn length(&self) -> Duration {
        self.step * u32::try_from(self.rates.len()).unwrap_or(u32::MAX)
    }

    /// Mean rate in Mbit/s, at least 1.
    pub(crate) fn mean(&self) -> u64 {
        let sum: u64 = self.rates.iter().map(|rate| rate.get()).sum();
        (sum / self.rates.len() as u64 / 1_000_000).max(1)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The link with these rates, from its first frame on.
    pub(crate) fn replay(self: Arc<Self>, link: Link) -> Replay {
        Replay { recording: self, link, began: None, next: 0 }
    }
}

/// A link with the rate of a recording; after the end of the recording the last rate stays.
pub(crate) struct Replay {
    recording: Arc<Recording>,
    link: Link,
    began: Option<Instant>,
    next: usize,
}

impl Element for Replay {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let began = *self.began.get_or_insert(now);
        while let Some(&rate) = self.recording.rates.get(self.next) {
            let at = began + self.recording.step * u32::try_from(self.next).unwrap_or(u32::MAX);
            if at > now {
                break;
            }
            self.link.set_rate(at, Some(rate));
            self.next += 1;
        }
        self.link.pass(now, direction, frame, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_give_rates_and_an_outage_is_no_end() {
        let (step, rates) = Recording::by_second("1.5\n0.00\n20\n").expect("rates");
        assert_eq!(step, Duration::from_secs(1));
        assert_eq!(rates.iter().map(|rate| rate.get()).collect::<Vec<_>>(), [1_500_000, 10_000, 20_000_000]);
        let (step, rates) = Recording::mahimahi("0\n0\n99\n250\n").expect("times");
        assert_eq!(step, Duration::from_millis(100));
        assert_eq!(rates.iter().map(|rate| rate.get()).collect::<Vec<_>>(), [360_000, 10_000, 120_000]);
        assert!(Recording::by_second("-1\n").is_err() && Recording::mahimahi("1.5\n").is_err());
    }
}
