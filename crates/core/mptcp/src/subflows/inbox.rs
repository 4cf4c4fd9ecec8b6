//! From the bytes of one subflow to blocks: one mapping is one block.
//!
//! A mapping is not authenticated before its block is. It is therefore only a proposal about the start and end of a block. A wrong mapping
//! must not destroy more of the stream than its own block.

use bytes::{Bytes, BytesMut};
use plait_tcp::Chunk;
use plait_wire::{DataAck, DataSequence};
use std::collections::{BTreeMap, VecDeque};

use crate::receive::coalescing;

/// Largest number of mappings of one subflow. With blocks of one segment of 1400 bytes they cover 5.7 MB.
const MAX_DECLARED: usize = 4096;

/// A declared mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Declared {
    pub(crate) dsn: DataSequence,
    /// Stream offset in the subflow: all 64 bits of the relative subflow sequence number.
    pub(crate) offset: u64,
    /// Length of the block without a DATA_FIN.
    pub(crate) length: u16,
    pub(crate) data_fin: bool,
    pub(crate) data_ack: Option<DataAck>,
}

/// The declared content of a run of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    Block(Declared),
    /// A message of an exchange of shares with this many bytes. It is not part of the stream.
    PathKey(u16),
}

/// The next item.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing complete.
    Nothing,
    /// All bytes of a mapping.
    Block(Declared, Bytes),
    /// Unmapped bytes before the next mapping.
    Garbage(Bytes),
    /// A message of an exchange of shares.
    PathKey(Bytes),
    /// Bytes that wait for a mapping.
    Unmapped(usize),
}

/// The result of a declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Declaration {
    /// Stored, already known, or about bytes that were already taken.
    Fine,
    /// Another one starts at the same byte.
    Conflict,
    /// There are too many.
    TooMany,
}

/// Mappings of a subflow and the bytes that wait for theirs.
#[derive(Debug)]
pub(crate) struct Inbox {
    declared: BTreeMap<u64, Run>,
    waiting: VecDeque<Chunk>,
    waiting_bytes: usize,
    /// Stream offset of the first byte that waits.
    at: u64,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { declared: BTreeMap::new(), waiting: VecDeque::new(), waiting_bytes: 0, at: 1 }
    }
}

impl Inbox {
    pub(crate) fn declare(&mut self, new: Declared) -> Declaration {
        self.declare_run(new.offset, Run::Block(new))
    }

    /// Declares a message of an exchange of shares that begins at this offset of the subflow.
    pub(crate) fn declare_path_key(&mut self, offset: u64, length: u16) -> Declaration {
        self.declare_run(offset, Run::PathKey(length))
    }

    fn declare_run(&mut self, offset: u64, new: Run) -> Declaration {
        if offset < self.at {
            return Declaration::Fine;
        }
        match (self.declared.get(&offset), new) {
            (Some(Run::Block(old)), Run::Block(new)) if old.dsn == new.dsn && old.length == new.length => {
                Declaration::Fine
            }
            (Some(Run::PathKey(old)), Run::PathKey(new)) if *old == new => Declaration::Fine,
            (Some(_), _) => Declaration::Conflict,
            (None, _) if self.is_full() && offset != self.at + self.waiting_bytes as u64 => {
                Declaration::TooMany
            }
            (None, new) => {
                self.declared.insert(offset, new);
                Declaration::Fine
            }
        }
    }

    /// Whether there is a mapping whose bytes have not all been taken.
    pub(crate) fn is_amid(&self) -> bool {
        self.declared.last_key_value().is_some_and(|(&offset, _)| offset >= self.at)
    }

