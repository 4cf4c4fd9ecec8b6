//! The device.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::uio::{readv, writev};
use tracing::debug;

use crate::sys;
use crate::vnet::{VNET_LEN, VnetHeader};

/// The file through which programs reach TUN.
const NODE: &str = "/dev/net/tun";

/// Sets of offloads to ask for, best first.
const OFFLOADS: [libc::c_uint; 3] = [
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6,
    libc::TUN_F_CSUM,
];

/// An attached TUN device that does not block; it is gone when this is dropped. Packets are IP without a link header.
#[derive(Debug)]
pub struct Device {
    file: File,
    name: String,
}

impl Device {
    /// Creates a device in the network namespace of the calling thread. It is not yet up. A `%d` in `name` becomes the
    /// first free number.
    ///
    /// # Errors
    /// There is no `/dev/net/tun` (`NotFound`), it may not be opened or no device be made (`PermissionDenied`), the name
    /// is taken or too long, or the kernel knows no virtio-net headers (`InvalidInput`; before Linux 4.1).
    pub fn create(name: &str) -> io::Result<Self> {
        let file = open()?;
        let name = sys::attach(&file, name)?;
        // The default size is the same; an inherited or foreign setting cannot be excluded.
        sys::set_vnet_header_size(&file, VNET_LEN as libc::c_int)?;
        sys::set_little_endian(&file)?;
        let granted = OFFLOADS.into_iter().find(|features| sys::set_offload(&file, *features).is_ok());
        debug!(device = name, offloads = granted.unwrap_or(0), "TUN device created");
        Ok(Self { file, name })
    }

    /// Returns the device that another process has attached, through its descriptor: for sending. It is gone when the last descriptor is
    /// closed.
    #[must_use]
    pub fn attached(file: File, name: &str) -> Self {
        Self { file, name: name.to_owned() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet into `buffer` and returns its header and length.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; the device is down or gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        let mut header = [0; VNET_LEN];
        let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let len = readv(&self.file, parts)?;
        let len = len.checked_sub(VNET_LEN).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((VnetHeader::parse(header), len))
    }

    /// Writes one packet from its pieces, a super-segment as a whole. The device takes it whole or not at all.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; the device is down or gone; the kernel does not believe the header.
    pub fn send(&self, header: VnetHeader, pieces: [&[u8]; 2]) -> io::Result<()> {
        let header = header.emit();
        let [first, second] = pieces.map(IoSlice::new);
        writev(&self.file, &[IoSlice::new(&header), first, second])?;
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Whether this process may open TUN devices at all.
///
/// # Errors
/// What the kernel answers to opening `/dev/net/tun`.
pub fn permitted() -> io::Result<()> {
    open().map(drop)
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(NODE)
}
