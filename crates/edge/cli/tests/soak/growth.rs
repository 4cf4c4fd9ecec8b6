//! Whether a series of numbers, one a second, grows after a warm-up: the median of its first third against the median of its last third.

/// Samples that do not count: what ended connections (TIME-WAIT) and killed clients leave behind is kept for two minutes.
pub(crate) const WARM_UP: usize = 120;
/// Further samples below which a series says nothing: a third of them has a median that a burst of load does not move.
pub(crate) const FEWEST: usize = 120;

/// How much more the last third may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// In parts of the first third.
    pub(crate) share: f64,
    /// In units of the series, on top.
    pub(crate) units: f64,
}

/// The medians of the first and of the last third.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Growth {
    /// `None` if the series is too short.
    pub(crate) fn of(series: &[f64]) -> Option<Self> {
        let series = series.get(WARM_UP..).filter(|series| series.len() >= FEWEST)?;
        let third = series.len() / 3;
        let (from, to) = (&series[..third], &series[series.len() - third..]);
        Some(Self { from: median(from), to: median(to) })
    }

    pub(crate) fn is_within(self, tolerance: Tolerance) -> bool {
        self.to <= self.from * (1.0 + tolerance.share) + tolerance.units
    }
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { share: 0.1, units: 1.0 };

    fn is_flat(value: impl Fn(usize) -> f64) -> bool {
        let series: Vec<f64> = (0..WARM_UP + FEWEST).map(value).collect();
        Growth::of(&series).expect("long enough").is_within(TOLERANCE)
    }

    #[test]
    fn a_warm_up_and_bursts_are_no_growth_and_a_leak_is() {
        assert!(is_flat(|_| 100.0));
        assert!(is_flat(|at| if at < WARM_UP { at as f64 } else { 100.0 }), "a warm-up");
        assert!(is_flat(|at| if at % 10 == 9 { 900.0 } else { 100.0 }), "bursts");
        assert!(!is_flat(|at| 100.0 + at as f64 / 5.0), "a leak");
        assert!(!is_flat(|at| if at < WARM_UP + FEWEST / 2 { 100.0 } else { 130.0 }), "a step");
    }

    #[test]
    fn a_short_series_says_nothing() {
        assert_eq!(Growth::of(&[1.0; WARM_UP + FEWEST - 1]), None);
        assert_eq!(Growth::of(&[1.0; WARM_UP + FEWEST]), Some(Growth { from: 1.0, to: 1.0 }));
    }
}
