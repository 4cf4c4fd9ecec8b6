//! The connections of this process, as `plait status` and the file of `--status-json` report them.

mod clients;
#[cfg(target_os = "linux")]
pub(crate) mod devices;
mod life;
mod recent;
mod sums;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use jiff::Timestamp;
use plait::{Host, Monitor, PathControl, Pulse, Status};
use plait_proxy::convert::Instance;

pub(crate) use self::clients::Tallies;
#[cfg(target_os = "linux")]
pub(crate) use self::clients::{Carried, Open, Tally};
pub(crate) use self::life::{Life, Progress};
use self::recent::Recent;
pub(crate) use self::recent::{End, Event, Level, Message};
#[cfg(target_os = "linux")]
pub(crate) use self::sums::PathSum;
pub(crate) use self::sums::{PathLoad, PathName, Sums};
use crate::reload::Reload;

/// Most connections reported at a time: an answer must fit into memory on both sides.
const MAX_TOLD: usize = 1000;

/// The name of the message about a server that does not answer.
pub(crate) const SILENT_SERVER: &str = "server-silent";

/// This process, shared by all its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    inner: Arc<Inner>,
    /// Whether it is the view of a further stack, whose connections are listed while its state is not that of the process.
    is_beside: bool,
}

#[derive(Debug)]
struct Inner {
    /// The name of the command.
    kind: &'static str,
    started: String,
    reload: Reload,
    /// The clients of a server.
    clients: Arc<Tallies>,
    /// The devices behind a gateway.
    #[cfg(target_os = "linux")]
    devices: Arc<devices::Devices>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The subject for people: a port, or a server.
    what: String,
    /// Whether it accepts connections, or its peer has answered.
    is_ready: bool,
    is_stopping: bool,
    /// Whether another process accepts connections in place of this one.
    is_replaced: bool,
    /// Number of connections that wait for a request.
    ready: usize,
    /// The stack, once it runs.
    host: Option<(PathControl, Pulse)>,
    /// The reason that the server is still waited for.
    waits_for: Option<String>,
    /// Number of the next connection, and of connections so far.
    next: u64,
    live: BTreeMap<u64, Live>,
    /// Sums of the connections that have ended, and their number by the reason.
    ended: Sums,
    ends: BTreeMap<End, u64>,
    recent: Recent,
}

/// All connections at one moment.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) opened: u64,
    pub(crate) open: usize,
    /// Those beside them that wait for a request.
    pub(crate) ready: usize,
    /// Of all connections since the start.
    pub(crate) sums: Sums,
    /// The open subflows of each path.
    pub(crate) load: BTreeMap<PathName, PathLoad>,
    /// Number of connections that have ended, by the reason.
    pub(crate) ends: BTreeMap<End, u64>,
}

#[derive(Debug)]
struct Live {
    monitor: Monitor,
    about: About,
    instance: Option<Instance>,
    end: End,
    /// At the last survey.
    sums: Sums,
}

/// The facts about a connection beside its state.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// Its number in this process, counted from 0.
    pub(crate) number: u64,
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

impl Running {
    pub(crate) fn new(kind: &'static str, what: impl Into<String>, reload: Reload) -> Self {
        let state = State {
            what: what.into(),
            is_ready: false,
            is_stopping: false,
            is_replaced: false,
            ready: 0,
            host: None,
            waits_for: None,
            next: 0,
            live: BTreeMap::new(),
            ended: Sums::default(),
            ends: BTreeMap::new(),
            recent: Recent::default(),
        };
        let inner = Inner {
            kind,
            started: now(),
            reload,
            clients: Arc::default(),
            #[cfg(target_os = "linux")]
            devices: Arc::default(),
            state: Mutex::new(state),
        };
        Self { inner: Arc::new(inner), is_beside: false }
    }

    /// The same process for a further stack of it.
    #[cfg(target_os = "linux")]
    pub(crate) fn beside(&self) -> Self {
        Self { is_beside: true, ..self.clone() }
    }

