//! Timestamps (RFC 7323): our clock, the peer's, and protection against wrapped sequence numbers.

use plait_base::{Duration, Instant};

/// After this long without a segment the peer's clock may have wrapped (RFC 7323, section 5.5).
const OUTDATED: Duration = Duration::from_secs(24 * 24 * 3600);

/// Value and echo of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) value: u32,
    pub(crate) echo: u32,
}

/// `a` is before `b`, modulo the wrap (RFC 7323, section 5.2).
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// Both clocks of a connection that uses timestamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    offset: u32,
    recent: u32,
    recent_at: Instant,
}

impl Timestamps {
    pub(crate) fn new(offset: u32) -> Self {
        Self { offset, recent: 0, recent_at: Instant::ZERO }
    }

    /// Our clock: milliseconds, from a secret start.
    pub(crate) fn value(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// Returns the timestamp to send.
    pub(crate) fn stamp(&self, now: Instant) -> Stamp {
        Stamp { value: self.value(now), echo: self.recent }
    }

    /// Returns the timestamp to send with the answer to a segment whose bytes had all arrived before, and whose timestamp this is. RFC 7323
    /// does not take its timestamp, as it lies outside the window, and the echo is then that of a segment before it: after an outage in
    /// which an acknowledgment was lost, the peer would measure the time of the outage as a round trip. The answer echoes what it answers,
    /// and nothing else does.
    pub(crate) fn answer_to(&self, now: Instant, repeated: u32) -> Stamp {
        let echo = if is_before(self.recent, repeated) { repeated } else { self.recent };
        Stamp { value: self.value(now), echo }
    }

    /// The first value of the peer.
    pub(crate) fn start(&mut self, now: Instant, value: u32) {
        self.recent = value;
        self.recent_at = now;
    }

    /// Whether a segment is older than what was seen (RFC 7323, section 5.3, R1).
    pub(crate) fn is_old(&self, now: Instant, value: u32) -> bool {
        is_before(value, self.recent) && now.saturating_since(self.recent_at) < OUTDATED
    }

    /// The latest value of the peer.
    pub(crate) fn latest(&self) -> u32 {
        self.recent
    }

    /// Whether all that was seen lies before `value`.
    pub(crate) fn precedes(&self, value: u32) -> bool {
        is_before(self.recent, value)
    }

    /// Remembers the value of a segment that covers the last acknowledgment sent (section 5.3, R3).
    pub(crate) fn update(&mut self, now: Instant, value: u32) {
        if !is_before(value, self.recent) || now.saturating_since(self.recent_at) >= OUTDATED {
            self.start(now, value);
        }
    }

    /// Whether `echo` answers something that left before `sent` (RFC 3522: then a retransmission of that
    /// moment was not needed).
    pub(crate) fn echoes_before(&self, echo: u32, sent: Instant) -> bool {
        is_before(echo, self.value(sent))
    }

    /// The round trip that `echo` tells of, in whole milliseconds and one at least, as less cannot be told from nothing;
    /// `None` if it is not one of ours.
    pub(crate) fn round_trip(&self, now: Instant, echo: u32) -> Option<Duration> {
        let millis = self.value(now).wrapping_sub(echo);
        (millis < 1 << 24).then(|| Duration::from_millis(u64::from(millis.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap_of_the_clock() {
        let mut stamps = Timestamps::new(0);
        stamps.start(Instant::ZERO, u32::MAX - 1);
        let now = Instant::from_millis(10);
        assert!(!stamps.is_old(now, 3));
        stamps.update(now, 3);
        assert!(stamps.is_old(now, u32::MAX));
        assert_eq!(stamps.stamp(now).echo, 3);
    }

    #[test]
    fn after_24_days_of_silence_any_value_is_new() {
        let mut stamps = Timestamps::new(0);
        stamps.start(Instant::ZERO, 100);
        assert!(stamps.is_old(Instant::from_millis(5), 99));
        assert!(!stamps.is_old(Instant::ZERO + OUTDATED, 99));
    }

    #[test]
    fn an_echo_from_the_future_is_no_sample() {
        let stamps = Timestamps::new(u32::MAX);
        let now = Instant::from_millis(50);
        assert_eq!(
            stamps.round_trip(now, stamps.value(Instant::from_millis(20))),
            Some(Duration::from_millis(30))
        );
        assert_eq!(stamps.round_trip(now, stamps.value(Instant::from_millis(60))), None);
    }

    #[test]
    fn a_round_trip_of_less_than_a_tick_counts_as_one() {
        let stamps = Timestamps::new(7);
        let now = Instant::from_millis(50);
        assert_eq!(stamps.round_trip(now, stamps.value(now)), Some(Duration::from_millis(1)));
    }
}
