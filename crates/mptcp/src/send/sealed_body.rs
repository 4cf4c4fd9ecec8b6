//! A sealed block in the send buffer.

use plait_protect::sealed::SealedBlock;

/// A block that was sealed once and is transmitted as often as needed.
#[derive(Debug)]
pub(crate) struct SealedBody {
    pub(crate) block: SealedBlock,
    /// Bytes of the application in it; none in a control block.
    pub(crate) application: usize,
    /// DATA_FIN: it is the last block of the stream.
    pub(crate) ends_stream: bool,
}

impl SealedBody {
    /// Data sequence numbers that it takes, a DATA_FIN not counted.
    pub(crate) fn len(&self) -> usize {
        self.block.len()
    }

    pub(crate) fn application_bytes(&self) -> u64 {
        self.application as u64
    }
}
