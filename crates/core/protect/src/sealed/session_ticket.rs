//! The ticket that a server gives its client for the next handshake.

use core::fmt;

/// The most bytes of a ticket. The record of TLS with a NewSessionTicket of a server that keeps its sessions itself takes some 110.
pub const MAX_TICKET: usize = 192;

/// A ticket that the server's handshake has made for the client's: one to [`MAX_TICKET`] bytes that are opaque to all others.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionTicket(Box<[u8]>);

impl SessionTicket {
    /// The ticket with these bytes; `None` if there are none, or too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=MAX_TICKET).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SessionTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionTicket({} bytes)", self.0.len())
    }
}
