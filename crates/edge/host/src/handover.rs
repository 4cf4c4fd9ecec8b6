//! A process hands its listening ports over to another one, its successor, and keeps its connections.
//!
//! The successor receives all datagrams, and over TCP what connection tracking does not know. It *passes* segments that are of no connection
//! of its own to the predecessor, which answers them, by a reset if they are of no connection there either. A passed segment is never passed
//! again. The predecessor sends by its own descriptors. It tells its flows to the successor: segments of other flows are passed at a limited
//! rate, so unknown peers can neither occupy the channel nor make the two processes work for each other. No answer comes back on the
//! channel, so there is no amplification beyond that of one process.

#![cfg_attr(
    not(target_os = "linux"),
    allow(unreachable_code, unused_variables, reason = "other systems have no channel between processes")
)]

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration as StdDuration;

use bytes::Bytes;
use plait_base::Instant;
use plait_carrier::tcp_in_udp::{Datagrams, trains};
use plait_tcp::FourTuple;
use plait_wire::Segment;

use self::words::{Reader, Writer};
use crate::carriers::CarrierKind;
use crate::log::{debug, trace};
use crate::sys::{Channel, OwnDescriptor, Room, Source};

mod words;

/// Longest message: a super-segment whose wire segments have a header each.
const MAX_MESSAGE: usize = 1 << 17;
/// Messages that are read in a turn.
const READ_BATCH: usize = 64;
/// Most flows that are noted. Segments of further flows are passed as those of unknown ones.
const MAX_FLOWS: usize = 1 << 16;
/// Flows told in one message.
const FLOWS_AT_ONCE: usize = 512;
/// Segments of unknown flows that are passed each second: joins, and strays that a reset answers.
const UNKNOWN_PER_SECOND: u32 = 2000;
/// Time limit for the predecessor to describe its sockets.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

/// The kinds of messages.
const SOCKET: u8 = b'S';
const END_OF_SOCKETS: u8 = b'E';
const DEVICE: u8 = b'T';
const FLOWS: u8 = b'K';
const SEGMENT: u8 = b'D';

/// The socket of a listening port.
#[derive(Debug)]
pub(crate) struct HandedSocket {
    pub(crate) is_v4: bool,
    pub(crate) port: u16,
    /// The kernel's number of the device that it is bound to.
    pub(crate) device_index: u32,
    pub(crate) io: UdpSocket,
}

/// The successor's means of sending.
#[derive(Debug)]
pub(crate) enum Handed {
    Socket(HandedSocket),
    Device(OwnDescriptor),
}

/// A segment of no connection of this process.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) carrier: CarrierKind,
    /// The device that it has arrived on.
    pub(crate) device: String,
    /// The address of the device that the peer has used, if the carrier knows it.
    pub(crate) local: Option<IpAddr>,
    pub(crate) segment: Segment,
}

/// A subflow, as both processes name it.
type Flow = (CarrierKind, u16, SocketAddr);

/// The driver's end of the channel.
#[derive(Debug)]
pub(crate) struct Relay {
    channel: Channel,
    side: Side,
    buffer: Vec<u8>,
    datagrams: Datagrams,
}

#[derive(Debug)]
enum Side {
    /// The connections of this process have flows that the other one receives.
    Predecessor { known: BTreeSet<Flow>, untold: VecDeque<Flow> },
    /// This process receives for the other one.
    Successor { flows: BTreeSet<Flow>, untold: VecDeque<HandedSocket>, budget: Budget },
}

/// The passed segments of unknown flows in this second.
#[derive(Debug)]
struct Budget {
    since: Option<Instant>,
    spent: u32,
}

/// What a predecessor gives its successor at once.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) relay: Relay,
    pub(crate) sockets: Vec<HandedSocket>,
}

/// What was read from the channel.
#[derive(Default, Debug)]
pub(crate) struct Received {
    pub(crate) passed: Vec<Left>,
    pub(crate) handed: Vec<Handed>,
}