    /// Whether the list is full: only mappings that begin with the next byte are still accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.declared.len() >= MAX_DECLARED
    }

    /// Adds the next in-order bytes of the subflow.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.waiting_bytes += chunk.data.len();
        coalescing::push(&mut self.waiting, chunk);
    }

    /// Returns the number of waiting bytes.
    pub(crate) fn waiting_bytes(&self) -> u32 {
        u32::try_from(self.waiting_bytes).unwrap_or(u32::MAX)
    }

    /// Takes up to `max` bytes off the front, ignoring the mappings.
    pub(crate) fn take(&mut self, max: usize) -> Option<Bytes> {
        let first = self.waiting.front_mut()?;
        let length = first.data.len().min(max);
        let data = first.data.split_to(length);
        first.offset += length as u64;
        if first.data.is_empty() {
            self.waiting.pop_front();
        }
        self.waiting_bytes -= length;
        self.at += length as u64;
        Some(data)
    }

    /// Takes all waiting bytes in one piece, ignoring the mappings.
    pub(crate) fn take_all(&mut self) -> Bytes {
        self.gather(self.waiting_bytes)
    }

    /// Returns the stream offset of the first byte that has not been taken.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Puts bytes back that were taken off the front.
    pub(crate) fn give_back(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.at -= data.len() as u64;
        self.waiting_bytes += data.len();
        self.waiting.push_front(Chunk { offset: self.at, data });
    }

    pub(crate) fn next(&mut self) -> Next {
        while self.declared.first_key_value().is_some_and(|(&offset, _)| offset < self.at) {
            self.declared.pop_first();
        }
        let Some((&offset, &declared)) = self.declared.first_key_value() else {
            return if self.waiting_bytes > 0 { Next::Unmapped(self.waiting_bytes) } else { Next::Nothing };
        };
        if offset > self.at {
            let gap = usize::try_from(offset - self.at).unwrap_or(usize::MAX);
            return self.take(gap).map_or(Next::Nothing, Next::Garbage);
        }
        let length = match declared {
            Run::Block(declared) => usize::from(declared.length),
            Run::PathKey(length) => usize::from(length),
        };
        if self.waiting_bytes < length {
            return Next::Nothing;
        }
        self.declared.pop_first();
        let bytes = self.gather(length);
        match declared {
            Run::Block(declared) => Next::Block(declared, bytes),
            Run::PathKey(_) => Next::PathKey(bytes),
        }
    }

    /// Handles a damaged block, whose length may have been wrong as well: if another mapping starts inside it, processing continues there.
    pub(crate) fn resume(&mut self, payload: Bytes) {
        let start = self.at - payload.len() as u64;
        if let Some((&offset, _)) = self.declared.range(start + 1..self.at).next() {
            self.give_back(payload.slice((offset - start) as usize..));
        }
    }

    /// Returns `length` bytes in one piece. At least this many are waiting.
    fn gather(&mut self, length: usize) -> Bytes {
        let first = self.take(length).unwrap_or_default();
        if first.len() == length {
            return first;
        }
        let mut all = BytesMut::with_capacity(length);
        all.extend_from_slice(&first);
        while all.len() < length {
            let Some(piece) = self.take(length - all.len()) else { break };
            all.extend_from_slice(&piece);
        }
        all.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(offset: u64, length: u16) -> Declared {
        let dsn = DataSequence::Long(1000 + offset);
        Declared { offset, dsn, length, data_fin: false, data_ack: None }
    }

    fn filled(bytes: usize) -> Inbox {
        let mut inbox = Inbox::default();
        let data: Vec<u8> = (1..=bytes).map(|at| at as u8).collect();
        for (index, piece) in data.chunks(3).enumerate() {
            inbox.push(Chunk { offset: 1 + 3 * index as u64, data: Bytes::copy_from_slice(piece) });
        }
        inbox
    }

    fn block(inbox: &mut Inbox) -> Vec<u8> {
        match inbox.next() {
            Next::Block(_, payload) => payload.to_vec(),
            other => panic!("a block, not {other:?}"),
        }
    }

    #[test]
    fn blocks_are_cut_where_mappings_say() {
        let mut inbox = filled(9);
        inbox.declare(mapping(1, 4));
        inbox.declare(mapping(5, 7));
        assert_eq!(block(&mut inbox), [1, 2, 3, 4]);
        assert!(matches!(inbox.next(), Next::Nothing), "two bytes are missing");
        inbox.push(Chunk { offset: 10, data: Bytes::from_static(&[10, 11]) });
        assert_eq!(block(&mut inbox), [5, 6, 7, 8, 9, 10, 11]);
        assert!(matches!(inbox.next(), Next::Nothing));
    }

    #[test]
    fn bytes_in_front_of_a_mapping_are_garbage_and_bytes_without_any_wait() {
        let mut inbox = filled(6);
        assert!(matches!(inbox.next(), Next::Unmapped(6)));
        inbox.declare(mapping(3, 4));
        assert!(matches!(inbox.next(), Next::Garbage(bytes) if bytes[..] == [1, 2]));
        assert_eq!(block(&mut inbox), [3, 4, 5, 6]);
    }

    #[test]
    fn a_mapping_that_was_wrong_does_not_swallow_the_next() {
        let mut inbox = filled(9);
        inbox.declare(mapping(1, 8));
        inbox.declare(mapping(4, 3));
        let Next::Block(_, wrong) = inbox.next() else { panic!("the long one comes first") };
        inbox.resume(wrong);
        assert_eq!(block(&mut inbox), [4, 5, 6]);
    }

    #[test]
    fn the_first_word_about_a_byte_stands_and_their_number_is_bounded() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.declare(mapping(1, 8)), Declaration::Fine);
        assert_eq!(inbox.declare(mapping(1, 8)), Declaration::Fine);
        assert_eq!(inbox.declare(mapping(1, 9)), Declaration::Conflict);
        let all = (2..10_000).map(|offset| inbox.declare(mapping(offset, 1)));
        assert_eq!(all.filter(|declared| *declared == Declaration::Fine).count(), MAX_DECLARED - 1);
    }
}
