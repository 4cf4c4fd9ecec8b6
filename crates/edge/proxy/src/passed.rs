//! Listening sockets that a service manager holds and passes to this process: socket activation, `sd_listen_fds(3)`.
//!
//! The service manager keeps such a socket while the process is restarted or replaced. Programs that connect meanwhile wait; they are not refused.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::socket::{getsockopt, sockopt};

use crate::run::descriptor::owned;

/// Descriptors that were passed have an owner from the first call on.
static ARE_TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the listening TCP sockets that were passed to this process, in their order; none without a service manager, and none the second
/// time.
///
/// # Errors
/// `LISTEN_PID` or `LISTEN_FDS` are no numbers, or a descriptor is not a listening TCP socket.
pub fn take_listeners() -> io::Result<Vec<TcpListener>> {
    if ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    // The manager names the process that the descriptors are for; they are closed in programs that this process starts.
    sd_notify::listen_fds()?.map(|number| listener(number).map_err(|error| named(number, &error))).collect()
}

fn listener(number: i32) -> io::Result<TcpListener> {
    let socket = owned(number);
    if !getsockopt(&socket, sockopt::AcceptConn)? {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it does not listen"));
    }
    let listener = TcpListener::from(socket);
    // Not all that listens has an address and a port: a socket in the file system has a path.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn named(number: i32, error: &io::Error) -> io::Error {
    let text = format!("descriptor {number} of the service manager is no listening TCP socket: {error}");
    io::Error::new(error.kind(), text)
}
