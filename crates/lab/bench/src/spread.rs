//! Medians and the spread of runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The summary of one figure over all rounds of a measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The run in the middle, by size. If the number of runs is even, the mean of the two in the middle.
    pub median: f64,
    /// The smallest run.
    pub least: f64,
    /// The largest run.
    pub most: f64,
    /// Each run, in their order.
    pub runs: Vec<f64>,
}

impl Spread {
    /// Returns the spread of these runs; `None` if there are none, or if one of them is infinite or no number.
    pub fn of(runs: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::sorted(runs.into_iter().collect())
            .filter(|spread| spread.runs.iter().all(|run| run.is_finite()))
    }

    /// Returns the spread of the runs that are finite numbers, if there are any, and the number of the other runs.
    pub fn of_finite(runs: impl IntoIterator<Item = f64>) -> (Option<Self>, usize) {
        let (finite, others): (Vec<f64>, Vec<f64>) = runs.into_iter().partition(|run| run.is_finite());
        (Self::of(finite), others.len())
    }

    /// Returns the spread of these times in milliseconds; `None` if there are none. A time without an end is
    /// [`INFINITY`](f64::INFINITY), longer than all others.
    pub fn of_times(times: impl IntoIterator<Item = Option<Duration>>) -> Option<Self> {
        let millis = |time: Option<Duration>| time.map_or(f64::INFINITY, |time| time.as_secs_f64() * 1e3);
        Self::sorted(times.into_iter().map(millis).collect())
    }

    fn sorted(runs: Vec<f64>) -> Option<Self> {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Self { median, least, most, runs })
    }

    /// Returns the smallest run for which at least `percent` of all runs are not larger: 25 and 75 give the quartiles.
    pub fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or(self.most)
    }

    /// Returns the spread of the ratios to another subject in the same rounds; `None` if the subjects have different numbers of rounds, or if
    /// a ratio is no finite number.
    pub fn ratio_to(&self, other: &Self) -> Option<Self> {
        if self.runs.len() != other.runs.len() {
            return None;
        }
        Self::of(self.runs.iter().zip(&other.runs).map(|(run, other)| run / other))
    }
}

/// Returns the number as text with three significant digits.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    let places = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.0995 => 3,
        _ => 4,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(runs: &[f64]) -> Option<f64> {
        Spread::of(runs.iter().copied()).map(|spread| spread.median)
    }

    #[test]
    fn the_median_is_the_middle_one_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 1000.0, 2.0, 3.0]), Some(3.0), "one run out of line does not move it");
    }

    #[test]
    fn between_two_in_the_middle_the_median_is_half_way() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn no_run_and_what_is_no_number_have_no_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(median(&[f64::INFINITY]), None);
    }

    #[test]
    fn what_is_no_number_is_counted_beside_the_spread_of_the_others() {
        let (spread, others) = Spread::of_finite([1.0, f64::NAN, 3.0, f64::INFINITY]);
        assert_eq!((spread.map(|spread| spread.runs), others), (Some(vec![1.0, 3.0]), 2));
        assert_eq!(Spread::of_finite([f64::NAN]), (None, 1));
    }

    #[test]
    fn runs_keep_their_order_and_their_extremes() {
        let spread = Spread::of([2.0, 7.0, 1.0]).expect("three numbers");
        assert_eq!((spread.least, spread.most), (1.0, 7.0));
        assert_eq!(spread.runs, [2.0, 7.0, 1.0]);
    }

    #[test]
    fn a_percentile_is_the_smallest_run_that_so_many_do_not_exceed() {
        let spread = Spread::of((1..=100).rev().map(f64::from)).expect("numbers");
        let percentiles = [0, 25, 50, 75, 95, 100].map(|percent| spread.percentile(percent));
        assert_eq!(percentiles, [1.0, 25.0, 50.0, 75.0, 95.0, 100.0]);
        assert_eq!(Spread::of([7.0]).expect("a number").percentile(95), 7.0);
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let [fast, slow] =
            [[10.0, 2.0, 6.0], [5.0, 1.0, 2.0]].map(|runs| Spread::of(runs).expect("three numbers"));
        let ratio = fast.ratio_to(&slow).expect("numbers");
        assert_eq!((ratio.median, ratio.runs), (2.0, vec![2.0, 2.0, 3.0]));
        let zero = Spread::of([0.0; 3]).expect("three numbers");
        assert_eq!(fast.ratio_to(&zero), None);
        let of_two_rounds = Spread::of([1.0; 2]).expect("two numbers");
        assert_eq!(fast.ratio_to(&of_two_rounds), None);
        assert_eq!(of_two_rounds.ratio_to(&fast), None);
    }

    #[test]
    fn a_time_without_an_end_is_longer_than_all_others() {
        let times = |times: &[Option<u64>]| {
            Spread::of_times(times.iter().map(|time| time.map(Duration::from_millis)))
        };
        let spread = times(&[None, Some(20), Some(10)]).expect("three times");
        assert_eq!((spread.least, spread.median, spread.most), (10.0, 20.0, f64::INFINITY));
        assert_eq!(times(&[None, Some(20)]).map(|spread| spread.median), Some(f64::INFINITY));
        assert_eq!(times(&[]), None);
    }

    #[test]
    fn three_digits_are_significant() {
        let shown = [1234.5, 123.4, 99.96, 12.34, 9.999, 1.234, 0.1234, 0.012_34, 0.0].map(digits);
        assert_eq!(shown, ["1234", "123", "100", "12.3", "10.0", "1.23", "0.123", "0.0123", "0"]);
    }
}
