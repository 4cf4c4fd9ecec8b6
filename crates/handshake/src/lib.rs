//! How two hosts come to share secrets: TLS 1.3 and tcpcrypt.
//!
//! What a connection knows of a handshake is [`plait_protect::handshake`]: the negotiation in the SYNs, and a trait for what runs
//! over the bytes behind them. Here are its two implementations, TLS 1.3 and tcpcrypt, as one [`Handshake`], and what
//! they are made from: [`OpenerSettings`] and [`ListenerSettings`] are [`Handshakes`].
//!
//! Randomness is an argument, with one exception: rustls and AWS-LC draw what TLS needs (ephemeral keys, hello
//! randoms) from the operating system themselves, and cannot be told otherwise.

mod base64;
mod certificate;
mod confirmation;
mod error;
mod fingerprint;
mod identity;
mod machine;
mod makers;
mod sessions;
mod settings;
mod tcpcrypt;
mod tickets;
mod tls;

pub use certificate::{Certificate, PemError, roots_from_pem};
pub use error::HandshakeError;
pub use fingerprint::{Fingerprint, ParseFingerprintError};
pub use identity::{Identity, IdentityError, PublicKey};
pub use machine::{Complete, Handshake, MAX_PEER_BYTES, Peer};
pub use plait_protect::handshake::{
    ACK_ENO, Capabilities, Capability, Handshakes, Instance, Introduction, MAX_PROLOGUE, Policy, Prologue,
    Refusal, Tep, Transcript, Verdict, answer_eno, judge_ack, judge_answer, judge_offer, offer_eno,
};
pub use sessions::Sessions;
pub use settings::{ClientPolicy, KeyExchanges, ListenerSettings, OpenerSettings, ServerTrust};
pub use tickets::Tickets;

pub use rustls::pki_types::{ServerName, UnixTime};
pub use rustls::{KeyLog, KeyLogFile, RootCertStore};
