//! Numbered blocks: what one mapping carries, until the peer has acknowledged it at data level.
//!
//! A block keeps a list of the subflows that carry it. One that has to go out again elsewhere shares its bytes.

use arrayvec::ArrayVec;
use bytes::Bytes;
use plait_base::{Instant, SubflowId};

use super::sealed_body::{News, SealedBody};

/// Subflows that are remembered for one block; a further one takes the place of the oldest.
const MAX_CARRIERS: usize = 8;

/// A subflow that was given a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Carrier {
    pub(crate) subflow: SubflowId,
    /// Stream offset in the subflow behind the last byte.
    pub(crate) end: u64,
    /// When it was given the block.
    pub(crate) since: Instant,
    /// It was held against the subflow that its TCP has this block acknowledged and the peer has not.
    pub(crate) is_denied: bool,
}

/// A block that the peer has acknowledged, and that one subflow alone has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Covered {
    pub(crate) carrier: Carrier,
    /// Of the block, in bytes.
    pub(crate) length: u64,
    /// It was the first without an acknowledgment: the acknowledgment waited for nothing else.
    pub(crate) was_first: bool,
}

/// Numbered bytes that the peer has not acknowledged.
#[derive(Debug)]
pub(crate) struct Block {
    /// Data offset of the first byte.
    pub(crate) start: u64,
    pub(crate) body: Body,
    pub(crate) carriers: ArrayVec<Carrier, MAX_CARRIERS>,
    /// Every subflow that was given it has seen it acknowledged by TCP.
    pub(crate) arrival: Option<Arrival>,
}

/// TCP has acknowledged all of a block wherever it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    /// Since when; or since when the block has come that is awaited, if that was later.
    pub(crate) at: Instant,
    /// What the Data-ACK comes with; nothing is held against anybody before it is there.
    pub(crate) awaits: Option<BlockToCome>,
}

/// A block of the peer's that had begun on this subflow when TCP acknowledged ours: it is there when so many have come whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockToCome {
    pub(crate) subflow: SubflowId,
    pub(crate) blocks: u64,
}

/// What a block goes out as.
#[derive(Debug)]
pub(crate) enum Body {
    /// The application's bytes.
    Clear(Bytes),
    /// A sealed block.
    Sealed(SealedBody),
}

impl Block {
    /// One that no subflow was given yet.
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

    /// Whether a DATA_FIN goes with it.
    pub(crate) fn ends_stream(&self) -> bool {
        matches!(&self.body, Body::Sealed(sealed) if sealed.ends_stream())
    }

    /// Whether it says how far the peer may send.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(&self.body, Body::Sealed(sealed) if sealed.news == News::Urgent)
    }

    pub(crate) fn is_carried_by(&self, subflow: SubflowId) -> bool {
        self.carriers.iter().any(|carrier| carrier.subflow == subflow)
    }

    /// A subflow was given it.
    pub(crate) fn carry(&mut self, carrier: Carrier) {
        self.carriers.retain(|old| old.subflow != carrier.subflow);
        if self.carriers.is_full() {
            self.carriers.remove(0);
        }
        self.carriers.push(carrier);
    }

    /// The subflow that carries it, if there is only one.
    pub(crate) fn only_carrier(&self) -> Option<&Carrier> {
        match &self.carriers[..] {
            [only] => Some(only),
            [] | [_, ..] => None,
        }
    }
}
