//! The interface of handshakes for a connection: the negotiation in the SYNs, and a [`Handshake`] with bytes as input and output, and an
//! outcome.
//!
//! Three steps, each a value without I/O:
//!
//! 1. [`offer_eno`], [`judge_offer`], [`judge_answer`]: the SYNs negotiate an encryption protocol ([`Tep`]) together with MP_CAPABLE
//!    version 2. A [`Policy`] decides what happens if that fails. The content of both SYNs becomes the [`Transcript`].
//! 2. [`Handshake`]: runs over the unmapped bytes that open the first subflow in each direction. It begins with a [`Prologue`] in each
//!    direction, which lists the sender's capabilities in clear. It takes and returns bytes, and ends at an exact byte: the first mapped
//!    byte follows directly. [`Handshakes`] makes them.
//! 3. [`Complete`]: the master secret, which depends on the transcript, and the identity of the peer.
//!
//! The transcript is only in the master secret. If an attacker on the path has rewritten the negotiation, both handshakes succeed and their
//! secrets differ. The first block then does not open ([`OpenError::FirstOptionTag`](crate::sealed::OpenError::FirstOptionTag)), so no byte
//! is delivered.

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
/// After its start, and after each [`handle_bytes`](Self::handle_bytes), even a failed one: send the output of
/// [`poll_transmit`](Self::poll_transmit) in order, then call [`poll_complete`](Self::poll_complete).
pub trait Handshake: Send {
    /// Takes unmapped bytes of the peer in any pieces. Returns how many of them belong to the handshake: all, unless it ends among them.
    /// Bytes given after its end are an error. They may be the alert by which the peer refuses us.
    ///
    /// # Errors
    /// The handshake has failed permanently. Send the remaining output (an alert), then end the connection.
    fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, Failed>;

    /// Returns the bytes to send next, unmapped.
    fn poll_transmit(&mut self) -> Option<Bytes>;

    /// Returns the outcome, once: after the peer's last byte was taken and our own last byte was handed out. From then on both directions
    /// carry mapped bytes only.
    fn poll_complete(&mut self) -> Option<Complete>;

    /// Takes the server's ticket for a later handshake, after the outcome. An invalid ticket is ignored: nothing depends on it.
    fn handle_ticket(&mut self, ticket: &SessionTicket);
}

/// The settings of one side: the accepted peers, and the start of handshakes.
pub trait Handshakes: Send + Sync + fmt::Debug {
    /// Whether this protocol can authenticate the peer as the settings require. An anonymous protocol is neither offered nor answered if an
    /// identity is required.
    fn allows(&self, tep: Tep) -> bool;

    /// Begins a handshake. `introduction` is this host's introduction for the peer; `random` is the source for secrets; `unix_time` is in
    /// seconds since 1970-01-01 UTC, for the dates in certificates.
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

    /// Logs the result of an exchange of shares over one path, for the analysis of connections ([`ShareLog`](crate::sealed::ShareLog)).
    fn log_share(&self, session_id: &[u8; 33], agreed: &[u8]);

    /// Whether data may flow to and from this peer. Checked again after the handshake, independently of its result.
    fn admits(&self, peer: &Peer) -> bool;

    /// Whether the opener at `remote` may have a connection, as this peer. A listener calls it after OPENING was verified and before the
    /// opening is claimed. The listener answers a refusal with the reason.
    ///
    /// # Errors
    /// The reason of the refusal.
    fn judge(&self, peer: &Peer, remote: SocketAddr) -> Result<(), RefusalReason> {
        let _ = (peer, remote);
        Ok(())
    }
}

/// The reason for which there is no sealed connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The reason for display.
    pub why: String,
    /// Whether the peer gave up and sent the reason.
    pub by_peer: bool,
    /// Whether the two ends have different keys, because the negotiation or a prologue was changed on the path.
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
    /// All keys are derived from it: [`ConnectionSecrets::derive`](crate::sealed::ConnectionSecrets::derive).
    pub master: MasterSecret,
    /// The negotiated TEP. Its [`byte`](Tep::byte) starts the session id.
    pub tep: Tep,
    /// The AEAD of the blocks.
    pub suite: Suite,
    /// The key exchange, for the status: `X25519MLKEM768`, `X25519`, `secp256r1`.
    pub key_exchange: &'static str,
    /// The identity of the peer.
    pub peer: Peer,
    /// The capabilities of the peer. A feature that it does not list is not used.
    pub capabilities: Capabilities,
    /// For a client: the instance of the server.
    pub instance: Option<Instance>,
    /// Whether it has resumed an earlier session: the peer has the identity that was authenticated then, and nothing was signed.
    pub is_resumed: bool,
    /// The ticket for the client, to be sent in a sealed block: with it the client's next handshake can resume this session.
    pub ticket: Option<SessionTicket>,
    /// Handshake bytes we sent: our first mapping starts at relative subflow sequence number 1 + this.
    pub sent: u64,
    /// Handshake bytes the peer sent: its first mapping starts at relative subflow sequence number 1 + this.
    pub received: u64,
}

/// The authenticated identity of the peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// None: encrypted, not authenticated.
    #[default]
    Anonymous,
    /// The owner of a raw public key.
    Key {
        /// The key in the format of files of known keys.
        line: String,
        /// Its fingerprint: SHA-256 of its SubjectPublicKeyInfo.
        fingerprint: [u8; 32],
        /// The fingerprint for display.
        name: String,
        /// Whether it is a key that the configuration lists.
        is_known: bool,
    },
    /// The owner of a certificate that our root certificates verify.
    Certificate,
}
