//! Events of the endpoint for applications.

use core::net::SocketAddr;
use std::collections::{BTreeSet, VecDeque};

use crate::{ConnectionId, ListenerId};

/// An event that the driver passes to an application.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A connection opened by [`crate::Endpoint::connect`] is ready, or the paths that it waited for are in the keys (see its status).
    Connected(ConnectionId),
    /// [`crate::Endpoint::accept`] has a connection.
    Incoming(ListenerId),
    /// [`crate::Endpoint::read`] has data, the end, or an error.
    Readable(ConnectionId),
    /// [`crate::Endpoint::write`] takes bytes again.
    Writable(ConnectionId),
    /// [`crate::Endpoint::poll_flow_news`] has flows.
    Datagrams(ConnectionId),
    /// The connection is over, in order or not; [`crate::Endpoint::end`] tells which.
    Closed(ConnectionId),
}

/// An unknown peer whose connection could not be sealed, although sealing is required.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsealed {
    /// Its source address, which an attacker can forge in a SYN.
    pub remote: SocketAddr,
    /// The missing or altered part, for display.
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
