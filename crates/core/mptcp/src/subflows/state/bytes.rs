//! The bytes of a subflow: their mappings, and what was sent here of the stream.

use bytes::Bytes;
use plait_base::Instant;
use plait_tcp::Chunk;

use super::SubflowState;
use crate::receive::mapping::{Declaration, Mapping, Placed};

impl SubflowState {
    /// Notes that these in-order bytes were taken from TCP.
    pub(crate) fn on_read(&mut self, chunk: &Chunk) {
        self.read = chunk.offset + chunk.data.len() as u64;
    }

    /// Whether in-order bytes were taken from TCP.
    pub(crate) fn has_read(&self) -> bool {
        self.read > 1
    }

    /// Keeps bytes until their mapping is known.
    pub(crate) fn hold(&mut self, chunk: Chunk) {
        self.mappings.push(chunk);
    }

    /// Stores a mapping.
    pub(crate) fn declare(&mut self, mapping: Mapping) -> Declaration {
        self.mappings.declare(mapping, self.read)
    }

    /// Returns the next bytes with a known place.
    pub(crate) fn place(&mut self) -> Option<Placed> {
        self.mappings.place()
    }

    /// Whether only the mapping of the next byte is still accepted.
    pub(in crate::subflows) fn has_full_mappings(&self) -> bool {
        self.mappings.is_full()
    }

    /// Returns the number of bytes that wait without a mapping.
    pub(crate) fn unmapped(&self) -> usize {
        self.mappings.unmapped()
    }

    /// Returns the number of in-order bytes that wait for their mapping, or for the rest of their block.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.mappings.waiting_bytes() + u64::from(self.sealed.waiting_bytes())
    }

    /// Returns when unmapped bytes began to wait, if some do.
    pub(crate) fn unmapped_since(&self) -> Option<Instant> {
        self.unmapped_since
    }

    /// Notes that unmapped bytes wait.
    pub(crate) fn on_unmapped(&mut self, now: Instant) {
        self.unmapped_since.get_or_insert(now);
    }

    /// Notes that no unmapped bytes wait, or that they wait no longer.
    pub(crate) fn on_all_mapped(&mut self) {
        self.unmapped_since = None;
    }

    /// Makes it the only subflow of plain TCP. Returns its bytes without a place, in order. An infinite mapping goes with the next data if
    /// the peer must learn where mappings end (`announces`).
    pub(crate) fn on_fallback(&mut self, announces: bool) -> impl Iterator<Item = Bytes> + use<> {
        self.announce_infinite = announces;
        self.stall = None;
        self.unmapped_since = None;
        core::mem::take(&mut self.mappings).into_unplaced()
    }

    /// Returns whether the infinite mapping must go with the next data. It does so once.
    pub(crate) fn take_infinite_mapping(&mut self) -> bool {
        core::mem::take(&mut self.announce_infinite)
    }

    /// Whether it is plain TCP after MP_FAIL, and the peer's infinite mapping has not arrived yet.
    pub(crate) fn acks_data_still(&self) -> bool {
        self.acks_data_still
    }

    /// Sets whether Data-ACKs are still sent on plain TCP.
    pub(crate) fn set_acks_data_still(&mut self, acks: bool) {
        self.acks_data_still = acks;
    }

    /// Returns the data offset up to which the redundant scheduler has sent everything here.
    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }

    /// Notes that everything up to this data offset was sent here.
    pub(crate) fn on_copied(&mut self, end: u64) {
        self.copied = end;
    }

    /// Returns the number of bytes here that were first sent on another subflow.
    pub(crate) fn reinjected(&self) -> u64 {
        self.reinjected
    }

    /// Counts bytes that were first sent on another subflow.
    pub(crate) fn on_reinjected(&mut self, bytes: usize) {
        self.reinjected += bytes as u64;
    }

    /// Whether a DSS has arrived here.
    pub(crate) fn has_dss(&self) -> bool {
        self.has_dss
    }

    /// Notes that a DSS, or something that stands for one, has arrived here.
    pub(crate) fn on_dss(&mut self) {
        self.has_dss = true;
    }
}
