//! The ioctls of a TUN device (linux/if_tun.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Makes `file`, which is `/dev/net/tun`, a TUN device without packet information and with a virtio-net
/// header in front of each packet. A `%d` in `name` is replaced by the first free number; returns the name.
///
/// # Errors
/// Not permitted, or the name is taken.
#[allow(unsafe_code)]
pub(crate) fn attach(file: impl AsFd, name: &str) -> io::Result<String> {
    // SAFETY: `ifreq` is a C structure of integers, arrays and pointers, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero: the kernel takes the name as a string.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the descriptor is open; TUNSETIFF reads and writes one `ifreq`, which lives until the call returns.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0);
    Ok(name.map(|byte| char::from(byte.cast_unsigned())).collect())
}

/// Which offloads the packets that are read may have been left to (`TUN_F_*`).
///
/// # Errors
/// The kernel does not know one of them.
#[allow(unsafe_code)]
pub(crate) fn set_offload(file: impl AsFd, features: libc::c_uint) -> io::Result<()> {
    // SAFETY: the descriptor is open; TUNSETOFFLOAD takes its argument by value.
    let answer =
        unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(features)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The size of the virtio-net header, in bytes.
///
/// # Errors
/// The kernel refuses the size.
pub(crate) fn set_vnet_header_size(file: impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    set_number(file, libc::TUNSETVNETHDRSZ, bytes)
}

/// Makes the numbers in the virtio-net header little-endian on every machine.
///
/// # Errors
/// The kernel cannot (before 4.1).
pub(crate) fn set_little_endian(file: impl AsFd) -> io::Result<()> {
    set_number(file, libc::TUNSETVNETLE, 1)
}

#[allow(unsafe_code)]
fn set_number(file: impl AsFd, request: libc::Ioctl, mut number: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open; both callers' requests read one `int`, which lives until the call returns.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request, &raw mut number) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
