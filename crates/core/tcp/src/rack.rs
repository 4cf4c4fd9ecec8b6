//! Recent acknowledgment: losses by time of transmission (RFC 8985, section 6).

use plait_base::{Duration, Instant};

use crate::flight::{Overdue, Sent};
use crate::rtt::Rtt;

/// Duplicates after which reordering is no longer assumed while none was seen (RFC 8985, section 6.2).
const DUP_THRESHOLD: u64 = 3;
/// Recoveries for which a widened reordering window lasts (RFC 8985, section 6.2, step 4).
const PERSISTENCE: u8 = 16;

/// The state of RACK.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rack {
    /// Time of transmission and end of the most recently sent range that was delivered.
    newest: Option<(Instant, u64)>,
    /// Its round-trip time.
    rtt: Duration,
    /// Highest end that was delivered.
    highest: u64,
    reordering_seen: bool,
    /// Quarters of the smallest RTT in the reordering window.
    quarters: u32,
    persist: u8,
    /// D-SACKs up to this offset belong to a round that was counted.
    round_end: u64,
}

/// Its verdict on the flight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Detection {
    /// Nothing was delivered yet.
    NothingDelivered,
    /// Overdue ranges, and when the rest of the earlier transmissions will be.
    Judged { overdue: Overdue, next: Instant },
}

impl Rack {
    /// Handles one delivery. `is_of_original`: by the echoed timestamp, the peer answers an earlier transmission of a repeated range.
    pub(crate) fn on_delivery(&mut self, now: Instant, sent: &Sent, rtt: &Rtt, is_of_original: bool) {
        if sent.end > self.highest {
            self.highest = sent.end;
        } else if !sent.again || is_of_original {
            self.reordering_seen = true;
        }
        let sample = now.saturating_since(sent.at);
        // Step 2: an answer faster than any before is one to the original.
        if sent.again && (is_of_original || rtt.minimum().is_some_and(|minimum| sample < minimum)) {
            return;
        }
        if self.newest.is_none_or(|newest| (sent.at, sent.end) >= newest) {
            self.newest = Some((sent.at, sent.end));
            self.rtt = sample;
        }
    }

    /// Handles a D-SACK: a retransmission was not needed, so the reordering window grows, once per round trip (RFC 8985, section 6.2, step
    /// 4).
    pub(crate) fn on_duplicate(&mut self, una: u64, next: u64) {
        if una >= self.round_end {
            self.round_end = next;
            self.quarters = self.quarters.max(1).saturating_add(1);
            self.persist = PERSISTENCE;
        }
    }

    /// Handles a mistaken recovery: ranges counted as lost were late.
    pub(crate) fn on_mistake(&mut self) {
        self.reordering_seen = true;
    }

    /// Handles a premature timeout: it is unknown which of two transmissions was answered. If it were taken for the later one, all
    /// transmissions between them would seem overdue.
    pub(crate) fn forget_newest(&mut self) {
        self.newest = None;
    }

    /// A recovery has ended.
    pub(crate) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 1;
        }
    }

    /// How much later than something sent after it a range may arrive.
    fn reordering_window(&self, rtt: &Rtt, delivered_segments: u64, recovering: bool) -> Duration {
        if !self.reordering_seen && (recovering || delivered_segments >= DUP_THRESHOLD) {
            return Duration::ZERO;
        }
        let window = rtt.minimum().unwrap_or_default() * self.quarters.max(1) / 4;
        window.min(rtt.smoothed().unwrap_or(window))
    }

    pub(crate) fn judge(
        &self,
        now: Instant,
        rtt: &Rtt,
        delivered_segments: u64,
        recovering: bool,
    ) -> Detection {
        let Some((newest, end)) = self.newest else { return Detection::NothingDelivered };
        let timeout = self.rtt + self.reordering_window(rtt, delivered_segments, recovering);
        Detection::Judged { overdue: Overdue { newest, end, sent_by: now - timeout }, next: newest + timeout }
    }

    /// The moment up to which transmissions are lost when the retransmission timer has fired
    /// (RFC 8985, section 6.3).
    pub(crate) fn lost_on_timeout(&self, now: Instant, rtt: &Rtt) -> Instant {
        let timeout = self.rtt.max(rtt.smoothed().unwrap_or_default());
        now - timeout - self.reordering_window(rtt, 0, false)
    }

    #[cfg(test)]
    pub(crate) fn has_seen_reordering(&self) -> bool {
        self.reordering_seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery_rate::Departure;
    use crate::flight::Fate;

    fn sent(start: u64, end: u64, at: u64, again: bool) -> Sent {
        Sent {
            start,
            end,
            at: Instant::from_millis(at),
            departure: Departure::default(),
            size: 100,
            skip: 0,
            again,
            fate: Fate::InFlight,
        }
    }

    fn measured() -> Rtt {
        let mut rtt = Rtt::new(Duration::from_millis(200), Duration::from_secs(1));
        rtt.sample(Instant::ZERO, Duration::from_millis(40), 1);
        rtt
    }

    fn window_millis(rack: &Rack, delivered: u64, recovering: bool) -> u64 {
        rack.reordering_window(&measured(), delivered, recovering).as_millis() as u64
    }

    #[test]
    fn without_reordering_three_duplicates_are_enough() {
        let mut rack = Rack::default();
        rack.on_delivery(Instant::from_millis(40), &sent(101, 201, 0, false), &measured(), false);
        assert_eq!(window_millis(&rack, 2, false), 10, "a quarter of the smallest RTT");
        assert_eq!(window_millis(&rack, 3, false), 0);
        rack.on_delivery(Instant::from_millis(41), &sent(1, 101, 0, false), &measured(), false);
        assert!(rack.has_seen_reordering());
        assert_eq!(window_millis(&rack, 3, false), 10);
    }

    #[test]
    fn duplicates_widen_the_window_once_per_round_up_to_the_smoothed_rtt() {
        let mut rack = Rack::default();
        rack.on_duplicate(1, 1000);
        rack.on_duplicate(500, 1500);
        assert_eq!(window_millis(&rack, 0, false), 20, "one round, one step");
        for round in 1..9 {
            rack.on_duplicate(round * 1000, round * 1000 + 1000);
        }
        assert_eq!(window_millis(&rack, 0, false), 40);
        (0..16).for_each(|_| rack.on_recovered());
        assert_eq!(window_millis(&rack, 0, false), 10, "forgotten after sixteen recoveries");
    }

    #[test]
    fn an_answer_to_the_original_says_nothing_about_the_retransmission() {
        let mut rack = Rack::default();
        rack.on_delivery(Instant::from_millis(140), &sent(1, 101, 100, true), &measured(), true);
        rack.on_delivery(Instant::from_millis(110), &sent(1, 101, 100, true), &measured(), false);
        assert!(matches!(
            rack.judge(Instant::from_millis(150), &measured(), 0, false),
            Detection::NothingDelivered
        ));
    }
}