    pub(crate) fn is_beside(&self) -> bool {
        self.is_beside
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn devices(&self) -> &Arc<devices::Devices> {
        &self.inner.devices
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.inner.kind
    }

    /// Its options, which can be read again.
    pub(crate) fn reload(&self) -> &Reload {
        &self.inner.reload
    }

    /// Its clients, if it is a server that tells them apart.
    pub(crate) fn clients(&self) -> &Arc<Tallies> {
        &self.inner.clients
    }

    pub(crate) fn started(&self) -> &str {
        &self.inner.started
    }

    pub(crate) fn what(&self) -> String {
        self.state().what.clone()
    }

    /// Sets a better description, once it is known.
    pub(crate) fn is_now(&self, what: impl Into<String>) {
        if !self.is_beside {
            self.state().what = what.into();
        }
    }

    /// Notes the stack that the connections use.
    pub(crate) fn uses(&self, host: &Host) {
        self.state().host = Some((host.path_control(), host.pulse()));
    }

    /// The paths of the stack, and the evidence that it runs; `None` before it is started.
    pub(crate) fn host(&self) -> Option<(PathControl, Pulse)> {
        self.state().host.clone()
    }

    /// Notes how many connections wait for a request.
    pub(crate) fn has_ready(&self, count: usize) {
        self.state().ready = count;
    }

    /// Notes that the server is still waited for, and why; `None` once it has answered.
    pub(crate) fn waits(&self, why: Option<String>) {
        if !self.is_beside {
            self.state().waits_for = why;
        }
    }

    /// The reason that the server is still waited for.
    pub(crate) fn waits_for(&self) -> Option<String> {
        self.state().waits_for.clone()
    }

    /// Marks that connections are accepted, or that the peer has answered.
    pub(crate) fn is_up(&self) {
        self.state().is_ready = true;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state().is_ready
    }

    /// Marks that no more connections are accepted.
    pub(crate) fn stops(&self) {
        self.state().is_stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    /// Notes whether another process accepts connections in place of this one, which keeps its own.
    pub(crate) fn replaced(&self, is_replaced: bool) {
        self.state().is_replaced = is_replaced;
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.state().is_replaced
    }

    /// Lists a connection from now on. It is kept until [`Listed`] is dropped.
    pub(crate) fn list(&self, monitor: Monitor, peer: Option<SocketAddr>) -> Listed {
        let mut state = self.state();
        let number = state.next;
        let about =
            About { number, kind: self.inner.kind, peer, client: None, destination: None, started: now() };
        state.next += 1;
        state.recent.note(Event::of("connection-opened", &about));
        let live = Live { monitor, about, instance: None, end: End::default(), sums: Sums::default() };
        state.live.insert(number, live);
        drop(state);
        Listed { running: self.clone(), number }
    }

    /// Numbers of all connections and of the current ones.
    pub(crate) fn counts(&self) -> (u64, usize) {
        let state = self.state();
        (state.next, state.live.len())
    }

    /// Sums up all connections. Calls `tell` with the current ones, the oldest first; with some of them if there are very many.
    pub(crate) fn survey(&self, mut tell: impl FnMut(&About, &Status)) -> Survey {
        let (mut survey, live) = {
            let state = self.state();
            let (sums, ends) = (state.ended.clone(), state.ends.clone());
            let survey = Survey {
                opened: state.next,
                open: state.live.len(),
                ready: state.ready,
                sums,
                load: BTreeMap::new(),
                ends,
            };
            let live: Vec<_> =
                state.live.iter().map(|(number, live)| (*number, live.monitor.clone())).collect();
            (survey, live)
        };
        // Without the lock, for which new connections wait. A connection that ends meanwhile is not among the ended ones of this survey.
        let mut told = 0;
        for (number, monitor) in live {
            let Some(status) = monitor.status() else { continue };
            sums::add_load(&mut survey.load, &status);
            let mut sums = Sums::of(&status);
            if let Some(live) = self.state().live.get_mut(&number) {
                live.sums.renew(sums);
                sums = live.sums.clone();
                if told < MAX_TOLD {
                    told += 1;
                    tell(&live.about, &status);
                }
            }
            survey.sums.add(&sums);
        }
        survey
    }

    /// The last events, the oldest first.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.state().recent.events()
    }

    /// Notes that the certificate was read again.
    pub(crate) fn has_read_certificate(&self) {
        let event = "certificate-read".to_owned();
        self.state().recent.note(Event { event, ..Event::default() });
    }

    /// Shows a message about the health of this process until it is taken back.
    pub(crate) fn warn(&self, level: Level, name: &'static str, text: impl Into<String>) {
        self.state().recent.warn(level, name, text.into());
    }

    pub(crate) fn take_back(&self, name: &'static str) {
        self.state().recent.take_back(name);
    }

    /// The current messages about health.
    pub(crate) fn messages(&self) -> Vec<Message> {
        self.state().recent.messages()
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
        let mut state = self.state();
        state.recent.take_back(SILENT_SERVER);
        if let Some(live) = state.live.get_mut(&number) {
            live.instance = instance;
        }
    }

    /// Notes which instance of the server a connection was opened to.
    pub(crate) fn is_at(&self, number: u64, instance: Option<Instance>) {
        if let Some(live) = self.state().live.get_mut(&number) {
            live.instance = instance;
        }
    }

    /// Adds what a connection without a request has carried.
    pub(crate) fn adds(&self, status: &Status) {
        // Programs have said nothing on it.
        let sums = Sums { bytes_delivered: 0, bytes_read: 0, ..Sums::of(status) };
        self.state().ended.add(&sums);
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
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            number: self.number,
            kind: self.running.kind(),
            peer: None,
            client: None,
            destination: None,
            started: now(),
        };
        self.running.state().live.get(&self.number).map_or_else(unknown, |live| live.about.clone())
    }

