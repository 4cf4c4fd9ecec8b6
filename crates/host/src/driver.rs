//! The event loop: moves packets between the carriers and the endpoint, on a thread of its own.
//!
//! One turn reads and parses the packets that have arrived, without the lock. It then holds the lock for the protocol alone
//! (packets in, timers, packets out, events), and writes without it. An application therefore waits for the protocol's few
//! microseconds per packet and never for the kernel.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use plait_base::{Duration, Instant, PathId};
use plait_carrier::IpPacket;
use plait_endpoint::{Arrival, ConnectionId, Endpoint};
use plait_mptcp::{CryptoJob, CryptoResult};
use plait_pcap::Direction;
use plait_tcp::FourTuple;
use plait_wire::{Malformed, Packet, Segment};
use tracing::{debug, error, trace, warn};

use crate::capture::Capture;
use crate::pool::{Buffer, Pool};
use crate::refusals::{Line, Refusals};
use crate::segmentation::wire_segments;
use crate::shared::{Phase, Shared, State};
use crate::sys::{MAX_OFFLOADED, Received, Room, Tun};
use crate::udp::{self, Asking, Datagrams, Udp};
use crate::workers::Workers;

/// Most packets read before the endpoint gets them: enough to share one lock, few enough that acknowledgments do not wait.
const READ_BATCH: usize = 32;
/// Packets written before arrivals are looked at again: 16 super-segments take the kernel 350 µs.
const WRITE_BATCH: usize = 16;

/// Room for any packet: an IP packet is at most 65,535 bytes, or 40 more for IPv6.
const BUFFER_LEN: usize = 65_536 + 64;
/// Spare receive buffers that are kept, 4 MiB in all: enough for what arrives between two looks.
const MAX_SPARE: usize = 64;

/// Time after which a full device is tried again if it cannot signal that it has room.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The state of the thread that moves the packets.
pub(crate) struct Driver {
    tun: Option<Arc<Tun>>,
    udp: Option<OverUdp>,
    shared: Arc<Shared>,
    capture: Option<Capture>,
    pool: Pool,
    /// The buffer that the next packet is read into, if the last one did not keep it.
    spare: Option<Buffer>,
    /// The received packets, with their time, and their path if it is known.
    arrived: Vec<Arrived>,
    /// The first `filled` are to be sent; the rest keep their allocations.
    outgoing: Vec<Outgoing>,
    filled: usize,
    sent: usize,
    woken: Vec<Waker>,
    /// The kernel has refused to cut super-segments: we do.
    cut_here: bool,
    crypto: Option<Crypto>,
    refusals: Refusals,
}

/// A received packet.
struct Arrived {
    arrival: Arrival,
    /// Over UDP, to a listening socket: the local address that it was sent to.
    asking: Option<Asking>,
    packet: Result<Packet, Malformed>,
}

/// An outgoing packet for the TUN device, or segment for the sockets of a path.
#[derive(Default)]
struct Outgoing {
    packet: IpPacket,
    over_udp: Option<(PathId, Segment)>,
}

/// The sockets of UDP.
struct OverUdp {
    sockets: Arc<Udp>,
    receiver: udp::Receiver,
    sender: udp::Sender,
    sweep: Option<Instant>,
}

/// The carriers of a host: at least one of them.
#[derive(Clone)]
pub(crate) struct Carriers {
    pub(crate) tun: Option<Arc<Tun>>,
    pub(crate) udp: Option<Arc<Udp>>,
}

/// Sealing and opening on other threads.
struct Crypto {
    workers: Workers,
    jobs: Vec<(ConnectionId, CryptoJob)>,
    results: Vec<(ConnectionId, CryptoResult)>,
}

/// The result of a turn.
struct Turn {
    /// The latest time of the next turn.
    deadline: Option<Instant>,
    phase: Phase,
    refusal: Option<Line>,
}

/// The state of the device after a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    All,
    /// The device is full.
    Some,
}

/// The result of sending a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    ByTun,
    /// From this address of the host.
    BySocket(SocketAddr),
    /// The segment is lost.
    NotAtAll,
}

/// Whether more packets probably wait in the same source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrivals {
    Drained,
    More,
}

