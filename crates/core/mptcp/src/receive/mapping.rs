//! The mappings of DSS options (RFC 8684, section 3.3): from the bytes of one subflow to places in the data stream.
//!
//! A mapping may arrive with the first segment that it covers, with each of them, before them, or a little after them. A declared mapping
//! cannot change: a later one that contradicts it is dropped.

use bytes::Bytes;
use plait_base::Dsn;
use plait_tcp::Chunk;
use plait_wire::{Checksum, data_checksum};
use std::collections::VecDeque;

use crate::receive::coalescing;

/// Largest number of mappings of one subflow. Adjacent mappings that continue each other count once. With a window of 16 MiB and checksums
/// (which prevent joining them) this is one for every 2 KiB. Out-of-order segments with mappings beyond the limit are dropped.
const MAX_MAPPINGS: usize = 8192;

/// A run of subflow bytes and its place in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    /// Stream offset of its first byte in the subflow.
    pub(crate) offset: u64,
    /// Its first data sequence number.
    pub(crate) dsn: Dsn,
    /// Number of bytes without a DATA_FIN.
    pub(crate) length: u64,
    /// The declared checksum of the contents.
    pub(crate) checksum: Option<Declared>,
}

/// A checksum with the numbers of its pseudo-header, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Declared {
    pub(crate) ssn: u32,
    pub(crate) length: u16,
    pub(crate) checksum: u16,
}

/// The result of a declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Declaration {
    /// Stored, already known, or about bytes that were already placed.
    Fine,
    /// It contradicts an earlier one.
    Conflict,
    /// There are too many.
    TooMany,
}

/// Bytes with their place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Placed {
    /// Bytes for this place.
    Data {
        /// Data sequence number of the first one.
        dsn: Dsn,
        /// The bytes.
        data: Bytes,
    },
    /// The checksum does not match: the mapping started at `dsn`, and its bytes must not be used.
    Corrupted {
        /// Start of the mapping.
        dsn: Dsn,
    },
}

/// The mappings of one subflow, and the bytes that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Sorted by offset, without overlaps.
    list: VecDeque<Mapping>,
    /// In-order bytes of the subflow that have no place yet.
    waiting: VecDeque<Chunk>,
    waiting_bytes: usize,
    /// In-order bytes of the mapping that is being collected for its checksum, from its start on.
    collected: Vec<Bytes>,
    collected_bytes: u64,
    /// Collected, verified, not yet handed out.
    verified: VecDeque<(Dsn, Bytes)>,
}

impl Mapping {
    fn end(&self) -> u64 {
        self.offset + self.length
    }

    fn dsn_at(&self, offset: u64) -> Dsn {
        self.dsn + offset.wrapping_sub(self.offset)
    }

    /// Whether both mappings agree in their overlap.
    fn agrees_with(&self, other: &Self) -> bool {
        self.dsn_at(other.offset) == other.dsn
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        self.checksum.is_none()
            && next.checksum.is_none()
            && self.end() == next.offset
            && self.agrees_with(next)
    }
}

impl Mappings {
    /// Stores a mapping. The subflow's bytes below the offset `done` have been placed.
    pub(crate) fn declare(&mut self, new: Mapping, done: u64) -> Declaration {
        let mut rest = new;
        while rest.length > 0 && rest.end() > done.saturating_sub(self.collected_bytes) {
            let at = self.list.partition_point(|old| old.end() <= rest.offset);
            let Some(old) = self.list.get(at).copied().filter(|old| old.offset < rest.end()) else {
                return self.add(at, rest, rest.offset <= done);
            };
            if old == rest {
                return Declaration::Fine;
            }
            if !old.agrees_with(&rest) || old.checksum.is_some() || rest.checksum.is_some() {
                return Declaration::Conflict;
            }
            // The part before the overlap is new. The next round handles the part after it.
            let before = Mapping { length: old.offset.saturating_sub(rest.offset), ..rest };
            if before.length > 0 && self.add(at, before, before.offset <= done) == Declaration::TooMany {
                return Declaration::TooMany;
            }
            let behind = rest.end().saturating_sub(old.end());
            rest = Mapping { offset: old.end(), dsn: rest.dsn_at(old.end()), length: behind, checksum: None };
        }
        Declaration::Fine
    }

