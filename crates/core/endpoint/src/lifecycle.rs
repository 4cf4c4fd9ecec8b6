//! Creation, change of ownership and removal of connections.

use core::net::{IpAddr, SocketAddr};
use plait_base::Instant;
use plait_mptcp::{ConnectionError, Event as ConnectionEvent, Path, PathClass, Paths};
use std::collections::BTreeSet;

use crate::entry::{Entry, Stage};
use crate::notices::Unsealed;
use crate::{ConnectionId, Endpoint, Event, log};

/// A change of one path.
pub(crate) struct PathChange {
    /// `None` for a path that is new.
    pub(crate) before: Option<Path>,
    /// `None` for a path that is gone.
    pub(crate) after: Option<Path>,
}

impl PathChange {
    /// Returns our addresses on the path, the former ones included.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        let both = self.before.iter().chain(&self.after);
        both.flat_map(|path| [path.v4.map(IpAddr::V4), path.v6.map(IpAddr::V6)]).flatten().collect()
    }

    /// Whether there is a way after the change that connections may not have had before: the path can be used, or another over its device,
    /// which was not wanted as long as this one worked.
    fn opens_a_way(&self, paths: &Paths) -> bool {
        let is_usable = |path: &Path| path.up && path.class != PathClass::Never;
        let is_twin = |other: &Path| {
            let same = |path: &Path| !path.name.is_empty() && path.name == other.name && path.id != other.id;
            self.before.iter().chain(&self.after).any(same)
        };
        self.after.as_ref().is_some_and(is_usable)
            || paths.iter().any(|other| is_usable(other) && is_twin(other))
    }
}

impl Endpoint {
    /// Handles progress of the connection: acts on its events, and lets it send.
    pub(crate) fn on_progress(&mut self, now: Instant, id: ConnectionId) {
        self.drain_events(now, id);
        self.take_stock(id);
        self.ready.mark(id);
        self.note_changed(id);
        self.note_jobs(id);
    }

    /// Notes that its deadline may have changed. Its alarm is set when the earliest deadline is needed.
    pub(crate) fn note_changed(&mut self, id: ConnectionId) {
        if self.changed.last() != Some(&id) {
            self.changed.push(id);
        }
    }

