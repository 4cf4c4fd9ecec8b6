//! Datagrams beside the stream of a connection.

use std::fmt;

use bytes::Bytes;

use ::plait_host::{DatagramRefused, DatagramStatus, FlowError, Path, PathChoice};

use crate::error::{Error, ErrorKind};
use crate::status::Monitor;

/// The datagrams of a sealed connection, beside its [`Stream`](crate::Stream): unreliable, unordered, and sealed like its bytes. They belong
/// to flows, each with a destination that the peer judges.
///
/// Both ends have asked for datagrams: [`Sealing::datagrams`](crate::Sealing::datagrams) and
/// [`SealedService::datagrams`](crate::SealedService::datagrams). Paths over UDP carry them as datagrams of their own. Without such a path
/// they are sent inside the stream.
///
/// ```no_run
/// use plait::{Host, PathChoice, Sealing, Trust};
///
/// # async fn ask(host: Host, key: plait::Fingerprint) -> Result<(), plait::Error> {
/// let stream = host.connect("gw.example.com:7443", Sealing::new(Trust::pinned(key)).datagrams()).await?;
/// let flow = stream.datagrams().open("resolver.example.com:53", PathChoice::Duplicate).await?;
/// flow.send(&b"question"[..])?;
/// let answer = flow.recv().await;
/// # drop(answer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Datagrams(Monitor);

/// A flow of datagrams. Dropping it ends the flow at both ends.
pub struct Flow(::plait_host::Flow);

/// Datagrams of a connection, counted. One copy, or one piece, is one datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DatagramTotals {
    /// Flows that have not ended.
    pub flows_open: usize,
    /// Sent beside the stream.
    pub sent: u64,
    /// Sent inside the stream, because no path over UDP was there.
    pub sent_in_stream: u64,
    /// Given to this host's flows.
    pub received: u64,
    /// Sent, and lost by the peer's reports.
    pub lost: u64,
    /// Sent, and not reported in time.
    pub unreported: u64,
    /// Arrived after the end of their flow.
    pub late: u64,
    /// Arrived more than once, or too late to know.
    pub repeated: u64,
    /// Arrived with a wrong tag, malformed, or without keys.
    pub forged: u64,
    /// Dropped before they were sent: they had waited too long, too many waited, or the path had become too narrow.
    pub dropped: u64,
    /// Dropped after they had arrived: they were not read, came too early, or pieces were missing.
    pub dropped_arrived: u64,
    /// Those of each subflow that has carried some and is open.
    pub subflows: Vec<DatagramsOnPath>,
}

/// Datagrams over one subflow.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DatagramsOnPath {
    /// The device of its path.
    pub path: String,
    /// Sent over it.
    pub sent: u64,
    /// Arrived over it.
    pub arrived: u64,
    /// Sent over it, and lost by the peer's reports.
    pub lost: u64,
}

impl DatagramTotals {
    pub(crate) fn new(status: &DatagramStatus, paths: &[Path]) -> Self {
        let counters = &status.counters;
        let subflows = status.subflows.iter().map(|on| DatagramsOnPath {
            path: paths
                .iter()
                .find(|path| path.id == on.path)
                .map_or_else(String::new, |path| path.name.clone()),
            sent: on.sent,
            arrived: on.arrived,
            lost: on.lost,
        });
        Self {
            flows_open: status.flows,
            sent: counters.sent,
            sent_in_stream: counters.sent_in_stream,
            received: counters.received,
            lost: counters.lost,
            unreported: counters.unreported,
            late: counters.late,
            repeated: counters.repeated,
            forged: counters.forged,
            dropped: counters.dropped_waiting + counters.dropped_full + counters.dropped_long,
            dropped_arrived: counters.dropped_unread + counters.dropped_waiting_in + counters.early,
            subflows: subflows.collect(),
        }
    }
}

impl Datagrams {
    pub(crate) fn new(monitor: Monitor) -> Self {
        Self(monitor)
    }

