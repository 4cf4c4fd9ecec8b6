//! Queues of connections: those with something to send, and those that wait for a time.

use plait_base::Instant;
use std::collections::{BTreeSet, VecDeque};

use crate::ConnectionId;

/// Connections that may have something to send, each at most once, served in turn.
#[derive(Default)]
pub(crate) struct ReadyQueue {
    turns: VecDeque<ConnectionId>,
    members: BTreeSet<ConnectionId>,
}

impl ReadyQueue {
    /// Adds `id` at the end, unless it is in the queue already.
    pub(crate) fn mark(&mut self, id: ConnectionId) {
        if self.members.insert(id) {
            self.turns.push_back(id);
        }
    }

    /// Returns the connection that is served next.
    pub(crate) fn next(&self) -> Option<ConnectionId> {
        self.turns.front().copied()
    }

    /// Moves the first connection, which has sent something, to the end.
    pub(crate) fn rotate(&mut self) {
        if let Some(id) = self.turns.pop_front() {
            self.turns.push_back(id);
        }
    }

    /// Removes the first connection, which has nothing (more) to send.
    pub(crate) fn retire(&mut self) {
        if let Some(id) = self.turns.pop_front() {
            self.members.remove(&id);
        }
    }

    /// Whether `id` is in the queue.
    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.members.contains(&id)
    }
}

/// Alarms of connections. A connection stores its own entry and passes it in to change it, so that no entry is ever stale.
#[derive(Default)]
pub(crate) struct Alarms(BTreeSet<(Instant, ConnectionId)>);

impl Alarms {
    /// Moves the alarm of `id` from `old` to `new`.
    pub(crate) fn set(&mut self, id: ConnectionId, old: Option<Instant>, new: Option<Instant>) {
        if old == new {
            return;
        }
        if let Some(at) = old {
            self.0.remove(&(at, id));
        }
        if let Some(at) = new {
            self.0.insert((at, id));
        }
    }

    /// Returns the earliest alarm.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest connection that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<ConnectionId> {
        let (at, id) = *self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first();
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_gets_a_turn_before_any_gets_a_second() {
        let mut ready = ReadyQueue::default();
        for id in [1, 2, 1, 3, 2] {
            ready.mark(ConnectionId(id));
        }
        let mut served = Vec::new();
        for _ in 0..4 {
            served.push(ready.next().expect("waiting").0);
            ready.rotate();
        }
        assert_eq!(served, [1, 2, 3, 1]);
        ready.retire();
        ready.mark(ConnectionId(3));
        assert_eq!(ready.turns, [3, 1].map(ConnectionId));
        assert!(ready.contains(ConnectionId(1)) && !ready.contains(ConnectionId(2)));
    }

    #[test]
    fn an_alarm_that_was_moved_rings_once() {
        let mut alarms = Alarms::default();
        let (early, late) = (Instant::from_millis(1), Instant::from_millis(2));
        alarms.set(ConnectionId(1), None, Some(early));
        alarms.set(ConnectionId(1), Some(early), Some(late));
        assert_eq!(alarms.next(), Some(late));
        assert_eq!(alarms.pop_due(early), None);
        assert_eq!(alarms.pop_due(late), Some(ConnectionId(1)));
        assert_eq!(alarms.pop_due(late), None);
    }
}
