//! The TUN device: where our packets meet the kernel's.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use endpoint::Transmit;
use nix::sys::uio::{readv, writev};
use tracing::debug;

use crate::error::Error;
use crate::sys;
use crate::vnet::{VNET_LEN, VnetHeader};

/// Name of our devices: the kernel puts the first free number in.
pub(crate) const NAME: &str = "plait%d";
/// What all their names begin with.
pub(crate) const NAME_PREFIX: &str = "plait";

/// Longest IP packet that is written with segmentation left to the kernel. A longer one is accepted too, but
/// with the link header it no longer fits in 16 bits and the kernel cuts it up in software, twenty times
/// slower: measured.
pub(crate) const MAX_OFFLOADED: usize = 65_521;

/// Sets of offloads to ask for, best first.
const OFFLOADS: [libc::c_uint; 3] = [
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6,
    libc::TUN_F_CSUM,
];

/// An attached device; it is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Creates a device in the network namespace of the calling thread. It is not yet up.
    pub(crate) fn create() -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(Error::tun)?;
        let name = sys::attach(&file, NAME).map_err(Error::tun)?;
        // The default size is the same; an inherited or foreign setting cannot be excluded.
        sys::set_vnet_header_size(&file, VNET_LEN as libc::c_int).map_err(Error::tun)?;
        sys::set_little_endian(&file).map_err(Error::tun)?;
        let granted = OFFLOADS.into_iter().find(|features| sys::set_offload(&file, *features).is_ok());
        debug!(device = name, offloads = granted.unwrap_or(0), "TUN device created");
        Ok(Self { file, name })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet into `buffer`; `WouldBlock` if there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        let mut header = [0; VNET_LEN];
        let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let len = readv(&self.file, parts)?;
        let len = len.checked_sub(VNET_LEN).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((VnetHeader::parse(header), len))
    }

    /// Writes one packet, a super-segment as a whole.
    pub(crate) fn send(&self, packet: &Transmit) -> io::Result<()> {
        let header = VnetHeader::to_send(packet).emit();
        self.write(&[IoSlice::new(&header), IoSlice::new(&packet.head), IoSlice::new(&packet.payload)])
    }

    /// Writes one packet that is complete, checksums included.
    pub(crate) fn send_complete(&self, packet: &[u8]) -> io::Result<()> {
        let header = VnetHeader::default().emit();
        self.write(&[IoSlice::new(&header), IoSlice::new(packet)])
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        // A TUN device takes a packet whole or not at all.
        writev(&self.file, parts)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