    /// Updates the memory of the connection in the totals, and whether every usable path concerns it.
    fn take_stock(&mut self, id: ConnectionId) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        // Connections without a validated address are few, and have a limit of their own.
        let is_counted = !self.half_open.is_unproved(id);
        let memory = is_counted.then(|| entry.connection.memory());
        self.around.memory.change(core::mem::replace(&mut entry.memory, memory), memory);
        let wants_paths = entry.connection.wants_paths();
        if core::mem::replace(&mut entry.wants_paths, wants_paths) == wants_paths {
            return;
        }
        if wants_paths {
            self.path_seekers.insert(id);
        } else {
            self.path_seekers.remove(&id);
        }
    }

    fn note_jobs(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(|entry| entry.connection.has_crypto()) {
            self.crypto_ready.mark(id);
        }
    }

    /// Handles a connection that has nothing to send for now.
    pub(crate) fn on_silence(&mut self, now: Instant, id: ConnectionId) {
        self.drain_events(now, id);
        self.note_jobs(id);
        self.take_stock(id);
        let Some(entry) = self.connections.get(&id) else { return };
        if entry.is_over() {
            self.forget(id);
        } else if let Some(remains) = entry.remains(self.around.demux.tuples_of(id)) {
            self.forget(id);
            for remnant in remains {
                if !self.around.time_waits.insert(now, remnant) {
                    log::debug!(connection = id.0, "another leaves TIME-WAIT early: there are too many");
                    self.counters.time_wait_limited += 1;
                }
            }
        } else {
            self.set_alarm(id);
        }
    }

    /// Passes a change of a path to the connections that it concerns: those with a subflow over it, those that have announced its address,
    /// and, if it opens a way, those that may join there or announce it.
    pub(crate) fn on_path_changed(&mut self, now: Instant, change: PathChange) {
        let mut concerned = BTreeSet::new();
        let addresses = change.addresses();
        for &address in &addresses {
            concerned.extend(self.around.demux.connections_at(address));
        }
        if change.opens_a_way(&self.around.paths) {
            concerned.extend(&self.path_seekers);
        } else {
            let has_announced = |id: &ConnectionId| {
                let entry = self.connections.get(id);
                entry.is_some_and(|entry| addresses.iter().any(|&own| entry.connection.has_announced(own)))
            };
            concerned.extend(self.path_seekers.iter().copied().filter(has_announced));
        }
        for id in concerned {
            if let Some(entry) = self.connections.get_mut(&id) {
                entry.connection.handle_paths(now, &mut self.around.lend_to(id));
                self.on_progress(now, id);
            }
        }
    }

    /// Sets the alarm of the connection to its deadline. An alarm that is too early stays, and moves when it expires: with every packet
    /// deadlines move later, and seldom earlier.
    pub(crate) fn set_alarm(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id) {
            let deadline = entry.deadline();
            let rings_before = |alarm: Instant| deadline.is_some_and(|deadline| alarm <= deadline);
            if entry.alarm.is_some_and(rings_before) {
                return;
            }
            self.alarms.set(id, entry.alarm, deadline);
            entry.alarm = deadline;
        }
    }

    /// Makes a connection without an owner an orphan.
    pub(crate) fn disown(&mut self, now: Instant, id: ConnectionId) {
        self.half_open.remove(id);
        if let Some(entry) = self.connections.get_mut(&id) {
            let delivered = entry.connection.status(now).bytes_delivered;
            entry.stage = Stage::Orphan { check: now + self.config.orphan_timeout, delivered };
        }
    }

    /// Aborts a connection with any owner.
    pub(crate) fn abort_any(&mut self, now: Instant, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id) {
            entry.connection.abort(now);
            self.on_progress(now, id);
        }
    }

    /// Checks an orphan. It may take time to deliver written bytes, but must not stand still forever.
    pub(crate) fn check_orphan(&mut self, now: Instant, id: ConnectionId) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        let Stage::Orphan { check, delivered: before } = entry.stage else { return };
        if check > now {
            return;
        }
        let delivered = entry.connection.status(now).bytes_delivered;
        entry.stage = Stage::Orphan { check: now + self.config.orphan_timeout, delivered };
        if delivered == before && !entry.connection.is_time_wait() {
            log::debug!(connection = id.0, "reset: its application has gone and nothing moves");
            self.counters.orphans_aborted += 1;
            entry.connection.discard(now);
        }
    }

    /// Drops the connection and all its names.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.half_open.remove(id);
        self.around.demux.forget(id);
        if let Some(entry) = self.connections.remove(&id) {
            self.around.memory.change(entry.memory, None);
            self.path_seekers.remove(&id);
            self.alarms.set(id, entry.alarm, None);
        }
    }

    fn drain_events(&mut self, now: Instant, id: ConnectionId) {
        while let Some(event) = self.connections.get_mut(&id).and_then(|entry| entry.connection.poll_event())
        {
            let is_quiet = self.connections.get(&id).is_some_and(|entry| entry.is_quiet);
            log::of(id, is_quiet, || self.on_event(now, id, event));
        }
    }

    fn on_event(&mut self, now: Instant, id: ConnectionId, event: ConnectionEvent) {
        match event {
            ConnectionEvent::SubflowOpened { id: subflow, tuple } => {
                log::debug!(
                    subflow = ?subflow,
                    path = self.around.path_name(tuple.local.ip()),
                    local = %tuple.local,
                    remote = %tuple.remote,
                    "subflow opens"
                );
                let bound = self.around.demux.bind(id, subflow, tuple);
                debug_assert!(bound, "{tuple:?} belongs to another connection");
            }
            ConnectionEvent::SubflowClosed { id: subflow, tuple } => {
                log::debug!(
                    subflow = ?subflow,
                    path = self.around.path_name(tuple.local.ip()),
                    local = %tuple.local,
                    remote = %tuple.remote,
                    "subflow has closed"
                );
                self.around.demux.unbind(id, subflow, &tuple);
            }
            ConnectionEvent::Connected => self.on_connected(now, id),
            ConnectionEvent::PathsMixed => self.tell(id, Event::Connected(id)),
            ConnectionEvent::Datagrams => self.tell(id, Event::Datagrams(id)),
            ConnectionEvent::Readable => self.tell(id, Event::Readable(id)),
            ConnectionEvent::Writable => self.tell(id, Event::Writable(id)),
            ConnectionEvent::Closed(error) => self.on_closed(now, id, error),
        }
    }

    fn on_connected(&mut self, now: Instant, id: ConnectionId) {
        let is_told = self.is_told_of(now, id, "connected");
        let Some(entry) = self.connections.get_mut(&id) else { return };
        if is_told {
            log::info!(
                connection = id.0,
                opened_by = if entry.is_theirs { "the peer" } else { "us" },
                protection = log::protection(&entry.connection.status(now)),
                negotiated = log::negotiated(&entry.connection.status(now)),
                "connected"
            );
        }
        match entry.stage {
            Stage::Held => self.notices.push(Event::Connected(id)),
            Stage::Waiting(_) | Stage::Orphan { check: _, delivered: _ } => {}
            Stage::HalfOpen(listener_id) => {
                self.half_open.remove(id);
                match self.listeners.get_mut(listener_id).filter(|listener| !listener.is_full()) {
                    Some(listener) => {
                        listener.enqueue(id, entry.remote);
                        entry.stage = Stage::Waiting(listener_id);
                        self.notices.push(Event::Incoming(listener_id));
                    }
                    None => {
                        self.counters.syn_limited += 1;
                        entry.connection.abort(now);
                        self.disown(now, id);
                    }
                }
            }
        }
    }

    fn on_closed(&mut self, now: Instant, id: ConnectionId, error: Option<ConnectionError>) {
        let is_half_open = |entry: &Entry| matches!(entry.stage, Stage::HalfOpen(_));
        let is_told = self.connections.get(&id).is_none_or(is_half_open) || self.is_told_of(now, id, "ended");
        let Some(entry) = self.connections.get_mut(&id) else { return };
        entry.end = Some(error.map_or(Ok(()), Err));
        match entry.stage {
            Stage::HalfOpen(_) => {
                log::debug!(?error, "half-open connection has ended");
                self.note_unsealed(now, id, error);
                self.disown(now, id);
            }
            Stage::Held | Stage::Waiting(_) | Stage::Orphan { check: _, delivered: _ } => {
                if is_told {
                    log::info!(
                        connection = id.0,
                        error = error.map(log::reason),
                        delivered = entry.connection.status(now).bytes_delivered,
                        read = entry.connection.status(now).bytes_read,
                        "connection has ended"
                    );
                }
                self.tell(id, Event::Closed(id));
            }
        }
    }

    /// Whether the log reports that `what` has happened to the connection: always, if this host opened it.
    fn is_told_of(&mut self, now: Instant, id: ConnectionId, what: &'static str) -> bool {
        !self.connections.get(&id).is_some_and(|entry| entry.is_theirs) || self.is_told(now, what)
    }

    /// Notes an unknown peer that could not be sealed as required, if that is the error. A peer that learns which paths it lacks ends the
    /// connection itself.
    fn note_unsealed(&mut self, now: Instant, id: ConnectionId, error: Option<ConnectionError>) {
        let Some(entry) = self.connections.get(&id) else { return };
        let why = entry.connection.status(now).sealed.and_then(|sealed| sealed.failure);
        match (error, why) {
            (Some(ConnectionError::NotSealed), why) => {
                self.note_unsealed_stranger(entry.remote, why.unwrap_or_default());
            }
            (
                Some(ConnectionError::FastClose | ConnectionError::Reset | ConnectionError::PathsMissing),
                Some(why),
            ) => {
                self.note_unsealed_stranger(entry.remote, why);
            }
            (_, _) => {}
        }
    }

    /// Notes a peer that was refused because its connection cannot be sealed, although sealing is required.
    pub(crate) fn note_unsealed_stranger(&mut self, remote: SocketAddr, why: String) {
        self.counters.unsealed_refused += 1;
        self.unsealed.get_or_insert(Unsealed { remote, why });
    }

    /// Reports an event to the application, or keeps it for the one that will accept the connection.
    fn tell(&mut self, id: ConnectionId, event: Event) {
        let Some(Entry { stage, held_events, .. }) = self.connections.get_mut(&id) else { return };
        match stage {
            Stage::Held => self.notices.push(event),
            Stage::HalfOpen(_) | Stage::Waiting(_) => {
                if !held_events.contains(&event) {
                    held_events.push(event);
                }
            }
            Stage::Orphan { check: _, delivered: _ } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, EndpointConfig, ListenerId};
    use core::net::Ipv4Addr;
    use plait_base::PathId;
    use plait_mptcp::Config;
    use plait_wire::{MptcpOption, TcpOption};

    const NOW: Instant = Instant::from_millis(1000);
    /// The paths of the client: its connections begin on the first.
    const FIRST: PathId = PathId(0);
    const SECOND: PathId = PathId(1);
    const THIRD: PathId = PathId(2);

    /// A client with one connection of plain TCP and one of Multipath TCP, both open.
    struct Pair {
        client: Endpoint,
        server: Endpoint,
        listener: ListenerId,
        plain: ConnectionId,
        multipath: ConnectionId,
    }

    fn path(id: PathId, network: u8, up: bool) -> Path {
        Path {
            id,
            name: format!("eth{}", id.0),
            network: None,
            class: PathClass::Trusted,
            backup: false,
            v4: Some(Ipv4Addr::new(10, 0, network, 1 + id.0)),
            v6: None,
            public_v4: None,
            public_v6: None,
            mtu: 1500,
            up,
            datagrams: false,
        }
    }

    impl Pair {
        fn connected() -> Self {
            let [mut client, mut server] =
                [1, 2].map(|seed| Endpoint::new(EndpointConfig::default(), [seed; 32], [seed; 32]));
            client.set_path(NOW, path(FIRST, 1, true));
            server.set_path(NOW, path(FIRST, 2, true));
            let listener = server.listen(80, Config::default()).expect("free");
            let to = [SocketAddr::from((Ipv4Addr::new(10, 0, 2, 1), 80))];
            let config = |multipath| Config { multipath, ..Config::default() };
            let plain = client.connect(NOW, config(false), &to).expect("a path");
            let multipath = client.connect(NOW, config(true), &to).expect("a path");
            let mut pair = Self { client, server, listener, plain, multipath };
            pair.exchange();
            // A Data-ACK of the peer confirms that options get through.
            for id in [plain, multipath] {
                pair.client.write(NOW, id, bytes::Bytes::from_static(b"hello"));
            }
            pair.exchange();
            while pair.server.accept(pair.listener).is_some() {}
            pair
        }

        fn exchange(&mut self) {
            for _ in 0..20 {
                while let Some(sent) = self.client.poll_transmit(NOW) {
                    self.server.handle_segment(Arrival::at(NOW), &sent.segment);
                }
                while let Some(sent) = self.server.poll_transmit(NOW) {
                    self.client.handle_segment(Arrival::at(NOW), &sent.segment);
                }
            }
        }

        /// Returns whether a change of the client's paths is passed to the plain and to the other connection.
        fn concerned(&mut self, change: impl FnOnce(&mut Endpoint)) -> [bool; 2] {
            self.exchange();
            change(&mut self.client);
            [self.plain, self.multipath].map(|id| self.client.ready.contains(id))
        }
    }

    #[test]
    fn a_change_of_a_path_is_passed_to_the_connections_that_it_concerns_and_to_no_others() {
        let mut pair = Pair::connected();
        assert_eq!(pair.client.path_seekers, BTreeSet::from([pair.multipath]));
        let joins = pair.concerned(|client| client.set_path(NOW, path(SECOND, 1, true)));
        assert_eq!(joins, [false, true], "a further way is of use to Multipath TCP only");
        let unused = pair.concerned(|client| client.set_path(NOW, path(THIRD, 1, false)));
        assert_eq!(unused, [false, false], "it leads nowhere, and no subflow is there");
        let gone = pair.concerned(|client| client.remove_path(NOW, THIRD));
        assert_eq!(gone, [false, false], "no subflow was there");
        let down = pair.concerned(|client| client.set_path(NOW, path(SECOND, 1, false)));
        assert_eq!(down, [false, true], "a subflow is there");
        let first = pair.concerned(|client| client.set_path(NOW, path(FIRST, 1, false)));
        assert_eq!(first, [true, true], "both have a subflow there");
    }

    #[test]
    fn a_path_that_leaves_its_address_concerns_the_connections_that_have_it() {
        let mut pair = Pair::connected();
        let moved = pair.concerned(|client| client.set_path(NOW, path(FIRST, 3, true)));
        assert_eq!(moved, [true, true]);
    }

    #[test]
    fn another_way_over_the_device_of_a_path_that_goes_down_is_looked_for() {
        let mut pair = Pair::connected();
        let twin = |up| Path { name: "eth1".into(), ..path(THIRD, 1, up) };
        pair.client.set_path(NOW, path(SECOND, 1, true));
        pair.exchange();
        pair.client.set_path(NOW, twin(true));
        let down = pair.concerned(|client| client.remove_path(NOW, THIRD));
        assert_eq!(down, [false, true], "the path that is left may be wanted now");
    }

    /// The server announces its second address, which the client cannot reach, and then loses it.
    #[test]
    fn a_path_that_was_announced_and_never_joined_is_withdrawn_when_it_goes_down() {
        let mut pair = Pair::connected();
        pair.server.set_path(NOW, path(SECOND, 9, true));
        pair.exchange();
        let id = *pair.server.path_seekers.first().expect("the multipath connection");
        let own = Ipv4Addr::new(10, 0, 9, 2).into();
        assert!(pair.server.connections[&id].connection.has_announced(own));
        pair.server.set_path(NOW, path(SECOND, 9, false));
        assert!(!pair.server.connections[&id].connection.has_announced(own));
        pair.server.handle_timeout(NOW);
        let removal = pair.server.poll_transmit(NOW).expect("REMOVE_ADDR");
        let mut options = plait_wire::options(&removal.segment.options).flatten();
        assert!(options.any(|option| matches!(option, TcpOption::Mptcp(MptcpOption::RemoveAddr(_)))));
    }

    #[test]
    fn a_connection_that_is_over_looks_for_no_paths() {
        let mut pair = Pair::connected();
        pair.client.abort(NOW, pair.multipath);
        pair.exchange();
        assert!(pair.client.path_seekers.is_empty());
        pair.client.release(NOW, pair.multipath);
        pair.exchange();
        assert_eq!(pair.client.counters().connections, 1);
    }
}
