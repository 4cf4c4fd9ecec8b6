//! Reading a capture: frames in, the bytes of each direction of each TCP connection out.

use std::collections::BTreeMap;
use std::io::{self, Read};

use bytes::Bytes;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, pcap::PcapReader};
use wire::{Malformed, Packet, Segment, Trust};

use crate::flow::{Flow, FlowId};
use crate::link_layer::ip_packet;

/// What a capture file holds, sorted by connection and direction.
#[derive(Default)]
pub struct Capture {
    flows: BTreeMap<FlowId, Flow>,
    kept: u64,
    /// Frames that carry no TCP over IP.
    pub other: u64,
    /// Frames cut short by the capture, or with headers that contradict themselves.
    pub malformed: u64,
    /// Segments left out because [`MAX_KEPT`] bytes are enough.
    pub left_out: u64,
}

/// The file cannot be read as a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Reading failed.
    #[error("the capture cannot be read")]
    Read(#[from] io::Error),
    /// Neither pcapng nor pcap, or broken at the start.
    #[error("the capture is neither pcapng nor pcap, or is broken")]
    Format(#[source] PcapError),
}

/// Payload kept from one capture: 1 GiB. An eavesdropper learns nothing new from more.
pub const MAX_KEPT: u64 = 1 << 30;

impl Capture {
    /// Reads a pcapng or pcap file. Of a pcapng file with several interfaces (one per path), `interface` picks one by
    /// its number; `None` takes all. What stands behind a damaged place is ignored: captures often end within
    /// a packet.
    pub fn read(mut file: impl Read, interface: Option<u32>) -> Result<Self, CaptureError> {
        let mut magic = [0; 4];
        file.read_exact(&mut magic)?;
        let file = magic.chain(file);
        let mut capture = Self::default();
        if magic == PCAPNG {
            capture.read_pcapng(file, interface)?;
        } else {
            capture.read_pcap(file)?;
        }
        Ok(capture)
    }

    fn read_pcapng(&mut self, file: impl Read, wanted: Option<u32>) -> Result<(), CaptureError> {
        let mut reader = PcapNgReader::new(file).map_err(CaptureError::Format)?;
        // Links of the interfaces of the current section.
        let mut links: Vec<DataLink> = Vec::new();
        while let Some(Ok(block)) = reader.next_block() {
            match block {
                Block::SectionHeader(_) => links.clear(),
                Block::InterfaceDescription(interface) => links.push(interface.linktype),
                Block::EnhancedPacket(packet) => {
                    let link = links.get(packet.interface_id as usize).copied();
                    if let Some(link) = link
                        && wanted.is_none_or(|wanted| wanted == packet.interface_id)
                    {
                        self.take_frame(link, &packet.data);
                    }
                }
                Block::SimplePacket(packet) => {
                    if let Some(&link) = links.first()
                        && wanted.is_none_or(|wanted| wanted == 0)
                    {
                        self.take_frame(link, &packet.data);
                    }
                }
                Block::Packet(_)
                | Block::NameResolution(_)
                | Block::InterfaceStatistics(_)
                | Block::SystemdJournalExport(_)
                | Block::Unknown(_) => {}
            }
        }
        Ok(())
    }

    fn read_pcap(&mut self, file: impl Read) -> Result<(), CaptureError> {
        let mut reader = PcapReader::new(file).map_err(CaptureError::Format)?;
        let link = reader.header().datalink;
        // Raw, because packets that the capture cut short are refused otherwise, and end the reading.
        while let Some(Ok(packet)) = reader.next_raw_packet() {
            self.take_frame(link, &packet.data);
        }
        Ok(())
    }

    fn take_frame(&mut self, link: DataLink, frame: &[u8]) {
        let Some(packet) = ip_packet(link, frame) else {
            self.other += 1;
            return;
        };
        // Captured on the sending host, the checksum is the card's business.
        match Packet::parse(&Bytes::copy_from_slice(packet), 0, Trust::Offloaded) {
            Ok(Packet::Tcp(segment)) => self.take_segment(&segment),
            Ok(Packet::Icmp(_)) | Err(Malformed::Protocol) => self.other += 1,
            Err(_) => self.malformed += 1,
        }
    }

    fn take_segment(&mut self, segment: &Segment) {
        self.kept += segment.payload.len() as u64;
        if self.kept > MAX_KEPT {
            self.left_out += 1;
            return;
        }
        let id = FlowId { source: segment.source, destination: segment.destination };
        self.flows.entry(id).or_default().take(segment);
    }

    /// All directions of all connections, by address.
    pub fn flows(&self) -> impl Iterator<Item = (&FlowId, &Flow)> {
        self.flows.iter()
    }

    /// The direction that carried most.
    #[must_use]
    pub fn largest(&self) -> Option<(&FlowId, &Flow)> {
        self.flows.iter().max_by_key(|(_, flow)| flow.payload_len())
    }
}

/// The section header that a pcapng file begins with.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
