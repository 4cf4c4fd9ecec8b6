//! A sealed block in the send buffer.

use plait_protect::sealed::SealedBlock;

/// A block that was sealed once. It may be transmitted any number of times.
#[derive(Debug)]
pub(crate) struct SealedBody {
    pub(crate) block: SealedBlock,
    /// Bytes of the application in it; none in a control block.
    pub(crate) application: usize,
    pub(crate) news: News,
}

/// The content of a block, as far as it affects the transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    Nothing,
    /// Urgent records, which count before earlier blocks arrive: the limit of the peer's sending, and subflows that no longer exist.
    Urgent,
    /// DATA_FIN: it is the last block of the stream.
    End,
}

impl SealedBody {
    /// Returns the number of data sequence numbers that it takes, without a DATA_FIN.
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