    /// Sets the reason of its end, if it is not [`End::Complete`].
    pub(crate) fn ends(&self, end: End) {
        if let Some(live) = self.running.state().live.get_mut(&self.number) {
            live.end = end;
        }
    }

    /// Notes the failure of its stream.
    pub(crate) fn note<T>(&self, polled: &Poll<io::Result<T>>) {
        if let Poll::Ready(Err(_)) = polled {
            self.ends(End::Failed);
        }
    }

    fn change(&self, change: impl FnOnce(&mut About)) {
        if let Some(live) = self.running.state().live.get_mut(&self.number) {
            change(&mut live.about);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let monitor = self.running.state().live.get(&self.number).map(|live| live.monitor.clone());
        // The stack is asked without the lock of the list.
        let last = monitor.and_then(|monitor| monitor.status());
        let mut state = self.running.state();
        // Its contents are dropped after the lock of the list is released.
        let Some(mut gone) = state.live.remove(&self.number) else { return };
        if let Some(status) = last {
            gone.sums.renew(Sums::of(&status));
        }
        let Sums { bytes_delivered, bytes_read, .. } = gone.sums;
        state.ended.add(&gone.sums);
        *state.ends.entry(gone.end).or_default() += 1;
        state.recent.note(Event {
            reason: Some(gone.end.name().to_owned()),
            bytes_delivered: Some(bytes_delivered),
            bytes_read: Some(bytes_read),
            ..Event::of("connection-ended", &gone.about)
        });
        drop(state);
    }
}

impl Event {
    fn of(event: &str, about: &About) -> Self {
        Self {
            event: event.to_owned(),
            connection: Some(about.number),
            peer: about.peer.map(|peer| peer.to_string()),
            client: about.client.clone(),
            destination: about.destination.clone(),
            ..Self::default()
        }
    }
}

/// The current second, in RFC 3339.
fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
