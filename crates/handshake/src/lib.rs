//! How two hosts come to share secrets: TLS 1.3 and tcpcrypt.
//!
//! Three steps, each a value without I/O:
//!
//! 1. [`offer_eno`], [`judge_offer`], [`judge_answer`]: the SYNs negotiate an encryption protocol ([`Tep`]) beside
//!    MP_CAPABLE version 2, and a [`Policy`] says what happens where that fails. What both SYNs carried becomes the
//!    [`Transcript`].
//! 2. [`Handshake`]: runs over the unmapped bytes that open the first subflow in each direction. It takes bytes, gives
//!    bytes, and ends at an exact byte: the first mapped byte follows directly.
//! 3. [`Complete`]: the master secret, which depends on the transcript, and who the peer is.
//!
//! The transcript is in the master secret only. Where somebody on the path has rewritten the negotiation both
//! handshakes succeed and their secrets differ: the first block does not open
//! ([`OpenError::FirstOptionTag`](protect::sealed::OpenError::FirstOptionTag)), before any byte was delivered.
//!
//! Randomness is an argument, with one exception: rustls and AWS-LC draw what TLS needs (ephemeral keys, hello
//! randoms) from the operating system themselves, and cannot be told otherwise.

mod base64;
mod certificate;
mod error;
mod fingerprint;
mod identity;
mod machine;
mod negotiation;
mod scrub;
mod settings;
mod tcpcrypt;
mod tep;
mod tls;
mod transcript;

pub use certificate::{Certificate, PemError, roots_from_pem};
pub use error::HandshakeError;
pub use fingerprint::{Fingerprint, ParseFingerprintError};
pub use identity::{Identity, IdentityError, PublicKey};
pub use machine::{Complete, Handshake, MAX_PEER_BYTES, Peer};
pub use negotiation::{
    ACK_ENO, Policy, Refusal, Verdict, answer_eno, judge_ack, judge_answer, judge_offer, offer_eno,
};
pub use settings::{ClientPolicy, ListenerSettings, OpenerSettings, ServerTrust};
pub use tep::Tep;
pub use transcript::Transcript;

pub use rustls::pki_types::{ServerName, UnixTime};
pub use rustls::{KeyLog, KeyLogFile, RootCertStore};
