//! Reassembly of the arriving stream.
//!
//! The first copy of a byte counts (RFC 9293, section 3.10.7.4, leaves the choice). Therefore an attacker cannot change a byte that was
//! already acknowledged. Data is kept as slices of the buffers in which it arrived.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::Chunk;

/// Memory that a piece costs beside its bytes, roughly.
const PIECE_COST: u64 = 256;
/// Shorter data is copied to the end of the data that waits to be read (coalescing), up to [`LARGEST_COALESCED`] bytes.
const SHORT: usize = 256;
const LARGEST_COALESCED: usize = 4096;
/// Gaps at one time; more would make each arrival expensive, and no path needs them.
const MAX_GAPS: usize = 1024;
/// A segment that lies over more pieces than these is joined with them into one.
const FEW_PIECES: usize = 4;
/// SACK blocks that fit into a segment.
pub(crate) const MAX_BLOCKS: usize = 4;

/// A run of offsets, end excluded.
pub(crate) type Block = (u64, u64);

#[derive(Clone, Debug)]
struct Piece {
    start: u64,
    data: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }
}

/// The result for arriving data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Received {
    /// Bytes by which the stream in order grew.
    pub(crate) in_order: u64,
    /// Some of it lies behind a gap, or it filled one.
    pub(crate) gap: bool,
    /// The first run in it that had arrived before.
    pub(crate) duplicate: Option<Block>,
    /// Something was not kept for want of memory.
    pub(crate) refused: bool,
}

/// The stream of the peer.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// First offset that has not arrived in order.
    next: u64,
    ready: VecDeque<Bytes>,
    /// Offset of the first byte of `ready`.
    ready_from: u64,
    /// Behind the first gap, sorted, without overlap.
    pieces: VecDeque<Piece>,
    /// Runs of adjoining pieces: the isolated blocks of RFC 2018.
    isolated: VecDeque<Block>,
    /// Starts of the runs that arrived last, latest first.
    recent: VecDeque<u64>,
    held: u64,
    limit: u64,
}