    /// Opens a flow to a destination, such as `HOST:PORT`, of at most 255 bytes. Its datagrams may be sent at once.
    ///
    /// Dropping the future opens no flow.
    ///
    /// # Errors
    /// The connection is not sealed, or one of its ends does not take datagrams ([`ErrorKind::Unsupported`]); 1,024 flows are open
    /// ([`ErrorKind::Busy`]); or the destination is too long.
    pub async fn open(&self, destination: impl Into<Bytes>, paths: PathChoice) -> Result<Flow, Error> {
        let opened = self.0.connection.open_flow(destination.into(), paths).await;
        opened.map(Flow).map_err(|error| match error {
            FlowError::Unsupported | FlowError::NotYet => Error::new(
                ErrorKind::Unsupported,
                "this connection takes no datagrams: it is not sealed, or one of its ends has not asked for them",
            ),
            FlowError::TooMany => Error::new(ErrorKind::Busy, "too many flows of datagrams are open"),
            FlowError::Destination => {
                Error::new(ErrorKind::InvalidInput, "the destination of a flow is longer than 255 bytes")
            }
        })
    }

    /// Waits for the next flow that the peer opens, and returns it with its destination; `None` when the connection has ended. To refuse the
    /// flow, drop it. Several tasks may wait; each flow goes to one of them.
    ///
    /// Dropping the future loses no flow: the next call returns it.
    pub async fn accept(&self) -> Option<(Flow, Bytes)> {
        self.0.connection.accept_flow().await.map(|(flow, destination)| (Flow(flow), destination))
    }
}

impl Flow {
    /// Sends a datagram. It may be lost, and is not repeated; of datagrams that wait for too long some are dropped.
    ///
    /// # Errors
    /// The flow or the connection has ended ([`ErrorKind::Closed`]), or the datagram is longer than four times [`Flow::largest`]
    /// ([`ErrorKind::InvalidInput`]).
    pub fn send(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        self.send_with_ecn(payload, 0)
    }

    /// The same, with the ECN codepoint (RFC 3168) that the datagram has carried: the low two bits of `ecn`. The peer gets it with the
    /// datagram.
    ///
    /// # Errors
    /// As [`Flow::send`].
    pub fn send_with_ecn(&self, payload: impl Into<Bytes>, ecn: u8) -> Result<(), Error> {
        self.0.send(payload.into(), ecn & 3).map_err(|refused| match refused {
            DatagramRefused::Ended => Error::new(ErrorKind::Closed, "the flow of datagrams has ended"),
            DatagramRefused::TooLong { longest } => Error::new(
                ErrorKind::InvalidInput,
                format!("the datagram is too long: at most {longest} bytes can be sent at present"),
            ),
        })
    }

    /// Waits for the next datagram and returns its payload; `None` when the flow or the connection has ended and all that arrived before was
    /// read. Several tasks may wait; each datagram goes to one of them.
    ///
    /// Dropping the future loses no datagram: the next call returns it.
    pub async fn recv(&self) -> Option<Bytes> {
        Some(self.recv_with_ecn().await?.0)
    }

    /// The same, with the ECN codepoint that the sender has given.
    ///
    /// Dropping the future loses no datagram: the next call returns it.
    pub async fn recv_with_ecn(&self) -> Option<(Bytes, u8)> {
        self.0.receive().await.map(|datagram| (datagram.payload, datagram.ecn))
    }

    /// Its number on the connection: the same at both ends, and never used again.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// The largest payload that is sent in one piece at present. It follows the path MTU of the paths in use. Longer ones are sent in up to
    /// four pieces, of which all or none arrive.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.0.longest()
    }

    /// Changes the paths of the datagrams that are sent from now on.
    pub fn set_paths(&self, paths: PathChoice) {
        self.0.set_path_choice(paths);
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flow").field(&self.0).finish()
    }
}
