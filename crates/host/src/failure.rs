//! How a connection failed, in words and as an [`io::Error`].

use std::io;

use plait_base::{Instant, PathId};
use plait_endpoint::ConnectionId;
use plait_mptcp::{AttemptOutcome, AttemptStatus, ConnectionError, Paths, Status, Unscrambled};

use crate::shared::{Phase, State};

/// What [`io::Error::get_ref`] gives for a failed connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{}{}", words(*.error), because(.why.as_deref()), .attempts.concat())]
pub struct Failure {
    /// What happened.
    pub error: ConnectionError,
    /// More about it: what was stripped, refused, or altered where the connection was to be sealed.
    pub why: Option<String>,
    /// Where it was tried in several ways: what each of them met, a line each, with a line break in front. Of a connection that was
    /// open and has lost its paths: what became of each of them.
    pub attempts: Vec<String>,
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self { error, why: None, attempts: Vec::new() }
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
pub(crate) fn error_of(state: &State, now: Instant, id: ConnectionId, error: ConnectionError) -> io::Error {
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
    let status = state.endpoint.status(now, id);
    let lines = status.as_ref().map(|status| lines(error, status, state.endpoint.paths()));
    let why = status.and_then(|status| status.sealed).and_then(|sealed| sealed.failure);
    let attempts = lines.unwrap_or_default();
    io::Error::new(kind, Failure { error, why, attempts })
}

/// What each path did: to the attempts to open the connection, or to one that was open. One attempt alone has nothing to add to the
/// error.
fn lines(error: ConnectionError, status: &Status, paths: &Paths) -> Vec<String> {
    let attempts = &status.attempts;
    if attempts.iter().any(|attempt| attempt.outcome == AttemptOutcome::Chosen) {
        return of_open(error, status, paths);
    }
    if attempts.len() < 2 {
        return Vec::new();
    }
    let line = |attempt: &AttemptStatus| {
        let AttemptStatus { local, remote, stage, began, .. } = attempt;
        let name = name_of(attempt.path, paths);
        format!("\n  {name}: {local} to {remote}, after {} ms: {stage}; {attempt}", began.as_millis())
    };
    attempts.iter().map(line).collect()
}

/// What each path did to a connection that was open, where that is why it failed here or at the peer.
fn of_open(error: ConnectionError, status: &Status, paths: &Paths) -> Vec<String> {
    if !matches!(error, ConnectionError::AllPathsLost | ConnectionError::FastClose) {
        return Vec::new();
    }
    let reports = status.path_reports();
    reports.iter().map(|report| format!("\n  {}: {report}", name_of(report.path, paths))).collect()
}

fn name_of(path: PathId, paths: &Paths) -> &str {
    paths.get(path).map_or("a path that is gone", |path| &path.name)
}

/// How a connection ended, if it has.
pub(crate) fn end_of(state: &State, now: Instant, id: ConnectionId) -> Option<io::Result<()>> {
    match state.endpoint.end(id) {
        Some(end) => Some(end.map_err(|error| error_of(state, now, id, error))),
        None if state.phase == Phase::Stopped => Some(Err(gone())),
        None => None,
    }
}

/// The host has ended.
pub(crate) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, crate::Error::Gone)
}
