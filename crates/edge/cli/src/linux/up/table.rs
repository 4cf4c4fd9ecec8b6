//! The tables of `plait up` in the kernel: put, listed, restored and removed.
//!
//! There are two tables with the same rules. The first outlives this process, so that a crash opens nothing. Every program may remove it, as a
//! firewall does that flushes all rules when it is reloaded. The second belongs to a process of `nft` that runs as long as plait does: the
//! kernel lets no other program change or flush it (`flags owner`, Linux 5.12). So packets meet at least one of them at any time. A thread
//! restores the first one, and puts both again if the networks of this host change.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio, id};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use super::exempt::present;
use super::rules::{HELD_TABLE, Networks, Rules, TABLE};
use crate::linux::network;
use crate::output::say;

/// Interval between looks at the addresses and routes of this host.
const TICK: Duration = Duration::from_secs(1);
/// How long a change of rules may take in the process that holds the second table.
const HELD_LIMIT: Duration = Duration::from_secs(5);
/// NFNLGRP_NFTABLES (linux/netfilter/nfnetlink.h) as a bit: every change of nftables.
const RULE_GROUPS: u32 = 1 << (7 - 1);

/// The rules in the kernel. Dropping this removes them.
#[derive(Debug)]
pub(super) struct Table {
    wake: UnixStream,
    keeper: Option<JoinHandle<()>>,
}

