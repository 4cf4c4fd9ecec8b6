//! The block: its layout and the buffers it lives in.
//!
//! ```text
//! H(1) || C(len P) || T_d(16) || T_o(16)
//! ```
//!
//! A buffer has room for all four parts. Sealing works in place; the first transmission
//! writes its option tag behind the data tag and hands the buffer out without copying it.

use core::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use plait_base::Dsn;

use super::option_tag::{OPTION_TAG_LEN, OptionContext, OptionKey};

/// Bytes that a block adds to its plain text: H, data tag, option tag.
pub const BLOCK_OVERHEAD: usize = HEADER_LEN + DATA_TAG_LEN + OPTION_TAG_LEN;

/// The longest plain text of a block: the data-level length has 16 bits, and a DATA_FIN counts as one byte.
pub const MAX_PLAIN: usize = u16::MAX as usize - BLOCK_OVERHEAD - 1;

pub(super) const HEADER_LEN: usize = 1;
pub(super) const DATA_TAG_LEN: usize = 16;

/// The kind of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Type 00: bytes of the application.
    Data,
    /// Type 10: control records.
    Control,
}

/// H: type (2 bits) and the lower six bits of the generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header(u8);

impl Header {
    pub(super) const fn new(kind: Kind, generation: u8) -> Self {
        let kind = match kind {
            Kind::Data => 0x00,
            Kind::Control => 0x80,
        };
        Self(kind | generation & 0x3f)
    }

    /// `None` for the two types that do not exist.
    pub(super) const fn parse(byte: u8) -> Option<(Self, Kind)> {
        match byte >> 6 {
            0b00 => Some((Self(byte), Kind::Data)),
            0b10 => Some((Self(byte), Kind::Control)),
            _ => None,
        }
    }

    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    pub(super) const fn generation(self) -> u8 {
        self.0 & 0x3f
    }
}

/// Plain bytes on their way into a block, with room around them for what sealing adds.
pub struct BlockBuffer {
    /// Behind a byte for the header.
    bytes: BytesMut,
    /// The pieces after them. The sealing thread, which may be another one, copies them.
    pieces: Vec<Bytes>,
    pieces_len: usize,
}

impl BlockBuffer {
    /// An empty buffer with room for `plain` bytes (at most [`MAX_PLAIN`]).
    pub fn with_capacity(plain: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(plain.min(MAX_PLAIN) + BLOCK_OVERHEAD);
        bytes.put_u8(0);
        Self { bytes, pieces: Vec::new(), pieces_len: 0 }
    }

    /// Appends a piece that fits (see [`BlockBuffer::room`]; the rest is cut off), without copying it.
    pub fn append(&mut self, mut piece: Bytes) {
        piece.truncate(self.room());
        self.pieces_len += piece.len();
        self.pieces.push(piece);
    }

    /// Copies as much of `bytes` as fits and returns its length.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        if self.pieces.is_empty() {
            self.bytes.extend_from_slice(&bytes[..taken]);
        } else {
            self.append(Bytes::copy_from_slice(&bytes[..taken]));
        }
        taken
    }

    /// Returns how many bytes still fit below [`MAX_PLAIN`].
    pub fn room(&self) -> usize {
        MAX_PLAIN - self.len()
    }

    /// Plain bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len() - HEADER_LEN + self.pieces_len
    }

    /// Whether nothing was put in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts the header in front, lets `encrypt` work on the plain bytes in place, and appends the tag that it returns.
    pub(super) fn seal(
        self,
        header: Header,
        encrypt: impl FnOnce(&mut [u8]) -> [u8; DATA_TAG_LEN],
    ) -> BytesMut {
        let Self { mut bytes, pieces, pieces_len } = self;
        bytes.reserve(pieces_len + DATA_TAG_LEN + OPTION_TAG_LEN);
        for piece in pieces {
            bytes.extend_from_slice(&piece);
        }
        bytes[0] = header.bits();
        let data_tag = encrypt(&mut bytes[HEADER_LEN..]);
        bytes.extend_from_slice(&data_tag);
        bytes.put_bytes(0, OPTION_TAG_LEN);
        bytes
    }
}

