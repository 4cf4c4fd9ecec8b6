//! A capture of everything that the first end of each path sends and receives, as pcapng.

use base::{Duration, Instant};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapResult};

use crate::PathIndex;

/// One capture file with an interface for each path; timestamps are virtual nanoseconds.
pub struct Capture {
    writer: PcapNgWriter<Vec<u8>>,
    interfaces: u32,
}

/// Timestamps count in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

impl Capture {
    /// A capture without interfaces.
    pub fn new() -> PcapResult<Self> {
        // Not the byte order of the machine: the file is the same everywhere.
        let writer = PcapNgWriter::with_endianness(Vec::new(), Endianness::Little)?;
        Ok(Self { writer, interfaces: 0 })
    }

    /// Describes the interface of the next path.
    pub(crate) fn add_interface(&mut self) -> PcapResult<()> {
        let name = format!("path{}", self.interfaces);
        self.interfaces += 1;
        self.writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(name.into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        })?;
        Ok(())
    }

    /// Writes a packet down.
    pub(crate) fn record(&mut self, at: Instant, path: PathIndex, packet: &[u8]) -> PcapResult<()> {
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: path.0 as u32,
            timestamp: Duration::from_nanos(at.as_nanos()),
            original_len: packet.len() as u32,
            data: packet.into(),
            options: Vec::new(),
        })?;
        Ok(())
    }

    /// The file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.writer.into_inner()
    }
}