impl ReceiveQueue {
    /// `limit`: memory for data behind gaps, in bytes, the cost of keeping small pieces included.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            next: 1,
            ready: VecDeque::new(),
            ready_from: 1,
            pieces: VecDeque::new(),
            isolated: VecDeque::new(),
            recent: VecDeque::with_capacity(MAX_BLOCKS + 1),
            held: 0,
            limit: limit.max(PIECE_COST * 64),
        }
    }

    /// First offset that has not arrived in order.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes behind gaps, with what keeping them costs.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn has_gaps(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Runs behind gaps.
    pub(crate) fn runs(&self) -> usize {
        self.isolated.len()
    }

    pub(crate) fn read(&mut self) -> Option<Chunk> {
        let data = self.ready.pop_front()?;
        let offset = self.ready_from;
        self.ready_from += data.len() as u64;
        Some(Chunk { offset, data })
    }

    /// Gives back all that waits behind gaps; it will not be completed.
    pub(crate) fn clear_gaps(&mut self) {
        self.pieces.clear();
        self.isolated.clear();
        self.recent.clear();
        self.held = 0;
    }

    /// Takes `data` that begins at `start`; the caller has cut it to the window.
    pub(crate) fn insert(&mut self, start: u64, data: Bytes) -> Received {
        let end = start + data.len() as u64;
        let mut received = Received { duplicate: self.duplicate(start, end), ..Received::default() };
        if end <= self.next {
            return received;
        }
        let data = if start < self.next { data.slice((self.next - start) as usize..) } else { data };
        let start = start.max(self.next);
        let before = self.next;
        if start == self.next && self.pieces.is_empty() {
            self.append(data);
        } else {
            received.gap = true;
            self.insert_behind_gap(start, data, &mut received);
            self.close_gap();
        }
        received.in_order = self.next - before;
        received
    }

    fn append(&mut self, data: Bytes) {
        self.next += data.len() as u64;
        match self.ready.back_mut() {
            // The application has not read for a while: each short piece would pin a whole buffer.
            Some(last) if data.len() < SHORT && last.len() < LARGEST_COALESCED => {
                *last = joined(last, &data);
            }
            Some(_) | None => self.ready.push_back(data),
        }
    }

    /// The first run of `start..end` that has arrived before (RFC 2883, section 4).
    fn duplicate(&self, start: u64, end: u64) -> Option<Block> {
        if start < self.next {
            return Some((start, end.min(self.next)));
        }
        let index = self.isolated.partition_point(|block| block.1 <= start);
        let &(from, to) = self.isolated.get(index)?;
        (from < end).then(|| (from.max(start), to.min(end)))
    }

    /// Keeps those parts of `data` that are news.
    fn insert_behind_gap(&mut self, mut start: u64, mut data: Bytes, received: &mut Received) {
        let (whole_start, whole_end) = (start, start + data.len() as u64);
        if self.cover(start, &data) {
            self.touch(whole_start, whole_end);
            return;
        }
        let mut index = self.pieces.partition_point(|piece| piece.end() <= start);
        let mut kept = false;
        while !data.is_empty() {
            let (from, to) = self.pieces.get(index).map_or((u64::MAX, u64::MAX), |p| (p.start, p.end()));
            let room = from.saturating_sub(start).min(data.len() as u64) as usize;
            if room > 0 {
                let part = data.split_to(room);
                if self.may_keep(start, part.len()) {
                    index = self.keep(index, start, part);
                    self.add_block(start, start + room as u64);
                    kept = true;
                } else {
                    received.refused = true;
                }
                start += room as u64;
            }
            // What is left overlaps the piece at `index`, which was first.
            let overlap = to.saturating_sub(start).min(data.len() as u64);
            start += overlap;
            data = data.slice(overlap as usize..);
            index += 1;
        }
        if kept || received.duplicate.is_some() {
            self.touch(whole_start, whole_end);
        }
    }

    /// Joins `data` with the pieces that lie inside it into one, whose bytes are those that came first. Returns whether it
    /// did: where there are few, or no memory, each gap between them is filled by itself.
    fn cover(&mut self, start: u64, data: &[u8]) -> bool {
        let end = start + data.len() as u64;
        let first = self.pieces.partition_point(|piece| piece.start < start);
        let last = self.pieces.partition_point(|piece| piece.end() <= end);
        if last.saturating_sub(first) <= FEW_PIECES {
            return false;
        }
        let before = first.checked_sub(1).map_or(start, |before| self.pieces[before].end().max(start));
        let behind = self.pieces.get(last).map_or(end, |behind| behind.start.min(end));
        let freed: u64 =
            self.pieces.range(first..last).map(|piece| piece.data.len() as u64 + PIECE_COST).sum();
        let held = self.held - freed + (behind - before) + PIECE_COST;
        if held > self.limit && start != self.next {
            return false;
        }
        self.held = held;
        let mut whole = data[(before - start) as usize..(behind - start) as usize].to_vec();
        for piece in self.pieces.drain(first..last) {
            whole[(piece.start - before) as usize..][..piece.data.len()].copy_from_slice(&piece.data);
        }
        self.pieces.insert(first, Piece { start: before, data: whole.into() });
        let first = self.isolated.partition_point(|block| block.1 < before);
        let last = self.isolated.partition_point(|block| block.0 <= behind);
        let (from, to) = (self.isolated[first].0.min(before), self.isolated[last - 1].1.max(behind));
        self.isolated.drain(first..last);
        self.isolated.insert(first, (from, to));
        true
    }

    /// Inserts `data`, which is new, before the piece at `index`. Short data is copied to an adjacent neighbour, so that the number of
    /// pieces stays small. Returns the index of the piece after it, or of the one that holds it.
    fn keep(&mut self, index: usize, start: u64, data: Bytes) -> usize {
        let end = start + data.len() as u64;
        let takes = |piece: &Piece| piece.data.len() < LARGEST_COALESCED && data.len() < SHORT;
        let left = index.checked_sub(1).and_then(|left| self.pieces.get_mut(left));
        if let Some(left) = left.filter(|left| left.end() == start && takes(left)) {
            left.data = joined(&left.data, &data);
            self.held += end - start;
            return index;
        }
        if let Some(right) = self.pieces.get_mut(index).filter(|right| right.start == end && takes(right)) {
            right.data = joined(&data, &right.data);
            right.start = start;
            self.held += end - start;
            return index;
        }
        self.held += end - start + PIECE_COST;
        self.pieces.insert(index, Piece { start, data });
        index + 1
    }

    /// The piece at the first gap is kept even without memory: it frees some.
    fn may_keep(&self, start: u64, len: usize) -> bool {
        start == self.next
            || (self.held + len as u64 + PIECE_COST <= self.limit && self.isolated.len() < MAX_GAPS)
    }

    /// `start..end` is new: it may adjoin the run before, the run behind, both or none.
    fn add_block(&mut self, start: u64, end: u64) {
        let index = self.isolated.partition_point(|block| block.1 < start);
        let left = self.isolated.get(index).is_some_and(|block| block.1 == start);
        let right = index + usize::from(left);
        let joins_right = self.isolated.get(right).is_some_and(|block| block.0 == end);
        match (left, joins_right) {
            (true, true) => {
                self.isolated[index].1 = self.isolated[right].1;
                self.isolated.remove(right);
            }
            (true, false) => self.isolated[index].1 = end,
            (false, true) => self.isolated[index].0 = start,
            (false, false) => self.isolated.insert(index, (start, end)),
        }
    }

    fn block_at(&self, offset: u64) -> Option<Block> {
        let index = self.isolated.partition_point(|block| block.1 <= offset);
        self.isolated.get(index).copied().filter(|block| block.0 <= offset)
    }

    /// The run that holds `start..end` is the latest news (RFC 2018, section 4).
    fn touch(&mut self, start: u64, end: u64) {
        let Some(block) = self.block_at(start).or_else(|| self.block_at(end - 1)) else { return };
        self.recent.retain(|&at| !(block.0 <= at && at < block.1));
        self.recent.push_front(block.0);
        self.recent.truncate(MAX_BLOCKS);
    }

    /// Moves what has come in order to the reader.
    fn close_gap(&mut self) {
        let mut short = Vec::new();
        let behind = |queue: &Self, short: &[u8]| queue.next + short.len() as u64;
        while self.pieces.front().is_some_and(|piece| piece.start == behind(self, &short)) {
            let Some(piece) = self.pieces.pop_front() else { break };
            self.held -= piece.data.len() as u64 + PIECE_COST;
            // Merged before they are appended, so that none is copied for each one that follows it.
            let is_short = piece.data.len() < SHORT;
            if is_short {
                short.extend_from_slice(&piece.data);
            }
            if !short.is_empty() && (!is_short || short.len() >= LARGEST_COALESCED) {
                self.append(core::mem::take(&mut short).into());
            }
            if !is_short {
                self.append(piece.data);
            }
        }
        if !short.is_empty() {
            self.append(short.into());
        }
        while self.isolated.front().is_some_and(|block| block.1 <= self.next) {
            self.isolated.pop_front();
        }
        let next = self.next;
        self.recent.retain(|&at| at >= next);
    }

    /// The runs behind gaps, latest first, at most `max`.
    pub(crate) fn blocks(&self, max: usize, out: &mut impl FnMut(Block)) {
        for &at in self.recent.iter().take(max) {
            if let Some(block) = self.block_at(at) {
                out(block);
            }
        }
    }
}

