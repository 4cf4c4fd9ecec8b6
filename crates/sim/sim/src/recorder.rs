//! A box that only records.

use plait_base::Instant;
use plait_wire::Segment;
use std::cell::RefCell;
use std::rc::Rc;

use crate::{Direction, Element, Frame, Outlet};

/// A recorded segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crossing {
    /// The time.
    pub at: Instant,
    /// The direction.
    pub direction: Direction,
    /// The segment.
    pub segment: Segment,
}

/// Records the segments on a path. Clones share the record: one is in the path, one stays with the
/// test.
#[derive(Clone, Default)]
pub struct Recorder(Rc<RefCell<Vec<Crossing>>>);

impl Recorder {
    /// All segments so far.
    pub fn crossings(&self) -> Vec<Crossing> {
        self.0.borrow().clone()
    }

    /// Payload bytes that crossed in `direction`.
    pub fn payload_bytes(&self, direction: Direction) -> usize {
        let crossings = self.0.borrow();
        crossings
            .iter()
            .filter(|seen| seen.direction == direction)
            .map(|seen| seen.segment.payload.len())
            .sum()
    }
}

impl Element for Recorder {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        if let Some(segment) = frame.segment() {
            self.0.borrow_mut().push(Crossing { at: now, direction, segment });
        }
        out.push(now, direction, frame);
    }
}