impl Table {
    /// Puts the rules, in the place of those that an earlier process has left, and keeps them.
    ///
    /// # Errors
    /// They cannot be put.
    pub(super) fn put(mut rules: Rules) -> anyhow::Result<Self> {
        let started = Instant::now();
        // The process that holds it ends a moment after a plait that has crashed.
        while list(HELD_TABLE).is_some() {
            if started.elapsed() > HELD_LIMIT {
                bail!(
                    "another plait up holds the table {HELD_TABLE} in this network namespace\n  fix: plait down"
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        let announcements = Announcements::open().context("following the rules of nftables")?;
        if let Err(error) = nft(&rules.script(id())) {
            if !rules.has_gate {
                return Err(error);
            }
            // A kernel without NFLOG: connections are accepted before it is known whether their destination can be reached.
            rules.has_gate = false;
            nft(&rules.script(id()))?;
        }
        let (wake, woken) = UnixStream::pair()?;
        let whole = list(TABLE);
        let held = Held::start(&rules).inspect_err(|error| {
            tracing::warn!(
                "a program that flushes all rules of nftables opens this host for a moment: {error:#}"
            );
        });
        let (held, network) = (held.ok(), network());
        let can_hold = held.is_some();
        let mut keeper = Keeper {
            rules,
            whole,
            held,
            can_hold,
            announcements,
            network,
            has_failed: false,
            is_told: false,
        };
        let keeper = thread::Builder::new().name("rules".to_owned()).spawn(move || keeper.run(&woken));
        match keeper {
            Ok(keeper) => Ok(Self { wake, keeper: Some(keeper) }),
            Err(error) => {
                remove();
                Err(error.into())
            }
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = self.wake.write_all(&[0]);
        if let Some(keeper) = self.keeper.take() {
            // A panic of the thread was printed.
            let _ = keeper.join();
        }
        remove();
    }
}

/// Removes the table that outlives its process; returns whether it was there.
pub(super) fn remove() -> bool {
    list(TABLE).is_some() && nft(&format!("delete table inet {TABLE}")).is_ok()
}

/// The thread that keeps the rules.
struct Keeper {
    rules: Rules,
    /// The first table as `nft` lists it.
    whole: Option<String>,
    held: Option<Held>,
    /// Whether the second table was there: then it is put again until it is there.
    can_hold: bool,
    announcements: Announcements,
    network: String,
    has_failed: bool,
    /// Whether a failure of the second table was reported.
    is_told: bool,
}

impl Keeper {
    fn run(&mut self, woken: &UnixStream) {
        while let Some(has_changed) = self.announcements.wait(woken) {
            let network = network();
            if network != self.network {
                self.network = network;
                let networks = Networks::read(&self.rules.exempt.devices);
                if networks != self.rules.networks {
                    self.rules.networks = networks;
                    self.put("the networks of this host have changed");
                    continue;
                }
            }
            let groups = present(&self.rules.exempt.cgroups);
            if groups != self.rules.groups {
                self.rules.groups = groups;
                self.put("the control groups of this host have changed");
            } else if has_changed && !self.is_whole() {
                self.put("another program has changed the rules of plait up");
            } else if self.held.as_mut().is_some_and(|held| !held.is_there()) {
                self.put("another program has ended the process that holds rules of plait up");
            } else if self.can_hold && self.held.is_none() {
                self.hold();
            }
        }
    }

    /// Whether the first table is there as it was put. Without a listing, it was removed as soon as it was put.
    fn is_whole(&self) -> bool {
        self.whole.is_some() && list(TABLE) == self.whole
    }

    fn put(&mut self, why: &str) {
        // First the table that is there, whatever happens to the other one meanwhile.
        if let Some(held) = &mut self.held
            && let Err(error) = held.put(&self.rules)
        {
            tracing::debug!("the second table: {error:#}");
            self.held = None;
            self.hold();
        }
        match nft(&self.rules.script(id())) {
            Ok(()) => {
                tracing::info!("{why}; the rules are in effect");
                self.has_failed = false;
            }
            // The rest is still there, and refuses.
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                say(&format!("{why}, and the rules cannot be put: {error:#}"));
            }
            Err(_) => {}
        }
        self.whole = list(TABLE);
    }
}

impl Keeper {
    /// Puts the second table again.
    fn hold(&mut self) {
        match Held::start(&self.rules) {
            Ok(held) => (self.held, self.is_told) = (Some(held), false),
            Err(error) if !self.is_told => {
                self.is_told = true;
                say(&format!(
                    "warning: until the second table of rules is there again, a program that flushes all rules opens this host for a moment: \
                     {error:#}"
                ));
            }
            Err(_) => {}
        }
    }
}

/// A process of `nft` that owns the second table.
#[derive(Debug)]
struct Held {
    child: Child,
    commands: ChildStdin,
    /// Number of times that the table was put.
    number: u64,
}

impl Held {
    fn start(rules: &Rules) -> anyhow::Result<Self> {
        let mut child = Command::new("nft");
        child.arg("--interactive").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C at a terminal is for plait, which ends it.
        let mut child = child.process_group(0).spawn().context("starting nft")?;
        let commands = child.stdin.take().context("its input")?;
        let mut held = Self { child, commands, number: 0 };
        held.put(rules)?;
        Ok(held)
    }

    /// Puts the table, and waits until it is there.
    fn put(&mut self, rules: &Rules) -> anyhow::Result<()> {
        self.number += 1;
        let chain = format!("number-{}", self.number);
        // One line is one transaction.
        let line = rules.held_script(&chain).trim().replace('\n', "; ") + "\n";
        self.commands.write_all(line.as_bytes())?;
        self.commands.flush()?;
        let started = Instant::now();
        while !list(HELD_TABLE).is_some_and(|table| table.contains(&format!("chain {chain} "))) {
            if started.elapsed() > HELD_LIMIT || !self.is_there() {
                bail!("nft has not put the table {HELD_TABLE}, which takes Linux 5.12 and nftables 0.9.9");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn is_there(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Its table ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Announcements of the kernel that rules of nftables have changed.
struct Announcements(OwnedFd);

impl Announcements {
    fn open() -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkNetFilter)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, RULE_GROUPS))?;
        Ok(Self(socket))
    }

    /// Waits for a change of the rules, or a while; returns whether there was a change. `None`: the thread should end.
    fn wait(&self, mut woken: &UnixStream) -> Option<bool> {
        let mut fds = [self.0.as_fd(), woken.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let timeout = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => tracing::error!(%errno, "the rules are not followed"),
        }
        if fds[1].any().unwrap_or(true) {
            let _ = woken.read(&mut [0]);
            return None;
        }
        let mut message = [0; 8192];
        let mut has_changed = false;
        loop {
            match recv(self.0.as_raw_fd(), &mut message, MsgFlags::empty()) {
                // A full queue has lost some.
                Ok(_) | Err(Errno::ENOBUFS) => has_changed = true,
                Err(Errno::EINTR) => {}
                Err(_) => return Some(has_changed),
            }
        }
    }
}

/// The table as `nft` lists it; `None` if there is none.
pub(super) fn list(table: &str) -> Option<String> {
    let mut command = Command::new("nft");
    command.args(["--stateless", "list", "table", "inet", table]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.process_group(0).output().ok().filter(|done| done.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a script of `nft` as one transaction.
fn nft(script: &str) -> anyhow::Result<()> {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("cannot start nft: it is not installed\n  fix: install the package nftables")
        }
        _ => anyhow!("cannot start nft: {error}"),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        tracing::debug!(script, "refused");
        bail!("nft refuses the rules of plait up: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