fn joined(first: &[u8], second: &[u8]) -> Bytes {
    let mut both = Vec::with_capacity(first.len() + second.len());
    both.extend_from_slice(first);
    both.extend_from_slice(second);
    both.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_base::{Random, SeededRandom};

    fn stream(from: u64, to: u64) -> Bytes {
        (from..to).map(|n| ((n * 31) >> 3) as u8).collect()
    }

    fn blocks(queue: &ReceiveQueue) -> Vec<Block> {
        let mut out = Vec::new();
        queue.blocks(4, &mut |block| out.push(block));
        out
    }

    #[test]
    fn the_latest_run_is_reported_first() {
        let mut queue = ReceiveQueue::new(1 << 20);
        queue.insert(101, stream(101, 201));
        queue.insert(301, stream(301, 401));
        queue.insert(501, stream(501, 601));
        assert_eq!(blocks(&queue), [(501, 601), (301, 401), (101, 201)]);
        queue.insert(201, stream(201, 301));
        assert_eq!(blocks(&queue), [(101, 401), (501, 601)], "two runs have become one");
        assert_eq!(queue.insert(1, stream(1, 101)).in_order, 400);
        assert_eq!(blocks(&queue), [(501, 601)]);
    }

    #[test]
    fn duplicates_are_reported_with_the_run_that_they_repeat() {
        let mut queue = ReceiveQueue::new(1 << 20);
        queue.insert(1, stream(1, 101));
        assert_eq!(queue.insert(51, stream(51, 151)).duplicate, Some((51, 101)));
        queue.insert(201, stream(201, 301));
        let received = queue.insert(251, stream(251, 351));
        assert_eq!(received.duplicate, Some((251, 301)));
        assert_eq!(
            queue.insert(1, stream(1, 51)),
            Received { duplicate: Some((1, 51)), ..Received::default() }
        );
    }

    #[test]
    fn the_first_copy_of_a_byte_wins() {
        let mut queue = ReceiveQueue::new(1 << 20);
        queue.insert(5, Bytes::from_static(b"eeee"));
        queue.insert(3, Bytes::from_static(b"xxxxxxxx"));
        queue.insert(1, Bytes::from_static(b"aaaaaaaaaaaa"));
        let mut all = Vec::new();
        while let Some(chunk) = queue.read() {
            all.extend_from_slice(&chunk.data);
        }
        assert_eq!(all, b"aaxxeeeexxaa");
    }

    #[test]
    fn short_unread_pieces_are_coalesced() {
        let mut queue = ReceiveQueue::new(1 << 20);
        for n in 1..10_001 {
            queue.insert(n, stream(n, n + 1));
        }
        assert_eq!(queue.ready.len(), 3);
        let all: Vec<u8> = core::iter::from_fn(|| queue.read()).flat_map(|chunk| chunk.data).collect();
        assert_eq!(all, stream(1, 10_001));
    }

    #[test]
    fn bytes_that_arrive_one_by_one_in_islands_are_few_pieces() {
        let mut queue = ReceiveQueue::new(1 << 20);
        for n in 0..8000 {
            assert!(!queue.insert(20_000 + n, stream(20_000 + n, 20_001 + n)).refused);
            assert!(!queue.insert(19_000 - n, stream(19_000 - n, 19_001 - n)).refused);
        }
        assert_eq!(queue.pieces.len(), 4);
        queue.insert(1, stream(1, 20_000));
        let all: Vec<u8> = core::iter::from_fn(|| queue.read()).flat_map(|chunk| chunk.data).collect();
        assert_eq!(all, stream(1, 28_000));
        assert_eq!(queue.held, 0);
    }

    #[test]
    fn a_segment_over_many_pieces_becomes_one_with_them_and_the_first_copies_win() {
        let mut queue = ReceiveQueue::new(1 << 20);
        for n in 0..500 {
            queue.insert(11 + 4 * n, Bytes::from_static(b"old"));
        }
        // It begins inside the second and ends inside the last but one.
        let segment = Bytes::from(vec![b'n'; 4 * 497]);
        let received = queue.insert(16, segment);
        assert!(received.gap && !received.refused && received.duplicate == Some((16, 18)));
        assert_eq!(queue.pieces.len(), 5, "the two at each end, and one between them");
        assert_eq!(blocks(&queue), [(15, 2006), (2007, 2010)]);
        queue.insert(1, Bytes::from_static(b".........."));
        queue.insert(14, Bytes::from_static(b"n"));
        queue.insert(2006, Bytes::from_static(b"n"));
        let all: Vec<u8> = core::iter::from_fn(|| queue.read()).flat_map(|chunk| chunk.data).collect();
        let expected: Vec<u8> =
            b"..........".iter().copied().chain((0..500).flat_map(|_| *b"oldn")).take(2009).collect();
        assert_eq!(all, expected);
        assert_eq!((queue.held, queue.next), (0, 2010));
    }

    #[test]
    fn small_pieces_behind_a_gap_use_up_the_memory_sooner() {
        let mut queue = ReceiveQueue::new(64 << 10);
        let kept = (0..1000).filter(|n| !queue.insert(10 + n * 2, stream(0, 1)).refused).count();
        assert!((200..300).contains(&kept), "{kept}");
        assert!(!queue.insert(1, stream(1, 10)).refused, "the gap itself can always be filled");
    }

    #[test]
    fn random_segments_give_the_stream_in_order_and_once() {
        let mut random = SeededRandom::from_number(11);
        for _ in 0..60 {
            let (mut queue, mut all) = (ReceiveQueue::new(1 << 20), Vec::new());
            let end = 2000;
            while queue.next() < end {
                let from = 1 + random.below(end - 1);
                let longest = [4, 4, 4, 300][random.below(4) as usize];
                let to = (from + 1 + random.below(longest)).min(end);
                queue.insert(from, stream(from, to));
                let held = |queue: &ReceiveQueue| -> u64 {
                    queue.pieces.iter().map(|piece| piece.data.len() as u64 + PIECE_COST).sum()
                };
                assert_eq!(queue.held, held(&queue));
                let mut last = u64::MAX;
                for piece in &queue.pieces {
                    assert!(last == u64::MAX || last <= piece.start);
                    last = piece.end();
                    assert_eq!(queue.block_at(piece.start), queue.block_at(piece.end() - 1));
                    assert!(queue.block_at(piece.start).is_some());
                }
                while let Some(chunk) = queue.read() {
                    assert_eq!(chunk.offset, 1 + all.len() as u64);
                    all.extend_from_slice(&chunk.data);
                }
            }
            assert_eq!(all, stream(1, end));
            assert!(!queue.has_gaps() && queue.held == 0 && queue.isolated.is_empty());
        }
    }
}
