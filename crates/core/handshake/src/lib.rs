//! Handshakes of sealed connections: TLS 1.3 and tcpcrypt.
//!
//! A connection uses the interface [`plait_protect::handshake`]: the negotiation in the SYNs, and a trait for the exchange over the bytes
//! after them. This crate has its two implementations, TLS 1.3 and tcpcrypt, as one [`Handshake`]. Handshakes are made from
//! [`OpenerSettings`] and [`ListenerSettings`], which are [`Handshakes`].
//!
//! Randomness is an argument, with one exception. rustls and AWS-LC draw the randomness of TLS (ephemeral keys, hello randoms) from the
//! operating system, and this cannot be changed.

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

pub use certificate::{Certificate, PemError, Validity, roots_from_pem};
pub use error::{HandshakeError, is_about_dates};
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
