//! Init1 and Init2 (RFC 8548, section 4.1).

use bytes::{BufMut, Bytes, BytesMut};
use plait_protect::sealed::Suite;

use super::agreement::Curve;
use crate::error::HandshakeError;

pub(super) const INIT1_MAGIC: u32 = 0x1510_1a0e;
pub(super) const INIT2_MAGIC: u32 = 0x0971_05e0;

/// N_A_LEN and N_B_LEN of all TEPs (section 5).
pub(super) const NONCE_LEN: usize = 32;

/// Largest message accepted. Ours have 111 bytes at most. The RFC allows trailing bytes that a receiver must ignore, and up to 255 ciphers.
const MAX_MESSAGE: usize = 4096;

/// Magic and message length.
const PREFIX_LEN: usize = 8;

/// One parsed message: the listed ciphers that we support (in Init2: at most the chosen one).
pub(super) struct Init<'a> {
    pub(super) suites: Vec<Suite>,
    pub(super) nonce: &'a [u8; NONCE_LEN],
    pub(super) public: &'a [u8],
}

/// Collects the bytes of one message and stops after its last.
pub(super) struct Collector {
    magic: u32,
    bytes: BytesMut,
}

impl Collector {
    pub(super) fn new(magic: u32) -> Self {
        Self { magic, bytes: BytesMut::new() }
    }

    /// Takes the bytes of the message from the start of `input`. Returns the message when it is complete. An error in the first eight bytes
    /// is found before the rest arrives.
    pub(super) fn take(&mut self, input: &[u8]) -> Result<(usize, Option<Bytes>), HandshakeError> {
        let prefix = input.len().min(PREFIX_LEN.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(&input[..prefix]);
        let expected = self.magic.to_be_bytes();
        let known = self.bytes.len().min(expected.len());
        if self.bytes[..known] != expected[..known] {
            return Err(HandshakeError::Malformed("not tcpcrypt's magic number"));
        }
        let Some((_, [_, _, _, _, length @ ..])) =
            self.bytes.split_first_chunk::<PREFIX_LEN>().map(|(prefix, rest)| (rest, prefix))
        else {
            return Ok((prefix, None));
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            return Err(HandshakeError::TooLong);
        }
        if length < PREFIX_LEN {
            return Err(HandshakeError::Malformed("a message shorter than its own header"));
        }
        let rest = (input.len() - prefix).min(length - self.bytes.len());
        self.bytes.extend_from_slice(&input[prefix..prefix + rest]);
        let whole = (self.bytes.len() == length).then(|| self.bytes.split().freeze());
        Ok((prefix + rest, whole))
    }
}

pub(super) fn emit_init1(suites: &[Suite], nonce: &[u8; NONCE_LEN], public: &[u8]) -> Bytes {
    let mut ciphers = vec![suites.len() as u8];
    ciphers.extend(suites.iter().flat_map(|suite| suite.number().to_be_bytes()));
    emit(INIT1_MAGIC, &ciphers, nonce, public)
}

pub(super) fn emit_init2(suite: Suite, nonce: &[u8; NONCE_LEN], public: &[u8]) -> Bytes {
    emit(INIT2_MAGIC, &suite.number().to_be_bytes(), nonce, public)
}

fn emit(magic: u32, ciphers: &[u8], nonce: &[u8; NONCE_LEN], public: &[u8]) -> Bytes {
    let length = PREFIX_LEN + ciphers.len() + NONCE_LEN + public.len();
    let mut message = BytesMut::with_capacity(length);
    message.put_u32(magic);
    message.put_u32(length as u32);
    message.put_slice(ciphers);
    message.put_slice(nonce);
    message.put_slice(public);
    message.freeze()
}

pub(super) fn parse_init1(message: &[u8], curve: Curve) -> Result<Init<'_>, HandshakeError> {
    let (_, rest) = split(message, PREFIX_LEN)?;
    let (count, rest) = split(rest, 1)?;
    let (ciphers, rest) = split(rest, 2 * usize::from(count[0]))?;
    parse(ciphers, rest, curve)
}

pub(super) fn parse_init2(message: &[u8], curve: Curve) -> Result<Init<'_>, HandshakeError> {
    let (_, rest) = split(message, PREFIX_LEN)?;
    let (cipher, rest) = split(rest, 2)?;
    parse(cipher, rest, curve)
}

/// Parses nonce and public key. Bytes after them are ignored, as section 4.1 requires.
fn parse<'a>(ciphers: &[u8], rest: &'a [u8], curve: Curve) -> Result<Init<'a>, HandshakeError> {
    let (nonce, rest) = split(rest, NONCE_LEN)?;
    let (public, _) = split(rest, curve.encoded_len())?;
    let suites = ciphers
        .chunks_exact(2)
        .filter_map(|pair| Suite::from_number(u16::from_be_bytes([pair[0], pair[1]])))
        .collect();
    let nonce = nonce.try_into().map_err(|_| SHORT)?;
    Ok(Init { suites, nonce, public })
}

const SHORT: HandshakeError = HandshakeError::Malformed("a tcpcrypt message ends within a field");

fn split(bytes: &[u8], at: usize) -> Result<(&[u8], &[u8]), HandshakeError> {
    bytes.split_at_checked(at).ok_or(SHORT)
}
