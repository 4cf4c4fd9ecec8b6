//! State of one subflow that only a sealed connection has.

use bytes::Bytes;
use plait_protect::sealed::{GoneReason, JoinTranscript, PathNumber, Report, Seen, SubflowTag};

use super::delivery::Delivery;
use super::inbox::Inbox;
use super::stage::Nonces;

/// Additional state of a subflow on a sealed connection.
#[derive(Default)]
pub(crate) struct SealedSubflow {
    /// Its name in the keys; `None` until its handshake has authenticated both ends.
    tag: Option<SubflowTag>,
    /// HMAC_A of a join that we began: our proof in the third segment and its repetitions.
    proof: Option<[u8; 20]>,
    /// The opener's number for its path, once an exchange has transmitted it.
    path_number: Option<PathNumber>,
    /// Whether the peer has reported that it has no such subflow.
    is_gone: bool,
    /// The reason that the peer gets when it ends, if TCP would not report it.
    gone_reason: Option<GoneReason>,
    inbox: Inbox,
    /// Number of complete blocks, valid or not.
    blocks_whole: u64,
    /// Results of the blocks that it was given.
    delivery: Delivery,
    /// Content of the SYN of a join: the low four bits of its third byte, and the address id.
    initiator: (u8, u8),
    /// The same of the SYN/ACK.
    responder: (u8, u8),
    /// The state of blocks in the first segment of a join, outside the stream of the subflow.
    syn_data: SynData,
    /// Blocks that failed verification, including runs of unmapped bytes.
    failures: u64,
    /// Option tags of segments without a block that were wrong.
    tags_failed: u64,
    /// The number of the next exchange of shares over it.
    next_exchange: u32,
    /// Whether we must send the first message of an exchange.
    owes_offer: bool,
    /// A complete message of an exchange.
    path_key: Option<Bytes>,
    /// The end of our last message of an exchange in the stream of the subflow.
    message_end: u64,
    /// Data offset that was last acknowledged here.
    told: u64,
    /// Whether the last segment without payload carried that acknowledgment.
    has_just_told: bool,
    /// Whether blocks wait in the inbox because enough are being opened.
    is_paused: bool,
    /// Its state at the peer by the last answer, and the number of answers.
    seen: Option<Seen>,
    times_seen: u64,
    /// Whether TCP has to report missing bytes, which needs the room of a tag.
    has_gaps: bool,
    /// A report about datagrams that waits for a segment.
    report: Option<Report>,
    /// Whether the last segment carried a report.
    has_just_reported: bool,
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

    /// Returns the transcript of a join that we began.
    pub(crate) fn transcript_of_ours(&self, nonces: Nonces) -> JoinTranscript {
        JoinTranscript { initiator_nonce: nonces.own, responder_nonce: nonces.theirs, ..self.said() }
    }

    /// Returns the transcript of a join that the peer began.
    pub(crate) fn transcript_of_theirs(&self, nonces: Nonces) -> JoinTranscript {
        JoinTranscript { initiator_nonce: nonces.theirs, responder_nonce: nonces.own, ..self.said() }
    }

    /// Returns the content of both SYNs without the nonces.
    fn said(&self) -> JoinTranscript {
        JoinTranscript {
            initiator_nonce: 0,
            responder_nonce: 0,
            initiator_flags: self.initiator.0,
            responder_flags: self.responder.0,
            initiator_address: self.initiator.1,
            responder_address: self.responder.1,
        }
    }

    /// Returns its name in the keys; `None` until its handshake has authenticated both ends.
    pub(crate) fn tag(&self) -> Option<SubflowTag> {
        self.tag
    }

    /// Sets its name in the keys after the handshake, if that was right.
    pub(crate) fn on_named(&mut self, tag: Option<SubflowTag>) {
        self.tag = tag;
    }

    /// Returns our proof in the third segment of a join that we began.
    pub(crate) fn proof(&self) -> Option<[u8; 20]> {
        self.proof
    }

    /// Stores our proof, if the answer to our join was right.
    pub(crate) fn on_proof(&mut self, proof: Option<[u8; 20]>) {
        self.proof = proof;
    }

    /// Returns the opener's number for its path, once an exchange has transmitted it.
    pub(crate) fn path_number(&self) -> Option<PathNumber> {
        self.path_number
    }

    /// Stores the number that an exchange has transmitted.
    pub(crate) fn on_path_number(&mut self, number: PathNumber) {
        self.path_number = Some(number);
    }

    /// Whether the peer has reported that it has no such subflow.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Notes that the peer has reported so.
    pub(crate) fn on_gone(&mut self) {
        self.is_gone = true;
    }

    /// Returns the reason that the peer gets when it ends, if TCP would not report it.
    pub(crate) fn gone_reason(&self) -> Option<GoneReason> {
        self.gone_reason
    }

    /// Notes the reason for which we drop it.
    pub(crate) fn on_dropped(&mut self, reason: GoneReason) {
        self.gone_reason = Some(reason);
    }

    /// Returns its bytes that no block has taken yet.
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    pub(crate) fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Returns the number of complete blocks, valid or not.
    pub(crate) fn blocks_whole(&self) -> u64 {
        self.blocks_whole
    }