    /// Whether the list is full: only the mapping of the next byte of the subflow is still accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_MAPPINGS
    }

    /// Adds a mapping that overlaps none, before the one at index `at`. There is always room for the mapping of the next byte.
    fn add(&mut self, at: usize, new: Mapping, is_next: bool) -> Declaration {
        if let Some(before) = at.checked_sub(1).and_then(|i| self.list.get_mut(i))
            && before.is_continued_by(&new)
        {
            before.length += new.length;
            return Declaration::Fine;
        }
        if self.is_full() && !is_next {
            return Declaration::TooMany;
        }
        self.list.insert(at, new);
        Declaration::Fine
    }

    /// Adds the next in-order bytes of the subflow.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.waiting_bytes += chunk.data.len();
        coalescing::push(&mut self.waiting, chunk);
    }

    /// Returns the next bytes with a known place (and a valid checksum).
    pub(crate) fn place(&mut self) -> Option<Placed> {
        loop {
            if let Some((dsn, data)) = self.verified.pop_front() {
                return Some(Placed::Data { dsn, data });
            }
            let chunk = self.waiting.front_mut()?;
            while self.list.front().is_some_and(|mapping| mapping.end() <= chunk.offset) {
                self.list.pop_front();
            }
            let mapping = *self.list.front().filter(|mapping| mapping.offset <= chunk.offset)?;
            let length = chunk.data.len().min(usize::try_from(mapping.end() - chunk.offset).ok()?);
            let (offset, data) = (chunk.offset, chunk.data.split_to(length));
            chunk.offset += length as u64;
            self.waiting_bytes -= length;
            if chunk.data.is_empty() {
                self.waiting.pop_front();
            }
            let Some(declared) = mapping.checksum else {
                return Some(Placed::Data { dsn: mapping.dsn_at(offset), data });
            };
            if offset != mapping.offset + self.collected_bytes {
                // The start of this mapping was passed before the mapping was declared: it cannot be verified.
                self.drop_collected();
                return Some(Placed::Corrupted { dsn: mapping.dsn });
            }
            self.collected_bytes += length as u64;
            self.collected.push(data);
            if self.collected_bytes == mapping.length && !self.verify(&mapping, declared) {
                return Some(Placed::Corrupted { dsn: mapping.dsn });
            }
        }
    }

    /// Returns the number of bytes of the subflow that wait without a mapping.
    pub(crate) fn unmapped(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns the number of bytes that wait for a mapping, or for the rest of one.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes as u64 + self.collected_bytes
    }

    /// Returns all bytes without a place, in order: plain TCP delivers them after a fallback.
    pub(crate) fn into_unplaced(self) -> impl Iterator<Item = Bytes> {
        self.collected.into_iter().chain(self.waiting.into_iter().map(|chunk| chunk.data))
    }

    /// Moves the collected bytes to the verified ones if the checksum matches. Otherwise they stay.
    fn verify(&mut self, mapping: &Mapping, declared: Declared) -> bool {
        let (mut sum, mut at) = (Checksum::default(), 0);
        for piece in &self.collected {
            let mut own = Checksum::default();
            own.add(piece);
            sum.append(own, at);
            at += piece.len();
        }
        if data_checksum(mapping.dsn.bits(), declared.ssn, declared.length, sum) != declared.checksum {
            return false;
        }
        let mut dsn = mapping.dsn;
        for piece in self.collected.drain(..) {
            let length = piece.len() as u64;
            self.verified.push_back((dsn, piece));
            dsn += length;
        }
        self.collected_bytes = 0;
        true
    }

    fn drop_collected(&mut self) {
        self.collected.clear();
        self.collected_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(offset: u64, dsn: u64, length: u64) -> Mapping {
        Mapping { offset, dsn: Dsn::new(dsn), length, checksum: None }
    }

    fn chunk(offset: u64, data: &'static [u8]) -> Chunk {
        Chunk { offset, data: Bytes::from_static(data) }
    }

    fn data(dsn: u64, data: &'static [u8]) -> Option<Placed> {
        Some(Placed::Data { dsn: Dsn::new(dsn), data: Bytes::from_static(data) })
    }

    fn checked(offset: u64, dsn: u64, contents: &[u8], fin: bool) -> Mapping {
        let (ssn, length) = (offset as u32, contents.len() as u16 + u16::from(fin));
        let mut sum = Checksum::default();
        sum.add(contents);
        let checksum = Some(Declared { ssn, length, checksum: data_checksum(dsn, ssn, length, sum) });
        Mapping { offset, dsn: Dsn::new(dsn), length: contents.len() as u64, checksum }
    }

    #[test]
    fn one_mapping_covers_several_segments() {
        let mut mappings = Mappings::default();
        assert_eq!(mappings.declare(mapping(1, 1000, 6), 1), Declaration::Fine);
        mappings.push(chunk(1, b"abc"));
        mappings.push(chunk(4, b"def"));
        assert_eq!(mappings.place(), data(1000, b"abcdef"), "so short ones are put together");
        assert_eq!(mappings.place(), None);
    }

    #[test]
    fn one_segment_lies_in_several_mappings() {
        let mut mappings = Mappings::default();
        mappings.declare(mapping(4, u64::MAX - 1, 3), 1);
        mappings.declare(mapping(1, 7, 3), 1);
        mappings.push(chunk(1, b"abcdef"));
        assert_eq!(mappings.place(), data(7, b"abc"));
        assert_eq!(mappings.place(), data(u64::MAX - 1, b"def"));
    }

    #[test]
    fn bytes_wait_for_a_mapping_that_comes_late() {
        let mut mappings = Mappings::default();
        mappings.push(chunk(1, b"abc"));
        assert_eq!(mappings.place(), None);
        assert_eq!(mappings.unmapped(), 3);
        mappings.declare(mapping(1, 9, 3), 1);
        assert_eq!(mappings.place(), data(9, b"abc"));
        assert_eq!(mappings.unmapped(), 0);
    }

    #[test]
    fn a_mapping_that_contradicts_an_earlier_one_changes_nothing() {
        let mut mappings = Mappings::default();
        mappings.declare(mapping(1, 1000, 6), 1);
        assert_eq!(mappings.declare(mapping(1, 2000, 6), 1), Declaration::Conflict);
        assert_eq!(mappings.declare(mapping(5, 9, 6), 1), Declaration::Conflict);
        assert_eq!(mappings.declare(mapping(1, 1000, 6), 1), Declaration::Fine, "the same again");
        mappings.push(chunk(1, b"abcdef"));
        assert_eq!(mappings.place(), data(1000, b"abcdef"));
    }

    #[test]
    fn an_overlapping_mapping_that_agrees_adds_what_is_new() {
        let mut mappings = Mappings::default();
        mappings.declare(mapping(4, 1003, 3), 1);
        assert_eq!(mappings.declare(mapping(1, 1000, 9), 1), Declaration::Fine);
        mappings.push(chunk(1, b"abcdefghi"));
        assert_eq!(mappings.place(), data(1000, b"abc"));
        assert_eq!(mappings.place(), data(1003, b"defghi"), "joined");
    }

    #[test]
    fn a_mapping_of_bytes_that_are_through_is_ignored() {
        let mut mappings = Mappings::default();
        assert_eq!(mappings.declare(mapping(1, 5, 3), 4), Declaration::Fine);
        assert!(mappings.list.is_empty());
    }

    #[test]
    fn mappings_that_continue_each_other_count_once_and_the_others_are_bounded() {
        let mut mappings = Mappings::default();
        for i in 0..100_000 {
            assert_eq!(mappings.declare(mapping(1 + i, 1 + i, 1), 1), Declaration::Fine);
        }
        assert_eq!(mappings.list.len(), 1);
        let refused = (0..10_000u64)
            .filter(|i| {
                mappings.declare(mapping(200_000 + 2 * i, 1_000_000 + 7 * i, 1), 1) == Declaration::TooMany
            })
            .count();
        assert_eq!(refused, 10_001 - MAX_MAPPINGS);
    }

    #[test]
    fn checked_bytes_come_out_once_all_of_the_mapping_is_there() {
        let mut mappings = Mappings::default();
        mappings.declare(checked(1, 77, b"abcdefg", false), 1);
        mappings.push(chunk(1, b"abc"));
        assert_eq!(mappings.place(), None);
        mappings.push(chunk(4, b"defgh"));
        assert_eq!(mappings.place(), data(77, b"abc"));
        assert_eq!(mappings.place(), data(80, b"defg"));
        assert_eq!(mappings.place(), None);
        assert_eq!(mappings.unmapped(), 1);
    }

    #[test]
    fn a_checksum_counts_the_data_fin_in_its_length() {
        let mut mappings = Mappings::default();
        mappings.declare(checked(1, 77, b"ab", true), 1);
        mappings.push(chunk(1, b"ab"));
        assert_eq!(mappings.place(), data(77, b"ab"));
    }

    #[test]
    fn a_changed_byte_is_noticed_and_everything_from_the_mapping_on_is_kept_for_plain_tcp() {
        let mut mappings = Mappings::default();
        mappings.declare(checked(1, 77, b"abc", false), 1);
        mappings.declare(checked(4, 80, b"def", false), 1);
        mappings.push(chunk(1, b"aXc"));
        mappings.push(chunk(4, b"de"));
        assert_eq!(mappings.place(), Some(Placed::Corrupted { dsn: Dsn::new(77) }));
        let rest: Vec<u8> = mappings.into_unplaced().flatten().collect();
        assert_eq!(rest, b"aXcde");
    }
}
