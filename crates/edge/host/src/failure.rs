//! The failure of a connection, in words and as an [`io::Error`].

use std::fmt;
use std::io;
use std::net::IpAddr;

use plait_base::{Instant, PathId};
use plait_endpoint::ConnectionId;
use plait_mptcp::{
    AttemptOutcome, AttemptStatus, ConnectionError, Paths, RefusalReason, Status, Unscrambled,
};

use crate::carriers::{CarrierKind, PathCarriers};
use crate::shared::{Phase, State};
use crate::stack_address::device_address;

/// The error inside [`io::Error::get_ref`] of a failed connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{}{}", words(*.error), because(.why.as_deref()), lines(.attempts, .paths))]
pub struct Failure {
    /// The cause.
    pub error: ConnectionError,
    /// Details about a connection to be sealed: what was stripped, refused, or altered.
    pub why: Option<String>,
    /// If it could not be opened: the result of each attempt, in the order of their start.
    pub attempts: Vec<FailedAttempt>,
    /// If it was open and has lost its paths: the end of each of them, a line each.
    pub paths: Vec<String>,
}

/// One attempt of a failed opening.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedAttempt {
    /// The device of its path; `None` if the path is gone.
    pub device: Option<String>,
    /// The address of the device, of the family of the attempt; `None` if it has none any more. The stack's own address, which is in the
    /// status, says nothing to people.
    pub own: Option<IpAddr>,
    /// The carrier of its segments.
    pub carrier: CarrierKind,
    /// Its result.
    pub status: AttemptStatus,
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self { error, why: None, attempts: Vec::new(), paths: Vec::new() }
    }
}

fn because(why: Option<&str>) -> String {
    why.map(|why| format!(": {why}")).unwrap_or_default()
}

fn words(error: ConnectionError) -> &'static str {
    match error {
        ConnectionError::Refused => "the peer refused the connection",
        ConnectionError::TimedOut => "no answer came on any path",
        ConnectionError::Unreachable => "no path can reach the peer",
        ConnectionError::Reset => "the peer reset the connection",
        ConnectionError::FastClose => "the peer closed the connection at once (MP_FASTCLOSE)",
        ConnectionError::Aborted => "the connection was aborted here",
        ConnectionError::PlainRefused => "only plain TCP was available, and that is not allowed",
        ConnectionError::Forgotten => {
            "this host did not run for a while (stopped or suspended), and the peer has given the connection up"
        }
        ConnectionError::AllPathsLost => "all paths were lost and none came back in time",
        ConnectionError::EndUnacknowledged => {
            "all bytes have arrived in both directions; the peer is gone and has not acknowledged the end"
        }
        ConnectionError::TailUnacknowledged => {
            "all bytes of the peer have arrived; every path was reset, and the peer has not acknowledged our last bytes"
        }
        ConnectionError::Protocol => "the peer broke the protocol",
        ConnectionError::NotScrambled(Unscrambled::Multipath) => {
            "the peer speaks Multipath TCP without scrambling, and that is not allowed"
        }
        ConnectionError::NotScrambled(Unscrambled::Plain) => {
            "scrambling was asked for and only plain TCP was available: the peer does not support Multipath TCP, or its options are stripped on the path"
        }
        ConnectionError::NotScrambled(Unscrambled::Stripped) => {
            "scrambling was agreed on, and then the options were stripped on the way"
        }
        ConnectionError::NoTrustedPath => "no trusted path can be used",
        ConnectionError::Corrupted => "data arrived corrupted and there was no other path",
        ConnectionError::NotSealed => "the connection cannot be sealed, and nothing less is allowed",
        ConnectionError::HandshakeFailed => "the handshake of the sealed connection failed",
        ConnectionError::NegotiationAltered => {
            "an attacker or a middlebox has rewritten the negotiation, or changes all data"
        }
        ConnectionError::PathsMissing => "fewer paths than required have given a share to the keys",
        ConnectionError::RefusedByPeer(_) => "the peer refuses the connection",
        ConnectionError::PerhapsDelivered => {
            "what was sent first may have been delivered: the server that has it did not answer in time on any path, and no other one was \
             told the same"
        }
    }
}

