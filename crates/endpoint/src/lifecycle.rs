//! Creation, change of ownership and removal of connections.

use core::net::SocketAddr;
use plait_base::Instant;
use plait_mptcp::{ConnectionError, Event as ConnectionEvent};

use crate::entry::{Entry, Stage};
use crate::notices::Unsealed;
use crate::{ConnectionId, Endpoint, Event, log};

impl Endpoint {
    /// Handles progress of the connection: acts on its events, and lets it send.
    pub(crate) fn on_progress(&mut self, now: Instant, id: ConnectionId) {
        self.drain_events(now, id);
        self.weigh(id);
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

    /// Updates the memory of the connection in the totals.
    fn weigh(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id) {
            // Connections without a validated address are few, and have a limit of their own.
            let is_counted = !self.half_open.is_unproved(id);
            let memory = is_counted.then(|| entry.connection.memory());
            self.around.memory.change(core::mem::replace(&mut entry.memory, memory), memory);
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
        self.weigh(id);
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

    /// Passes a change of the host's paths to every connection.
    pub(crate) fn on_paths_changed(&mut self, now: Instant) {
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in ids {
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
                negotiated = ?entry.connection.status(now).negotiated,
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
                        error = error.map(tracing::field::debug),
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
