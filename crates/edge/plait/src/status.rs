//! The status of a connection.

use std::fmt;
use std::time::Duration;

use ::plait_host::{AttemptStatus, PathCarriers, PeerIdentity};
use plait_handshake::Fingerprint;

use crate::attempt::Attempt;
use crate::both::Both;
use crate::choice::{self, CarrierChoice};
use crate::counters::{self, ConnectionCounters};
use crate::datagrams::DatagramTotals;
use crate::networks::SharedNetwork;
use crate::path::PathState;
use crate::path_totals::PathTotals;
use crate::scrambling::ScrambleStart;
use crate::subflow::Subflow;

/// The proved identity of the peer of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Peer {
    /// Unknown: the connection is not sealed.
    Unknown,
    /// None: encrypted, not authenticated.
    Anonymous,
    /// The owner of this key.
    Key(Fingerprint),
    /// The owner of a certificate that leads to one of our authorities.
    Certificate,
}

/// The negotiated protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Negotiated {
    /// Not yet known.
    Opening,
    /// Multipath TCP.
    #[non_exhaustive]
    Multipath {
        /// Version of the protocol: 1 is RFC 8684, 2 is a sealed or scrambled connection.
        version: u8,
        /// Whether data checksums are in use (RFC 8684, section 3.3.1).
        checksum: bool,
    },
    /// Plain TCP, and why.
    Plain(PlainReason),
}

/// The reason that a connection is plain TCP. Its text is a sentence for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainReason(::plait_host::PlainReason);

/// A connection at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    status: ::plait_host::Status,
    paths: Vec<::plait_host::Path>,
    carriers: PathCarriers,
    tcp_missing: Option<String>,
    shared_networks: Vec<SharedNetwork>,
}

/// The status of sealing.
#[derive(Clone, Debug)]
pub struct SealStatus(::plait_host::SealedStatus);

/// The status of scrambling.
#[derive(Clone, Copy, Debug)]
pub struct ScrambleStatus(::plait_host::ScrambleStatus);

/// The trusted paths of a scrambled connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TrustedPaths {
    /// A subflow over a trusted path works.
    Work,
    /// Subflows over trusted paths exist, but none makes progress or is open yet.
    Stalled,
    /// No subflow over a trusted path exists.
    Gone,
}

/// Reads the status of a connection in use elsewhere, and can end it. The connection is kept while the monitor exists.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub(crate) connection: ::plait_host::Connection,
    pub(crate) control: ::plait_host::PathControl,
}

impl Monitor {
    /// The current status of the connection; `None` after its host has ended.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let (paths, tcp_missing) = (self.control.paths(), self.control.tcp_missing());
        let carriers = self.control.carriers();
        let shared_networks = self.control.shared_networks().into_iter().map(SharedNetwork::of).collect();
        Some(Status { status: self.connection.status()?, paths, carriers, tcp_missing, shared_networks })
    }

    /// Asks the peer of a sealed connection at once whether it still has our subflows. The answers are in [`Subflow::verified_at`]
    /// and [`Subflow::is_doubted`].
    pub fn ask_life(&self) {
        self.connection.ask_life();
    }

    /// Ends the connection at once, in both directions.
    pub fn abort(&self) {
        self.connection.abort();
    }
}

impl Status {
    /// The negotiated protocol.
    #[must_use]
    pub fn negotiated(&self) -> Negotiated {
        match self.status.negotiated {
            ::plait_host::Negotiated::Opening => Negotiated::Opening,
            ::plait_host::Negotiated::Multipath { version, checksum } => {
                Negotiated::Multipath { version, checksum }
            }
            ::plait_host::Negotiated::Plain(reason) => Negotiated::Plain(PlainReason(reason)),
        }
    }

    /// The networks that several devices of the host share now. The paths of such devices count as one.
    #[must_use]
    pub fn shared_networks(&self) -> &[SharedNetwork] {
        &self.shared_networks
    }

