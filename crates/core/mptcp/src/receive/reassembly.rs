//! The incoming stream: pieces from all subflows put in order, bounded by the receive buffer.
//!
//! If bytes arrive more than once, the first copy counts. Bytes beyond the largest window ever offered are dropped, so the buffer bounds
//! the memory. All bytes within the window are kept: TCP has acknowledged them, and no subflow sends them again.

use bytes::Bytes;
use std::collections::VecDeque;

use crate::receive::early::{Early, SMALL, unpinned};

/// Small pieces for the reader are merged up to this size.
const GATHER: usize = 8192;

/// The result for a piece, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inserted {
    /// Accepted.
    pub(crate) new: usize,
    /// Already present.
    pub(crate) duplicate: usize,
    /// Beyond the window.
    pub(crate) outside: usize,
    /// Whether a copy differed from the one before.
    pub(crate) conflict: bool,
}

/// Returns how much a window field may offer beyond the free bytes. A subflow rounds up to a unit of its scale if rounding down would
/// reduce an earlier offer (RFC 7323, section 2.4). The scale follows from the largest buffer.
fn rounding(buffer: usize) -> u64 {
    const UNSCALED: usize = 65_535;
    if buffer <= UNSCALED { 0 } else { (buffer / UNSCALED + 1).next_power_of_two() as u64 }
}

/// Bytes on their way to the application.
#[derive(Debug)]
pub(crate) struct Reassembly {
    /// Offset of the first byte that has not arrived in order: the value of the Data-ACK.
    next: u64,
    /// Size of the buffer.
    buffer: usize,
    /// Memory that the host has for it, if that is less.
    limit: usize,
    /// Whether a window was offered.
    is_offered: bool,
    /// Bytes that a window field may offer beyond the window.
    rounding: u64,
    /// Largest right edge of the window ever offered.
    edge: u64,
    early: Early,
    ready: VecDeque<Bytes>,
    /// Bytes below this offset were moved to `ready`, or read. Bytes from here to `next` stay in `early` until the application reads. A
    /// packet that closes a gap therefore does not pay for all bytes after it.
    moved: u64,
    /// Number of bytes in order that were not read.
    ready_bytes: usize,
    /// Offset of the DATA_FIN, if one was received.
    fin: Option<u64>,
    /// Whether no more bytes for the application follow. Control blocks may follow.
    is_data_over: bool,
}

impl Reassembly {
    /// Returns an empty stream with the first byte at offset 1 and a buffer that may grow to `largest` bytes.
    pub(crate) fn new(buffer: usize, largest: usize) -> Self {
        let rounding = rounding(largest);
        let edge = 1 + buffer as u64 + rounding;
        Self {
            next: 1,
            buffer,
            limit: usize::MAX,
            is_offered: false,
            rounding,
            edge,
            early: Early::default(),
            ready: VecDeque::new(),
            moved: 1,
            ready_bytes: 0,
            fin: None,
            is_data_over: false,
        }
    }

    /// Makes the buffer larger.
    pub(crate) fn grow(&mut self, buffer: usize) {
        self.buffer = self.buffer.max(buffer);
    }

    /// Limits the memory to the host's share. Earlier offers remain valid.
    pub(crate) fn limit(&mut self, limit: usize) {
        self.limit = limit;
        if !self.is_offered {
            self.edge = self.next + self.size() as u64 + self.rounding;
        }
    }

    /// Returns the present limit of the buffer in bytes.
    pub(crate) fn size(&self) -> usize {
        self.buffer.min(self.limit)
    }

    /// Returns the memory for bytes that have arrived.
    pub(crate) fn memory(&self) -> usize {
        self.ready_bytes - self.unmoved() + self.early.memory()
    }

    /// Returns the number of in-order bytes in `early`.
    fn unmoved(&self) -> usize {
        (self.next - self.moved) as usize
    }

    /// Returns the number of bytes that were offered to the peer and have not arrived.
    pub(crate) fn promised(&self) -> u64 {
        let behind_gaps = self.early.memory().saturating_sub(self.unmoved()) as u64;
        self.edge.saturating_sub(self.next).saturating_sub(behind_gaps)
    }

