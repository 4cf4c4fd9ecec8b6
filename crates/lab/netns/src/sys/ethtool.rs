//! The `SIOCETHTOOL` ioctl for commands that carry one number (linux/ethtool.h, `struct ethtool_value`).

use std::io;
use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::Offload;

const SIOCETHTOOL: libc::c_ulong = 0x8946;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

pub(crate) fn get_command(offload: Offload) -> u32 {
    match offload {
        Offload::ReceiveChecksum => 0x14,
        Offload::TransmitChecksum => 0x16,
        Offload::ScatterGather => 0x18,
        Offload::TcpSegmentation => 0x1e,
        Offload::GenericSegmentation => 0x23,
        Offload::GenericReceive => 0x2b,
    }
}

/// Each "set" follows its "get".
pub(crate) fn set_command(offload: Offload) -> u32 {
    get_command(offload) + 1
}

pub(crate) fn get(device: &str, command: u32) -> io::Result<u32> {
    call(device, EthtoolValue { command, data: 0 })
}

pub(crate) fn set(device: &str, command: u32, data: u32) -> io::Result<()> {
    call(device, EthtoolValue { command, data }).map(drop)
}

#[allow(unsafe_code)]
fn call(device: &str, mut value: EthtoolValue) -> io::Result<u32> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    // SAFETY: `ifreq` is a C structure of integers, arrays and pointers, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the descriptor is open; the request names a device and points to `value`, which lives until the call
    // returns and has the layout this command reads and writes (two 32-bit words).
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
}
