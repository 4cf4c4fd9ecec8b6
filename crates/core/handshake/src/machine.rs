//! The handshake as a connection sees it.

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
use plait_protect::handshake::{
    BoundTranscript, Capabilities, Instance, Introduction, MAX_PROLOGUE, MalformedPrologue, Prologue,
    PrologueReader, Tep, Transcript,
};

/// Largest number of bytes that a peer may send for its handshake. A TLS flight with a long certificate chain and ML-KEM keys stays below
/// 20 KiB. This also bounds the bytes kept at any time.
pub const MAX_PEER_BYTES: u64 = 64 * 1024;

/// The same after the prologue.
pub(crate) const MAX_EXCHANGE_BYTES: u64 = MAX_PEER_BYTES - MAX_PROLOGUE as u64;

/// A handshake over the unmapped bytes of the first subflow: the prologues of both ends, then TLS 1.3 or tcpcrypt.
///
/// After [`open`](Self::open) or [`accept`](Self::accept), and after each [`handle_bytes`](Self::handle_bytes), even a failed one: send the
/// output of [`poll_transmit`](Self::poll_transmit) in order, then call [`poll_complete`](Self::poll_complete).
pub struct Handshake {
    role: Role,
    ours: Prologue,
    /// Whether it must still be sent, before our first bytes.
    is_prologue_due: bool,
    theirs: Theirs,
    exchange: Exchange,
}

/// The prologue of the peer.
enum Theirs {
    /// It is not complete.
    Awaited { negotiated: Transcript, reader: PrologueReader },
    /// It has arrived: everything on which the keys depend is known.
    Here { prologue: Prologue, transcript: BoundTranscript },
    /// It is malformed.
    Malformed,
}

/// The exchange after the prologues.
enum Exchange {
    /// TLS 1.3. The connection keeps a secret exported from it.
    Tls13(Box<Tls>),
    /// tcpcrypt's key exchange.
    Tcpcrypt(Box<Tcpcrypt>),
}

impl Handshake {
    /// Begins as host A with these `capabilities`. `random` is the source for secrets; `wall_clock` is for the dates in certificates.
    ///
    /// # Errors
    /// [`HandshakeError::Settings`] and [`HandshakeError::Tls`] if the settings do not fit together.
    pub fn open(
        tep: Tep,
        settings: &OpenerSettings,
        transcript: &Transcript,
        capabilities: Capabilities,
        random: &mut dyn Random,
        wall_clock: UnixTime,
    ) -> Result<Self, HandshakeError> {
        let exchange = match tep {
            Tep::Tls13 => Exchange::Tls13(Box::new(scrubbed(|| Tls::open(settings, wall_clock))?)),
            Tep::TcpcryptCurve25519 | Tep::TcpcryptP256 => {
                let (suites, log) = (&settings.suites, &settings.key_log);
                Exchange::Tcpcrypt(Box::new(Tcpcrypt::new(Role::A, tep, suites, random, log)?))
            }
        };
        Ok(Self::new(Role::A, Prologue::of_client(capabilities), transcript, exchange))
    }

    /// Begins as host B with this introduction.
    ///
    /// # Errors
    /// As [`Handshake::open`].
    pub fn accept(
        tep: Tep,
        settings: &ListenerSettings,
        transcript: &Transcript,
        introduction: &Introduction,
        random: &mut dyn Random,
        wall_clock: UnixTime,
    ) -> Result<Self, HandshakeError> {
        let exchange = match tep {
            Tep::Tls13 => Exchange::Tls13(Box::new(scrubbed(|| Tls::accept(settings, wall_clock))?)),
            Tep::TcpcryptCurve25519 | Tep::TcpcryptP256 => {
                let (suites, log) = (&settings.suites, &settings.key_log);
                Exchange::Tcpcrypt(Box::new(Tcpcrypt::new(Role::B, tep, suites, random, log)?))
            }
        };
        Ok(Self::new(Role::B, Prologue::of_server(introduction), transcript, exchange))
    }

    fn new(role: Role, ours: Prologue, transcript: &Transcript, exchange: Exchange) -> Self {
        let reader = PrologueReader::new(role.peer());
        let theirs = Theirs::Awaited { negotiated: transcript.clone(), reader };
        Self { role, ours, is_prologue_due: true, theirs, exchange }
    }

