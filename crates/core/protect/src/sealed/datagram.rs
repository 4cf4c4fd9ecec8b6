//! Datagrams beside the stream: their layout, their keys, and how they are sealed and opened.
//!
//! ```text
//! kind(1) || flags and generation(1) || counter(4) || flow(1, 2 or 4) || [number(4)] || [piece(1)] || C || T(16)
//! ```
//!
//! All in front of C is the associated data. The nonce is the 64-bit counter of the subflow and direction, of which the lower 32 bits are
//! on the wire. The upper half of the first byte is 0, where a TCP segment over UDP has its data offset, which is at least 5.

use core::fmt;

use bytes::{BufMut, BytesMut};

use super::aead::{BlockKey, WrongTag};
use super::option_tag::SubflowTag;

/// The largest number of a flow: 30 bits.
pub const MAX_FLOW: u32 = (1 << 30) - 1;
/// Most pieces of one datagram.
pub const MAX_PIECES: u8 = 4;
/// Bytes of the longest header.
const MAX_DATAGRAM_HEAD: usize = 1 + 1 + 4 + 4 + 4 + 1;
/// Most bytes that sealing adds to a payload.
pub const DATAGRAM_OVERHEAD: usize = MAX_DATAGRAM_HEAD + TAG_LEN;

const TAG_LEN: usize = 16;
const KIND: u8 = 0x04;
const HAS_NUMBER: u8 = 0x80;
const IS_PIECE: u8 = 0x40;
/// Bytes 4 to 7 of a message of STUN (RFC 8489, section 5). No datagram has them there, so that both can share a port (RFC 7983).
const STUN_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// The place of a piece in its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// From 0.
    pub index: u8,
    /// Number of pieces: 2 to [`MAX_PIECES`].
    pub of: u8,
}

/// The header of a datagram, without its counter and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatagramHead {
    /// The flow, at most [`MAX_FLOW`].
    pub flow: u32,
    /// The ECN codepoint of the datagram that the application has given, two bits.
    pub ecn: u8,
    /// The number of the datagram on the connection, where several copies or pieces of it are sent.
    pub number: Option<u32>,
    /// For a part of a datagram, which has a number.
    pub piece: Option<Piece>,
}

/// A header as it is on the wire.
struct WireHead {
    head: DatagramHead,
    generation: u8,
    counter: u32,
    len: usize,
}

impl DatagramHead {
    /// Its length on the wire, in bytes.
    #[cfg(test)]
    const fn wire_length(&self) -> usize {
        let number = if self.number.is_some() { 4 } else { 0 };
        6 + flow_len(self.flow) + number + self.piece.is_some() as usize
    }

    fn emit(&self, generation: u8, counter: u32, out: &mut BytesMut) {
        out.put_u8(KIND | self.ecn & 3);
        let number = if self.number.is_some() { HAS_NUMBER } else { 0 };
        let piece = if self.piece.is_some() { IS_PIECE } else { 0 };
        out.put_u8(number | piece | generation & 0x3f);
        out.put_u32(counter);
        match flow_len(self.flow) {
            1 => out.put_u8(self.flow as u8),
            2 => out.put_u16(0x4000 | self.flow as u16),
            _ => out.put_u32(0x8000_0000 | self.flow),
        }
        self.number.iter().for_each(|number| out.put_u32(*number));
        self.piece.iter().for_each(|piece| out.put_u8(piece.index << 4 | piece.of & 0x0f));
    }
}

impl WireHead {
    /// `None` if it is malformed. A number in a longer form than necessary is malformed, too: each header has one form.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[kind, flags, a, b, c, d, first], _) = bytes.split_first_chunk()?;
        if !(KIND..KIND + 4).contains(&kind) || bytes.get(4..8)? == STUN_COOKIE {
            return None;
        }
        let length = match first >> 6 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return None,
        };
        let mut at = 6 + length;
        let number_of = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let flow = number_of(bytes.get(6..at)?) & !(0xc0 << (8 * (length - 1)));
        let mut take = |len: usize| {
            at += len;
            Some(number_of(bytes.get(at - len..at)?))
        };
        let number = if flags & HAS_NUMBER != 0 { Some(take(4)?) } else { None };
        let piece = if flags & IS_PIECE != 0 {
            let byte = take(1)? as u8;
            Some(Piece { index: byte >> 4, of: byte & 0x0f })
        } else {
            None
        };
        let is_place = |piece: Piece| (2..=MAX_PIECES).contains(&piece.of) && piece.index < piece.of;
        let is_whole = flow_len(flow) == length
            && piece.is_none_or(is_place)
            && (piece.is_none() || number.is_some())
            && bytes.len() >= at + TAG_LEN;
        let head = DatagramHead { flow, ecn: kind & 3, number, piece };
        let counter = u32::from_be_bytes([a, b, c, d]);
        is_whole.then_some(Self { head, generation: flags & 0x3f, counter, len: at })
    }
}

