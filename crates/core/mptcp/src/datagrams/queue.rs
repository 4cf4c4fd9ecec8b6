//! Datagrams that wait for room on a path, and CoDel (RFC 8289), which keeps their wait short.

use bytes::Bytes;
use plait_base::{Duration, Instant};
use std::collections::VecDeque;

use super::{FlowId, PathChoice};

/// Datagrams that may wait, and their bytes: the oldest are dropped.
const MAX_QUEUED: usize = 256;
const MAX_BYTES: usize = 512 << 10;
/// What an empty datagram counts in that.
const COST: usize = 64;
/// The wait that the queue may have for long.
const TARGET: Duration = Duration::from_millis(20);
/// How long it may have more than that.
const INTERVAL: Duration = Duration::from_millis(100);

/// A datagram that waits.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) flow: FlowId,
    pub(crate) choice: PathChoice,
    pub(crate) ecn: u8,
    pub(crate) payload: Bytes,
    pub(crate) since: Instant,
}

/// The queue of a connection.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Queued>,
    bytes: usize,
    codel: Codel,
}

impl Queue {
    /// Adds a datagram. Returns the number of those that were dropped for it.
    pub(crate) fn push(&mut self, datagram: Queued) -> u64 {
        self.bytes += COST + datagram.payload.len();
        self.waiting.push_back(datagram);
        let mut dropped = 0;
        while self.waiting.len() > MAX_QUEUED || (self.bytes > MAX_BYTES && self.waiting.len() > 1) {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    /// Returns the first datagram.
    pub(crate) fn first(&self) -> Option<&Queued> {
        self.waiting.front()
    }

    /// Removes the first datagram.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let first = self.waiting.pop_front()?;
        self.bytes -= COST + first.payload.len();
        Some(first)
    }

    /// Whether the first datagram, which could leave now, is dropped instead.
    pub(crate) fn drops_first(&mut self, now: Instant) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        let is_last = self.waiting.len() == 1;
        self.codel.drops(now, now.saturating_since(first.since), is_last)
    }

    /// Removes the datagrams of a flow that has ended.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        self.waiting.retain(|datagram| datagram.flow != flow);
        self.bytes = self.waiting.iter().map(|datagram| COST + datagram.payload.len()).sum();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The state of RFC 8289, section 5.
#[derive(Debug, Default)]
struct Codel {
    /// When the wait will have been too long for an interval.
    too_long_at: Option<Instant>,
    /// When the next datagram is dropped.
    next_drop: Option<Instant>,
    count: u32,
    last_count: u32,
}

impl Codel {
    fn drops(&mut self, now: Instant, wait: Duration, is_last: bool) -> bool {
        let is_too_long = self.is_too_long(now, wait, is_last);
        match self.next_drop {
            Some(_) if !is_too_long => {
                self.next_drop = None;
                false
            }
            Some(at) if now >= at => {
                self.count += 1;
                self.next_drop = Some(at + control(self.count));
                true
            }
            Some(_) => false,
            None if is_too_long => {
                // It goes on where it was if that was not long ago.
                let new = self.count - self.last_count;
                self.count = if new > 1 { new } else { 1 };
                self.last_count = self.count;
                self.next_drop = Some(now + control(self.count));
                true
            }
            None => false,
        }
    }

    fn is_too_long(&mut self, now: Instant, wait: Duration, is_last: bool) -> bool {
        if wait < TARGET || is_last {
            self.too_long_at = None;
            return false;
        }
        *self.too_long_at.get_or_insert(now + INTERVAL) <= now
    }
}

/// The interval divided by the square root of the number of drops.
fn control(count: u32) -> Duration {
    INTERVAL.mul_f64(1.0 / f64::from(count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(since: Instant, len: usize) -> Queued {
        let payload = Bytes::from(vec![0; len]);
        Queued { flow: FlowId(0), choice: PathChoice::Fastest, ecn: 0, payload, since }
    }

    /// A second of arrivals each `every`, and departures each two milliseconds. Returns the longest wait of the second half, and the drops.
    fn overloaded(every: u64) -> (Duration, u64) {
        let (mut queue, mut dropped, mut longest) = (Queue::default(), 0, Duration::ZERO);
        for step in 0..20_000 {
            let now = Instant::from_millis(step);
            if step % every == 0 {
                dropped += queue.push(queued(now, 100));
            }
            if step % 2 == 0 {
                while queue.drops_first(now) {
                    queue.pop();
                    dropped += 1;
                }
                let left = queue.pop();
                let wait = left.map_or(Duration::ZERO, |left| now.saturating_since(left.since));
                if step > 10_000 {
                    longest = longest.max(wait);
                }
            }
        }
        (longest, dropped)
    }

    #[test]
    fn a_queue_that_stays_long_drops_and_one_that_drains_does_not() {
        assert_eq!(overloaded(2).1, 0);
        let (longest, dropped) = overloaded(1);
        assert!(dropped > 8_000, "half of 20,000: {dropped}");
        assert!(longest < Duration::from_millis(300), "{longest:?}");
    }

    #[test]
    fn a_queue_holds_no_more_than_it_may() {
        let mut queue = Queue::default();
        let dropped: u64 = (0..1000).map(|_| queue.push(queued(Instant::ZERO, 0))).sum();
        assert_eq!((queue.waiting.len(), dropped), (MAX_QUEUED, 1000 - MAX_QUEUED as u64));
        let dropped = queue.push(queued(Instant::ZERO, MAX_BYTES));
        assert_eq!((dropped, queue.waiting.len()), (MAX_QUEUED as u64, 1), "a long one has room");
        queue.forget(FlowId(0));
        assert_eq!((queue.bytes(), queue.is_empty()), (0, true));
    }
}
