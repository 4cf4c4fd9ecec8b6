//! The attempts to open a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ::plait_host::{AttemptOutcome, AttemptStage, AttemptStatus, FailedAttempt, Path, device_address};

use crate::Carrier;

/// One attempt to open a connection, over one path and to one address of the peer. If the first attempt gets no trustworthy
/// answer, others start beside it (as in RFC 8305 for addresses); one of them becomes the connection.
///
/// Its text is a line for people: the path, the progress, and the result of the attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    device: Option<String>,
    /// The address of the device.
    own: Option<IpAddr>,
    carrier: Carrier,
    status: AttemptStatus,
}

/// The obstacle that an attempt to open a connection met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// The SYN was not answered.
    NoAnswer,
    /// TCP was established, and then the peer fell silent.
    Silence,
    /// The attempt succeeded, and another one was faster.
    Slower,
    /// The SYN was refused: no program listens, or an option that the peer requires was stripped from it.
    Refused,
    /// ICMP, or this host, reports the peer as unreachable.
    Unreachable,
    /// The options of the SYN/ACK are missing or altered.
    Options,
    /// The peer reset the attempt, or an attacker did so in its name.
    Reset,
    /// The handshake of the sealed connection has failed.
    Handshake,
    /// The peer has refused the connection after the handshake, in a sealed record.
    Declined,
    /// No block could be verified: data is altered on the path.
    Altered,
    /// Its path went away.
    PathLost,
    /// Something else, as its text says.
    Other,
}

/// A name for programs, as `no-answer`.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "no-answer",
            Self::Silence => "silence",
            Self::Slower => "slower",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Options => "options",
            Self::Reset => "reset",
            Self::Handshake => "handshake",
            Self::Declined => "declined",
            Self::Altered => "altered",
            Self::PathLost => "path-lost",
            Self::Other => "other",
        })
    }
}

impl Attempt {
    /// An attempt over this path, unless the host no longer has it.
    pub(crate) fn new(path: Option<&Path>, carrier: Carrier, status: &AttemptStatus) -> Self {
        let own = path.and_then(|path| device_address(path, status.remote.ip()));
        Self { device: path.map(|path| path.name.clone()), own, carrier, status: status.clone() }
    }

    /// The device of its path; `None` if the host no longer has that path.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// The carrier.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Our end of its first subflow: the address of the device, or of the stack itself if the device has none any more; port 0 if there
    /// was no subflow. Over UDP the port on the network is another.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.own.unwrap_or(self.status.local.ip()), self.status.local.port())
    }

    /// The peer's end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.status.remote
    }

    /// The progress of the attempt, in words.
    #[must_use]
    pub fn stage(&self) -> String {
        self.status.stage.to_string()
    }

    /// The result of the attempt, or the suspicion about its path, in words.
    #[must_use]
    pub fn verdict(&self) -> String {
        self.status.to_string()
    }

    /// The obstacle, if there was one.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        use ::plait_host::ConnectionError as Error;
        let silence = match self.status.stage {
            AttemptStage::SynSent => Obstacle::NoAnswer,
            AttemptStage::Established | AttemptStage::Handshake | AttemptStage::Authenticated => {
                Obstacle::Silence
            }
            AttemptStage::Confirmed => Obstacle::Slower,
        };
        Some(match self.status.outcome {
            AttemptOutcome::Running | AttemptOutcome::Chosen => return None,
            AttemptOutcome::Overtaken => silence,
            AttemptOutcome::PathLost => Obstacle::PathLost,
            AttemptOutcome::Failed(error) => match error {
                Error::TimedOut => silence,
                Error::Refused => Obstacle::Refused,
                Error::Unreachable => Obstacle::Unreachable,
                Error::PlainRefused | Error::NotScrambled(_) | Error::NotSealed => Obstacle::Options,
                Error::Reset | Error::FastClose => Obstacle::Reset,
                Error::HandshakeFailed => Obstacle::Handshake,
                Error::RefusedByPeer(_) => Obstacle::Declined,
                Error::NegotiationAltered => Obstacle::Altered,
                Error::PathsMissing
                | Error::AllPathsLost
                | Error::Forgotten
                | Error::EndUnacknowledged
                | Error::TailUnacknowledged
                | Error::Aborted
                | Error::PerhapsDelivered
                | Error::Protocol
                | Error::Corrupted
                | Error::NoTrustedPath => Obstacle::Other,
            },
        })
    }

    /// Whether TCP was established, which is before any handshake that seals.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.status.stage > AttemptStage::SynSent
    }

    /// Whether the bytes of the peer's handshake have come, or more.
    pub(crate) fn has_heard(&self) -> bool {
        self.status.stage >= AttemptStage::Handshake
    }

    /// The fault in the options of the SYN/ACK.
    pub(crate) fn refusal(&self) -> Option<::plait_host::Refusal> {
        self.status.refusal
    }

    /// Whether the attempt became the connection.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        self.status.outcome == AttemptOutcome::Chosen
    }

    /// Its start, relative to the start of the first attempt.
    #[must_use]
    pub fn began(&self) -> Duration {
        self.status.began
    }

    /// The time of its result, relative to the start of the first attempt; `None` until then.
    #[must_use]
    pub fn ended(&self) -> Option<Duration> {
        self.status.ended
    }
}

impl From<&FailedAttempt> for Attempt {
    fn from(FailedAttempt { device, own, carrier, status }: &FailedAttempt) -> Self {
        Self { device: device.clone(), own: *own, carrier: *carrier, status: status.clone() }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, own, carrier, status } = self.clone();
        FailedAttempt { device, own, carrier, status }.fmt(f)
    }
}
