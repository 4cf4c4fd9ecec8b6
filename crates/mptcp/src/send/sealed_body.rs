//! A sealed block in the send buffer.

use plait_protect::sealed::SealedBlock;

/// A block that was sealed once and is transmitted as often as needed.
#[derive(Debug)]
pub(crate) struct SealedBody {
    pub(crate) block: SealedBlock,
    /// Bytes of the application in it; none in a control block.
    pub(crate) application: usize,
    pub(crate) news: News,
}

/// What a block says that matters to how it is transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    Nothing,
    /// What counts before all that lies in front of it has come: how far the peer may send, and which subflows are no more.
    Urgent,
    /// DATA_FIN: it is the last block of the stream.
    End,
}

impl SealedBody {
    /// Data sequence numbers that it takes, a DATA_FIN not counted.
    pub(crate) fn len(&self) -> usize {
        self.block.len()
    }

    pub(crate) fn ends_stream(&self) -> bool {
        self.news == News::End
    }

    pub(crate) fn application_bytes(&self) -> u64 {
        self.application as u64
    }
}
