//! `plait forward`: local ports and sockets for services behind the server, like `ssh -L`, and ports of the server for services here, like
//! `ssh -R`.

mod local;
mod remote;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plait_proxy::client::forward;
use plait_proxy::convert::Destination;
use plait_proxy::relay::Abort;
use plait_proxy::socket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(crate) use self::local::destination_of;
#[cfg(target_os = "linux")]
pub(crate) use self::local::socket_of;
use self::local::{At, Local};
use self::remote::Remote;
use crate::datagrams::{self, DatagramOptions, FlowDial};
use crate::dial::Towards;
use crate::late_dial::{LateDial, TowardsLater, is_away};
use crate::listening::Passed;
use crate::local_socket::LocalSocket;
use crate::output::say;
use crate::reload::Reload;
use crate::running::Running;
use crate::shortage::Shortage;
use crate::system::service::Service;
use crate::system::{limits, prerequisite};
use crate::{exit, protection};

/// Most connections at a time; more wait in the kernel.
const MAX_CLIENTS: usize = 8192;
/// How long connections may go on after the signal to stop.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Forward {
    /// Let PORT here, at ADDR (127.0.0.1), lead to PORT of HOST behind the server (repeatable).
    /// With udp: in front, datagrams are forwarded: each source has a flow of its own, which ends when it is idle.
    /// The rules of the server must allow the destination. An ADDR that other hosts reach lets them use the forward: there is a warning.
    /// A path that begins with / is a socket in the file system, in place of [ADDR:]PORT here, or of HOST:PORT at the server. A path with
    /// colons is in brackets. A name alone, in place of HOST:PORT, is a service of the server (serve --service).
    #[arg(
        short = 'L',
        long = "local",
        value_name = "[udp:][ADDR:]PORT:HOST:PORT",
        required_unless_present = "remotes"
    )]
    locals: Vec<Local>,
    /// Let PORT of the server, at ADDR (127.0.0.1) there, lead to PORT of HOST here (repeatable).
    /// A rule of the server must allow it: serve --allow remote=PORT. The server listens as long as this client is connected.
    #[arg(short = 'R', long = "remote", value_name = "[ADDR:]PORT:HOST:PORT")]
    remotes: Vec<Remote>,
    /// Permissions of the sockets that -L makes here, in octal. Users that may write to a socket can use the forward.
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = local::mode)]
    socket_mode: u32,
    #[command(flatten)]
    datagrams: DatagramOptions,
    #[command(flatten)]
    server: TowardsLater,
}

/// What listens.
#[derive(Debug)]
enum Door {
    Connections(Acceptor),
    Datagrams(UdpSocket),
}

/// What accepts connections.
#[derive(Debug)]
enum Acceptor {
    Port(TcpListener),
    Socket(LocalSocket),
}

impl Forward {
    pub(crate) fn towards(&self) -> &Towards {
        &self.server.towards
    }

    pub(crate) async fn run(self, reload: Reload) -> anyhow::Result<()> {
        let checks = self.towards().options.checks();
        self.run_until_stopped(reload).await.map_err(|error| prerequisite::explain(error, checks))
    }

