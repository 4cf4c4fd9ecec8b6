//! Captures in pcapng: what the stack sends and receives, one interface per path.
//!
//! A super-segment is written as its wire segments, with complete checksums, so that a reader of captures sees a network and not our
//! offloads. Addresses and ports are those on that network, not the stack's private ones. A segment over UDP is written as TCP, which any
//! reader decodes, with the addresses and ports of its datagram. A device that gets another name is a new interface from then on: pcapng cannot
//! rename one.

mod addresses;
mod outside;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use plait_carrier::IpPacket;
use plait_mptcp::{Path, PathClass};
use plait_pcap::{Direction, Packet, Writer};
use plait_tcp::FourTuple;
use plait_wire::Trust;

use self::addresses::{Place, own_address};
pub(crate) use self::outside::Outside;
use crate::carriers::CarrierKind;
use crate::error::Error;
use crate::log::error;
use crate::path::class_word;
use crate::segmentation::{Layout, wire_segments};
use crate::sys::Received;

/// Packets between the driver and the file: 16 MiB at most. The driver waits for a slower disk, because a
/// capture with holes misleads.
const QUEUE: usize = 256;

/// How long the name of a path counts.
const NAME_LASTS: Duration = Duration::from_secs(1);

/// The name of a path in the capture, and the stack's addresses on it.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Interface {
    /// A path that came while the capture was written.
    pub(crate) fn of(path: &Path, carrier: CarrierKind) -> Self {
        let addresses = path.v4.map(IpAddr::V4).into_iter().chain(path.v6.map(IpAddr::V6)).collect();
        Self::named(&path.name, (path.class, path.backup), carrier, addresses)
    }

    /// A path over a device, of this class, which may be a backup.
    pub(crate) fn named(
        device: &str,
        (class, is_backup): (PathClass, bool),
        carrier: CarrierKind,
        addresses: Vec<IpAddr>,
    ) -> Self {
        let class = class_word(class);
        let backup = if is_backup { ", backup" } else { "" };
        let description = format!("path, {class}{backup}{}", carrier.in_captures());
        Self { name: device.to_owned(), description, addresses }
    }
}

/// An open capture. Dropping it writes the rest.
pub(crate) struct Capture {
    queue: Option<SyncSender<Captured>>,
    writer: Option<JoinHandle<()>>,
}

struct Captured {
    at: Duration,
    direction: Direction,
    /// The whole packet, or headers alone with the payload beside them.
    head: Bytes,
    payload: Bytes,
    segment_size: u16,
    trust: Trust,
    /// Our end on the network, where it is a socket's and not for address translation to say.
    socket: Option<SocketAddr>,
}

impl Capture {
    /// Creates or empties `file` and writes its beginning.
    pub(crate) fn create(
        file: &FilePath,
        interfaces: Vec<Interface>,
        outside: Outside,
    ) -> Result<Self, Error> {
        let wrong = |source| Error::Capture { file: file.display().to_string(), source };
        let mut output = File::create(file)
            .and_then(|file| Output::begin(BufWriter::new(file), interfaces, outside))
            .map_err(wrong)?;
        let (queue, packets) = sync_channel(QUEUE);
        let run = move || {
            if let Err(error) = output.write_all(&packets) {
                error!(%error, "the capture ends here");
                // The driver goes on without: its packets are taken and thrown away.
                packets.iter().for_each(drop);
            }
        };
        let writer = std::thread::Builder::new().name("plait-capture".into()).spawn(run).map_err(wrong)?;
        Ok(Self { queue: Some(queue), writer: Some(writer) })
    }

    pub(crate) fn received(&mut self, packet: &Bytes, received: Received) {
        let Received { segment_size, trust } = received;
        self.push(Direction::Inbound, packet.clone(), Bytes::new(), (segment_size, trust), None);
    }

    /// Captures a segment as the TCP packet that it is, or would have been. `socket` is our end on the network, unless address translation
    /// decides it.
    pub(crate) fn segment(
        &mut self,
        direction: Direction,
        segment: plait_wire::Segment,
        socket: Option<SocketAddr>,
    ) {
        let mut packet = IpPacket::default();
        packet.write(segment);
        let IpPacket { head, payload, segment_size, .. } = packet;
        self.push(direction, head.into(), payload, (segment_size, Trust::Offloaded), socket);
    }

