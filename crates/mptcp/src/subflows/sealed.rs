//! What a sealed connection knows about one subflow.

use bytes::Bytes;
use plait_protect::sealed::{GoneReason, JoinTranscript, PathNumber, Seen, SubflowTag};

use super::delivery::Delivery;
use super::inbox::Inbox;

/// Beside what every connection knows about a subflow.
#[derive(Default)]
pub(crate) struct SealedSubflow {
    /// Its name in the keys; `None` until its handshake has proved both ends.
    pub(crate) tag: Option<SubflowTag>,
    /// HMAC_A of a join that we began: what the third segment proves us with, however often it is said.
    pub(crate) proof: Option<[u8; 20]>,
    /// The opener's number for its path, once an exchange has told.
    pub(crate) path_number: Option<PathNumber>,
    /// The peer has said that it has no such subflow.
    pub(crate) is_gone: bool,
    /// What the peer is told when it ends, where TCP would not say it.
    pub(crate) gone_reason: Option<GoneReason>,
    pub(crate) inbox: Inbox,
    /// Blocks that came whole, whatever they were worth.
    pub(crate) blocks_whole: u64,
    /// What has become of the blocks that it was given.
    pub(crate) delivery: Delivery,
    /// What the SYN of a join said: low four bits of its third byte, and the address id.
    initiator: (u8, u8),
    /// The same of the SYN/ACK.
    responder: (u8, u8),
    /// What goes along in the first segment of a join, beside the stream of the subflow.
    pub(crate) syn_data: SynData,
    /// Blocks that failed verification, runs of bytes without a mapping included.
    pub(crate) failures: u64,
    /// Option tags of segments without a block that were wrong.
    pub(crate) tags_failed: u64,
    /// The number of the next exchange of shares over it.
    pub(crate) next_exchange: u32,
    /// We are to speak first in one.
    pub(crate) owes_offer: bool,
    /// A message of one, which came whole.
    pub(crate) path_key: Option<Bytes>,
    /// Where our last message of one ends in the stream of the subflow.
    pub(crate) message_end: u64,
    /// Data offset that was acknowledged here last.
    pub(crate) told: u64,
    /// The last segment without payload said so.
    pub(crate) has_just_told: bool,
    /// Blocks wait in the inbox because enough are being opened.
    pub(crate) is_paused: bool,
    /// How it looks to the peer, as it has said last, and how often it has.
    pub(crate) seen: Option<Seen>,
    pub(crate) times_seen: u64,
    /// TCP has to report missing bytes, which needs the room of a tag.
    pub(crate) has_gaps: bool,
}

/// Blocks in the SYN of a join, or in the SYN/ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SynData {
    /// None are to go along.
    #[default]
    None,
    /// As many as fit are to go along with the SYN.
    Due,
    /// They went with the first SYN; those that repeat it go without.
    Sent,
    /// Blocks came with a SYN and were the peer's: the SYN/ACK may be as long as that was, header and payload of TCP together.
    Answerable { length: usize },
}

impl SealedSubflow {
    /// The name of a join in its SYN, which has said what it has to say.
    pub(crate) fn syn_name(&self, initiator_nonce: u32) -> SubflowTag {
        SubflowTag::of_syn(initiator_nonce, self.initiator.0, self.initiator.1)
    }

    /// Blocks that failed verification.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Option tags of segments without a block that were wrong.
    pub(crate) fn tags_failed(&self) -> u64 {
        self.tags_failed
    }

    /// Bytes that wait for their mapping, or for the rest of their block.
    pub(crate) fn waiting_bytes(&self) -> u32 {
        self.inbox.waiting_bytes()
    }

    /// Bytes that TCP has acknowledged and that wait to be opened: TCP's window is smaller by as much.
    pub(crate) fn backlog(&self) -> u32 {
        if self.is_paused { self.inbox.waiting_bytes() } else { 0 }
    }

    /// Whether as many mappings are kept as may be.
    pub(crate) fn has_full_inbox(&self) -> bool {
        self.inbox.is_full()
    }

    /// What the SYN of the join said.
    pub(crate) fn initiator_said(&mut self, backup: bool, reserved: u8, address_id: u8) {
        self.initiator = (flag_bits(backup, reserved), address_id);
    }

    /// What the SYN/ACK of the join said.
    pub(crate) fn responder_said(&mut self, backup: bool, reserved: u8, address_id: u8) {
        self.responder = (flag_bits(backup, reserved), address_id);
    }

    /// Whether TCP waits for bytes before those it has.
    pub(crate) fn note_gaps(&mut self, has_gaps: bool) {
        self.has_gaps = has_gaps;
    }

    pub(crate) fn transcript(&self, initiator_nonce: u32, responder_nonce: u32) -> JoinTranscript {
        JoinTranscript {
            initiator_nonce,
            responder_nonce,
            initiator_flags: self.initiator.0,
            responder_flags: self.responder.0,
            initiator_address: self.initiator.1,
            responder_address: self.responder.1,
        }
    }
}

/// Low four bits of the third byte of MP_JOIN.
pub(crate) const fn flag_bits(backup: bool, reserved: u8) -> u8 {
    reserved << 1 | backup as u8
}
