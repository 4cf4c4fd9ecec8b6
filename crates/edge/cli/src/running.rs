//! The connections of this process, as `plait status` and the file of `--status-json` report them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use plait::{Host, Monitor, PathControl, Pulse, Status, Subflow};
use plait_proxy::convert::Instance;

use crate::reload::Reload;

/// Most connections reported at a time: an answer must fit into memory on both sides.
const MAX_TOLD: usize = 1000;

/// This process, shared by all its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Running(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The name of the command.
    kind: &'static str,
    started: String,
    reload: Reload,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The subject for people: a port, or a server.
    what: String,
    is_stopping: bool,
    /// The stack, once it runs.
    host: Option<(PathControl, Pulse)>,
    /// The reason that the server is still waited for.
    waits_for: Option<String>,
    /// Number of the next connection, and of connections so far.
    next: u64,
    live: BTreeMap<u64, Live>,
}

#[derive(Debug)]
struct Live {
    monitor: Monitor,
    about: About,
    instance: Option<Instance>,
}

/// The facts about a connection beside its state.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The command that it belongs to.
    pub(crate) kind: &'static str,
    /// The peer's address that it was opened to or from.
    pub(crate) peer: Option<SocketAddr>,
    /// The client's identity, to a server.
    pub(crate) client: Option<String>,
    /// Its destination behind the server.
    pub(crate) destination: Option<String>,
    /// The time of its opening, in RFC 3339.
    pub(crate) started: String,
}

/// A connection that is listed until this is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    running: Running,
    number: u64,
}

/// One connection, for a monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub(crate) number: u64,
    /// The server of the connection, once it has answered.
    pub(crate) instance: Option<Instance>,
    /// Bytes that the peer has acknowledged.
    pub(crate) delivered: u64,
    /// Bytes that were read.
    pub(crate) read: u64,
    pub(crate) life: Life,
}

/// Evidence that the peer still has the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Life {
    /// The last verification of any of its subflows, on the clock of the host.
    pub(crate) verified: Option<Duration>,
    /// The address of the server on that subflow; the address on the first subflow if none is ever verified.
    pub(crate) server: Option<SocketAddr>,
    /// Whether a verified subflow still exists and answers questions.
    pub(crate) is_there: bool,
}

impl Life {
    fn of(status: &Status) -> Self {
        let subflows = status.subflows();
        let latest = subflows.iter().filter(|subflow| subflow.verified_at().is_some());
        let latest = latest.max_by_key(|subflow| subflow.verified_at());
        Self {
            verified: latest.and_then(Subflow::verified_at),
            server: latest.or(subflows.first()).map(Subflow::peer_addr),
            is_there: subflows.iter().any(|subflow| {
                subflow.verified_at().is_some() && !subflow.is_doubted() && subflow.end().is_none()
            }),
        }
    }
}

impl Running {
    pub(crate) fn new(kind: &'static str, what: impl Into<String>, reload: Reload) -> Self {
        let (host, waits_for) = (None, None);
        let state =
            State { what: what.into(), is_stopping: false, host, waits_for, next: 0, live: BTreeMap::new() };
        Self(Arc::new(Inner { kind, started: now(), reload, state: Mutex::new(state) }))
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.0.kind
    }

    /// Its options, which can be read again.
    pub(crate) fn reload(&self) -> &Reload {
        &self.0.reload
    }

    pub(crate) fn started(&self) -> &str {
        &self.0.started
    }

    pub(crate) fn what(&self) -> String {
        self.state().what.clone()
    }

    /// Sets a better description, once it is known.
    pub(crate) fn is_now(&self, what: impl Into<String>) {
        self.state().what = what.into();
    }

    /// Notes the stack that the connections use.
    pub(crate) fn uses(&self, host: &Host) {
        self.state().host = Some((host.path_control(), host.pulse()));
    }

    /// The paths of the stack, and the evidence that it runs; `None` before it is started.
    pub(crate) fn host(&self) -> Option<(PathControl, Pulse)> {
        self.state().host.clone()
    }

    /// Notes that the server is still waited for, and why; `None` once it has answered.
    pub(crate) fn waits(&self, why: Option<String>) {
        self.state().waits_for = why;
    }

    /// The reason that the server is still waited for.
    pub(crate) fn waits_for(&self) -> Option<String> {
        self.state().waits_for.clone()
    }

    /// Marks that no more connections are accepted.
    pub(crate) fn stops(&self) {
        self.state().is_stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    /// Lists a connection from now on. It is kept until [`Listed`] is dropped.
    pub(crate) fn list(&self, monitor: Monitor, peer: Option<SocketAddr>) -> Listed {
        let about = About { kind: self.0.kind, peer, client: None, destination: None, started: now() };
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.live.insert(number, Live { monitor, about, instance: None });
        Listed { running: self.clone(), number }
    }

    /// Numbers of all connections and of the current ones.
    pub(crate) fn counts(&self) -> (u64, usize) {
        let state = self.state();
        (state.next, state.live.len())
    }

    /// Calls `tell` with the current connections, the oldest first; with some of them if there are very many.
    pub(crate) fn each(&self, mut tell: impl FnMut(&About, &Status)) {
        for live in self.state().live.values().take(MAX_TOLD) {
            if let Some(status) = live.monitor.status() {
                tell(&live.about, &status);
            }
        }
    }

    /// The progress of each connection.
    pub(crate) fn progress(&self) -> Vec<Progress> {
        let state = self.state();
        let of = |(number, live): (&u64, &Live)| {
            let status = live.monitor.status()?;
            let (delivered, read) = (status.bytes_delivered(), status.bytes_read());
            let life = Life::of(&status);
            Some(Progress { number: *number, instance: live.instance, delivered, read, life })
        };
        state.live.iter().filter_map(of).collect()
    }

    /// Notes that the server of a connection has answered on it.
    pub(crate) fn answered(&self, number: u64, instance: Option<Instance>) {
        if let Some(live) = self.state().live.get_mut(&number) {
            live.instance = instance;
        }
    }

    /// Asks the peer of a connection at once whether it still has the connection.
    pub(crate) fn ask_life(&self, number: u64) {
        if let Some(live) = self.state().live.get(&number) {
            live.monitor.ask_life();
        }
    }

    /// Ends a connection at once; returns false if it has ended by itself.
    pub(crate) fn abort(&self, number: u64) -> bool {
        let state = self.state();
        let found = state.live.get(&number);
        found.inspect(|live| live.monitor.abort()).is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listed {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sets its destination.
    pub(crate) fn goes_to(&self, destination: &str) {
        self.change(|about| about.destination = Some(destination.to_owned()));
    }

    /// Sets its client.
    pub(crate) fn comes_from(&self, client: &str) {
        self.change(|about| about.client = Some(client.to_owned()));
    }

    /// Returns the facts about it.
    pub(crate) fn about(&self) -> About {
        // It is listed until this is dropped.
        let unknown = || About {
            kind: self.running.kind(),
            peer: None,
            client: None,
            destination: None,
            started: now(),
        };
        self.running.state().live.get(&self.number).map_or_else(unknown, |live| live.about.clone())
    }

    fn change(&self, change: impl FnOnce(&mut About)) {
        if let Some(live) = self.running.state().live.get_mut(&self.number) {
            change(&mut live.about);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // Its contents are dropped after the lock of the list is released.
        let _gone = self.running.state().live.remove(&self.number);
    }
}

/// The current second, in RFC 3339.
fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
