//! A whole IP packet: taken apart once, put together once.

use bytes::Bytes;

use crate::{IcmpError, Malformed, Segment};

/// Whether the transport checksum of an arriving packet still needs a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Verify it.
    Verify,
    /// The kernel has verified it, or it never left this machine (virtio-net `DATA_VALID` or `NEEDS_CSUM`).
    Offloaded,
}

/// What an IP packet carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A TCP segment.
    Tcp(Segment),
    /// An ICMP error that quotes a TCP segment.
    Icmp(IcmpError),
}

impl Packet {
    /// Takes an IP packet apart. `segment_size` is the payload size of the wire segments that receive
    /// offload merged, 0 if it merged none. The payload of the result is a slice of `bytes`.
    pub fn parse(bytes: &Bytes, segment_size: u16, trust: Trust) -> Result<Self, Malformed> {
        let _ = (bytes, segment_size, trust);
        unimplemented!()
    }
}
