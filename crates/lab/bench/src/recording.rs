//! Rates of a path as they were recorded.
//!
//! Two formats are read: one number for each second, in Mbit/s (`.mbps`); and that of Mahimahi, the times in milliseconds at which the
//! path could have delivered 1500 bytes (any other name). The files are not part of the project.

use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// Step of a Mahimahi trace as it is replayed, in milliseconds.
const STEP_MILLIS: u64 = 100;
/// Bits delivered at one time of a Mahimahi trace.
const OPPORTUNITY_BITS: u64 = 12_000;
/// Most steps that are read: more than a day of a Mahimahi trace.
const MOST_STEPS: usize = 1 << 20;
/// Rate in place of none, in bits per second: an outage delivers a packet in a second or so.
const OUTAGE: NonZeroU64 = NonZeroU64::new(10_000).expect("not zero");

/// Rates of one path, each for the same time. After the last one, the first one follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    name: String,
    step: Duration,
    /// Bits per second.
    rates: Vec<NonZeroU64>,
}

impl Recording {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is no rate or time.
    pub fn read(path: &Path) -> Result<Self> {
        let named = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(named)?;
        let is_by_second = path.extension().is_some_and(|extension| extension == "mbps");
        let rates = if is_by_second { Self::by_second(&text) } else { Self::mahimahi(&text) };
        let (step, rates) = rates.with_context(named)?;
        ensure!(!rates.is_empty(), "{}: no rates", path.display());
        ensure!(rates.len() <= MOST_STEPS, "{}: too long", path.display());
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Self { name, step, rates })
    }

    /// Returns its first `seconds`, and at least one rate.
    #[must_use]
    pub fn shortened(mut self, seconds: u64) -> Self {
        let steps = Duration::from_secs(seconds).as_nanos() / self.step.as_nanos().max(1);
        self.rates.truncate(usize::try_from(steps).unwrap_or(usize::MAX).max(1));
        self
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
            ensure!(place < MOST_STEPS, "later than a day: {line:?}");
            if counts.len() <= place {
                counts.resize(place + 1, 0);
            }
            counts[place] += 1;
        }
        let rate = |count: u64| count * OPPORTUNITY_BITS * 1000 / STEP_MILLIS;
        let rates = counts.iter().map(|&count| NonZeroU64::new(rate(count)).unwrap_or(OUTAGE)).collect();
        Ok((Duration::from_millis(STEP_MILLIS), rates))
    }

    /// Returns the name of the file without its ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the time for which each rate holds.
    pub fn step(&self) -> Duration {
        self.step
    }

    /// Returns the rate of step number `step` in bits per second.
    pub fn rate(&self, step: u64) -> NonZeroU64 {
        let place = usize::try_from(step % self.rates.len().max(1) as u64).unwrap_or(0);
        self.rates.get(place).copied().unwrap_or(OUTAGE)
    }

    /// Returns the time from the first rate to the end of the last one.
    pub fn length(&self) -> Duration {
        self.step * u32::try_from(self.rates.len()).unwrap_or(u32::MAX)
    }

    /// Returns the mean rate in Mbit/s.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.rates.iter().map(|rate| rate.get() as f64).sum();
        sum / self.rates.len().max(1) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of((step, rates): (Duration, Vec<NonZeroU64>)) -> Recording {
        Recording { name: String::new(), step, rates }
    }

    #[test]
    fn both_formats_give_rates_and_an_outage_is_no_end() {
        let by_second = of(Recording::by_second("1.5\n0.00\n20\n").expect("rates"));
        assert_eq!(by_second.length(), Duration::from_secs(3));
        assert_eq!(
            [0, 1, 2, 3].map(|step| by_second.rate(step).get()),
            [1_500_000, 10_000, 20_000_000, 1_500_000]
        );
        let mahimahi = of(Recording::mahimahi("0\n0\n99\n250\n").expect("times"));
        assert_eq!(mahimahi.step(), Duration::from_millis(100));
        assert_eq!([0, 1, 2].map(|step| mahimahi.rate(step).get()), [360_000, 10_000, 120_000]);
        assert!(Recording::by_second("-1\n").is_err() && Recording::mahimahi("1.5\n").is_err());
    }

    #[test]
    fn the_beginning_of_a_recording_has_its_own_mean_and_length() {
        let whole = of(Recording::by_second("10\n30\n80\n").expect("rates"));
        let begin = whole.clone().shortened(2);
        assert_eq!((whole.mean(), begin.mean()), (40.0, 20.0));
        assert_eq!(begin.length(), Duration::from_secs(2));
        assert_eq!(whole.shortened(0).length(), Duration::from_secs(1));
    }

    #[test]
    fn a_file_that_is_no_recording_is_an_error_with_its_name() {
        let directory = std::env::temp_dir().join(format!("plait-recording-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("drive.mbps");
        for (text, complaint) in [("12\nfast\n", "not a rate: \"fast\""), ("\n", "no rates")] {
            fs::write(&file, text).expect("written");
            let error = format!("{:#}", Recording::read(&file).expect_err("no rates"));
            assert!(error.contains(complaint) && error.contains("drive.mbps"), "{error}");
        }
        fs::write(&file, "12\n").expect("written");
        assert_eq!(Recording::read(&file).expect("a rate").name(), "drive");
        fs::remove_dir_all(directory).expect("removed");
    }
}
