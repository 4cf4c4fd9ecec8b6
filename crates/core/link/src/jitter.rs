//! Jitter: a delay that varies without reordering.

use plait_base::{Duration, Instant, Random, SeededRandom};

/// A delay between zero and a bound as a continuous function of time: random at knots that lie twice the
/// bound apart, straight lines between them. It never falls faster than time passes, so what was sent
/// later does not arrive earlier. An independent delay per packet would either reorder or, with the order
/// restored, hold every packet of a fast flow back to the maximum.
pub(crate) struct Jitter {
    /// Index of the knot before the last time asked for; the value there and at the next, 0 to 2^64 - 1.
    segment: Option<(u64, u64, u64)>,
    random: SeededRandom,
}

impl Jitter {
    pub(crate) const fn new(random: SeededRandom) -> Self {
        Self { segment: None, random }
    }

    /// The additional delay of what passes at `at`; the times asked for do not run backwards.
    pub(crate) fn at(&mut self, at: Instant, bound: Duration) -> Duration {
        let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        if bound == 0 {
            return Duration::ZERO;
        }
        let spacing = 2 * bound;
        let index = at.as_nanos() / spacing;
        let (from, to) = match self.segment {
            Some((known, from, to)) if index == known => (from, to),
            Some((known, _, to)) if index == known.wrapping_add(1) => (to, self.random.next_u64()),
            Some(_) | None => (self.random.next_u64(), self.random.next_u64()),
        };
        self.segment = Some((index, from, to));

        let (from, to) = (scale(from, bound), scale(to, bound));
        let passed = i128::from(at.as_nanos() % spacing);
        let rise = (i128::from(to) - i128::from(from)) * passed / i128::from(spacing);
        Duration::from_nanos(u64::try_from(i128::from(from) + rise).unwrap_or(0))
    }
}

/// `value` of 2^64 as a share of `bound`.
fn scale(value: u64, bound: u64) -> u64 {
    ((u128::from(value) * u128::from(bound)) >> 64) as u64
}
