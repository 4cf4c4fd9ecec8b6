//! Falling back to plain TCP (RFC 8684, section 3.7).

use crate::log;
use plait_base::Dsn;
use plait_wire::{Mapping, ResetReason};

use crate::protection::Mode;
use crate::subflows::{Control, ResetInfo, Stage};
use crate::{Connection, PlainReason};

/// Whether mappings were already sent, so that the peer must learn where they end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapped {
    /// No mapping was sent: both sides know it from the handshake.
    Never,
    /// The next data carries an infinite mapping, which announces the end of mappings.
    Announce,
}

impl Connection {
    /// Whether the sequence numbers of stream and subflow still correspond on the first subflow.
    pub(crate) fn can_fall_back(&self, index: usize) -> bool {
        self.protection.can_fall_back()
            && self.outgoing.is_contiguous()
            && self.subflows[index].state.is_first()
    }

    /// Makes the subflow at `index` the whole connection.
    pub(crate) fn fall_back(&mut self, index: usize, reason: PlainReason, mapped: Mapped) {
        if let Mode::Plain(_) = self.mode() {
            return;
        }
        log::debug!(?reason, "falls back to plain TCP, if allowed");
        let subflow = &self.subflows[index];
        let shift = self.outgoing.next().wrapping_sub(subflow.tcp.next_offset());
        let id = subflow.state.id();
        if let Err(error) = self.protection.fall_back(self.config.fallback, reason, id, shift) {
            self.fail(error);
            return;
        }
        let subflow = self.subflows.touch(index);
        for data in subflow.state.on_fallback(mapped == Mapped::Announce) {
            self.incoming.append(data);
        }
        self.outgoing.forget_blocks();
        self.incoming.drop_early();
        self.follow_plain_acks();
        self.tell_reader();
        for (other, subflow) in self.subflows.touch_all().enumerate() {
            if other != index && subflow.state.is_present() {
                subflow.reset(ResetInfo::because(ResetReason::Mptcp));
            }
        }
    }

    /// Handles a checksum failure: the bytes of the mapping at `dsn` differ from those sent.
    pub(crate) fn on_corrupted(&mut self, index: usize, dsn: Dsn) {
        log::debug!(subflow = self.subflows[index].state.id().0, "data checksum is wrong");
        self.counters.checksum_failures += 1;
        if self.can_fall_back(index) {
            let subflow = self.subflows.touch(index);
            subflow.state.signal(Control::Fail { dsn: dsn.bits() });
            subflow.tcp.request_ack();
            self.fall_back(index, PlainReason::ChecksumFailed, Mapped::Announce);
            self.ack_until_infinite(index);
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc8684#section-3.7
        //# the affected subflow
        //# must be immediately closed with a RST that includes an MP_FAIL option
        let because = ResetInfo::because(ResetReason::MiddleboxInterference);
        self.subflows.touch(index).reset(ResetInfo { fail: Some(dsn.bits()), ..because });
    }

    /// Handles an MP_FAIL: the bytes that this host sent from `dsn` on arrived altered.
    pub(crate) fn on_fail(&mut self, index: usize) {
        if !self.can_fall_back(index) {
            self.subflows.touch(index).reset(ResetInfo::because(ResetReason::MiddleboxInterference));
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc8684#section-3.7
        //# the receiver of an MP_FAIL MUST also respond with an
        //# MP_FAIL in the reverse direction and entirely revert to a regular TCP
        //# session.
        if let Some(numbers) = self.protection.numbers() {
            let dsn = numbers.incoming.dsn(self.incoming.next()).bits();
            self.subflows.touch(index).state.signal(Control::Fail { dsn });
            self.subflows.touch(index).tcp.request_ack();
        }
        self.fall_back(index, PlainReason::PeerFellBack, Mapped::Announce);
        self.ack_until_infinite(index);
    }

    /// Sends Data-ACKs until the infinite mapping arrives. The peer keeps what it has sent with mappings until it is acknowledged at data
    /// level. Linux would run out of send buffer before it sends the infinite mapping.
    fn ack_until_infinite(&mut self, index: usize) {
        //= https://www.rfc-editor.org/rfc/rfc8684#section-3.7
        //# The receiver SHOULD stop generating Data ACKs after it
        //# receives an infinite mapping.
        self.subflows.touch(index).state.set_acks_data_still(!self.closing.is_over());
    }

    /// Ends the Data-ACKs of plain TCP at a segment with data whose mapping is infinite or missing.
    pub(crate) fn watch_for_infinite(&mut self, index: usize, mapping: Option<Mapping>) {
        if mapping.is_none_or(|mapping| mapping.length == 0) {
            self.subflows.touch(index).state.set_acks_data_still(false);
        }
    }

    /// Handles a subflow on which the options are stripped. A subflow that has ended stays as it is: its bytes without a mapping may be
    /// those of a mapping that was refused.
    pub(crate) fn on_stripped(&mut self, index: usize) {
        if self.subflows[index].state.stage() == Stage::Over {
            return;
        }
        log::debug!(subflow = self.subflows[index].state.id().0, "options are stripped on the way");
        self.counters.stripped += 1;
        if self.can_fall_back(index) {
            self.fall_back(index, PlainReason::NoDss, Mapped::Announce);
        } else {
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.7
            //# the
            //# host MUST close the subflow with a RST, which SHOULD contain an
            //# MP_TCPRST option (Section 3.6) with a "Middlebox interference"
            //# reason code.
            self.subflows.touch(index).reset(ResetInfo::because(ResetReason::MiddleboxInterference));
        }
    }

    /// Plain TCP: bytes that the subflow has acknowledged leave the send buffer.
    pub(crate) fn follow_plain_acks(&mut self) {
        if let (Mode::Plain(tcp), Some(subflow)) = (self.mode(), self.plain_subflow()) {
            let acked = tcp.data_offset(self.subflows[subflow].tcp.acked_offset());
            self.outgoing.on_plain_ack(acked);
        }
    }

    /// The single subflow of plain TCP.
    pub(crate) fn plain_subflow(&self) -> Option<usize> {
        match self.mode() {
            Mode::Plain(tcp) => self.subflows.index_of(tcp.subflow()),
            Mode::Opening | Mode::Multipath => None,
        }
    }
}
