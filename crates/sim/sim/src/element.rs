//! The boxes that a path consists of.

use plait_base::Instant;

use crate::Frame;

/// The direction of a frame on a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the first end of the path to the second.
    Forward,
    /// Back.
    Backward,
}

impl Direction {
    /// The other way.
    pub const fn reversed(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }

    /// A value per direction.
    pub fn of<T>(self, both: &mut [T; 2]) -> &mut T {
        match self {
            Self::Forward => &mut both[0],
            Self::Backward => &mut both[1],
        }
    }
}

/// One box on a path.
pub trait Element {
    /// Takes a frame that arrives at `now` in `direction`. Its output, now or later, goes to `out`; without
    /// output the frame is lost.
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet);

    /// Called at the time requested by [`Outlet::wake_at`].
    fn wake(&mut self, now: Instant, out: &mut Outlet) {
        let _ = (now, out);
    }
}

/// The output of a box.
#[derive(Default)]
pub struct Outlet {
    pub(crate) frames: Vec<(Instant, Direction, Frame)>,
    pub(crate) wake: Option<Instant>,
}

impl Outlet {
    /// Sends `frame` out of the box at `at` in `direction`: onwards, or back.
    pub fn push(&mut self, at: Instant, direction: Direction, frame: Frame) {
        self.frames.push((at, direction, frame));
    }

    /// Calls [`Element::wake`] at `at`.
    pub fn wake_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |earlier| earlier.min(at)));
    }
}
