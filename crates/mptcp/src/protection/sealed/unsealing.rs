//! From a mapping that is complete to bytes in the stream: window and duplicates, option tag, decryption here or
//! elsewhere, order.
//!
//! Blocks are opened in whatever order that goes, and are delivered in the order of their numbers. Of two copies of a
//! block that are being opened at the same time the first that is genuine counts: nothing is known of either before.

use bytes::Bytes;
use plait_base::{Instant, SubflowId};
use plait_protect::sealed::{
    Kind, OpenError, OpenJob, Opened, OptionContext, ProtectedOptions, Records, SubflowTag,
};

use super::claim::Claim;
use super::established::Established;
use super::jobs::{CryptoJob, CryptoResult, Outcome, Ticket};
use super::outbound::CONTROL_SLACK;
use crate::receive::early::unpinned;
use crate::subflows::inbox::Declared;
use crate::{Connection, ConnectionError};

/// A block whose option tag is right, on its way through decryption.
#[derive(Debug)]
pub(super) struct Opening {
    flow: SubflowId,
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
    Data(Bytes),
    /// As it came: a record takes more room than its bytes.
    Control {
        plain: Bytes,
        generation: u64,
    },
}

/// How far the stream was before something was opened.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    next: u64,
    is_ended: bool,
}

impl Connection {
    /// The next job; none once the connection is over.
    pub(crate) fn next_job(&mut self) -> Option<CryptoJob> {
        let is_over = self.closing.is_over();
        let established = self.protection.established_mut()?;
        core::iter::from_fn(|| established.jobs.pop()).find(|_| !is_over)
    }

    /// Whether there is one.
    pub(crate) fn has_jobs(&self) -> bool {
        let established = self.protection.established();
        !self.closing.is_over() && established.is_some_and(|established| !established.jobs.is_empty())
    }

    /// What came of a job.
    pub(crate) fn take_result(&mut self, now: Instant, result: CryptoResult) {
        if self.closing.is_over() {
            return;
        }
        let Some(established) = self.protection.established_mut() else { return };
        established.blocks_elsewhere += 1;
        match result.0 {
            Outcome::Sealed(block) => established.ahead.fill(block),
            Outcome::Opened { ticket, result } => {
                let Some(opening) = established.opening.remove(&ticket) else { return };
                self.on_opened_elsewhere(now, &opening, result);
            }
        }
    }

    fn on_opened_elsewhere(&mut self, now: Instant, opening: &Opening, result: Result<Opened, OpenError>) {
        let before = self.progress();
        self.take_opened(opening, result);
        let index = self.flows.index_of(opening.flow);
        if let Some(index) = index {
            self.flows[index].tcp.release_ack();
            self.on_progress(index, before);
        }
        self.tell_reader();
        for index in 0..self.flows.len() {
            if self.flows[index].state.sealed.is_paused {
                self.open_blocks(now, index);
            }
        }
    }

    /// Whether as many blocks are being opened as may be.
    pub(super) fn is_opening_enough(&self) -> bool {
        let most = usize::from(self.config.crypto_jobs);
        let opening = self.protection.established().map_or(0, |r| r.opening.len());
        most > 0 && opening >= most
    }

    /// Takes the block that fills a mapping.
    pub(super) fn take_block(&mut self, now: Instant, index: usize, declared: Declared, payload: Bytes) {
        let Some(subflow) = self.flows[index].state.sealed.tag else { return };
        // Kept for the case that the mapping was wrong and hides another.
        let whole = payload.clone();
        let begun = match self.begin_opening(index, subflow, declared, payload) {
            Ok(begun) => begun,
            Err(OpenError::Generation(wire)) if self.has_passed(wire, &declared, whole.len()) => {
                // A copy so late that its keys are gone.
                self.counters.bytes_duplicate += whole.len() as u64;
                return;
            }
            Err(_) => {
                self.flows[index].state.sealed.inbox.resume(whole);
                self.on_failed(Some(index));
                return;
            }
        };
        drop(whole);
        let Some((opening, job)) = begun else { return };
        if !self.config.is_job(opening.length as usize) {
            self.take_opened(&opening, job.run());
        } else if let Some(established) = self.protection.established_mut() {
            established.open_elsewhere(opening, job);
            // What acknowledges the bytes is to acknowledge the block as well.
            self.flows[index].tcp.hold_ack(now);
        }
    }

    /// Whether all of this block has been delivered, and its generation is over.
    fn has_passed(&self, generation: u8, declared: &Declared, length: usize) -> bool {
        let Some(established) =
            self.protection.established().filter(|established| established.opener.is_past(generation))
        else {
            return false;
        };
        let next = self.incoming.next();
        let offset =
            established.numbers.incoming.offset(established.numbers.incoming.sequence(declared.dsn, next));
        offset.is_some_and(|offset| offset + length as u64 <= next)
    }

