//! The parent: starts the child, gets its listeners, passes signals on and reports its end.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, IsTerminal, Read, Write};
use std::net;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::Pid;
use tokio::net::{TcpListener, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};

use super::descriptor::owned;
use super::enclosure::{FAILED, GO, READY, READY_WITHOUT_IPV6};
use super::gate::Gate;

/// Listeners that live in the program's network.
#[derive(Debug)]
pub struct Listeners {
    /// Redirected TCP over IPv4.
    pub tcp4: TcpListener,
    /// DNS queries over UDP.
    pub dns: UdpSocket,
    /// The same over TCP.
    pub dns_tcp: TcpListener,
    /// Redirected TCP, and DNS queries, over IPv6; `None` on a host without IPv6.
    pub v6: Option<(TcpListener, UdpSocket)>,
    /// Holds connections until the server's answer is known; without it they reach the listeners at once.
    pub gate: Option<Gate>,
}

/// A program that waits in its private network for [`Enclosed::go`].
#[derive(Debug)]
pub struct Enclosed {
    child: tokio::process::Child,
    control: UnixStream,
}

impl Enclosed {
    /// Starts `child`, a command that ends in [`super::enclose`] when the number of a file descriptor and the
    /// program are appended to its arguments.
    ///
    /// # Errors
    /// The private network cannot be made, for this reason.
    pub fn start(mut child: Command, program: &[OsString]) -> anyhow::Result<(Self, Listeners)> {
        let (ours, theirs) = controlled(&mut child, program)?;
        let child = tokio::process::Command::from(child).spawn().context("starting the program's process")?;
        drop(theirs);
        let listeners = receive(&ours)?;
        Ok((Self { child, control: ours }, listeners))
    }

    /// Lets the program start.
    ///
    /// # Errors
    /// The child has ended.
    pub fn go(&mut self) -> io::Result<()> {
        self.control.write_all(&[GO])
    }

    /// Waits for the program's end, passing signals on meanwhile, and returns the exit code to leave with: its
    /// own, or 128 plus the signal that ended it.
    ///
    /// # Errors
    /// Signals cannot be waited for.
    pub async fn wait(&mut self) -> io::Result<i32> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (mut user1, mut user2) =
            (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
        // From a terminal, Ctrl-C and Ctrl-\ reach the program without us.
        let from_terminal = io::stdin().is_terminal();
        loop {
            let passed = tokio::select! {
                status = self.child.wait() => return Ok(code_of(status?)),
                _ = terminate.recv() => Some(Signal::SIGTERM),
                _ = hangup.recv() => Some(Signal::SIGHUP),
                _ = user1.recv() => Some(Signal::SIGUSR1),
                _ = user2.recv() => Some(Signal::SIGUSR2),
                _ = quit.recv() => (!from_terminal).then_some(Signal::SIGQUIT),
                _ = interrupt.recv() => (!from_terminal).then_some(Signal::SIGINT),
            };
            let id = self.child.id().and_then(|id| i32::try_from(id).ok());
            if let (Some(signal), Some(id)) = (passed, id) {
                // A child that has just ended is reported by the next turn.
                let _ = kill(Pid::from_raw(id), signal);
            }
        }
    }
}

/// Tests whether a private network can be made here: makes one by `child`, a command as for [`Enclosed::start`], and drops it
/// before any program starts.
///
/// # Errors
/// It cannot be made, for this reason.
pub fn probe(mut child: Command) -> anyhow::Result<()> {
    let (mut ours, theirs) = controlled(&mut child, &["true".into()])?;
    let mut child = child.stdin(Stdio::null()).spawn().context("starting a process for a private network")?;
    drop(theirs);
    let mut byte = [0];
    let read = ours.read(&mut byte)?;
    let made = expect_ready(&ours, (read == 1).then_some(byte[0]));
    // No GO is sent: the child ends.
    drop(ours);
    child.wait()?;
    made
}

/// The descriptor for `child`, and the connection to it: our end, and its own, which must be dropped after the start.
fn controlled(child: &mut Command, program: &[OsString]) -> anyhow::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()))?;
    child.arg(theirs.as_raw_fd().to_string()).arg("--").args(program);
    Ok((ours, theirs))
}

/// The child's first byte, if there was one, says that its network is ready, or that its reason follows.
fn expect_ready(control: &UnixStream, byte: Option<u8>) -> anyhow::Result<()> {
    match byte {
        Some(READY | READY_WITHOUT_IPV6) => Ok(()),
        Some(FAILED) => {
            let mut reason = String::new();
            control.take(4096).read_to_string(&mut reason)?;
            bail!("{reason}");
        }
        _ => bail!("the program's process ended before its network was ready"),
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(super::exit::FAILED)
}

fn receive(control: &UnixStream) -> anyhow::Result<Listeners> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([i32; 8]);
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let message =
        recvmsg::<()>(control.as_raw_fd(), &mut buffers, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    // There is room for eight: if not all have come, this process may not have so many.
    let parts = message.cmsgs().map_err(|error| if error == Errno::ENOBUFS { Errno::EMFILE } else { error });
    for part in parts.context("taking over the listeners")? {
        if let ControlMessageOwned::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    expect_ready(control, Some(byte[0]))?;
    let mut fds = fds.into_iter().map(owned);
    let mut next = || fds.next().context("too few sockets were handed over");
    let tcp = |fd: OwnedFd| -> io::Result<TcpListener> {
        let listener = net::TcpListener::from(fd);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let udp = |fd: OwnedFd| -> io::Result<UdpSocket> {
        let socket = net::UdpSocket::from(fd);
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket)
    };
    let (tcp4, dns, dns_tcp) = (tcp(next()?)?, udp(next()?)?, tcp(next()?)?);
    let v6 = if byte[0] == READY { Some((tcp(next()?)?, udp(next()?)?)) } else { None };
    let gate = match (fds.next(), fds.next()) {
        (Some(copies), Some(raw4)) => Some(Gate::new([copies, raw4], fds.next())?),
        _ => None,
    };
    Ok(Listeners { tcp4, dns, dns_tcp, v6, gate })
}
