//! Detection of a shared bottleneck by the delays of two subflows: a common queue grows and drains for both at once.
//!
//! The mean round trip of each fifth of a second is kept, for half a minute. The changes from one mean to the next are compared, not the
//! delays themselves. The delays of two paths whose queues fill at the same pace look alike for long, and only the moments of draining tell
//! them apart. One drain at the same time is chance: the largest common change does not count.
//!
//! An attacker on one path that sees the delays of another path can imitate them. Both subflows then increase as one TCP connection does.
//! Alone on its path, each of them is as fast as before.

use arrayvec::ArrayVec;
use plait_base::{Duration, Instant, SubflowId};

use super::{Subflow, Subflows};

/// Duration covered by one mean.
const BIN: Duration = Duration::from_millis(200);
/// Number of means kept: enough for several drains of a queue.
const BINS: usize = 128;
/// Least number of changes that both subflows must have.
const LEAST_COMMON: usize = 25;
/// Correlation, without the largest common change, from which on a bottleneck counts as shared, and below which it no longer does.
const ENTER: f32 = 0.35;
const LEAVE: f32 = 0.05;
/// Least root mean square of the changes, in milliseconds. Smaller changes are not significant.
const LEAST_CHANGE: f32 = 0.4;
/// Subflows with coupled congestion control. Further subflows are left out of account.
pub(crate) const MAX_COUPLED: usize = 32;
/// Largest number of other subflows remembered. Further ones count as independent.
const MAX_OTHERS: usize = 8;

/// The delays of one subflow, and the subflows that wait in the same queue.
#[derive(Debug)]
pub(crate) struct Delays {
    /// The mean round trip of each of the last bins, in milliseconds, where there was one.
    means: Box<[Option<f32>; BINS]>,
    /// The current bin: its number, counted from the start of time, and the sum and count of its samples.
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

    /// Adds a round trip. Returns whether it completes a bin.
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

    /// Returns the mean of a bin that is complete and not too old.
    fn mean(&self, bin: u64) -> Option<f32> {
        let is_kept = bin < self.bin && bin + BINS as u64 > self.bin;
        self.means[place(bin)].filter(|_| is_kept)
    }

    /// Returns the change of the delay from the previous bin to this one.
    fn change(&self, bin: u64) -> Option<f32> {
        Some(self.mean(bin)? - self.mean(bin.checked_sub(1)?)?)
    }

    /// Checks whether the subflow `id` with these delays waits in the same queue.
    pub(crate) fn compare(&mut self, id: SubflowId, other: &Self) {
        let known = self.shares_with.iter().position(|known| *known == id);
        let likeness = self.likeness(other);
        match known {
            Some(place) if likeness.is_some_and(|likeness| likeness < LEAVE) => {
                self.shares_with.swap_remove(place);
            }
            None if likeness.is_some_and(|likeness| likeness >= ENTER) => {
                // Subflows beyond the limit count as independent.
                let _ = self.shares_with.try_push(id);
            }
            Some(_) | None => {}
        }
    }

    /// Returns the correlation of the changes without the largest common one; `None` if there is too little to compare.
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

impl Subflows {
    /// Notes the last round trip of a subflow, and checks at intervals which other subflows wait in the same queue.
    pub(crate) fn watch_delay(&mut self, now: Instant, index: usize) {
        if self.len() < 2 {
            return;
        }
        let subflow = self.touch(index);
        let Some(round_trip) = subflow.tcp.latest_round_trip() else { return };
        let mut delays = subflow.state.take_delays().unwrap_or_else(Delays::new);
        let id = subflow.state.id();
        if delays.take(now, round_trip) {
            let others = self.iter().filter(|other| other.state.id() != id).take(MAX_COUPLED);
            for (other, theirs) in others.filter_map(|other| Some((other.state.id(), other.state.delays()?)))
            {
                delays.compare(other, theirs);
            }
        }
        self.touch(index).state.set_delays(delays);
    }
}

impl Subflow {
    /// Whether both subflows wait in the same queue, as far as either has found out.
    pub(crate) fn shares_queue(&self, other: &Self) -> bool {
        let knows =
            |a: &Self, b: &Self| a.state.delays().is_some_and(|delays| delays.shares_with(b.state.id()));
        knows(self, other) || knows(other, self)
    }
}

fn place(bin: u64) -> usize {
    (bin % BINS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: SubflowId = SubflowId(7);

    /// Returns delays of a queue that grows by 0.5 ms in each bin and drains by 20 ms each `period` bins, `shift` bins later than at first.
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
