//! The TCP carrier: IP packets through a TUN device.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_carrier::IpPacket;
use plait_endpoint::Endpoint;
use plait_mptcp::Path;
use plait_tcp::FourTuple;
use plait_wire::Segment;

use crate::batch::{Inbox, Outbox};
use crate::carrier::{Arrivals, Carrier, CarrierPaths, Sent};
use crate::carriers::{CarrierKind, Opened};
use crate::error::Error;
use crate::handover::{Handed, HandedSocket};
use crate::log::{debug, warn};
use crate::path::NumberedPath;
use crate::pool::Buffer;
use crate::ranges::Ranges;
use crate::segmentation::wire_segments;
use crate::sys::{MAX_OFFLOADED, Network, OwnDescriptor, Snapshot, Source, SourceCheck, Tun};

/// Most packets read at once: enough to share one lock, few enough that acknowledgments do not wait.
const READ_BATCH: usize = 32;

/// Opens the carrier.
pub(crate) fn open(ranges: &Ranges, source_check: SourceCheck) -> Result<Opened, Error> {
    let tun = Arc::new(Tun::create()?);
    let network = Network::prepare(tun.clone(), ranges, source_check)?;
    Ok(Opened { carrier: Box::new(OverTun::new(tun)), paths: Box::new(network) })
}

/// The TUN device of a host.
pub(crate) struct OverTun {
    tun: Arc<Tun>,
    /// The buffer that the next packet is read into, if the last one did not keep it.
    spare: Option<Buffer>,
    /// The packet that is being sent.
    packet: IpPacket,
    /// The kernel has refused to cut super-segments: we do.
    cut_here: bool,
    successor: Option<Successor>,
}

/// The process that receives new flows. Connection tracking knows the subflows of ours that have joined since by its addresses, so their
/// segments leave through its device, from there.
struct Successor {
    tun: Arc<Tun>,
    /// The address of its stack, by the four-tuple here.
    joined: BTreeMap<FourTuple, IpAddr>,
    sweep: Option<Instant>,
}

/// Most of these subflows, with those that were refused a moment ago.
const MAX_JOINED: usize = 1 << 14;
/// Interval of the search for ended ones.
const SWEEP: Duration = Duration::from_secs(1);

impl OverTun {
    fn new(tun: Arc<Tun>) -> Self {
        Self { tun, spare: None, packet: IpPacket::default(), cut_here: false, successor: None }
    }

    /// Sends the segment, which connection tracking knows by this address of the successor, through the device of that process.
    fn send_for_successor(&mut self, tun: &Arc<Tun>, segment: &Segment, from: IpAddr) -> io::Result<()> {
        let source = SocketAddr::new(from, segment.source.port());
        self.packet.write(Segment { source, ..segment.clone() });
        let ours = std::mem::replace(&mut self.tun, tun.clone());
        let sent = self.send_packet();
        self.tun = ours;
        match sent {
            // No subflow of ours waits for the device of another process.
            Err(error) if Tun::is_full(&error) || Tun::is_gone(&error) => {
                debug!(%error, "a packet was not sent through the device of the other process");
                Ok(())
            }
            sent => sent,
        }
    }

    fn way_of(&self, segment: &Segment) -> Option<(Arc<Tun>, IpAddr)> {
        let Successor { tun, joined, sweep: _ } = self.successor.as_ref()?;
        let tuple = FourTuple { local: segment.source, remote: segment.destination };
        joined.get(&tuple).map(|from| (tun.clone(), *from))
    }

    fn send_packet(&mut self) -> io::Result<()> {
        let Self { tun, packet, .. } = self;
        let is_super = packet.payload.len() > usize::from(packet.segment_size);
        if !is_super {
            return tun.send(packet);
        }
        if self.cut_here || packet.head.len() + packet.payload.len() > MAX_OFFLOADED {
            return self.send_in_pieces();
        }
        match tun.send(packet) {
            // Some kernels of 2024 refuse all segmentation with this.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                warn!("the kernel refuses super-segments: they are cut here, which is slower");
                self.cut_here = true;
                self.send_in_pieces()
            }
            other => other,
        }
    }

    fn send_in_pieces(&self) -> io::Result<()> {
        in_pieces(&self.packet, |segment| self.tun.send_complete(segment))
    }
}

/// Cuts a super-segment and sends its wire segments by `send`. If the device is full before the first one, the whole waits. If it is full
/// in the middle, the rest is lost, and the protocol sends it again like any other loss: a second attempt would repeat the first ones.
fn in_pieces(packet: &IpPacket, mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let (mut count, mut result) = (0, Ok(()));
    wire_segments(&packet.head, &packet.payload, packet.segment_size, |segment| {
        if result.is_ok() {
            result = send(segment);
            count += usize::from(result.is_ok());
        }
    });
    match result {
        Err(error) if count > 0 && (Tun::is_full(&error) || error.kind() == ErrorKind::Interrupted) => {
            debug!(count, %error, "the rest of a super-segment is lost");
            Ok(())
        }
        result => result,
    }
}

