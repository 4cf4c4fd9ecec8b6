//! State of one subflow that only a sealed connection has.

use bytes::Bytes;
use plait_protect::sealed::{GoneReason, JoinTranscript, PathNumber, Seen, SubflowTag};

use super::delivery::Delivery;
use super::inbox::Inbox;

/// Additional state of a subflow on a sealed connection.
#[derive(Default)]
pub(crate) struct SealedSubflow {
    /// Its name in the keys; `None` until its handshake has authenticated both ends.
    pub(crate) tag: Option<SubflowTag>,
    /// HMAC_A of a join that we began: our proof in the third segment and its repetitions.
    pub(crate) proof: Option<[u8; 20]>,
    /// The opener's number for its path, once an exchange has transmitted it.
    pub(crate) path_number: Option<PathNumber>,
    /// Whether the peer has reported that it has no such subflow.
    pub(crate) is_gone: bool,
    /// The reason that the peer gets when it ends, if TCP would not report it.
    pub(crate) gone_reason: Option<GoneReason>,
    pub(crate) inbox: Inbox,
    /// Number of complete blocks, valid or not.
    pub(crate) blocks_whole: u64,
    /// Results of the blocks that it was given.
    pub(crate) delivery: Delivery,
    /// Content of the SYN of a join: the low four bits of its third byte, and the address id.
    initiator: (u8, u8),
    /// The same of the SYN/ACK.
    responder: (u8, u8),
    /// The state of blocks in the first segment of a join, outside the stream of the subflow.
    pub(crate) syn_data: SynData,
    /// Blocks that failed verification, including runs of unmapped bytes.
    pub(crate) failures: u64,
    /// Option tags of segments without a block that were wrong.
    pub(crate) tags_failed: u64,
    /// The number of the next exchange of shares over it.
    pub(crate) next_exchange: u32,
    /// Whether we must send the first message of an exchange.
    pub(crate) owes_offer: bool,
    /// A complete message of an exchange.
    pub(crate) path_key: Option<Bytes>,
    /// The end of our last message of an exchange in the stream of the subflow.
    pub(crate) message_end: u64,
    /// Data offset that was last acknowledged here.
    pub(crate) told: u64,
    /// Whether the last segment without payload carried that acknowledgment.
    pub(crate) has_just_told: bool,
    /// Whether blocks wait in the inbox because enough are being opened.
    pub(crate) is_paused: bool,
    /// Its state at the peer by the last answer, and the number of answers.
    pub(crate) seen: Option<Seen>,
    pub(crate) times_seen: u64,
    /// Whether TCP has to report missing bytes, which needs the room of a tag.
    pub(crate) has_gaps: bool,
}

/// Blocks in the SYN of a join, or in the SYN/ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SynData {
    /// None are sent along.
    #[default]
    None,
    /// As many as fit must be sent with the SYN.
    Due,
    /// They were sent with the first SYN. Its repetitions carry none.
    Sent,
    /// Valid blocks of the peer came with a SYN. The SYN/ACK may be as long as that SYN, TCP header and payload together.
    Answerable { length: usize },
}

impl SealedSubflow {
    /// Returns the name of a join in its SYN.
    pub(crate) fn syn_name(&self, initiator_nonce: u32) -> SubflowTag {
        SubflowTag::of_syn(initiator_nonce, self.initiator.0, self.initiator.1)
    }

    /// Returns the number of blocks that failed verification.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the number of wrong option tags of segments without a block.
    pub(crate) fn tags_failed(&self) -> u64 {
        self.tags_failed
    }

    /// Returns the number of bytes that wait for their mapping, or for the rest of their block.
    pub(crate) fn waiting_bytes(&self) -> u32 {
        self.inbox.waiting_bytes()
    }

    /// Returns the number of bytes that TCP has acknowledged and that wait to be opened. TCP's window is smaller by this number.
    pub(crate) fn backlog(&self) -> u32 {
        if self.is_paused { self.inbox.waiting_bytes() } else { 0 }
    }

    /// Whether the list of mappings is full.
    pub(crate) fn has_full_inbox(&self) -> bool {
        self.inbox.is_full()
    }

    /// Stores the content of the SYN of the join.
    pub(crate) fn initiator_said(&mut self, backup: bool, reserved: u8, address_id: u8) {
        self.initiator = (flag_bits(backup, reserved), address_id);
    }

    /// Stores the content of the SYN/ACK of the join.
    pub(crate) fn responder_said(&mut self, backup: bool, reserved: u8, address_id: u8) {
        self.responder = (flag_bits(backup, reserved), address_id);
    }

    /// Notes whether TCP waits for earlier bytes.
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
