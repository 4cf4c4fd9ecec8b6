//! TLS 1.3 as a key exchange (Jadin et al., section III-B; RFC 5705, RFC 8446 section 7.5).
//!
//! An ordinary rustls connection runs over the unmapped bytes until both Finished messages are through. Then one secret is exported, with
//! the hash of the transcript as context, and the record layer is not used any more. rustls gets record after record, and none after the
//! record that ends the handshake. The end is therefore known to the byte: neither side sends a record after its Finished. The only later
//! output of a rustls server is the ticket for a later handshake. The sealed connection carries it ([`Complete::ticket`]).
//!
//! A client is complete before the server has seen its key. If the server refuses the key, its alert comes as unmapped bytes after the
//! handshake. The client keeps the TLS connection to read it.

mod client;
mod exporter;
mod record;
mod resuming;
mod server;
mod verify;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use plait_protect::sealed::{MasterSecret, SessionTicket, Suite};
use rustls::client::ClientSessionStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::UnixTime;
use rustls::server::{Acceptor, StoresServerSessions};
use rustls::time_provider::TimeProvider;
use rustls::{CipherSuite, ClientConnection, Connection, NamedGroup};

use self::exporter::ExporterTap;
use self::record::RecordScanner;
use self::resuming::Slot;
use self::server::ServerConfigs;
use crate::confirmation::{Awaited, confirmation};
use crate::error::{HandshakeError, UNSUPPORTED_CERTIFICATE};
use crate::machine::{Exchanged, MAX_EXCHANGE_BYTES, Peer};
use crate::sessions::Terms;
use crate::settings::{KeyExchanges, ListenerSettings, OpenerSettings};
use crate::tickets::Context;
use plait_protect::handshake::{BoundTranscript, Tep};

/// The ALPN name of both sides, which keeps this use of TLS distinct from others.
const ALPN: &[u8] = b"mptcpsec/2";

/// The label under which the master secret is exported.
const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL mptcpsec v2 master";

/// One end of the handshake.
pub(crate) struct Tls {
    state: State,
    scanner: RecordScanner,
    received: u64,
    sent: u64,
    outgoing: Vec<u8>,
    known_keys: KnownKeys,
    resuming: Resuming,
    /// Holds the exporter secret from its creation until its use.
    exporter: Arc<ExporterTap>,
}

/// Handling of resumed sessions.
enum Resuming {
    /// None: each handshake is a full one.
    Never,
    /// The client's part.
    Client(Box<resuming::Client>, Arc<Slot>),
    /// The server's part.
    Server(Arc<resuming::Server>),
}

enum State {
    /// A server before the ClientHello is complete.
    Hello {
        acceptor: Box<Acceptor>,
        configs: Box<ServerConfigs>,
    },
    Running(Box<Connection>),
    /// A client that has finished TLS and waits for the confirmation of the server.
    Confirming {
        connection: Box<Connection>,
        complete: Box<Exchanged>,
        awaited: Awaited,
    },
    /// The peer's last byte was taken.
    Agreed {
        connection: Box<Connection>,
        complete: Option<Box<Exchanged>>,
    },
    Failed,
}

/// The raw keys that count as known in the report.
enum KnownKeys {
    /// All: the verifier accepts only known keys.
    All,
    /// None: the verifier accepts every key.
    None,
}

impl Tls {
    pub(crate) fn open(settings: &OpenerSettings, wall_clock: UnixTime) -> Result<Self, HandshakeError> {
        let (credentials, resuming, store) = match &settings.tickets {
            None => (client::credentials(settings)?, Resuming::Never, None),
            Some(tickets) => {
                let make = || client::credentials(settings);
                let (client, slot) = resuming::Client::new(tickets, Context::of(settings), wall_clock, make)?;
                let slot = Arc::new(slot);
                let store: Arc<dyn ClientSessionStore> = slot.clone();
                (client.credentials().clone(), Resuming::Client(Box::new(client), slot), Some(store))
            }
        };
        let exporter = ExporterTap::new(&settings.key_log);
        let config = client::config(settings, &credentials, store, (wall_clock, exporter.clone()))?;
        let connection = ClientConnection::new(Arc::new(config), settings.server_name.clone())?;
        let known_keys = client::known_keys(settings);
        let state = State::Running(Box::new(connection.into()));
        let mut tls = Self::new(state, known_keys, resuming, exporter);
        tls.collect_outgoing();
        Ok(tls)
    }

