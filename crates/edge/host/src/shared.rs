//! The state that the driver, the connections and the network monitor share: the endpoint behind a lock.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use plait_base::Instant;
use plait_carrier::MalformedCounts;
use plait_endpoint::{ConnectionId, Endpoint, Event, ListenerId};
use plait_mptcp::FlowNews;

use crate::carriers::PathCarriers;
use crate::clock::Clock;
use crate::handover::Relay;
use crate::shared_networks::SharedNetworks;
use crate::sync::{AtomicU64, Mutex, MutexGuard};
use crate::wake::Wake;

/// The endpoint and the tasks that wait for it.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Wakes the driver.
    pub(crate) wake: Arc<Wake>,
    /// Turns of the driver. Outside of the lock: a watchdog must not wait for a driver that hangs.
    turns: AtomicU64,
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
    drained: Tasks,
    pub(crate) phase: Phase,
    /// The reason for a missing path over TCP.
    pub(crate) tcp_missing: Option<String>,
    /// A change of the driver's relay, until the driver has taken it: another one, or none.
    pub(crate) relay: Option<Option<Relay>>,
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

/// The event that the one task that reads, or writes, a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// Bytes, the end or an error to read.
    Read,
    /// Room to write, or an error.
    Write,
}

/// The event that any number of tasks wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// The connection is open, or has failed.
    Opening(ConnectionId),
    /// Both directions of the connection have ended.
    Closing(ConnectionId),
    /// A flow of datagrams of the connection to accept, or a datagram in one.
    Flow(ConnectionId, FlowNews),
    /// A connection to accept.
    Incoming(ListenerId),
    /// The end of the last connection.
    Drained,
}

/// The wait of a future for an event. Dropping it drops the waker of the task.
pub(crate) struct Wait<'a> {
    shared: &'a Shared,
    awaited: Awaited,
    /// The number of the wait among those for the event.
    number: Option<u64>,
}

/// The tasks that wait for a connection: one that reads, one that writes, and any number that wait for the opening and for the end.
#[derive(Default)]
struct Waiters {
    open: Tasks,
    read: Option<Waker>,
    write: Option<Waker>,
    flows: BTreeMap<FlowNews, Tasks>,
    close: Tasks,
    is_closed: bool,
}

/// The tasks that wait for an event, by the number of the wait.
#[derive(Default)]
struct Tasks {
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

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
            relay: None,
            shared_networks: SharedNetworks::default(),
        };
        Arc::new(Self { clock, wake, turns: AtomicU64::new(0), state: Mutex::new(state) })
    }

    /// Locks the state. A panic while it was held is a bug that is already reported; other threads must not hang because of it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a turn of the driver, which is the only caller.
    pub(crate) fn count_turn(&self) {
        self.turns.store(self.turns() + 1, Ordering::Relaxed);
    }

    /// The number of turns of the driver.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Returns a wait for an event, without a task yet.
    pub(crate) fn wait_for(&self, awaited: Awaited) -> Wait<'_> {
        Wait { shared: self, awaited, number: None }
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

    /// Forgets the tasks that wait for a flow, which is closed.
    pub(crate) fn remove_flow(&mut self, id: ConnectionId, flow: FlowNews) {
        if let Some(waiters) = self.connections.get_mut(&id) {
            waiters.flows.remove(&flow);
        }
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
            keep(waiters.slot(interest), context);
        }
        Poll::Pending
    }

    /// The tasks that wait for an event, unless its connection or listener is gone.
    fn tasks(&mut self, awaited: Awaited) -> Option<&mut Tasks> {
        match awaited {
            Awaited::Opening(id) => self.connections.get_mut(&id).map(|waiters| &mut waiters.open),
            Awaited::Closing(id) => self.connections.get_mut(&id).map(|waiters| &mut waiters.close),
            Awaited::Flow(id, news) => {
                self.connections.get_mut(&id).map(|waiters| waiters.flows.entry(news).or_default())
            }
            Awaited::Incoming(id) => self.listeners.get_mut(&id),
            Awaited::Drained => Some(&mut self.drained),
        }
    }

    /// Moves the wakers that the endpoint's events concern into `woken`, to be woken without the lock.
    pub(crate) fn collect_wakers(&mut self, woken: &mut Vec<Waker>) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected(id) => {
                    self.take_tasks(Awaited::Opening(id), woken);
                    // The peer may have opened flows before.
                    self.take_tasks(Awaited::Flow(id, FlowNews::Offered), woken);
                }
                Event::Datagrams(id) => {
                    // Also the tasks that wait until flows can be opened.
                    self.take_tasks(Awaited::Flow(id, FlowNews::Offered), woken);
                    while let Some(news) = self.endpoint.poll_flow_news(id) {
                        self.take_tasks(Awaited::Flow(id, news), woken);
                    }
                }
                Event::Readable(id) => self.take(id, Interest::Read, woken),
                Event::Writable(id) => self.take(id, Interest::Write, woken),
                Event::Closed(id) => {
                    if let Some(waiters) = self.connections.get_mut(&id) {
                        waiters.is_closed = true;
                        waiters.take_all(woken);
                    }
                }
                Event::Incoming(id) => self.take_tasks(Awaited::Incoming(id), woken),
            }
        }
        if !self.drained.wakers.is_empty() && self.endpoint.counters().connections == 0 {
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
            woken.extend(waiters.slot(interest).take());
        }
    }

    fn take_tasks(&mut self, awaited: Awaited, woken: &mut Vec<Waker>) {
        if let Some(tasks) = self.tasks(awaited) {
            tasks.take(woken);
        }
    }
}

impl Wait<'_> {
    /// Wakes the task of `context` at the event, with the others. The caller has seen in `state`, under the same lock, that it has not come yet.
    pub(crate) fn pending<T>(&mut self, state: &mut State, context: &Context<'_>) -> Poll<T> {
        if let Some(tasks) = state.tasks(self.awaited) {
            self.number = Some(tasks.add(self.number, context));
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.shared.lock().tasks(self.awaited).and_then(|tasks| tasks.wakers.remove(&number));
            // Without the lock: the last waker of a task drops the task.
            drop(waker);
        }
    }
}

impl Waiters {
    fn slot(&mut self, interest: Interest) -> &mut Option<Waker> {
        match interest {
            Interest::Read => &mut self.read,
            Interest::Write => &mut self.write,
        }
    }

    fn take_all(&mut self, woken: &mut Vec<Waker>) {
        self.open.take(woken);
        woken.extend(self.read.take());
        woken.extend(self.write.take());
        self.flows.values_mut().for_each(|tasks| tasks.take(woken));
        self.close.take(woken);
    }
}

impl Tasks {
    /// Keeps the waker of `context`, in place of the earlier one of this wait. Returns the number of the wait.
    fn add(&mut self, number: Option<u64>, context: &Context<'_>) -> u64 {
        let number = number.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        let kept = self.wakers.entry(number).or_insert_with(|| context.waker().clone());
        kept.clone_from(context.waker());
        number
    }

    fn take(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(std::mem::take(&mut self.wakers).into_values());
    }
}

fn keep(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => *slot = Some(context.waker().clone()),
    }
}