impl Carrier for OverTun {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Tcp
    }

    fn longest_super_segment(&self) -> u16 {
        u16::MAX
    }

    fn readiness(&self) -> Option<Source<'_>> {
        Some(self.tun.source())
    }

    fn receive(&mut self, inbox: &mut Inbox<'_>) -> io::Result<Arrivals> {
        for _ in 0..READ_BATCH {
            let mut buffer = self.spare.take().unwrap_or_else(|| inbox.buffer());
            let (len, received) = match self.tun.receive(buffer.as_mut()) {
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
            let Some(received) = received else {
                debug!(len, "a packet that is no TCP segment of any kind");
                continue;
            };
            inbox.take_packet(&packet, received);
        }
        Ok(Arrivals::More)
    }

    fn send(&mut self, outbox: &mut Outbox<'_>) -> io::Result<Sent> {
        while let Some(next) = outbox.next() {
            let sent = match self.way_of(&next.segment) {
                Some((tun, from)) => self.send_for_successor(&tun, &next.segment, from),
                None => {
                    self.packet.write(next.segment.clone());
                    self.send_packet()
                }
            };
            self.packet.payload = Bytes::new();
            match sent {
                // Address translation decides from which address it leaves.
                Ok(()) => outbox.sent(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if Tun::is_full(&error) => return Ok(Sent::Some),
                Err(error) if Tun::is_gone(&error) => return Err(error),
                // The path is down for a moment, or the kernel cannot take the packet.
                Err(error) => {
                    debug!(%error, "a packet was not sent");
                    outbox.lost();
                }
            }
        }
        Ok(Sent::All)
    }

    /// The answers to a subflow that begins by way of the successor take the same way.
    fn note_passed(&mut self, segment: &Segment, destination: IpAddr, is_known: bool) {
        let Some(Successor { joined, .. }) = self.successor.as_mut().filter(|_| !is_known) else { return };
        if joined.len() < MAX_JOINED {
            let tuple = FourTuple { local: segment.destination, remote: segment.source };
            joined.insert(tuple, destination);
        }
    }

    fn adopt(&mut self, handed: Handed) {
        match handed {
            Handed::Device(device) => {
                let tun = Arc::new(Tun::of_other(device));
                self.successor = Some(Successor { tun, joined: BTreeMap::new(), sweep: None });
            }
            Handed::Socket(_) => {}
        }
    }

    /// The device is gone when its last descriptor is closed.
    fn end_handover(&mut self) {
        self.successor = None;
    }

    fn maintain(&mut self, now: Instant, endpoint: &Endpoint) -> Option<Instant> {
        let Successor { joined, sweep, tun: _ } = self.successor.as_mut()?;
        if sweep.is_none_or(|sweep| sweep <= now) {
            joined.retain(|tuple, _| endpoint.has_tuple(tuple));
            *sweep = Some(now + SWEEP);
        }
        sweep.filter(|_| !joined.is_empty())
    }
}

impl CarrierPaths for Network {
    fn refresh(&mut self, snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error> {
        self.refresh(snapshot, changed)
    }

    fn set_path(&mut self, path: NumberedPath) -> Result<(), Error> {
        self.set_path(path)
    }

    fn open_port(&mut self, port: u16) -> Result<(), Error> {
        self.open_port(port)
    }

    fn close_port(&mut self, port: u16) {
        self.close_port(port);
    }

    fn hand_over(&mut self) -> Result<Vec<HandedSocket>, Error> {
        self.hand_over();
        Ok(Vec::new())
    }

    fn leave_ports(&mut self) {
        self.leave_ports();
    }

    fn take_back(&mut self) {
        self.take_back();
    }

    fn take_over(&mut self, _sockets: &mut Vec<HandedSocket>) -> Result<Option<OwnDescriptor>, Error> {
        self.share_device()
    }

    fn kernel_addresses(&self) -> Vec<IpAddr> {
        self.kernel_addresses().to_vec()
    }

    fn has_rules(&self) -> bool {
        true
    }

    fn mend_rules(&mut self, opened: &mut dyn FnMut() -> BTreeSet<u16>) -> Result<bool, Error> {
        self.mend_rules(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use plait_base::SeqNum;
    use plait_wire::{Flags, OptionBytes, Segment};

    fn super_segment(pieces: usize) -> Segment {
        Segment {
            source: "198.18.0.10:1000".parse().expect("an address"),
            destination: "203.0.113.7:80".parse().expect("an address"),
            seq: SeqNum::new(1),
            ack: SeqNum::new(1),
            flags: Flags::ACK,
            window: 100,
            urgent: 0,
            options: OptionBytes::default(),
            payload: vec![7; pieces * 100].into(),
            segment_size: 100,
            ecn: 0,
            flow_label: 0,
        }
    }

    #[test]
    fn a_super_segment_without_room_waits_and_one_with_room_for_a_part_loses_the_rest() {
        let mut packet = IpPacket::default();
        packet.write(super_segment(3));
        // The device has room for this many wire segments. Returns whether the super-segment is done with, and the number that left.
        let sent = |room: usize| {
            let mut sent = 0;
            let result = in_pieces(&packet, |_| {
                if sent == room {
                    return Err(io::Error::from_raw_os_error(libc::EAGAIN));
                }
                sent += 1;
                Ok(())
            });
            (result.is_ok(), sent)
        };
        assert_eq!(sent(3), (true, 3), "all of it");
        assert_eq!(sent(2), (true, 2), "a second attempt would send the first two again");
        assert_eq!(sent(0), (false, 0), "it waits");
    }
}
