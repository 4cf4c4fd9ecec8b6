//! Blocks between cutting and first transmission: the paper calls them the encrypt queues.
//!
//! A block gets its numbers when it is cut. It may be sealed elsewhere, and later blocks may be ready before it. Blocks leave in the order
//! of their numbers.

use plait_base::Dsn;
use plait_protect::sealed::{Kind, SealedBlock};
use std::collections::VecDeque;

use crate::send::sealed_body::{News, SealedBody};

/// A block that is not assigned to a subflow yet.
#[derive(Debug)]
struct Waiting {
    dsn: Dsn,
    /// Number of data sequence numbers that it takes.
    length: u64,
    kind: Kind,
    application: usize,
    news: News,
    /// `None` while it is being sealed.
    sealed: Option<SealedBlock>,
}

/// Blocks in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Ahead(VecDeque<Waiting>);

/// The state of the first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct First {
    pub(crate) kind: Kind,
    pub(crate) length: u64,
    pub(crate) is_sealed: bool,
}

impl Ahead {
    /// Adds a block of the application's bytes that is being sealed.
    pub(super) fn expect(&mut self, dsn: Dsn, length: u64, application: usize) {
        let waiting =
            Waiting { dsn, length, kind: Kind::Data, application, news: News::Nothing, sealed: None };
        self.0.push_back(waiting);
    }

    /// Adds a block that is already sealed.
    pub(super) fn push(&mut self, sealed: SealedBlock, news: News) {
        self.0.push_back(Waiting {
            dsn: sealed.dsn(),
            length: sealed.len() as u64,
            kind: sealed.kind(),
            application: 0,
            news,
            sealed: Some(sealed),
        });
    }

    /// Stores a block that has been sealed.
    pub(super) fn fill(&mut self, sealed: SealedBlock) {
        if let Some(waiting) = self.0.iter_mut().find(|waiting| waiting.dsn == sealed.dsn()) {
            waiting.sealed = Some(sealed);
        }
    }

    pub(super) fn first(&self) -> Option<First> {
        let Waiting { kind, length, sealed, .. } = self.0.front()?;
        Some(First { kind: *kind, length: *length, is_sealed: sealed.is_some() })
    }

    /// Takes the first block, if it is sealed.
    pub(super) fn pop(&mut self) -> Option<SealedBody> {
        self.0.front()?.sealed.as_ref()?;
        let Waiting { application, news, sealed, .. } = self.0.pop_front()?;
        sealed.map(|block| SealedBody { block, application, news })
    }

    /// Returns the number of blocks.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of data sequence numbers that the blocks take.
    pub(super) fn numbers(&self) -> u64 {
        self.0.iter().map(|waiting| waiting.length).sum()
    }

    /// Whether the last block of the stream is among them.
    pub(super) fn ends_stream(&self) -> bool {
        self.0.back().is_some_and(|waiting| waiting.news == News::End)
    }
}
