//! MP_JOIN with the secrets of a sealed connection: it authenticates the content of both SYNs.

use plait_protect::sealed::{JoinHmacs, JoinKeys, SubflowTag};

use super::established::Established;
use super::{Sealed, Stage};
use crate::subflows::sealed::SealedSubflow;
use crate::subflows::{Nonces, SubflowState};

impl Established {
    /// Returns the keys for the proof of our join, of a generation that the peer has.
    fn join_keys(&self) -> Option<JoinKeys<'_>> {
        self.sealer.join_keys().or_else(|| self.opener.join_keys())
    }

    /// Returns the keys with which the peer may have proved its join: joins follow the generations of the opener's direction.
    fn joins(&self) -> impl Iterator<Item = JoinKeys<'_>> {
        self.sealer.joins().chain(self.opener.joins())
    }

    /// The HMACs of a join that the peer began.
    pub(crate) fn join_by_peer(&self, subflow: &SealedSubflow, nonces: Nonces) -> Option<JoinHmacs> {
        Some(self.identity.join(self.join_keys()?, self.role.peer(), &subflow.transcript_of_theirs(nonces)))
    }

    /// Sets the name of a subflow after its join. Damage to blocks on an earlier subflow counts against one over the same way.
    fn name(&self, subflow: &mut SubflowState, tag: Option<SubflowTag>) {
        subflow.sealed_mut().on_named(tag);
        if self.is_suspect(subflow.way()) {
            subflow.sealed_mut().delivery_mut().suspect();
        }
    }
}

impl Sealed {
    /// Drops the keys of a subflow that is gone.
    pub(crate) fn forget(&mut self, subflow: &SealedSubflow) {
        if let (Stage::Established(established), Some(tag)) = (&mut self.stage, subflow.tag()) {
            established.forget_offers(subflow);
            established.sealer.forget_subflow(tag);
            established.opener.forget_subflow(tag);
            established.names.on_closed(tag);
        }
    }

    /// Whether the SYN/ACK to our join comes from the peer. If so, the subflow gets its name and our proof.
    pub(crate) fn is_join_answer(&self, subflow: &mut SubflowState, nonces: Nonces, hmac: &[u8; 8]) -> bool {
        let Stage::Established(established) = &self.stage else { return false };
        let transcript = subflow.sealed().transcript_of_ours(nonces);
        let join = |keys| established.identity.join(keys, established.role, &transcript);
        let right = established.joins().map(join).find(|hmacs| hmacs.is_syn_ack(hmac));
        subflow.sealed_mut().on_proof(right.map(|hmacs| hmacs.ack()));
        established.name(subflow, right.map(|hmacs| hmacs.subflow()));
        right.is_some()
    }

    /// Whether the third segment of the peer's join comes from it, and the peer has not given the join up since. If so, the subflow gets
    /// its name.
    pub(crate) fn is_join_ack(&self, subflow: &mut SubflowState, nonces: Nonces, hmac: &[u8; 20]) -> bool {
        let Stage::Established(established) = &self.stage else { return false };
        let transcript = subflow.sealed().transcript_of_theirs(nonces);
        let join = |keys| established.identity.join(keys, established.role.peer(), &transcript);
        let right = established.joins().map(join).find(|hmacs| hmacs.is_ack(hmac));
        let name = right.map(|hmacs| hmacs.subflow()).filter(|name| !established.names.is_gone(*name));
        established.name(subflow, name);
        name.is_some()
    }
}
