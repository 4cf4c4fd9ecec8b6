//! Pacing: segments leave at a rate and not in bursts of a whole window, which queues on the path would have to hold.
//!
//! The volume that may leave at once, a quantum, is what the rate gives in a millisecond (as Linux sizes super-segments): at least two
//! segments and at most one super-segment. If a super-segment takes less than a millisecond, several may leave early, up to a millisecond
//! ahead of the rate. The next wake-up is half a millisecond later, so that no timer has to be finer than that. A late one is made up for.
//!
//! The rate changes with acknowledgments. It is computed once for each of them and not for each segment.

use plait_base::{Duration, Instant};

/// How far segments may run ahead of the rate, and how much time a quantum is worth.
pub(crate) const QUANTUM: Duration = Duration::from_millis(1);
/// Smallest quantum, in segments.
const MIN_QUANTUM_SEGMENTS: u64 = 2;

pub(crate) const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// When the next quantum may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    rate: Option<Rate>,
    /// When all that has left would have left at the rate.
    next: Instant,
    /// Bytes that leave before pacing begins.
    unpaced: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Not zero.
    bytes_per_second: u64,
    /// Bytes.
    quantum: u64,
    /// How far ahead of the rate a quantum may leave.
    ahead: Duration,
}

impl Pace {
    /// Lets the first `window` bytes, or those after an idle time, leave without pacing: a window of that size is allowed to (RFC 6928),
    /// and short answers are not delayed.
    pub(crate) fn restart(&mut self, window: u64) {
        self.unpaced = window;
    }

    /// Sets the rate in bytes per second; `None` removes the limit. `segment` and `longest` are the payload of a segment and of the longest
    /// super-segment.
    pub(crate) fn set_rate(
        &mut self,
        now: Instant,
        bytes_per_second: Option<u64>,
        segment: u64,
        longest: u64,
    ) {
        self.rate = bytes_per_second.map(|per_second| {
            let per_second = per_second.max(1);
            let least = MIN_QUANTUM_SEGMENTS * segment;
            let quantum = (per_second / 1000).clamp(least, longest.max(least));
            let takes = duration(quantum, per_second);
            // Bytes that left at a lower rate, perhaps because of an outage's round trip, delay nothing.
            self.next = self.next.min(now + takes.max(QUANTUM));
            let ahead = QUANTUM.saturating_sub(takes);
            Rate { bytes_per_second: per_second, quantum, ahead }
        });
    }

    /// The same for a deliberate rate: the bytes that have left still count, at the new rate if that is higher.
    pub(crate) fn change_rate(&mut self, now: Instant, bytes_per_second: u64, segment: u64, longest: u64) {
        let waiting = self.next.saturating_since(now);
        let before = self.rate.map(|rate| rate.bytes_per_second);
        self.set_rate(now, Some(bytes_per_second), segment, longest);
        if let (Some(before), Some(rate)) = (before, &self.rate) {
            let scaled = waiting.as_nanos() * u128::from(before) / u128::from(rate.bytes_per_second);
            let scaled = Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX));
            self.next = self.next.max(now + scaled.min(waiting));
        }
    }

    /// Bytes that should leave at once, where there is a rate.
    pub(crate) fn quantum(&self) -> Option<u64> {
        self.rate.as_ref().map(|rate| rate.quantum)
    }

    /// Bytes that may leave now, or when to ask again.
    pub(crate) fn budget(&self, now: Instant) -> Result<u64, Instant> {
        let Some(rate) = &self.rate else { return Ok(u64::MAX) };
        if self.unpaced > 0 {
            return Ok(self.unpaced.max(rate.quantum));
        }
        if now + rate.ahead < self.next {
            return Err(self.next - rate.ahead / 2);
        }
        Ok(rate.quantum)
    }

    /// Notes that this many bytes have left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        if self.unpaced > 0 {
            self.unpaced = self.unpaced.saturating_sub(bytes);
            return;
        }
        let Some(rate) = &self.rate else { return };
        // A late wake-up is made up for, by one quantum at most.
        self.next = self.next.max(now - QUANTUM) + duration(bytes, rate.bytes_per_second);
    }
}

