//! Writing pcapng.

use std::io::{self, Write};

use crate::block::Block;
use crate::{Direction, Interface, Packet};

/// Writes one pcapng section: its interfaces first, then packets. Give it a buffered writer; the bytes are the same on
/// every machine.
pub struct Writer<W: Write> {
    out: W,
    snap_lengths: Vec<u32>,
}

/// Types of blocks (pcapng, section 4).
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Tells a reader the byte order: little-endian here.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Version 1.0 of the format.
const VERSION: (u16, u16) = (1, 0);
/// The length of a section that is not known when it begins.
const UNKNOWN_LENGTH: i64 = -1;

/// Options of blocks; the same number has another meaning in another block.
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_TEXT: u16 = 3;
const TIME_RESOLUTION: u16 = 9;
const COMMENT: u16 = 1;
const PACKET_FLAGS: u16 = 2;

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
        let mut writer = Self { out, snap_lengths: Vec::new() };
        Block::new(SECTION_HEADER)
            .u32(BYTE_ORDER_MAGIC)
            .u16(VERSION.0)
            .u16(VERSION.1)
            .raw(&UNKNOWN_LENGTH.to_le_bytes())
            .option(USER_APPLICATION, application.map(str::as_bytes))?
            .write_to(&mut writer.out)?;
        for interface in interfaces {
            writer.describe(&interface)?;
        }
        Ok(writer)
    }

    /// Adds an interface, which gets the next number. It may stand behind packets of others.
    ///
    /// # Errors
    /// `out` failed.
    pub fn describe(&mut self, interface: &Interface) -> io::Result<()> {
        let Interface { name, description, link_type, snap_length } = interface;
        self.snap_lengths.push(*snap_length);
        Block::new(INTERFACE_DESCRIPTION)
            .u16(link_type.0)
            .u16(0)
            .u32(*snap_length)
            .option(INTERFACE_NAME, Some(name.as_bytes()))?
            .option(INTERFACE_TEXT, description.as_deref().map(str::as_bytes))?
            .option(TIME_RESOLUTION, Some(&[NANOSECONDS]))?
            .write_to(&mut self.out)
    }

    /// Writes one packet, cut to the snap length of its interface.
    ///
    /// # Errors
    /// `out` failed, there is no such interface, or the packet or its comment is too long for the format.
    pub fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let Packet { interface, at, data, original_len, direction, comment } = packet;
        let kept = match self.snap_lengths.get(*interface as usize) {
            Some(0) => data,
            Some(limit) => &data[..data.len().min(*limit as usize)],
            None => return Err(io::Error::other(format!("the capture has no interface {interface}"))),
        };
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let flags = direction.map(|direction| match direction {
            Direction::Inbound => INBOUND.to_le_bytes(),
            Direction::Outbound => OUTBOUND.to_le_bytes(),
        });
        Block::new(ENHANCED_PACKET)
            .u32(*interface)
            .u32((nanos >> u32::BITS) as u32)
            .u32(nanos as u32)
            .u32(kept.len() as u32)
            .u32(*original_len)
            .padded(kept)
            .option(COMMENT, comment.as_deref().map(str::as_bytes))?
            .option(PACKET_FLAGS, flags.as_ref().map(<[u8; 4]>::as_slice))?
            .write_to(&mut self.out)
    }

    /// Passes on what `out` holds back.
    ///
    /// # Errors
    /// `out` failed.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the output of the capture.
    pub fn into_inner(self) -> W {
        self.out
    }
}
