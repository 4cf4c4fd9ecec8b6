//! Announcements of the kernel on a netlink socket, which trigger a read of its state.
//!
//! The content of an announcement is ignored: the state itself is read, which cannot be missed or reordered. The first
//! announcement is acted upon at once; those that come soon after a read share the next one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use super::waiting::Signal;
use crate::error::Error;
use crate::log::trace;

/// Multicast groups of NETLINK_ROUTE (linux/rtnetlink.h): links; and addresses, routes, rules and settings of both families.
const LINK_GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | 0x80 | 1 << 18 | 1 << 23 | 1 << 24;

/// NFNLGRP_NFTABLES (linux/netfilter/nfnetlink.h) as a bit: every change of nftables.
const RULE_GROUPS: u32 = 1 << (7 - 1);

/// A check of links, addresses and routes reads them all, and runs programs for what must change.
const LINKS_SETTLE: Duration = Duration::from_millis(50);

/// A check of our rules runs one short program, and on some hosts the rules change all the time.
const RULES_SETTLE: Duration = Duration::from_millis(500);

/// A subscription, and the time of the next read.
#[derive(Debug)]
pub(crate) struct Announcements {
    socket: OwnedFd,
    settle: Duration,
    last_look: Option<Instant>,
    due: Option<Instant>,
}

impl Announcements {
    /// Subscribes to changes of the links, addresses and routes of this network namespace.
    pub(crate) fn of_links() -> Result<Self, Error> {
        let subscription = Self::subscribe(SockProtocol::NetlinkRoute, LINK_GROUPS, LINKS_SETTLE);
        subscription.map_err(|errno| Error::system("follow the links of this host", errno))
    }

    /// Subscribes to changes of the rules of nftables in this network namespace.
    pub(crate) fn of_rules() -> Result<Self, Error> {
        let subscription = Self::subscribe(SockProtocol::NetlinkNetFilter, RULE_GROUPS, RULES_SETTLE);
        subscription.map_err(|errno| Error::system("follow the rules of nftables", errno))
    }

    fn subscribe(protocol: SockProtocol, groups: u32, settle: Duration) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Self { socket, settle, last_look: None, due: None })
    }

    /// Reads the messages. A full queue counts as a message.
    fn drain(&mut self) -> Result<(), Errno> {
        let mut message = [0; 8192];
        let mut has_come = false;
        loop {
            match recv(self.socket.as_raw_fd(), &mut message, MsgFlags::empty()) {
                Ok(len) => trace!(len, "the network has changed"),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(Errno::ENOBUFS) => {}
                Err(errno) => return Err(errno),
            }
            has_come = true;
        }
        if has_come {
            let now = Instant::now();
            let settled = self.last_look.map_or(now, |last| last + self.settle);
            self.due = Some(self.due.map_or(settled, |due| due.min(settled)));
        }
        Ok(())
    }

    /// Waits until one of both has a message, the signal is given, or it is time.
    ///
    /// # Errors
    /// A socket has failed for good.
    pub(crate) fn wait(
        signal: &Signal,
        links: &mut Self,
        mut rules: Option<&mut Self>,
        until: Option<Instant>,
    ) -> io::Result<()> {
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            // Rounded up: a read that is due in half a millisecond must not cause a busy loop.
            let millis = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        });
        let sockets = [Some(links.socket.as_fd()), rules.as_ref().map(|rules| rules.socket.as_fd())];
        let fds = std::iter::once(signal.as_fd()).chain(sockets.into_iter().flatten());
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready: Vec<_> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if is_ready[0] {
            signal.clear();
        }
        if is_ready[1] {
            links.drain()?;
        }
        if let Some(rules) = rules.as_mut().filter(|_| is_ready[2]) {
            rules.drain()?;
        }
        Ok(())
    }

    /// The time of the next read.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a read is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Notes that the state has been read, which covers all earlier announcements.
    pub(crate) fn note_look(&mut self) {
        (self.last_look, self.due) = (Some(Instant::now()), None);
    }

    /// Schedules a later read, announced or not.
    pub(crate) fn look_again(&mut self, after: Duration) {
        self.due = Some(Instant::now() + after);
    }
}
