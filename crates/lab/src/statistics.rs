//! Medians and the spread of runs.

use serde::{Deserialize, Serialize};

/// The summary of several runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the runs gave no more, half no less; between the two in the middle where their number is even.
    pub median: f64,
    /// Of all runs.
    pub least: f64,
    /// Of all runs.
    pub most: f64,
    /// Each run, in their order.
    pub runs: Vec<f64>,
}

impl Spread {
    /// Of these runs; `None` if there are none, or one of them is no number.
    pub fn of(runs: impl IntoIterator<Item = f64>) -> Option<Self> {
        let runs: Vec<f64> = runs.into_iter().collect();
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let is_number = sorted.iter().all(|value| value.is_finite());
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        is_number.then_some(Self { median, least, most, runs })
    }
}

/// A number with three digits that count, for people.
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
    fn runs_keep_their_order_and_their_extremes() {
        let spread = Spread::of([2.0, 7.0, 1.0]).expect("three numbers");
        assert_eq!((spread.least, spread.most), (1.0, 7.0));
        assert_eq!(spread.runs, [2.0, 7.0, 1.0]);
    }

    #[test]
    fn three_digits_count() {
        let shown = [1234.5, 123.4, 99.96, 12.34, 9.999, 1.234, 0.1234, 0.012_34, 0.0].map(digits);
        assert_eq!(shown, ["1234", "123", "100", "12.3", "10.0", "1.23", "0.123", "0.0123", "0"]);
    }
}
