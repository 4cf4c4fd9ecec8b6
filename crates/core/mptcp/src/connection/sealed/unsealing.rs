//! From a mapping that is complete to bytes in the stream: the protection opens a block, here or elsewhere, and says what it
//! is worth; that is acted upon here.

use bytes::Bytes;
use plait_base::Instant;
use plait_protect::sealed::{OpenError, Opened};

use crate::protection::sealed::{CryptoJob, CryptoResult, Established, Examined, InOrder, Opening, Taken};
use crate::subflows::inbox::Declared;
use crate::{Connection, ConnectionError};

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
        core::iter::from_fn(|| established.poll_job()).find(|_| !is_over)
    }

    /// Whether there is one.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.closing.is_over() && self.protection.established().is_some_and(Established::has_jobs)
    }

    /// Takes the result of a job.
    pub(crate) fn take_result(&mut self, now: Instant, result: CryptoResult) {
        if self.closing.is_over() {
            return;
        }
        let Some(established) = self.protection.established_mut() else { return };
        if let Some((opening, result)) = established.take_result(result) {
            self.on_opened_elsewhere(now, &opening, result);
        }
    }

    fn on_opened_elsewhere(&mut self, now: Instant, opening: &Opening, result: Result<Opened, OpenError>) {
        let before = self.progress();
        self.take_opened(opening, result);
        if let Some(index) = self.subflows.index_of(opening.subflow()) {
            let next =
                self.protection.established().and_then(|sealed| sealed.first_opening(opening.subflow()));
            self.subflows.touch(index).tcp.release_ack(next);
            self.on_progress(index, before);
        }
        self.tell_reader();
        for index in 0..self.subflows.len() {
            if self.subflows[index].state.sealed().is_paused() {
                self.open_blocks(now, index);
            }
        }
    }

    /// Whether the limit of blocks being opened is reached.
    pub(super) fn is_opening_enough(&self) -> bool {
        let most = usize::from(self.config.crypto_jobs);
        let opening = self.protection.established().map_or(0, Established::opening);
        most > 0 && opening >= most
    }

    /// Takes the block that fills a mapping.
    pub(super) fn take_block(&mut self, now: Instant, index: usize, declared: Declared, payload: Bytes) {
        let offsets = self.offsets();
        let state = &mut self.subflows.touch(index).state;
        let (Some(subflow), Some(established)) = (state.sealed().tag(), self.protection.established_mut())
        else {
            return;
        };
        // Kept for the case that the mapping was wrong and hides another.
        let whole = payload.clone();
        let examined = established.examine(state.id(), subflow, declared, payload, offsets);
        if examined.is_ok() {
            self.on_block_tag(now, index, declared.offset);
        }
        let (state, established) = (&mut self.subflows.touch(index).state, self.protection.established_mut());
        let Some(established) = established else { return };
        match examined {
            Ok(Examined::Open(opening, job)) => {
                drop(whole);
                if !self.config.is_job(opening.len()) {
                    return self.take_opened(&opening, job.run());
                }
                established.open_elsewhere(opening, job);
                // What acknowledges the bytes is to acknowledge the block as well.
                self.subflows.touch(index).tcp.hold_ack(now, declared.offset);
            }
            Ok(Examined::Duplicate { length, acked }) => {
                state.sealed_mut().forget_told();
                self.subflows.touch(index).tcp.request_ack();
                self.on_duplicate(length, acked);
            }
            Ok(Examined::Outside { length }) => self.counters.bytes_outside += length,
            // A copy so late that its keys are gone.
            Err(OpenError::Generation(wire))
                if established.has_passed(wire, &declared, whole.len(), offsets.next) =>
            {
                self.counters.bytes_duplicate += whole.len() as u64;
            }
            Err(_) => {
                state.sealed_mut().inbox_mut().resume(whole);
                self.on_failed(Some(index));
            }
        }
    }

    /// A block has been opened, or not.
    pub(super) fn take_opened(&mut self, opening: &Opening, result: Result<Opened, OpenError>) {
        let next = self.incoming.next();
        let Some(established) = self.protection.established_mut() else { return };
        match established.take_opened(opening, result, next) {
            Taken::Forged => self.on_failed(self.subflows.index_of(opening.subflow())),
            Taken::Duplicate { length, acked } => self.on_duplicate(length, acked),
            Taken::Broken => self.fail(ConnectionError::Protocol),
            Taken::Kept { acked, edge } => {
                if let Some(edge) = edge {
                    self.outgoing.raise_edge(edge);
                }
                self.heed_gone();
                if let Some(acked) = acked {
                    self.on_genuine_ack(acked);
                }
                self.deliver_blocks();
            }
        }
    }

    pub(super) fn on_duplicate(&mut self, length: u64, acked: Option<u64>) {
        self.counters.bytes_duplicate += length;
        if let Some(acked) = acked {
            self.on_genuine_ack(acked);
        }
    }

    /// Hands on what is in order now.
    fn deliver_blocks(&mut self) {
        while !self.closing.is_over() {
            let Some(established) = self.protection.established_mut() else { return };
            let InOrder { length, data, ends_data, data_fin } =
                match established.take_next(self.incoming.next()) {
                    Ok(Some(block)) if !self.incoming.is_finished() => block,
                    Ok(None) => return,
                    Ok(Some(_)) | Err(_) => return self.fail(ConnectionError::Protocol),
                };
            self.incoming.deliver_block(length, data);
            if ends_data {
                self.incoming.end_data();
            }
            if data_fin {
                self.end_stream();
            }
        }
    }

    /// DATA_FIN counts only behind a verified EOF.
    pub(super) fn end_stream(&mut self) {
        let may_end = self.protection.established().is_some_and(Established::may_end);
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
            self.subflows.touch(index).tcp.request_ack();
        }
    }
}