    /// Whether the connection uses Multipath TCP, without fallback to TCP.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        matches!(self.negotiated(), Negotiated::Multipath { .. })
    }

    /// Whether its bytes are encrypted and authenticated.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.cipher_suite().is_some()
    }

    /// The cipher suite, by name, if it is sealed.
    #[must_use]
    pub fn cipher_suite(&self) -> Option<&str> {
        self.status.sealed.as_ref()?.suite
    }

    /// The identity of the peer.
    #[must_use]
    pub fn peer(&self) -> Peer {
        let sealed = self.status.sealed.as_ref().filter(|sealed| sealed.suite.is_some());
        sealed.map_or(Peer::Unknown, |sealed| Peer::from(&sealed.peer))
    }

    /// The status of sealing, if sealing was requested and not given up.
    #[must_use]
    pub fn sealed(&self) -> Option<SealStatus> {
        self.status.sealed.clone().map(SealStatus)
    }

    /// The status of scrambling, if it is in use.
    #[must_use]
    pub fn scrambled(&self) -> Option<ScrambleStatus> {
        self.status.scrambling.map(ScrambleStatus)
    }

    /// The result of each attempt to open the connection, if we opened it, in the order of their start.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        let path = |id| self.paths.iter().find(|path| path.id == id);
        let attempt =
            |status: &AttemptStatus| Attempt::new(path(status.path), self.carriers.of(status.path), status);
        self.status.attempts.iter().map(attempt).collect()
    }

    /// The subflows, ended ones included, at most 64; [`Status::path_totals`] has the totals of all.
    #[must_use]
    pub fn subflows(&self) -> Vec<Subflow> {
        self.status
            .subflows
            .iter()
            .map(|subflow| Subflow::new(subflow, &self.paths, &self.carriers))
            .collect()
    }

    /// The bytes sent and received over each path with a subflow.
    #[must_use]
    pub fn path_totals(&self) -> Vec<PathTotals> {
        self.status
            .path_reports()
            .iter()
            .map(|report| PathTotals::new(report, &self.paths, &self.carriers))
            .collect()
    }

    /// The paths of its host.
    #[must_use]
    pub fn paths(&self) -> Vec<PathState> {
        self.paths.iter().cloned().map(|path| PathState::new(path, &self.carriers)).collect()
    }

    /// The carrier in use of each device, and the reason that the other carrier is not in use.
    #[must_use]
    pub fn carriers(&self) -> Vec<CarrierChoice> {
        choice::of(&self.paths(), &self.attempts(), &self.subflows(), self.tcp_missing.as_deref())
    }

    /// Totals of datagrams beside the stream; `None` if there have been none, nor a flow.
    #[must_use]
    pub fn datagrams(&self) -> Option<DatagramTotals> {
        self.status.datagrams.as_ref().map(|datagrams| DatagramTotals::new(datagrams, &self.paths))
    }

    /// Totals of dropped, refused and repaired things.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        counters::of_connection(self.status.counters).0
    }

    /// Bytes that were written and that the peer has acknowledged.
    #[must_use]
    pub fn bytes_delivered(&self) -> u64 {
        self.status.bytes_delivered
    }

    /// Bytes that the application has read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.status.bytes_read
    }

    /// Time since the connection was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.status.age
    }
}

impl SealStatus {
    /// Name of the handshake.
    #[must_use]
    pub fn handshake(&self) -> Option<&'static str> {
        self.0.handshake
    }

    /// Name of the cipher suite of the blocks. The connection is sealed if it has one.
    #[must_use]
    pub fn cipher_suite(&self) -> Option<&'static str> {
        self.0.suite
    }

    /// Name of the key agreement.
    #[must_use]
    pub fn key_exchange(&self) -> Option<&'static str> {
        self.0.key_exchange
    }

    /// The date at the peer in its last answer, in seconds since 1970; `None` if it was not asked, as by [`Check`](crate::Check).
    pub(crate) fn peer_date(&self) -> Option<u64> {
        self.0.peer_date
    }

    /// The identity of the peer.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::from(&self.0.peer)
    }

    /// Whether the handshake resumed an earlier session. The identity of the peer was proved in that session, at most a day ago.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.0.is_resumed
    }

    /// How often the keys were changed.
    #[must_use]
    pub fn generations(&self) -> Both<u64> {
        self.0.generations.into()
    }

    /// The number of disjoint paths that contributed to the keys of our direction, and to those of the peer's; the path of the
    /// handshake counts.
    #[must_use]
    pub fn mixed_paths(&self) -> Both<usize> {
        self.0.mixed_paths.into()
    }

    /// Bytes of the handshake.
    #[must_use]
    pub fn handshake_bytes(&self) -> Both<u64> {
        self.0.handshake_bytes.into()
    }

    /// Number of encrypted blocks; a block that is sent several times counts once.
    #[must_use]
    pub fn blocks_sealed(&self) -> u64 {
        self.0.sealed_blocks
    }

    /// Number of decrypted blocks.
    #[must_use]
    pub fn blocks_opened(&self) -> u64 {
        self.0.opened_blocks
    }

    /// Of both, those that the threads of [`HostBuilder::crypto_threads`](crate::HostBuilder::crypto_threads) did.
    #[must_use]
    pub fn blocks_elsewhere(&self) -> u64 {
        self.0.blocks_elsewhere
    }

    /// The reason that the connection is not sealed: an option was stripped, altered or refused, or the handshake failed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.0.failure.as_deref()
    }
}

