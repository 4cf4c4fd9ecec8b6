//! The state that the driver, the sockets and the network monitor share: the endpoint behind a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use plait_base::Instant;
use plait_carrier::MalformedCounts;
use plait_endpoint::{ConnectionId, Endpoint, Event, ListenerId};

use crate::carriers::PathCarriers;
use crate::clock::Clock;
use crate::shared_networks::SharedNetworks;
use crate::wake::Wake;

/// The endpoint and the tasks that wait for it.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Wakes the driver.
    pub(crate) wake: Arc<Wake>,
    state: Mutex<State>,
}

/// Behind the lock.
pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    /// The carriers of its paths.
    pub(crate) carriers: PathCarriers,
    /// Received packets that are malformed or not ours.
    pub(crate) malformed: MalformedCounts,
    connections: BTreeMap<ConnectionId, Waiters>,
    listeners: BTreeMap<ListenerId, Tasks>,
    /// The tasks that wait for the last connection to end.
    pub(crate) drained: Tasks,
    pub(crate) phase: Phase,
    /// The reason for a missing path over TCP.
    pub(crate) tcp_missing: Option<String>,
    /// The networks that several devices share.
    pub(crate) shared_networks: SharedNetworks,
}

/// The state of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Running,
    /// The driver resets the remaining connections and ends.
    Stopping,
    /// The driver has ended: no packet moves any more.
    Stopped,
}

/// The event that a task waits for on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// Connected, or failed.
    Open,
    /// Bytes, the end or an error to read.
    Read,
    /// Room to write, or an error.
    Write,
    /// The end of both directions.
    Close,
}

/// The tasks that wait for a connection. Reading and writing need `&mut` of a half, so one task waits for each. Any number of tasks
/// may wait for the opening and for the end, which need `&`.
#[derive(Default)]
struct Waiters {
    open: Tasks,
    read: Option<Waker>,
    write: Option<Waker>,
    close: Tasks,
    is_closed: bool,
}

/// Tasks that wait for the same thing, each of them once.
#[derive(Default)]
pub(crate) struct Tasks(Vec<Waker>);

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        wake: Arc<Wake>,
        carriers: PathCarriers,
        endpoint: Endpoint,
    ) -> Arc<Self> {
        let state = State {
            endpoint,
            carriers,
            malformed: MalformedCounts::default(),
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            drained: Tasks::default(),
            phase: Phase::Running,
            tcp_missing: None,
            shared_networks: SharedNetworks::default(),
        };
        Arc::new(Self { clock, wake, state: Mutex::new(state) })
    }

    /// Locks the state. A panic while it was held is a bug that is already reported; other threads must not hang because of it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the endpoint so that it may have packets to send, and wakes the driver.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let result = change(&mut self.lock(), self.clock.now());
        self.wake.ask();
        result
    }
}

impl State {
    /// Keeps events about `id` for its owner from now on.
    pub(crate) fn add_connection(&mut self, id: ConnectionId) {
        self.connections.insert(id, Waiters::default());
    }

    pub(crate) fn remove_connection(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
    }

    pub(crate) fn add_listener(&mut self, id: ListenerId) {
        self.listeners.insert(id, Tasks::default());
    }

    pub(crate) fn remove_listener(&mut self, id: ListenerId) {
        self.listeners.remove(&id);
    }

    /// Makes the driver reset the remaining connections and end.
    pub(crate) fn begin_to_stop(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Stopping;
        }
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self, id: ConnectionId) -> bool {
        self.phase == Phase::Stopped || self.connections.get(&id).is_none_or(|waiters| waiters.is_closed)
    }

    /// Wakes the task of `context` when `interest` may be satisfied.
    pub(crate) fn wait<T>(&mut self, id: ConnectionId, interest: Interest, context: &Context<'_>) -> Poll<T> {
        if let Some(waiters) = self.connections.get_mut(&id) {
            waiters.add(interest, context);
        }
        Poll::Pending
    }

    /// Wakes the task of `context` when there may be something to accept.
    pub(crate) fn wait_incoming<T>(&mut self, id: ListenerId, context: &Context<'_>) -> Poll<T> {
        if let Some(tasks) = self.listeners.get_mut(&id) {
            tasks.add(context);
        }
        Poll::Pending
    }

    /// Moves the wakers that the endpoint's events concern into `woken`, to be woken without the lock.
    pub(crate) fn collect_wakers(&mut self, woken: &mut Vec<Waker>) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected(id) => self.take(id, Interest::Open, woken),
                Event::Readable(id) => self.take(id, Interest::Read, woken),
                Event::Writable(id) => self.take(id, Interest::Write, woken),
                Event::Closed(id) => {
                    if let Some(waiters) = self.connections.get_mut(&id) {
                        waiters.is_closed = true;
                        waiters.take_all(woken);
                    }
                }
                Event::Incoming(id) => {
                    if let Some(tasks) = self.listeners.get_mut(&id) {
                        tasks.take(woken);
                    }
                }
            }
        }
        if !self.drained.is_empty() && self.endpoint.counters().connections == 0 {
            self.drained.take(woken);
        }
    }

    /// Ends the host: all waiting tasks look, and find [`Phase::Stopped`].
    pub(crate) fn stop(&mut self) -> Vec<Waker> {
        self.phase = Phase::Stopped;
        let mut woken = Vec::new();
        self.drained.take(&mut woken);
        self.connections.values_mut().for_each(|waiters| waiters.take_all(&mut woken));
        self.listeners.values_mut().for_each(|tasks| tasks.take(&mut woken));
        woken
    }

    fn take(&mut self, id: ConnectionId, interest: Interest, woken: &mut Vec<Waker>) {
        if let Some(waiters) = self.connections.get_mut(&id) {
            waiters.take(interest, woken);
        }
    }
}

impl Waiters {
    fn add(&mut self, interest: Interest, context: &Context<'_>) {
        match interest {
            Interest::Open => self.open.add(context),
            Interest::Read => keep(&mut self.read, context),
            Interest::Write => keep(&mut self.write, context),
            Interest::Close => self.close.add(context),
        }
    }

    fn take(&mut self, interest: Interest, woken: &mut Vec<Waker>) {
        match interest {
            Interest::Open => self.open.take(woken),
            Interest::Read => woken.extend(self.read.take()),
            Interest::Write => woken.extend(self.write.take()),
            Interest::Close => self.close.take(woken),
        }
    }

    fn take_all(&mut self, woken: &mut Vec<Waker>) {
        for interest in [Interest::Open, Interest::Read, Interest::Write, Interest::Close] {
            self.take(interest, woken);
        }
    }
}

impl Tasks {
    /// Wakes the task of `context` with the others. A task that no longer waits is woken for nothing.
    pub(crate) fn add(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|known| known.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    fn take(&mut self, woken: &mut Vec<Waker>) {
        woken.append(&mut self.0);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn keep(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => *slot = Some(context.waker().clone()),
    }
}
