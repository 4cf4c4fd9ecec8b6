//! Round-trip time and the retransmission timeout that follows from it (RFC 6298).

use plait_base::{Duration, Instant};

/// Timeout for the first data when the SYN was lost and nothing was measured (RFC 6298, section 5.7).
const RTO_AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// Upper bound of the timeout (RFC 6298, section 2.5: at least 60 s).
const MAX_RTO: Duration = Duration::from_secs(120);
/// How long the smallest sample is valid: routes change.
const MIN_RTT_LIFETIME: Duration = Duration::from_secs(300);

/// Samples of one round trip that are counted separately: with more of them each would have no weight.
const MAX_SAMPLES: u32 = 1 << 12;

/// `from`, moved by a part of `parts` towards `to`.
fn moved(from: Duration, to: Duration, parts: u32) -> Duration {
    if to > from { from + (to - from) / parts } else { from - (from - to) / parts }
}

/// Estimator of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    min_rto: Duration,
    initial_rto: Duration,
    /// The timeout without back-off, computed when a sample comes and not at each of the several questions per segment.
    base_rto: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
    minimum: Option<(Duration, Instant)>,
    latest: Option<Duration>,
    backoff: u8,
    /// No timeout is longer.
    longest: Duration,
    /// Round trips that began earlier include an absence of this host.
    valid_from: Instant,
}

impl Rtt {
    /// With a timeout of `initial_rto` before the first sample.
    pub(crate) fn new(min_rto: Duration, initial_rto: Duration) -> Self {
        Self {
            min_rto,
            initial_rto,
            base_rto: initial_rto.min(MAX_RTO),
            smoothed: None,
            variation: Duration::ZERO,
            minimum: None,
            latest: None,
            backoff: 0,
            longest: MAX_RTO,
            valid_from: Instant::ZERO,
        }
    }

    /// Before the handshake is over no timeout is longer than that.
    pub(crate) fn with_longest(self, longest: Duration) -> Self {
        Self { longest: longest.min(MAX_RTO), ..self }
    }

