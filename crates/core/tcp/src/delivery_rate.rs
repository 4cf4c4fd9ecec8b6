//! Estimate of the delivery rate (draft-ietf-ccwg-bbr, section 4.1; draft-cheng-iccrg-delivery-rate-estimation).
//!
//! A sample is what was delivered between two moments, divided by the time that took. The time begins with the last delivery
//! before the newest segment that an acknowledgment covers had left, and ends with the acknowledgment. How long it took to
//! send is looked at as well, and the longer one counts: acknowledgments may come in bunches or be held back.
//!
//! What a segment has to remember for that is a [`Departure`]; one stands for a whole run of segments that left together.

use plait_base::{Duration, Instant};

use crate::flight::Sent;
use crate::pace::NANOS_PER_SECOND;

/// The state at the departure of a run of segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Departure {
    /// Bytes delivered until then, modulo 2^32: what is delivered before this run is, is no more than a window or two.
    delivered: u32,
    /// Time since the last delivery.
    since_delivery: Span,
    /// Time since what that delivery was of had left.
    since_departure: Span,
    /// Bytes lost until then, modulo 2^32.
    lost: u32,
    /// Bytes in flight with this run.
    in_flight: u32,
    /// The owner had had nothing to send.
    app_limited: bool,
}

impl Departure {
    /// Takes in what left behind it at the same time.
    pub(crate) fn join(&mut self, next: &Self) {
        self.in_flight = self.in_flight.max(next.in_flight);
    }

    /// Bytes in flight with this run.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.into()
    }

    /// The owner had had nothing to send.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited
    }

    /// Returns how many of `lost` bytes were lost since it left.
    pub(crate) fn lost_since(&self, lost: u64) -> u64 {
        u64::from((lost as u32).wrapping_sub(self.lost))
    }
}

/// The sample of one acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    /// Bytes per second, where the time is long enough to tell.
    pub(crate) rate: Option<u64>,
    /// Bytes delivered since the newest segment that it covers had left.
    pub(crate) delivered: u64,
    /// Bytes delivered until then, and until now.
    pub(crate) prior: u64,
    pub(crate) total: u64,
    /// The state at the departure of that segment.
    pub(crate) departure: Departure,
}

/// A duration in 256 ns, up to 18 minutes: in four bytes, for there is one per run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Span(u32);

impl Span {
    fn between(earlier: Instant, later: Instant) -> Self {
        let nanos = later.saturating_since(earlier).as_nanos() >> 8;
        Self(u32::try_from(nanos).unwrap_or(u32::MAX))
    }

    fn duration(self) -> Duration {
        Duration::from_nanos(u64::from(self.0) << 8)
    }
}

/// The newest segment that the present acknowledgment covers.
#[derive(Clone, Copy, Debug)]
struct Newest {
    departure: Departure,
    at: Instant,
    end: u64,
}

/// The estimator of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryRate {
    /// Bytes delivered.
    delivered: u64,
    /// Bytes declared lost, those of probes for a larger MTU left out.
    lost: u64,
    /// When something was delivered last, and when that had left.
    delivered_at: Instant,
    departed_at: Instant,
    /// Samples of what leaves before so much is delivered are limited by the owner; 0: it keeps up.
    app_limited_until: u64,
    /// Since when there has been room and nothing to send.
    starved_at: Option<Instant>,
    newest: Option<Newest>,
    /// Bytes per second.
    rate: Option<u64>,
    /// The sample that this is from was limited by the owner.
    is_rate_app_limited: bool,
}

impl DeliveryRate {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            delivered: 0,
            lost: 0,
            delivered_at: now,
            departed_at: now,
            app_limited_until: 0,
            starved_at: None,
            newest: None,
            rate: None,
            is_rate_app_limited: false,
        }
    }

    /// Bytes per second by the last sample. One that the owner has limited shows no more than that the path is at least
    /// as fast: it counts where it is above what was known.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Whether the path may be faster than [`DeliveryRate::rate`] says, as the owner had nothing to send.
    pub(crate) fn is_rate_app_limited(&self) -> bool {
        self.is_rate_app_limited
    }

    /// There is room, and the owner has nothing for it. It may bring something at the same moment yet.
    pub(crate) fn on_starved(&mut self, now: Instant) {
        self.starved_at.get_or_insert(now);
    }

    /// Bytes delivered so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes declared lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether what leaves now shows less than the path can do.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// Notes that `in_flight` is smaller than possible on purpose: these bytes do not show the capacity of the path.
    pub(crate) fn limit(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// `sent` was declared lost.
    pub(crate) fn on_lost(&mut self, sent: &Sent) {
        self.lost += sent.len();
    }

    /// `bytes` leave while `in_flight` are on their way.
    pub(crate) fn on_send(&mut self, now: Instant, in_flight: u64, bytes: u64) -> Departure {
        if self.starved_at.take().is_some_and(|at| at < now) {
            // What is on its way, and what leaves until it is delivered, does not show what the path can do.
            self.limit(in_flight);
        }
        if in_flight == 0 {
            // Time begins with this: before it nothing could be delivered.
            self.delivered_at = now;
            self.departed_at = now;
        }
        Departure {
            delivered: self.delivered as u32,
            since_delivery: Span::between(self.delivered_at, now),
            since_departure: Span::between(self.departed_at, now),
            lost: self.lost as u32,
            in_flight: u32::try_from(in_flight + bytes).unwrap_or(u32::MAX),
            app_limited: self.app_limited_until > 0,
        }
    }

    /// The acknowledgment at `now` tells that `sent` has arrived.
    pub(crate) fn on_delivery(&mut self, now: Instant, sent: &Sent) {
        self.delivered += sent.len();
        self.delivered_at = now;
        if self.newest.is_none_or(|newest| (sent.at, sent.end) > (newest.at, newest.end)) {
            self.newest = Some(Newest { departure: sent.departure, at: sent.at, end: sent.end });
            self.departed_at = sent.at;
        }
    }

    /// All deliveries of the acknowledgment were told; `None` if there were none. A time below `min_rtt` gives no rate: no path
    /// is that fast, so the acknowledgments were of something sent earlier, or came in a bunch.
    pub(crate) fn end_sample(&mut self, now: Instant, min_rtt: Option<Duration>) -> Option<Sample> {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Newest { departure, at, end: _ } = self.newest.take()?;
        let acked_in = now.saturating_since(at) + departure.since_delivery.duration();
        let interval = acked_in.max(departure.since_departure.duration());
        let delivered = u64::from((self.delivered as u32).wrapping_sub(departure.delivered));
        let is_long = !interval.is_zero() && min_rtt.is_none_or(|min_rtt| interval >= min_rtt);
        let rate = is_long.then(|| {
            let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
            delivered.saturating_mul(NANOS_PER_SECOND) / nanos
        });
        if let Some(rate) = rate
            && (!departure.app_limited || self.rate.is_none_or(|known| rate > known))
        {
            self.rate = Some(rate);
            self.is_rate_app_limited = departure.app_limited;
        }
        let prior = self.delivered.saturating_sub(delivered);
        Some(Sample { rate, delivered, prior, total: self.delivered, departure })
    }
}

#[cfg(test)]
mod tests;
