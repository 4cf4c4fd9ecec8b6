//! Segmentation and checksum work a device may take over from the stack.

use crate::sys::ethtool;
use crate::{Error, Link, Result};

/// One offload of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums of outgoing packets. Without it the kernel fills them in, and turns segmentation off as well.
    TransmitChecksum,
    /// Checksums of arriving packets.
    ReceiveChecksum,
    /// TCP super-segments cut by the device.
    TcpSegmentation,
    /// Super-segments cut by the kernel just before the device.
    GenericSegmentation,
    /// Arriving segments merged by the kernel.
    GenericReceive,
    /// Packets in several pieces of memory.
    ScatterGather,
}

impl Offload {
    /// Every offload, in an order in which each may be turned off.
    pub const ALL: [Self; 6] = [
        Self::GenericReceive,
        Self::TcpSegmentation,
        Self::GenericSegmentation,
        Self::ScatterGather,
        Self::TransmitChecksum,
        Self::ReceiveChecksum,
    ];
}

impl Link {
    /// Turns an offload on or off.
    ///
    /// # Errors
    /// The device is gone or cannot do it.
    pub fn set_offload(&self, offload: Offload, on: bool) -> Result<()> {
        let name = self.name();
        self.namespace()
            .enter(|| ethtool::set(name, ethtool::set_command(offload), u32::from(on)))?
            .map_err(|error| Error::system(format!("switch {offload:?} of {name}"), error))
    }

    /// Whether an offload is on.
    ///
    /// # Errors
    /// The device is gone.
    pub fn has_offload(&self, offload: Offload) -> Result<bool> {
        let name = self.name();
        self.namespace()
            .enter(|| ethtool::get(name, ethtool::get_command(offload)))?
            .map(|value| value != 0)
            .map_err(|error| Error::system(format!("ask for {offload:?} of {name}"), error))
    }

    /// Turns all offloads off: then each packet is at most an MTU long and carries its checksum, as on a real wire.
    ///
    /// # Errors
    /// The device is gone or cannot do it.
    pub fn without_offloads(&self) -> Result<()> {
        Offload::ALL.into_iter().try_for_each(|offload| self.set_offload(offload, false))
    }
}