    /// Counts a complete block.
    pub(crate) fn on_whole_block(&mut self) {
        self.blocks_whole += 1;
    }

    /// Returns the results of the blocks that it was given.
    pub(crate) fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    pub(crate) fn delivery_mut(&mut self) -> &mut Delivery {
        &mut self.delivery
    }

    /// Returns the state of blocks in the first segment of a join.
    pub(crate) fn syn_data(&self) -> SynData {
        self.syn_data
    }

    /// Takes the state of blocks in the first segment of a join, and leaves none.
    pub(crate) fn take_syn_data(&mut self) -> SynData {
        core::mem::take(&mut self.syn_data)
    }

    /// Sets the state of blocks in the first segment of a join.
    pub(crate) fn set_syn_data(&mut self, syn_data: SynData) {
        self.syn_data = syn_data;
    }

    /// Returns the number of blocks that failed verification.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Counts bytes that failed verification, and returns the new number.
    pub(crate) fn on_failure(&mut self) -> u64 {
        self.failures += 1;
        self.failures
    }

    /// Returns the number of wrong option tags of segments without a block.
    pub(crate) fn tags_failed(&self) -> u64 {
        self.tags_failed
    }

    /// Counts a wrong option tag, and returns the new number.
    pub(crate) fn on_wrong_tag(&mut self) -> u64 {
        self.tags_failed += 1;
        self.tags_failed
    }

    /// Returns the number of the next exchange of shares over it.
    pub(crate) fn next_exchange(&self) -> u32 {
        self.next_exchange
    }

    /// Notes an exchange that uses all numbers below `next`.
    pub(crate) fn on_exchange(&mut self, next: u32) {
        self.next_exchange = next;
    }

    /// Whether we must send the first message of an exchange.
    pub(crate) fn owes_offer(&self) -> bool {
        self.owes_offer
    }

    /// Notes that we must send that message.
    pub(crate) fn owe_offer(&mut self) {
        self.owes_offer = true;
    }

    /// Notes that we have sent that message, or need not.
    pub(crate) fn on_offered(&mut self) {
        self.owes_offer = false;
    }

    /// Stores a complete message of an exchange. Returns `false` if the last one still waits.
    pub(crate) fn on_path_key(&mut self, message: Bytes) -> bool {
        self.path_key.replace(message).is_none()
    }

    /// Whether a complete message of an exchange waits.
    pub(crate) fn has_path_key(&self) -> bool {
        self.path_key.is_some()
    }

    /// Takes the message of an exchange that waits.
    pub(crate) fn take_path_key(&mut self) -> Option<Bytes> {
        self.path_key.take()
    }

    /// Returns the end of our last message of an exchange in the stream of the subflow.
    pub(crate) fn message_end(&self) -> u64 {
        self.message_end
    }

    /// Notes that we have sent a message of an exchange that ends there.
    pub(crate) fn on_message_sent(&mut self, end: u64) {
        self.message_end = end;
    }

    /// Whether this data offset was acknowledged here last.
    pub(crate) fn has_told(&self, next: u64) -> bool {
        self.told == next
    }

    /// Notes that a segment without payload acknowledges this data offset.
    pub(crate) fn on_told(&mut self, next: u64) {
        (self.told, self.has_just_told) = (next, true);
    }

    /// Takes whether the last segment without payload carried an acknowledgment.
    pub(crate) fn take_just_told(&mut self) -> bool {
        core::mem::take(&mut self.has_just_told)
    }

    /// Makes the next segment without payload acknowledge again.
    pub(crate) fn forget_told(&mut self) {
        self.told = 0;
    }

    /// Whether blocks wait in the inbox because enough are being opened.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Leaves blocks in the inbox.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Lets blocks leave the inbox again.
    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Whether TCP has to report missing bytes, which needs the room of a tag.
    pub(crate) fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// Stores a report about datagrams for the next segment without payload, in the place of an older one.
    pub(crate) fn owe_report(&mut self, report: Report) {
        self.report = Some(report);
    }

    /// Returns the report that waits.
    pub(crate) fn report(&self) -> Option<Report> {
        self.report
    }

    /// Notes that it was written.
    pub(crate) fn on_reported(&mut self) {
        (self.report, self.has_just_reported) = (None, true);
    }

    /// Takes whether an ACK must follow the segment that just left: one with the report that it had no room for, or with the Data-ACK that
    /// a report has left out. `next` is what is to be acknowledged.
    pub(crate) fn owes_after_report(&mut self, has_payload: bool, next: u64) -> bool {
        let has_just_reported = core::mem::take(&mut self.has_just_reported);
        has_just_reported && !self.has_told(next) || has_payload && self.report.is_some()
    }

    /// Returns its state at the peer by the last answer.
    pub(crate) fn seen(&self) -> Option<Seen> {
        self.seen
    }

    /// Returns the number of answers.
    pub(crate) fn times_seen(&self) -> u64 {
        self.times_seen
    }

    /// Stores an answer of the peer.
    pub(crate) fn on_seen(&mut self, seen: Seen) {
        self.seen = Some(seen);
        self.times_seen += 1;
    }
}

/// Low four bits of the third byte of MP_JOIN.
pub(crate) const fn flag_bits(backup: bool, reserved: u8) -> u8 {
    reserved << 1 | backup as u8
}
