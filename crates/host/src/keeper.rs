//! The keeper of the network: sets it up, follows its changes, and takes it down, on a thread of its own.
//!
//! The kernel announces changes of links, addresses and routes on a netlink socket. What an announcement says
//! is not even looked at: it is the occasion to read the state itself, which cannot be missed or reordered.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use tokio::sync::oneshot;
use tracing::{trace, warn};

use crate::error::Error;
use crate::path::PathSpec;
use crate::setup::Network;
use crate::shared::Shared;
use crate::wake::Wake;

/// Announcements within this time after a look share the next one. The first is acted upon at once.
const SETTLE: Duration = Duration::from_millis(50);

/// Multicast groups of NETLINK_ROUTE (linux/rtnetlink.h): links, and addresses and routes of both families.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// To be asked from any thread. Dropping it takes the network down and waits for that.
pub(crate) struct Keeper {
    requests: Requests,
    thread: Option<JoinHandle<()>>,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    sender: Sender<Request>,
    wake: Arc<Wake>,
}

type Reply = oneshot::Sender<Result<(), Error>>;

#[derive(Debug)]
enum Request {
    OpenPort(u16, Reply),
    UsePath(PathSpec, Reply),
    ClosePort(u16),
    TakeDown,
}

/// A port that the network sends to the stack until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenPort {
    requests: Requests,
    port: u16,
}

/// The thread's side.
struct Watch {
    network: Network,
    announcements: OwnedFd,
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    wake: Arc<Wake>,
}

impl Keeper {
    /// Follows the changes of `network` and tells the endpoint about its paths: the present ones before this
    /// returns.
    pub(crate) fn start(network: Network, shared: Arc<Shared>) -> Result<Self, Error> {
        let (sender, received) = channel();
        let wake = Arc::new(Wake::new()?);
        // Subscribed before the first look, so that nothing falls in between.
        let announcements =
            subscribe().map_err(|errno| Error::system("follow the links of this host", errno))?;
        let mut watch = Watch { network, announcements, shared, requests: received, wake: wake.clone() };
        watch.look()?;
        let thread = std::thread::Builder::new()
            .name("plait-keeper".into())
            .spawn(move || watch.run())
            .map_err(|source| Error::system("start a thread", source))?;
        Ok(Self { requests: Requests { sender, wake }, thread: Some(thread) })
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Sends connections to `port` to the stack.
    pub(crate) async fn open_port(&self, port: u16) -> Result<OpenPort, Error> {
        self.requests.ask(|reply| Request::OpenPort(port, reply)).await?;
        Ok(OpenPort { requests: self.requests(), port })
    }
}

impl Requests {
    /// Uses the path of this device differently.
    pub(crate) async fn use_path(&self, spec: PathSpec) -> Result<(), Error> {
        self.ask(|reply| Request::UsePath(spec, reply)).await
    }

    async fn ask(&self, request: impl FnOnce(Reply) -> Request) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(request(reply)).map_err(|_| Error::Gone)?;
        self.wake.ask();
        answer.await.map_err(|_| Error::Gone)?
    }

    /// Without waiting. The thread may have ended already, and taken the network down with it.
    fn tell(&self, request: Request) {
        let _ = self.sender.send(request);
        self.wake.ask();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.requests.tell(Request::TakeDown);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.requests.tell(Request::ClosePort(self.port));
    }
}

impl Watch {
    fn run(mut self) {
        let mut last_look = Instant::now();
        let mut look_due: Option<Instant> = None;
        loop {
            self.wake.begin_to_look();
            while let Ok(request) = self.requests.try_recv() {
                match request {
                    Request::OpenPort(port, reply) => {
                        let result = self.network.open_port(port);
                        if let Err(Ok(())) = reply.send(result) {
                            self.network.close_port(port);
                        }
                    }
                    Request::UsePath(spec, reply) => {
                        // Whoever asked may have gone; the path is used so all the same.
                        let _ = reply.send(self.use_path(spec));
                    }
                    Request::ClosePort(port) => self.network.close_port(port),
                    Request::TakeDown => return,
                }
            }
            if look_due.is_some_and(|due| due <= Instant::now()) {
                if let Err(error) = self.look() {
                    warn!(%error, "cannot see the state of the network");
                }
                (last_look, look_due) = (Instant::now(), None);
            }
            match self.wait(look_due) {
                Ok(true) => look_due = look_due.or_else(|| Some(last_look + SETTLE)),
                Ok(false) => {}
                Err(errno) => {
                    warn!(%errno, "the network is no longer followed");
                    return;
                }
            }
        }
    }

    /// Tells the endpoint about the paths that have changed.
    fn look(&mut self) -> Result<(), Error> {
        let changed = self.network.refresh()?;
        if !changed.is_empty() {
            self.shared.change(|state, now| {
                changed.into_iter().for_each(|path| state.endpoint.set_path(now, path));
            });
        }
        Ok(())
    }

    fn use_path(&mut self, spec: PathSpec) -> Result<(), Error> {
        if let Some(path) = self.network.use_path(spec)? {
            self.shared.change(|state, now| state.endpoint.set_path(now, path));
        }
        Ok(())
    }

    /// Waits for announcements (then the answer is `true`), requests, or the time of the next look.
    fn wait(&self, until: Option<Instant>) -> Result<bool, Errno> {
        if !self.wake.may_sleep() {
            return Ok(false);
        }
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            // Rounded up: a look that is due in half a millisecond is not waited for in a loop.
            let millis = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = [
            PollFd::new(self.announcements.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if fds[1].any().unwrap_or(false) {
            self.wake.clear();
        }
        if fds[0].any().unwrap_or(false) { self.drain() } else { Ok(false) }
    }

    /// Throws the announcements away. A full queue is as good as a message in it.
    fn drain(&self) -> Result<bool, Errno> {
        let mut message = [0; 8192];
        loop {
            match recv(self.announcements.as_raw_fd(), &mut message, MsgFlags::empty()) {
                Ok(len) => trace!(len, "the network has changed"),
                Err(Errno::EAGAIN) => return Ok(true),
                Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn subscribe() -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    Ok(fd)
}