impl Driver {
    pub(crate) fn new(
        carriers: Carriers,
        shared: Arc<Shared>,
        capture: Option<Capture>,
        workers: Option<Workers>,
    ) -> Self {
        let Carriers { tun, udp } = carriers;
        Self {
            tun,
            udp: udp.map(OverUdp::new),
            shared,
            capture,
            pool: Pool::new(BUFFER_LEN, MAX_SPARE),
            spare: None,
            arrived: Vec::with_capacity(READ_BATCH),
            outgoing: std::iter::repeat_with(Outgoing::default).take(WRITE_BATCH).collect(),
            filled: 0,
            sent: 0,
            woken: Vec::new(),
            cut_here: false,
            crypto: workers.map(|workers| Crypto { workers, jobs: Vec::new(), results: Vec::new() }),
            refusals: Refusals::default(),
        }
    }

    /// Runs until the host is told to stop or the device is gone.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.turns() {
            let device = self.tun.as_ref().map(|tun| tun.name());
            error!(%error, device, "what carries the packets is gone");
        }
    }

    fn turns(&mut self) -> io::Result<()> {
        loop {
            self.shared.wake.begin_to_look();
            let arrivals = self.receive()?;
            self.receive_over_udp()?;
            let turn = self.turn();
            self.woken.drain(..).for_each(Waker::wake);
            if let Some(line) = &turn.refusal {
                line.write();
            }
            let sent = self.send()?;
            if turn.phase == Phase::Stopping {
                return self.last_turns(sent);
            }
            match (arrivals, sent) {
                // The kernel took everything: there may be more to send, or to read.
                (_, Sent::All) if self.filled == WRITE_BATCH => {}
                (Arrivals::More, Sent::All) => {}
                (_, sent) => self.wait(turn.deadline, sent)?,
            }
        }
    }

    /// Reads packets until there are none or the batch is full.
    fn receive(&mut self) -> io::Result<Arrivals> {
        let Some(tun) = self.tun.clone() else { return Ok(Arrivals::Drained) };
        while self.arrived.len() < READ_BATCH {
            let mut buffer = self.spare.take().unwrap_or_else(|| self.pool.take());
            let (len, received) = match tun.receive(buffer.as_mut()) {
                Ok(read) => read,
                Err(error) => {
                    self.spare = Some(buffer);
                    return match error.kind() {
                        ErrorKind::WouldBlock => Ok(Arrivals::Drained),
                        ErrorKind::Interrupted | ErrorKind::UnexpectedEof => Ok(Arrivals::More),
                        _ => Err(error),
                    };
                }
            };
            let (packet, rest) = buffer.split(len);
            self.spare = rest;
            match received {
                Some(received) => self.take(&packet, received),
                None => debug!(len, "a packet that is no TCP segment of any kind"),
            }
        }
        Ok(Arrivals::More)
    }

    /// Reads the sockets of UDP. What is left there makes them readable in the next turn.
    fn receive_over_udp(&mut self) -> io::Result<()> {
        let Self { udp: Some(udp), arrived, shared, capture, pool, .. } = self else { return Ok(()) };
        udp.receiver.receive(pool, |Datagrams { path, local, asking, packet }| {
            let arrival = Arrival { at: shared.clock.now(), path: Some(path) };
            match (&packet, capture.as_mut()) {
                (Ok(Packet::Tcp(segment)), Some(capture)) => {
                    capture.carried(Direction::Inbound, segment.clone(), local);
                }
                (Ok(Packet::Icmp(error)), _) => debug!(reason = ?error.reason, "ICMP error about a datagram"),
                (Err(reason), _) => trace!(?reason, "datagram dropped: malformed"),
                (Ok(_), None) => {}
            }
            arrived.push(Arrived { arrival, asking, packet });
            arrived.len() < 2 * READ_BATCH
        })?;
        Ok(())
    }

    /// Takes a packet that has been read. Its time is now, however long the rest of the batch and the lock take.
    fn take(&mut self, packet: &Bytes, received: Received) {
        let now = self.shared.clock.now();
        if let Some(capture) = &mut self.capture {
            capture.received(packet, received);
        }
        let parsed = Packet::parse(packet, received.segment_size, received.trust);
        let parsed = parsed.and_then(|packet| match packet {
            // That is an address within the stack: nothing on a network has it.
            Packet::Tcp(segment) if udp::path_of(segment.destination.ip()).is_some() => {
                Err(Malformed::Address)
            }
            packet => Ok(packet),
        });
        if let Err(reason) = &parsed {
            debug!(?reason, len = packet.len(), "packet dropped: malformed");
        }
        self.arrived.push(Arrived { arrival: Arrival::at(now), asking: None, packet: parsed });
    }

    /// The protocol's part, under the lock.
    fn turn(&mut self) -> Turn {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let State { endpoint, malformed, phase, .. } = &mut *state;
        for Arrived { arrival, asking, packet } in self.arrived.drain(..) {
            match packet {
                Ok(Packet::Tcp(segment)) => {
                    if let (Some(udp), Some(asking)) = (&self.udp, asking) {
                        udp.sockets.note_asking(&segment, asking, |tuple| endpoint.has_tuple(tuple));
                    }
                    endpoint.handle_segment(arrival, &segment);
                }
                Ok(Packet::Icmp(error)) => endpoint.handle_icmp(arrival, &error),
                Err(reason) => malformed.count(reason),
            }
        }
        // Not before the arrivals: their times are in the past, and time must not run backwards.
        let now = shared.clock.now();
        if *phase == Phase::Stopping {
            endpoint.abort_all(now);
        }
        if let Some(crypto) = &mut self.crypto {
            crypto.take_results(now, endpoint);
        }
        if endpoint.poll_timeout().is_some_and(|deadline| deadline <= now) {
            endpoint.handle_timeout(now);
        }
        // Packets that the device did not take are sent first.
        if self.sent == self.filled {
            (self.sent, self.filled) = (0, 0);
            while self.filled < WRITE_BATCH
                && let Some(transmit) = endpoint.poll_transmit(now)
            {
                self.outgoing[self.filled].write(transmit.segment);
                self.filled += 1;
            }
        }
        if let Some(crypto) = &mut self.crypto {
            crypto.give_jobs(endpoint);
        }
        let refusal = self.refusals.look(now, endpoint);
        let sweep = self.udp.as_mut().and_then(|udp| udp.sweep(now, endpoint));
        let deadline = [endpoint.poll_timeout(), sweep].into_iter().flatten().min();
        let turn = Turn { deadline, phase: *phase, refusal };
        state.collect_wakers(&mut self.woken);
        turn
    }

    /// Writes the packets of the turn.
    fn send(&mut self) -> io::Result<Sent> {
        while self.sent < self.filled {
            let index = self.sent;
            let left = match self.send_one(index) {
                Ok(left) => left,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if Tun::is_full(&error) => return Ok(Sent::Some),
                Err(error) if Tun::is_gone(&error) => return Err(error),
                // The path is down for a moment, or the kernel cannot take the packet: it is lost, as on any network.
                Err(error) => {
                    debug!(%error, "a packet was not sent");
                    Left::NotAtAll
                }
            };
            let Outgoing { packet, over_udp } = &mut self.outgoing[index];
            let over_udp = over_udp.take();
            if let Some(capture) = &mut self.capture {
                match left {
                    Left::ByTun => capture.sent(packet),
                    Left::BySocket(local) => {
                        over_udp.into_iter().for_each(|(_, segment)| {
                            capture.carried(Direction::Outbound, segment, local);
                        });
                    }
                    Left::NotAtAll => {}
                }
            }
            packet.payload = Bytes::new();
            self.sent += 1;
        }
        Ok(Sent::All)
    }

    fn send_one(&mut self, index: usize) -> io::Result<Left> {
        let Outgoing { packet: _, over_udp } = &self.outgoing[index];
        let Some((path, segment)) = over_udp else {
            return self.send_by_tun(index).map(|()| Left::ByTun);
        };
        let Some(udp) = &mut self.udp else { return Ok(Left::NotAtAll) };
        let sent = udp.sender.send(self.shared.clock.now(), *path, segment).map(Left::BySocket);
        // A full queue counts as a loss, too: no other path must wait for it.
        sent.or_else(|error| {
            trace!(%error, "a datagram was not sent");
            Ok(Left::NotAtAll)
        })
    }

    fn send_by_tun(&mut self, index: usize) -> io::Result<()> {
        let packet = &self.outgoing[index].packet;
        let Some(tun) = &self.tun else { return Ok(()) };
        let is_super = packet.payload.len() > usize::from(packet.segment_size);
        if !is_super {
            return tun.send(packet);
        }
        if self.cut_here || packet.head.len() + packet.payload.len() > MAX_OFFLOADED {
            return self.send_in_pieces(index);
        }
        match tun.send(packet) {
            // Some kernels of 2024 refuse all segmentation with this.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                warn!("the kernel refuses super-segments: they are cut here, which is slower");
                self.cut_here = true;
                self.send_in_pieces(index)
            }
            other => other,
        }
    }

    /// Cuts a super-segment here. If the device is full in the middle, the rest is lost, and the protocol sends it again like
    /// any other loss.
    fn send_in_pieces(&self, index: usize) -> io::Result<()> {
        let packet = &self.outgoing[index].packet;
        let Some(tun) = &self.tun else { return Ok(()) };
        let mut result = Ok(());
        wire_segments(&packet.head, &packet.payload, packet.segment_size, |segment| {
            if result.is_ok() {
                result = tun.send_complete(segment);
            }
        });
        result
    }

    /// Waits for a packet, for room in the device, for the deadline or for a request.
    fn wait(&self, deadline: Option<Instant>, sent: Sent) -> io::Result<()> {
        if !self.shared.wake.may_sleep() {
            return Ok(());
        }
        let now = self.shared.clock.now();
        let mut timeout = deadline.map(|deadline| deadline.saturating_since(now));
        let room = match sent {
            Sent::All => Room::NotNeeded,
            Sent::Some => {
                timeout = Some(timeout.unwrap_or(RETRY_AFTER).min(RETRY_AFTER));
                Room::Awaited
            }
        };
        let tun = self.tun.as_deref().map(|tun| (tun, room));
        let sockets = self.udp.as_ref().map(|udp| udp.sockets.watched());
        self.shared.wake.signal().wait(tun, sockets, timeout)
    }

    /// Sends the resets of the connections that were still open, as far as the device takes them.
    fn last_turns(&mut self, mut sent: Sent) -> io::Result<()> {
        while sent == Sent::All && self.filled > 0 {
            self.turn();
            self.woken.drain(..).for_each(Waker::wake);
            sent = self.send()?;
        }
        Ok(())
    }
}

