//! Errors of hosts, listeners and connections.

use std::io;

use ::plait_host::{ConnectionError, Failure, RefusalReason};
use plait_handshake::is_about_dates;
use plait_keys::KnownPeersError;

use crate::attempt::Attempt;
use crate::networks::Devices;

/// An error. Its text names the cause and, if there is one, the fix.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    attempts: Vec<Attempt>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kind of an error, for programs to act upon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// This machine or user lacks a privilege, a device or a program that the stack needs.
    Unsupported,
    /// The request is invalid: a path given twice, an invalid name, a service without a key.
    InvalidInput,
    /// The port is taken.
    PortInUse,
    /// The name of the server has no address.
    UnknownName,
    /// No path of this host leads there.
    Unreachable,
    /// The peer refused the connection.
    Refused,
    /// No answer came, or the last path was lost and none came back.
    TimedOut,
    /// The connection cannot be protected as asked for: the peer cannot do it, or an attacker or a middlebox prevents it.
    NotProtected,
    /// Fewer paths than required have contributed to the keys, or no trusted path can be used. Another path may mend this.
    PathsMissing,
    /// The peer could not prove the identity that is expected, or does not accept ours.
    NotAuthenticated,
    /// The certificate of the peer has expired, or is not valid yet by the clock of this host.
    CertificateDates,
    /// The peer has seen our identity and does not accept it: it is not on its list of clients.
    NotAuthorized,
    /// The peer is full or stopping: try later, or another server.
    Busy,
    /// The peer ended the connection at once.
    Reset,
    /// The connection was not established, and the written bytes may have been delivered to the server all the same. A repeated request
    /// may be carried out twice. [`Sealing::may_repeat`](crate::Sealing::may_repeat) is for requests that tolerate this.
    PerhapsDelivered,
    /// Data was changed on the path, and no other path was available.
    Corrupted,
    /// The host has ended.
    Closed,
    /// Something else, as the text says.
    Other,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), attempts: Vec::new(), source: None }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), attempts: Vec::new(), source: Some(source.into()) }
    }

    /// The same, and what helps.
    pub(crate) fn with_fix(self, fix: &str) -> Self {
        Self { message: format!("{}\n  fix: {fix}", self.message), ..self }
    }

    /// The same, with the networks that devices share: the reason that a path may be missing.
    pub(crate) fn with_networks(self, devices: &Devices) -> Self {
        match self.kind {
            ErrorKind::NotProtected | ErrorKind::PathsMissing => {
                Self { message: self.message + &devices.remarks(), ..self }
            }
            _ => self,
        }
    }

    /// The peer has ended a connection that had fewer paths than required.
    pub(crate) fn for_want_of_paths(self) -> Self {
        let why = "fewer paths than required have given a share to the keys, and the peer has given up";
        Self { kind: ErrorKind::PathsMissing, message: format!("{why}: {}", self.message), ..self }
    }

    /// No connection was established in time; carries the results of the attempts so far.
    pub(crate) fn late(attempts: Vec<Attempt>) -> Self {
        let mut message = "no answer came on any path in time".to_owned();
        if attempts.len() > 1 {
            attempts.iter().for_each(|attempt| message += &format!("\n  {attempt}"));
        }
        Self { attempts, ..Self::new(ErrorKind::TimedOut, message) }
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The result of each attempt to open the connection, with its path, in the order of their start. Empty if the error has another
    /// subject. If there were several attempts, the text of the error lists them, too.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}

impl ErrorKind {
    /// Returns the kind of an error of reading or writing a [`Stream`](crate::Stream).
    ///
    /// ```
    /// let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    /// assert_eq!(plait::ErrorKind::of(&error), plait::ErrorKind::Reset);
    /// ```
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return error.kind;
        }
        if let Some(failure) = failure_in(error) {
            return kind_of(failure);
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Self::Reset,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => Self::Unreachable,
            io::ErrorKind::NotConnected => Self::Closed,
            io::ErrorKind::InvalidInput => Self::InvalidInput,
            _ => Self::Other,
        }
    }
}

/// The fix if a request may have been carried out.
const BEFORE_REPEATING: &str = "see whether the request was carried out before you send it again";

fn failure_in(error: &io::Error) -> Option<&Failure> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>())
}

/// Converts the [`io::Error`] of reading or writing a [`Stream`](crate::Stream).
///
/// ```
/// let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// assert_eq!(plait::Error::from(error).kind(), plait::ErrorKind::Refused);
/// ```
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(ours) => return ours,
            Err(error) => error,
        };
        let attempts = failure_in(&error).map(|failure| failure.attempts.iter().map(Attempt::from).collect());
        let (kind, message) = (ErrorKind::of(&error), error.to_string());
        let attempts = attempts.unwrap_or_default();
        let error = Self { kind, message, attempts, source: Some(Box::new(error)) };
        if kind == ErrorKind::PerhapsDelivered { error.with_fix(BEFORE_REPEATING) } else { error }
    }
}