/// How long `bytes` take.
fn duration(bytes: u64, per_second: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(NANOS_PER_SECOND) / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1000;
    const LONGEST: u64 = 60_000;
    const MEGABYTE: u64 = 1_000_000;

    fn at_rate(bytes_per_second: u64) -> Pace {
        let mut pace = Pace::default();
        pace.set_rate(Instant::ZERO, Some(bytes_per_second), SEGMENT, LONGEST);
        pace
    }

    /// Sends so many bytes, waking `late` after each deadline. Returns the time it took and how often it was woken.
    fn send(pace: &mut Pace, bytes: u64, late: Duration) -> (Duration, u64) {
        let start = Instant::from_millis(1000);
        let (mut now, mut sent, mut woken) = (start, 0, 0);
        while sent < bytes {
            match pace.budget(now) {
                Ok(budget) => {
                    let len = budget.min(bytes - sent);
                    pace.on_sent(now, len);
                    sent += len;
                }
                Err(at) => {
                    assert!(at > now, "a deadline that lies ahead");
                    now = at + late;
                    woken += 1;
                }
            }
        }
        (now.saturating_since(start), woken)
    }

    fn quantum(pace: &Pace) -> u64 {
        pace.budget(Instant::from_millis(1)).expect("nothing has left yet")
    }

    #[test]
    fn a_quantum_is_a_millisecond_of_the_rate_within_two_segments_and_a_super_segment() {
        let quanta = [100_000, 10 * MEGABYTE, 1000 * MEGABYTE].map(|rate| quantum(&at_rate(rate)));
        assert_eq!(quanta, [2 * SEGMENT, 10_000, LONGEST]);
    }

    #[test]
    fn bytes_leave_at_the_rate() {
        let (took, _) = send(&mut at_rate(MEGABYTE), MEGABYTE / 10, Duration::ZERO);
        assert!((Duration::from_millis(96)..=Duration::from_millis(100)).contains(&took), "{took:?}");
    }

    #[test]
    fn a_high_rate_needs_two_wake_ups_in_a_millisecond_and_loses_nothing_to_a_coarse_timer() {
        for late in [Duration::ZERO, Duration::from_micros(60), Duration::from_micros(300)] {
            let (took, woken) = send(&mut at_rate(4000 * MEGABYTE), 400 * MEGABYTE, late);
            assert!(took <= Duration::from_millis(101), "{late:?} late: {took:?}");
            assert!(woken <= 210, "{late:?} late: {woken} wake-ups in 100 ms");
        }
    }

    #[test]
    fn a_pause_allows_no_more_than_a_quantum_at_once_on_top() {
        let mut pace = at_rate(MEGABYTE);
        send(&mut pace, 10_000, Duration::ZERO);
        let (now, mut burst) = (Instant::from_millis(9000), 0);
        while let Ok(budget) = pace.budget(now) {
            pace.on_sent(now, budget);
            burst += budget;
        }
        assert!(burst <= 2 * SEGMENT + 2 * SEGMENT, "{burst}");
    }

    #[test]
    fn the_first_window_does_not_wait() {
        let mut pace = at_rate(100_000);
        pace.restart(10 * SEGMENT);
        for _ in 0..10 {
            assert!(pace.budget(Instant::ZERO).is_ok());
            pace.on_sent(Instant::ZERO, SEGMENT);
        }
        pace.on_sent(Instant::ZERO, 2 * SEGMENT);
        assert_eq!(pace.budget(Instant::ZERO), Err(Instant::from_millis(20)));
    }

    #[test]
    fn a_wait_at_a_rate_that_was_too_low_ends_with_it() {
        let mut pace = at_rate(10);
        pace.on_sent(Instant::from_millis(1), 2 * SEGMENT);
        assert_eq!(pace.budget(Instant::from_millis(50)), Err(Instant::from_millis(200_000)));
        pace.set_rate(Instant::from_millis(50), Some(MEGABYTE), SEGMENT, LONGEST);
        assert_eq!(pace.budget(Instant::from_millis(50)), Err(Instant::from_millis(52)));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::default();
        pace.on_sent(Instant::ZERO, 1 << 40);
        assert_eq!(pace.budget(Instant::ZERO), Ok(u64::MAX));
    }
}
