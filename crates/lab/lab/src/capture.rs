//! Captures in pcapng of the packets that crossed a path, forged packets included.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::Path;
use std::time::Duration;

use plait_pcap::{Packet, ReadError, Reader, Writer};

use crate::Direction;

/// Interface of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// A packet of a host.
    Heard(Direction),
    /// A packet of the injector.
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
    file: Writer<BufWriter<File>>,
    /// Wall-clock time at which the lab came up.
    epoch: Duration,
}

impl Capture {
    pub(crate) fn create(path: &Path, name: &str, snap_length: u32, epoch: Duration) -> io::Result<Self> {
        let application = concat!("plait-lab ", env!("CARGO_PKG_VERSION"));
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let interfaces = ["to-server", "to-client", "injected"].map(|what| plait_pcap::Interface {
            snap_length,
            ..plait_pcap::Interface::named(format!("{name} {what}"))
        });
        Ok(Self { file: Writer::new(file, Some(application), interfaces)?, epoch })
    }

    /// Writes one packet, `at` since the lab came up.
    pub(crate) fn write(
        &mut self,
        at: Duration,
        interface: Interface,
        packet: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let packet = Packet::new(interface.number(), self.epoch + at, packet);
        self.file.write(&Packet { comment: comment.map(Into::into), ..packet })
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the injected packets in a capture of a path: the comment of each packet on its third interface.
///
/// # Errors
/// The file cannot be read, or is no capture.
pub fn injected_packets(file: &Path) -> crate::Result<Vec<String>> {
    let wrong = || crate::Error::system(format!("read the capture {}", file.display()));
    let opened = File::open(file).map_err(wrong())?;
    let reader = Reader::new(BufReader::new(opened)).map_err(|error| wrong()(io_error(error)))?;
    let mut found = Vec::new();
    for packet in reader {
        let packet = packet.map_err(|error| wrong()(io_error(error)))?;
        if packet.interface == Interface::Injected.number() {
            found.push(packet.comment.unwrap_or_default().into_owned());
        }
    }
    Ok(found)
}

fn io_error(error: ReadError) -> io::Error {
    match error {
        ReadError::Io(error) => error,
        format @ ReadError::Format(_) => io::Error::other(format),
    }
}
