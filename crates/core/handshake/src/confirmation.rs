//! The server's confirmation: its last message, which proves that it has the same keys, negotiation and prologues.
//!
//! The client sends bytes of the application as soon as its handshake is over, before sealed bytes of the server can arrive. Without a
//! confirmation it would send them to any instance that the prologue names, and an attacker on one path could name one that does not exist.
//! With it, a changed byte of the negotiation or of a prologue ends the attempt before a byte is sent.
//!
//! ```text
//! confirmation = HKDF-Expand(HKDF-Extract(TH, S), "mptcpsec confirmation", 16)
//! ```
//!
//! S is the exporter secret of TLS 1.3 (RFC 8446, section 7.5), or the master secret where tcpcrypt has agreed on it.

use bytes::BufMut;
use plait_protect::handshake::BoundTranscript;
use plait_protect::sealed::Hkdf;
use subtle::ConstantTimeEq;

use crate::error::HandshakeError;

/// Its length in bytes.
pub(crate) const LEN: usize = 16;

const LABEL: &[u8] = b"mptcpsec confirmation";

/// Returns the confirmation of a server with this secret.
///
/// # Errors
/// None: the output is short.
pub(crate) fn confirmation(secret: &[u8], transcript: &BoundTranscript) -> Result<[u8; LEN], HandshakeError> {
    let mut out = [0; LEN];
    let key = Hkdf::extract(&transcript.hash(), secret);
    key.expand(&[LABEL], &mut out).map_err(|_| HandshakeError::Unconfirmed)?;
    Ok(out)
}

/// The client's state while it waits for the confirmation.
pub(crate) struct Awaited {
    expected: [u8; LEN],
    seen: Vec<u8>,
}

impl Awaited {
    pub(crate) fn new(expected: [u8; LEN]) -> Self {
        Self { expected, seen: Vec::with_capacity(LEN) }
    }

    /// Takes the bytes of the confirmation from the start of `bytes`. Returns their number, and whether the confirmation is complete.
    ///
    /// # Errors
    /// The confirmation is a different one.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), HandshakeError> {
        let taken = bytes.len().min(LEN - self.seen.len());
        self.seen.put_slice(&bytes[..taken]);
        let is_whole = self.seen.len() == LEN;
        if is_whole && !bool::from(self.seen.ct_eq(&self.expected)) {
            return Err(HandshakeError::Unconfirmed);
        }
        Ok((taken, is_whole))
    }
}

#[cfg(test)]
#[path = "confirmation/tests.rs"]
mod tests;
