//! The clients that a sealed service accepts.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ::plait_host::RefusalReason;
use plait_base::Random;
use plait_handshake::{ClientPolicy, Fingerprint, Handshakes, ListenerSettings, PublicKey, Tep};
use plait_protect::handshake::{Failed, Handshake, Introduction, Peer as ProvedPeer, Transcript};

use crate::certificate::SharedCertificate;
use crate::status::Peer;

/// The clients that may connect to a sealed service.
#[derive(Clone, Debug)]
pub struct Clients(Policy);

#[derive(Clone, Debug)]
enum Policy {
    Anyone,
    Known(Vec<Fingerprint>),
    Judged(Judge),
}

/// A client that has finished its handshake and asks for a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applicant {
    peer: Peer,
    public_key: Option<PublicKey>,
    address: SocketAddr,
}

/// The reason that a service refuses a client. The client gets it in a sealed record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The client's key may not use the service, or the client has shown none.
    NotAuthorized,
    /// The service has as many connections as it may have.
    Full,
    /// The service ends, and accepts nothing new.
    Draining,
    /// The client's key could use the service until a time that is over.
    Expired,
    /// This client has as many connections as it may have.
    TooMany,
    /// Something else.
    Other,
}

#[derive(Clone)]
struct Judge(Arc<Judgement>);

/// Decides whether an applicant may have a connection, or returns the reason of the refusal.
type Judgement = dyn Fn(&Applicant) -> Result<(), Refusal> + Send + Sync;

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}

impl Clients {
    /// Accepts every client. A client that has a key shows it, and [`Stream::peer_identity`](crate::Stream::peer_identity) returns it.
    #[must_use]
    pub fn anyone() -> Self {
        Self(Policy::Anyone)
    }

    /// Accepts the clients with one of these keys, which they prove first. With no key, no client is accepted.
    #[must_use]
    pub fn known(keys: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self(Policy::Known(keys.into_iter().collect()))
    }

    /// Accepts the clients that `judge` accepts. It is called for each connection after the client has proved its key, or has none, and
    /// before anything is kept for the connection. A refused client learns the reason: its error has the kind
    /// [`NotAuthorized`](crate::ErrorKind::NotAuthorized), [`Busy`](crate::ErrorKind::Busy) or [`Refused`](crate::ErrorKind::Refused).
    ///
    /// `judge` runs on the thread that moves the packets of the whole host, so it must not block.
    #[must_use]
    pub fn judged(judge: impl Fn(&Applicant) -> Result<(), Refusal> + Send + Sync + 'static) -> Self {
        Self(Policy::Judged(Judge(Arc::new(judge))))
    }

    /// The part that the handshakes of a listener need.
    pub(crate) fn policy(&self) -> ClientPolicy {
        match &self.0 {
            Policy::Anyone | Policy::Judged(_) => ClientPolicy::AskForKey,
            Policy::Known(keys) => ClientPolicy::Authorised(keys.clone()),
        }
    }

    /// The handshakes with these settings, the certificate that is current when they begin, and the judgement behind them.
    pub(crate) fn handshakes(
        &self,
        settings: ListenerSettings,
        certificate: Option<SharedCertificate>,
    ) -> Arc<dyn Handshakes> {
        let judge = match &self.0 {
            Policy::Anyone | Policy::Known(_) => None,
            Policy::Judged(judge) => Some(judge.clone()),
        };
        Arc::new(Accepting { settings, certificate, judge })
    }
}

impl Applicant {
    /// The identity of the client, as far as it is proved.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The key that it has proved to hold, if any.
    #[must_use]
    pub fn public_key(&self) -> Option<&PublicKey> {
        self.public_key.as_ref()
    }

    /// The source address of its first subflow.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.address
    }
}

/// The handshakes of a listener.
#[derive(Debug)]
struct Accepting {
    /// Without a certificate.
    settings: ListenerSettings,
    certificate: Option<SharedCertificate>,
    judge: Option<Judge>,
}

impl Handshakes for Accepting {
    fn allows(&self, tep: Tep) -> bool {
        self.settings.allows(tep)
    }

    fn begin(
        &self,
        tep: Tep,
        transcript: &Transcript,
        introduction: &Introduction,
        random: &mut dyn Random,
        unix_time: u64,
    ) -> Result<Box<dyn Handshake>, Failed> {
        let Some(certificate) = &self.certificate else {
            return self.settings.begin(tep, transcript, introduction, random, unix_time);
        };
        let certificate = Some(certificate.current());
        let settings = ListenerSettings { certificate, ..self.settings.clone() };
        settings.begin(tep, transcript, introduction, random, unix_time)
    }

    fn log_share(&self, session_id: &[u8; 33], agreed: &[u8]) {
        self.settings.log_share(session_id, agreed);
    }

    fn admits(&self, peer: &ProvedPeer) -> bool {
        self.settings.admits(peer)
    }

    fn judge(&self, peer: &ProvedPeer, address: SocketAddr) -> Result<(), RefusalReason> {
        let Some(Judge(judge)) = &self.judge else { return Ok(()) };
        let (peer, public_key) = match peer {
            ProvedPeer::Anonymous => (Peer::Anonymous, None),
            ProvedPeer::Certificate => (Peer::Certificate, None),
            ProvedPeer::Key { line, fingerprint, name: _, is_known: _ } => {
                (Peer::Key(Fingerprint::new(*fingerprint)), line.parse().ok())
            }
        };
        judge(&Applicant { peer, public_key, address }).map_err(RefusalReason::from)
    }
}

impl From<Refusal> for RefusalReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotAuthorized => Self::NotAuthorized,
            Refusal::Full => Self::Full,
            Refusal::Draining => Self::Draining,
            Refusal::Expired => Self::Expired,
            Refusal::TooMany => Self::TooMany,
            Refusal::Other => Self::Other,
        }
    }
}

/// A name for programs and for logs, as `not-authorized`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAuthorized => "not-authorized",
            Self::Full => "full",
            Self::Draining => "draining",
            Self::Expired => "expired",
            Self::TooMany => "too-many",
            Self::Other => "other",
        })
    }
}
