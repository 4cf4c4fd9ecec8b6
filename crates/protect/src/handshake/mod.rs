//! How two hosts come to share a secret, as far as a connection has to know: what the SYNs negotiate, and a [`Handshake`]
//! as bytes in, bytes out and an outcome.
//!
//! Three steps, each a value without I/O:
//!
//! 1. [`offer_eno`], [`judge_offer`], [`judge_answer`]: the SYNs negotiate an encryption protocol ([`Tep`]) beside
//!    MP_CAPABLE version 2, and a [`Policy`] says what happens where that fails. What both SYNs carried becomes the
//!    [`Transcript`].
//! 2. [`Handshake`]: runs over the unmapped bytes that open the first subflow in each direction. It begins with a [`Prologue`] in
//!    each direction, which says in clear what its sender understands. It takes bytes, gives
//!    bytes, and ends at an exact byte: the first mapped byte follows directly. [`Handshakes`] makes them.
//! 3. [`Complete`]: the master secret, which depends on the transcript, and who the peer is.
//!
//! The transcript is in the master secret only. Where somebody on the path has rewritten the negotiation both
//! handshakes succeed and their secrets differ: the first block does not open
//! ([`OpenError::FirstOptionTag`](crate::sealed::OpenError::FirstOptionTag)), before any byte was delivered.

mod capabilities;
mod negotiation;
mod prologue;
mod tep;
mod transcript;

use core::fmt;
use core::net::SocketAddr;

use bytes::Bytes;
use plait_base::Random;

use crate::sealed::{MasterSecret, RefusalReason, SessionTicket, Suite};

pub use capabilities::{Capabilities, Capability};
pub use negotiation::{
    ACK_ENO, Policy, Refusal, Verdict, answer_eno, judge_ack, judge_answer, judge_offer, offer_eno,
};
pub use prologue::{Instance, Introduction, MAX_PROLOGUE, MalformedPrologue, Prologue, PrologueReader};
pub use tep::Tep;
pub use transcript::{BoundTranscript, Transcript};

/// One end of a handshake over the unmapped bytes of the first subflow.
///
/// After it was begun, and after each [`handle_bytes`](Self::handle_bytes), even if that failed: send what
/// [`poll_transmit`](Self::poll_transmit) gives, in order, then ask [`poll_complete`](Self::poll_complete).
pub trait Handshake: Send {
    /// Takes unmapped bytes of the peer, as they come, and says how many of them belong to the handshake: all, unless
    /// it ends among them. Bytes given after its end are an error; they may be the alert by which the peer refuses us.
    ///
    /// # Errors
    /// The handshake has failed for good. Send what there is to transmit (an alert), then end the connection.
    fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, Failed>;

    /// Bytes to be sent next, unmapped.
    fn poll_transmit(&mut self) -> Option<Bytes>;

    /// The outcome, once: as soon as the peer's last byte was taken and our own last byte was handed out. From then on
    /// both directions carry mapped bytes only.
    fn poll_complete(&mut self) -> Option<Complete>;

    /// Takes the ticket that the server has given for a later handshake, after the outcome. One that makes no sense is none: nothing
    /// depends on it.
    fn handle_ticket(&mut self, ticket: &SessionTicket);
}

/// What one side brings along: whom it takes for its peer, and how it begins handshakes.
pub trait Handshakes: Send + Sync + fmt::Debug {
    /// Whether this protocol can prove as much about the peer as is asked for: what proves nobody's identity is neither
    /// offered nor answered where an identity is required.
    fn allows(&self, tep: Tep) -> bool;

    /// Begins a handshake. `introduction` is what this host tells the peer about itself; `random` is the source for secrets;
    /// `unix_time` is seconds since 1970-01-01 UTC, for the dates in certificates.
    ///
    /// # Errors
    /// The settings do not fit together.
    fn begin(
        &self,
        tep: Tep,
        transcript: &Transcript,
        introduction: &Introduction,
        random: &mut dyn Random,
        unix_time: u64,
    ) -> Result<Box<dyn Handshake>, Failed>;

    /// For who analyses connections: what an exchange of shares over one path has agreed on
    /// ([`ShareLog`](crate::sealed::ShareLog)).
    fn log_share(&self, session_id: &[u8; 33], agreed: &[u8]);

    /// Whether data may flow to and from this peer: asked once more when the handshake is over, whatever it has let
    /// through.
    fn admits(&self, peer: &Peer) -> bool;

    /// Whether the opener at `remote` may have a connection, as this peer. A listener asks when OPENING was verified and before the
    /// opening is claimed, and answers a refusal with the reason.
    ///
    /// # Errors
    /// Why it may not.
    fn judge(&self, peer: &Peer, remote: SocketAddr) -> Result<(), RefusalReason> {
        let _ = (peer, remote);
        Ok(())
    }
}

/// Why there is no sealed connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// For people.
    pub why: String,
    /// The peer gave up, and told us.
    pub by_peer: bool,
    /// The two ends have different keys, as the negotiation or a prologue was changed on the way.
    pub is_altered: bool,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl core::error::Error for Failed {}

/// The outcome of a handshake.
#[derive(Debug)]
pub struct Complete {
    /// Everything else is derived from it: [`ConnectionSecrets::derive`](crate::sealed::ConnectionSecrets::derive).
    pub master: MasterSecret,
    /// What was negotiated; its [`byte`](Tep::byte) starts the session id.
    pub tep: Tep,
    /// The AEAD of the blocks.
    pub suite: Suite,
    /// How the secret was agreed on, for the status: `X25519MLKEM768`, `X25519`, `secp256r1`.
    pub key_exchange: &'static str,
    /// Who the peer is.
    pub peer: Peer,
    /// What the peer understands: what it does not list is not sent to it.
    pub capabilities: Capabilities,
    /// For a client: which run of the server this is.
    pub instance: Option<Instance>,
    /// It has continued an earlier session: the peer is who proved to be that then, and nothing was signed.
    pub is_resumed: bool,
    /// For the client, to be said in a sealed block: by this its next handshake can continue this session.
    pub ticket: Option<SessionTicket>,
    /// Handshake bytes we sent: our first mapping starts at relative subflow sequence number 1 + this.
    pub sent: u64,
    /// Handshake bytes the peer sent: its first mapping starts at relative subflow sequence number 1 + this.
    pub received: u64,
}

/// Who the peer is, as far as it was proved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// Nobody in particular: encrypted, not authenticated.
    #[default]
    Anonymous,
    /// The owner of a raw public key.
    Key {
        /// The key as it stands in files of known keys.
        line: String,
        /// What names it: SHA-256 of its SubjectPublicKeyInfo.
        fingerprint: [u8; 32],
        /// The same for people.
        name: String,
        /// Whether it was one that we had asked for.
        is_known: bool,
    },
    /// The owner of a certificate that our roots vouch for.
    Certificate,
}
