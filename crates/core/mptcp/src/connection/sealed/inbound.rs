//! What comes in on a sealed connection: tagged options, mappings, and the bytes that fill them.
//!
//! The order is that of the wire format: nothing in a block counts before both tags are right (see
//! [`super::unsealing`]). A block that fails is not acknowledged at data level, so the peer sends it again; TCP has acknowledged its bytes already, which the
//! peer notices (see [`super::repair`]).

use crate::data_space::Offsets;
use crate::log;
use bytes::Bytes;
use plait_base::Instant;
use plait_wire::{DataAck, DataSequence, Dss, Flags, ResetReason};

use crate::connection::receiving::{Arrived, MAX_UNMAPPED};
use crate::protection::sealed::{Established, Reader, Said, Sealed, Worth};
use crate::role::Role;
use crate::send::Acked;
use crate::subflows::inbox::{Declaration, Declared, Next};
use crate::subflows::{ResetInfo, Stage as SubflowStage};
use crate::{Connection, ConnectionError};

/// Failed blocks after which a subflow is closed.
const MAX_FAILURES: u64 = 8;
/// Wrong tags of segments without a block after which a subflow is closed. A tag of 8 bytes can be guessed; an honest peer
/// sends no wrong one, so that a few are enough for whatever a middlebox does to options.
const MAX_TAGS_FAILED: u64 = 8;
/// Wrong tags of a connection, all its subflows together, from which on a single one closes its subflow. The connection goes
/// on: an attacker on one path must not be able to end it. New keys would gain nothing: a guess is as good under any key.
const MAX_TAGS_FAILED_IN_ALL: u64 = 4096;

impl Connection {
    /// The options of an acceptable segment behind the SYN.
    pub(crate) fn take_sealed_signals(&mut self, now: Instant, arrived: &Arrived<'_>) {
        if arrived.segment.flags.contains(Flags::SYN) {
            return;
        }
        let Some(sealed) = self.protection.sealed_mut() else { return };
        sealed.on_heard();
        if let Some((ssn, length)) = arrived.signals.path_key
            && let Some(offset) = stream_offset(ssn, arrived.offset)
        {
            let declared = self
                .subflows
                .touch(arrived.index)
                .state
                .sealed_mut()
                .inbox_mut()
                .declare_path_key(offset, length);
            self.on_declared(declared);
        }
        if let Some(check) = &arrived.signals.check {
            self.take_check(now, arrived.index, check);
        }
        if let Some(report) = &arrived.signals.report {
            self.take_report(now, arrived.index, report);
        }
        let Some(dss) = arrived.signals.dss else { return };
        let Dss { data_ack, mapping, data_fin } = dss;
        let is_bare_fin = |length: u16, ssn: u32| data_fin && length == 1 && ssn == 0;
        match mapping {
            Some(mapping) if !is_bare_fin(mapping.length, mapping.ssn) => {
                self.subflows.touch(arrived.index).state.on_dss();
                let Some(offset) = stream_offset(mapping.ssn, arrived.offset) else { return };
                let declared = Declared {
                    offset,
                    dsn: mapping.dsn,
                    length: mapping.length.saturating_sub(u16::from(data_fin)),
                    data_fin,
                    data_ack,
                };
                self.declare_block(arrived.index, declared);
            }
            Some(mapping) => self.take_tagged(arrived, data_ack, Some(mapping.dsn)),
            None => self.take_tagged(arrived, data_ack, None),
        }
    }

    fn declare_block(&mut self, index: usize, declared: Declared) {
        let declared = self.subflows.touch(index).state.sealed_mut().inbox_mut().declare(declared);
        self.on_declared(declared);
    }

    fn on_declared(&mut self, declared: Declaration) {
        match declared {
            Declaration::Fine => {}
            Declaration::Conflict => self.counters.mapping_conflicts += 1,
            Declaration::TooMany => self.counters.mappings_refused += 1,
        }
    }

    /// A Data-ACK or DATA_FIN without a block: its tag has to be right.
    fn take_tagged(&mut self, arrived: &Arrived<'_>, ack: Option<DataAck>, fin: Option<DataSequence>) {
        let offsets = self.offsets();
        let Some(established) = self.protection.established_mut() else { return };
        let Some(subflow) = self.subflows[arrived.index].state.sealed().tag() else { return };
        let said = Said { ack, fin, tag: arrived.signals.tag };
        match established.check(subflow, &said, offsets) {
            Worth::Genuine { acked, fin } => {
                if let Some(acked) = acked {
                    self.on_genuine_ack(acked);
                }
                if fin == Some(self.incoming.next()) {
                    self.end_stream();
                }
            }
            Worth::Nothing => self.counters.forged_acks += 1,
            Worth::Guessed => self.on_tag_failed(arrived.index),
        }
    }

    /// Returns how far both streams have got.
    pub(super) fn offsets(&self) -> Offsets {
        Offsets { acked: self.outgoing.acked(), next: self.incoming.next() }
    }

    /// A Data-ACK that is the peer's.
    pub(super) fn on_genuine_ack(&mut self, acked: u64) {
        let outcome = self.outgoing.on_data_ack(acked, 0);
        if let (Acked::New(_), Some(established)) = (outcome, self.protection.established_mut()) {
            established.on_acked(acked);
        }
        match outcome {
            Acked::New(_) | Acked::Old => self.allow_joins(),
            Acked::Beyond => self.fail(ConnectionError::Protocol),
        }
    }

