//! Captures in pcapng: what the stack sends and receives, one interface per path.
//!
//! Super-segments are written as the wire segments that they stand for, checksums complete, so that any
//! reader of captures sees a network and not our offloads. Addresses are the stack's own.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::Path as FilePath;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use plait_carrier::IpPacket;
use plait_pcap::{Direction, Packet, Writer};
use plait_wire::Trust;
use tracing::error;

use crate::error::Error;
use crate::segmentation::{Layout, wire_segments};
use crate::sys::Received;

/// Packets between the driver and the file: 16 MiB at most. The driver waits for a slower disk, because a
/// capture with holes misleads.
const QUEUE: usize = 256;

/// What a path is called in the capture, and its addresses.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) addresses: [IpAddr; 2],
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
}

impl Capture {
    /// Creates or empties `file` and writes its beginning.
    pub(crate) fn create(file: &FilePath, interfaces: Vec<Interface>) -> Result<Self, Error> {
        let wrong = |source| Error::Capture { file: file.display().to_string(), source };
        let mut output = File::create(file)
            .and_then(|file| Output::begin(BufWriter::new(file), interfaces))
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
        self.push(Direction::Inbound, packet.clone(), Bytes::new(), segment_size, trust);
    }

    pub(crate) fn sent(&mut self, packet: &IpPacket) {
        let head = Bytes::copy_from_slice(&packet.head);
        self.push(Direction::Outbound, head, packet.payload.clone(), packet.segment_size, Trust::Offloaded);
    }

    /// A segment that came or went without an IP packet of ours: it is captured as the packet that it would have been over TCP.
    pub(crate) fn carried(&mut self, direction: Direction, segment: plait_wire::Segment) {
        let mut packet = IpPacket::default();
        packet.write(segment);
        let IpPacket { head, payload, segment_size, .. } = packet;
        self.push(direction, head.into(), payload, segment_size, Trust::Offloaded);
    }

    fn push(&mut self, direction: Direction, head: Bytes, payload: Bytes, segment_size: u16, trust: Trust) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(queue) = &self.queue {
            // It fails only if the writer has panicked, which it has reported.
            let _ = queue.send(Captured { at, direction, head, payload, segment_size, trust });
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
}

impl<W: Write> Output<W> {
    fn begin(writer: W, interfaces: Vec<Interface>) -> io::Result<Self> {
        let application = concat!("plait ", env!("CARGO_PKG_VERSION"));
        let described = interfaces.iter().map(|Interface { name, description, addresses: _ }| {
            let description = Some(description.clone());
            plait_pcap::Interface { description, ..plait_pcap::Interface::named(name) }
        });
        let file = Writer::new(writer, Some(application), described)?;
        Ok(Self { file, interfaces })
    }

    fn write_all(&mut self, packets: &Receiver<Captured>) -> io::Result<()> {
        while let Ok(first) = packets.recv() {
            self.write(&first)?;
            while let Ok(next) = packets.try_recv() {
                self.write(&next)?;
            }
            // Nothing waits: whoever follows the file sees all there is.
            self.file.flush()?;
        }
        Ok(())
    }

    /// Writes a packet as the wire segments that it stands for.
    fn write(&mut self, packet: &Captured) -> io::Result<()> {
        let Captured { at, direction, head, payload, segment_size, trust } = packet;
        let Some(interface) = self.interface_of(head, *direction) else { return Ok(()) };
        // What arrived in one piece with a checksum of its own is kept bit by bit, wrong ones included.
        let is_complete = *direction == Direction::Inbound && *segment_size == 0 && *trust == Trust::Verify;
        let layout = Layout::of(head).filter(|_| !is_complete);
        let Some(layout) = layout else {
            let mut whole = head.to_vec();
            whole.extend_from_slice(payload);
            return self.block(interface, *at, *direction, &whole);
        };
        let inner = head.get(layout.payload..layout.end.min(head.len())).unwrap_or_default();
        let payload = if payload.is_empty() { inner } else { payload };
        let step = if *segment_size == 0 { u16::MAX } else { *segment_size };
        let mut result = Ok(());
        wire_segments(&head[..layout.payload], payload, step, |segment| {
            if result.is_ok() {
                result = self.block(interface, *at, *direction, segment);
            }
        });
        result
    }

    fn block(&mut self, interface: u32, at: Duration, direction: Direction, data: &[u8]) -> io::Result<()> {
        self.file.write(&Packet::new(interface, at, data).going(direction))
    }

    /// The path that has the stack's address in the packet; packets of no path are no business of a capture.
    fn interface_of(&self, packet: &[u8], direction: Direction) -> Option<u32> {
        let is_source = direction == Direction::Outbound;
        let address: IpAddr = match packet.first()? >> 4 {
            4 => {
                let at = if is_source { 12 } else { 16 };
                IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?)
            }
            _ => {
                let at = if is_source { 8 } else { 24 };
                IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?)
            }
        };
        let index = self.interfaces.iter().position(|interface| interface.addresses.contains(&address))?;
        u32::try_from(index).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_pcap::Reader;

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
            addresses: [[198, 18, 0, host].into(), std::net::Ipv6Addr::LOCALHOST.into()],
        });
        let mut output = Output::begin(Vec::new(), interfaces.collect()).expect("memory");
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
        };
        let found = written(&[packet]);
        assert_eq!(
            (found[0].interface, &found[0].data[..]),
            (1, &bytes[..]),
            "on the second path, wrong checksum and all"
        );
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
        };
        assert!(written(&[packet]).is_empty());
    }
}
