//! Boxes that move the borders of segments: splitting and merging.

use plait_base::{Duration, Instant};
use plait_tcp::FourTuple;
use plait_wire::{Flags, Segment};
use std::collections::BTreeMap;

use crate::{Direction, Element, Frame, Outlet};

/// Cuts segments with more payload than `size` into several, with the same options on each.
pub struct Cutter {
    /// Payload bytes of the longest segment that passes whole; not zero.
    pub size: u16,
}

impl Element for Cutter {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        match frame.segment() {
            Some(segment) if segment.payload.len() > usize::from(self.size) => {
                for piece in (Segment { segment_size: self.size, ..segment }).split() {
                    out.push(now, direction, Frame::of_segment(&piece));
                }
            }
            Some(_) | None => out.push(now, direction, frame),
        }
    }
}

/// Merges segments that follow each other, if all their options are equal: as receive offload does.
pub struct Coalescer {
    /// How long a segment waits for the next.
    timeout: Duration,
    /// Payload bytes of the longest train.
    limit: usize,
    /// Whether the output is one long segment on a wire, instead of a train with its segment size.
    is_wire: bool,
    held: BTreeMap<(Direction, FourTuple), Train>,
}

/// Merged segments, and the payload bytes of the first. No other segment is longer, and a shorter one is
/// the last.
struct Train {
    whole: Segment,
    size: usize,
    since: Instant,
}

impl Coalescer {
    /// Receive offload: trains of up to 64 KiB.
    pub fn offload() -> Self {
        let timeout = Duration::from_micros(50);
        Self { timeout, limit: 60_000, is_wire: false, held: BTreeMap::new() }
    }

    /// A box that re-segments: up to `limit` payload bytes in one wire segment.
    pub fn wire(limit: usize) -> Self {
        let timeout = Duration::from_millis(1);
        Self { timeout, limit, is_wire: true, held: BTreeMap::new() }
    }

    fn release(&self, now: Instant, direction: Direction, train: Train, out: &mut Outlet) {
        let Train { mut whole, size, since: _ } = train;
        let frame = if self.is_wire || whole.payload.len() == size {
            whole.segment_size = whole.payload.len().max(1) as u16;
            Frame::of_segment(&whole)
        } else {
            whole.segment_size = size as u16;
            Frame::of_train(&whole)
        };
        out.push(now, direction, frame);
    }
}

impl Element for Coalescer {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(segment) = frame.segment().filter(|segment| !segment.flags.contains(Flags::SYN)) else {
            out.push(now, direction, frame);
            return;
        };
        let key = (direction, FourTuple { local: segment.source, remote: segment.destination });
        if let Some(mut train) = self.held.remove(&key) {
            if can_follow(&train, &segment, self.limit) {
                let is_last = segment.payload.len() < train.size || segment.flags.contains(Flags::PSH);
                train.whole.payload = [&train.whole.payload[..], &segment.payload[..]].concat().into();
                train.whole.flags = train.whole.flags.with(segment.flags);
                if is_last {
                    self.release(now, direction, train, out);
                } else {
                    self.held.insert(key, train);
                }
                return;
            }
            self.release(now, direction, train, out);
        }
        let ends_here = Flags(Flags::FIN.0 | Flags::RST.0 | Flags::PSH.0 | Flags::URG.0);
        if segment.payload.is_empty() || segment.flags.0 & ends_here.0 != 0 {
            out.push(now, direction, frame);
            return;
        }
        let size = segment.payload.len();
        self.held.insert(key, Train { whole: segment, size, since: now });
        out.wake_at(now + self.timeout);
    }

    fn wake(&mut self, now: Instant, out: &mut Outlet) {
        let due: Vec<_> = (self.held.iter())
            .filter(|(_, train)| train.since + self.timeout <= now)
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            if let Some(train) = self.held.remove(&key) {
                self.release(now, key.0, train, out);
            }
        }
        if let Some(next) = self.held.values().map(|train| train.since + self.timeout).min() {
            out.wake_at(next);
        }
    }
}

fn can_follow(train: &Train, segment: &Segment, limit: usize) -> bool {
    let Train { whole, size, since: _ } = train;
    // Receive offload does not merge segments with different marks.
    let told = Flags::ECE.with(Flags::AE);
    let other_flags = Flags(Flags::FIN.0 | Flags::RST.0 | Flags::URG.0 | Flags::CWR.0);
    !segment.payload.is_empty()
        && segment.payload.len() <= *size
        && segment.seq == whole.seq + whole.payload.len() as u32
        && segment.ack == whole.ack
        && segment.window == whole.window
        && segment.options == whole.options
        && segment.ecn == whole.ecn
        && segment.flags.0 & other_flags.0 == 0
        && segment.flags.0 & told.0 == whole.flags.0 & told.0
        && whole.payload.len() + segment.payload.len() <= limit
}
