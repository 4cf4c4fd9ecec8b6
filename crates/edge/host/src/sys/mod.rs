//! The interface of a host to the system: devices, sockets, waiting, and the state of links and addresses. On Linux, [`linux`] implements
//! all of it. Other systems have sockets of UDP; `elsewhere` has the other names with the same meaning. The only unsafe code of the crate
//! is here.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
mod without_translations;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plait_wire::Trust;

use crate::carriers::MAX_CARRIERS;

#[cfg(not(target_os = "linux"))]
use elsewhere as system;
#[cfg(target_os = "linux")]
use linux as system;

#[cfg(not(all(feature = "tcp", target_os = "linux")))]
pub(crate) use self::without_translations::Translations;
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub use system::remove_leftovers;
pub(crate) use system::{
    Announcements, BINDS_TO_DEVICES, Channel, OwnDescriptor, Signal, Snapshot, Source, Uplinks, fault_of,
    fault_of_other_name, since_boot,
};
pub use system::{
    LOOPBACK, default_devices, device_with, is_clock_synchronized, path_obstacles, present, shared_networks,
};
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(crate) use system::{Network, Translations, Tun};
#[cfg(feature = "udp")]
pub(crate) use system::{
    Sockets, Watched, connected, force_buffers, is_about_another, is_refusal, listening, next_error,
    strict_source_check,
};

/// Longest IP packet that is written with segmentation left to the kernel. A longer one is accepted too, but
/// with the link header it no longer fits in 16 bits and the kernel cuts it up in software, twenty times
/// slower: measured.
pub(crate) const MAX_OFFLOADED: usize = 65_521;

/// The meaning of an arriving packet's header for the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    /// Payload bytes per merged wire segment, 0 if none were merged.
    pub(crate) segment_size: u16,
    /// Whether the transport checksum can be relied on.
    pub(crate) trust: Trust,
}

/// The properties of the device of a path.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Device {
    /// The kernel's number of it: another one after it was unplugged and plugged in.
    pub(crate) index: u32,
    /// The address for what begins.
    pub(crate) v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub(crate) v6: Option<Ipv6Addr>,
    /// All addresses that what runs may keep.
    pub(crate) valid: BTreeSet<IpAddr>,
    pub(crate) mtu: u32,
    /// Switched on and with a carrier.
    pub(crate) is_up: bool,
}

/// The names and addresses of a device, by which rules select it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) name: &'a str,
    pub(crate) other_names: &'a [String],
    /// The present one, and the one of the hardware.
    pub(crate) link_addresses: Vec<&'a str>,
    pub(crate) addresses: Vec<IpAddr>,
    /// The kernel's number of the device, which it keeps under another name.
    pub(crate) index: u32,
    pub(crate) is_loopback: bool,
}

impl Candidate<'_> {
    /// Whether it has an address that other networks may know.
    pub(crate) fn has_address(&self) -> bool {
        self.addresses.iter().any(|address| match address {
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        })
    }
}

/// A socket of UDP that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub(crate) number: u64,
    /// Whether ICMP has said something about it.
    pub(crate) has_errors: bool,
}

/// Sockets that are read in a turn; those that are left are found in the next.
pub(crate) const READY_AT_ONCE: usize = 16;

/// Most descriptors that the driver waits for: those of the carriers, and the channel to another process.
pub(crate) const MAX_SOURCES: usize = MAX_CARRIERS + 1;

/// Whether room in a carrier is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    NotNeeded,
    Awaited,
}

/// The use of the devices by a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceCheck {
    /// Datagrams arrive on them, too: they need a loose check.
    Loosened,
    /// Only segments over TCP arrive.
    AsItIs,
}
