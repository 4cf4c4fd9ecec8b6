//! Bytes of a subflow that wait for the bytes after them.
//!
//! A peer may send the bytes of a mapping one by one, each in a packet of its own. The memory of waiting bytes must be in proportion to
//! their number.

use bytes::BytesMut;
use plait_tcp::Chunk;
use std::collections::VecDeque;

/// Shorter runs of bytes are copied together, so that they do not keep the buffer of a whole packet each.
const SHORT: usize = 256;
/// Longest run that is copied together.
const LONGEST: usize = 4096;

/// Appends the next in-order bytes to those that wait.
pub(crate) fn push(waiting: &mut VecDeque<Chunk>, chunk: Chunk) {
    match waiting.back_mut() {
        _ if chunk.data.is_empty() => {}
        Some(last) if chunk.data.len() < SHORT && last.data.len() < LONGEST => {
            let mut joined = BytesMut::from(core::mem::take(&mut last.data));
            joined.extend_from_slice(&chunk.data);
            last.data = joined.freeze();
        }
        Some(_) | None => waiting.push_back(chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn short_runs_do_not_each_keep_the_packet_that_they_came_in() {
        let mut waiting = VecDeque::new();
        for at in 0..65_000 {
            let packet = Bytes::from(vec![at as u8; 1500]);
            push(&mut waiting, Chunk { offset: 1 + at, data: packet.slice(..1) });
        }
        assert!(waiting.len() <= 65_000 / LONGEST + 1, "{} pieces", waiting.len());
        let mut next = 0;
        for chunk in waiting {
            assert_eq!(chunk.offset, 1 + next);
            for byte in chunk.data {
                assert_eq!(byte, next as u8);
                next += 1;
            }
        }
        assert_eq!(next, 65_000);
    }

    #[test]
    fn what_is_not_short_is_not_copied() {
        let mut waiting = VecDeque::new();
        let packet = Bytes::from(vec![1; 1400]);
        for number in 0..3 {
            push(&mut waiting, Chunk { offset: 1 + 1400 * number, data: packet.clone() });
        }
        assert!(waiting.iter().all(|chunk| chunk.data.as_ptr() == packet.as_ptr()));
    }
}