impl From<::plait_host::Error> for Error {
    fn from(error: ::plait_host::Error) -> Self {
        let kind = match &error {
            error if error.is_missing_privilege_or_feature() => ErrorKind::Unsupported,
            ::plait_host::Error::PortInUse { .. } => ErrorKind::PortInUse,
            ::plait_host::Error::DeviceName { .. }
            | ::plait_host::Error::DuplicatePath { .. }
            | ::plait_host::Error::UnknownPath { .. }
            | ::plait_host::Error::PathCount { .. } => ErrorKind::InvalidInput,
            ::plait_host::Error::Gone => ErrorKind::Closed,
            _ => ErrorKind::Other,
        };
        Self::with_source(kind, error.to_string(), error)
    }
}

impl From<KnownPeersError> for Error {
    fn from(error: KnownPeersError) -> Self {
        let kind = match &error {
            KnownPeersError::AnotherKey { .. } => ErrorKind::NotAuthenticated,
            KnownPeersError::Line { .. } | KnownPeersError::Name(_) => ErrorKind::InvalidInput,
            _ => ErrorKind::Other,
        };
        Self::with_source(kind, error.to_string(), error)
    }
}

/// For functions that return [`io::Result`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Unsupported | ErrorKind::NotProtected | ErrorKind::PathsMissing => {
                io::ErrorKind::Unsupported
            }
            ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::PortInUse => io::ErrorKind::AddrInUse,
            ErrorKind::UnknownName => io::ErrorKind::NotFound,
            ErrorKind::Unreachable => io::ErrorKind::HostUnreachable,
            ErrorKind::Refused | ErrorKind::Busy => io::ErrorKind::ConnectionRefused,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::NotAuthenticated | ErrorKind::CertificateDates | ErrorKind::NotAuthorized => {
                io::ErrorKind::PermissionDenied
            }
            ErrorKind::Reset | ErrorKind::PerhapsDelivered => io::ErrorKind::ConnectionReset,
            ErrorKind::Corrupted => io::ErrorKind::InvalidData,
            ErrorKind::Closed => io::ErrorKind::NotConnected,
            ErrorKind::Other => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

fn kind_of(failure: &Failure) -> ErrorKind {
    let is_about_dates = failure.why.as_deref().is_some_and(is_about_dates);
    match failure.error {
        ConnectionError::HandshakeFailed if is_about_dates => ErrorKind::CertificateDates,
        error => kind_of_error(error),
    }
}

fn kind_of_error(error: ConnectionError) -> ErrorKind {
    match error {
        ConnectionError::Refused => ErrorKind::Refused,
        ConnectionError::TimedOut
        | ConnectionError::AllPathsLost
        | ConnectionError::Forgotten
        | ConnectionError::EndUnacknowledged
        | ConnectionError::TailUnacknowledged => ErrorKind::TimedOut,
        ConnectionError::Unreachable => ErrorKind::Unreachable,
        ConnectionError::Reset | ConnectionError::FastClose => ErrorKind::Reset,
        ConnectionError::PlainRefused
        | ConnectionError::NotScrambled(_)
        | ConnectionError::NotSealed
        | ConnectionError::NegotiationAltered => ErrorKind::NotProtected,
        ConnectionError::PathsMissing | ConnectionError::NoTrustedPath => ErrorKind::PathsMissing,
        ConnectionError::PerhapsDelivered => ErrorKind::PerhapsDelivered,
        ConnectionError::Corrupted => ErrorKind::Corrupted,
        ConnectionError::HandshakeFailed => ErrorKind::NotAuthenticated,
        ConnectionError::RefusedByPeer(reason) => match reason {
            RefusalReason::NotAuthorized | RefusalReason::Expired => ErrorKind::NotAuthorized,
            RefusalReason::Full | RefusalReason::Draining | RefusalReason::TooMany => ErrorKind::Busy,
            RefusalReason::Other => ErrorKind::Refused,
        },
        ConnectionError::Aborted | ConnectionError::Protocol => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_paths_are_told_from_a_protection_that_is_missing() {
        for error in [ConnectionError::PathsMissing, ConnectionError::NoTrustedPath] {
            assert_eq!(kind_of_error(error), ErrorKind::PathsMissing);
        }
        for error in [ConnectionError::NotSealed, ConnectionError::NegotiationAltered] {
            assert_eq!(kind_of_error(error), ErrorKind::NotProtected);
        }
        let kept = io::Error::from(Error::new(ErrorKind::PathsMissing, "one path"));
        assert_eq!(ErrorKind::of(&kept), ErrorKind::PathsMissing);
    }
}