    pub(crate) fn accept(settings: &ListenerSettings, wall_clock: UnixTime) -> Result<Self, HandshakeError> {
        let exporter = ExporterTap::new(&settings.key_log);
        let configs = Box::new(ServerConfigs::new(settings, wall_clock, exporter.clone())?);
        let known_keys = server::known_keys(settings);
        let state = State::Hello { acceptor: Box::default(), configs };
        let resuming = settings.sessions.as_ref().map_or(Resuming::Never, |sessions| {
            Resuming::Server(Arc::new(resuming::Server::new(sessions, Terms::of(settings), wall_clock)))
        });
        Ok(Self::new(state, known_keys, resuming, exporter))
    }

    fn new(state: State, known_keys: KnownKeys, resuming: Resuming, exporter: Arc<ExporterTap>) -> Self {
        Self {
            state,
            scanner: RecordScanner::default(),
            received: 0,
            sent: 0,
            outgoing: Vec::new(),
            known_keys,
            resuming,
            exporter,
        }
    }

    /// Takes bytes of the peer. The master secret depends on `transcript`, which is the same each time.
    pub(crate) fn handle_bytes(
        &mut self,
        bytes: &[u8],
        transcript: &BoundTranscript,
    ) -> Result<usize, HandshakeError> {
        let was_agreed = matches!(self.state, State::Agreed { .. });
        let mut taken = 0;
        while taken < bytes.len() && (was_agreed || !matches!(self.state, State::Agreed { .. })) {
            match self.handle_piece(&bytes[taken..], transcript) {
                Ok(more) => taken += more,
                Err(error) => {
                    self.collect_outgoing();
                    self.state = State::Failed;
                    return Err(error);
                }
            }
        }
        self.collect_outgoing();
        self.confirm(transcript)?;
        Ok(taken)
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Bytes> {
        if self.outgoing.is_empty() {
            return None;
        }
        let bytes = Bytes::from(core::mem::take(&mut self.outgoing));
        self.sent += bytes.len() as u64;
        Some(bytes)
    }

    pub(crate) fn poll_complete(&mut self) -> Option<Exchanged> {
        if !self.outgoing.is_empty() {
            return None;
        }
        match &mut self.state {
            State::Agreed { complete, .. } => {
                complete.take().map(|complete| Exchanged { sent: self.sent, ..*complete })
            }
            State::Hello { .. } | State::Running(_) | State::Confirming { .. } | State::Failed => None,
        }
    }

    /// Sends the confirmation: a server has the exporter secret once its flight is out.
    fn confirm(&mut self, transcript: &BoundTranscript) -> Result<(), HandshakeError> {
        if let State::Running(connection) = &self.state
            && matches!(**connection, Connection::Server(_))
            && let Some(secret) = self.exporter.take()
        {
            self.outgoing.extend(confirmation(&secret, transcript)?);
        }
        Ok(())
    }

    /// Takes the bytes of the server's confirmation.
    fn handle_confirmation(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let State::Confirming { awaited, .. } = &mut self.state else {
            return Err(HandshakeError::BytesBehindTheEnd);
        };
        let (taken, is_whole) = awaited.take(bytes)?;
        self.received += taken as u64;
        if is_whole
            && let State::Confirming { connection, complete, awaited: _ } =
                core::mem::replace(&mut self.state, State::Failed)
        {
            let complete = Exchanged { received: self.received, ..*complete };
            self.state = State::Agreed { connection, complete: Some(Box::new(complete)) };
        }
        Ok(taken)
    }

    /// Gives a ticket to rustls and stores the result: the last task of this handshake.
    pub(crate) fn handle_ticket(&mut self, ticket: &SessionTicket) {
        let State::Agreed { mut connection, .. } = core::mem::replace(&mut self.state, State::Failed) else {
            return;
        };
        let Resuming::Client(client, slot) = &self.resuming else { return };
        let mut bytes = ticket.as_bytes();
        while matches!(connection.read_tls(&mut bytes), Ok(1..)) {}
        if connection.process_new_packets().is_ok() {
            client.keep(&connection, slot);
        }
    }

    /// Takes bytes up to the end of the current record.
    fn handle_piece(&mut self, bytes: &[u8], transcript: &BoundTranscript) -> Result<usize, HandshakeError> {
        if matches!(self.state, State::Confirming { .. }) {
            return self.handle_confirmation(bytes);
        }
        let (piece, ends) = self.scanner.take(bytes)?;
        self.received += piece as u64;
        if self.received > MAX_EXCHANGE_BYTES {
            return Err(HandshakeError::TooLong);
        }
        self.feed(&bytes[..piece])?;
        if ends {
            self.handle_record(transcript)?;
        }
        Ok(piece)
    }

    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), HandshakeError> {
        while !bytes.is_empty() {
            let read = match &mut self.state {
                State::Hello { acceptor, .. } => acceptor.read_tls(&mut bytes),
                State::Running(connection) | State::Agreed { connection, .. } => {
                    connection.read_tls(&mut bytes)
                }
                State::Confirming { .. } | State::Failed => return Err(HandshakeError::BytesBehindTheEnd),
            };
            match read {
                Ok(0) => return Err(HandshakeError::BytesBehindTheEnd),
                Ok(_) => {}
                // rustls returns this error if the waiting bytes exceed the largest handshake message.
                Err(_) => return Err(HandshakeError::TooLong),
            }
        }
        Ok(())
    }

