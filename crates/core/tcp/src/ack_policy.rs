//! When to acknowledge (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2).

use plait_base::{Duration, Instant};

/// Wire segments at the start, and after an idle time, that are acknowledged at once: the peer is in slow start and depends on them.
const QUICK_SEGMENTS: u32 = 16;

/// The urgency of an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Urgency {
    /// Nothing to acknowledge.
    #[default]
    None,
    /// When the timer fires, or with the next segment that leaves anyway.
    Delayed,
    /// Now, with data if there is some.
    Now,
    /// Now, as a segment of its own: it carries SACK blocks or options that data has no room for.
    Alone,
}

/// State of the acknowledgments that we owe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckPolicy {
    urgency: Urgency,
    /// Wire segments with data since the last acknowledgment.
    pending: u32,
    /// Wire segments with data since the start or the last idle time, as far as that matters.
    seen: u32,
    /// When the last of them came.
    last: Option<Instant>,
    /// Whether data of ours has carried the last acknowledgments, and none had to be sent alone since: requests and answers.
    is_answered: bool,
}

impl AckPolicy {
    /// Notes that data arrived in order, in this many wire segments. After more than `idle` without data, the peer begins with a small
    /// window again (RFC 5681, section 4.1).
    pub(crate) fn on_data(&mut self, now: Instant, segments: usize, idle: Duration) {
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        let was_idle = self.last.is_some_and(|last| now.saturating_since(last) > idle);
        if was_idle && !self.is_answered {
            self.seen = 0;
        }
        self.last = Some(now);
        let quick = self.seen < QUICK_SEGMENTS;
        self.seen = self.seen.saturating_add(segments);
        self.pending = self.pending.saturating_add(segments);
        self.want(if quick || self.pending >= 2 { Urgency::Now } else { Urgency::Delayed });
    }

    pub(crate) fn want(&mut self, urgency: Urgency) {
        self.urgency = self.urgency.max(urgency);
    }

    /// Delays an acknowledgment that is due now, unless it must be a segment of its own.
    pub(crate) fn hold(&mut self) {
        if self.urgency == Urgency::Now {
            self.urgency = Urgency::Delayed;
        }
    }

    pub(crate) fn urgency(&self) -> Urgency {
        self.urgency
    }

    /// The delayed-acknowledgment timer fired.
    pub(crate) fn on_timeout(&mut self) {
        if self.urgency == Urgency::Delayed {
            self.urgency = Urgency::Now;
            self.is_answered = false;
        }
    }

    /// Notes that a segment that acknowledges everything has left; `alone` if it had no payload.
    pub(crate) fn on_sent(&mut self, alone: bool) {
        self.is_answered |= !alone && self.pending > 0;
        self.pending = 0;
        if alone || self.urgency < Urgency::Alone {
            self.urgency = Urgency::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_segments_are_acknowledged_at_once_and_later_every_second() {
        let mut policy = AckPolicy::default();
        let urgency = |policy: &mut AckPolicy| {
            policy.on_data(Instant::ZERO, 1, Duration::ZERO);
            let urgency = policy.urgency();
            if urgency > Urgency::Delayed {
                policy.on_sent(true);
            }
            urgency
        };
        assert!((0..16).all(|_| urgency(&mut policy) == Urgency::Now));
        assert_eq!(urgency(&mut policy), Urgency::Delayed);
        assert_eq!(urgency(&mut policy), Urgency::Now);
        assert_eq!(urgency(&mut policy), Urgency::Delayed);
        policy.on_timeout();
        assert_eq!(policy.urgency(), Urgency::Now);
    }

    #[test]
    fn a_super_segment_counts_as_its_wire_segments() {
        let mut policy = AckPolicy { seen: 100, ..AckPolicy::default() };
        policy.on_data(Instant::ZERO, 2, Duration::ZERO);
        assert_eq!(policy.urgency(), Urgency::Now);
    }

    #[test]
    fn data_does_not_take_the_place_of_an_acknowledgment_of_its_own() {
        let mut policy = AckPolicy::default();
        policy.want(Urgency::Alone);
        policy.on_sent(false);
        assert_eq!(policy.urgency(), Urgency::Alone);
        policy.on_sent(true);
        assert_eq!(policy.urgency(), Urgency::None);
    }
}
