//! Pacing: segments leave at the rate of the window instead of in bursts (RFC 9293 leaves it free; RFC 7661
//! and RFC 8312 recommend it after idle times).

use plait_base::{Duration, Instant};

/// Time that one burst may take on the path; shorter bursts would cost more wake-ups than they smooth.
const BURST: Duration = Duration::from_millis(1);
/// Smallest burst, in segments.
const MIN_BURST_SEGMENTS: u64 = 2;

/// When the next burst may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    on: bool,
    next: Instant,
}

/// What determines the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Congestion window, in bytes.
    pub(crate) window: u64,
    pub(crate) srtt: Option<Duration>,
    pub(crate) slow_start: bool,
    /// Payload of a segment.
    pub(crate) segment: u64,
}

impl Rate {
    /// Bytes per second: twice the window per round trip while it doubles, and a fifth more than the window
    /// later, so that pacing itself never limits.
    fn bytes_per_second(&self) -> Option<u64> {
        let srtt = self.srtt?.as_nanos().max(1);
        let percent = if self.slow_start { 200 } else { 120 };
        let rate = u128::from(self.window) * percent * 10_000_000 / srtt;
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }
}

impl Pace {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, next: Instant::ZERO }
    }

    /// Bytes that may leave now, or when the next may.
    pub(crate) fn budget(&self, now: Instant, rate: Rate) -> Result<u64, Instant> {
        if !self.on {
            return Ok(u64::MAX);
        }
        if now < self.next {
            return Err(self.next);
        }
        let burst = rate.bytes_per_second().map_or(u64::MAX, |per_second| {
            let bytes = u128::from(per_second) * BURST.as_nanos() / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        });
        Ok(burst.max(MIN_BURST_SEGMENTS * rate.segment))
    }

    /// So many bytes have left. Returns when the next may, if that is later.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, rate: Rate) -> Option<Instant> {
        let per_second = rate.bytes_per_second()?;
        if !self.on {
            return None;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(per_second);
        let gap = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        // A late wake-up is made up for, by one burst at most.
        self.next = self.next.max(now - BURST) + gap;
        (self.next > now).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate =
        Rate { window: 100_000, srtt: Some(Duration::from_millis(100)), slow_start: false, segment: 1000 };

    #[test]
    fn a_window_leaves_over_a_little_less_than_a_round_trip() {
        let mut pace = Pace::new(true);
        let (mut now, mut sent) = (Instant::from_millis(1000), 0);
        while sent < 100_000 {
            match pace.budget(now, RATE) {
                Ok(budget) => {
                    sent += budget;
                    pace.on_sent(now, budget, RATE);
                }
                Err(at) => now = at,
            }
        }
        let took = now.saturating_since(Instant::from_millis(1000));
        assert!((Duration::from_millis(75)..Duration::from_millis(90)).contains(&took), "{took:?}");
    }

    #[test]
    fn without_a_sample_or_without_pacing_nothing_waits() {
        let mut pace = Pace::new(true);
        assert_eq!(pace.on_sent(Instant::ZERO, 1 << 20, Rate { srtt: None, ..RATE }), None);
        let mut off = Pace::new(false);
        off.on_sent(Instant::ZERO, 1 << 20, RATE);
        assert_eq!(off.budget(Instant::ZERO, RATE), Ok(u64::MAX));
    }
}