    /// Returns the number of bytes for which the buffer has room.
    pub(crate) fn free(&self) -> u32 {
        u32::try_from(self.size().saturating_sub(self.ready_bytes)).unwrap_or(u32::MAX)
    }

    /// Takes a verified block in order with `length` numbers, and its bytes for the application.
    pub(crate) fn deliver_block(&mut self, length: u64, data: Bytes) {
        while self.move_next() {}
        let end = self.next + length;
        if !data.is_empty() {
            self.deliver(data);
        }
        (self.next, self.moved) = (end, end);
    }

    /// Notes that all bytes for the application have arrived.
    pub(crate) fn end_data(&mut self) {
        self.is_data_over = true;
    }

    /// Returns the value of the Data-ACK: everything below it has arrived. A DATA_FIN in order counts as one byte.
    pub(crate) fn next(&self) -> u64 {
        self.next + u64::from(self.is_finished())
    }

    /// Whether a DATA_FIN arrived, in order or not.
    pub(crate) fn has_fin(&self) -> bool {
        self.fin.is_some()
    }

    /// Whether the DATA_FIN is in order.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin == Some(self.next)
    }

    /// Whether the application has read everything up to the end.
    pub(crate) fn is_exhausted(&self) -> bool {
        (self.is_finished() || self.is_data_over) && !self.is_readable()
    }

    /// Whether there is something to read.
    pub(crate) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.moved < self.next
    }

    /// Returns the window to offer, in bytes from [`Reassembly::next`] on, and stores it as offered.
    pub(crate) fn offer_window(&mut self) -> u32 {
        self.is_offered = true;
        // Not computed from the free bytes: if the rounding has admitted more than there is room for, the window would grow on and on.
        let edge = (self.next + self.size() as u64 + self.rounding).saturating_sub(self.ready_bytes as u64);
        self.edge = self.edge.max(edge);
        self.free()
    }

    /// Takes the bytes at `offset`.
    pub(crate) fn insert(&mut self, offset: u64, mut data: Bytes) -> Inserted {
        let mut result = Inserted::default();
        let end = offset.saturating_add(data.len() as u64);
        let limit = self.fin.map_or(self.edge, |fin| fin.min(self.edge));
        if end > limit {
            let beyond = usize::try_from(end - limit).unwrap_or(usize::MAX).min(data.len());
            result.outside = beyond;
            data.truncate(data.len() - beyond);
        }
        if offset < self.next {
            let old = usize::try_from(self.next - offset).unwrap_or(usize::MAX).min(data.len());
            result.duplicate = old;
            data = data.slice(old..);
        }
        if data.is_empty() {
            return result;
        }
        let mut offset = offset.max(self.next);
        if offset == self.next && self.moved == self.next {
            let in_order = data.split_to(self.early.gap(offset, offset + data.len() as u64));
            result.new += in_order.len();
            offset += in_order.len() as u64;
            self.deliver(in_order);
        }
        self.early.insert(offset, data, &mut result);
        let end = self.early.known_until(self.next);
        self.ready_bytes += (end - self.next) as usize;
        self.next = end;
        result
    }

    /// Appends bytes without a mapping: plain TCP.
    pub(crate) fn append(&mut self, data: Bytes) {
        while self.move_next() {}
        self.deliver(data);
    }

    /// Sets the end of the stream to `offset`. Returns `false` if it contradicts bytes that have arrived. Before the end is reached, the
    /// latest value counts. A peer repeats the true value until it is acknowledged, and without authentication an earlier value may have
    /// been forged on the path.
    pub(crate) fn finish(&mut self, offset: u64) -> bool {
        if self.is_finished() {
            return self.fin == Some(offset);
        }
        let is_possible = offset >= self.next && offset >= self.early.end();
        if is_possible {
            self.fin = Some(offset);
        }
        is_possible
    }

    /// Ends the stream with the bytes that have arrived: a FIN on plain TCP.
    pub(crate) fn finish_here(&mut self) {
        self.fin = Some(self.next);
        while self.move_next() {}
        self.early.clear();
    }

    /// Drops the pieces that wait for earlier ones: after a fallback the peer does not send the missing bytes.
    pub(crate) fn drop_early(&mut self) {
        while self.move_next() {}
        self.early.clear();
    }

    /// Returns the next bytes in order.
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        // Small pieces are merged as they are moved.
        while self.ready.len() < 2 && self.move_next() {}
        let data = self.ready.pop_front()?;
        self.ready_bytes -= data.len();
        Some(data)
    }

    /// Appends bytes in order.
    fn deliver(&mut self, data: Bytes) {
        self.next += data.len() as u64;
        self.moved = self.next;
        self.ready_bytes += data.len();
        self.give(data);
    }

    /// Moves the next bytes from `early` to the readable ones. Returns `false` if there are none.
    fn move_next(&mut self) -> bool {
        if self.moved == self.next {
            return false;
        }
        let Some(data) = self.early.take(self.moved) else { return false };
        self.moved += data.len() as u64;
        self.give(data);
        true
    }

    fn give(&mut self, data: Bytes) {
        if data.len() < SMALL {
            match self.ready.back_mut() {
                Some(last) if last.len() + data.len() <= GATHER => {
                    *last = [&last[..], &data[..]].concat().into();
                }
                Some(_) | None => self.ready.push_back(unpinned(data)),
            }
        } else {
            self.ready.push_back(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stream: &mut Reassembly) -> Vec<u8> {
        core::iter::from_fn(|| stream.read()).flatten().collect()
    }

    #[test]
    fn pieces_are_put_in_order() {
        let mut stream = Reassembly::new(100, 100);
        assert_eq!(stream.insert(4, Bytes::from_static(b"defg")).new, 4);
        assert!(!stream.is_readable());
        assert_eq!(stream.next(), 1);
        assert_eq!(stream.insert(1, Bytes::from_static(b"abc")).new, 3);
        assert_eq!(stream.next(), 8);
        assert_eq!(all(&mut stream), b"abcdefg");
    }

    #[test]
    fn of_two_copies_the_first_counts_and_a_difference_is_noticed() {
        let mut stream = Reassembly::new(100, 100);
        stream.insert(3, Bytes::from_static(b"cd"));
        let result = stream.insert(1, Bytes::from_static(b"abXdef"));
        assert_eq!(result, Inserted { new: 4, duplicate: 2, outside: 0, conflict: true });
        assert_eq!(all(&mut stream), b"abcdef");
        let again = stream.insert(1, Bytes::from_static(b"abcdefg"));
        assert_eq!(again, Inserted { new: 1, duplicate: 6, outside: 0, conflict: false });
    }

    #[test]
    fn a_piece_over_several_gaps_fills_each() {
        let mut stream = Reassembly::new(100, 100);
        for at in [3, 6, 9] {
            stream.insert(at, Bytes::copy_from_slice(&[b'a' + at as u8 - 1]));
        }
        assert_eq!(stream.insert(2, Bytes::from_static(b"bcdefghijk")).new, 7);
        assert_eq!(stream.insert(1, Bytes::from_static(b"a")).new, 1);
        assert_eq!(all(&mut stream), b"abcdefghijk");
    }

    #[test]
    fn nothing_beyond_the_window_is_kept_and_reading_moves_it() {
        let mut stream = Reassembly::new(4, 4);
        let result = stream.insert(1, Bytes::from_static(b"abcdef"));
        assert_eq!((result.new, result.outside), (4, 2));
        assert_eq!(stream.offer_window(), 0);
        assert_eq!(stream.insert(5, Bytes::from_static(b"ef")).outside, 2);
        assert_eq!(all(&mut stream), b"abcd");
        assert_eq!(stream.offer_window(), 4);
        assert_eq!(stream.insert(5, Bytes::from_static(b"ef")).new, 2);
    }

    #[test]
    fn a_piece_that_closes_a_gap_moves_nothing_of_what_was_behind_it() {
        for length in [1, 100, 1400] {
            let mut stream = Reassembly::new(1 << 20, 1 << 20);
            let count = (1 << 19) / length;
            for number in 0..count {
                let data = vec![number as u8; length];
                assert_eq!(stream.insert((2 + number * length) as u64, data.into()).new, length);
            }
            stream.insert(1, Bytes::from_static(b"x"));
            assert_eq!(stream.next(), (2 + count * length) as u64);
            assert!(stream.ready.len() <= 1, "{} pieces of {length} bytes moved", stream.ready.len());
            let more = stream.insert(stream.next(), Bytes::from_static(b"y"));
            assert_eq!((more.new, stream.ready.len() <= 1), (1, true));
            let bytes = all(&mut stream);
            let expected = (0..count).flat_map(|number| vec![number as u8; length]);
            assert!(bytes.iter().copied().eq([b'x'].into_iter().chain(expected).chain([b'y'])));
            assert_eq!((stream.memory(), stream.is_readable()), (0, false));
        }
    }

    //= rfc8684 3.3.4-01
    #[test]
    fn a_limit_moves_no_window_back_and_holds_from_then_on() {
        let mut stream = Reassembly::new(100, 100);
        stream.limit(10);
        assert_eq!((stream.offer_window(), stream.promised()), (10, 10));
        stream.limit(1000);
        assert_eq!(stream.offer_window(), 100);
        stream.limit(20);
        assert_eq!((stream.offer_window(), stream.promised()), (20, 100));
        assert_eq!(stream.insert(1, vec![1; 90].into()).new, 90, "as it was offered");
        assert_eq!((stream.offer_window(), stream.promised(), stream.memory()), (0, 10, 90));
        while stream.read().is_some() {}
        assert_eq!((stream.offer_window(), stream.promised()), (20, 20));
    }

    #[test]
    fn the_end_counts_as_one_byte_once_everything_is_there() {
        let mut stream = Reassembly::new(100, 100);
        assert!(stream.finish(4));
        assert!(!stream.is_finished());
        assert!(stream.finish(3), "said again, and not as before");
        assert_eq!(stream.insert(1, Bytes::from_static(b"abc")).outside, 1);
        assert!(stream.is_finished());
        assert!(!stream.finish(4), "it has ended");
        assert_eq!(stream.next(), 4);
        assert!(!stream.is_exhausted());
        assert_eq!(all(&mut stream), b"ab");
        assert!(stream.is_exhausted());
    }

    #[test]
    fn an_end_before_what_has_arrived_is_refused() {
        let mut stream = Reassembly::new(100, 100);
        stream.insert(5, Bytes::from_static(b"e"));
        assert!(!stream.finish(3));
        stream.insert(1, Bytes::from_static(b"abcd"));
        assert!(!stream.finish(5));
        assert!(stream.finish(6));
    }

    #[test]
    fn single_bytes_with_gaps_between_them_are_all_kept() {
        let mut stream = Reassembly::new(1 << 20, 1 << 20);
        let put = |stream: &mut Reassembly, at: u64| stream.insert(at, Bytes::from_static(b"x"));
        let new: usize = (0..500_000).map(|i| put(&mut stream, 3 + 2 * i).new).sum();
        assert_eq!((new, stream.next()), (500_000, 1));
        (0..=500_000).for_each(|i| assert_eq!(put(&mut stream, 2 * i).outside, 0));
        (0..2).for_each(|i| assert!(!put(&mut stream, 1 + i).conflict));
        assert_eq!(all(&mut stream).len(), 1_000_001);
    }

    #[test]
    fn what_the_rounding_lets_through_is_taken_once() {
        let buffer = 16 << 20;
        let mut stream = Reassembly::new(buffer, buffer);
        stream.insert(1, vec![0; buffer + 511].into());
        assert_eq!(stream.offer_window(), 0);
        assert_eq!(stream.insert(stream.next(), Bytes::from_static(b"xyz")).outside, 2);
    }

    #[test]
    fn what_the_rounding_of_a_window_field_let_through_is_taken() {
        let buffer = 16 << 20;
        let mut stream = Reassembly::new(buffer, buffer);
        stream.offer_window();
        let last = 1 + buffer as u64 + 511;
        assert_eq!(stream.insert(last - 1, Bytes::from_static(b"x")).outside, 0);
        assert_eq!(stream.insert(last + 1, Bytes::from_static(b"x")).outside, 1);
    }
}