    /// Takes unmapped bytes of the peer in any pieces. Returns how many of them belong to the handshake: all, unless it ends among them. No
    /// unmapped bytes may follow its end, so bytes given after it are an error. With TLS they may be the alert by which a server refuses
    /// our key.
    ///
    /// # Errors
    /// The handshake has failed permanently. Send the remaining output (an alert), then reset the connection.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let in_front = self.take_prologue(bytes)?;
        let Theirs::Here { transcript, .. } = &self.theirs else { return Ok(in_front) };
        let rest = &bytes[in_front..];
        let behind = scrubbed(|| match &mut self.exchange {
            Exchange::Tls13(tls) => tls.handle_bytes(rest, transcript),
            Exchange::Tcpcrypt(tcpcrypt) => tcpcrypt.handle_bytes(rest, transcript),
        })?;
        Ok(in_front + behind)
    }

    /// Takes the bytes of the peer's prologue, if it is not complete yet.
    fn take_prologue(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        const MALFORMED: HandshakeError = HandshakeError::Malformed("not a prologue of mptcpsec/2");
        let (negotiated, reader) = match &mut self.theirs {
            Theirs::Awaited { negotiated, reader } => (negotiated, reader),
            Theirs::Here { .. } => return Ok(0),
            Theirs::Malformed => return Err(MALFORMED),
        };
        match reader.take(bytes) {
            Ok((taken, None)) => Ok(taken),
            Ok((taken, Some(prologue))) => {
                let (a, b) = match self.role {
                    Role::A => (&self.ours, &prologue),
                    Role::B => (&prologue, &self.ours),
                };
                let transcript = negotiated.bind(a.as_bytes(), b.as_bytes());
                self.theirs = Theirs::Here { prologue, transcript };
                Ok(taken)
            }
            Err(MalformedPrologue) => {
                self.theirs = Theirs::Malformed;
                Err(MALFORMED)
            }
        }
    }

    /// Returns the bytes to send next, unmapped.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        let bytes = scrubbed(|| match &mut self.exchange {
            Exchange::Tls13(tls) => tls.poll_transmit(),
            Exchange::Tcpcrypt(tcpcrypt) => tcpcrypt.poll_transmit(),
        })?;
        // Both are in one piece, so that they leave in one flight.
        let is_first = core::mem::take(&mut self.is_prologue_due);
        Some(if is_first { [self.ours.as_bytes(), &bytes].concat().into() } else { bytes })
    }

    /// Returns the outcome, once: after the peer's last byte was taken and our own last byte was handed out. From then on both directions
    /// carry mapped bytes only.
    pub fn poll_complete(&mut self) -> Option<Complete> {
        let Theirs::Here { prologue: theirs, .. } = &self.theirs else { return None };
        let complete = scrubbed(|| match &mut self.exchange {
            Exchange::Tls13(tls) => tls.poll_complete(),
            Exchange::Tcpcrypt(tcpcrypt) => tcpcrypt.poll_complete(),
        })?;
        let Exchanged { master, tep, suite, key_exchange, peer, is_resumed, ticket, sent, received } =
            complete;
        Some(Complete {
            master,
            tep,
            suite,
            key_exchange,
            peer,
            capabilities: theirs.capabilities,
            instance: theirs.instance,
            is_resumed,
            ticket,
            sent: sent + self.ours.as_bytes().len() as u64,
            received: received + theirs.as_bytes().len() as u64,
        })
    }

    /// For a client, after the outcome: takes the server's ticket, [`Complete::ticket`] of the other side, for later handshakes with the
    /// same settings. It must come by the sealed connection. An invalid ticket, or a second one, is ignored.
    pub fn handle_ticket(&mut self, ticket: &SessionTicket) {
        scrubbed(|| match &mut self.exchange {
            Exchange::Tls13(tls) => tls.handle_ticket(ticket),
            // Sessions of tcpcrypt (RFC 8548, section 3.5) are not resumed.
            Exchange::Tcpcrypt(_) => {}
        });
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.exchange {
            Exchange::Tls13(_) => "Handshake(TLS 1.3)",
            Exchange::Tcpcrypt(_) => "Handshake(tcpcrypt)",
        })
    }
}

/// The outcome of a handshake.
#[derive(Debug)]
pub struct Complete {
    /// All keys are derived from it: [`ConnectionSecrets::derive`](plait_protect::sealed::ConnectionSecrets::derive).
    pub master: MasterSecret,
    /// The negotiated TEP. Its [`byte`](Tep::byte) starts the session id.
    pub tep: Tep,
    /// The AEAD of the blocks.
    pub suite: Suite,
    /// The key exchange, for the status: `X25519MLKEM768`, `X25519`, `secp256r1`.
    pub key_exchange: &'static str,
    /// The identity of the peer.
    pub peer: Peer,
    /// The capabilities of the peer.
    pub capabilities: Capabilities,
    /// The instance, if the peer is a server.
    pub instance: Option<Instance>,
    /// Whether an earlier session was resumed. The peer has the identity that was authenticated then, and nothing was signed. The keys are
    /// new.
    pub is_resumed: bool,
    /// If this host is the server: the ticket with which its client can resume this session, to be sent over the sealed connection.
    pub ticket: Option<SessionTicket>,
    /// Handshake bytes we sent: our first mapping starts at relative subflow sequence number 1 + this.
    pub sent: u64,
    /// Handshake bytes the peer sent: its first mapping starts at relative subflow sequence number 1 + this.
    pub received: u64,
}

/// The outcome of the exchange after the prologues. Bytes are counted from there on.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) master: MasterSecret,
    pub(crate) tep: Tep,
    pub(crate) suite: Suite,
    pub(crate) key_exchange: &'static str,
    pub(crate) peer: Peer,
    pub(crate) is_resumed: bool,
    pub(crate) ticket: Option<SessionTicket>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// The authenticated identity of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// None: encrypted, not authenticated.
    Anonymous,
    /// The owner of a raw public key.
    Key {
        /// The key.
        key: PublicKey,
        /// Whether it is in the configured list. If not, the caller decides whether to accept it.
        is_known: bool,
    },
    /// The owner of a certificate that our root certificates verify.
    Certificate {
        /// The end entity's certificate.
        end_entity: CertificateDer<'static>,
    },
}
