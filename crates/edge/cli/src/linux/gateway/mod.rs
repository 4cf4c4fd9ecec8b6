//! `plait gateway`: the connections and the DNS of the devices of a LAN behind this host through plait.
//!
//! [`rules`] says what the kernel does with the packets of the devices, and the table of `plait up` keeps it that way. The listeners of [`doors`]
//! take what is redirected: one door for all paths, and one for each other set of paths that a device has. A door besides the first has a stack of
//! its own, because a connection uses all paths of its stack. The rules are there before anything else is, and are removed last.

mod device_rule;
mod doors;
mod neighbours;
mod rules;

use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plait::Path;
use plait_proxy::client::{self, ForwardError};
use plait_proxy::dns::{Admission, Place, serve_queries_of_devices};
use plait_proxy::names::Names;
use plait_proxy::relay::Abort;
use plait_proxy::run::original_destination;
use plait_proxy::socket;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinSet, spawn};
use tokio::time::timeout;

use self::device_rule::{Decided, DeviceRule, decide};
use self::doors::Door;
use self::neighbours::Neighbours;
use self::rules::GatewayRules;
use crate::dial::Towards;
use crate::exit;
use crate::late_dial::{self, LateDial, Reaching, TowardsLater, may_be_the_network};
use crate::linux::limits;
use crate::linux::metered::Metered;
use crate::linux::prerequisite::{self, Check};
use crate::linux::service::Service;
use crate::linux::up::exempt::device;
use crate::linux::up::process::Owner;
use crate::linux::up::rules::Networks;
use crate::linux::up::table::Table;
use crate::listening::accept;
use crate::output::say;
use crate::reload::Reload;
use crate::running::Running;
use crate::running::devices::{Devices, Most};
use crate::shortage::Shortage;

/// Most connections of all devices at a time; more wait in the kernel.
const MAX_CONNECTIONS: usize = 8192;
/// How long connections may go on after the signal to stop.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Gateway {
    /// Capture what devices send to this device of the host to pass on, and their questions of DNS (repeatable). The device may come and go.
    #[arg(long = "lan-device", value_name = "DEV", value_parser = device, required = true)]
    lan: Vec<String>,
    /// Treat a device in this way (repeatable): the first that applies counts [default: tunnel]. WHICH is a link-layer address, an address or
    /// a network. HOW is tunnel; direct, which lets its packets pass without protection; never, which refuses them; or
    /// paths=NAME+NAME: through the server, over these of the paths of --path alone.
    #[arg(id = "device_rules", long = "device", value_name = "WHICH=HOW")]
    rules: Vec<DeviceRule>,
    /// Most connections of one device at a time. More are reset. All devices together have at most 8192.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    max_device_connections: u16,
    /// Most questions of DNS of one device that wait for an answer. More are answered by a failure. All devices together have at most 8192.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    max_device_questions: u16,
    #[command(flatten)]
    server: TowardsLater,
}

/// What the doors share.
struct Shared {
    devices: Arc<Devices>,
    neighbours: Neighbours,
    /// A place for each connection.
    places: Arc<Semaphore>,
    /// The connections of all doors.
    flows: Mutex<JoinSet<()>>,
}

impl Gateway {
    pub(crate) fn towards(&self) -> &Towards {
        &self.server.towards
    }

    pub(crate) async fn run(self, reload: Reload) -> anyhow::Result<()> {
        let checks = [self.towards().options.checks(), &[Check::Privileges, Check::Nft, Check::Ip]].concat();
        self.run_until_stopped(reload).await.map_err(|error| prerequisite::explain(error, &checks))
    }

    async fn run_until_stopped(self, reload: Reload) -> anyhow::Result<()> {
        // Listen from the start, so that a signal leaves no rules behind.
        let mut stopped = spawn(exit::stopped());
        if let Some(missing) = prerequisite::first(&[Check::Privileges, Check::Nft, Check::Ip]) {
            return Err(missing.into());
        }
        let Decided { fates, sets } = decide(&self.rules, &self.towards().options.paths)?;
        self.require_apart()?;
        Owner::Gateway.require_alone()?;
        self.tell_of_direct();
        let doors = doors::open(1 + sets.len())?;
        limits::raise_open_files();
        let (lan, networks) = (self.lan.clone(), Networks::read(&self.lan));
        let ports = doors.iter().map(|door| door.ports).collect();
        let table = Table::put(GatewayRules { lan, fates, doors: ports, networks })?;
        let what = format!("the devices behind {}", self.lan.join(", "));
        let running = Running::new("gateway", what, reload);
        let mut service = Service::new(&running);
        let shared = self.shared(&running);
        let towards = self.server.towards.clone();
        let (first, reaching) = tokio::select! {
            opened = self.server.open(running.clone(), may_be_the_network) => opened?,
            _ = &mut stopped => return Ok(()),
        };
        let (mut dials, mut reaching) = (vec![first.clone()], vec![reaching]);
        for set in sets {
            let (dial, reached) =
                late_dial::beside(first.clone(), towards.over(set), &running, may_be_the_network);
            dials.push(dial);
            reaching.push(reached);
        }
        say(
            "from now on, the connections and the DNS of the devices behind this host go through the server or nowhere",
        );
        service.is_ready().await;
        let mut carrying = JoinSet::new();
        for (door, dial) in doors.into_iter().zip(&dials) {
            carrying.spawn(carry_all(door, dial.clone(), shared.clone()));
        }
        let ended = tokio::select! {
            Some(failed) = carrying.join_next() => match failed {
                Ok(error) => Err(error.into()),
                Err(error) => Err(error.into()),
            },
            error = any_of(&mut reaching) => Err(error),
            () = shared.neighbours.follow() => Ok(()),
            _ = &mut stopped => Ok(()),
        };
        service.stops(2 * FAREWELL).await;
        // Connections that end by themselves give their places back. Each door waits with one.
        let all = u32::try_from(MAX_CONNECTIONS - dials.len()).unwrap_or(u32::MAX);
        let _ = timeout(FAREWELL, shared.places.acquire_many(all)).await;
        // Devices see the end of their connections while these are still redirected: nothing of them leaves in clear.
        carrying.shutdown().await;
        shared.flows.lock().await.shutdown().await;
        drop(table);
        let drained = async {
            for dial in &dials {
                dial.drained().await;
            }
        };
        let _ = timeout(FAREWELL, drained).await;
        // Each stack restores the network when its last holder is dropped, which takes its time.
        for dial in &dials {
            dial.end().await;
        }
        ended
    }