impl Outgoing {
    fn write(&mut self, segment: Segment) {
        match udp::path_of(segment.source.ip()) {
            Some(path) => self.over_udp = Some((path, segment)),
            None => {
                self.over_udp = None;
                self.packet.write(segment);
            }
        }
    }
}

impl OverUdp {
    fn new(sockets: Arc<Udp>) -> Self {
        let receiver = udp::Receiver::new(sockets.clone());
        let sender = udp::Sender::new(sockets.clone());
        Self { sockets, receiver, sender, sweep: None }
    }

    /// Maintains the sockets when it is time. Returns the next time, if there is a socket to maintain.
    fn sweep(&mut self, now: Instant, endpoint: &Endpoint) -> Option<Instant> {
        if self.sweep.is_none_or(|sweep| sweep <= now) {
            let ports = || endpoint.local_ports();
            let use_of = |tuple: &FourTuple| match endpoint.has_tuple(tuple) {
                false => udp::Use::None,
                true if endpoint.is_in_time_wait(tuple) => udp::Use::Waits,
                true => udp::Use::Full,
            };
            self.sockets.sweep(now, use_of, |port| ports().contains(&port));
            self.sweep = self.sockets.next_sweep(now);
        }
        self.sockets.sort_strangers(|tuple| endpoint.has_tuple(tuple));
        self.sweep
    }
}

impl Crypto {
    fn take_results(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.workers.collect(&mut self.results);
        for (id, result) in self.results.drain(..) {
            endpoint.handle_crypto(now, id, result);
        }
    }

    fn give_jobs(&mut self, endpoint: &mut Endpoint) {
        self.jobs.extend(std::iter::from_fn(|| endpoint.poll_crypto()));
        self.workers.give(&mut self.jobs);
    }
}

impl Drop for Driver {
    /// However the driver ends, even by a panic, all waiting tasks are woken.
    fn drop(&mut self) {
        let woken = self.shared.lock().stop();
        woken.into_iter().for_each(Waker::wake);
    }
}
