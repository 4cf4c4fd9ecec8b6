//! The attempts to open a connection.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ::plait_host::{AttemptOutcome, AttemptStatus, FailedAttempt};

use crate::carrier::Carrier;

/// One attempt to open a connection, over one path and to one address of the peer. A connection is opened by several if the
/// first gets no answer that can be believed (as RFC 8305 does it for addresses); one of them becomes the connection.
///
/// Its text is a line for people: the path, how far the attempt came, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    device: Option<String>,
    status: AttemptStatus,
}

impl Attempt {
    pub(crate) fn new(device: Option<String>, status: &AttemptStatus) -> Self {
        Self { device, status: status.clone() }
    }

    /// The device of its path; `None` if the host has that path no more.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// What carried it.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        ::plait_host::Carrier::of(self.status.path).into()
    }

    /// Our end of its first subflow, an address of the stack itself; port 0 if there was no subflow.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.status.local
    }

    /// The peer's end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.status.remote
    }

    /// How far it came, in words.
    #[must_use]
    pub fn stage(&self) -> String {
        self.status.stage.to_string()
    }

    /// What became of it, or what is suspected of its path, in words.
    #[must_use]
    pub fn verdict(&self) -> String {
        self.status.to_string()
    }

    /// Whether it is the connection.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        self.status.outcome == AttemptOutcome::Chosen
    }

    /// When it began, after the first one had.
    #[must_use]
    pub fn began(&self) -> Duration {
        self.status.began
    }

    /// When it was known what became of it, after the first one had begun; `None` as long as it is not.
    #[must_use]
    pub fn ended(&self) -> Option<Duration> {
        self.status.ended
    }
}

impl From<&FailedAttempt> for Attempt {
    fn from(FailedAttempt { device, status }: &FailedAttempt) -> Self {
        Self::new(device.clone(), status)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FailedAttempt { device: self.device.clone(), status: self.status.clone() }.fmt(f)
    }
}
