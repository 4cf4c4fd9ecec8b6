//! Transcript of both SYNs and of both prologues.

use core::fmt;

use aws_lc_rs::digest;

/// The negotiation as both hosts saw it: A's MP_CAPABLE, A's ENO, B's MP_CAPABLE, B's ENO, each as on the wire with kind and length. Own
/// options are as sent, the other's as received. Keys are derived from it only together with both prologues: [`bind`](Self::bind).
#[derive(Clone, PartialEq, Eq)]
pub struct Transcript(Vec<u8>);

/// The [`Transcript`] followed by both prologues. If an attacker changed a byte of either on the path, the two hosts have different
/// transcripts, and so different keys.
#[derive(Clone, PartialEq, Eq)]
pub struct BoundTranscript(Vec<u8>);

impl Transcript {
    /// The transcript of these four options.
    pub fn new(a_capable: &[u8], a_eno: &[u8], b_capable: &[u8], b_eno: &[u8]) -> Self {
        Self([a_capable, a_eno, b_capable, b_eno].concat())
    }

    /// Adds the prologues of both ends, each as it was on the wire with its length.
    #[must_use]
    pub fn bind(&self, a_prologue: &[u8], b_prologue: &[u8]) -> BoundTranscript {
        BoundTranscript([&self.0[..], a_prologue, b_prologue].concat())
    }
}

impl BoundTranscript {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// TH: SHA-256 of the bytes.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, &self.0).as_ref());
        hash
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex("Transcript", &self.0, f)
    }
}

impl fmt::Debug for BoundTranscript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex("BoundTranscript", &self.0, f)
    }
}

fn write_hex(name: &str, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{name}(")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
    f.write_str(")")
}