    /// Lets rustls process a complete record.
    fn handle_record(&mut self, transcript: &BoundTranscript) -> Result<(), HandshakeError> {
        self.state = match core::mem::replace(&mut self.state, State::Failed) {
            State::Hello { acceptor, configs } => self.handle_hello(acceptor, configs)?,
            State::Running(mut connection) => match process(&mut connection) {
                Ok(()) if connection.is_handshaking() => State::Running(connection),
                Ok(()) => self.agree(connection, transcript)?,
                Err(error) => return Err(self.fail(connection, error)),
            },
            State::Agreed { mut connection, .. } => {
                // After the end only one message is possible: the server's refusal of our key.
                process(&mut connection)?;
                return Err(HandshakeError::BytesBehindTheEnd);
            }
            State::Confirming { .. } | State::Failed => return Err(HandshakeError::BytesBehindTheEnd),
        };
        Ok(())
    }

    fn handle_hello(
        &mut self,
        mut acceptor: Box<Acceptor>,
        configs: Box<ServerConfigs>,
    ) -> Result<State, HandshakeError> {
        let accepted = match acceptor.accept() {
            Ok(None) => return Ok(State::Hello { acceptor, configs }),
            Ok(Some(accepted)) => accepted,
            Err((error, alert)) => return Err(self.fail_early(error, alert)),
        };
        let store = match &self.resuming {
            Resuming::Server(server) => Some(Arc::clone(server) as Arc<dyn StoresServerSessions>),
            Resuming::Never | Resuming::Client(..) => None,
        };
        let config = match configs.choose(&accepted.client_hello(), store) {
            Ok(config) => config,
            Err(error) => {
                // A fatal alert in a record of its own (RFC 8446, section 6): rustls has no configuration with which it could send the
                // alert.
                self.outgoing.extend_from_slice(&[21, 3, 3, 0, 2, 2, UNSUPPORTED_CERTIFICATE]);
                return Err(error);
            }
        };
        match accepted.into_connection(config) {
            Ok(connection) => Ok(State::Running(Box::new(connection.into()))),
            Err((error, alert)) => Err(self.fail_early(error, alert)),
        }
    }

    fn fail_early(
        &mut self,
        error: rustls::Error,
        mut alert: rustls::server::AcceptedAlert,
    ) -> HandshakeError {
        write_all(&mut self.outgoing, |out| alert.write(out));
        error.into()
    }

    fn fail(&mut self, mut connection: Box<Connection>, error: HandshakeError) -> HandshakeError {
        write_all(&mut self.outgoing, |out| connection.write_tls(out));
        error
    }

