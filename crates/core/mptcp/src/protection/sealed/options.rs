//! The options of our segments on a sealed connection.

use plait_protect::sealed::{AckContext, CHECK_OPTION_LEN, ProtectedOptions, REPORT_OPTION_LEN};
use plait_tcp::SegmentKind;
use plait_wire::{DataAck, Dss, MpJoin, MptcpOption, OptionBytes, pad_options};

use super::established::Established;
use super::negotiation::third_segment;
use super::{Sealed, Stage};
use crate::protection::options::put;
use crate::role::Role;
use crate::subflows::{Kind, Nonces, Stage as SubflowStage, SubflowState};

/// A Data-ACK of 8 bytes and its tag.
const TAGGED_ACK: usize = 24;

impl Sealed {
    /// Writes the options of a segment that neither resets nor carries data; `next` is the data offset to acknowledge.
    pub(in crate::protection) fn write_options(
        &mut self,
        kind: SegmentKind,
        room: usize,
        subflow: &mut SubflowState,
        next: u64,
        out: &mut OptionBytes,
    ) {
        match kind {
            SegmentKind::Syn { attempt: _ } => self.write_syn(subflow, out),
            SegmentKind::SynAck { attempt: _ } => self.write_syn_ack(subflow, out),
            SegmentKind::Ack => self.write_ack(room, subflow, next, out),
            SegmentKind::Reset => {}
        }
    }

    /// Writes the offer of the first SYN.
    pub(in crate::protection) fn write_offer(&self, out: &mut OptionBytes) {
        if let Stage::Offered { eno } = &self.stage {
            put_first(self.capable, eno, out);
        }
    }

    fn write_syn(&mut self, subflow: &mut SubflowState, out: &mut OptionBytes) {
        match subflow.kind() {
            // Leaving the offer out gains nothing, however often the SYN goes unanswered.
            Kind::FirstActive => self.write_offer(out),
            Kind::JoinActive { nonce, peer_nonce: _ } => {
                let Some(established) = self.established() else { return };
                let (backup, address) = (subflow.backup_ours(), subflow.local_address());
                subflow.sealed_mut().initiator_said(backup, 0, address);
                let join = MpJoin::Syn {
                    backup: subflow.backup_ours(),
                    reserved: 0,
                    address_id: subflow.local_address(),
                    token: established.peer_token,
                    nonce,
                };
                put(&MptcpOption::Join(join), usize::MAX, out);
            }
            Kind::FirstPassive | Kind::JoinPassive { nonce: _, peer_nonce: _ } => {}
        }
    }

    fn write_syn_ack(&mut self, subflow: &mut SubflowState, out: &mut OptionBytes) {
        match subflow.kind() {
            Kind::FirstPassive => {
                if let Stage::Answered { eno, agreed: _ } = &self.stage {
                    put_first(self.capable, eno, out);
                }
            }
            Kind::JoinPassive { nonce, peer_nonce } => {
                let Some(established) = self.established() else { return };
                let (backup, address) = (subflow.backup_ours(), subflow.local_address());
                subflow.sealed_mut().responder_said(backup, 0, address);
                let nonces = Nonces { own: nonce, theirs: peer_nonce };
                let Some(hmacs) = established.join_by_peer(subflow.sealed(), nonces) else {
                    return;
                };
                let join = MpJoin::SynAck {
                    backup: subflow.backup_ours(),
                    reserved: 0,
                    address_id: subflow.local_address(),
                    hmac: hmacs.syn_ack(),
                    nonce,
                };
                put(&MptcpOption::Join(join), usize::MAX, out);
            }
            Kind::FirstActive | Kind::JoinActive { nonce: _, peer_nonce: _ } => {}
        }
    }

    fn write_ack(&mut self, room: usize, subflow: &mut SubflowState, next: u64, out: &mut OptionBytes) {
        match &mut self.stage {
            Stage::Agreed(_) | Stage::Handshaking(_) => {
                if self.role == Role::Active && !self.is_heard && room >= 8 {
                    *out = third_segment(self.capable);
                }
            }
            Stage::Established(established) => {
                let is_new = match subflow.stage() {
                    SubflowStage::Opening | SubflowStage::Unconfirmed { .. } => true,
                    SubflowStage::Open | SubflowStage::Leaving | SubflowStage::Over => false,
                };
                if let Some(hmac) = subflow.sealed().proof().filter(|_| is_new) {
                    put(&MptcpOption::Join(MpJoin::Ack { hmac }), room, out);
                } else if !established.write_check(room, subflow, out)
                    && !established.write_report(room, subflow, out)
                {
                    established.write_data_ack(room, subflow, next, out);
                }
            }
            Stage::Offered { .. } | Stage::Answered { .. } | Stage::Failed { .. } => {}
        }
    }
}

/// MP_CAPABLE and TCP-ENO of the SYN or the SYN/ACK of the first subflow.
fn put_first(capable: [u8; 4], eno: &OptionBytes, out: &mut OptionBytes) {
    out.extend(capable);
    out.extend(eno.iter().copied());
    pad_options(out);
}

impl Established {
    /// Writes a question or an answer of [`Life`](crate::subflows::life::Life), if one waits. A Data-ACK does not fit together with it and
    /// follows.
    fn write_check(&mut self, room: usize, subflow: &mut SubflowState, out: &mut OptionBytes) -> bool {
        let (Some(tag), Some(check)) = (subflow.sealed().tag(), subflow.life().next_check()) else {
            return false;
        };
        let fits = room >= CHECK_OPTION_LEN;
        if fits {
            out.extend(self.sealer.tag_check(tag, check).to_option());
            subflow.life_mut().on_said();
        }
        fits
    }

    /// Writes a report about datagrams, if one waits. A Data-ACK follows, as behind a CHECK.
    fn write_report(&mut self, room: usize, subflow: &mut SubflowState, out: &mut OptionBytes) -> bool {
        let (Some(tag), Some(report)) = (subflow.sealed().tag(), subflow.sealed().report()) else {
            return false;
        };
        let fits = room >= REPORT_OPTION_LEN.next_multiple_of(4);
        if fits {
            out.extend(self.sealer.tag_report(tag, &report).to_option());
            pad_options(out);
            subflow.sealed_mut().on_reported();
        }
        fits
    }

    /// Writes a Data-ACK with its tag. There is no room for selective acknowledgments together with it. If TCP has to report missing bytes,
    /// the Data-ACK gives way once it was sent, and every second time in any case. Otherwise other subflows may cause a new Data-ACK with
    /// each segment.
    fn write_data_ack(&mut self, room: usize, subflow: &mut SubflowState, next: u64, out: &mut OptionBytes) {
        let Some(tag) = subflow.sealed().tag() else { return };
        let has_told = subflow.sealed_mut().take_just_told();
        let gives_way = subflow.sealed().has_gaps() && (has_told || subflow.sealed().has_told(next));
        if room < TAGGED_ACK || gives_way {
            return;
        }
        subflow.sealed_mut().on_told(next);
        let dsn = self.numbers.incoming.dsn(next);
        let context =
            AckContext { subflow: tag, data_ack: Some(dsn), data_fin: None, options: ProtectedOptions::NONE };
        let tag = self.sealer.tag_ack(&context).to_option();
        let dss = Dss { data_ack: Some(DataAck::Long(dsn.bits())), mapping: None, data_fin: false };
        if put(&MptcpOption::Dss(dss), room, out) {
            out.extend(tag);
        }
    }
}
