//! The network monitor: configures the network, follows its changes, and restores it, on a thread of its own.
//!
//! The kernel announces changes of links, addresses and routes, and of the rules of nftables. A program that flushes the
//! ruleset, such as a firewall that reloads, removes our rules, and the monitor restores them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use plait_base::{LogLimit, PathId};
use plait_mptcp::Path;
use tokio::sync::oneshot;

use crate::carriers::PathCarriers;
use crate::error::Error;
use crate::handover::HandedSocket;
use crate::log::{debug, info, warn};
use crate::networks::{Networks, RuleChange};
use crate::shared::Shared;
use crate::sys::{Announcements, OwnDescriptor};
use crate::wake::Wake;

/// Time after which restoring rules, or a look that failed, is tried again: another program may have been changing the same.
const MEND_AGAIN: Duration = Duration::from_secs(1);

/// A handle for any thread. Dropping it restores the network and waits for that.
pub(crate) struct NetworkMonitor {
    requests: Requests,
    thread: Option<JoinHandle<()>>,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    sender: Sender<Request>,
    wake: Arc<Wake>,
}

type Reply<T = ()> = oneshot::Sender<Result<T, Error>>;

#[derive(Debug)]
enum Request {
    OpenPort(u16, Reply<OpenPort>),
    ChangeRules(RuleChange, Reply),
    ClosePort(u16),
    HandOver(Reply<Vec<HandedSocket>>),
    LeavePorts(Reply),
    TakeBack(Reply),
    TakeOver(Vec<HandedSocket>, Reply<Vec<OwnDescriptor>>),
    TakeDown,
}

/// A port whose connections go to the stack. Dropping it returns them to the kernel.
#[derive(Debug)]
pub(crate) struct OpenPort {
    requests: Requests,
    port: u16,
}

/// The thread's side.
struct Watch {
    network: Networks,
    links: Announcements,
    /// Announcements about rules, if there are rules of ours.
    rules: Option<Announcements>,
    /// Limits for the lines about rules that were restored, and about rules that could not be.
    mended: LogLimit,
    not_mended: LogLimit,
    /// Limits the lines about looks that failed.
    not_read: LogLimit,
    shared: Arc<Shared>,
    /// The way to this thread, for ports that are opened.
    own: Requests,
    requests: Receiver<Request>,
    wake: Arc<Wake>,
}

impl NetworkMonitor {
    /// Follows the changes of `network` and tells the endpoint about its paths: the present ones before this
    /// returns.
    pub(crate) fn start(network: Networks, shared: Arc<Shared>) -> Result<Self, Error> {
        let (sender, received) = channel();
        let wake = Arc::new(Wake::new()?);
        // Subscribed before the first look, so that no change is missed in between.
        let links = Announcements::of_links()?;
        let rules = network.has_rules().then(Announcements::of_rules).transpose()?;
        let [mended, not_mended, not_read] = std::array::from_fn(|_| LogLimit::default());
        let requests = Requests { sender, wake: wake.clone() };
        let own = requests.clone();
        let mut watch = Watch {
            network,
            links,
            rules,
            mended,
            not_mended,
            not_read,
            shared,
            own,
            requests: received,
            wake,
        };
        let mut found = Vec::new();
        watch.network.settle(watch.shared.clock.now(), &mut found)?;
        watch.report(found);
        watch.note_look(None);
        let thread = std::thread::Builder::new()
            .name("plait-monitor".into())
            .spawn(move || watch.run())
            .map_err(|source| Error::system("start a thread", source))?;
        Ok(Self { requests, thread: Some(thread) })
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Sends connections to `port` to the stack.
    pub(crate) async fn open_port(&self, port: u16) -> Result<OpenPort, Error> {
        self.requests.ask(|reply| Request::OpenPort(port, reply)).await
    }

    /// Prepares that another process takes over the open ports.
    pub(crate) async fn hand_over(&self) -> Result<Vec<HandedSocket>, Error> {
        self.requests.ask(Request::HandOver).await
    }

    /// Leaves new connections to the other process.
    pub(crate) async fn leave_ports(&self) -> Result<(), Error> {
        self.requests.ask(Request::LeavePorts).await
    }

    /// Undoes [`NetworkMonitor::hand_over`].
    pub(crate) async fn take_back(&self) -> Result<(), Error> {
        self.requests.ask(Request::TakeBack).await
    }

    /// Takes these sockets for the ports that are opened next.
    pub(crate) async fn take_over(&self, sockets: Vec<HandedSocket>) -> Result<Vec<OwnDescriptor>, Error> {
        self.requests.ask(|reply| Request::TakeOver(sockets, reply)).await
    }
}

impl Requests {
    /// Changes the rules for the paths, and follows them.
    pub(crate) async fn change_rules(&self, change: RuleChange) -> Result<(), Error> {
        self.ask(|reply| Request::ChangeRules(change, reply)).await
    }

