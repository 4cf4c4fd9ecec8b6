//! From a mapping that is complete to bytes in the stream: window and duplicates, option tag, decryption here or
//! elsewhere, order.
//!
//! Blocks are opened in whatever order that goes, and are delivered in the order of their numbers. Of two copies of a
//! block that are being opened at the same time the first that is genuine counts: nothing is known of either before.

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
use crate::receive::early::unpinned;
use crate::subflows::inbox::Declared;

/// A block whose option tag is right, on its way through decryption.
#[derive(Debug)]
pub(crate) struct Opening {
    subflow: SubflowId,
    /// Where it begins in the stream of the subflow.
    place: u64,
    /// Data offset.
    offset: u64,
    length: u64,
    data_fin: bool,
    /// What its Data-ACK acknowledges.
    acked: Option<u64>,
}

/// A verified block on its way into the stream.
///
/// However many wait, the window bounds them: each takes at least the numbers of its own overhead, which keeping an
/// empty one costs about four times, and no two take the same.
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
    /// As it came: a record takes more room than its bytes.
    Control {
        plain: Bytes,
        generation: u64,
    },
}

/// What is to become of a block that fills a mapping.
pub(crate) enum Examined {
    /// It is decrypted.
    Open(Opening, OpenJob),
    /// It was delivered, or waits to be: our Data-ACK may have been lost. What its own acknowledges counts.
    Duplicate { length: u64, acked: Option<u64> },
    /// There is no room for it.
    Outside { length: u64 },
}

/// What has become of a block that was decrypted.
pub(crate) enum Taken {
    /// It was not sealed by the peer.
    Forged,
    /// A copy that was opened at the same time was faster.
    Duplicate { length: u64, acked: Option<u64> },
    /// The peer breaks the rules: its numbers are those of another block.
    Broken,
    /// It waits for its turn. What it acknowledges, and how far it opens the window of the data, counts already.
    Kept { acked: Option<u64>, edge: Option<u64> },
}

/// The next verified block in order.
pub(crate) struct InOrder {
    /// Data sequence numbers that it takes.
    pub(crate) length: u64,
    /// Bytes for the application.
    pub(crate) data: Bytes,
    /// The application's data ends with it, though control blocks may follow.
    pub(crate) ends_data: bool,
    /// It is the last block of the stream.
    pub(crate) data_fin: bool,
}

impl Opening {
    pub(crate) fn subflow(&self) -> SubflowId {
        self.subflow
    }

    /// Bytes of the block.
    pub(crate) fn len(&self) -> usize {
        self.length as usize
    }
}

impl Established {
    /// The next job that nobody has taken.
    pub(crate) fn poll_job(&mut self) -> Option<CryptoJob> {
        self.jobs.pop()
    }

    /// Whether there is one.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// What came of a job; if it was one of decryption that is still waited for, what it was about, to be handed to
    /// [`Established::take_opened`].
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

    /// Where the first block of this subflow begins that is being opened elsewhere.
    pub(crate) fn first_opening(&self, subflow: SubflowId) -> Option<u64> {
        self.opening.values().filter(|opening| opening.subflow == subflow).map(|opening| opening.place).min()
    }

    /// Blocks that are being opened elsewhere.
    pub(crate) fn opening(&self) -> usize {
        self.opening.len()
    }

    /// Leaves the decryption to somebody else.
    pub(crate) fn open_elsewhere(&mut self, opening: Opening, job: OpenJob) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.opening.insert(ticket, opening);
        self.jobs.open(ticket, job);
    }

    /// Everything that comes before decryption. Data offsets below `acked` are acknowledged by the peer, those below `next`
    /// have arrived in order.
    ///
    /// # Errors
    /// The block, or what the mapping says of it, is not the peer's.
    pub(crate) fn examine(
        &mut self,
        (subflow, tag): (SubflowId, SubflowTag),
        declared: Declared,
        payload: Bytes,
        (acked, next): (u64, u64),
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

    /// A block has been opened, or not.
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
                // Urgent news need not wait for what lies before them.
                let edge = self.urgent_in(&plain);
                (Contents::Control { plain, generation: opened.generation }, edge)
            }
        };
        self.early.insert(offset, Early { length, contents, data_fin });
        Taken::Kept { acked, edge }
    }

    /// The block at `next`, if it is there and verified: what its records say has counted, as far as that concerns the
    /// protection; [`Established::poll_record`] has the rest.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub(crate) fn take_next(&mut self, next: u64) -> Result<Option<InOrder>, Broken> {
        let Some(Early { length, contents, data_fin }) = self.early.remove(&next) else { return Ok(None) };
        let (data, ends_data) = match contents {
            Contents::Data { .. } if self.eof_received || self.claim == Claim::Awaited => return Err(Broken),
            // The application is shown another attempt, or none.
            Contents::Data { .. } if self.claim == Claim::TurnedAway => (Bytes::new(), false),
            Contents::Data { generation, .. } if !self.takes_data(generation) => return Err(Broken),
            Contents::Data { plain, generation: _ } => (plain, false),
            Contents::Control { plain, generation } => (Bytes::new(), self.take_records(&plain, generation)?),
        };
        self.handshake = None;
        Ok(Some(InOrder { length, data, ends_data, data_fin }))
    }

    /// Whether a DATA_FIN counts: only behind a verified EOF.
    pub(crate) fn may_end(&self) -> bool {
        self.eof_received
    }

    /// Whether a block that waits has numbers of this one: blocks are sealed once, so an honest peer sends no such.
    fn overlaps(&self, offset: u64, length: u64) -> bool {
        let before = self.early.range(..offset).next_back();
        before.is_some_and(|(start, block)| start + block.length > offset)
            || self.early.range(offset..offset + length).next().is_some()
    }
}