    /// Everything that comes before decryption. `None` if the block is not needed, or there is no room for it.
    fn begin_opening(
        &mut self,
        index: usize,
        subflow: SubflowTag,
        declared: Declared,
        payload: Bytes,
    ) -> Result<Option<(Opening, OpenJob)>, OpenError> {
        let Some(established) = self.protection.established_mut() else { return Ok(None) };
        let Declared { offset, dsn, length: _, data_fin, data_ack } = declared;
        let numbers = &established.numbers;
        let dsn = numbers.incoming.sequence(dsn, self.incoming.next());
        let data_ack = data_ack.map(|ack| numbers.outgoing.ack_number(ack, self.outgoing.acked()));
        let context = OptionContext { subflow, offset, data_ack, data_fin, options: ProtectedOptions::NONE };
        let acked = data_ack.and_then(|dsn| numbers.outgoing.offset(dsn));
        let length = payload.len() as u64;
        let job = established.opener.begin(dsn, &context, payload)?;
        let Some(offset) = numbers.incoming.offset(dsn) else {
            self.counters.bytes_outside += length;
            return Ok(None);
        };
        let limit = established.announced.max(self.incoming.next()) + 2 * CONTROL_SLACK;
        if offset < self.incoming.next() || established.early.contains_key(&offset) {
            // Our Data-ACK may have been lost.
            self.flows[index].state.sealed.told = 0;
            self.flows[index].tcp.request_ack();
            self.on_duplicate(length, acked);
            return Ok(None);
        }
        if offset + length > limit {
            self.counters.bytes_outside += length;
            return Ok(None);
        }
        let flow = self.flows[index].state.id;
        Ok(Some((Opening { flow, offset, length, data_fin, acked }, job)))
    }

    /// A block has been opened, or not.
    fn take_opened(&mut self, opening: &Opening, result: Result<Opened, OpenError>) {
        let Opening { flow, offset, length, data_fin, acked } = *opening;
        let Ok(opened) = result else { return self.on_failed(self.flows.index_of(flow)) };
        let Some(established) = self.protection.established_mut() else { return };
        established.opener.finish(&opened);
        established.opened_blocks += 1;
        established.handshake = None;
        if offset < self.incoming.next() || established.early.contains_key(&offset) {
            // A copy that was opened at the same time was faster.
            return self.on_duplicate(length, acked);
        }
        if established.overlaps(offset, length) {
            return self.fail(ConnectionError::Protocol);
        }
        let plain = opened.plain.freeze();
        let plain = if offset == self.incoming.next() { plain } else { unpinned(plain) };
        let contents = match opened.kind {
            Kind::Data => Contents::Data(plain),
            Kind::Control => {
                // News of the window need not wait for what lies before them.
                self.take_window_news(&plain);
                Contents::Control { plain, generation: opened.generation }
            }
        };
        let Some(established) = self.protection.established_mut() else { return };
        established.early.insert(offset, Early { length, contents, data_fin });
        if let Some(acked) = acked {
            self.on_genuine_ack(acked);
        }
        self.deliver_blocks();
    }

    fn on_duplicate(&mut self, length: u64, acked: Option<u64>) {
        self.counters.bytes_duplicate += length;
        if let Some(acked) = acked {
            self.on_genuine_ack(acked);
        }
    }

    /// Hands on what is in order now.
    fn deliver_blocks(&mut self) {
        while !self.closing.is_over() {
            let Some(established) = self.protection.established_mut() else { return };
            let Some(early) = established.early.remove(&self.incoming.next()) else { return };
            if self.incoming.is_finished() {
                self.fail(ConnectionError::Protocol);
                return;
            }
            let Early { length, contents, data_fin } = early;
            match contents {
                Contents::Data(_) if established.eof_received || established.claim == Claim::Awaited => {
                    self.fail(ConnectionError::Protocol);
                    return;
                }
                Contents::Data(plain) => self.incoming.deliver_block(length, plain),
                Contents::Control { plain, generation } => {
                    let Ok(records) = Records::new(&plain).collect::<Result<Vec<_>, _>>() else {
                        return self.fail(ConnectionError::Protocol);
                    };
                    self.incoming.deliver_block(length, Bytes::new());
                    self.take_records(records, generation);
                }
            }
            if data_fin {
                self.end_stream();
            }
        }
    }

    /// DATA_FIN counts only behind a verified EOF.
    pub(super) fn end_stream(&mut self) {
        let may_end = self.protection.established().is_some_and(|established| established.eof_received);
        if !may_end || !self.incoming.finish(self.incoming.next()) {
            self.counters.fin_conflicts += 1;
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let is_ended = self.incoming.is_exhausted() || self.incoming.is_finished();
        Progress { next: self.incoming.next(), is_ended }
    }

    /// The first data and the end are acknowledged at once, as on plain connections: the other side learns that its
    /// keys and its end are known.
    pub(super) fn on_progress(&mut self, index: usize, before: Progress) {
        let after = self.progress();
        if (before.next == 1 && after.next > 1) || before.is_ended != after.is_ended {
            self.flows[index].tcp.request_ack();
        }
    }
}

impl Established {
    /// Whether a block that waits has numbers of this one: blocks are sealed once, so an honest peer sends no such.
    fn overlaps(&self, offset: u64, length: u64) -> bool {
        let before = self.early.range(..offset).next_back();
        before.is_some_and(|(start, block)| start + block.length > offset)
            || self.early.range(offset..offset + length).next().is_some()
    }

    fn open_elsewhere(&mut self, opening: Opening, job: OpenJob) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.opening.insert(ticket, opening);
        self.jobs.open(ticket, job);
    }
}
