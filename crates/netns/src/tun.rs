//! TUN devices whose packets are carried by a program instead of a wire.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::sys::tun;
use crate::{Error, Link, Namespace, Result};

/// Bytes of the virtio-net header in front of each packet (virtio 1.2, section 5.1.6, without `num_buffers`); its numbers
/// are little-endian.
pub const VNET_HEADER: usize = 10;

/// The device through which programs reach TUN.
const NODE: &str = "/dev/net/tun";

/// Sets of offloads to ask for, best first.
const OFFLOADS: [libc::c_uint; 3] = [
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6,
    libc::TUN_F_CSUM,
];

/// A TUN device in a namespace; it is gone when this is dropped. Packets are IP without a link header; they may be super-segments
/// with unfinished checksums, as their virtio-net header says.
#[derive(Debug)]
pub struct Tun {
    file: File,
    link: Link,
}

impl Tun {
    /// Creates the device `name` in `namespace`. It is not yet up.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, it may not be opened, or the name does not fit or is taken.
    pub fn create(namespace: &Namespace, name: &str) -> Result<Self> {
        let link = Link::existing(namespace, name)?;
        let file = namespace.enter(|| Self::attach(name))??;
        Ok(Self { file, link })
    }

    fn attach(name: &str) -> Result<File> {
        let system = |what: &str| {
            let what = what.to_owned();
            move |error| Error::system(what, error)
        };
        let file = open().map_err(system(&format!(
            "open {NODE} (as root: `modprobe tun`; for an ordinary user: `chmod 0666 {NODE}`)"
        )))?;
        tun::attach(&file, name).map_err(system(&format!("make the TUN device {name}")))?;
        tun::set_little_endian(&file).map_err(system("set the byte order of a TUN device"))?;
        if !OFFLOADS.into_iter().any(|features| tun::set_offload(&file, features).is_ok()) {
            tracing::debug!(name, "a TUN device without offloads");
        }
        Ok(file)
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
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<([u8; VNET_HEADER], usize)> {
        let mut header = [0; VNET_HEADER];
        let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let length = (&self.file).read_vectored(parts)?;
        let length = length.checked_sub(VNET_HEADER).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((header, length))
    }

    /// Writes one packet, a super-segment as a whole. The device takes it whole or not at all.
    ///
    /// # Errors
    /// The device is down, or the kernel does not believe the header.
    pub fn send(&self, header: [u8; VNET_HEADER], packet: &[u8]) -> io::Result<()> {
        (&self.file).write_vectored(&[IoSlice::new(&header), IoSlice::new(packet)]).map(drop)
    }
}

impl AsFd for Tun {
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
