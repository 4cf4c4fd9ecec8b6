//! Links: delay, jitter, rate and queue, loss, reordering, duplication, corruption.

use base::{Duration, Instant, Random, SeededRandom};
use bytes::Bytes;

use crate::{Direction, Element, Frame, Outlet};

/// How frames get lost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Loss {
    /// They do not.
    #[default]
    None,
    /// Each on its own with this probability.
    Each(f64),
    /// In bursts (Gilbert's model): a burst begins behind a frame with probability `enter`, everything is
    /// lost in it, and it ends behind a frame with probability `leave`.
    Bursts {
        /// Probability that a burst begins.
        enter: f64,
        /// Probability that it ends.
        leave: f64,
    },
}

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkModel {
    /// Time that the first bit takes.
    pub delay: Duration,
    /// Up to so much is added, evenly spread; frames stay in order.
    pub jitter: Duration,
    /// Bits per second; `None`: no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait for the link; what does not fit is lost.
    pub queue: u64,
    /// Loss.
    pub loss: Loss,
    /// Probability that a frame is held back by [`LinkModel::reorder_by`] and overtaken.
    pub reorder: f64,
    /// How long it is held back.
    pub reorder_by: Duration,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a bit of a frame is flipped (which its checksum shows).
    pub corrupt: f64,
}

impl Default for LinkModel {
    /// 10 ms, perfect.
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            jitter: Duration::ZERO,
            rate: None,
            queue: 256 << 10,
            loss: Loss::None,
            reorder: 0.0,
            reorder_by: Duration::from_millis(5),
            duplicate: 0.0,
            corrupt: 0.0,
        }
    }
}

/// A link with a model for each direction.
pub struct Link {
    lanes: [Lane; 2],
    random: SeededRandom,
}

impl Link {
    /// A link that is the same both ways.
    pub fn new(model: LinkModel, seed: u64) -> Self {
        Self::asymmetric(model, model, seed)
    }

    /// A link with a model for each direction.
    pub fn asymmetric(forward: LinkModel, backward: LinkModel, seed: u64) -> Self {
        Self { lanes: [Lane::new(forward), Lane::new(backward)], random: SeededRandom::from_number(seed) }
    }
}

impl Element for Link {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let random = &mut self.random;
        let lane = direction.of(&mut self.lanes);
        let Some(departure) = lane.depart(now, frame.bytes.len() as u64) else { return };
        if lane.is_lost(random) {
            return;
        }
        let frame = if random.chance(lane.model.corrupt) { flip_a_bit(&frame, random) } else { frame };
        if random.chance(lane.model.duplicate) {
            out.push(lane.arrival(departure, random), direction, frame.clone());
        }
        let at = if random.chance(lane.model.reorder) {
            departure + lane.model.delay + lane.model.reorder_by
        } else {
            lane.arrival(departure, random)
        };
        out.push(at, direction, frame);
    }
}

/// One direction of a link with its state.
struct Lane {
    model: LinkModel,
    /// When the last bit accepted so far has left.
    busy_until: Instant,
    /// No frame that keeps its place arrives before this.
    last_arrival: Instant,
    is_in_burst: bool,
}

impl Lane {
    fn new(model: LinkModel) -> Self {
        Self { model, busy_until: Instant::ZERO, last_arrival: Instant::ZERO, is_in_burst: false }
    }

    /// When the last bit of a frame leaves; `None` if it finds the queue full.
    fn depart(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let Some(rate) = self.model.rate else { return Some(now) };
        let time_of = |bytes: u64| Duration::from_nanos(bytes * 8 * 1_000_000_000 / rate);
        let waiting = self.busy_until.saturating_since(now);
        if waiting > time_of(self.model.queue) {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + time_of(bytes);
        Some(self.busy_until)
    }

    fn arrival(&mut self, departure: Instant, random: &mut SeededRandom) -> Instant {
        let jitter = match self.model.jitter.as_nanos() as u64 {
            0 => Duration::ZERO,
            most => Duration::from_nanos(random.below(most)),
        };
        self.last_arrival = self.last_arrival.max(departure + self.model.delay + jitter);
        self.last_arrival
    }

    fn is_lost(&mut self, random: &mut SeededRandom) -> bool {
        match self.model.loss {
            Loss::None => false,
            Loss::Each(probability) => random.chance(probability),
            Loss::Bursts { enter, leave } => {
                let was_in_burst = self.is_in_burst;
                self.is_in_burst = if was_in_burst { !random.chance(leave) } else { random.chance(enter) };
                was_in_burst
            }
        }
    }
}

fn flip_a_bit(frame: &Frame, random: &mut SeededRandom) -> Frame {
    let mut bytes = frame.bytes.to_vec();
    let bit = random.below(bytes.len() as u64 * 8) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
    Frame { bytes: Bytes::from(bytes), ..frame.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_at_the_rate_of_the_link_and_the_queue_has_an_end() {
        let model = LinkModel { rate: Some(8_000_000), queue: 10_000, ..LinkModel::default() };
        let arrivals = cross(model, 20, |_| Instant::ZERO);
        assert_eq!(arrivals.len(), 11, "ten wait, one is being sent");
        assert_eq!(arrivals[0], Instant::from_millis(11), "1000 bytes take 1 ms");
        assert_eq!(arrivals[10], Instant::from_millis(21));
    }

    #[test]
    fn jitter_does_not_reorder_and_reordering_does() {
        let every_100_us = |i: u64| Instant::from_micros(100 * i);
        let jitter = LinkModel { jitter: Duration::from_millis(5), ..LinkModel::default() };
        assert!(cross(jitter, 1000, every_100_us).is_sorted());
        let reorder = LinkModel { reorder: 0.1, ..LinkModel::default() };
        assert!(!cross(reorder, 1000, every_100_us).is_sorted());
    }

    #[test]
    fn as_many_are_lost_as_the_model_says() {
        let each = LinkModel { loss: Loss::Each(0.1), ..LinkModel::default() };
        let bursts = LinkModel { loss: Loss::Bursts { enter: 0.01, leave: 0.25 }, ..LinkModel::default() };
        for (model, expected) in [(each, 9000), (bursts, 9615)] {
            let arrived = cross(model, 10_000, |_| Instant::ZERO).len();
            assert!(arrived.abs_diff(expected) < 150, "{arrived} of {expected} with {model:?}");
        }
    }

    fn cross(model: LinkModel, count: u64, at: impl Fn(u64) -> Instant) -> Vec<Instant> {
        let mut link = Link::new(model, 7);
        let mut out = Outlet::default();
        for i in 0..count {
            link.pass(at(i), Direction::Forward, Frame::new(vec![0; 1000].into()), &mut out);
        }
        out.frames.iter().map(|(at, _, _)| *at).collect()
    }
}
