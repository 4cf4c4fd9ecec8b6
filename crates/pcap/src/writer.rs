//! Writing pcapng.

use std::io::{self, Write};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{Endianness, PcapError};

use crate::{Direction, Interface, Packet};

/// Writes one pcapng section: its interfaces first, then packets. Give it a buffered writer; the bytes are the same on
/// every machine.
pub struct Writer<W: Write> {
    blocks: PcapNgWriter<W>,
    snap_lengths: Vec<u32>,
}

/// Timestamps count in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

impl<W: Write> Writer<W> {
    /// Writes the beginning of a capture: which `application` made it, and its interfaces, which get the numbers from 0
    /// in their order.
    ///
    /// # Errors
    /// `out` failed.
    pub fn new(
        out: W,
        application: Option<&str>,
        interfaces: impl IntoIterator<Item = Interface>,
    ) -> io::Result<Self> {
        let application =
            application.map(|name| SectionHeaderOption::UserApplication(name.to_owned().into()));
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: application.into_iter().collect(),
            ..SectionHeaderBlock::default()
        };
        let blocks = PcapNgWriter::with_section_header(out, section).map_err(io_error)?;
        let mut writer = Self { blocks, snap_lengths: Vec::new() };
        for interface in interfaces {
            writer.describe(interface)?;
        }
        Ok(writer)
    }

    fn describe(&mut self, interface: Interface) -> io::Result<()> {
        let Interface { name, description, link_type, snap_length } = interface;
        let mut options = vec![InterfaceDescriptionOption::IfName(name.into())];
        options.extend(description.map(|text| InterfaceDescriptionOption::IfDescription(text.into())));
        options.push(InterfaceDescriptionOption::IfTsResol(NANOSECONDS));
        let block = InterfaceDescriptionBlock { linktype: link_type, snaplen: snap_length, options };
        self.snap_lengths.push(snap_length);
        self.blocks.write_pcapng_block(block).map(drop).map_err(io_error)
    }

    /// Writes one packet, cut to the snap length of its interface.
    ///
    /// # Errors
    /// `out` failed, or there is no such interface.
    pub fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let Packet { interface, at, data, original_len, direction, comment } = packet;
        let kept = match self.snap_lengths.get(*interface as usize) {
            Some(0) => data,
            Some(limit) => &data[..data.len().min(*limit as usize)],
            None => return Err(io::Error::other(format!("the capture has no interface {interface}"))),
        };
        let comment = comment.as_deref().map(|text| EnhancedPacketOption::Comment(text.into()));
        let flags = direction.map(|direction| {
            EnhancedPacketOption::Flags(match direction {
                Direction::Inbound => INBOUND,
                Direction::Outbound => OUTBOUND,
            })
        });
        let block = EnhancedPacketBlock {
            interface_id: *interface,
            timestamp: *at,
            original_len: *original_len,
            data: kept.into(),
            options: comment.into_iter().chain(flags).collect(),
        };
        self.blocks.write_pcapng_block(block).map(drop).map_err(io_error)
    }

    /// Passes on what `out` holds back.
    ///
    /// # Errors
    /// `out` failed.
    pub fn flush(&mut self) -> io::Result<()> {
        self.blocks.get_mut().flush()
    }

    /// Returns the output of the capture.
    pub fn into_inner(self) -> W {
        self.blocks.into_inner()
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