    /// Takes the bytes that TCP has put in order.
    pub(crate) fn read_sealed(&mut self, now: Instant, index: usize) {
        while let Some(chunk) = self.subflows.touch(index).tcp.read() {
            let state = &mut self.subflows.touch(index).state;
            state.on_read(&chunk);
            state.sealed_mut().inbox_mut().push(chunk);
        }
        match self.protection.sealed().map_or(Reader::Nothing, Sealed::reader) {
            Reader::Handshake => self.read_handshake(index),
            Reader::Blocks => self.open_blocks(now, index),
            Reader::Nothing => {}
        }
    }

    /// Opens the blocks that are complete.
    pub(super) fn open_blocks(&mut self, now: Instant, index: usize) {
        if self.subflows[index].state.sealed().tag().is_none() {
            return;
        }
        let before = self.progress();
        self.subflows.touch(index).state.sealed_mut().resume();
        while !self.closing.is_over() && self.subflows[index].state.stage() != SubflowStage::Over {
            if self.is_opening_enough() {
                self.subflows.touch(index).state.sealed_mut().pause();
                break;
            }
            match self.subflows.touch(index).state.sealed_mut().inbox_mut().next() {
                Next::Nothing => {
                    self.subflows.touch(index).state.on_all_mapped();
                    break;
                }
                Next::Unmapped(bytes) => {
                    self.on_unmapped(now, index, bytes);
                    break;
                }
                Next::Garbage(bytes) => self.on_garbage(index, &bytes),
                Next::PathKey(message) => self.on_path_key(index, message),
                Next::Block(declared, payload) => {
                    self.subflows.touch(index).state.sealed_mut().on_whole_block();
                    self.take_block(now, index, declared, payload);
                }
            }
        }
        self.on_progress(index, before);
        self.tell_reader();
    }

    /// Bytes that no mapping covers, so far.
    fn on_unmapped(&mut self, now: Instant, index: usize, bytes: usize) {
        let state = &mut self.subflows.touch(index).state;
        state.on_unmapped(now);
        if state.is_first()
            && let Some(established) = self.protection.established_mut()
            && established.awaits_alert()
        {
            // An alert may come in pieces.
            let inbox = state.sealed_mut().inbox_mut();
            let bytes = inbox.take_all();
            if let Some(why) = established.alert_in(&bytes, inbox.at()) {
                self.protection.note_denial();
                self.fail_sealing(why, ConnectionError::HandshakeFailed);
                return;
            }
            inbox.give_back(bytes);
        }
        if bytes > MAX_UNMAPPED {
            self.counters.stripped += 1;
            self.subflows.touch(index).reset(ResetInfo::for_now(ResetReason::MiddleboxInterference));
        }
    }

    fn on_garbage(&mut self, index: usize, bytes: &Bytes) {
        let state = &self.subflows[index].state;
        let end = state.sealed().inbox().at();
        if state.is_first()
            && let Some(why) =
                self.protection.established_mut().and_then(|sealed| sealed.alert_in(bytes, end))
        {
            self.protection.note_denial();
            self.fail_sealing(why, ConnectionError::HandshakeFailed);
            return;
        }
        self.on_failed(Some(index));
    }

    /// Handles a wrong tag on a segment without a block: an attacker guesses tags, or changes options.
    pub(super) fn on_tag_failed(&mut self, index: usize) {
        self.counters.tags_failed += 1;
        let most = if self.counters.tags_failed > MAX_TAGS_FAILED_IN_ALL { 1 } else { MAX_TAGS_FAILED };
        let subflow = self.subflows.touch(index);
        let failed = subflow.state.sealed_mut().on_wrong_tag();
        if failed < most {
            return;
        }
        log::debug!(
            subflow = subflow.state.id().0,
            failed,
            "subflow is closed: too many of its option tags are wrong"
        );
        self.counters.guessed_closed += 1;
        subflow.reset(ResetInfo::for_now(ResetReason::MiddleboxInterference));
    }

    /// Handles bytes on a subflow that the peer did not seal. The subflow may be gone by now.
    pub(super) fn on_failed(&mut self, index: Option<usize>) {
        log::debug!("block or option tag failed verification");
        self.counters.blocks_failed += 1;
        let has_opened = self.protection.established().is_some_and(Established::has_opened);
        let has_other = self.subflows.proved() > 1;
        let Some(subflow) = index.map(|index| self.subflows.touch(index)) else { return };
        if subflow.state.sealed_mut().on_failure() < MAX_FAILURES {
            // What is missing shows in the Data-ACK.
            subflow.state.sealed_mut().forget_told();
            subflow.tcp.request_ack();
            return;
        }
        if !has_opened && self.role == Role::Passive && !has_other {
            // The opener has other ways, and is to learn at once that this is none.
            self.fail_altered();
            return;
        }
        log::debug!("too much has failed verification on this subflow");
        self.counters.attacked_closed += 1;
        subflow.reset(ResetInfo::for_now(ResetReason::MiddleboxInterference));
    }
}

/// The stream offset that a relative subflow sequence number means in a segment that begins at `near`: of those with these
/// lower 32 bits the one that is closest. `None` if that lies in front of the stream.
fn stream_offset(ssn: u32, near: u64) -> Option<u64> {
    let ahead = ssn.wrapping_sub(near as u32).cast_signed();
    near.checked_add_signed(i64::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_sequence_number_is_the_closest_offset_with_its_bits() {
        const WRAP: u64 = 1 << 32;
        for (near, offset) in [
            (1, 1),
            (1, 1400),
            (WRAP - 1400, WRAP + 3),
            (WRAP + 3, WRAP - 1400),
            (WRAP + 1, WRAP + 1),
            (5 * WRAP + 9000, 5 * WRAP + 1400),
        ] {
            assert_eq!(stream_offset(offset as u32, near), Some(offset), "near {near}");
        }
        assert_eq!(stream_offset(u32::MAX, 1), None, "nothing lies in front of the first byte");
    }
}
