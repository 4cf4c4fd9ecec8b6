//! The mark of the sockets of this process (`SO_MARK`), by which rules of a firewall tell them from those of other programs.

#[cfg(target_os = "linux")]
use std::io;
use std::num::NonZeroU32;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// Set once: a socket that was opened before would not have it.
static MARK: OnceLock<NonZeroU32> = OnceLock::new();

/// Marks the sockets that this process opens to the network from now on: those of UDP that carry segments, and those of questions to
/// nameservers. The kernel lets processes with CAP_NET_ADMIN or CAP_NET_RAW set marks. The first mark counts.
pub fn mark_sockets(mark: NonZeroU32) {
    let _ = MARK.set(mark);
}

/// The mark of the sockets of this process, if there is one.
pub fn own_mark() -> Option<NonZeroU32> {
    MARK.get().copied()
}

/// Gives a socket the mark, if there is one.
///
/// # Errors
/// The process may not set marks.
#[cfg(target_os = "linux")]
pub fn put_mark(socket: &impl AsFd) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    let Some(mark) = own_mark() else { return Ok(()) };
    Ok(setsockopt(socket, sockopt::Mark, &mark.get())?)
}
