//! MP_JOIN with the secrets of a sealed connection: what both hosts said in the SYNs is covered.

use plait_protect::sealed::{JoinHmacs, SubflowTag};

use super::established::Established;
use super::{Sealed, Stage};
use crate::subflows::flow::FlowState;
use crate::subflows::sealed::SealedFlow;

impl Established {
    /// The HMACs of a join that we began.
    pub(super) fn join_by_us(&self, flow: &SealedFlow, own: u32, theirs: u32) -> JoinHmacs {
        self.identity.join(self.role, &flow.transcript(own, theirs))
    }

    /// The HMACs of a join that the peer began.
    pub(super) fn join_by_peer(&self, flow: &SealedFlow, theirs: u32, own: u32) -> JoinHmacs {
        self.identity.join(self.role.peer(), &flow.transcript(theirs, own))
    }

    /// The join has proved both ends, or not. What an earlier subflow did to blocks counts against one on the same way.
    fn name(&self, flow: &mut FlowState, tag: Option<SubflowTag>) {
        flow.sealed.tag = tag;
        if self.is_suspect((flow.path, flow.tuple.remote.ip())) {
            flow.sealed.delivery.suspect();
        }
    }
}

impl Sealed {
    /// A subflow is gone, and its keys with it.
    pub(crate) fn forget(&mut self, flow: &SealedFlow) {
        if let (Stage::Established(established), Some(subflow)) = (&mut self.stage, flow.tag) {
            established.sealer.forget_subflow(subflow);
            established.opener.forget_subflow(subflow);
        }
    }

    /// Whether the SYN/ACK to our join comes from the peer. The subflow then has its name.
    pub(crate) fn is_join_answer(&self, flow: &mut FlowState, nonces: (u32, u32), hmac: &[u8; 8]) -> bool {
        let Stage::Established(established) = &self.stage else { return false };
        let hmacs = established.join_by_us(&flow.sealed, nonces.0, nonces.1);
        let is_right = hmacs.is_syn_ack(hmac);
        established.name(flow, is_right.then(|| hmacs.subflow()));
        is_right
    }

    /// Whether the third segment of the peer's join comes from it. The subflow then has its name.
    pub(crate) fn is_join_ack(&self, flow: &mut FlowState, nonces: (u32, u32), hmac: &[u8; 20]) -> bool {
        let Stage::Established(established) = &self.stage else { return false };
        let hmacs = established.join_by_peer(&flow.sealed, nonces.0, nonces.1);
        let is_right = hmacs.is_ack(hmac);
        established.name(flow, is_right.then(|| hmacs.subflow()));
        is_right
    }
}
