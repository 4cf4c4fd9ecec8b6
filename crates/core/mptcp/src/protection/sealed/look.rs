//! Questions about the state of subflows at the other end. Question and answer are inside the stream, so that an attacker on the path
//! cannot forge them.
//!
//! Both are control blocks with padding, to a length that the asking end has chosen: they also test the path. An answer is never longer
//! than its question, and at most one waits. Asking therefore gives a peer no more than sending would.

use plait_protect::sealed::{BLOCK_OVERHEAD, BlockBuffer, Record, Seen, SubflowTag};

/// Length of the longest question, and so of the longest answer.
const MAX_LOOK: usize = 32 << 10;

/// Pending questions and answers.
#[derive(Default)]
pub(super) struct Look {
    question: Option<usize>,
    /// Length of the peer's question, until the answer is known.
    asked: Option<usize>,
    answer: Option<(usize, Vec<Record>)>,
}

impl Look {
    /// Queues a question to the peer, in a block of this many bytes of plaintext.
    pub(super) fn ask(&mut self, bytes: usize) {
        self.question = Some(bytes.clamp(1, MAX_LOOK));
    }

    /// Handles a question of the peer, in a block of this many bytes.
    pub(super) fn on_question(&mut self, bytes: usize) {
        self.asked = Some(bytes.min(MAX_LOOK));
    }

    /// Queues the answer: the states of as many subflows as there is room for, and the date, in seconds since 1970, if there is one and
    /// still room for it.
    pub(super) fn answer(&mut self, seen: impl Iterator<Item = (SubflowTag, Seen)>, date: Option<u64>) {
        let Some(bytes) = self.asked.take() else { return };
        let seen = seen.map(|(subflow, seen)| Record::Seen { subflow, seen });
        let mut records: Vec<_> = seen.take(bytes / Seen::MAX_RECORD).collect();
        let rest = bytes - records.len() * Seen::MAX_RECORD;
        records.extend(date.filter(|_| rest >= Record::DATE_LEN).map(Record::Date));
        self.answer = Some((bytes, records));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.question.is_none() && self.answer.is_none()
    }

    /// Returns the plaintext of the next block, if that block is not longer than `room`.
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
