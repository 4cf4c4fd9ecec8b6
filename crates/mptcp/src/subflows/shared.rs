//! Whether two subflows share a bottleneck, by how their delays change: a queue that both wait in grows and drains for both at once.
//!
//! The mean round trip of each fifth of a second is kept, for half a minute. Compared is what changes from one to the next, and not the
//! delays themselves: those of two paths that fill their queues at the same pace look alike for long, and only the moments at which they drain
//! tell them apart. One drain at the same time is chance: the largest change that both have in common does not count.
//!
//! An attacker on one path can make its delays follow those of another path, if the attacker sees them: then both subflows increase as one TCP
//! does. Alone on its path each of them is as fast as before.

use arrayvec::ArrayVec;
use plait_base::{Duration, Instant, SubflowId};

/// What one mean is about.
const BIN: Duration = Duration::from_millis(200);
/// Means that are kept: enough for several drains of a queue.
const BINS: usize = 128;
/// Changes that both must have seen.
const LEAST_COMMON: usize = 25;
/// Correlation, without the largest common change, from which a bottleneck counts as shared, and below which no longer.
const ENTER: f32 = 0.35;
const LEAVE: f32 = 0.05;
/// Changes that are smaller than so many milliseconds, as a root mean square, say nothing.
const LEAST_CHANGE: f32 = 0.4;
/// Others that are remembered; further ones count as independent.
const MAX_OTHERS: usize = 8;

/// The delays of one subflow, and the subflows that wait in the same queue.
#[derive(Debug)]
pub(crate) struct Delays {
    /// The mean round trip of each of the last bins, in milliseconds, where there was one.
    means: Box<[Option<f32>; BINS]>,
    /// The bin that is being filled: its number, counted from the start of time, and sum and count of its samples.
    bin: u64,
    sum: f32,
    count: f32,
    shares_with: ArrayVec<SubflowId, MAX_OTHERS>,
}

impl Delays {
    pub(crate) fn new() -> Self {
        let means = Box::new([None; BINS]);
        Self { means, bin: 0, sum: 0.0, count: 0.0, shares_with: ArrayVec::new() }
    }

    /// Takes a round trip. Returns whether a bin is complete by that.
    pub(crate) fn take(&mut self, now: Instant, round_trip: Duration) -> bool {
        let bin = u64::try_from(u128::from(now.as_nanos()) / BIN.as_nanos()).unwrap_or(u64::MAX);
        let is_next = bin > self.bin;
        if is_next {
            self.means[place(self.bin)] = (self.count > 0.0).then_some(self.sum / self.count);
            let skipped = bin - self.bin - 1;
            for missing in (self.bin + 1..bin).take(usize::try_from(skipped).unwrap_or(BINS).min(BINS)) {
                self.means[place(missing)] = None;
            }
            (self.bin, self.sum, self.count) = (bin, 0.0, 0.0);
        }
        self.sum += round_trip.as_secs_f32() * 1000.0;
        self.count += 1.0;
        is_next
    }

    /// The mean of a bin that is complete and not too old.
    fn mean(&self, bin: u64) -> Option<f32> {
        let is_kept = bin < self.bin && bin + BINS as u64 > self.bin;
        self.means[place(bin)].filter(|_| is_kept)
    }

    /// How far the delay has changed from the bin before to this one.
    fn change(&self, bin: u64) -> Option<f32> {
        Some(self.mean(bin)? - self.mean(bin.checked_sub(1)?)?)
    }

    /// Looks whether the subflow `id` with these delays waits in the same queue.
    pub(crate) fn compare(&mut self, id: SubflowId, other: &Self) {
        let known = self.shares_with.iter().position(|known| *known == id);
        let likeness = self.likeness(other);
        match known {
            Some(place) if likeness.is_some_and(|likeness| likeness < LEAVE) => {
                self.shares_with.swap_remove(place);
            }
            None if likeness.is_some_and(|likeness| likeness >= ENTER) => {
                // More than fit count as independent.
                let _ = self.shares_with.try_push(id);
            }
            Some(_) | None => {}
        }
    }

    /// The correlation of the changes without the largest common one; `None` where there is too little to compare.
    fn likeness(&self, other: &Self) -> Option<f32> {
        let newest = self.bin.min(other.bin);
        let bins = newest.saturating_sub(BINS as u64)..newest;
        let changes = bins.filter_map(|bin| Some((self.change(bin)?, other.change(bin)?)));
        let (mut count, mut common, mut largest, mut own, mut theirs) = (0, 0.0, 0.0_f32, 0.0, 0.0);
        for (a, b) in changes {
            count += 1;
            common += a * b;
            largest = largest.max(a * b);
            own += a * a;
            theirs += b * b;
        }
        let least = LEAST_CHANGE * LEAST_CHANGE * count as f32;
        if count < LEAST_COMMON || own < least || theirs < least {
            return None;
        }
        Some((common - largest) / (own * theirs).sqrt())
    }

    /// Whether that subflow waits in the same queue.
    pub(crate) fn shares_with(&self, id: SubflowId) -> bool {
        self.shares_with.contains(&id)
    }
}

fn place(bin: u64) -> usize {
    (bin % BINS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: SubflowId = SubflowId(7);

    /// Delays whose queue grows by 0.5 ms in each bin and drains by 20 ms each `period` bins, `shift` bins later than at first.
    fn sawtooth(period: u64, shift: u64, bins: u64) -> Delays {
        let mut delays = Delays::new();
        for bin in 1..=bins {
            let waiting = ((bin + shift) % period) as f64 * 0.5;
            let round_trip = Duration::from_secs_f64((40.0 + waiting) / 1000.0);
            for part in 0..10 {
                delays.take(Instant::ZERO + BIN * bin as u32 + Duration::from_millis(10 * part), round_trip);
            }
        }
        delays
    }

    #[test]
    fn queues_that_drain_together_are_one_and_those_that_drain_apart_are_not() {
        let mut one = sawtooth(40, 0, 130);
        one.compare(OTHER, &sawtooth(40, 0, 130));
        assert!(one.shares_with(OTHER));
        one.compare(OTHER, &sawtooth(40, 20, 130));
        assert!(!one.shares_with(OTHER));
        one.compare(OTHER, &sawtooth(33, 5, 130));
        assert!(!one.shares_with(OTHER), "growing at the same pace is no sign");
    }

    #[test]
    fn one_drain_at_the_same_time_is_chance() {
        let mut one = sawtooth(100, 0, 130);
        one.compare(OTHER, &sawtooth(100, 0, 130));
        assert!(!one.shares_with(OTHER));
    }

    #[test]
    fn a_short_time_and_delays_that_do_not_change_say_nothing() {
        let mut one = sawtooth(10, 0, 20);
        one.compare(OTHER, &sawtooth(10, 0, 20));
        assert!(!one.shares_with(OTHER));
        let mut one = sawtooth(1, 0, 130);
        one.compare(OTHER, &sawtooth(1, 0, 130));
        assert!(!one.shares_with(OTHER));
    }
}
