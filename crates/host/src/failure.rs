//! How a connection failed, in words and as an [`io::Error`].

use std::io;

use base::Instant;
use endpoint::ConnectionId;
use mptcp::{ConnectionError, Status, Unscrambled};

use crate::shared::{Phase, State};

/// What [`io::Error::get_ref`] gives for a failed connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{}", words(*.error), because(.why.as_deref()))]
pub struct Failure {
    /// What happened.
    pub error: ConnectionError,
    /// More about it: what was stripped, refused, or altered where the connection was to be sealed.
    pub why: Option<String>,
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self { error, why: None }
    }
}

fn because(why: Option<&str>) -> String {
    why.map(|why| format!(": {why}")).unwrap_or_default()
}

fn words(error: ConnectionError) -> &'static str {
    match error {
        ConnectionError::Refused => "the peer refused the connection",
        ConnectionError::TimedOut => "nobody answered on any path",
        ConnectionError::Unreachable => "no path can reach the peer",
        ConnectionError::Reset => "the peer reset the connection",
        ConnectionError::FastClose => "the peer closed the connection at once (MP_FASTCLOSE)",
        ConnectionError::Aborted => "the connection was aborted here",
        ConnectionError::PlainRefused => "only plain TCP was to be had, and that is not allowed",
        ConnectionError::AllPathsLost => "all paths were lost and none came back in time",
        ConnectionError::Protocol => "the peer broke the protocol",
        ConnectionError::NotScrambled(Unscrambled::Multipath) => {
            "the peer speaks Multipath TCP without scrambling, and that is not allowed"
        }
        ConnectionError::NotScrambled(Unscrambled::Plain) => {
            "scrambling was asked for and only plain TCP was to be had: the peer does not speak Multipath TCP, or its options are stripped on the way"
        }
        ConnectionError::NotScrambled(Unscrambled::Stripped) => {
            "scrambling was agreed on, and then the options were stripped on the way"
        }
        ConnectionError::NoTrustedPath => "no trusted path can be used",
        ConnectionError::Corrupted => "data arrived corrupted and there was no other path",
        ConnectionError::NotSealed => "the connection cannot be sealed, and nothing less is allowed",
        ConnectionError::HandshakeFailed => "the handshake of the sealed connection failed",
        ConnectionError::NegotiationAltered => {
            "somebody on the way has rewritten the negotiation, or changes everything"
        }
    }
}

/// As an error of input and output.
pub(crate) fn error_of(error: ConnectionError, status: Option<Status>) -> io::Error {
    let kind = match error {
        ConnectionError::Refused => io::ErrorKind::ConnectionRefused,
        ConnectionError::TimedOut | ConnectionError::AllPathsLost => io::ErrorKind::TimedOut,
        ConnectionError::Unreachable | ConnectionError::NoTrustedPath => io::ErrorKind::HostUnreachable,
        ConnectionError::Reset | ConnectionError::FastClose => io::ErrorKind::ConnectionReset,
        ConnectionError::Aborted => io::ErrorKind::ConnectionAborted,
        ConnectionError::PlainRefused | ConnectionError::NotSealed | ConnectionError::NotScrambled(_) => {
            io::ErrorKind::Unsupported
        }
        ConnectionError::HandshakeFailed | ConnectionError::NegotiationAltered => {
            io::ErrorKind::PermissionDenied
        }
        ConnectionError::Protocol | ConnectionError::Corrupted => io::ErrorKind::InvalidData,
    };
    let why = status.and_then(|status| status.sealed).and_then(|sealed| sealed.failure);
    io::Error::new(kind, Failure { error, why })
}

/// How a connection ended, if it has.
pub(crate) fn end_of(state: &State, now: Instant, id: ConnectionId) -> Option<io::Result<()>> {
    match state.endpoint.end(id) {
        Some(end) => Some(end.map_err(|error| error_of(error, state.endpoint.status(now, id)))),
        None if state.phase == Phase::Stopped => Some(Err(gone())),
        None => None,
    }
}

/// The host has ended.
pub(crate) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, crate::Error::Gone)
}
