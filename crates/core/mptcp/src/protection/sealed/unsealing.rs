//! From a complete mapping to bytes in the stream: check of the window and of duplicates, option tag, decryption (here or in a job), order.
//!
//! Blocks are opened in any order, and are delivered in the order of their numbers. If two copies of a block are being opened at the same
//! time, the first genuine copy counts: neither is verified before.

use bytes::Bytes;
use plait_base::SubflowId;
use plait_protect::sealed::{
    Kind, OpenError, OpenJob, Opened, OptionContext, ProtectedOptions, Role as End, SubflowTag,
};

use super::claim::Claim;
use super::established::Established;
use super::jobs::{CryptoJob, CryptoResult, Outcome, Ticket};
use super::records::Broken;
use super::sealing::CONTROL_SLACK;
use crate::data_space::Offsets;
use crate::receive::early::unpinned;
use crate::subflows::inbox::Declared;

/// A block with a valid option tag, in decryption.
#[derive(Debug)]
pub(crate) struct Opening {
    subflow: SubflowId,
    /// Its start in the stream of the subflow.
    place: u64,
    /// Data offset.
    offset: u64,
    length: u64,
    data_fin: bool,
    /// The offset that its Data-ACK acknowledges.
    acked: Option<u64>,
}

/// A verified block that waits to be put into the stream.
///
/// The window bounds the number of waiting blocks: each takes at least the numbers of its own overhead, and no two take the same. Keeping
/// an empty block costs about four times that overhead.
#[derive(Debug)]
pub(super) struct Early {
    length: u64,
    contents: Contents,
    data_fin: bool,
}

#[derive(Debug)]
enum Contents {
    Data {
        plain: Bytes,
        generation: u64,
    },
    /// The record as it arrived: a parsed record takes more room than its bytes.
    Control {
        plain: Bytes,
        generation: u64,
    },
}

/// The verdict on a block that fills a mapping.
pub(crate) enum Examined {
    /// It must be decrypted.
    Open(Opening, OpenJob),
    /// It was delivered, or waits for delivery: our Data-ACK may have been lost. Its own Data-ACK counts.
    Duplicate { length: u64, acked: Option<u64> },
    /// There is no room for it.
    Outside { length: u64 },
}

/// The result for a block that was decrypted.
pub(crate) enum Taken {
    /// The peer did not seal it.
    Forged,
    /// A copy that was opened at the same time was complete before.
    Duplicate { length: u64, acked: Option<u64> },
    /// The peer breaks the rules: its numbers belong to another block.
    Broken,
    /// It waits for its turn. Its Data-ACK and its update of the data window already count.
    Kept { acked: Option<u64>, edge: Option<u64> },
}

/// The next verified block in order.
pub(crate) struct InOrder {
    /// Number of data sequence numbers that it takes.
    pub(crate) length: u64,
    /// Bytes for the application.
    pub(crate) data: Bytes,
    /// Whether the application's data ends with it. Control blocks may follow.
    pub(crate) ends_data: bool,
    /// Whether it is the last block of the stream.
    pub(crate) data_fin: bool,
}

impl Opening {
    pub(crate) fn subflow(&self) -> SubflowId {
        self.subflow
    }

    /// Returns the number of bytes of the block.
    pub(crate) fn len(&self) -> usize {
        self.length as usize
    }
}

impl Established {
    /// Returns the next job that no runner has taken.
    pub(crate) fn poll_job(&mut self) -> Option<CryptoJob> {
        self.jobs.pop()
    }

    /// Whether there is such a job.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Handles the result of a job. For a decryption that is still needed, returns its block for [`Established::take_opened`].
    pub(crate) fn take_result(
        &mut self,
        result: CryptoResult,
    ) -> Option<(Opening, Result<Opened, OpenError>)> {
        self.blocks_elsewhere += 1;
        match result.0 {
            Outcome::Sealed(block) => {
                self.ahead.fill(block);
                None
            }
            Outcome::Opened { ticket, result } => Some((self.opening.remove(&ticket)?, result)),
        }
    }

    /// Returns the start of the first block of this subflow that a job is opening.
    pub(crate) fn first_opening(&self, subflow: SubflowId) -> Option<u64> {
        self.opening.values().filter(|opening| opening.subflow == subflow).map(|opening| opening.place).min()
    }

    /// Returns the number of blocks that jobs are opening.
    pub(crate) fn opening(&self) -> usize {
        self.opening.len()
    }

