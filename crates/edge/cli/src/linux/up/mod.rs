//! `plait up`: all programs of this host with their connections and their DNS through plait.
//!
//! [`rules`] says what the kernel does with the packets of programs, and [`table`] keeps it that way. The listeners of [`doors`] take what is
//! redirected, and a gate holds first segments until their destination has answered, as for `plait run`. The rules are there before
//! anything else is, and are removed last.

mod doors;
mod down;
pub(in crate::linux) mod exempt;
mod portal;
pub(in crate::linux) mod process;
pub(in crate::linux) mod rules;
pub(in crate::linux) mod table;
mod visitors;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plait_console::prerequisite::may_change_the_network;
use plait_proxy::client::{self, ForwardError};
use plait_proxy::convert::Destination;
use plait_proxy::names::Names;
use plait_proxy::run::original_destination;
use plait_proxy::{dns, socket};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::doors::Doors;
pub(crate) use self::down::{Cleanup, Down};
use self::exempt::ExemptOptions;
use self::portal::Page;
use self::process::{Owner, State};
use self::rules::{Networks, OWN_MARK, Rules};
use self::table::Table;
use crate::dial::Towards;
use crate::exit;
use crate::late_dial::{LateDial, TowardsLater, may_be_the_network};
use crate::linux::limits;
use crate::linux::prerequisite::{self, Check};
use crate::linux::service::Service;
use crate::linux::waiting::{Reached, Waiting};
use crate::listening::accept;
use crate::output::say;
use crate::reload::Reload;
use crate::running::Running;
use crate::shortage::Shortage;

/// Most connections of programs at a time; more wait in the kernel.
const MAX_CONNECTIONS: usize = 8192;
/// How long connections may go on after the signal to stop.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Up {
    #[command(flatten)]
    exempt: ExemptOptions,
    /// While the server cannot be reached, ask for this page over each path, in clear, and report a network that answers by a redirect: it has
    /// a captive portal. As in http://probe.example/generate_204 [default: off].
    #[arg(long, value_name = "URL")]
    portal_probe: Option<Page>,
    #[command(flatten)]
    server: TowardsLater,
}

impl Up {
    pub(crate) fn towards(&self) -> &Towards {
        &self.server.towards
    }

    pub(crate) async fn run(self, reload: Reload) -> anyhow::Result<()> {
        let checks = [self.towards().options.checks(), &[Check::Privileges, Check::Nft, Check::Ip]].concat();
        self.run_until_stopped(reload).await.map_err(|error| prerequisite::explain(error, &checks))
    }

    async fn run_until_stopped(self, reload: Reload) -> anyhow::Result<()> {
        // Listen from the start, so that a signal leaves no rules behind.
        let mut stopped = tokio::spawn(exit::stopped());
        if let Some(missing) = prerequisite::first(&[Check::Privileges, Check::Nft, Check::Ip]) {
            return Err(missing.into());
        }
        let exempt = self.exempt.look_up()?;
        Owner::Up.require_alone()?;
        plait::mark_sockets(OWN_MARK);
        let doors = Doors::open()?;
        limits::raise_open_files();
        let networks = Networks::read(&exempt.devices);
        let (ports, has_gate) = (doors.ports, doors.gate.is_some());
        let (groups, visitors) = (exempt::present(&exempt.cgroups), visitors::now());
        let table = Table::put(Rules { ports, exempt, networks, groups, visitors, has_gate })?;
        let running = Running::new("up", "the whole host", reload);
        let mut service = Service::new(&running);
        let mut portals = JoinSet::new();
        if let Some(page) = self.portal_probe {
            let options = &self.server.towards.options;
            let ways = (options.paths.clone(), options.nameservers.clone());
            portals.spawn(portal::watch(page, running.clone(), ways));
        }
        let (dial, mut reaching) = tokio::select! {
            // Another host of the network must not be able to end the rules.
            opened = self.server.open(running, may_be_the_network) => opened?,
            _ = &mut stopped => return Ok(()),
        };
        say("from now on, the connections and the DNS of this host go through the server or nowhere");
        service.is_ready().await;
        let mut flows = JoinSet::new();
        let ended = tokio::select! {
            failed = carry_all(doors, &dial, &mut flows) => Err(failed.into()),
            error = &mut reaching => Err(error),
            _ = &mut stopped => Ok(()),
        };
        service.stops(2 * FAREWELL).await;
        let _ = timeout(FAREWELL, async { while flows.join_next().await.is_some() {} }).await;
        // Programs see the end of their connections while these are still redirected: nothing of them leaves in clear.
        flows.shutdown().await;
        drop(table);
        let _ = timeout(FAREWELL, dial.drained()).await;
        ended
    }
}