    async fn run_until_stopped(self, reload: Reload) -> anyhow::Result<()> {
        // Listen from the start, so that a signal leaves no half-built network behind.
        let mut stopped = tokio::spawn(exit::stopped());
        let mut doors = Vec::new();
        let mut passed = Passed::take()?;
        let remotes = self.remotes.iter().map(Remote::to_string);
        let what: Vec<_> = self.locals.iter().map(Local::to_string).chain(remotes).collect();
        let is_sealed = protection::is_sealed(&self.towards().options);
        for Local { at, to } in self.locals {
            let door = match &at {
                At::Port(at) => Door::Connections(Acceptor::Port(passed.listen(*at).await?)),
                At::Datagrams(at) => Door::Datagrams(datagrams::bind(*at, is_sealed).await?),
                At::Socket(path) => {
                    Door::Connections(Acceptor::Socket(LocalSocket::listen(path, self.socket_mode)?))
                }
            };
            doors.push((door, at, to));
        }
        passed.finish()?;
        limits::raise_open_files();
        let running = Running::new("forward", what.join(", "), reload);
        let mut service = Service::new(&running);
        let (dial, mut reaching) = tokio::select! {
            opened = self.server.open(running, is_away) => opened?,
            _ = &mut stopped => return Ok(()),
        };
        let room = Arc::new(Semaphore::new(MAX_CLIENTS));
        let flows = FlowDial::new(dial.clone(), self.datagrams);
        let mut ports = JoinSet::new();
        for (door, at, to) in doors {
            // For people, and for scripts that wait for it.
            let at = door.at(&at)?;
            say(&format!("forwarding {at} to {to}"));
            if let Some(others) = Door::others(&at, self.socket_mode) {
                say(&format!("warning: {others} can use it, with the rights of this client"));
            }
            match door {
                Door::Datagrams(socket) => ports.spawn(datagrams::forward_all(socket, to, flows.clone())),
                Door::Connections(acceptor) => {
                    ports.spawn(accept_all(acceptor, to, dial.clone(), room.clone()))
                }
            };
        }
        let mut offers = JoinSet::new();
        for remote in self.remotes {
            offers.spawn(remote.serve(dial.clone(), room.clone()));
        }
        service.is_ready().await;
        tokio::select! {
            _ = &mut stopped => {}
            error = &mut reaching => return Err(error),
            Some(Ok(error)) = offers.join_next() => return Err(error),
        }
        service.stops(2 * FAREWELL).await;
        offers.shutdown().await;
        ports.shutdown().await;
        drop(flows);
        let all = u32::try_from(MAX_CLIENTS).unwrap_or(u32::MAX);
        let _ = timeout(FAREWELL, room.acquire_many(all)).await;
        let _ = timeout(FAREWELL, dial.drained()).await;
        Ok(())
    }
}

impl Door {
    /// Its place, for people: of port 0 the port that the kernel has chosen.
    fn at(&self, wanted: &At) -> io::Result<At> {
        match self {
            Self::Connections(Acceptor::Port(listener)) => listener.local_addr().map(At::Port),
            Self::Datagrams(socket) => socket.local_addr().map(At::Datagrams),
            Self::Connections(Acceptor::Socket(_)) => Ok(wanted.clone()),
        }
    }

    /// Those beside this user that can connect.
    fn others(at: &At, mode: u32) -> Option<String> {
        match at {
            At::Port(at) | At::Datagrams(at) if !at.ip().is_loopback() => {
                Some(format!("every host that reaches {at}"))
            }
            At::Socket(path) if mode & 0o022 != 0 => {
                Some(format!("other users that reach {}", path.display()))
            }
            At::Port(_) | At::Datagrams(_) | At::Socket(_) => None,
        }
    }
}

/// Accepts clients of one port or socket. Connections continue after this ends.
async fn accept_all(acceptor: Acceptor, to: Destination, dial: Arc<LateDial>, room: Arc<Semaphore>) {
    let mut shortage = Shortage::default();
    loop {
        // It is never closed.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let (dial, to) = (dial.clone(), to.clone());
        let accepted = match &acceptor {
            Acceptor::Port(listener) => listener.accept().await.map(|(mut program, _)| {
                tokio::spawn(async move {
                    socket::prepare(&program);
                    serve_one(&mut program, to, &dial).await;
                    drop(place);
                });
            }),
            Acceptor::Socket(socket) => socket.accept().await.map(|mut program| {
                tokio::spawn(async move {
                    serve_one(&mut program, to, &dial).await;
                    drop(place);
                });
            }),
        };
        if let Err(error) = accepted {
            shortage.wait(&error).await;
        }
    }
}

async fn serve_one<P>(program: &mut P, to: Destination, dial: &LateDial)
where
    P: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let destination = to.to_string();
    match forward(dial, program, to).await {
        Ok((sent, received)) => tracing::info!(destination, sent, received, "a connection has ended"),
        Err(error) => tracing::info!(destination, %error, "a connection has ended early"),
    }
}
