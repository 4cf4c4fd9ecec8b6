//! Blocks that must be sent again on another subflow: lost with a subflow, late on one, or damaged.

use plait_base::SubflowId;

use super::SendStream;
use super::blocks::{Block, Carrier};

/// Blocks checked for one that a subflow does not carry already: bounds the work per segment.
const AGAIN_SEARCH: usize = 64;

impl SendStream {
    /// Returns the first block that must be sent again and that `subflow` does not carry, but may.
    pub(crate) fn again_for(&self, subflow: SubflowId, may_carry: impl Fn(&Block) -> bool) -> Option<&Block> {
        let blocks = self.again.iter().filter_map(|&start| self.block(start));
        blocks
            .take(AGAIN_SEARCH)
            .find(|block| !block.is_carried_by(subflow) && self.is_repeated(block) && may_carry(block))
    }

    /// Whether the block is repeated. An attacker that wants the connection to end badly answers a DATA_FIN with resets. The DATA_FIN is
    /// therefore repeated only when the peer has everything before it, so that a reset cannot destroy other data.
    fn is_repeated(&self, block: &Block) -> bool {
        !block.ends_stream() || self.first().is_some_and(|first| first.start == block.start)
    }

    /// Returns the start of the first block that must be sent again.
    pub(crate) fn first_again(&self) -> Option<u64> {
        let first = self.again.first().copied()?;
        self.block(first).is_none_or(|block| self.is_repeated(block)).then_some(first)
    }

    /// Handles a subflow without progress: blocks that only it carries are also sent elsewhere. Returns the number of blocks.
    pub(crate) fn on_stalled(&mut self, subflow: SubflowId, is_good: impl Fn(SubflowId) -> bool) -> usize {
        let before = self.again.len();
        for block in &mut self.blocks {
            // A subflow that did not deliver the block does not count as a carrier, and may try again.
            let is_elsewhere = |c: &Carrier| c.subflow != subflow && !c.is_denied && is_good(c.subflow);
            if block.is_carried_by(subflow) && !block.carriers.iter().any(is_elsewhere) {
                block.carriers.retain(|carrier| carrier.subflow == subflow || !carrier.is_denied);
                self.again.insert(block.start);
            }
        }
        self.again.len() - before
    }

    /// Handles the end of a subflow.
    pub(crate) fn on_lost(&mut self, subflow: SubflowId) {
        for block in &mut self.blocks {
            block.carriers.retain(|carrier| carrier.subflow != subflow);
            if block.carriers.is_empty() {
                self.again.insert(block.start);
            }
        }
    }

    /// Queues a block that no subflow carries, or only the SYN of one. The next possible subflow takes it.
    pub(crate) fn await_carrier(&mut self, start: u64) {
        self.again.insert(start);
    }

    /// Queues the blocks that `subflow` alone has carried and that its TCP reports as delivered up to `acked`.
    pub(crate) fn on_disbelieved(&mut self, subflow: SubflowId, acked: u64) {
        for block in &self.blocks {
            let is_claimed = |carrier: &Carrier| carrier.subflow == subflow && carrier.end <= acked;
            if block.only_carrier().is_some_and(is_claimed) {
                self.again.insert(block.start);
            }
        }
    }

    /// Whether the block at `start` is already queued for repetition.
    pub(crate) fn is_again(&self, start: u64) -> bool {
        self.again.contains(&start)
    }

    /// Queues a block that arrived damaged. If `elsewhere`, a subflow that has not carried it must take it.
    pub(crate) fn on_block_corrupted(&mut self, start: u64, elsewhere: bool) {
        if let Some(block) = self.block_mut(start) {
            block.arrival = None;
            if !elsewhere {
                block.carriers.clear();
            }
            self.again.insert(start);
        }
    }
}
