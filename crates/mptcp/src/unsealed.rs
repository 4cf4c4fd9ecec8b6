//! What stands in the place of `sealed` where the feature of that name is off: nothing is ever sealed.
//!
//! The types have no values, so each of these functions is either empty or cannot be called.

use base::Instant;
use core::net::IpAddr;
use tcp::SegmentKind;
use wire::{MpCapable, OptionBytes, Segment};

use crate::flow::FlowState;
use crate::receive::Arrived;
use crate::scheduler::Candidate;
use crate::session::Session;
use crate::status::SealedStatus;
use crate::{Connection, Host};

/// There is none.
pub(crate) enum Sealed {}

/// There is none.
#[derive(Debug)]
pub(crate) enum SealedBody {}

/// There is none.
#[derive(Debug)]
pub enum CryptoJob {}

/// There is none.
#[derive(Debug)]
pub enum CryptoResult {}

/// Nothing to know.
#[derive(Default)]
pub(crate) struct SealedFlow;

/// What came of the negotiation.
pub(crate) enum Answer {
    /// The only one.
    Unsealed,
}

impl SealedBody {
    pub(crate) fn len(&self) -> usize {
        match *self {}
    }

    pub(crate) fn application_bytes(&self) -> u64 {
        match *self {}
    }
}

impl CryptoJob {
    /// Cannot be called.
    pub fn run(self) -> CryptoResult {
        match self {}
    }
}

impl SealedFlow {
    pub(crate) fn failures(&self) -> u64 {
        0
    }

    pub(crate) fn initiator_said(&mut self, _: bool, _: u8, _: u8) {}

    pub(crate) fn responder_said(&mut self, _: bool, _: u8, _: u8) {}

    pub(crate) fn note_gaps(&mut self, _: bool) {}

    pub(crate) fn backlog(&self) -> u32 {
        0
    }
}

impl Sealed {
    pub(crate) fn token(&self) -> Option<u32> {
        match *self {}
    }

    pub(crate) fn fast_close(&self) -> Option<[u8; 8]> {
        match *self {}
    }

    pub(crate) fn is_fast_close(&self, _: &[u8; 8]) -> bool {
        match *self {}
    }

    pub(crate) fn status(&self) -> SealedStatus {
        match *self {}
    }

    pub(crate) fn is_join_answer(&self, _: &mut SealedFlow, _: (u32, u32), _: &[u8; 8]) -> bool {
        match *self {}
    }

    pub(crate) fn is_join_ack(&self, _: &mut SealedFlow, _: (u32, u32), _: &[u8; 20]) -> bool {
        match *self {}
    }

    pub(crate) fn forget(&mut self, _: &SealedFlow) {
        match *self {}
    }

    pub(crate) fn announce(&mut self, _: u8, _: IpAddr) {
        match *self {}
    }

    pub(crate) fn withdraw(&mut self, _: u8) {
        match *self {}
    }

    pub(crate) fn prioritise(&mut self, _: &SealedFlow, _: bool) {
        match *self {}
    }

    pub(crate) fn write_options(
        &mut self,
        _: SegmentKind,
        _: usize,
        _: &mut FlowState,
        _: (Option<&Session>, u64),
        _: &mut OptionBytes,
    ) -> bool {
        match *self {}
    }
}

impl Connection {
    pub(crate) fn next_job(&mut self) -> Option<CryptoJob> {
        None
    }

    pub(crate) fn has_jobs(&self) -> bool {
        false
    }

    pub(crate) fn take_result(&mut self, _: Instant, result: CryptoResult) {
        match result {}
    }

    pub(crate) fn offer_sealed(&mut self) {}

    pub(crate) fn explain_refusal(&mut self) {}

    pub(crate) fn cannot_seal(&self) -> bool {
        false
    }

    pub(crate) fn judge_sealed_syn(&mut self, _: &Segment, _: Option<&MpCapable>) -> Answer {
        Answer::Unsealed
    }

    pub(crate) fn judge_sealed_answer(&mut self, _: &Arrived<'_>) -> Answer {
        Answer::Unsealed
    }

    pub(crate) fn on_sealed_third_ack(&mut self, _: &Arrived<'_>) {}

    pub(crate) fn progress_sealing(&mut self, _: Instant, _: &mut dyn Host) {}

    pub(crate) fn check_sealing(&mut self, _: Instant) {}

    pub(crate) fn sealing_deadline(&self) -> Option<Instant> {
        None
    }

    pub(crate) fn update_window(&mut self) {}

    pub(crate) fn is_sealed(&self) -> bool {
        false
    }

    pub(crate) fn schedule_control(&mut self, _: Instant) -> bool {
        false
    }

    pub(crate) fn seal_ahead(&mut self, _: &mut [Candidate]) -> bool {
        true
    }

    pub(crate) fn send_sealed(&mut self, _: usize, _: usize) -> bool {
        false
    }

    pub(crate) fn transmit_block(&mut self, _: usize, _: u64) -> bool {
        false
    }

    pub(crate) fn take_sealed_signals(&mut self, _: &Arrived<'_>) {}

    pub(crate) fn read_sealed(&mut self, _: Instant, _: usize) {}
}
