//! Records of the owner, kept until they are acknowledged.
//!
//! Records follow each other in the stream. Bytes are never copied, with one exception. The short rest of a record without options is
//! joined with the beginning of the next one, so that a stream of plain records leaves in full segments. At most one segment per record is
//! copied.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use plait_wire::OptionBytes;

use crate::Record;

/// A record and its place.
#[derive(Clone, Debug)]
struct Stored {
    offset: u64,
    record: Record,
    /// What is acknowledged along with it, where its options say more about that.
    ack: Option<u64>,
}

impl Stored {
    fn end(&self) -> u64 {
        self.offset + self.record.payload.len() as u64
    }

    fn is_plain(&self) -> bool {
        self.record.options.is_empty()
    }
}

/// A piece that fits into one segment or super-segment.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) payload: Bytes,
    pub(crate) options: OptionBytes,
    /// What is acknowledged when they leave for the first time, if it is not what has arrived by then.
    pub(crate) ack: Option<u64>,
    /// Ends a record that wants PSH.
    pub(crate) push: bool,
}

/// Where a record lies, and how many bytes of options go with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) options: usize,
}

/// Records from the first that is not wholly acknowledged to the last.
#[derive(Debug)]
pub(crate) struct SendQueue {
    records: VecDeque<Stored>,
    end: u64,
}

impl SendQueue {
    /// An empty stream, whose first byte has offset 1.
    pub(crate) fn new() -> Self {
        Self { records: VecDeque::new(), end: 1 }
    }

    /// Offset behind the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Appends a record; an empty one is ignored. Its segments acknowledge `ack` when they leave for the first time; without it, everything
    /// that has arrived by then.
    pub(crate) fn push(&mut self, record: Record, ack: Option<u64>) -> u64 {
        let offset = self.end;
        if !record.payload.is_empty() {
            self.end += record.payload.len() as u64;
            self.records.push_back(Stored { offset, record, ack });
        }
        offset
    }

