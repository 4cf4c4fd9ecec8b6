//! Captures in pcapng: what passed a path, and what was put on it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, PcapError};

use crate::Direction;

/// Nanoseconds.
const RESOLUTION: u8 = 9;

/// Interface of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// What the hosts sent.
    Heard(Direction),
    /// What the injector put on the wire.
    Injected,
}

impl Interface {
    const fn number(self) -> u32 {
        match self {
            Self::Heard(Direction::ToServer) => 0,
            Self::Heard(Direction::ToClient) => 1,
            Self::Injected => 2,
        }
    }
}

/// An open capture of one path: interfaces `NAME to-server`, `NAME to-client` and `NAME injected`.
pub(crate) struct Capture {
    file: PcapNgWriter<BufWriter<File>>,
    snap_length: usize,
    /// Wall-clock time at which the lab came up.
    epoch: Duration,
}

impl Capture {
    pub(crate) fn create(path: &Path, name: &str, snap_length: u32, epoch: Duration) -> io::Result<Self> {
        let application = concat!("plait-lab ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            options: vec![SectionHeaderOption::UserApplication(application.into())],
            ..SectionHeaderBlock::default()
        };
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut file = PcapNgWriter::with_section_header(file, section).map_err(io_error)?;
        for what in ["to-server", "to-client", "injected"] {
            file.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: snap_length,
                options: vec![
                    InterfaceDescriptionOption::IfName(format!("{name} {what}").into()),
                    InterfaceDescriptionOption::IfTsResol(RESOLUTION),
                ],
            })
            .map_err(io_error)?;
        }
        Ok(Self { file, snap_length: snap_length as usize, epoch })
    }

    /// Writes one packet, `at` since the lab came up.
    pub(crate) fn write(
        &mut self,
        at: Duration,
        interface: Interface,
        packet: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let block = EnhancedPacketBlock {
            interface_id: interface.number(),
            timestamp: self.epoch + at,
            original_len: packet.len() as u32,
            data: packet[..packet.len().min(self.snap_length)].into(),
            options: comment.map(|text| EnhancedPacketOption::Comment(text.into())).into_iter().collect(),
        };
        self.file.write_pcapng_block(block).map(drop).map_err(io_error)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        io::Write::flush(self.file.get_mut())
    }
}

/// What a capture of a path proves to have been put on the wire: the comment of each packet on its third interface.
///
/// # Errors
/// The file cannot be read, or is no capture.
pub fn injected_packets(file: &Path) -> crate::Result<Vec<String>> {
    let wrong = || crate::Error::system(format!("read the capture {}", file.display()));
    let opened = File::open(file).map_err(wrong())?;
    let mut reader = PcapNgReader::new(BufReader::new(opened)).map_err(|error| wrong()(io_error(error)))?;
    let mut found = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.map_err(|error| wrong()(io_error(error)))? else {
            continue;
        };
        if packet.interface_id != Interface::Injected.number() {
            continue;
        }
        let comment = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(text) => Some(text.to_string()),
            _ => None,
        });
        found.push(comment.unwrap_or_default());
    }
    Ok(found)
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
