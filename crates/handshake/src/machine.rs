//! The handshake as the connection sees it.

use core::fmt;

use bytes::Bytes;
use plait_base::Random;
use plait_protect::scrub::scrubbed;
use plait_protect::sealed::{MasterSecret, Role, SessionTicket, Suite};
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::error::HandshakeError;
use crate::identity::PublicKey;
use crate::settings::{ListenerSettings, OpenerSettings};
use crate::tcpcrypt::Tcpcrypt;
use crate::tls::Tls;
use plait_protect::handshake::Tep;
use plait_protect::handshake::Transcript;

/// The most bytes that a peer may send for its handshake. A TLS flight with a long certificate chain and ML-KEM keys
/// stays below 20 KiB; what is kept of it at any time is bounded by this, too.
pub const MAX_PEER_BYTES: u64 = 64 * 1024;

/// A handshake over the unmapped bytes of the first subflow.
///
/// After [`open`](Self::open) or [`accept`](Self::accept), and after each [`handle_bytes`](Self::handle_bytes), even if
/// that failed: send what [`poll_transmit`](Self::poll_transmit) gives, in order, then ask
/// [`poll_complete`](Self::poll_complete).
pub enum Handshake {
    /// TLS 1.3, of which the connection keeps an exported secret.
    Tls13(Box<Tls>),
    /// tcpcrypt's key exchange.
    Tcpcrypt(Box<Tcpcrypt>),
}

impl Handshake {
    /// Host A's part. `random` is the source for secrets; `wall_clock` is for the dates in certificates.
    ///
    /// # Errors
    /// [`HandshakeError::Settings`] and [`HandshakeError::Tls`] where the settings do not fit together.
    pub fn open(
        tep: Tep,
        settings: &OpenerSettings,
        transcript: &Transcript,
        random: &mut dyn Random,
        wall_clock: UnixTime,
    ) -> Result<Self, HandshakeError> {
        Ok(match tep {
            Tep::Tls13 => Self::Tls13(Box::new(scrubbed(|| Tls::open(settings, transcript, wall_clock))?)),
            Tep::TcpcryptCurve25519 | Tep::TcpcryptP256 => {
                let (suites, log) = (&settings.suites, &settings.key_log);
                Self::Tcpcrypt(Box::new(Tcpcrypt::new(Role::A, tep, suites, transcript, random, log)?))
            }
        })
    }

    /// Host B's part.
    ///
    /// # Errors
    /// As [`Handshake::open`].
    pub fn accept(
        tep: Tep,
        settings: &ListenerSettings,
        transcript: &Transcript,
        random: &mut dyn Random,
        wall_clock: UnixTime,
    ) -> Result<Self, HandshakeError> {
        Ok(match tep {
            Tep::Tls13 => Self::Tls13(Box::new(scrubbed(|| Tls::accept(settings, transcript, wall_clock))?)),
            Tep::TcpcryptCurve25519 | Tep::TcpcryptP256 => {
                let (suites, log) = (&settings.suites, &settings.key_log);
                Self::Tcpcrypt(Box::new(Tcpcrypt::new(Role::B, tep, suites, transcript, random, log)?))
            }
        })
    }

    /// Takes unmapped bytes of the peer, as they come, and says how many of them belong to the handshake: all, unless
    /// it ends among them. Nothing may follow its end without a mapping, so bytes given after it are an error; with
    /// TLS it may be the alert by which a server refuses our key.
    ///
    /// # Errors
    /// The handshake has failed for good. Send what there is to transmit (an alert), then reset the connection.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        scrubbed(|| match self {
            Self::Tls13(tls) => tls.handle_bytes(bytes),
            Self::Tcpcrypt(tcpcrypt) => tcpcrypt.handle_bytes(bytes),
        })
    }

    /// Bytes to be sent next, unmapped.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        scrubbed(|| match self {
            Self::Tls13(tls) => tls.poll_transmit(),
            Self::Tcpcrypt(tcpcrypt) => tcpcrypt.poll_transmit(),
        })
    }

    /// The outcome, once: as soon as the peer's last byte was taken and our own last byte was handed out. From then on
    /// both directions carry mapped bytes only.
    pub fn poll_complete(&mut self) -> Option<Complete> {
        scrubbed(|| match self {
            Self::Tls13(tls) => tls.poll_complete(),
            Self::Tcpcrypt(tcpcrypt) => tcpcrypt.poll_complete(),
        })
    }

    /// For a client, after the outcome: takes the server's ticket, [`Complete::ticket`] of the other side, for later handshakes with the same
    /// settings. It has to come by the sealed connection and no other way. One that makes no sense, or a second one, is none.
    pub fn handle_ticket(&mut self, ticket: &SessionTicket) {
        scrubbed(|| match self {
            Self::Tls13(tls) => tls.handle_ticket(ticket),
            // Sessions of tcpcrypt (RFC 8548, section 3.5) are not continued.
            Self::Tcpcrypt(_) => {}
        });
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls13(_) => "Handshake(TLS 1.3)",
            Self::Tcpcrypt(_) => "Handshake(tcpcrypt)",
        })
    }
}

/// The outcome of a handshake.
#[derive(Debug)]
pub struct Complete {
    /// Everything else is derived from it: [`ConnectionSecrets::derive`](plait_protect::sealed::ConnectionSecrets::derive).
    pub master: MasterSecret,
    /// What was negotiated; its [`byte`](Tep::byte) starts the session id.
    pub tep: Tep,
    /// The AEAD of the blocks.
    pub suite: Suite,
    /// How the secret was agreed on, for the status: `X25519MLKEM768`, `X25519`, `secp256r1`.
    pub key_exchange: &'static str,
    /// The identity of the peer.
    pub peer: Peer,
    /// An earlier session was continued: the peer is who proved to be that then, and nothing was signed. Keys were agreed on anew.
    pub is_resumed: bool,
    /// Of a server: what its client needs to continue this session, to be sent over the sealed connection.
    pub ticket: Option<SessionTicket>,
    /// Handshake bytes we sent: our first mapping starts at relative subflow sequence number 1 + this.
    pub sent: u64,
    /// Handshake bytes the peer sent: its first mapping starts at relative subflow sequence number 1 + this.
    pub received: u64,
}

/// The identity of the peer, as far as it was proved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// None: encrypted, not authenticated.
    Anonymous,
    /// The owner of a raw public key.
    Key {
        /// The key.
        key: PublicKey,
        /// Whether it was in our list beforehand; if not the caller decides what it is worth.
        is_known: bool,
    },
    /// The owner of a certificate that our roots vouch for.
    Certificate {
        /// The end entity's certificate.
        end_entity: CertificateDer<'static>,
    },
}
