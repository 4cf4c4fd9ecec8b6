//! One deadline per timer of a connection.

use plait_base::Instant;

use crate::{Deadline, Timer};

/// Every timer, in the order of [`Timer`].
const ALL: [Timer; 9] = [
    Timer::Retransmit,
    Timer::LossProbe,
    Timer::Reorder,
    Timer::DelayedAck,
    Timer::Persist,
    Timer::Pace,
    Timer::KeepAlive,
    Timer::User,
    Timer::TimeWait,
];

/// The deadlines; a timer that is not set has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers([Option<Instant>; ALL.len()]);

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    /// Sets it unless it is set already.
    pub(crate) fn start(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize].get_or_insert(at);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    /// Stops `timer` and says whether it was due.
    pub(crate) fn expire(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.0[timer as usize].is_some_and(|at| at <= now);
        if due {
            self.stop(timer);
        }
        due
    }

    pub(crate) fn earliest(&self) -> Option<Deadline> {
        ALL.into_iter()
            .filter_map(|timer| self.0[timer as usize].map(|at| Deadline { at, timer }))
            .min_by_key(|deadline| deadline.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_has_its_own_place() {
        for (index, timer) in ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, index);
        }
    }

    #[test]
    fn the_earliest_deadline_wins_and_expires_once() {
        let mut timers = Timers::default();
        timers.set(Timer::User, Instant::from_millis(9));
        timers.set(Timer::Persist, Instant::from_millis(5));
        timers.start(Timer::Persist, Instant::from_millis(1));
        assert_eq!(
            timers.earliest(),
            Some(Deadline { at: Instant::from_millis(5), timer: Timer::Persist }),
            "starting a running timer changes nothing"
        );
        assert!(!timers.expire(Timer::Persist, Instant::from_millis(4)));
        assert!(timers.expire(Timer::Persist, Instant::from_millis(5)));
        assert!(!timers.expire(Timer::Persist, Instant::from_millis(6)));
    }
}
