//! The TUN device, which exchanges packets with the kernel.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plait_carrier::IpPacket;
use plait_tun::{Device, VnetHeader};
use plait_wire::Trust;

use crate::error::Error;
use crate::sys::Received;
use crate::sys::linux::waiting::Source;

/// Name of our devices: the kernel puts the first free number in.
const NAME: &str = "plait%d";

/// The device of a host.
#[derive(Debug)]
pub(crate) struct Tun(Device);

impl Tun {
    /// Creates a device in the network namespace of the calling thread. It is not yet up.
    pub(crate) fn create() -> Result<Self, Error> {
        Device::create(NAME).map(Self).map_err(Error::tun)
    }

    /// Another descriptor of it, for another process.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// The device of another process, for sending.
    pub(crate) fn of_other(descriptor: OwnedFd) -> Self {
        Self(Device::attached(descriptor.into(), "of another process"))
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Reads one packet into `buffer`: its length, and what the kernel says about it; nothing if that cannot be
    /// said of TCP. `WouldBlock` if there is no packet.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<Received>)> {
        let (header, len) = self.0.receive(buffer)?;
        Ok((len, meaning(header, len)))
    }

    /// Writes one packet, a super-segment as a whole. The checksum is always left to the kernel, the segmentation
    /// where there is something to cut.
    pub(crate) fn send(&self, packet: &IpPacket) -> io::Result<()> {
        let IpPacket { head, payload, segment_size, transport_offset } = packet;
        let cut = (payload.len() > usize::from(*segment_size)).then_some(*segment_size);
        self.0.send(VnetHeader::partial(head, *transport_offset, cut), [head, payload])
    }

    /// Writes one packet that is complete, checksums included.
    pub(crate) fn send_complete(&self, packet: &[u8]) -> io::Result<()> {
        self.0.send(VnetHeader::default(), [packet, &[]])
    }

    /// What to wait for until there is a packet, or room.
    pub(crate) fn source(&self) -> Source<'_> {
        Source(self.0.as_fd())
    }

    /// Whether an error of sending says that the device has no room, as opposed to not wanting the packet.
    pub(crate) fn is_full(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
    }

    /// Whether the error says that the device was deleted.
    pub(crate) fn is_gone(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::EBADFD)
    }
}

fn meaning(header: VnetHeader, len: usize) -> Option<Received> {
    let segment_size = header.segment_size(len)?;
    let trust = if header.is_trusted() { Trust::Offloaded } else { Trust::Verify };
    Some(Received { segment_size, trust })
}
