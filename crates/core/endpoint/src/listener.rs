//! Listeners, and the connections that wait for accept.

use core::net::SocketAddr;
use plait_mptcp::Config;
use std::collections::{BTreeMap, VecDeque};

use crate::{ConnectionId, ListenError, ListenerId};

/// A port with a listener.
pub(crate) struct Listener {
    pub(crate) config: Config,
    port: u16,
    backlog: usize,
    queue: VecDeque<(ConnectionId, SocketAddr)>,
}

impl Listener {
    /// Whether no more connections may wait here.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.backlog
    }

    /// Adds a complete connection that waits for accept. The caller has checked [`Listener::is_full`].
    pub(crate) fn enqueue(&mut self, id: ConnectionId, remote: SocketAddr) {
        self.queue.push_back((id, remote));
    }
}

/// All ports with a listener.
#[derive(Default)]
pub(crate) struct Listeners {
    listeners: BTreeMap<ListenerId, Listener>,
    ports: BTreeMap<u16, ListenerId>,
    next: u32,
}

impl Listeners {
    /// Listens on `port` with room for `backlog` connections that wait.
    pub(crate) fn open(
        &mut self,
        port: u16,
        config: Config,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        if self.ports.contains_key(&port) {
            return Err(ListenError::InUse);
        }
        let id = ListenerId(self.next);
        self.next += 1;
        self.ports.insert(port, id);
        self.listeners.insert(id, Listener { config, port, backlog, queue: VecDeque::new() });
        Ok(id)
    }

    /// Stops listening, and returns the connections that still waited.
    pub(crate) fn close(&mut self, id: ListenerId) -> Vec<ConnectionId> {
        let Some(listener) = self.listeners.remove(&id) else { return Vec::new() };
        self.ports.remove(&listener.port);
        listener.queue.into_iter().map(|(connection, _)| connection).collect()
    }

    /// Returns the listener on `port`.
    pub(crate) fn on_port(&self, port: u16) -> Option<(ListenerId, &Listener)> {
        let id = *self.ports.get(&port)?;
        Some((id, self.listeners.get(&id)?))
    }

    /// Returns the listener `id`.
    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.listeners.get_mut(&id)
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn dequeue(&mut self, id: ListenerId) -> Option<(ConnectionId, SocketAddr)> {
        self.listeners.get_mut(&id)?.queue.pop_front()
    }

    /// Whether a connection waits at `id`.
    pub(crate) fn has_waiting(&self, id: ListenerId) -> bool {
        self.listeners.get(&id).is_some_and(|listener| !listener.queue.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn a_port_has_one_listener_and_is_free_again_behind_it() {
        let mut listeners = Listeners::default();
        let first = listeners.open(80, Config::default(), 4).expect("free");
        assert_eq!(listeners.open(80, Config::default(), 4), Err(ListenError::InUse));
        listeners.close(first);
        let second = listeners.open(80, Config::default(), 4).expect("free again");
        assert_ne!(first, second);
        assert_eq!(listeners.on_port(80).map(|(id, _)| id), Some(second));
    }

    #[test]
    fn the_first_to_wait_is_the_first_to_be_let_in_and_the_queue_has_an_end() {
        let mut listeners = Listeners::default();
        let id = listeners.open(80, Config::default(), 2).expect("free");
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        for connection in 1..=2 {
            let listener = listeners.get_mut(id).expect("open");
            assert!(!listener.is_full());
            listener.enqueue(ConnectionId(connection), remote);
        }
        assert!(listeners.get_mut(id).expect("open").is_full());
        assert_eq!(listeners.dequeue(id), Some((ConnectionId(1), remote)));
        assert!(listeners.has_waiting(id));
        assert_eq!(listeners.close(id), [ConnectionId(2)]);
        assert_eq!(listeners.dequeue(id), None);
    }
}
