//! Datagrams of a socket, and the time for which a flow is idle.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::time::Instant;

use super::idle_limit;

/// Longest datagram of UDP.
const LONGEST: usize = 65_536;
/// Most datagrams that are taken before others have a turn.
pub(super) const TOGETHER: usize = 64;

thread_local! {
    /// The memory into which datagrams are read.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(LONGEST));
}

/// Returns the next datagram that a connected socket has; `None` if it has none.
///
/// # Errors
/// That of the socket, as an answer by ICMP.
pub(super) fn take(socket: &UdpSocket) -> io::Result<Option<Bytes>> {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        match socket.try_recv_buf(buffer) {
            Ok(_) => Ok(Some(Bytes::copy_from_slice(buffer))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    })
}

/// Returns the next datagram of a socket that is not connected, with its source.
///
/// # Errors
/// That of the socket.
pub(super) fn take_from(socket: &UdpSocket) -> io::Result<Option<(Bytes, SocketAddr)>> {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        match socket.try_recv_buf_from(buffer) {
            Ok((_, from)) => Ok(Some((Bytes::copy_from_slice(buffer), from))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    })
}

/// The age of the last datagram of a flow.
#[derive(Debug)]
pub(super) struct Idle {
    port: Option<u16>,
    is_answered: bool,
    last: Instant,
}

impl Idle {
    /// A flow to a destination with this port.
    pub(super) fn new(port: Option<u16>) -> Self {
        Self { port, is_answered: false, last: Instant::now() }
    }

    /// The flow has carried something to its destination.
    pub(super) fn sends(&mut self) {
        self.last = Instant::now();
    }

    /// Its destination has answered.
    pub(super) fn is_answered(&mut self) {
        (self.is_answered, self.last) = (true, Instant::now());
    }

    /// When it has been idle for too long, unless it carries something until then.
    pub(super) fn over(&self) -> Instant {
        self.last + idle_limit(self.port, self.is_answered)
    }
}