/// The rules that a crash has left in this network namespace, and the fix, as far as this user may see.
pub(crate) fn fault() -> Option<(String, String)> {
    let has_crashed = |owner: &Owner| matches!(State::of(*owner), State::Crashed);
    let owner = Owner::ALL.into_iter().filter(|_| may_change_the_network()).find(has_crashed)?;
    let (name, whose) = match owner {
        Owner::Up => (owner.name(), "this host"),
        Owner::Gateway => (owner.name(), "the devices behind this host"),
    };
    let why = format!("{name} has crashed: its rules let nothing of {whose} leave");
    Some((why, format!("start {name} again, or plait cleanup")))
}

/// Carries the connections and the DNS of programs until a listener fails.
async fn carry_all(doors: Doors, dial: &Arc<LateDial>, flows: &mut JoinSet<()>) -> io::Error {
    let Doors { ports: _, tcp4, dns, dns_tcp, v6, gate } = doors;
    let (tcp6, dns6) = v6.unzip();
    let names = Arc::<Names>::default();
    let mut queries =
        pin!(dns::serve_queries((dns, dns6), dns_tcp, dial.clone(), (names.clone(), Arc::default())));
    let mut waiting = Waiting::new(gate, dial.clone(), (Arc::default(), names.clone())).quietly();
    let mut shortage = Shortage::default();
    loop {
        let has_room = flows.len() + waiting.len() < MAX_CONNECTIONS;
        let accepted = tokio::select! {
            failed = &mut queries => return failed.err().unwrap_or(io::ErrorKind::Other.into()),
            Some(_) = flows.join_next() => continue,
            stepped = waiting.step(has_room) => match stepped {
                Ok(()) => continue,
                Err(error) => return error,
            },
            accepted = tcp4.accept(), if has_room => accepted,
            accepted = accept(tcp6.as_ref()), if has_room => accepted,
        };
        match accepted {
            Ok((program, from)) => {
                // A program that connects to the listener itself wants to go nowhere.
                let Ok(to) = original_destination(&program) else { continue };
                if to.ip().is_loopback() {
                    continue;
                }
                let reached = waiting.take(from, to);
                flows.spawn(carry(program, (names.destination(to), to, reached), dial.clone()));
            }
            Err(error) => shortage.wait(&error).await,
        }
    }
}

/// One connection of a program, to its end.
async fn carry(
    mut program: TcpStream,
    (destination, to, reached): (Destination, SocketAddr, Option<Reached>),
    dial: Arc<LateDial>,
) {
    socket::prepare(&program);
    let result = match reached {
        Some(Reached::Server(opened)) => client::join(&*dial, &mut program, *opened).await,
        // Nothing is reached directly by this process.
        Some(Reached::Directly(_)) => return,
        None => client::forward(&*dial, &mut program, destination).await,
    };
    match result {
        Ok((sent, received)) => tracing::debug!(%to, sent, received, "a connection has ended"),
        Err(ForwardError::Program(error)) => tracing::debug!(%to, %error, "a program has ended a connection"),
        Err(ForwardError::Reset(error)) => tracing::debug!(%to, %error, "a connection was reset"),
        Err(error @ (ForwardError::Silent { .. } | ForwardError::Server(_))) => {
            tracing::info!("a connection of a program was reset: {error}");
            tracing::debug!(%to, "it was to go there");
        }
    }
}
