//! Datagrams of a sealed connection: what may be sent and taken, and their records inside the stream.

use bytes::{Bytes, BytesMut};
use plait_protect::handshake::Capability;
use plait_protect::sealed::{
    BLOCK_OVERHEAD, BlockBuffer, DatagramError, DatagramHead, KeyUsedUp, MAX_RECORDS, OpenedDatagram, Record,
    Report, ReportTag, SubflowTag,
};

use super::claim::Claim;
use super::established::Established;
use super::verifying::Worth;

/// Plain text of a block with records about flows: the longest destination, and some.
const MAX_FLOW_RECORDS: usize = 512;
/// Plain text of a block with datagrams.
pub(crate) const MAX_STREAM_DATAGRAMS: usize = 16 << 10;

/// The reason for which a datagram is not taken.
pub(crate) enum NotTaken {
    /// It is not from the peer, or came before.
    Wrong(DatagramError),
    /// It is genuine, but this end may not take it yet.
    Early,
}

impl Established {
    /// Whether both ends take datagrams, and bytes of the application may be sent.
    pub(crate) fn may_send_datagrams(&self) -> bool {
        self.peer_can(Capability::Datagrams) && self.claim.may_carry() && !self.holds_data()
    }

    /// Whether records about flows may arrive in this generation.
    pub(super) fn takes_flows(&self, generation: u64) -> bool {
        self.peer_can(Capability::Datagrams) && self.takes_data(generation) && self.claim != Claim::Awaited
    }

    /// Seals a datagram on a subflow. Returns its counter.
    pub(crate) fn seal_datagram(
        &mut self,
        subflow: SubflowTag,
        head: &DatagramHead,
        payload: &[u8],
        out: &mut BytesMut,
    ) -> Result<u64, KeyUsedUp> {
        self.sealer.seal_datagram(subflow, head, &[payload], out)
    }

    /// Opens a datagram that came over a subflow. Returns it, and whether its counter is the highest.
    pub(crate) fn open_datagram(
        &mut self,
        subflow: SubflowTag,
        bytes: BytesMut,
    ) -> Result<(OpenedDatagram, bool), NotTaken> {
        if !self.peer_can(Capability::Datagrams) {
            return Err(NotTaken::Wrong(DatagramError::Malformed));
        }
        let (generation, opened) = self.opener.open_datagram(subflow, bytes).map_err(NotTaken::Wrong)?;
        if !self.takes_flows(generation) || self.claim == Claim::TurnedAway {
            return Err(NotTaken::Early);
        }
        let is_highest = self.opener.datagrams_on(subflow).0 == opened.counter + 1;
        Ok((opened, is_highest))
    }

    /// Returns a report about what has arrived on a subflow, with this delay.
    pub(crate) fn report_on(&self, subflow: SubflowTag, delay: u16) -> Report {
        let (next, count) = self.opener.datagrams_on(subflow);
        Report { next, count, delay }
    }

    /// Checks a report of the peer about the datagrams below `sent` on a subflow.
    pub(crate) fn check_report(
        &mut self,
        subflow: SubflowTag,
        tag: &ReportTag,
        sent: u64,
    ) -> Result<Report, Worth> {
        self.opener.check_report(subflow, tag, sent).map_err(Worth::of_error)
    }

    /// Whether records about flows, or datagrams, wait for a block.
    pub(crate) fn has_beside(&self) -> bool {
        !self.beside.is_empty()
    }

    /// Adds a record about flows, or a datagram, for the next block.
    pub(crate) fn say_beside(&mut self, record: Record) {
        self.beside.push_back(record);
    }

    /// Returns the plain text of a block with the records that wait. Datagrams stay within the window, which has `room`.
    pub(super) fn beside_block(&mut self, room: u64) -> Option<BlockBuffer> {
        let room = usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(BLOCK_OVERHEAD);
        let mut plain = BlockBuffer::with_capacity(0);
        for _ in 0..MAX_RECORDS {
            let Some(record) = self.beside.front() else { break };
            let (payload, most) = match record {
                Record::Datagram { payload, .. } => (payload.clone(), room.min(MAX_STREAM_DATAGRAMS)),
                _ => (Bytes::new(), MAX_FLOW_RECORDS),
            };
            let head = record.to_bytes();
            if plain.len() + head.len() + payload.len() > most {
                break;
            }
            plain.put(&head);
            plain.put(&payload);
            self.beside.pop_front();
        }
        (!plain.is_empty()).then_some(plain)
    }
}