    /// Everything below `offset` was acknowledged.
    pub(crate) fn release(&mut self, offset: u64) {
        while self.records.front().is_some_and(|first| first.end() <= offset) {
            self.records.pop_front();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }

    fn index_of(&self, offset: u64) -> Option<usize> {
        let index = self.records.partition_point(|stored| stored.end() <= offset);
        (index < self.records.len()).then_some(index)
    }

    /// The record that holds `offset`.
    pub(crate) fn record_at(&self, offset: u64) -> Option<Extent> {
        let stored = &self.records[self.index_of(offset)?];
        Some(Extent { start: stored.offset, end: stored.end(), options: stored.record.options.len() })
    }

    /// At most `limit` bytes from `offset` on, from a single record.
    pub(crate) fn piece(&self, offset: u64, limit: usize) -> Option<Piece> {
        let stored = &self.records[self.index_of(offset)?];
        let Record { payload, options, push } = &stored.record;
        let from = offset.checked_sub(stored.offset)? as usize;
        let to = payload.len().min(from + limit);
        Some(Piece {
            payload: payload.slice(from..to),
            options: options.clone(),
            ack: stored.ack,
            push: *push && to == payload.len(),
        })
    }

    /// Extends the record that holds `offset` to a whole segment of `size` bytes from there, if it and the next ones have no options and
    /// are long enough. Nothing from `offset` on may have been sent.
    pub(crate) fn fill(&mut self, offset: u64, size: usize) {
        let Some(index) = self.index_of(offset) else { return };
        let first = &self.records[index];
        let rest = (first.end() - offset) as usize;
        if rest >= size || !first.is_plain() || index + 1 == self.records.len() {
            return;
        }
        if !self.records[index + 1].is_plain() {
            return;
        }
        let mut joined = Vec::with_capacity(size);
        let from = (offset - first.offset) as usize;
        joined.extend_from_slice(&first.record.payload[from..]);
        let mut push = first.record.push;
        self.records[index].record.payload.truncate(from);
        let mut next = index + 1;
        while joined.len() < size && next < self.records.len() && self.records[next].is_plain() {
            let stored = &mut self.records[next];
            let taken = stored.record.payload.split_to(stored.record.payload.len().min(size - joined.len()));
            stored.offset += taken.len() as u64;
            joined.extend_from_slice(&taken);
            push |= stored.record.push && stored.record.payload.is_empty();
            next += 1;
        }
        let joined = Stored {
            offset,
            record: Record { payload: joined.into(), options: OptionBytes::new(), push },
            ack: None,
        };
        self.replace_emptied(index, next, joined);
    }

    /// Puts `joined` where the records `index..next` have given their bytes to it.
    fn replace_emptied(&mut self, index: usize, next: usize, joined: Stored) {
        let begin = if self.records[index].record.payload.is_empty() { index } else { index + 1 };
        let end = if self.records[next - 1].record.payload.is_empty() { next } else { next - 1 };
        if begin < end {
            self.records[begin] = joined;
            self.records.drain(begin + 1..end);
        } else {
            self.records.insert(begin, joined);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &'static [u8]) -> Record {
        Record { payload: Bytes::from_static(bytes), options: OptionBytes::new(), push: false }
    }

    fn with_options(bytes: &'static [u8]) -> Record {
        let options = [1, 1, 1, 1].into_iter().collect();
        Record { payload: Bytes::from_static(bytes), options, push: true }
    }

    fn stream(queue: &SendQueue) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(piece) = queue.piece(1 + out.len() as u64, 3) {
            out.extend_from_slice(&piece.payload);
        }
        out
    }

    #[test]
    fn a_piece_never_crosses_a_record_and_carries_its_options() {
        let mut queue = SendQueue::new();
        assert_eq!(queue.push(with_options(b"abcd"), None), 1);
        assert_eq!(queue.push(plain(b"efg"), None), 5);
        let piece = queue.piece(2, 100).expect("inside the first");
        assert_eq!((&piece.payload[..], piece.options.len(), piece.push), (&b"bcd"[..], 4, true));
        assert!(!queue.piece(1, 3).expect("inside the first").push, "PSH belongs to the end of the record");
        assert_eq!(&queue.piece(5, 2).expect("second").payload[..], b"ef");
        assert!(queue.piece(8, 1).is_none());
    }

    #[test]
    fn records_are_kept_until_their_last_byte_is_acknowledged() {
        let mut queue = SendQueue::new();
        queue.push(plain(b"abcd"), None);
        queue.push(plain(b"efg"), None);
        queue.release(4);
        assert_eq!(&queue.piece(4, 9).expect("still there").payload[..], b"d");
        queue.release(5);
        assert!(queue.piece(4, 9).is_none_or(|piece| piece.payload.is_empty()));
        assert_eq!(&queue.piece(5, 9).expect("second").payload[..], b"efg");
    }

    #[test]
    fn short_rests_are_joined_into_a_full_segment() {
        for size in 1..9 {
            let mut queue = SendQueue::new();
            for bytes in [&b"abcd"[..], b"e", b"f", b"ghij", b"k"] {
                queue.push(plain(bytes), None);
            }
            let (mut sent, mut lengths) = (1, Vec::new());
            while sent < queue.end() {
                queue.fill(sent, size);
                let piece = queue.piece(sent, size).expect("not at the end");
                sent += piece.payload.len() as u64;
                lengths.push(piece.payload.len());
                assert_eq!(stream(&queue), b"abcdefghijk", "size {size}");
            }
            let short = lengths.iter().filter(|&&len| len != size).count();
            assert!(short <= 1, "only the last may be short: {lengths:?}");
        }
    }

    #[test]
    fn records_with_options_are_never_joined() {
        let mut queue = SendQueue::new();
        queue.push(plain(b"ab"), None);
        queue.push(with_options(b"cd"), None);
        queue.fill(1, 4);
        assert_eq!(&queue.piece(1, 4).expect("first").payload[..], b"ab");
    }
}
