//! A number that names the network namespace of this thread (linux/net_namespace.h, `net_cookie`).

use std::io;
use std::mem::size_of;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `SO_NETNS_COOKIE` (asm-generic/socket.h), since Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The cookie: never used twice between two starts of the machine, other than the inode of the namespace.
///
/// # Errors
/// The kernel is older than 5.14.
#[allow(unsafe_code)]
pub(crate) fn namespace_cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `length` bytes, which is the size of `cookie`,
    // and any eight bytes are a `u64`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}