    /// Leaves the decryption to a job.
    pub(crate) fn open_elsewhere(&mut self, opening: Opening, job: OpenJob) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.opening.insert(ticket, opening);
        self.jobs.open(ticket, job);
    }

    /// Makes all checks before decryption.
    ///
    /// # Errors
    /// The block, or its mapping, is not from the peer.
    pub(crate) fn examine(
        &mut self,
        subflow: SubflowId,
        tag: SubflowTag,
        declared: Declared,
        payload: Bytes,
        Offsets { acked, next }: Offsets,
    ) -> Result<Examined, OpenError> {
        let Declared { offset, dsn, length: _, data_fin, data_ack } = declared;
        let numbers = &self.numbers;
        let dsn = numbers.incoming.sequence(dsn, next);
        let data_ack = data_ack.map(|ack| numbers.outgoing.ack_number(ack, acked));
        let options = ProtectedOptions::NONE;
        let context = OptionContext { subflow: tag, offset, data_ack, data_fin, options };
        let acked = data_ack.and_then(|dsn| numbers.outgoing.offset(dsn));
        let length = payload.len() as u64;
        let job = self.opener.begin(dsn, &context, payload)?;
        let Some(offset) = numbers.incoming.offset(dsn) else { return Ok(Examined::Outside { length }) };
        if offset < next || self.early.contains_key(&offset) {
            return Ok(Examined::Duplicate { length, acked });
        }
        let limit = self.announced.max(next) + 2 * CONTROL_SLACK;
        if offset + length > limit {
            return Ok(Examined::Outside { length });
        }
        let place = declared.offset;
        Ok(Examined::Open(Opening { subflow, place, offset, length, data_fin, acked }, job))
    }

    /// Whether all of a block with this generation in its header has been delivered, and the generation is over.
    pub(crate) fn has_passed(&self, generation: u8, declared: &Declared, length: usize, next: u64) -> bool {
        if !self.opener.is_past(generation) {
            return false;
        }
        let incoming = &self.numbers.incoming;
        let offset = incoming.offset(incoming.sequence(declared.dsn, next));
        offset.is_some_and(|offset| offset + length as u64 <= next)
    }

    /// Handles the result of a decryption.
    pub(crate) fn take_opened(
        &mut self,
        opening: &Opening,
        result: Result<Opened, OpenError>,
        next: u64,
    ) -> Taken {
        let Opening { subflow: _, place: _, offset, length, data_fin, acked } = *opening;
        let Ok(opened) = result else { return Taken::Forged };
        self.opener.finish(&opened);
        self.opened_blocks += 1;
        if self.role == End::B {
            self.handshake = None;
        }
        if offset < next || self.early.contains_key(&offset) {
            return Taken::Duplicate { length, acked };
        }
        if self.overlaps(offset, length) {
            return Taken::Broken;
        }
        let plain = opened.plain.freeze();
        let plain = if offset == next { plain } else { unpinned(plain) };
        let (contents, edge) = match opened.kind {
            Kind::Data => (Contents::Data { plain, generation: opened.generation }, None),
            Kind::Control => {
                // Urgent records need not wait for earlier blocks.
                let edge = self.urgent_in(&plain);
                (Contents::Control { plain, generation: opened.generation }, edge)
            }
        };
        self.early.insert(offset, Early { length, contents, data_fin });
        Taken::Kept { acked, edge }
    }

    /// Returns the block at `next`, if it has arrived and is verified. The protection has handled the records that concern it.
    /// [`Established::poll_record`] returns the others.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub(crate) fn take_next(&mut self, next: u64) -> Result<Option<InOrder>, Broken> {
        let Some(Early { length, contents, data_fin }) = self.early.remove(&next) else { return Ok(None) };
        let (data, ends_data) = match contents {
            Contents::Data { .. } if self.eof_received || self.claim == Claim::Awaited => return Err(Broken),
            // The application uses another attempt, or none.
            Contents::Data { .. } if self.claim == Claim::TurnedAway => (Bytes::new(), false),
            Contents::Data { generation, .. } if !self.takes_data(generation) => return Err(Broken),
            Contents::Data { plain, generation: _ } => (plain, false),
            Contents::Control { plain, generation } => (Bytes::new(), self.take_records(&plain, generation)?),
        };
        self.handshake = None;
        Ok(Some(InOrder { length, data, ends_data, data_fin }))
    }

    /// Whether a DATA_FIN counts: only after a verified EOF.
    pub(crate) fn may_end(&self) -> bool {
        self.eof_received
    }

    /// Whether a waiting block overlaps the numbers of this one. Blocks are sealed once, so an honest peer sends no such block.
    fn overlaps(&self, offset: u64, length: u64) -> bool {
        let before = self.early.range(..offset).next_back();
        before.is_some_and(|(start, block)| start + block.length > offset)
            || self.early.range(offset..offset + length).next().is_some()
    }
}
