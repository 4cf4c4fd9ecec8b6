//! `getsockopt(SOL_MPTCP, MPTCP_INFO)` as raw bytes (linux/mptcp.h, `struct mptcp_info`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;

/// Longer than the structure of any kernel so far (92 bytes in 6.18): newer ones fill in more of it.
pub(crate) const ROOM: usize = 256;

/// The structure's bytes; the kernel says how many it filled in.
#[allow(unsafe_code)]
pub(crate) fn read(socket: BorrowedFd<'_>) -> io::Result<([u8; ROOM], usize)> {
    let mut bytes = [0_u8; ROOM];
    let mut length: libc::socklen_t = 256;
    // SAFETY: the descriptor is borrowed and open; the kernel writes at most `length` bytes, which is the size of `bytes`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((bytes, usize::try_from(length).unwrap_or(0).min(ROOM)))
}