impl Relay {
    /// The predecessor's end, and the descriptor of the other one, with these sockets and flows in it.
    pub(crate) fn of_predecessor(
        sockets: &[HandedSocket],
        flows: impl IntoIterator<Item = Flow>,
    ) -> io::Result<(Self, OwnDescriptor)> {
        let (channel, far) = Channel::pair()?;
        for socket in sockets {
            channel.send(&about(socket), Some(&socket.io))?;
        }
        channel.send(&[END_OF_SOCKETS], None::<&UdpSocket>)?;
        let known: BTreeSet<Flow> = flows.into_iter().take(MAX_FLOWS).collect();
        let untold = known.iter().copied().collect();
        Ok((Self::new(channel, Side::Predecessor { known, untold }), far))
    }

    /// The successor's end, and the sockets that the predecessor has put into it.
    pub(crate) fn of_successor(descriptor: OwnDescriptor) -> io::Result<Handover> {
        let channel = Channel::of(descriptor)?;
        let (mut sockets, mut buffer) = (Vec::new(), vec![0; MAX_MESSAGE]);
        loop {
            let (len, descriptor) = channel.wait_for_message(&mut buffer, PATIENCE)?;
            match buffer[..len].split_first() {
                Some((&SOCKET, rest)) => sockets.extend(socket_of(rest, descriptor)),
                Some((&END_OF_SOCKETS, _)) => break,
                Some(_) => {}
                None => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
        let budget = Budget { since: None, spent: 0 };
        let side = Side::Successor { flows: BTreeSet::new(), untold: VecDeque::new(), budget };
        Ok(Handover { relay: Self::new(channel, side), sockets })
    }

    fn new(channel: Channel, side: Side) -> Self {
        Self { channel, side, buffer: vec![0; MAX_MESSAGE], datagrams: Datagrams::default() }
    }

    /// Gives the predecessor a device to send by.
    pub(crate) fn give_device(&self, device: &OwnDescriptor) -> io::Result<()> {
        self.channel.send(&[DEVICE], Some(device))
    }

    /// Whether this process receives for the other one.
    pub(crate) fn is_successor(&self) -> bool {
        matches!(self.side, Side::Successor { .. })
    }

    /// What to wait for.
    pub(crate) fn source(&self) -> (Source<'_>, Room) {
        let has_more = match &self.side {
            Side::Predecessor { untold, .. } => !untold.is_empty(),
            Side::Successor { untold, .. } => !untold.is_empty(),
        };
        (self.channel.source(), if has_more { Room::Awaited } else { Room::NotNeeded })
    }

    /// Reads what the other process has sent. Returns `false` if that process has ended.
    pub(crate) fn receive(&mut self, received: &mut Received) -> bool {
        for _ in 0..READ_BATCH {
            let (len, descriptor) = match self.channel.receive(&mut self.buffer) {
                Ok((0, _)) => return false,
                Ok(message) => message,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(error) => {
                    debug!(%error, "the channel to the other process cannot be read");
                    return false;
                }
            };
            let Some((kind, rest)) = self.buffer[..len].split_first() else { return false };
            match (kind, &mut self.side) {
                (&SEGMENT, Side::Predecessor { .. }) => received.passed.extend(segments_of(rest)),
                (&SOCKET, Side::Predecessor { .. }) => {
                    received.handed.extend(socket_of(rest, descriptor).map(Handed::Socket));
                }
                (&DEVICE, Side::Predecessor { .. }) => {
                    received.handed.extend(descriptor.map(Handed::Device));
                }
                (&FLOWS, Side::Successor { flows, .. }) => {
                    let mut reader = Reader(rest);
                    while let Some(flow) = reader.flow().filter(|_| flows.len() < MAX_FLOWS) {
                        flows.insert(flow);
                    }
                }
                // A later version may have other messages.
                _ => {}
            }
        }
        true
    }

    /// Passes a segment to the predecessor, which may lose it, as any network may.
    pub(crate) fn pass(&mut self, now: Instant, left: &Left) {
        let Side::Successor { flows, budget, .. } = &mut self.side else { return };
        let flow = flow_of(left.carrier, &tuple_of(&left.segment));
        if !flows.contains(&flow) && !budget.take(now) {
            return;
        }
        self.datagrams.write(&left.segment);
        let mut message = Writer::new(SEGMENT);
        message.head(left, self.datagrams.size());
        message.0.extend_from_slice(self.datagrams.bytes());
        if let Err(error) = self.channel.send(&message.0, None::<&UdpSocket>) {
            trace!(%error, "a segment was not passed to the earlier process");
        }
    }

    /// Notes that the endpoint of the predecessor has this subflow.
    pub(crate) fn note_flow(&mut self, carrier: CarrierKind, tuple: &FourTuple) {
        let Side::Predecessor { known, untold } = &mut self.side else { return };
        let flow = flow_of(carrier, tuple);
        if known.len() < MAX_FLOWS && known.insert(flow) {
            untold.push_back(flow);
        }
    }

    /// Notes sockets for the predecessor.
    pub(crate) fn note_sockets(&mut self, sockets: Vec<HandedSocket>) {
        if let Side::Successor { untold, .. } = &mut self.side {
            untold.extend(sockets);
        }
    }

    /// Tells the other process what was noted, as far as there is room.
    pub(crate) fn flush(&mut self) {
        match &mut self.side {
            Side::Predecessor { untold, .. } => {
                while !untold.is_empty() {
                    let mut message = Writer::new(FLOWS);
                    untold.iter().take(FLOWS_AT_ONCE).for_each(|flow| message.flow(flow));
                    if self.channel.send(&message.0, None::<&UdpSocket>).is_err() {
                        return;
                    }
                    untold.drain(..untold.len().min(FLOWS_AT_ONCE));
                }
            }
            Side::Successor { untold, .. } => {
                while let Some(socket) = untold.front() {
                    if self.channel.send(&about(socket), Some(&socket.io)).is_err() {
                        return;
                    }
                    untold.pop_front();
                }
            }
        }
    }
}

impl Budget {
    fn take(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| since + plait_base::Duration::from_secs(1) <= now) {
            (self.since, self.spent) = (Some(now), 0);
        }
        self.spent = self.spent.saturating_add(1);
        self.spent <= UNKNOWN_PER_SECOND
    }
}

/// The names of the flows of an endpoint with these four-tuples.
pub(crate) fn flow_of(carrier: CarrierKind, tuple: &FourTuple) -> Flow {
    (carrier, tuple.local.port(), tuple.remote)
}

fn tuple_of(segment: &Segment) -> FourTuple {
    FourTuple { local: segment.destination, remote: segment.source }
}

fn about(socket: &HandedSocket) -> Vec<u8> {
    let mut message = Writer::new(SOCKET);
    message.0.push(socket.is_v4.into());
    message.0.extend(socket.port.to_be_bytes());
    message.0.extend(socket.device_index.to_be_bytes());
    message.0
}

fn socket_of(message: &[u8], descriptor: Option<OwnDescriptor>) -> Option<HandedSocket> {
    let mut reader = Reader(message);
    let (is_v4, port, device_index) = (reader.byte()? == 1, reader.short()?, reader.long()?);
    Some(HandedSocket { is_v4, port, device_index, io: descriptor?.into() })
}

/// The segments of a message: several if the receiver had merged them and they are no super-segment.
fn segments_of(message: &[u8]) -> Vec<Left> {
    let mut found = Vec::new();
    let Some((head, size, ecn, bytes)) = Reader(message).head() else { return found };
    let (mut bytes, mut parts) = (bytes.to_vec(), Vec::new());
    trains(&mut bytes, size, |train| parts.push(train));
    let bytes = Bytes::from(bytes);
    for train in parts {
        let words::Head { carrier, device, local, ends } = head.clone();
        match train.and_then(|train| train.segment(ends, ecn, &bytes)) {
            Ok(segment) => found.push(Left { carrier, device, local, segment }),
            Err(reason) => debug!(?reason, "a passed segment is malformed"),
        }
    }
    found
}

#[cfg(all(test, not(feature = "models"), target_os = "linux"))]
mod tests;