    /// Takes one sample (RFC 6298, section 2.2 and 2.3) of `expected` in a round trip. Each weighs less in proportion (RFC 7323, appendix
    /// G): the estimate of one round trip must not be forgotten within the next.
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration, expected: u64) {
        let share = u32::try_from(expected).unwrap_or(u32::MAX).clamp(1, MAX_SAMPLES);
        self.backoff = 0;
        if now - rtt < self.valid_from {
            return;
        }
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = moved(self.variation, smoothed.abs_diff(rtt), 4 * share);
                self.smoothed = Some(moved(smoothed, rtt, 8 * share));
            }
        }
        self.base_rto = self.computed_base_rto();
        self.shortest(now, rtt);
    }

    /// A sample of the path alone, without the time that the peer held its acknowledgment back.
    pub(crate) fn shortest(&mut self, now: Instant, rtt: Duration) {
        if now - rtt < self.valid_from {
            return;
        }
        self.latest = Some(rtt);
        let expired = |since| now.saturating_since(since) > MIN_RTT_LIFETIME;
        match self.minimum {
            Some((minimum, since)) if minimum < rtt && !expired(since) => {}
            Some(_) | None => self.minimum = Some((rtt, now)),
        }
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    pub(crate) fn minimum(&self) -> Option<Duration> {
        self.minimum.map(|(rtt, _)| rtt)
    }

    pub(crate) fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// The timeout without back-off.
    pub(crate) fn base_rto(&self) -> Duration {
        self.base_rto
    }

    /// The floor applies to the variation and not to the sum, as in hosts today: a peer may delay an acknowledgment for as long on any
    /// path.
    fn computed_base_rto(&self) -> Duration {
        match self.smoothed {
            None => self.initial_rto,
            Some(smoothed) => smoothed + (self.variation * 4).max(self.min_rto),
        }
        .min(MAX_RTO)
    }

    /// The timeout, back-off included (RFC 6298, section 5.5).
    pub(crate) fn rto(&self) -> Duration {
        self.base_rto().saturating_mul(1 << self.backoff.min(10)).min(self.longest)
    }

    pub(crate) fn backoff(&self) -> u8 {
        self.backoff
    }

    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// This host did not run until now: round trips that began before say nothing, and the timeout begins without back-off.
    pub(crate) fn resume(&mut self, now: Instant) {
        (self.backoff, self.valid_from) = (0, now);
    }

    /// The handshake is over; whether its SYN had to be sent again.
    pub(crate) fn handshake_done(&mut self, retransmitted: bool) {
        self.backoff = 0;
        self.longest = MAX_RTO;
        if retransmitted {
            self.initial_rto = RTO_AFTER_LOST_SYN;
            self.base_rto = self.computed_base_rto();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    //= rfc9293 3.8.1-01
    #[test]
    fn the_first_sample_gives_half_of_itself_as_variation() {
        let mut rtt = Rtt::new(ms(200), ms(1000));
        assert_eq!(rtt.rto(), ms(1000));
        rtt.sample(Instant::ZERO, ms(100), 1);
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(ms(100)), ms(50)));
        assert_eq!(rtt.rto(), ms(300));
    }

    #[test]
    fn a_round_trip_that_includes_an_absence_of_this_host_is_no_sample() {
        let mut rtt = Rtt::new(ms(200), ms(1000));
        rtt.sample(Instant::from_millis(1000), ms(100), 1);
        (0..5).for_each(|_| rtt.back_off());
        let resumed = Instant::from_millis(61_000);
        rtt.resume(resumed);
        assert_eq!(rtt.rto(), ms(300), "without back-off");
        rtt.sample(resumed + ms(50), ms(60_000), 1);
        assert_eq!(
            (rtt.smoothed(), rtt.minimum(), rtt.latest()),
            (Some(ms(100)), Some(ms(100)), Some(ms(100)))
        );
        rtt.sample(resumed + ms(50), ms(50), 1);
        assert_eq!(rtt.latest(), Some(ms(50)));
    }

    //= rfc9293 3.8.1-01
    #[test]
    fn later_samples_move_the_estimate_by_an_eighth_and_the_variation_by_a_quarter() {
        let mut rtt = Rtt::new(ms(1), ms(1000));
        rtt.sample(Instant::ZERO, ms(100), 1);
        rtt.sample(Instant::ZERO, ms(180), 1);
        assert_eq!(rtt.variation(), Duration::from_micros(57_500));
        assert_eq!(rtt.smoothed(), Some(ms(110)));
        assert_eq!(rtt.base_rto(), ms(340));
    }

    //= rfc9293 3.8.2-01
    #[test]
    fn back_off_doubles_up_to_two_minutes() {
        let mut rtt = Rtt::new(ms(200), ms(1000));
        rtt.sample(Instant::ZERO, ms(100), 1);
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), ms(1200));
        (0..200).for_each(|_| rtt.back_off());
        (0..200).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), MAX_RTO);
    }

    #[test]
    fn the_smallest_sample_is_forgotten_after_five_minutes() {
        let mut rtt = Rtt::new(ms(200), ms(1000));
        rtt.sample(Instant::ZERO, ms(10), 1);
        rtt.sample(Instant::ZERO + ms(299_000), ms(30), 1);
        assert_eq!(rtt.minimum(), Some(ms(10)));
        rtt.sample(Instant::ZERO + ms(301_000), ms(30), 1);
        assert_eq!(rtt.minimum(), Some(ms(30)));
    }

    #[test]
    fn a_round_trip_that_alternates_causes_no_timeout_however_often_it_is_measured() {
        let mut rtt = Rtt::new(ms(200), ms(1000));
        let mut now = Instant::ZERO;
        let mut early = 0;
        for round in 0..40 {
            let sample = ms(if round % 2 == 0 { 50 } else { 400 });
            early += u32::from(round > 3 && sample > rtt.rto());
            now += sample;
            for _ in 0..10 {
                rtt.sample(now, sample, 10);
            }
        }
        assert_eq!(early, 0);
    }
}