    fn shared(&self, running: &Running) -> Arc<Shared> {
        let devices = running.devices().clone();
        let most = |option: u16| usize::from(option);
        let (connections, questions) = (most(self.max_device_connections), most(self.max_device_questions));
        devices.limit(Most { connections, questions });
        Arc::new(Shared {
            neighbours: Neighbours::new(self.lan.clone(), devices.clone()),
            devices,
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            flows: Mutex::default(),
        })
    }

    /// Packets of plait that arrive on a device of the LAN would be those of a device.
    fn require_apart(&self) -> anyhow::Result<()> {
        let usual = [Path::default_routes()];
        let paths = &self.towards().options.paths[..];
        let paths = Path::present(if paths.is_empty() { &usual } else { paths })?;
        if let Some(both) = paths.iter().map(Path::devices).find(|path| self.lan.contains(path)) {
            bail!("{both} is a path and a device of the LAN\n  fix: name the other devices with --path");
        }
        Ok(())
    }

    fn tell_of_direct(&self) {
        if !self.rules.iter().any(DeviceRule::is_direct) {
            return;
        }
        say(
            "warning: packets of devices with =direct leave without protection, as without plait; routes and masquerading for them are those of this host",
        );
        let forwards = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default();
        if forwards.trim() == "0" {
            say(
                "warning: this host does not forward packets, so devices with =direct reach nothing\n  fix: sysctl net.ipv4.ip_forward=1",
            );
        }
    }
}

/// Ready when the first of these is.
async fn any_of(reaching: &mut [Reaching]) -> anyhow::Error {
    poll_fn(|context| {
        for one in reaching.iter_mut() {
            if let Poll::Ready(error) = one.as_mut().poll(context) {
                return Poll::Ready(error);
            }
        }
        Poll::Pending
    })
    .await
}

/// Carries the connections and the DNS of devices until a listener fails.
async fn carry_all(door: Door, dial: Arc<LateDial>, shared: Arc<Shared>) -> io::Error {
    let Door { ports: _, tcp, dns, dns_tcp, v6 } = door;
    let (tcp6, dns6) = v6.unzip();
    let names = Arc::<Names>::default();
    let devices = shared.devices.clone();
    let admission: Admission = Arc::new(move |from| devices.asks(from).map(|visit| Box::new(visit) as Place));
    let queries = serve_queries_of_devices((dns, dns6), dns_tcp, dial.clone(), (names.clone(), admission));
    let mut queries = pin!(queries);
    let mut shortage = Shortage::default();
    loop {
        let next = async {
            // It is never closed.
            let place = shared.places.clone().acquire_owned().await.map_err(io::Error::other)?;
            let accepted = tokio::select! {
                accepted = tcp.accept() => accepted,
                accepted = accept(tcp6.as_ref()) => accepted,
            };
            accepted.map(|(program, from)| (program, from, place))
        };
        let accepted = tokio::select! {
            failed = &mut queries => return failed.err().unwrap_or(io::ErrorKind::Other.into()),
            accepted = next => accepted,
        };
        match accepted {
            Ok((program, from, place)) => {
                let mut flows = shared.flows.lock().await;
                // Those that have ended.
                while flows.try_join_next().is_some() {}
                let (dial, shared, names) = (dial.clone(), shared.clone(), names.clone());
                flows.spawn(async move {
                    let _place = place;
                    if let Err(error) = carry((program, from), &dial, &shared, &names).await {
                        tracing::debug!(%from, "a connection of a device was not carried: {error:#}");
                    }
                });
            }
            Err(error) => shortage.wait(&error).await,
        }
    }
}

/// One connection of a device, to its end.
async fn carry(
    (mut program, from): (TcpStream, SocketAddr),
    dial: &LateDial,
    shared: &Shared,
    names: &Names,
) -> anyhow::Result<()> {
    let to = original_destination(&program).context("its destination")?;
    // A connection to the listener itself, while the rules were away.
    if to == program.local_addr()? {
        program.abort();
        bail!("it was not redirected");
    }
    shared.neighbours.identify(from.ip().to_canonical()).await;
    let Some(visit) = shared.devices.connects(from.ip()) else {
        program.abort();
        bail!("its device has as many as it may have");
    };
    socket::prepare(&program);
    let mut program = Metered::new(program, visit);
    match client::forward(dial, &mut program, names.destination(to)).await {
        Ok((sent, received)) => tracing::debug!(%to, sent, received, "a connection has ended"),
        Err(ForwardError::Program(error)) => tracing::debug!(%to, %error, "a device has ended a connection"),
        Err(ForwardError::Reset(error)) => tracing::debug!(%to, %error, "a connection was reset"),
        Err(error @ (ForwardError::Silent { .. } | ForwardError::Server(_))) => {
            tracing::info!("a connection of a device was reset: {error}");
            tracing::debug!(%to, "it was to go there");
        }
    }
    Ok(())
}
