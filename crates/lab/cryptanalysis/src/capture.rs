//! Reading a capture: frames in, the bytes of each direction of each TCP connection out.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use plait_pcap::{LinkType, ReadError, Reader};
use plait_wire::{Malformed, Packet, Segment, Trust};

use crate::flow::{Flow, FlowId};
use crate::link_layer::ip_packet;

/// The contents of a capture file, sorted by connection and direction.
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

/// Payload kept from one capture: 1 GiB. An eavesdropper learns nothing new from more.
pub const MAX_KEPT: u64 = 1 << 30;

impl Capture {
    /// Reads a pcapng or pcap file. Of a pcapng file with several interfaces (one per path), `interface` picks one by
    /// its number; `None` takes all. What stands behind a damaged place is ignored: captures often end within
    /// a packet.
    ///
    /// # Errors
    /// The file cannot be read, or does not begin as a capture.
    pub fn read(file: impl Read, interface: Option<u32>) -> Result<Self, ReadError> {
        let mut reader = Reader::new(file)?;
        let mut capture = Self::default();
        while let Some(Ok(packet)) = reader.next() {
            let link =
                reader.interfaces().get(packet.interface as usize).map(|interface| interface.link_type);
            if let Some(link) = link
                && interface.is_none_or(|wanted| wanted == packet.interface)
            {
                capture.take_frame(link, &packet.data);
            }
        }
        Ok(capture)
    }

    fn take_frame(&mut self, link: LinkType, frame: &[u8]) {
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
