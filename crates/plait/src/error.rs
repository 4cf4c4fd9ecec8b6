//! Why there is no host, no listener, or no connection.

use std::io;

use ::plait_host::{ConnectionError, Failure};
use plait_keys::KnownPeersError;

/// Why something could not be done. Its text names the cause and, where there is one, what helps.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What kind of thing went wrong, for programs to act upon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// This machine or user lacks a privilege, a device or a program that the stack needs.
    Unsupported,
    /// What was asked for makes no sense: a path given twice, a name that is none, a service without a key.
    InvalidInput,
    /// The port is taken.
    PortInUse,
    /// The name of the server has no address.
    UnknownName,
    /// No path of this host leads there.
    Unreachable,
    /// The peer refused the connection.
    Refused,
    /// Nobody answered, or the last path was lost and none came back.
    TimedOut,
    /// The connection cannot be protected as asked for: the peer cannot do it, or somebody on the way prevents it.
    NotProtected,
    /// The peer could not prove that it is who it has to be, or does not take us.
    NotAuthenticated,
    /// The peer ended the connection at once.
    Reset,
    /// The host is gone.
    Closed,
    /// Something else, as the text says.
    Other,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Errors of reading and writing a [`Stream`](crate::Stream) are [`io::Error`]s; this says what they mean.
///
/// ```
/// let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// assert_eq!(plait::Error::from(error).kind(), plait::ErrorKind::Refused);
/// ```
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let failure = error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>());
        let kind = match failure {
            Some(failure) => kind_of(failure.error),
            None => match error.kind() {
                io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
                io::ErrorKind::TimedOut => ErrorKind::TimedOut,
                io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => ErrorKind::Reset,
                io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => ErrorKind::Unreachable,
                io::ErrorKind::NotConnected => ErrorKind::Closed,
                io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
                _ => ErrorKind::Other,
            },
        };
        Self { kind, message: error.to_string(), source: Some(Box::new(error)) }
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
        Self { kind, message: error.to_string(), source: Some(Box::new(error)) }
    }
}

impl From<KnownPeersError> for Error {
    fn from(error: KnownPeersError) -> Self {
        let kind = match &error {
            KnownPeersError::AnotherKey { .. } => ErrorKind::NotAuthenticated,
            KnownPeersError::Line { .. } | KnownPeersError::Name(_) => ErrorKind::InvalidInput,
            _ => ErrorKind::Other,
        };
        Self { kind, message: error.to_string(), source: Some(Box::new(error)) }
    }
}

/// For functions that return [`io::Result`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Unsupported | ErrorKind::NotProtected => io::ErrorKind::Unsupported,
            ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::PortInUse => io::ErrorKind::AddrInUse,
            ErrorKind::UnknownName => io::ErrorKind::NotFound,
            ErrorKind::Unreachable => io::ErrorKind::HostUnreachable,
            ErrorKind::Refused => io::ErrorKind::ConnectionRefused,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::NotAuthenticated => io::ErrorKind::PermissionDenied,
            ErrorKind::Reset => io::ErrorKind::ConnectionReset,
            ErrorKind::Closed => io::ErrorKind::NotConnected,
            ErrorKind::Other => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

fn kind_of(error: ConnectionError) -> ErrorKind {
    match error {
        ConnectionError::Refused => ErrorKind::Refused,
        ConnectionError::TimedOut | ConnectionError::AllPathsLost => ErrorKind::TimedOut,
        ConnectionError::Unreachable | ConnectionError::NoTrustedPath => ErrorKind::Unreachable,
        ConnectionError::Reset | ConnectionError::FastClose => ErrorKind::Reset,
        ConnectionError::PlainRefused
        | ConnectionError::NotScrambled(_)
        | ConnectionError::NotSealed
        | ConnectionError::NegotiationAltered
        | ConnectionError::Corrupted => ErrorKind::NotProtected,
        ConnectionError::HandshakeFailed => ErrorKind::NotAuthenticated,
        ConnectionError::Aborted | ConnectionError::Protocol => ErrorKind::Other,
    }
}