/// Converts the failure to an error of input and output.
pub(crate) fn error_of(state: &State, now: Instant, id: ConnectionId, error: ConnectionError) -> io::Error {
    let kind = match error {
        ConnectionError::Refused => io::ErrorKind::ConnectionRefused,
        ConnectionError::TimedOut
        | ConnectionError::AllPathsLost
        | ConnectionError::Forgotten
        | ConnectionError::EndUnacknowledged
        | ConnectionError::TailUnacknowledged => io::ErrorKind::TimedOut,
        ConnectionError::Unreachable | ConnectionError::NoTrustedPath => io::ErrorKind::HostUnreachable,
        ConnectionError::Reset | ConnectionError::FastClose | ConnectionError::PerhapsDelivered => {
            io::ErrorKind::ConnectionReset
        }
        ConnectionError::Aborted => io::ErrorKind::ConnectionAborted,
        ConnectionError::PlainRefused | ConnectionError::NotSealed | ConnectionError::NotScrambled(_) => {
            io::ErrorKind::Unsupported
        }
        ConnectionError::HandshakeFailed
        | ConnectionError::NegotiationAltered
        | ConnectionError::RefusedByPeer(RefusalReason::NotAuthorized | RefusalReason::Expired)
        | ConnectionError::PathsMissing => io::ErrorKind::PermissionDenied,
        ConnectionError::RefusedByPeer(
            RefusalReason::Full | RefusalReason::Draining | RefusalReason::TooMany | RefusalReason::Other,
        ) => io::ErrorKind::ConnectionRefused,
        ConnectionError::Protocol | ConnectionError::Corrupted => io::ErrorKind::InvalidData,
    };
    let status = state.endpoint.status(now, id);
    let known = state.endpoint.paths();
    let attempts =
        status.as_ref().map(|status| failed(&status.attempts, known, &state.carriers)).unwrap_or_default();
    let paths = status.as_ref().map(|status| lost(error, status, known)).unwrap_or_default();
    let why = status.and_then(|status| status.sealed).and_then(|sealed| sealed.failure);
    io::Error::new(kind, Failure { error, why, attempts, paths })
}

fn is_open(attempts: &[AttemptStatus]) -> bool {
    attempts.iter().any(|attempt| attempt.outcome == AttemptOutcome::Chosen)
}

/// Returns the result of each attempt; nothing if one of them has opened the connection.
fn failed(attempts: &[AttemptStatus], paths: &Paths, carriers: &PathCarriers) -> Vec<FailedAttempt> {
    if is_open(attempts) {
        return Vec::new();
    }
    let device = |attempt: &AttemptStatus| paths.get(attempt.path).map(|path| path.name.clone());
    let failed = |attempt: &AttemptStatus| FailedAttempt {
        device: device(attempt),
        own: paths.get(attempt.path).and_then(|path| device_address(path, attempt.remote.ip())),
        carrier: carriers.of(attempt.path),
        status: attempt.clone(),
    };
    attempts.iter().map(failed).collect()
}

/// Returns the effect of each path on an open connection, if it failed for that reason here or at the peer.
fn lost(error: ConnectionError, status: &Status, paths: &Paths) -> Vec<String> {
    let is_why = matches!(error, ConnectionError::AllPathsLost | ConnectionError::FastClose);
    if !is_why || !is_open(&status.attempts) {
        return Vec::new();
    }
    let name = |id: PathId| paths.get(id).map_or(GONE, |path| &path.name);
    status.path_reports().iter().map(|report| format!("{}: {report}", name(report.path))).collect()
}

/// Returns a line for each attempt, if there were several (a single one has nothing to add to the error), or for each lost path. With a
/// line break in front.
fn lines(attempts: &[FailedAttempt], paths: &[String]) -> String {
    let attempts = if attempts.len() < 2 { &[] } else { attempts };
    let attempts = attempts.iter().map(|attempt| format!("\n  {attempt}"));
    attempts.chain(paths.iter().map(|line| format!("\n  {line}"))).collect()
}

/// The name of a path that the host no longer has.
const GONE: &str = "a path that is gone";

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, own, carrier, status } = self;
        let device = device.as_deref().unwrap_or(GONE);
        let AttemptStatus { remote, stage, began, .. } = status;
        let own = own.map_or("no address".to_owned(), |own| own.to_string());
        let over = carrier.suffix();
        write!(f, "{device}{over}: {own} to {remote}, after {} ms: {stage}; {status}", began.as_millis())
    }
}

/// The end of a connection, if it has ended.
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