    fn agree(
        &mut self,
        mut connection: Box<Connection>,
        transcript: &BoundTranscript,
    ) -> Result<State, HandshakeError> {
        if connection.alpn_protocol() != Some(ALPN) {
            return Err(HandshakeError::Protocol);
        }
        let suite = connection.negotiated_cipher_suite().and_then(|suite| block_suite(suite.suite()));
        let context = transcript.hash();
        let master = MasterSecret::filled_by(|master| {
            connection.export_keying_material(&mut master[..], EXPORTER_LABEL, Some(&context)).map(drop)
        })?;
        let complete = Exchanged {
            master,
            tep: Tep::Tls13,
            suite: suite.ok_or(HandshakeError::NoCommonSuite)?,
            key_exchange: connection
                .negotiated_key_exchange_group()
                .map_or("", |group| group_name(group.name())),
            peer: self.peer(&connection)?,
            is_resumed: resuming::is_resumed(&connection),
            ticket: self.ticket(&mut connection),
            sent: 0,
            received: self.received,
        };
        let complete = Box::new(complete);
        if let Connection::Server(_) = *connection {
            return Ok(State::Agreed { connection, complete: Some(complete) });
        }
        let secret = self.exporter.take().ok_or(HandshakeError::Settings("TLS has no exporter secret"))?;
        let awaited = Awaited::new(confirmation(&secret, transcript)?);
        Ok(State::Confirming { connection, complete, awaited })
    }

    /// Returns the ticket that a server sends after its client's Finished. The sealed connection carries it.
    fn ticket(&self, connection: &mut Connection) -> Option<SessionTicket> {
        let Resuming::Server(server) = &self.resuming else { return None };
        let mut record = Vec::new();
        write_all(&mut record, |out| connection.write_tls(out));
        SessionTicket::new(&record).filter(|_| server.keep(connection))
    }

    fn peer(&self, connection: &Connection) -> Result<Peer, HandshakeError> {
        let Some([shown, ..]) = connection.peer_certificates() else { return Ok(Peer::Anonymous) };
        if let Some(key) = verify::raw_key(shown) {
            let is_known = match self.known_keys {
                KnownKeys::All => true,
                KnownKeys::None => false,
            };
            return Ok(Peer::Key { key, is_known });
        }
        Ok(Peer::Certificate { end_entity: shown.clone().into_owned() })
    }

    fn collect_outgoing(&mut self) {
        match &mut self.state {
            State::Running(connection)
            | State::Confirming { connection, .. }
            | State::Agreed { connection, .. } => {
                while connection.wants_write() {
                    write_all(&mut self.outgoing, |out| connection.write_tls(out));
                }
            }
            State::Hello { .. } | State::Failed => {}
        }
    }
}

fn process(connection: &mut Connection) -> Result<(), HandshakeError> {
    connection.process_new_packets().map(drop).map_err(HandshakeError::from)
}

/// Writing into memory does not fail. A missing alert is only a less friendly end.
fn write_all(out: &mut Vec<u8>, mut write: impl FnMut(&mut dyn io::Write) -> io::Result<usize>) {
    while matches!(write(out), Ok(1..)) {}
}

/// Returns our provider: the requested cipher suites in their order, and the hybrid key exchange first, or alone.
fn provider(suites: &[Suite], key_exchanges: KeyExchanges) -> Result<Arc<CryptoProvider>, HandshakeError> {
    let cipher_suites: Vec<_> = suites
        .iter()
        .map(|suite| match suite {
            Suite::Aes128Gcm => aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
            Suite::Aes256Gcm => aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
            Suite::ChaCha20Poly1305 => aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        })
        .collect();
    if cipher_suites.is_empty() {
        return Err(HandshakeError::Settings("no cipher suite is allowed"));
    }
    let hybrid = aws_lc_rs::kx_group::X25519MLKEM768;
    let kx_groups = match key_exchanges {
        KeyExchanges::All => vec![hybrid, aws_lc_rs::kx_group::X25519, aws_lc_rs::kx_group::SECP256R1],
        KeyExchanges::PostQuantum => vec![hybrid],
    };
    Ok(Arc::new(CryptoProvider { cipher_suites, kx_groups, ..aws_lc_rs::default_provider() }))
}

fn block_suite(suite: CipherSuite) -> Option<Suite> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(Suite::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(Suite::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(Suite::ChaCha20Poly1305),
        _ => None,
    }
}

fn group_name(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        NamedGroup::X25519 => "X25519",
        NamedGroup::secp256r1 => "secp256r1",
        _ => "",
    }
}

/// rustls reads the time through an object. Ours returns the time that it was given.
#[derive(Debug)]
struct WallClock(UnixTime);

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

impl From<rustls::server::VerifierBuilderError> for HandshakeError {
    fn from(_: rustls::server::VerifierBuilderError) -> Self {
        Self::Settings("the root certificates cannot be used")
    }
}
