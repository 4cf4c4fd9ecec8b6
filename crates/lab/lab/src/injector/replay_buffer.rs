//! Payloads kept for a long time, to replay all of them.

use std::collections::VecDeque;

use plait_wire::Segment;

use super::payload::with_timestamps_of;
use super::{AttackName, Piece};
use crate::Direction;

/// Most segments kept each way, super-segments counted as one: seconds of a fast path.
const MOST: usize = 4096;
/// Longest payload that may be a control record alone.
const SHORT: usize = 256;

/// The payloads that have crossed the path, each way.
#[derive(Default)]
pub(super) struct ReplayBuffer {
    to_server: Kept,
    to_client: Kept,
}

/// In the order in which it came; what was played goes to the end.
#[derive(Default)]
struct Kept {
    segments: VecDeque<Segment>,
    played: usize,
}

impl ReplayBuffer {
    fn kept(&mut self, direction: Direction) -> &mut Kept {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    pub(super) fn keep(&mut self, direction: Direction, segment: Segment) {
        let kept = self.kept(direction);
        if kept.segments.len() < MOST {
            kept.segments.push_back(segment);
        }
    }

    /// The next of them, in front of `segment`.
    pub(super) fn replay(&mut self, direction: Direction, segment: Segment) -> Option<Vec<Piece>> {
        let kept = self.kept(direction);
        let old = kept.segments.pop_front()?;
        kept.segments.push_back(old.clone());
        let (count, length) = (kept.segments.len(), old.payload.len());
        kept.played += 1;
        let which = format!("{} of {count}, {length} old bytes", kept.played);
        let mut pieces = Vec::new();
        if length <= SHORT {
            let current = Segment {
                source: segment.source,
                destination: segment.destination,
                seq: segment.seq,
                ack: segment.ack,
                options: with_timestamps_of(&segment, &old),
                ..old.clone()
            };
            let what = format!("{which} with their options at the current sequence number");
            pieces.push(Piece::treated(AttackName::ReplayAll, current, what));
        }
        pieces.push(Piece::treated(AttackName::ReplayAll, old, format!("{which} as they were")));
        pieces.push(Piece::untouched(segment));
        Some(pieces)
    }
}