    /// Sends a request and waits for the reply. A reply without a receiver is dropped, which closes a port that was opened for it.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(request(reply)).map_err(|_| Error::Gone)?;
        self.wake.ask();
        answer.await.map_err(|_| Error::Gone)?
    }

    /// Sends a request without a reply. If the thread has ended already, it has restored the network.
    fn tell(&self, request: Request) {
        let _ = self.sender.send(request);
        self.wake.ask();
    }
}

impl Drop for NetworkMonitor {
    fn drop(&mut self) {
        self.requests.tell(Request::TakeDown);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Logs one line for each device, although it is a path of its own over each carrier; several if these paths differ.
fn tell(changed: &[Path], of_paths: &PathCarriers) {
    for (index, path) in changed.iter().enumerate() {
        let Path { name, class, backup, up, .. } = path;
        let is_alike = |other: &&Path| {
            (&other.name, other.class, other.backup, other.up) == (name, *class, *backup, *up)
        };
        if changed[..index].iter().any(|earlier| is_alike(&earlier)) {
            continue;
        }
        let carriers = changed[index..].iter().filter(is_alike);
        let carriers: Vec<_> = carriers.map(|path| of_paths.of(path.id).to_string()).collect();
        let class = crate::path::class_word(*class);
        info!(path = name, carriers = carriers.join(", "), class, backup, up, "path changes");
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.requests.tell(Request::ClosePort(self.port));
    }
}

impl Watch {
    fn run(mut self) {
        // The rules may have been removed since they were installed.
        self.look_at_rules_again(Duration::ZERO);
        loop {
            self.wake.begin_to_look();
            while let Ok(request) = self.requests.try_recv() {
                match request {
                    Request::OpenPort(port, reply) => self.open_port(port, reply),
                    Request::ChangeRules(change, reply) => {
                        // Without a caller that waits, the change is made all the same.
                        let _ = reply.send(self.change_rules(change));
                    }
                    Request::ClosePort(port) => {
                        self.network.close_port(port);
                        // The driver also closes its sockets.
                        self.shared.wake.ask();
                    }
                    Request::HandOver(reply) => drop(reply.send(self.network.hand_over())),
                    Request::LeavePorts(reply) => {
                        self.network.leave_ports();
                        let _ = reply.send(Ok(()));
                    }
                    Request::TakeBack(reply) => {
                        self.network.take_back();
                        let _ = reply.send(Ok(()));
                    }
                    Request::TakeOver(sockets, reply) => drop(reply.send(self.network.take_over(sockets))),
                    Request::TakeDown => return,
                }
            }
            if self.links.is_due()
                && let Err(error) = self.look()
                && let Some(others) = self.not_read.note(self.shared.clock.now(), 1)
            {
                warn!(%error, others, "a change of the network was not read or followed completely: plait tries again");
            }
            if let Some(rules) = self.rules.as_mut().filter(|rules| rules.is_due()) {
                rules.note_look();
                self.mend_rules();
            }
            if let Err(error) = self.wait() {
                warn!(%error, "the network is no longer followed");
                return;
            }
        }
    }

    fn open_port(&mut self, port: u16, reply: Reply<OpenPort>) {
        let mut result = self.network.open_port(port);
        // The rules may have been removed a moment ago.
        if matches!(result, Err(Error::Program { .. })) && self.mend_rules() {
            result = self.network.open_port(port);
        }
        let _ = reply.send(result.map(|()| OpenPort { requests: self.own.clone(), port }));
    }

    /// Restores our rules if they were removed; returns whether that was so. Its own changes are announced, too, and the next check finds
    /// the rules whole.
    fn mend_rules(&mut self) -> bool {
        let shared = &self.shared;
        let now = shared.clock.now();
        match self.network.mend_rules(|| shared.lock().endpoint.local_ports()) {
            Ok(false) => false,
            Ok(true) => {
                if let Some(others) = self.mended.note(now, 1) {
                    warn!(
                        others,
                        "our rules of nftables were removed (is a firewall being reloaded?) and have been put back; \
                         connections that began meanwhile may fail"
                    );
                }
                true
            }
            Err(error) => {
                if self.not_mended.note(now, 1).is_some() {
                    warn!(%error, "our rules of nftables cannot be checked: new connections may fail");
                }
                self.look_at_rules_again(MEND_AGAIN);
                false
            }
        }
    }

    fn look_at_rules_again(&mut self, after: Duration) {
        if let Some(rules) = &mut self.rules {
            rules.look_again(after);
        }
    }

    /// Looks at the network, and again after a while if that failed: the announcement of a lost path does not come twice.
    fn look(&mut self) -> Result<(), Error> {
        let taken = self.take_changes();
        self.note_look(taken.is_err().then_some(MEND_AGAIN));
        taken
    }

    /// Never waits for an answer from the network: the report of a lost path must not be late.
    fn take_changes(&mut self) -> Result<(), Error> {
        let snapshot = self.network.read(self.shared.clock.now())?;
        let mut found = Vec::new();
        let result = self.network.take(snapshot, &mut found);
        // What was found before an error is as true as without it.
        self.report(found);
        result
    }

    /// Schedules the next look: after this time at the latest, if one is given.
    fn note_look(&mut self, again: Option<Duration>) {
        self.links.note_look();
        if let Some(after) = [self.network.look_again(), again].into_iter().flatten().min() {
            self.links.look_again(after);
        }
    }

    fn change_rules(&mut self, change: RuleChange) -> Result<(), Error> {
        self.network.change_rules(change)?;
        // The gateway of a path that may carry something again is asked before the path counts as up.
        self.look()
    }

    /// Reports the shared networks and the changed ones of these paths to the endpoint, at once, and to the log. The last state of each
    /// path counts.
    fn report(&mut self, found: Vec<Path>) {
        let (ended, lost) = (self.network.take_ended(), self.network.take_lost());
        let last: BTreeMap<PathId, Path> = found.into_iter().map(|path| (path.id, path)).collect();
        let mut paths: Vec<Path> = last.into_values().collect();
        let networks = self.network.shared();
        let mut state = self.shared.lock();
        let now = self.shared.clock.now();
        let before = std::mem::replace(&mut state.shared_networks, networks.clone());
        for path in ended {
            state.endpoint.remove_path(now, path);
        }
        // Subflows with a lost address are over, although the path is up with another one: connections join anew.
        for (id, lost) in lost {
            let Some(path) = state.endpoint.paths().get(id).cloned() else { continue };
            let (v4, v6) = (path.v4.filter(|_| !lost.v4), path.v6.filter(|_| !lost.v6));
            state.endpoint.set_path(now, Path { v4, v6, ..path.clone() });
            if paths.iter().all(|found| found.id != id) {
                paths.push(path);
            }
        }
        paths.retain(|path| state.endpoint.paths().get(path.id) != Some(path));
        for path in &paths {
            state.endpoint.set_path(now, path.clone());
        }
        let carriers = state.carriers.clone();
        drop(state);
        for network in networks.iter().filter(|network| !before.has(network)) {
            info!(
                devices = network.devices.join(", "),
                "these devices share a network: their paths count as one"
            );
            debug!("{network}");
        }
        if !paths.is_empty() {
            self.shared.wake.ask();
            tell(&paths, &carriers);
        }
    }

    /// Waits for announcements, requests, or the time of the next look.
    fn wait(&mut self) -> io::Result<()> {
        if !self.wake.may_sleep() {
            return Ok(());
        }
        let rules_due = self.rules.as_ref().and_then(Announcements::due);
        let until = [self.links.due(), rules_due].into_iter().flatten().min();
        Announcements::wait(self.wake.signal(), &mut self.links, self.rules.as_mut(), until)
    }
}

#[cfg(all(test, not(feature = "models")))]
mod tests;
