//! Identity of a sealed connection outside its blocks: tokens, initial data sequence numbers, and the proof of a join.

use core::fmt;

use aws_lc_rs::hmac;
use plait_base::Dsn;
use subtle::ConstantTimeEq;

use super::option_tag::SubflowTag;
use super::schedule::{PerRole, Role};
use super::secret::{ExporterSecret, JoinSecret, ResumeSecret};
use super::signals::JoinKeys;

/// The values that both ends know of a connection.
pub struct ConnectionIdentity {
    pub(super) tokens: PerRole<u32>,
    pub(super) idsns: PerRole<Dsn>,
    pub(super) session_id: [u8; 33],
    pub(super) exporter: ExporterSecret,
    pub(super) resume: ResumeSecret,
}

impl ConnectionIdentity {
    /// Returns the token by which `role` knows the connection. An MP_JOIN sent to it carries this token.
    pub fn token(&self, role: Role) -> u32 {
        *self.tokens.of(role)
    }

    /// Returns the initial data sequence number of the stream that `role` sends.
    pub fn idsn(&self, role: Role) -> Dsn {
        *self.idsns.of(role)
    }

    /// The TEP byte and 32 bytes that no other connection has (RFC 8547, section 5.1).
    pub fn session_id(&self) -> &[u8; 33] {
        &self.session_id
    }

    /// For keys of the application.
    pub fn exporter(&self) -> &ExporterSecret {
        &self.exporter
    }

    /// For a later connection between the same hosts.
    pub fn resume(&self) -> &ResumeSecret {
        &self.resume
    }

    /// The HMACs of a join that the host in role `initiator` began, with the keys of one generation.
    ///
    /// The wire format writes them for a join by A; where B begins one, the secrets stay with their hosts and the
    /// labels and the order of the body go with the parts of the join: "JA" is always the host that sent the SYN.
    pub fn join(&self, keys: JoinKeys<'_>, initiator: Role, transcript: &JoinTranscript) -> JoinHmacs {
        let responder = initiator.peer();
        let body = transcript.body(self.token(responder));
        let ack = tag(keys.of(initiator), b"JA", &body);
        let syn_ack = tag(keys.of(responder), b"JB", &body);
        JoinHmacs { ack: first(&ack), syn_ack: first(&syn_ack) }
    }
}

impl fmt::Debug for ConnectionIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionIdentity").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// What both hosts have seen of a join, own values as sent and the other's as received. A middlebox that changes
/// one of them makes the HMACs differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinTranscript {
    /// R_A, of the host that sent the SYN.
    pub initiator_nonce: u32,
    /// R_B.
    pub responder_nonce: u32,
    /// Low four bits of the SYN's third option byte: reserved bits and B.
    pub initiator_flags: u8,
    /// The same of the SYN/ACK.
    pub responder_flags: u8,
    /// Address id in the SYN.
    pub initiator_address: u8,
    /// Address id in the SYN/ACK.
    pub responder_address: u8,
}

impl JoinTranscript {
    /// R_A || R_B || flags_A || id_A || flags_B || id_B || token_B.
    fn body(&self, token: u32) -> [u8; 16] {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&self.initiator_nonce.to_be_bytes());
        body[4..8].copy_from_slice(&self.responder_nonce.to_be_bytes());
        body[8] = self.initiator_flags & 0x0f;
        body[9] = self.initiator_address;
        body[10] = self.responder_flags & 0x0f;
        body[11] = self.responder_address;
        body[12..].copy_from_slice(&token.to_be_bytes());
        body
    }
}

/// The two HMACs of a join, as they go over the wire. Compare received ones with [`JoinHmacs::is_syn_ack`] and
/// [`JoinHmacs::is_ack`].
#[derive(Clone, Copy)]
pub struct JoinHmacs {
    ack: [u8; 20],
    syn_ack: [u8; 8],
}

impl JoinHmacs {
    /// HMAC_B, leftmost 64 bits: in the SYN/ACK.
    pub fn syn_ack(&self) -> [u8; 8] {
        self.syn_ack
    }

    /// HMAC_A, leftmost 160 bits: in the ACK.
    pub fn ack(&self) -> [u8; 20] {
        self.ack
    }

    /// Whether the SYN/ACK came with the right HMAC. In constant time.
    pub fn is_syn_ack(&self, received: &[u8; 8]) -> bool {
        self.syn_ack.ct_eq(received).into()
    }

    /// Whether the ACK came with the right HMAC. In constant time.
    pub fn is_ack(&self, received: &[u8; 20]) -> bool {
        self.ack.ct_eq(received).into()
    }

    /// The name of the subflow in its keys: first 31 bits of HMAC_A, then of HMAC_B.
    pub fn subflow(&self) -> SubflowTag {
        let [a0, a1, a2, a3, ..] = self.ack;
        let [b0, b1, b2, b3, ..] = self.syn_ack;
        let first31 = |bytes: [u8; 4]| u64::from(u32::from_be_bytes(bytes) >> 1);
        SubflowTag(first31([a0, a1, a2, a3]) << 31 | first31([b0, b1, b2, b3]))
    }
}

impl fmt::Debug for JoinHmacs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHmacs(..)")
    }
}

fn tag(secret: &JoinSecret, label: &[u8; 2], body: &[u8; 16]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.expose()));
    context.update(label);
    context.update(body);
    context.sign()
}

fn first<const N: usize>(tag: &hmac::Tag) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&tag.as_ref()[..N]);
    out
}
