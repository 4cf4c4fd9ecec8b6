//! The carrier of segments: the way of a segment from this host to another one, and back.
//!
//! A carrier has two halves. [`Carrier`] moves segments, on the driver's thread. [`CarrierPaths`] has the state of the carrier's paths, on
//! the thread of the network monitor. [`crate::carriers`] opens both. TUN ([`crate::over_tun`]) and UDP ([`crate::udp`]) are the carriers of
//! a host. `carrier/queues.rs` has the smallest, for the tests.
//!
//! The driver calls a carrier through `dyn Carrier`, once for a batch of segments. This costs some nanoseconds in each turn; the system calls
//! of the batch take hundreds of microseconds.

#[cfg(all(test, not(feature = "models")))]
mod queues;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use plait_base::Instant;
use plait_endpoint::Endpoint;
use plait_mptcp::Path;
use plait_wire::Segment;

use crate::batch::{Inbox, Outbox};
use crate::carriers::CarrierKind;
use crate::error::Error;
use crate::handover::{Handed, HandedSocket};
use crate::path::NumberedPath;
use crate::sys::{MAX_OFFLOADED, OwnDescriptor, Snapshot, Source};

/// Largest MTU of a path. Above it no super-segment could be sent; no device has a larger one.
const MAX_MTU: u16 = MAX_OFFLOADED as u16;

/// Moves segments between the driver and the network.
pub(crate) trait Carrier: Send {
    /// Its name.
    fn kind(&self) -> CarrierKind;

    /// Payload of the longest super-segment that it sends by one call, in bytes. It sends a longer one by several calls.
    fn longest_super_segment(&self) -> u16;

    /// The descriptor to wait for. A carrier without one wakes the driver when a segment has arrived ([`crate::carriers::Setup::wake`]).
    fn readiness(&self) -> Option<Source<'_>>;

    /// Moves what has arrived into `inbox`, and never waits.
    ///
    /// # Errors
    /// The carrier is gone: the host ends.
    fn receive(&mut self, inbox: &mut Inbox<'_>) -> io::Result<Arrivals>;

    /// Sends the segments in `outbox`, in their order, and never waits. A segment that cannot be sent is lost, as on any network.
    ///
    /// # Errors
    /// The carrier is gone: the host ends.
    fn send(&mut self, outbox: &mut Outbox<'_>) -> io::Result<Sent>;

    /// Notes the local address of a segment before the endpoint gets it. Called for segments that were put into the inbox with such an
    /// address.
    fn note_arrival(&mut self, _segment: &Segment, _local: LocalAddress, _endpoint: &Endpoint) {}

    /// Notes a segment that another process has received for this one, at `_destination` of its own stack. The endpoint may know its subflow.
    fn note_passed(&mut self, _segment: &Segment, _destination: IpAddr, _is_known: bool) {}

    /// Takes a socket or a device of the other process, to send by.
    fn adopt(&mut self, _handed: Handed) {}

    /// The sockets that were opened since the last call, for the other process.
    fn take_untold(&mut self) -> Vec<HandedSocket> {
        Vec::new()
    }

    /// The other process has ended.
    fn end_handover(&mut self) {}

    /// Releases what ended connections have used. Called in each turn, while the endpoint is locked. Returns the time of the next call at
    /// the latest.
    fn maintain(&mut self, _now: Instant, _endpoint: &Endpoint) -> Option<Instant> {
        None
    }
}

/// The state of the paths of a carrier.
pub(crate) trait CarrierPaths: Send {
    /// Takes the state of the devices and adds the paths that have changed to `changed`, whether it fails or not.
    ///
    /// # Errors
    /// The network cannot be configured for a path.
    fn refresh(&mut self, snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error>;

    /// Adds a path, or changes the device, the class or the use of the one with this id. The next [`CarrierPaths::refresh`] adds its state
    /// to the changed ones. A path that is not selected is down.
    ///
    /// # Errors
    /// The network cannot be configured for the path.
    fn set_path(&mut self, path: NumberedPath) -> Result<(), Error>;

    /// Brings connections to `port` of the paths' devices to the stack.
    ///
    /// # Errors
    /// Another program uses the port, or the network cannot be changed.
    fn open_port(&mut self, port: u16) -> Result<(), Error>;

    /// Undoes [`CarrierPaths::open_port`].
    fn close_port(&mut self, port: u16);

    /// Prepares that another process takes over the open ports. Connections stay.
    ///
    /// # Errors
    /// Nothing has changed.
    fn hand_over(&mut self) -> Result<Vec<HandedSocket>, Error> {
        Ok(Vec::new())
    }

    /// The other process has the ports: new connections go there.
    fn leave_ports(&mut self) {}

    /// Undoes [`CarrierPaths::hand_over`].
    fn take_back(&mut self) {}

    /// Takes sockets of another process for the ports that are opened next. Returns the device through which that process may send.
    ///
    /// # Errors
    /// The device cannot be shared.
    fn take_over(&mut self, _sockets: &mut Vec<HandedSocket>) -> Result<Option<OwnDescriptor>, Error> {
        Ok(None)
    }

    /// The addresses from which the kernel reports errors to the stack.
    fn kernel_addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Whether it has rules in the system's packet filter.
    fn has_rules(&self) -> bool {
        false
    }

    /// Restores its rules if another program has removed or changed them; returns whether that was so. `opened` returns the ports from
    /// which connections of the stack were opened.
    ///
    /// # Errors
    /// The rules cannot be read or restored.
    fn mend_rules(&mut self, _opened: &mut dyn FnMut() -> BTreeSet<u16>) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Whether more arrivals probably wait in the carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrivals {
    /// No, or the carrier is still ready when the driver waits.
    Drained,
    More,
}

/// The state of a carrier after a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    All,
    /// The carrier is full. The rest of the batch is sent when it has room, and no other segment before. A carrier that may stay full for
    /// long loses segments instead.
    Some,
}

/// The local address that a peer has sent a packet to, on a path that may have several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalAddress {
    pub(crate) address: IpAddr,
    /// The address of the path that the packet arrived on.
    pub(crate) own: IpAddr,
}

/// The MTU of a path over a device with this MTU, for TUN and UDP.
pub(crate) fn path_mtu(device: u32) -> u16 {
    u16::try_from(device).map_or(MAX_MTU, |device| device.min(MAX_MTU))
}
