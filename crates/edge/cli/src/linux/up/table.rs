//! The tables of `plait up` or `plait gateway` in the kernel: put, listed, restored and removed.
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

use super::process::Owner;
use super::rules::PROCESS;
use crate::linux::network;
use crate::output::say;

/// Interval between looks at the addresses and routes of this host.
const TICK: Duration = Duration::from_secs(1);
/// How long a change of rules may take in the process that holds the second table.
const HELD_LIMIT: Duration = Duration::from_secs(5);
/// NFNLGRP_NFTABLES (linux/netfilter/nfnetlink.h) as a bit: every change of nftables.
const RULE_GROUPS: u32 = 1 << (7 - 1);

/// The rules of a command.
pub(in crate::linux) trait RuleSet: Send + 'static {
    const OWNER: Owner;

    /// The chains of each of the two tables.
    fn chains(&self) -> String;

    /// Reads again what the rules depend on; returns what has changed. `has_moved`: addresses or routes of this host are others.
    fn renew(&mut self, has_moved: bool) -> Option<&'static str>;

    /// Gives up what takes NFLOG; returns whether there was something.
    fn without_gate(&mut self) -> bool {
        false
    }

    /// The commands that put the first table, in the place of one that is there, in one transaction. `process` is that of plait.
    fn script(&self, process: u32) -> String {
        script(Self::OWNER.table(), ("", &format!("{PROCESS}{process}")), &self.chains())
    }

    /// The same for the second table. It has a chain of this name, by which the caller sees that it is there.
    fn held_script(&self, chain: &str) -> String {
        script(Self::OWNER.held_table(), ("flags owner;", chain), &self.chains())
    }
}

fn script(table: &str, (flags, chain): (&str, &str), chains: &str) -> String {
    format!(
        "add table inet {table} {{ {flags} }}\ndelete table inet {table}\n\
         table inet {table} {{\n{flags}\nchain {chain} {{ }}\n{chains}}}\n"
    )
}

/// The rules in the kernel. Dropping this removes them.
#[derive(Debug)]
pub(in crate::linux) struct Table {
    owner: Owner,
    wake: UnixStream,
    keeper: Option<JoinHandle<()>>,
}

impl Table {
    /// Puts the rules, in the place of those that an earlier process has left, and keeps them.
    ///
    /// # Errors
    /// They cannot be put.
    pub(in crate::linux) fn put<R: RuleSet>(mut rules: R) -> anyhow::Result<Self> {
        let (owner, started) = (R::OWNER, Instant::now());
        // The process that holds it ends a moment after a plait that has crashed.
        while list(owner.held_table()).is_some() {
            if started.elapsed() > HELD_LIMIT {
                bail!(
                    "another {} holds the table {} in this network namespace\n  fix: plait down",
                    owner.name(),
                    owner.held_table()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        let announcements = Announcements::open().context("following the rules of nftables")?;
        if let Err(error) = nft(&rules.script(id())) {
            // A kernel without NFLOG: connections are accepted before it is known whether their destination can be reached.
            if !rules.without_gate() {
                return Err(error.context(format!("the rules of {}", owner.name())));
            }
            nft(&rules.script(id()))?;
        }
        let (wake, woken) = UnixStream::pair()?;
        let whole = list(owner.table());
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
            Ok(keeper) => Ok(Self { owner, wake, keeper: Some(keeper) }),
            Err(error) => {
                remove(owner);
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
        remove(self.owner);
    }
}

/// Removes the table that outlives its process; returns whether it was there.
pub(super) fn remove(owner: Owner) -> bool {
    let table = owner.table();
    list(table).is_some() && nft(&format!("delete table inet {table}")).is_ok()
}

/// The thread that keeps the rules.
struct Keeper<R> {
    rules: R,
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

impl<R: RuleSet> Keeper<R> {
    fn run(&mut self, woken: &UnixStream) {
        while let Some(has_changed) = self.announcements.wait(woken) {
            let network = network();
            let has_moved = network != self.network;
            self.network = network;
            if let Some(what) = self.rules.renew(has_moved) {
                self.put(&format!("{what} have changed"));
            } else if has_changed && !self.is_whole() {
                self.put(&format!("another program has changed the rules of {}", R::OWNER.name()));
            } else if self.held.as_mut().is_some_and(|held| !held.is_there()) {
                self.put(&format!(
                    "another program has ended the process that holds rules of {}",
                    R::OWNER.name()
                ));
            } else if self.can_hold && self.held.is_none() {
                self.hold();
            }
        }
    }

    /// Whether the first table is there as it was put. Without a listing, it was removed as soon as it was put.
    fn is_whole(&self) -> bool {
        self.whole.is_some() && list(R::OWNER.table()) == self.whole
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
        self.whole = list(R::OWNER.table());
    }
}

impl<R: RuleSet> Keeper<R> {
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
    fn start<R: RuleSet>(rules: &R) -> anyhow::Result<Self> {
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
    fn put<R: RuleSet>(&mut self, rules: &R) -> anyhow::Result<()> {
        self.number += 1;
        let chain = format!("number-{}", self.number);
        // One line is one transaction.
        let line = rules.held_script(&chain).trim().replace('\n', "; ") + "\n";
        self.commands.write_all(line.as_bytes())?;
        self.commands.flush()?;
        let started = Instant::now();
        let name = R::OWNER.held_table();
        while !list(name).is_some_and(|table| table.contains(&format!("chain {chain} "))) {
            if started.elapsed() > HELD_LIMIT || !self.is_there() {
                bail!("nft has not put the table {name}, which takes Linux 5.12 and nftables 0.9.9");
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
        bail!("nft refuses the rules: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
