//! Reading pcapng and pcap.

use std::io::{self, Read};
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};

use crate::{Direction, Interface, LinkType, Packet};

/// Reads the packets of a capture, in the order of the file. It ends at the end of the file or behind the first error:
/// what lies behind a damaged place cannot be found.
pub struct Reader<R: Read> {
    format: Format<R>,
    interfaces: Vec<Interface>,
    /// Nanoseconds per unit of time of each interface.
    units: Vec<Unit>,
    has_failed: bool,
}

/// The first four bytes are looked at before it is known which reader gets them.
type Source<R> = io::Chain<io::Cursor<[u8; 4]>, R>;

enum Format<R: Read> {
    PcapNg(Box<PcapNgReader<Source<R>>>),
    Pcap(Box<PcapReader<Source<R>>>),
}

/// A file cannot be read as a capture.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed, or the file ends within a packet.
    #[error("the capture cannot be read")]
    Io(#[from] io::Error),
    /// Neither pcapng nor pcap, or broken.
    #[error("the capture is neither pcapng nor pcap, or is broken")]
    Format(#[source] PcapError),
}

/// The section header that a pcapng file begins with.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const DIRECTION: u32 = 0b11;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

impl<R: Read> Reader<R> {
    /// Reads the beginning of a file, buffered inside.
    ///
    /// # Errors
    /// The file cannot be read, or is no capture.
    pub fn new(mut file: R) -> Result<Self, ReadError> {
        let mut magic = [0; 4];
        file.read_exact(&mut magic)?;
        let source = io::Cursor::new(magic).chain(file);
        let (mut interfaces, mut units) = (Vec::new(), Vec::new());
        let format = if magic == PCAPNG {
            Format::PcapNg(Box::new(PcapNgReader::new(source).map_err(read_error)?))
        } else {
            let reader = PcapReader::new(source).map_err(read_error)?;
            let header = reader.header();
            interfaces.push(Interface {
                link_type: header.datalink.into(),
                snap_length: header.snaplen,
                ..Interface::named("")
            });
            units.push(match header.ts_resolution {
                TsResolution::MicroSecond => Unit::OfTen(6),
                TsResolution::NanoSecond => Unit::OfTen(9),
            });
            Format::Pcap(Box::new(reader))
        };
        Ok(Self { format, interfaces, units, has_failed: false })
    }

    /// The interfaces of the current section, as far as it has been read; [`Packet::interface`] is an index. A pcap
    /// file has one, without a name.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next_packet(&mut self) -> Result<Option<Packet<'static>>, PcapError> {
        match &mut self.format {
            Format::Pcap(reader) => {
                // Raw, because packets that the capture cut short are refused otherwise.
                let Some(packet) = reader.next_raw_packet() else { return Ok(None) };
                let packet = packet?;
                let units = match self.units[0] {
                    Unit::OfTen(6) => u64::from(packet.ts_sec) * 1_000_000 + u64::from(packet.ts_frac),
                    Unit::OfTen(_) | Unit::OfTwo(_) => {
                        u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac)
                    }
                };
                Ok(Some(Packet {
                    interface: 0,
                    at: self.units[0].time(units),
                    original_len: packet.orig_len,
                    data: packet.data.into_owned().into(),
                    direction: None,
                    comment: None,
                }))
            }
            Format::PcapNg(reader) => {
                while let Some(block) = reader.next_block() {
                    match block? {
                        Block::SectionHeader(_) => {
                            self.interfaces.clear();
                            self.units.clear();
                        }
                        Block::InterfaceDescription(block) => {
                            self.units.push(Unit::of(&block));
                            self.interfaces.push(interface(&block));
                        }
                        Block::EnhancedPacket(block) => {
                            let unit = self.units.get(block.interface_id as usize);
                            let unit = unit.ok_or(PcapError::InvalidInterfaceId(block.interface_id))?;
                            return Ok(Some(packet(block, *unit)));
                        }
                        Block::SimplePacket(block) => {
                            let limit = self.interfaces.first().map_or(0, |first| first.snap_length);
                            return Ok(Some(simple_packet(&block, limit)));
                        }
                        Block::Packet(_)
                        | Block::NameResolution(_)
                        | Block::InterfaceStatistics(_)
                        | Block::SystemdJournalExport(_)
                        | Block::Unknown(_) => {}
                    }
                }
                Ok(None)
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Packet<'static>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_packet().map_err(read_error).transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }
}

/// The unit of a timestamp (pcapng, section 4.2, `if_tsresol`).
#[derive(Clone, Copy)]
enum Unit {
    /// 10 to the minus this, in seconds.
    OfTen(u8),
    /// 2 to the minus this, in seconds.
    OfTwo(u8),
}

impl Unit {
    fn of(block: &InterfaceDescriptionBlock<'_>) -> Self {
        let resolution = block.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
            _ => None,
        });
        match resolution.unwrap_or(6) {
            exponent if exponent & 0x80 == 0 => Self::OfTen(exponent),
            exponent => Self::OfTwo(exponent & 0x7f),
        }
    }

    /// Returns the time of `count` units; parts of a nanosecond are cut off.
    fn time(self, count: u64) -> Duration {
        let nanos = u128::from(count) * 1_000_000_000;
        let nanos = match self {
            Self::OfTen(exponent) => 10_u128.checked_pow(u32::from(exponent)).map_or(0, |unit| nanos / unit),
            Self::OfTwo(exponent) => nanos >> exponent,
        };
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl From<DataLink> for LinkType {
    fn from(link: DataLink) -> Self {
        // Further bits of a pcap file tell the length of the checksum of frames.
        Self(u32::from(link) as u16)
    }
}

fn interface(block: &InterfaceDescriptionBlock<'_>) -> Interface {
    let mut interface =
        Interface { link_type: block.linktype.into(), snap_length: block.snaplen, ..Interface::named("") };
    for option in &block.options {
        match option {
            InterfaceDescriptionOption::IfName(name) => interface.name = name.to_string(),
            InterfaceDescriptionOption::IfDescription(text) => interface.description = Some(text.to_string()),
            // Some ten others.
            _ => {}
        }
    }
    interface
}

/// A packet of the first interface. Its block says how long it was on the wire, not where the padding begins.
fn simple_packet(block: &SimplePacketBlock<'_>, snap_length: u32) -> Packet<'static> {
    let limit = if snap_length == 0 { block.original_len } else { block.original_len.min(snap_length) };
    let kept = &block.data[..block.data.len().min(limit as usize)];
    Packet {
        interface: 0,
        at: Duration::ZERO,
        original_len: block.original_len,
        data: kept.to_vec().into(),
        direction: None,
        comment: None,
    }
}

fn packet(block: EnhancedPacketBlock<'_>, unit: Unit) -> Packet<'static> {
    let (mut direction, mut comment) = (None, None);
    for option in &block.options {
        match option {
            EnhancedPacketOption::Comment(text) => comment = Some(text.to_string().into()),
            EnhancedPacketOption::Flags(flags) => {
                direction = match flags & DIRECTION {
                    INBOUND => Some(Direction::Inbound),
                    OUTBOUND => Some(Direction::Outbound),
                    _ => None,
                };
            }
            // Hashes, queues, verdicts.
            _ => {}
        }
    }
    // The library takes every count for nanoseconds; a file counts 64 bits of its own unit.
    let count = u64::try_from(block.timestamp.as_nanos()).unwrap_or(u64::MAX);
    Packet {
        interface: block.interface_id,
        at: unit.time(count),
        original_len: block.original_len,
        data: block.data.into_owned().into(),
        direction,
        comment,
    }
}

fn read_error(error: PcapError) -> ReadError {
    match error {
        PcapError::IoError(error) => ReadError::Io(error),
        other => ReadError::Format(other),
    }
}
