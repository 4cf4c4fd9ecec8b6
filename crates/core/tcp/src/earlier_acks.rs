//! Acknowledgments owed to single segments that have not left when the next segment arrives. Each segment that is out of order, fills a gap
//! or is repeated gets its own acknowledgment (RFC 5681, section 4.2), however many arrive at once.

use alloc::collections::VecDeque;
use arrayvec::ArrayVec;

use crate::receive_queue::{Block, MAX_BLOCKS, ReceiveQueue};

/// Acknowledgments that are kept: as many as a driver reads packets at once.
const MOST: usize = 32;

/// Bytes that arrived twice, for a report (RFC 2883).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Duplicate {
    pub(crate) block: Block,
    /// The timestamp of the segment, if all of its bytes had arrived before and lay in front of the window.
    pub(crate) stamp: Option<u32>,
}

/// The content of an acknowledgment that has not left.
#[derive(Clone, Debug)]
pub(crate) struct EarlierAck {
    /// The acknowledgment number, as an offset.
    next: u64,
    pub(crate) duplicate: Option<Duplicate>,
    pub(crate) blocks: ArrayVec<Block, MAX_BLOCKS>,
}

/// Those that wait, in order.
#[derive(Debug, Default)]
pub(crate) struct EarlierAcks {
    waiting: VecDeque<EarlierAck>,
}

impl EarlierAcks {
    /// Keeps what would be said now. Returns whether there was room.
    pub(crate) fn keep(&mut self, queue: &ReceiveQueue, next: u64, duplicate: Option<Duplicate>) -> bool {
        if self.waiting.len() >= MOST {
            return false;
        }
        let mut blocks = ArrayVec::new();
        queue.blocks(MAX_BLOCKS, &mut |block| blocks.push(block));
        self.waiting.push_back(EarlierAck { next, duplicate, blocks });
        true
    }

    /// The last one is not wanted after all.
    pub(crate) fn take_back(&mut self) -> Option<EarlierAck> {
        self.waiting.pop_back()
    }

    /// Returns the next one to send. An acknowledgment below the present one says nothing new, except for a duplicate report.
    pub(crate) fn pop(&mut self, next: u64) -> Option<EarlierAck> {
        loop {
            let mut ack = self.waiting.pop_front()?;
            if ack.next == next || ack.duplicate.is_some() {
                ack.blocks.retain(|block| block.0 > next);
                return Some(ack);
            }
        }
    }
}
