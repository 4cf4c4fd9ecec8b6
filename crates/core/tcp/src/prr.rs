//! Proportional rate reduction (RFC 9937): how much may leave during a recovery.
//!
//! The window shrinks to the threshold over one round trip, a little with each acknowledgment, instead of at
//! once.

/// One recovery; all in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prr {
    flight: u64,
    threshold: u64,
    segment: u64,
    delivered: u64,
    out: u64,
    window: u64,
}

impl Prr {
    /// `flight`: bytes in flight when the loss was found; `threshold`: the window that the recovery ends with.
    pub(crate) fn new(flight: u64, threshold: u64, segment: u64) -> Self {
        Self { flight: flight.max(1), threshold, segment, delivered: 0, out: 0, window: 0 }
    }

    /// An acknowledgment delivered so much and left `pipe` in flight. It is `safe` if it moves the
    /// cumulative acknowledgment on and tells of no further loss.
    pub(crate) fn on_ack(&mut self, delivered: u64, pipe: u64, safe: bool) {
        self.delivered += delivered;
        let mut send = if pipe > self.threshold {
            let share = u128::from(self.delivered) * u128::from(self.threshold);
            (share.div_ceil(u128::from(self.flight)) as u64).saturating_sub(self.out)
        } else {
            let conserved = self.delivered.saturating_sub(self.out).max(delivered);
            (conserved + if safe { self.segment } else { 0 }).min(self.threshold - pipe)
        };
        if self.out == 0 {
            // The fast retransmission leaves whatever the proportion says.
            send = send.max(self.segment);
        }
        self.window = pipe + send;
    }

    pub(crate) fn on_send(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// Returns the limit of bytes in flight until the next acknowledgment.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One loss of the first of `n` segments; the others arrive one by one. Returns what was sent.
    fn recover(n: u64, threshold: u64) -> (u64, u64) {
        let mut prr = Prr::new(n * 100, threshold, 100);
        let (mut pipe, mut sent) = ((n - 1) * 100, 0);
        for _ in 1..n {
            pipe -= 100;
            prr.on_ack(100, pipe, false);
            while pipe + 100 <= prr.window() {
                prr.on_send(100);
                pipe += 100;
                sent += 100;
            }
        }
        (sent, pipe)
    }

    #[test]
    fn one_loss_ends_at_the_threshold() {
        let (sent, pipe) = recover(20, 1000);
        assert_eq!(pipe, 1000);
        assert!((900..=1000).contains(&sent), "about every second acknowledgment releases a segment: {sent}");
    }

    #[test]
    fn the_first_retransmission_leaves_at_once() {
        let mut prr = Prr::new(2000, 1000, 100);
        prr.on_ack(100, 1800, false);
        assert_eq!(prr.window(), 1900);
    }

    #[test]
    fn heavy_loss_is_made_up_for_no_faster_than_what_arrives() {
        let mut prr = Prr::new(2000, 1000, 100);
        prr.on_ack(100, 300, false);
        prr.on_send(100);
        assert_eq!(prr.window(), 400, "conservation: one in, one out");
        prr.on_ack(100, 300, true);
        assert_eq!(prr.window(), 500, "one more when the recovery makes progress");
    }
}