impl From<&[u8]> for BlockBuffer {
    /// A buffer with the first [`MAX_PLAIN`] bytes of `plain`.
    fn from(plain: &[u8]) -> Self {
        let mut buffer = Self::with_capacity(plain.len());
        buffer.put(plain);
        buffer
    }
}

impl fmt::Debug for BlockBuffer {
    /// Prints only the length: the bytes are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockBuffer({} bytes)", self.len())
    }
}

/// A block after its one and only encryption. It is transmitted as often as needed.
pub struct SealedBlock {
    kind: Kind,
    generation: u64,
    dsn: Dsn,
    body: Body,
}

enum Body {
    /// Never transmitted: room for the option tag is at the end of the buffer.
    Fresh(BytesMut),
    /// Transmitted with some option tag; transmissions may still hold these bytes.
    Sent(Bytes),
}

/// One transmission of a block: the payload of its mapping.
#[derive(Clone, Debug)]
pub struct Payload {
    /// `H || C || T_d || T_o`. Keep it for retransmissions on the same subflow.
    pub bytes: Bytes,
    /// Bytes that had to be copied for it: 0 for a first transmission, the whole block for a reinjection
    /// while an earlier transmission is still held.
    pub copied: usize,
}

impl SealedBlock {
    pub(super) fn new(kind: Kind, generation: u64, dsn: Dsn, body: BytesMut) -> Self {
        Self { kind, generation, dsn, body: Body::Fresh(body) }
    }

    /// Returns its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The generation of the keys it was sealed with.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Its first data sequence number.
    pub fn dsn(&self) -> Dsn {
        self.dsn
    }

    /// Its data-level length: the plain text and [`BLOCK_OVERHEAD`].
    #[expect(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// The data sequence number behind it.
    pub fn end(&self) -> Dsn {
        self.dsn + self.len() as u64
    }

    /// `H || C || T_d`, which every transmission has in common, without copying. Together with
    /// [`Sealer::tag`](super::Sealer::tag) it makes up a payload of two pieces.
    pub fn shared(&mut self) -> Bytes {
        let len = self.len() - OPTION_TAG_LEN;
        let body = match core::mem::replace(&mut self.body, Body::Sent(Bytes::new())) {
            Body::Fresh(body) => body.freeze(),
            Body::Sent(body) => body,
        };
        let shared = body.slice(..len);
        self.body = Body::Sent(body);
        shared
    }

    pub(super) fn tag(&self, key: &OptionKey, context: &OptionContext<'_>) -> [u8; OPTION_TAG_LEN] {
        let bytes = self.bytes();
        let message = context.of_block(self.header(), self.dsn, bytes.len());
        key.tag(&message, data_tag(bytes))
    }

    /// Writes the option tag behind the block, in place if there is no other holder of the bytes.
    pub(super) fn transmit(&mut self, key: &OptionKey, context: &OptionContext<'_>) -> Payload {
        let tag = self.tag(key, context);
        let (mut body, copied) = match core::mem::replace(&mut self.body, Body::Sent(Bytes::new())) {
            Body::Fresh(body) => (body, 0),
            Body::Sent(sent) => writable(sent),
        };
        let tag_at = body.len() - OPTION_TAG_LEN;
        body[tag_at..].copy_from_slice(&tag);
        let bytes = body.freeze();
        self.body = Body::Sent(bytes.clone());
        Payload { bytes, copied }
    }

    pub(super) fn header(&self) -> Header {
        Header::new(self.kind, (self.generation & 0x3f) as u8)
    }

    fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Fresh(body) => body,
            Body::Sent(body) => body,
        }
    }
}

impl fmt::Debug for SealedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedBlock({:?}, {:?}, {} bytes)", self.kind, self.dsn, self.len())
    }
}

/// The data tag of `H || C || T_d || T_o`, which is at least [`BLOCK_OVERHEAD`] long.
pub(super) fn data_tag(block: &[u8]) -> &[u8] {
    let end = block.len() - OPTION_TAG_LEN;
    &block[end - DATA_TAG_LEN..end]
}

/// The same bytes where they may be written to, and how many had to be copied for it.
pub(super) fn writable(bytes: Bytes) -> (BytesMut, usize) {
    match bytes.try_into_mut() {
        Ok(bytes) => (bytes, 0),
        Err(shared) => (BytesMut::from(&shared[..]), shared.len()),
    }
}
