//! What a connection waits for: one table of who asked, and when.
//!
//! The deadlines themselves are kept where they follow from: a subflow knows its own, the data stream its timer. The table
//! is made of them when somebody asks for the next one, and says in the end which of them is due.

use plait_base::Instant;

/// Who asks to be called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// TCP, on any of the subflows.
    Subflows,
    /// The third ACK of a join is repeated (RFC 8684, section 3.2).
    ThirdAck,
    /// An address is announced or withdrawn, for the first time or once more (section 3.4).
    Announcement,
    /// Bytes of a subflow have waited long enough for their mapping.
    Unmapped,
    /// Data that should have been acknowledged is sent again.
    Data,
    /// A subflow makes no progress: others take over.
    Stall,
    /// There has been no subflow, or nothing that can be believed, for too long.
    NoSubflow,
    /// A further subflow may be opened.
    Join,
    /// The handshake of a sealed connection takes too long.
    Handshake,
    /// A subflow of a sealed connection is asked for a sign of life.
    Life,
    /// The first block of a sealed connection counts as corrupted.
    Repair,
    /// Both ends of a sealed connection are verified: what acknowledges that has been waited for long enough.
    Closing,
}

impl Timer {
    /// All, in the order in which those that are due at the same time are run.
    const ALL: [Self; 12] = [
        Self::Subflows,
        Self::ThirdAck,
        Self::Announcement,
        Self::Unmapped,
        Self::Data,
        Self::NoSubflow,
        Self::Handshake,
        Self::Life,
        Self::Repair,
        Self::Closing,
        Self::Stall,
        Self::Join,
    ];
}

/// When each of them wants to be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Timers([Option<Instant>; Timer::ALL.len()]);

impl Timers {
    /// `timer` wants to be called then.
    pub(crate) fn set(&mut self, timer: Timer, at: Option<Instant>) {
        self.0[timer as usize] = at;
    }

    /// The next moment at which anybody wants to be called.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Those that are due, in the order in which they are to be run.
    pub(crate) fn due(self, now: Instant) -> impl Iterator<Item = Timer> {
        Timer::ALL.into_iter().filter(move |&timer| self.0[timer as usize].is_some_and(|at| at <= now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_who_is_due_and_when_the_next_is() {
        let at = Instant::from_millis;
        let mut timers = Timers::default();
        assert_eq!((timers.next(), timers.due(at(9)).count()), (None, 0));
        for (timer, when) in [(Timer::Join, 3), (Timer::Data, 5), (Timer::Subflows, 4), (Timer::Repair, 7)] {
            timers.set(timer, Some(at(when)));
        }
        assert_eq!(timers.next(), Some(at(3)));
        assert_eq!(timers.due(at(2)).count(), 0);
        assert_eq!(timers.due(at(5)).collect::<Vec<_>>(), [Timer::Subflows, Timer::Data, Timer::Join]);
        timers.set(Timer::Join, None);
        assert_eq!(timers.next(), Some(at(4)));
    }

    #[test]
    fn each_timer_has_a_place_of_its_own() {
        let mut places: Vec<_> = Timer::ALL.iter().map(|&timer| timer as usize).collect();
        places.sort_unstable();
        assert_eq!(places, (0..Timer::ALL.len()).collect::<Vec<_>>());
    }
}
