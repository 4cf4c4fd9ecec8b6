//! Size of the receive buffer: small at first, then as large as the connection needs (dynamic right-sizing; Fisk and Feng, 2001).
//!
//! The bytes that the application reads in one round trip show the need. Twice that keeps all paths busy while one of them repairs a loss,
//! if the round trip is that of the slowest path (RFC 8684, section 3.3.4). The buffer becomes [`ROUNDS`] times that: paths that vary in
//! delay or lose a repair hold up the stream for several round trips, and the other paths then stand still for lack of a window. Without
//! reads the buffer does not grow, so a peer cannot make an idle connection keep much.

use plait_base::{Duration, Instant};

/// The buffer of a new connection, in bytes: a first flight and a few rounds of slow start.
pub(crate) const INITIAL: usize = 384 << 10;
/// Size of the buffer, in rounds of reads. With two in place of six, two paths that lose 0.5 % and vary by 10 ms carry 0.72 of the sum in
/// place of 0.78 (docs/notes/transport-measurements.md, "Congestion control over access networks").
const ROUNDS: usize = 6;
/// The timestamp clock has no finer resolution.
const SHORTEST_ROUND: Duration = Duration::from_millis(1);

/// Size of the receive buffer of one connection; it only grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveBuffer {
    size: usize,
    largest: usize,
    /// Start of the current round.
    since: Instant,
    /// Bytes read in the current round.
    read: usize,
    /// Largest number of bytes read in one round.
    most: usize,
}

impl ReceiveBuffer {
    /// Returns a buffer of at most `largest` bytes.
    pub(crate) fn new(now: Instant, largest: usize) -> Self {
        let size = INITIAL.min(largest);
        Self { size, largest, since: now, read: 0, most: size / 2 }
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Notes that the application has read `bytes`; a round trip on the slowest path takes `round_trip`. Returns whether the buffer grew.
    pub(crate) fn on_read(&mut self, now: Instant, bytes: usize, round_trip: Duration) -> bool {
        self.read = self.read.saturating_add(bytes);
        if self.size == self.largest {
            return false;
        }
        // Bytes read before the round is over count at once: on a faster path the sender has doubled its window more than once by then.
        let read = self.read;
        // A sender that speeds up will have sent more before it learns the new size.
        let growth = read.saturating_sub(self.most).saturating_mul(2);
        if now.saturating_since(self.since) >= round_trip.max(SHORTEST_ROUND) {
            self.since = now;
            self.read = 0;
            self.most = self.most.max(read);
        }
        let wanted = read.saturating_mul(ROUNDS).saturating_add(growth).min(self.largest);
        let grew = growth > 0 && wanted > self.size;
        if grew {
            self.size = wanted;
        }
        grew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(20);

    /// Reads `per_round` bytes in each of `rounds` round trips, in ten steps each.
    fn read(buffer: &mut ReceiveBuffer, from: Instant, rounds: u32, per_round: usize) -> Instant {
        (1..=rounds * 10).fold(from, |_, step| {
            let now = from + ROUND / 10 * step;
            buffer.on_read(now, per_round / 10, ROUND);
            now
        })
    }

    #[test]
    fn it_becomes_six_times_what_is_read_in_a_round_trip_and_stays_there() {
        let start = Instant::ZERO;
        let mut buffer = ReceiveBuffer::new(start, 16 << 20);
        assert_eq!(buffer.size(), INITIAL);
        let now = read(&mut buffer, start, 10, 1_000_000);
        assert!((6_000_000..8_500_000).contains(&buffer.size()), "{}", buffer.size());
        let size = buffer.size();
        read(&mut buffer, now, 100, 1_000_000);
        assert_eq!(buffer.size(), size);
    }

    #[test]
    fn it_stays_ahead_of_a_sender_in_slow_start() {
        let mut buffer = ReceiveBuffer::new(Instant::ZERO, 16 << 20);
        let (mut now, mut flight) = (Instant::ZERO, 14_000);
        while flight < 8 << 20 {
            assert!(flight <= buffer.size(), "{flight} into {}", buffer.size());
            now = read(&mut buffer, now, 1, flight);
            flight *= 2;
        }
    }

    #[test]
    fn it_stays_ahead_of_a_path_that_is_faster_than_the_slowest() {
        let mut buffer = ReceiveBuffer::new(Instant::ZERO, 16 << 20);
        let (mut now, mut flight) = (Instant::ZERO, 14_000);
        while flight < 4 << 20 {
            assert!(flight <= buffer.size(), "{flight} into {}", buffer.size());
            for _ in 0..10 {
                now += ROUND / 10;
                buffer.on_read(now, flight / 10, 20 * ROUND);
            }
            flight *= 2;
        }
    }

    #[test]
    fn it_never_exceeds_its_limit_and_never_shrinks() {
        let mut buffer = ReceiveBuffer::new(Instant::ZERO, 1 << 20);
        let now = read(&mut buffer, Instant::ZERO, 5, 100 << 20);
        assert_eq!(buffer.size(), 1 << 20);
        read(&mut buffer, now, 50, 10);
        assert_eq!(buffer.size(), 1 << 20);
        assert_eq!(ReceiveBuffer::new(now, 4).size(), 4);
    }

    #[test]
    fn a_slow_reader_gets_no_larger_window() {
        let mut buffer = ReceiveBuffer::new(Instant::ZERO, 16 << 20);
        read(&mut buffer, Instant::ZERO, 1000, INITIAL / 2);
        assert_eq!(buffer.size(), INITIAL);
    }
}
