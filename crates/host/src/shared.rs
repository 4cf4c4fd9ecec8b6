//! What the driver, the sockets and the network monitor share: the endpoint behind a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use plait_base::Instant;
use plait_carrier::MalformedCounts;
use plait_endpoint::{ConnectionId, Endpoint, Event, ListenerId};

use crate::clock::Clock;
use crate::wake::Wake;

/// The endpoint and who waits for it.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Wakes the driver.
    pub(crate) wake: Wake,
    state: Mutex<State>,
}

/// Behind the lock.
pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    /// What arrived and was no packet of ours.
    pub(crate) malformed: MalformedCounts,
    connections: BTreeMap<ConnectionId, Waiters>,
    listeners: BTreeMap<ListenerId, Option<Waker>>,
    /// Who waits for the last connection to end.
    pub(crate) drained: Vec<Waker>,
    pub(crate) phase: Phase,
    /// Why there is no path over TCP.
    pub(crate) tcp_missing: Option<String>,
}

/// Life of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Running,
    /// The driver resets what is left and ends.
    Stopping,
    /// There is no driver: nothing moves any more.
    Stopped,
}

/// What a task can wait for on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// Connected, or failed.
    Open,
    /// Bytes, the end or an error to read.
    Read,
    /// Room to write, or an error.
    Write,
    /// Nothing more in either direction.
    Close,
}

#[derive(Default)]
struct Waiters {
    open: Option<Waker>,
    read: Option<Waker>,
    write: Option<Waker>,
    close: Option<Waker>,
    is_closed: bool,
}

impl Shared {
    pub(crate) fn new(clock: Clock, wake: Wake, endpoint: Endpoint) -> Arc<Self> {
        let state = State {
            endpoint,
            malformed: MalformedCounts::default(),
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            drained: Vec::new(),
            phase: Phase::Running,
            tcp_missing: None,
        };
        Arc::new(Self { clock, wake, state: Mutex::new(state) })
    }

    /// The state. A panic while it was held is a bug that has been reported by then; those who wait must not
    /// hang for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the endpoint that may give it packets to send, and lets the driver see to that.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let result = change(&mut self.lock(), self.clock.now());
        self.wake.ask();
        result
    }
}

impl State {
    /// From now on events about `id` are kept for its owner.
    pub(crate) fn add_connection(&mut self, id: ConnectionId) {
        self.connections.insert(id, Waiters::default());
    }

    pub(crate) fn remove_connection(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
    }

    pub(crate) fn add_listener(&mut self, id: ListenerId) {
        self.listeners.insert(id, None);
    }

    pub(crate) fn remove_listener(&mut self, id: ListenerId) {
        self.listeners.remove(&id);
    }

    /// Lets the driver reset what is left and end.
    pub(crate) fn begin_to_stop(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Stopping;
        }
    }

    /// Whether nothing more happens on a connection.
    pub(crate) fn is_closed(&self, id: ConnectionId) -> bool {
        self.phase == Phase::Stopped || self.connections.get(&id).is_none_or(|waiters| waiters.is_closed)
    }

    /// Wakes the task of `context` when `interest` may be satisfied.
    pub(crate) fn wait<T>(&mut self, id: ConnectionId, interest: Interest, context: &Context<'_>) -> Poll<T> {
        if let Some(waiters) = self.connections.get_mut(&id) {
            keep(waiters.slot(interest), context);
        }
        Poll::Pending
    }

    /// Wakes the task of `context` when there may be something to accept.
    pub(crate) fn wait_incoming<T>(&mut self, id: ListenerId, context: &Context<'_>) -> Poll<T> {
        if let Some(slot) = self.listeners.get_mut(&id) {
            keep(slot, context);
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
                        woken.extend(waiters.take_all());
                    }
                }
                Event::Incoming(id) => woken.extend(self.listeners.get_mut(&id).and_then(Option::take)),
            }
        }
        if !self.drained.is_empty() && self.endpoint.counters().connections == 0 {
            woken.append(&mut self.drained);
        }
    }

    /// The end: everybody is to look, and finds [`Phase::Stopped`].
    pub(crate) fn stop(&mut self) -> Vec<Waker> {
        self.phase = Phase::Stopped;
        let mut woken = std::mem::take(&mut self.drained);
        woken.extend(self.connections.values_mut().flat_map(Waiters::take_all));
        woken.extend(self.listeners.values_mut().filter_map(Option::take));
        woken
    }

    fn take(&mut self, id: ConnectionId, interest: Interest, woken: &mut Vec<Waker>) {
        woken.extend(self.connections.get_mut(&id).and_then(|waiters| waiters.slot(interest).take()));
    }
}

impl Waiters {
    fn slot(&mut self, interest: Interest) -> &mut Option<Waker> {
        match interest {
            Interest::Open => &mut self.open,
            Interest::Read => &mut self.read,
            Interest::Write => &mut self.write,
            Interest::Close => &mut self.close,
        }
    }

    fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        let Self { open, read, write, close, is_closed: _ } = self;
        [open.take(), read.take(), write.take(), close.take()].into_iter().flatten()
    }
}

fn keep(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => *slot = Some(context.waker().clone()),
    }
}
