//! A capture of everything that the first end of each path sends and receives, as pcapng.

use plait_base::{Duration, Instant};
use plait_pcap::{Interface, Packet, Writer};
use std::io;

use crate::PathIndex;

/// One capture file with an interface for each path; timestamps are virtual nanoseconds.
pub(crate) struct Capture(Writer<Vec<u8>>);

impl Capture {
    /// Returns a capture with this many interfaces, one per path.
    pub(crate) fn new(paths: usize) -> io::Result<Self> {
        let interfaces = (0..paths).map(|path| Interface::named(format!("path{path}")));
        Writer::new(Vec::new(), None, interfaces).map(Self)
    }

    /// Records a packet.
    pub(crate) fn record(&mut self, at: Instant, path: PathIndex, packet: &[u8]) -> io::Result<()> {
        self.0.write(&Packet::new(path.0 as u32, Duration::from_nanos(at.as_nanos()), packet))
    }

    /// The file.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_inner()
    }
}
