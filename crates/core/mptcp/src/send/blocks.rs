//! Numbered blocks: the content of one mapping, kept until the peer has acknowledged it at data level.
//!
//! A block keeps a list of the subflows that carry it. A repetition on another subflow shares its bytes.

use arrayvec::ArrayVec;
use bytes::Bytes;
use plait_base::{Instant, SubflowId};

use super::sealed_body::{News, SealedBody};

/// Subflows remembered for one block. A further one replaces the oldest.
const MAX_CARRIERS: usize = 8;

/// A subflow that carries a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Carrier {
    pub(crate) subflow: SubflowId,
    /// Stream offset in the subflow after the last byte.
    pub(crate) end: u64,
    /// When it got the block.
    pub(crate) since: Instant,
    /// Whether this block already counts as a denial: the subflow's TCP has it acknowledged and the peer has not.
    pub(crate) is_denied: bool,
}

/// A block that the peer has acknowledged and that only one subflow has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Covered {
    pub(crate) carrier: Carrier,
    /// Length of the block in bytes.
    pub(crate) length: u64,
    /// It was the first unacknowledged block: its acknowledgment did not wait for another block.
    pub(crate) was_first: bool,
}

/// Numbered bytes that the peer has not acknowledged.
#[derive(Debug)]
pub(crate) struct Block {
    /// Data offset of the first byte.
    pub(crate) start: u64,
    pub(crate) body: Body,
    pub(crate) carriers: ArrayVec<Carrier, MAX_CARRIERS>,
    /// Set once TCP has acknowledged it on every subflow that carries it.
    pub(crate) arrival: Option<Arrival>,
}

/// TCP has acknowledged all of a block on every subflow that carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    /// The moment of that acknowledgment, or of the arrival of the awaited block if that was later.
    pub(crate) at: Instant,
    /// The block with which the Data-ACK comes. No subflow is blamed before that block has arrived.
    pub(crate) awaits: Option<BlockToCome>,
}

/// A block of the peer that had begun on this subflow when TCP acknowledged ours. It has arrived once this many blocks are complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockToCome {
    pub(crate) subflow: SubflowId,
    pub(crate) blocks: u64,
}

/// The content of a block.
#[derive(Debug)]
pub(crate) enum Body {
    /// The application's bytes.
    Clear(Bytes),
    /// A sealed block.
    Sealed(SealedBody),
}

impl Block {
    /// Returns a block that no subflow has yet.
    pub(crate) fn new(start: u64, body: Body) -> Self {
        Self { start, body, carriers: ArrayVec::new(), arrival: None }
    }

    pub(crate) fn end(&self) -> u64 {
        let length = match &self.body {
            Body::Clear(payload) => payload.len(),
            Body::Sealed(sealed) => sealed.len(),
        };
        self.start + length as u64
    }

    /// Whether it carries a DATA_FIN.
    pub(crate) fn ends_stream(&self) -> bool {
        matches!(&self.body, Body::Sealed(sealed) if sealed.ends_stream())
    }

    /// Whether it carries urgent records, such as the limit of the peer's sending.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(&self.body, Body::Sealed(sealed) if sealed.news == News::Urgent)
    }

    pub(crate) fn is_carried_by(&self, subflow: SubflowId) -> bool {
        self.carriers.iter().any(|carrier| carrier.subflow == subflow)
    }

    /// Notes that a subflow got it.
    pub(crate) fn carry(&mut self, carrier: Carrier) {
        self.carriers.retain(|old| old.subflow != carrier.subflow);
        if self.carriers.is_full() {
            self.carriers.remove(0);
        }
        self.carriers.push(carrier);
    }

    /// Returns the subflow that carries it, if there is only one.
    pub(crate) fn only_carrier(&self) -> Option<&Carrier> {
        match &self.carriers[..] {
            [only] => Some(only),
            [] | [_, ..] => None,
        }
    }
}
