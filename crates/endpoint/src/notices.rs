//! What the driver tells applications.

use core::net::SocketAddr;
use std::collections::{BTreeSet, VecDeque};

use crate::{ConnectionId, ListenerId};

/// What the driver tells applications.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A connection opened by [`crate::Endpoint::connect`] is ready, or the paths have been mixed that it waited for, as its status says.
    Connected(ConnectionId),
    /// [`crate::Endpoint::accept`] has something.
    Incoming(ListenerId),
    /// [`crate::Endpoint::read`] has something (data, end, error).
    Readable(ConnectionId),
    /// [`crate::Endpoint::write`] takes bytes again.
    Writable(ConnectionId),
    /// Over, in order or not; [`crate::Endpoint::end`] says which.
    Closed(ConnectionId),
}

/// A stranger whose connection could not be sealed, where nothing less is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsealed {
    /// Who it was, by its own account: anybody can send a SYN in another's name.
    pub remote: SocketAddr,
    /// What was missing or altered, for people.
    pub why: String,
}

/// Events that the driver has not fetched yet, each at most once.
#[derive(Default)]
pub(crate) struct Notices {
    queue: VecDeque<Event>,
    waiting: BTreeSet<Event>,
}

impl Notices {
    pub(crate) fn push(&mut self, event: Event) {
        if self.waiting.insert(event) {
            self.queue.push_back(event);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front()?;
        self.waiting.remove(&event);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_fetched_is_not_said_twice() {
        let mut notices = Notices::default();
        let readable = Event::Readable(ConnectionId(1));
        for event in [readable, Event::Closed(ConnectionId(1)), readable] {
            notices.push(event);
        }
        assert_eq!(notices.pop(), Some(readable));
        notices.push(readable);
        assert_eq!(notices.pop(), Some(Event::Closed(ConnectionId(1))));
        assert_eq!(notices.pop(), Some(readable));
        assert_eq!(notices.pop(), None);
    }
}