impl ScrambleStatus {
    /// The starting point.
    #[must_use]
    pub fn start(&self) -> ScrambleStart {
        self.0.start.into()
    }

    /// The current trusted paths.
    #[must_use]
    pub fn trusted_paths(&self) -> TrustedPaths {
        match self.0.trusted {
            ::plait_host::TrustedPaths::Work => TrustedPaths::Work,
            ::plait_host::TrustedPaths::Stalled => TrustedPaths::Stalled,
            ::plait_host::TrustedPaths::Gone => TrustedPaths::Gone,
        }
    }

    /// Whether the connection waits for a trusted path now.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.0.stalled
    }

    /// Bytes sent over untrusted paths, because no other path was available.
    #[must_use]
    pub fn bytes_degraded(&self) -> u64 {
        self.0.degraded
    }
}

impl From<&PeerIdentity> for Peer {
    fn from(peer: &PeerIdentity) -> Self {
        match peer {
            PeerIdentity::Anonymous => Self::Anonymous,
            PeerIdentity::Certificate => Self::Certificate,
            PeerIdentity::Key { fingerprint, .. } => fingerprint.parse().map_or(Self::Anonymous, Self::Key),
        }
    }
}

/// `unknown`, `anonymous`, `certificate`, or the fingerprint of the key.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Anonymous => f.write_str("anonymous"),
            Self::Certificate => f.write_str("certificate"),
            Self::Key(fingerprint) => fingerprint.fmt(f),
        }
    }
}

impl PlainReason {
    /// A name for programs, as `not-in-syn-ack`.
    #[must_use]
    pub fn name(self) -> &'static str {
        use ::plait_host::PlainReason as Reason;
        match self.0 {
            Reason::NotOffered => "not-offered",
            Reason::PeerPlain => "peer-plain",
            Reason::NotInSynAck => "not-in-syn-ack",
            Reason::SynDropped => "syn-dropped",
            Reason::NotInAck => "not-in-ack",
            Reason::NoDss => "no-dss",
            Reason::Unsupported => "unsupported",
            Reason::ChecksumFailed => "checksum-failed",
            Reason::PeerFellBack => "peer-fell-back",
        }
    }
}

impl fmt::Display for PlainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ::plait_host::PlainReason as Reason;
        f.write_str(match self.0 {
            Reason::NotOffered => "Multipath TCP was not offered here",
            Reason::PeerPlain => "the peer did not offer Multipath TCP, or its offer was stripped on the way",
            Reason::NotInSynAck => {
                "the peer does not speak Multipath TCP, or its answer was stripped on the way"
            }
            Reason::SynDropped => "something on the way drops SYNs that offer Multipath TCP",
            Reason::NotInAck => "the options of the handshake's last segment were stripped on the way",
            Reason::NoDss => "the options of data segments are stripped on the way",
            Reason::Unsupported => "the peer asks for a kind of Multipath TCP that is unknown here",
            Reason::ChecksumFailed => "data was changed on the way, and there was no other path",
            Reason::PeerFellBack => "the peer fell back",
        })
    }
}
