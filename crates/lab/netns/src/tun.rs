//! TUN devices with packets that a program carries instead of a wire.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ::plait_tun::{Device, VnetHeader};

pub use ::plait_tun::permitted;

use crate::{Error, Link, Namespace, Result};

/// A TUN device in a namespace; it is gone when this is dropped. Packets are IP without a link header; they may be super-segments
/// with unfinished checksums, as their virtio-net header says.
#[derive(Debug)]
pub struct Tun {
    device: Device,
    link: Link,
}

impl Tun {
    /// Creates the device `name` in `namespace`. It is not yet up.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, it may not be opened, or the name does not fit or is taken.
    pub fn create(namespace: &Namespace, name: &str) -> Result<Self> {
        let link = Link::existing(namespace, name)?;
        let device = namespace.enter(|| Device::create(name))?.map_err(|error| {
            let remedy = "as root: `modprobe tun`; for an ordinary user: `chmod 0666 /dev/net/tun`";
            Error::system(format!("make the TUN device {name} ({remedy})"), error)
        })?;
        Ok(Self { device, link })
    }

    /// The device, for addresses, routes and its state.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Reads one packet into `buffer` and returns its header and length; `WouldBlock` if there is none.
    ///
    /// # Errors
    /// The device is down, or nothing waits.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        self.device.receive(buffer)
    }

    /// Writes one packet, a super-segment as a whole. The device takes it whole or not at all.
    ///
    /// # Errors
    /// The device is down, or the kernel does not believe the header.
    pub fn send(&self, header: VnetHeader, packet: &[u8]) -> io::Result<()> {
        self.device.send(header, [packet, &[]])
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