    fn push(
        &mut self,
        direction: Direction,
        head: Bytes,
        payload: Bytes,
        (segment_size, trust): (u16, Trust),
        socket: Option<SocketAddr>,
    ) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(queue) = &self.queue {
            // It fails only if the writer has panicked, which it has reported.
            let _ = queue.send(Captured { at, direction, head, payload, segment_size, trust, socket });
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// The file and what has been said in it.
struct Output<W: Write> {
    file: Writer<W>,
    interfaces: Vec<Interface>,
    /// When the name of the path with this address of the stack was asked for, by the times of the packets.
    named_at: BTreeMap<IpAddr, Duration>,
    outside: Outside,
}

impl<W: Write> Output<W> {
    fn begin(writer: W, interfaces: Vec<Interface>, outside: Outside) -> io::Result<Self> {
        let application = concat!("plait ", env!("CARGO_PKG_VERSION"));
        let described = interfaces.iter().map(described);
        let file = Writer::new(writer, Some(application), described)?;
        Ok(Self { file, interfaces, named_at: BTreeMap::new(), outside })
    }

    fn write_all(&mut self, packets: &Receiver<Captured>) -> io::Result<()> {
        while let Ok(first) = packets.recv() {
            self.write(&first)?;
            while let Ok(next) = packets.try_recv() {
                self.write(&next)?;
            }
            // No data is held back: a reader that follows the file sees all packets.
            self.file.flush()?;
        }
        Ok(())
    }

    /// Writes a packet as the wire segments that it stands for.
    fn write(&mut self, packet: &Captured) -> io::Result<()> {
        let Captured { at, direction, head, payload, segment_size, trust, socket: _ } = packet;
        let Some(interface) = self.interface_of(head, *direction, *at)? else { return Ok(()) };
        let layout = Layout::of(head);
        let (headers, behind) = head.split_at(layout.map_or(head.len(), |layout| layout.payload));
        let mut headers = headers.to_vec();
        self.translate(&mut headers, packet);
        // What arrived in one piece with a checksum of its own is kept as it is, with a wrong one too.
        let is_complete = *direction == Direction::Inbound && *segment_size == 0 && *trust == Trust::Verify;
        let Some(layout) = layout.filter(|_| !is_complete) else {
            let whole = [&headers[..], behind, payload].concat();
            return self.block(interface, *at, *direction, &whole);
        };
        let inner = behind.get(..(layout.end - layout.payload).min(behind.len())).unwrap_or_default();
        let payload = if payload.is_empty() { inner } else { payload };
        let step = if *segment_size == 0 { u16::MAX } else { *segment_size };
        let mut result = Ok(());
        wire_segments(&headers, payload, step, |segment| {
            if result.is_ok() {
                result = self.block(interface, *at, *direction, segment);
            }
        });
        result
    }

    fn block(&mut self, interface: u32, at: Duration, direction: Direction, data: &[u8]) -> io::Result<()> {
        self.file.write(&Packet::new(interface, at, data).going(direction))
    }

    /// Puts the addresses and ports of the network into the beginning of a packet.
    fn translate(&mut self, headers: &mut [u8], packet: &Captured) {
        let Some(place) = Place::of(headers, packet.direction) else { return };
        let Some(inside) = place.tuple(headers) else { return };
        let outside = match packet.socket {
            Some(local) => FourTuple { local, ..inside },
            None => self.outside.of(inside, packet.at, place.begins(headers)),
        };
        place.replace(headers, &outside, self.outside.kernel());
    }

    /// The path that has the stack's address in the packet; it may be one that came later, or one with another name now. Packets of no path
    /// are no business of a capture.
    fn interface_of(&mut self, packet: &[u8], direction: Direction, at: Duration) -> io::Result<Option<u32>> {
        let Some(address) = own_address(packet, direction) else { return Ok(None) };
        let known = self.interfaces.iter().position(|interface| interface.addresses.contains(&address));
        let index = match self.newer(known, address, at) {
            Some(newer) => {
                self.file.describe(&described(&newer))?;
                for older in &mut self.interfaces {
                    older.addresses.retain(|address| !newer.addresses.contains(address));
                }
                self.interfaces.push(newer);
                Some(self.interfaces.len() - 1)
            }
            None => known,
        };
        Ok(index.and_then(|index| u32::try_from(index).ok()))
    }

    /// The path with this address of the stack, if it is not known yet, or under another name.
    fn newer(&mut self, known: Option<usize>, address: IpAddr, at: Duration) -> Option<Interface> {
        let Some(known) = known else { return self.outside.interface(address) };
        if self.named_at.get(&address).is_some_and(|last| at.abs_diff(*last) < NAME_LASTS) {
            return None;
        }
        self.named_at.insert(address, at);
        self.outside.interface(address).filter(|now| now.name != self.interfaces[known].name)
    }
}

fn described(Interface { name, description, addresses: _ }: &Interface) -> plait_pcap::Interface {
    let description = Some(description.clone());
    plait_pcap::Interface { description, ..plait_pcap::Interface::named(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_pcap::Reader;
    use std::sync::{Arc, Mutex};

    fn head(payload_len: usize) -> Vec<u8> {
        let mut head = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 10, 203, 0, 113, 7];
        head[2..4].copy_from_slice(&((40 + payload_len) as u16).to_be_bytes());
        head.extend([0x80, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        head
    }

    fn written(packets: &[Captured]) -> Vec<Packet<'static>> {
        let interfaces = ["eth0", "wlan0"].into_iter().zip(10..).map(|(name, host)| Interface {
            name: name.to_owned(),
            description: "trusted".to_owned(),
            addresses: vec![[198, 18, 0, host].into(), std::net::Ipv6Addr::LOCALHOST.into()],
        });
        let outside = Outside::new(
            |inside| {
                // A device with two addresses: the peer has used the second one, or the port was taken.
                let local = match inside.local.port() {
                    80 => "192.0.2.99:80",
                    32_768 => "192.0.2.1:61000",
                    _ => return None,
                };
                Some(FourTuple { local: local.parse().expect("an address"), ..*inside })
            },
            |own| (own == IpAddr::from([198, 18, 0, 11])).then_some([192, 0, 2, 2].into()),
            Vec::new(),
        );
        let mut output = Output::begin(Vec::new(), interfaces.collect(), outside).expect("memory");
        for packet in packets {
            output.write(packet).expect("memory");
        }
        let bytes = output.file.into_inner();
        Reader::new(&bytes[..]).expect("pcapng").map(|packet| packet.expect("well-formed")).collect()
    }

    #[test]
    fn a_super_segment_is_written_as_the_segments_on_the_wire() {
        let at = Duration::new(1_700_000_000, 123_456_789);
        let payload = Bytes::from(vec![7; 2500]);
        let packet = Captured {
            at,
            direction: Direction::Outbound,
            head: head(2500).into(),
            payload,
            segment_size: 1000,
            trust: Trust::Offloaded,
            socket: None,
        };
        let found = written(&[packet]);
        assert_eq!(found.iter().map(|packet| packet.data.len()).collect::<Vec<_>>(), [1040, 1040, 540]);
        for packet in found {
            assert_eq!((packet.interface, packet.at, packet.direction), (0, at, Some(Direction::Outbound)));
            plait_wire::Packet::parse(&packet.data.into_owned().into(), 0, Trust::Verify)
                .expect("complete checksums");
        }
    }

    #[test]
    fn a_single_packet_with_its_own_checksum_is_kept_bit_by_bit() {
        let mut bytes = head(3);
        bytes[16..20].copy_from_slice(&[198, 18, 0, 11]);
        bytes.extend(b"abc");
        bytes[36] = 0xbb;
        let packet = Captured {
            at: Duration::ZERO,
            direction: Direction::Inbound,
            head: bytes.clone().into(),
            payload: Bytes::new(),
            segment_size: 0,
            trust: Trust::Verify,
            socket: None,
        };
        let found = written(&[packet]);
        // As it came to the device, before it was translated: 192.0.2.99 in place of 198.18.0.11.
        bytes[16..20].copy_from_slice(&[192, 0, 2, 99]);
        let sums = [10, 36].map(|at| u16::from_be_bytes([found[0].data[at], found[0].data[at + 1]]));
        let before = [10, 36].map(|at| u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let moved = |sum: u16| {
            let words = u32::from(!sum) + u32::from(!0xc612_u16) + u32::from(!0x000b_u16) + 0xc000 + 0x0263;
            !((words & 0xffff) + (words >> 16)) as u16
        };
        assert_eq!(sums, before.map(moved), "as wrong as they were");
        let mut rest = found[0].data.to_vec();
        rest[10..12].copy_from_slice(&bytes[10..12]);
        rest[36..38].copy_from_slice(&bytes[36..38]);
        assert_eq!((found[0].interface, rest), (1, bytes), "on the second path, and nothing else is changed");
    }

    /// Source and destination of the packets in a capture, whose checksums must be right.
    fn ends(found: &[Packet<'_>]) -> Vec<[String; 2]> {
        let parse = |packet: &Packet<'_>| {
            plait_wire::Packet::parse(&packet.data.to_vec().into(), 0, Trust::Verify).expect("a good packet")
        };
        let segments = found.iter().map(|packet| match parse(packet) {
            plait_wire::Packet::Tcp(segment) => segment,
            plait_wire::Packet::Icmp(_) => unreachable!("TCP goes in"),
        });
        segments.map(|segment| [segment.source.to_string(), segment.destination.to_string()]).collect()
    }

    #[test]
    fn a_packet_has_the_addresses_and_ports_that_it_has_on_the_network() {
        let captured = |head: Vec<u8>, socket: Option<&str>| Captured {
            at: Duration::ZERO,
            direction: Direction::Outbound,
            head: head.into(),
            payload: Bytes::from_static(b"abc"),
            segment_size: 1000,
            trust: Trust::Offloaded,
            socket: socket.map(|address| address.parse().expect("an address")),
        };
        let ([first, mut second], mut unknown) = ([head(3), head(3)], head(3));
        second[20..22].copy_from_slice(&80_u16.to_be_bytes());
        unknown[15] = 11;
        unknown[20..22].copy_from_slice(&7_u16.to_be_bytes());
        let over_udp = captured(first.clone(), Some("192.0.2.1:40123"));
        let found = [captured(first, None), captured(second, None), captured(unknown, None), over_udp];
        let sources = ["192.0.2.1:61000", "192.0.2.99:80", "192.0.2.2:7", "192.0.2.1:40123"];
        assert_eq!(
            ends(&written(&found)),
            sources.map(|from| [from.to_owned(), "203.0.113.7:80".to_owned()])
        );
    }

    #[test]
    fn a_device_that_is_renamed_is_a_new_interface_from_then_on() {
        let own = IpAddr::from([198, 18, 0, 10]);
        let interface = move |name: &str| Interface {
            name: name.to_owned(),
            description: "path, trusted".to_owned(),
            addresses: vec![own],
        };
        let name = Arc::new(Mutex::new("wan1"));
        let now = name.clone();
        let outside = Outside::new(|_| None, |_| None, Vec::new())
            .describing(move |address| (address == own).then(|| interface(*now.lock().expect("no panic"))));
        let mut output = Output::begin(Vec::new(), vec![interface("wan1")], outside).expect("memory");
        for (second, new_name) in [(1, "wan1"), (2, "wan1"), (3, "wwan5"), (4, "wwan5"), (5, "wan1")] {
            *name.lock().expect("no panic") = new_name;
            let packet = Captured {
                at: Duration::from_secs(second),
                direction: Direction::Outbound,
                head: head(0).into(),
                payload: Bytes::new(),
                segment_size: 1000,
                trust: Trust::Offloaded,
                socket: None,
            };
            output.write(&packet).expect("memory");
        }
        let bytes = output.file.into_inner();
        let mut reader = Reader::new(&bytes[..]).expect("pcapng");
        let mut on = Vec::new();
        while let Some(packet) = reader.next() {
            let index = packet.expect("well-formed").interface as usize;
            on.push((index, reader.interfaces()[index].name.clone()));
        }
        let names = on.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>();
        assert_eq!(names, ["wan1", "wan1", "wwan5", "wwan5", "wan1"]);
        assert_eq!(on.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn what_belongs_to_no_path_is_left_out() {
        let mut bytes = head(0);
        bytes[12..16].copy_from_slice(&[10, 0, 0, 1]);
        let packet = Captured {
            at: Duration::ZERO,
            direction: Direction::Outbound,
            head: bytes.into(),
            payload: Bytes::new(),
            segment_size: 1000,
            trust: Trust::Offloaded,
            socket: None,
        };
        assert!(written(&[packet]).is_empty());
    }
}
