//! The secrets of tcpcrypt's key exchange (RFC 8548, section 3.3), from the shared secret in the key log and what is on the wire.

use anyhow::{Context, Result};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{First, Hash, Secret};

/// Label in the log of the shared secret ES, beside the nonce of A; and of the private keys, beside the nonces of their owners.
pub(super) const SHARED: &str = "TCPCRYPT_SHARED_SECRET";
pub(crate) const PRIVATE_KEY: &str = "TCPCRYPT_PRIVATE_KEY";
/// A nonce has 32 bytes (RFC 8548, section 5), and stands behind the ciphers (section 4.1).
const NONCE_LEN: usize = 32;
/// CONST for the master secret of the blocks (docs/protocol.md, section 2).
const CONST_MASTER: u8 = 0x4d;

/// The nonce in Init1 (of side 0) or Init2, if the connection begins with that.
pub(super) fn nonce(first: &First, side: usize) -> Option<&[u8]> {
    let said = first.behind_prologue(side)?;
    let at = match (side, said.get(..4)?) {
        (0, [0x15, 0x10, 0x1a, 0x0e]) => 9 + 2 * usize::from(*said.get(8)?),
        (1, [0x09, 0x71, 0x05, 0xe0]) => 10,
        _ => return None,
    };
    said.get(at..at + NONCE_LEN)
}

/// Init1, or Init2 without the confirmation behind it: its length stands behind the magic number.
fn message(first: &First, side: usize) -> Option<&[u8]> {
    let said = first.behind_prologue(side)?;
    let length = u32::from_be_bytes(said.get(4..8)?.try_into().ok()?);
    said.get(..usize::try_from(length).ok()?)
}

/// Secrets derived from the log, and the master secret.
pub(super) fn complete(mut secrets: Vec<Secret>, first: &First) -> Result<(Vec<Secret>, Vec<u8>)> {
    let shared = secrets.iter().find(|secret| secret.name == SHARED).context("no shared secret")?;
    let [Some(init1), Some(init2)] = [0, 1].map(|side| message(first, side)) else {
        anyhow::bail!("no Init1 and Init2")
    };
    let nonce = nonce(first, 0).context("no nonce")?;
    // HMAC takes keys of any length.
    let mut extract = <Hmac<Sha256> as KeyInit>::new_from_slice(nonce).context("no key")?;
    for part in [&first.transcript(), init1, init2, &shared.bytes] {
        extract.update(part);
    }
    let session = extract.finalize().into_bytes().to_vec();
    let master = Hash::Sha256.expand(&session, &[CONST_MASTER], 32);
    for key in secrets.iter_mut().filter(|secret| secret.name == PRIVATE_KEY) {
        // X25519 may keep a key with bits of its first and last byte set to what they count as.
        key.bytes = key.bytes[1..key.bytes.len() - 1].to_vec();
    }
    secrets.push(Secret { name: "session secret".to_owned(), bytes: session });
    Ok((secrets, master))
}
