//! Blocks that are to go out again, on another subflow: what was lost with one, is late on one, or came damaged.

use plait_base::SubflowId;

use super::SendStream;
use super::blocks::{Block, Carrier};

/// Blocks looked at for one that a subflow does not carry already: bounds the work per segment.
const AGAIN_SEARCH: usize = 64;

impl SendStream {
    /// The first block that is to go out again and that `subflow` does not carry, but may.
    pub(crate) fn again_for(&self, subflow: SubflowId, may_carry: impl Fn(&Block) -> bool) -> Option<&Block> {
        let blocks = self.again.iter().filter_map(|&start| self.block(start));
        blocks
            .take(AGAIN_SEARCH)
            .find(|block| !block.is_carried_by(subflow) && self.is_repeated(block) && may_carry(block))
    }

    /// A DATA_FIN draws resets, of whoever wants the connection to end badly: it is repeated behind nothing that they could take
    /// along, only when the peer has everything before it.
    fn is_repeated(&self, block: &Block) -> bool {
        !block.ends_stream() || self.first().is_some_and(|first| first.start == block.start)
    }

    /// Where the first block that is to go out again starts.
    pub(crate) fn first_again(&self) -> Option<u64> {
        let first = self.again.first().copied()?;
        self.block(first).is_none_or(|block| self.is_repeated(block)).then_some(first)
    }

    /// A subflow makes no progress: what only it carries is to go out again elsewhere too. Returns how many
    /// blocks.
    pub(crate) fn on_stalled(&mut self, subflow: SubflowId, is_good: impl Fn(SubflowId) -> bool) -> usize {
        let before = self.again.len();
        for block in &mut self.blocks {
            // One that did not get the block through is not elsewhere, and may try again.
            let is_elsewhere = |c: &Carrier| c.subflow != subflow && !c.is_denied && is_good(c.subflow);
            if block.is_carried_by(subflow) && !block.carriers.iter().any(is_elsewhere) {
                block.carriers.retain(|carrier| carrier.subflow == subflow || !carrier.is_denied);
                self.again.insert(block.start);
            }
        }
        self.again.len() - before
    }

    /// A subflow is no more.
    pub(crate) fn on_lost(&mut self, subflow: SubflowId) {
        for block in &mut self.blocks {
            block.carriers.retain(|carrier| carrier.subflow != subflow);
            if block.carriers.is_empty() {
                self.again.insert(block.start);
            }
        }
    }

    /// A block that no subflow was given, or only the SYN of one: the next that can takes it.
    pub(crate) fn await_carrier(&mut self, start: u64) {
        self.again.insert(start);
    }

    /// What `subflow` alone has carried goes out again elsewhere, of the blocks that its TCP says were delivered up to `acked`.
    pub(crate) fn on_disbelieved(&mut self, subflow: SubflowId, acked: u64) {
        for block in &self.blocks {
            let is_claimed = |carrier: &Carrier| carrier.subflow == subflow && carrier.end <= acked;
            if block.only_carrier().is_some_and(is_claimed) {
                self.again.insert(block.start);
            }
        }
    }

    /// Whether the block at `start` is to go out again already.
    pub(crate) fn is_again(&self, start: u64) -> bool {
        self.again.contains(&start)
    }

    /// A block did not get through intact: it goes out again, on a subflow that has not carried it if
    /// `elsewhere`.
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