const fn flow_len(flow: u32) -> usize {
    match flow {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        _ => 4,
    }
}

/// The keys for datagrams of one generation, one for each subflow.
#[derive(Default)]
pub(super) struct DatagramKeys(Vec<(SubflowTag, BlockKey)>);

impl DatagramKeys {
    /// The key of this subflow, if it was derived.
    pub(super) fn get(&self, subflow: SubflowTag) -> Option<&BlockKey> {
        self.0.iter().find(|(of, _)| *of == subflow).map(|(_, key)| key)
    }

    /// The key of this subflow, derived at its first use.
    pub(super) fn get_or_derive(
        &mut self,
        subflow: SubflowTag,
        derive: impl FnOnce() -> BlockKey,
    ) -> &BlockKey {
        let known = self.0.iter().position(|(of, _)| *of == subflow);
        let index = known.unwrap_or_else(|| {
            self.0.push((subflow, derive()));
            self.0.len() - 1
        });
        &self.0[index].1
    }

    pub(super) fn forget(&mut self, subflow: SubflowTag) {
        self.0.retain(|(of, _)| *of != subflow);
    }
}

/// Seals `payload` at the end of `out`, which is empty. Returns the counter that was used: the first from `counter` on under which the
/// datagram cannot be taken for STUN.
pub(super) fn seal(
    key: &BlockKey,
    (generation, counter): (u8, u64),
    head: &DatagramHead,
    payload: &[&[u8]],
    out: &mut BytesMut,
) -> u64 {
    for counter in counter.. {
        out.clear();
        head.emit(generation, counter as u32, out);
        let start = out.len();
        payload.iter().for_each(|piece| out.extend_from_slice(piece));
        let mut associated = [0; MAX_DATAGRAM_HEAD];
        associated[..start].copy_from_slice(&out[..start]);
        let tag = key.seal_with(key.nonce_of(counter), &associated[..start], &mut out[start..]);
        out.extend_from_slice(&tag);
        if out[4..8] != STUN_COOKIE {
            return counter;
        }
    }
    unreachable!("a counter of 64 bits does not end")
}

/// A datagram with a well-formed header, which is not verified yet.
pub(super) struct Claimed {
    pub(super) head: DatagramHead,
    pub(super) generation: u8,
    pub(super) counter: u32,
    len: usize,
}

impl Claimed {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, DatagramError> {
        let WireHead { head, generation, counter, len } =
            WireHead::parse(bytes).ok_or(DatagramError::Malformed)?;
        Ok(Self { head, generation, counter, len })
    }

    /// Decrypts it in place.
    pub(super) fn open(
        &self,
        key: &BlockKey,
        counter: u64,
        mut bytes: BytesMut,
    ) -> Result<OpenedDatagram, DatagramError> {
        let head = bytes.split_to(self.len);
        let text = key.open_with(key.nonce_of(counter), &head, &mut bytes);
        let text = text.map_err(|WrongTag| DatagramError::Forged)?;
        bytes.truncate(text);
        Ok(OpenedDatagram { head: self.head, counter, payload: bytes })
    }
}

/// A datagram that was verified and decrypted, and arrived for the first time on its subflow.
pub struct OpenedDatagram {
    /// Its header.
    pub head: DatagramHead,
    /// Its counter on the subflow.
    pub counter: u64,
    /// The payload, or the piece of one.
    pub payload: BytesMut,
}

impl fmt::Debug for OpenedDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenedDatagram({:?}, {}, {} bytes)", self.head, self.counter, self.payload.len())
    }
}

/// The reason for which a datagram is dropped. A sender off the path can cause all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramError {
    /// It is too short, or its header is not one.
    Malformed,
    /// There are no keys of its generation (any more).
    Generation,
    /// It has arrived before on this subflow, or is too old to know.
    Repeated,
    /// Its tag is wrong.
    Forged,
    /// So many were forged in this generation that another one could succeed: the peer's next generation is awaited.
    UsedUp,
}

#[cfg(test)]
#[path = "datagram_tests.rs"]
mod tests;
