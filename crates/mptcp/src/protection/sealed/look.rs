//! How the subflows of one end look at the other: asked and answered inside the stream, so that nobody on the way can lie about it.
//!
//! Question and answer are control blocks that are filled up with padding, to a length that whoever asks has chosen: so they also try the
//! path. An answer is never longer than the question, and one waits at most: whoever asks gains nothing that sending would not give.

use plait_protect::sealed::{BLOCK_OVERHEAD, BlockBuffer, Record, Seen, SubflowTag};

/// Bytes of the longest question, and so of the longest answer.
const MAX_LOOK: usize = 32 << 10;

/// What is to be asked and answered.
#[derive(Default)]
pub(super) struct Look {
    question: Option<usize>,
    /// Bytes of the peer's question, until what there is to be seen is known.
    asked: Option<usize>,
    answer: Option<(usize, Vec<Record>)>,
}

impl Look {
    /// The peer is to be asked, in a block of so many bytes of plain text.
    pub(super) fn ask(&mut self, bytes: usize) {
        self.question = Some(bytes.clamp(1, MAX_LOOK));
    }

    /// The peer has asked, in a block of so many bytes.
    pub(super) fn on_question(&mut self, bytes: usize) {
        self.asked = Some(bytes.min(MAX_LOOK));
    }

    /// What there is to be seen: of as many subflows as there is room for.
    pub(super) fn answer(&mut self, seen: impl Iterator<Item = (SubflowTag, Seen)>) {
        if let Some(bytes) = self.asked.take() {
            let records = seen.take(bytes / Seen::MAX_RECORD);
            self.answer =
                Some((bytes, records.map(|(subflow, seen)| Record::Seen { subflow, seen }).collect()));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.question.is_none() && self.answer.is_none()
    }

    /// The plain text of the next block, if its block is no longer than `room`.
    pub(super) fn next_block(&mut self, room: u64) -> Option<BlockBuffer> {
        let fits = |bytes: usize| (bytes + BLOCK_OVERHEAD) as u64 <= room;
        if let Some((bytes, records)) = self.answer.take_if(|(bytes, _)| fits(*bytes)) {
            return Some(filled(bytes, &records));
        }
        let bytes = self.question.take_if(|bytes| fits(*bytes))?;
        Some(filled(bytes, &[Record::Look]))
    }
}

fn filled(bytes: usize, records: &[Record]) -> BlockBuffer {
    let mut plain = BlockBuffer::with_capacity(bytes);
    for record in records {
        plain.put(&record.to_bytes());
    }
    while plain.len() < bytes {
        let padding = [Record::PADDING; 256];
        if plain.put(&padding[..padding.len().min(bytes - plain.len())]) == 0 {
            break;
        }
    }
    plain
}
