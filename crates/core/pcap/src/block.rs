//! One block of pcapng (draft-ietf-opsawg-pcapng, section 3.1), little-endian.

use std::io::{self, Write};

/// A block that is being put together: its type, its length, its body so far.
pub(crate) struct Block {
    bytes: Vec<u8>,
    has_options: bool,
}

/// Bytes of the type and of the first length.
const HEAD: usize = 8;
/// Blocks, packets and options end at a multiple of so many bytes.
const ALIGNMENT: usize = 4;
const END_OF_OPTIONS: u16 = 0;

impl Block {
    pub(crate) fn new(kind: u32) -> Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        // The length follows in `write_to`.
        bytes.resize(HEAD, 0);
        Self { bytes, has_options: false }
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends bytes as they are.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends bytes, and zeros up to the next multiple of four.
    pub(crate) fn padded(self, bytes: &[u8]) -> Self {
        let mut block = self.raw(bytes);
        block.bytes.resize(block.bytes.len().next_multiple_of(ALIGNMENT), 0);
        block
    }

    /// Appends an option if it has a value. Options are the end of a block (section 3.5).
    ///
    /// # Errors
    /// The value has more than 65,535 bytes.
    pub(crate) fn option(self, code: u16, value: Option<&[u8]>) -> io::Result<Self> {
        let Some(value) = value else { return Ok(self) };
        let len = u16::try_from(value.len()).map_err(|_| too_long())?;
        Ok(Self { has_options: true, ..self.u16(code).u16(len).padded(value) })
    }

    /// Writes the whole block.
    ///
    /// # Errors
    /// `out` failed, or the block has 4 GiB and more.
    pub(crate) fn write_to(self, out: &mut impl Write) -> io::Result<()> {
        let ended = if self.has_options { self.u16(END_OF_OPTIONS).u16(0) } else { self };
        let mut bytes = ended.bytes;
        let len = u32::try_from(bytes.len() + size_of::<u32>()).map_err(|_| too_long())?.to_le_bytes();
        bytes[HEAD - len.len()..HEAD].copy_from_slice(&len);
        bytes.extend_from_slice(&len);
        out.write_all(&bytes)
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a text or a packet is too long for a capture")
}
