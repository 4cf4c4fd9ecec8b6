//! Status of the attempts of one opening.

use core::fmt;
use core::net::SocketAddr;
use plait_base::{Duration, PathId};
use plait_protect::handshake::Refusal;

use crate::ConnectionError;

/// Progress of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttemptStage {
    /// The SYN was sent, and no acceptable answer came.
    SynSent,
    /// TCP is established. An unsealed connection needs no more.
    Established,
    /// Sealed: bytes of the peer's handshake arrived.
    Handshake,
    /// Sealed: the handshake is complete on our side, and OPENING was sent.
    Authenticated,
    /// Sealed: the peer has acknowledged OPENING, with authentication.
    Confirmed,
}

/// Result of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttemptOutcome {
    /// It is running.
    Running,
    /// It became the connection.
    Chosen,
    /// It was given up because another one became the connection first.
    Overtaken,
    /// Its path disappeared.
    PathLost,
    /// It failed.
    Failed(ConnectionError),
}

/// One attempt to open a connection: one path, one address of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptStatus {
    /// The path.
    pub path: PathId,
    /// Our end of the first subflow; port 0 if no subflow was opened.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Its progress.
    pub stage: AttemptStage,
    /// Its result.
    pub outcome: AttemptOutcome,
    /// When it began, relative to the start of the opening.
    pub began: Duration,
    /// When its result was known, relative to the start of the opening.
    pub ended: Option<Duration>,
    /// The failure of the negotiation, the handshake or the blocks, for display.
    pub why: Option<String>,
    /// The fault in the options of the SYN/ACK, if it failed for that reason.
    pub refusal: Option<Refusal>,
}

impl fmt::Display for AttemptStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SynSent => "SYN sent",
            Self::Established => "TCP established",
            Self::Handshake => "in the handshake",
            Self::Authenticated => "handshake complete",
            Self::Confirmed => "confirmed by the peer",
        })
    }
}

/// The suspected problem of the path, in a few words.
impl fmt::Display for AttemptStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(why), AttemptOutcome::Failed(_)) = (&self.why, self.outcome) {
            return f.write_str(why);
        }
        let silence = match self.stage {
            AttemptStage::SynSent => "the SYN was not answered",
            AttemptStage::Established => "silence after the SYN/ACK",
            AttemptStage::Handshake => "silence in the handshake",
            AttemptStage::Authenticated => "silence after the handshake",
            AttemptStage::Confirmed => "slower",
        };
        let words = match self.outcome {
            AttemptOutcome::Running => "not decided",
            AttemptOutcome::Chosen => "chosen",
            AttemptOutcome::PathLost => "the path went away",
            AttemptOutcome::Overtaken | AttemptOutcome::Failed(ConnectionError::TimedOut) => silence,
            AttemptOutcome::Failed(error) => match error {
                ConnectionError::Refused => "refused",
                ConnectionError::Unreachable => "unreachable",
                ConnectionError::Reset | ConnectionError::FastClose => "reset by the peer, or in its name",
                ConnectionError::PlainRefused | ConnectionError::NotScrambled(_) => {
                    "the options of Multipath TCP were stripped or are not supported there"
                }
                ConnectionError::NotSealed => "the offer to seal was stripped, altered or refused",
                ConnectionError::HandshakeFailed => "the handshake failed",
                ConnectionError::NegotiationAltered => "not one block could be verified",
                ConnectionError::PathsMissing => "paths are missing in the keys",
                ConnectionError::AllPathsLost
                | ConnectionError::Forgotten
                | ConnectionError::EndUnacknowledged
                | ConnectionError::TailUnacknowledged => "lost",
                ConnectionError::RefusedByPeer(_) => "refused behind the handshake",
                ConnectionError::PerhapsDelivered => {
                    "another instance of the server answers there than the one that may have the request"
                }
                ConnectionError::Aborted => "given up here",
                ConnectionError::Protocol | ConnectionError::Corrupted => "the protocol was violated there",
                ConnectionError::NoTrustedPath => "not trusted",
                ConnectionError::TimedOut => silence,
            },
        };
        f.write_str(words)
    }
}
