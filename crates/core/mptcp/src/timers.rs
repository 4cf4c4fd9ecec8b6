//! Timers of a connection: one table of their owners and times.
//!
//! The owner of a deadline keeps it: a subflow knows its own, the data stream its timer. The table is built when the next deadline is
//! needed, and it tells which timers are due.

use plait_base::Instant;

/// The timers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// TCP, on any of the subflows.
    Subflows,
    /// The third ACK of a join is repeated (RFC 8684, section 3.2).
    ThirdAck,
    /// An address is announced or withdrawn, for the first time or once more (section 3.4).
    Announcement,
    /// Bytes of a subflow have waited too long for their mapping.
    Unmapped,
    /// Data that should have been acknowledged is sent again.
    Data,
    /// A subflow makes no progress: others take over.
    Stall,
    /// For too long there has been no subflow, or no authenticated arrival.
    NoSubflow,
    /// A further subflow may be opened.
    Join,
    /// The handshake of a sealed connection takes too long.
    Handshake,
    /// A subflow of a sealed connection is asked for a sign of life.
    Life,
    /// The first block of a sealed connection counts as damaged.
    Repair,
    /// A report about datagrams is due, or none has come.
    Datagrams,
    /// Both ends of a sealed connection are verified. The wait for the last acknowledgment is over.
    Closing,
}

impl Timer {
    /// All timers, in the order in which those due at the same time run.
    const ALL: [Self; 13] = [
        Self::Subflows,
        Self::ThirdAck,
        Self::Announcement,
        Self::Unmapped,
        Self::Data,
        Self::NoSubflow,
        Self::Handshake,
        Self::Life,
        Self::Repair,
        Self::Datagrams,
        Self::Closing,
        Self::Stall,
        Self::Join,
    ];
}

/// The time of each timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Timers([Option<Instant>; Timer::ALL.len()]);

impl Timers {
    /// Sets the time of `timer`.
    pub(crate) fn set(&mut self, timer: Timer, at: Option<Instant>) {
        self.0[timer as usize] = at;
    }

    /// Returns the earliest time of all timers.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Returns the timers that are due, in the order in which they must run.
    pub(crate) fn due(self, now: Instant) -> impl Iterator<Item = Timer> {
        Timer::ALL.into_iter().filter(move |&timer| self.0[timer as usize].is_some_and(|at| at <= now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_which_timer_is_due_and_when_the_next_is() {
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
