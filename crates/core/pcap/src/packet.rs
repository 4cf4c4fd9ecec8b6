//! Interfaces and packets of a capture.

use std::borrow::Cow;
use std::time::Duration;

/// One interface of a capture: where packets were seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name; empty where a file gives none.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// The header type of its packets.
    pub link_type: LinkType,
    /// Most bytes kept of a packet; 0: all.
    pub snap_length: u32,
}

impl Interface {
    /// An interface with this name on which whole IP packets are seen.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), description: None, link_type: LinkType::RAW, snap_length: 0 }
    }
}

/// The header type of an interface's packets: the LINKTYPE of the file formats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// An IP packet, as some programs write it that do not translate the number of BSD.
    pub const RAW_OF_BSD: Self = Self(12);
    /// An IP packet of either version.
    pub const RAW: Self = Self(101);
    /// Linux, all devices: 16 bytes with the EtherType at the end.
    pub const LINUX_SLL: Self = Self(113);
    /// An IPv4 packet.
    pub const IPV4: Self = Self(228);
    /// An IPv6 packet.
    pub const IPV6: Self = Self(229);
    /// Linux, all devices: 20 bytes with the EtherType at the beginning.
    pub const LINUX_SLL2: Self = Self(276);
}

/// One packet of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Number of its interface in the order of the file.
    pub interface: u32,
    /// Time since 1970-01-01 00:00:00 UTC, or since the start of a simulation. Zero in a block without a time.
    pub at: Duration,
    /// The bytes, as many as were kept.
    pub data: Cow<'a, [u8]>,
    /// Its length on the wire, in bytes.
    pub original_len: u32,
    /// Its direction, if known.
    pub direction: Option<Direction>,
    /// A comment on it.
    pub comment: Option<Cow<'a, str>>,
}

/// The direction of a packet, seen from the capturing host (pcapng, section 4.3.1, `epb_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// It was received.
    Inbound,
    /// It was sent.
    Outbound,
}

impl<'a> Packet<'a> {
    /// A whole packet without direction and comment.
    pub fn new(interface: u32, at: Duration, data: &'a [u8]) -> Self {
        let original_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Self { interface, at, data: data.into(), original_len, direction: None, comment: None }
    }

    /// The same with its direction.
    #[must_use]
    pub fn going(self, direction: Direction) -> Self {
        Self { direction: Some(direction), ..self }
    }

    /// The same with a comment.
    #[must_use]
    pub fn commented(self, comment: impl Into<Cow<'a, str>>) -> Self {
        Self { comment: Some(comment.into()), ..self }
    }
}
