//! MP_JOIN with the secrets of a sealed connection: what both hosts said in the SYNs is covered.

use plait_protect::sealed::{JoinHmacs, SubflowTag};

use super::established::Established;
use super::{Sealed, Stage};
use crate::subflows::sealed::SealedSubflow;
use crate::subflows::subflow::SubflowState;

impl Established {
    /// The HMACs of a join that we began.
    pub(super) fn join_by_us(&self, subflow: &SealedSubflow, own: u32, theirs: u32) -> JoinHmacs {
        self.identity.join(self.role, &subflow.transcript(own, theirs))
    }

    /// The HMACs of a join that the peer began.
    pub(crate) fn join_by_peer(&self, subflow: &SealedSubflow, theirs: u32, own: u32) -> JoinHmacs {
        self.identity.join(self.role.peer(), &subflow.transcript(theirs, own))
    }

    /// The join has proved both ends, or not. What an earlier subflow did to blocks counts against one on the same way.
    fn name(&self, subflow: &mut SubflowState, tag: Option<SubflowTag>) {
        subflow.sealed.tag = tag;
        if self.is_suspect((subflow.path, subflow.tuple.remote.ip())) {
            subflow.sealed.delivery.suspect();
        }
    }
}

impl Sealed {
    /// A subflow is gone, and its keys with it.
    pub(crate) fn forget(&mut self, subflow: &SealedSubflow) {
        if let (Stage::Established(established), Some(tag)) = (&mut self.stage, subflow.tag) {
            established.forget_offers(subflow);
            established.sealer.forget_subflow(tag);
            established.opener.forget_subflow(tag);
        }
    }

    /// Whether the SYN/ACK to our join comes from the peer. The subflow then has its name.
    pub(crate) fn is_join_answer(
        &self,
        subflow: &mut SubflowState,
        nonces: (u32, u32),
        hmac: &[u8; 8],
    ) -> bool {
        let Stage::Established(established) = &self.stage else { return false };
        let hmacs = established.join_by_us(&subflow.sealed, nonces.0, nonces.1);
        let is_right = hmacs.is_syn_ack(hmac);
        established.name(subflow, is_right.then(|| hmacs.subflow()));
        is_right
    }

    /// Whether the third segment of the peer's join comes from it. The subflow then has its name.
    pub(crate) fn is_join_ack(
        &self,
        subflow: &mut SubflowState,
        nonces: (u32, u32),
        hmac: &[u8; 20],
    ) -> bool {
        let Stage::Established(established) = &self.stage else { return false };
        let hmacs = established.join_by_peer(&subflow.sealed, nonces.0, nonces.1);
        let is_right = hmacs.is_ack(hmac);
        established.name(subflow, is_right.then(|| hmacs.subflow()));
        is_right
    }
}
