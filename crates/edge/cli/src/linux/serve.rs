//! `plait serve`: accepts clients over several paths and connects them to their destinations.

mod accepting;
mod bound;
mod flows;
mod one;
mod remote;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use plait::{Fingerprint, Host, Stream};
use plait_proxy::convert::Instance;
use plait_proxy::nameservers::Nameservers;
use plait_proxy::rules::Rule;
use plait_proxy::serve::Service;
use plait_proxy::services::{NamedService, Services, twin};
use plait_proxy::silence::SilenceLimit;
use plait_proxy::target::Target;
use plait_proxy::url::ServerUrl;
use tokio::net::lookup_host;
use tokio::task::{JoinHandle, JoinSet};

use self::accepting::Accepting;
use self::flows::{FlowCounts, FlowLimit};
use self::remote::Remotes;
use crate::certificate::OwnCertificate;
use crate::half_closed::HalfClosed;
use crate::linux::access::AccessLog;
use crate::linux::announcement::Announcement;
use crate::linux::arguments::Command;
use crate::linux::control;
use crate::linux::door::{self, Door};
use crate::linux::guests::GuestOptions;
use crate::linux::limits::{self, StrangerLimits};
use crate::linux::place::Place;
use crate::linux::port;
use crate::linux::prerequisite;
use crate::linux::renewal::Renewal;
use crate::linux::repeated::Repeated;
use crate::linux::service as supervision;
use crate::linux::upgrade::Succession;
use crate::linux::waiting_clients::{WaitingClients, WaitingLimit};
use crate::listening::Passed;
use crate::options::Options;
use crate::protection::Clients;
use crate::reload::Reload;
use crate::running::Running;
use crate::status::Reporter;
use crate::{exit, output, protection, session};

/// How long the silence of a half-closed connection may last after the signal to stop.
const LAST_SILENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION, group(clap::ArgGroup::new("offer").required(true).multiple(true).args(["forward", "proxy", "service"])))]
pub(crate) struct Serve {
    /// Accept clients at this port. With an address of this machine, a client's first connection must reach that address (all paths may
    /// join).
    #[arg(long, value_name = "[ADDR:]PORT", default_value_t)]
    listen: Place,
    /// Connect every client to this service, whatever destination it asks for. In the form unix:/PATH it is a socket in the file system of this host.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["proxy", "service"])]
    forward: Option<Target>,
    /// Offer this service by its name (repeatable). A client asks for it with forward -L PORT:NAME; --allow is about other destinations. A
    /// client with allow= needs service:NAME there.
    #[arg(long, value_name = "NAME=HOST:PORT")]
    service: Vec<NamedService>,
    /// Introduce clients to this service by the PROXY protocol, version 2 (repeatable): a name of --service, or the value of --forward. The
    /// service must expect it. It learns the address of the client, and its name in authorized_clients (type 0xE0) and key (0xE1).
    #[arg(long, value_name = "SERVICE")]
    proxy_protocol: Vec<String>,
    /// Connect clients to the destinations that they ask for, as far as --allow permits.
    #[arg(long, requires = "allow")]
    proxy: bool,
    /// A destination that clients may connect to: HOST:PORT. HOST is an address, a network (10.0.0.0/8), a name, *.NAME or *; PORT is a
    /// number, a range or *. Or unix:/PATH: a socket in the file system of this host (repeatable). udp:HOST:PORT allows UDP, which no other rule
    /// does, except *:*. remote=[ADDR:]PORT lets clients listen on ports of this host (forward -R), at loopback addresses without ADDR.
    #[arg(long, value_name = "RULE", requires = "proxy", conflicts_with = "forward")]
    allow: Vec<Rule>,
    /// Accept every client. Without it only the clients in authorized_clients are accepted (plait key authorize). That file is read again
    /// when it has changed; without the file no client is accepted.
    #[arg(long)]
    anyone: bool,
    #[command(flatten)]
    guests: GuestOptions,
    /// The name or address of this host for the printed URL (repeatable) [default: the first address of each family on its paths].
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<ServerUrl>,
    /// Nameserver for the DNS queries of clients' programs [default: the nameservers in /etc/resolv.conf; a nameserver that does not accept
    /// a connection within 1.5 seconds is passed over, and the file is read at each use].
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = resolver, conflicts_with = "forward")]
    resolver: Option<SocketAddr>,
    /// Most client connections at a time, as far as the limit of open files allows; more are reset.
    #[arg(long, value_name = "N", default_value = "8192")]
    max_connections: NonZeroUsize,
    #[command(flatten)]
    waiting: WaitingLimit,
    #[command(flatten)]
    flows: FlowLimit,
    /// After SIGTERM, give connections so many seconds to end.
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    drain: u32,
    /// After plait upgrade, the replaced process gives its connections so many seconds to end.
    #[arg(long, value_name = "SECONDS", default_value = "3600")]
    upgrade_drain: u32,
    /// Append a line of JSON for each connection to FILE, - for standard error: client, destination, bytes, paths and the reason of the end
    /// (docs/service.md). SIGUSR1 opens the file again.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    #[command(flatten)]
    half_closed: HalfClosed,
    #[command(flatten)]
    certificate: OwnCertificate,
    #[command(flatten)]
    limits: StrangerLimits,
    #[command(flatten)]
    options: Options,
}

/// The state that all connections share.
struct Shared {
    host: Host,
    /// What new connections are served with.
    service: Mutex<Arc<Service>>,
    at: Option<IpAddr>,
    door: Arc<Door>,
    waiting: Arc<WaitingClients>,
    remotes: Arc<Remotes>,
    flows: Arc<FlowCounts>,
    reporter: Mutex<Reporter>,
    access: AccessLog,
    strangers: Repeated,
    running: Running,
    instance: Instance,
    silence: SilenceLimit,
    /// How long connections may go on after the signal to stop.
    farewell: Mutex<Duration>,
    /// The same after an upgrade.
    upgrade_drain: Mutex<Duration>,
}

impl Serve {
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// What makes these options contradict each other.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let twin = || twin(&self.service).map(|name| format!("--service: two services have the name {name}"));
        let is_shared = self.anyone && self.allow.iter().any(Rule::is_remote);
        let shared = || {
            is_shared.then(|| {
                "--anyone and a rule remote=… cannot be used together: a port belongs to one client"
                    .to_owned()
            })
        };
        let stray = || {
            self.stray().map(|name| {
                format!("--proxy-protocol: {name} is no name of --service, and not the value of --forward")
            })
        };
        self.options
            .contradiction()
            .or_else(|| self.guests.contradiction())
            .or_else(twin)
            .or_else(stray)
            .or_else(shared)
    }

    /// A service that should learn its clients and that is not there.
    fn stray(&self) -> Option<&str> {
        let forward = self.forward.as_ref().map(Target::to_string);
        let is_there = |name: &String| {
            forward.as_ref() == Some(name) || self.service.iter().any(|service| service.name == *name)
        };
        self.proxy_protocol.iter().find(|name| !is_there(name)).map(String::as_str)
    }

    /// The services by name.
    fn services(&self) -> Services {
        let all = self.service.iter().cloned();
        Services::new(all.map(|NamedService { name, target }| {
            let target = target.introduced(self.proxy_protocol.contains(&name));
            NamedService { name, target }
        }))
    }

    /// Names what is missing for the carrier or the port, before a file is written in vain.
    pub(crate) fn may_start(&self) -> anyhow::Result<()> {
        prerequisite::of_carrier(&self.options)?;
        port::of_listener(&self.options, self.listen.port)
    }

    pub(crate) async fn run(self, reload: Reload) -> anyhow::Result<()> {
        // Listen from the start, so that a signal leaves no half-built network behind.
        let stopped = tokio::spawn(exit::stopped());
        let checks = self.options.checks();
        self.run_until(stopped, reload).await.map_err(|error| prerequisite::explain(error, checks))
    }

    async fn run_until(self, stopped: JoinHandle<exit::Interrupted>, reload: Reload) -> anyhow::Result<()> {
        self.may_start()?;
        // A server has no socket of its own over TCP, and over UDP one for each path.
        Passed::take()?.finish()?;
        let mut succession = Succession::take()?;
        let store = protection::store(&self.options);
        let may_differ = (self.anyone, protection::requires_sealing(&self.options));
        let clients = door::clients(&store, may_differ, &self.guests.client)?;
        let by_key = clients.is_some();
        let running = Running::new("serve", self.what(), reload);
        let files = limits::raise_open_files();
        let most = self.most_connections(files);
        let door = Door::new(clients, most, Arc::clone(running.clients()));
        let judge = Arc::clone(&door);
        let judged = plait::Clients::judged(move |applicant| judge.judge(applicant));
        let policy = Clients::Judged { clients: judged, by_key };
        let renewal = self.certificate.begin()?;
        let shown = renewal.as_ref().map(Renewal::shown);
        let (accepted, pin) = protection::listener(&self.options, policy, shown)?;
        let accepted = accepted.datagrams();
        let reporter = Mutex::new(Reporter::open(&self.options)?);
        let access = AccessLog::open(self.access_log.as_deref())?;
        let limits = self.limits.limits(None);
        let host = session::host_for(&self.options, None)?.limits(limits).start()?;
        let _firewall = session::clear_the_way(&self.options, &host)?;
        if let Some(succession) = &succession {
            succession.take_ports(&host).await?;
        }
        let control = control::open(&self.options, &host, &running)?;
        let port = self.listen.port;
        let listening = host.listen(port, accepted).await;
        let listener = listening.with_context(|| format!("cannot listen on port {port}"))?;
        if let Some(succession) = &mut succession {
            succession.complete().await?;
        }
        running.is_up();
        flows::announce(&self.allow);
        let announcement = self.announcement(pin);
        let (service, strangers) = (Mutex::new(Arc::new(self.offered().await)), Repeated::default());
        let at = self.listen.address;
        let instance = instance()?;
        let (silence, farewell) = (self.half_closed.limit(), Mutex::new(self.farewell()));
        let upgrade_drain = Mutex::new(self.upgrade_drain());
        let waiting = WaitingClients::new(self.waiting.most(), by_key, running.clone());
        let flows = FlowCounts::new(self.flows.most(), limits::connections_within(files), by_key);
        let shared = Shared {
            host,
            service,
            at,
            door,
            waiting,
            remotes: Arc::default(),
            flows,
            reporter,
            access,
            strangers,
            running,
            instance,
            silence,
            farewell,
            upgrade_drain,
        };
        let shared = Arc::new(shared);
        // Both end with this function.
        let (mut kept, mut supervised) = (JoinSet::new(), supervision::Service::new(&shared.running));
        kept.spawn(Arc::clone(&shared.door).keep());
        let accounting = self.guests.accounting(shared.running.clients());
        accounting.map(|accounting| kept.spawn(accounting.keep()));
        renewal.map(|renewal| kept.spawn(renewal.keep(shared.running.clone(), supervised.reloads())));
        let (changed, reload) = (Arc::clone(&shared), shared.running.reload().clone());
        let apply = async move |option: &str, new: &Command| changed.apply(option, new).await;
        kept.spawn(reload.keep((shared.host.path_control(), "serve"), None, apply));
        supervised.is_ready().await;
        let accepting = Accepting { listener, control, flows: JoinSet::new(), succession, successor: None };
        accepting.until(stopped, &shared, (&announcement, &supervised)).await
    }

    /// Number of possible connections, under a limit of open files.
    fn most_connections(&self, files: u64) -> usize {
        let (wanted, fit) = (self.max_connections.get(), limits::connections_within(files));
        if fit < wanted {
            output::say(&format!(
                "warning: the limit of open files, {files}, is too low for {wanted} connections: {fit} at a time, more are reset\n  \
                 fix: a higher one (LimitNOFILE= of systemd, ulimit -Hn), or --max-connections {fit}"
            ));
        }
        wanted.min(fit)
    }

    fn announcement(&self, pin: Option<Fingerprint>) -> Announcement {
        Announcement {
            names: self.advertise.clone(),
            at: self.listen.address,
            port: self.listen.port,
            pin,
            is_local: Announcement::is_local(&self.options.paths),
        }
    }

    /// The description of the service, for people.
    fn what(&self) -> String {
        let listen = self.listen;
        match &self.forward {
            Some(to) => format!("port {listen}, forwards to {to}"),
            None => {
                let services = self.services();
                let names: Vec<_> = services.names().collect();
                let proxy = Some("proxy".to_owned()).filter(|_| self.proxy);
                let services = Some(names.join(", ")).filter(|names| !names.is_empty());
                let services = services.map(|names| format!("services {names}"));
                let offered = proxy.into_iter().chain(services).collect::<Vec<_>>().join(", ");
                format!("port {listen}, {offered}")
            }
        }
    }

    fn farewell(&self) -> Duration {
        Duration::from_secs(self.drain.into())
    }

    fn upgrade_drain(&self) -> Duration {
        Duration::from_secs(self.upgrade_drain.into())
    }

    async fn offered(&self) -> Service {
        for to in self.forward.iter().chain(self.service.iter().map(|service| &service.target)) {
            // The service may start later: a client that waits for it need not wait for the server.
            let found = match (to.address(), to.socket()) {
                (Some(address), _) => lookup_host(address).await.map(drop),
                (None, socket) => socket.map_or(Ok(()), |path| std::fs::metadata(path).map(drop)),
            };
            if let Err(error) = found {
                output::say(&format!("warning: cannot find {to}, and clients will be refused: {error}"));
            }
        }
        if let Some(to) = &self.forward {
            let is_introduced = self.proxy_protocol.contains(&to.to_string());
            return Service::Forward(to.clone().introduced(is_introduced));
        }
        let configured = || Nameservers::in_file("/etc/resolv.conf");
        let nameservers = self.resolver.map_or_else(configured, |given| Nameservers::given([given]));
        Service::Proxy { rules: self.allow.clone(), nameservers, services: self.services() }
    }
}

impl Shared {
    /// Puts the change of an option into effect; returns whether that can be done without a restart. Running connections keep what they
    /// were opened with, except the limit of silence and the rules of their client.
    async fn apply(&self, option: &str, new: &Command) -> bool {
        let Command::Serve(new) = new else { return false };
        match option {
            "forward" | "proxy" | "proxy-protocol" | "allow" | "resolver" | "service" => {
                let service = Arc::new(new.offered().await);
                *self.service.lock().unwrap_or_else(PoisonError::into_inner) = service;
                self.running.is_now(new.what());
                if option == "allow" {
                    flows::announce(&new.allow);
                }
            }
            "upgrade-drain" => {
                *self.upgrade_drain.lock().unwrap_or_else(PoisonError::into_inner) = new.upgrade_drain();
            }
            "drain" => *self.farewell.lock().unwrap_or_else(PoisonError::into_inner) = new.farewell(),
            "half-closed-timeout" => self.silence.set(new.half_closed.duration()),
            // With --anyone there is no list, and one that goes with it waits for the restart.
            "client" => return !new.anyone && self.door.configure(new.guests.client.clone()),
            "max-flows" => self.flows.set_most(new.flows.most()),
            "max-warm" => self.waiting.set_most(new.waiting.most()),
            "max-connections" => self.door.set_most(new.most_connections(limits::raise_open_files())),
            _ => return false,
        }
        true
    }

    /// What the next request is served with.
    fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resets a connection that may not be served. Any host can cause this, as often as it likes.
    fn refuse(&self, stream: &Stream, why: &'static str) {
        stream.abort();
        if let Some(more_like_it) = self.strangers.note(why) {
            tracing::debug!(from = %stream.peer_addr(), more_like_it, "{why}");
        }
    }
}

/// The instance of this run of the server, unlike any other.
fn instance() -> anyhow::Result<Instance> {
    let mut bytes = [0; 16];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    drawn.context("the operating system has no random numbers")?;
    Ok(Instance(bytes))
}

fn resolver(text: &str) -> Result<SocketAddr, &'static str> {
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
    address.or_else(|_| text.parse()).map_err(|_| "not an address, as in 192.0.2.53")
}

#[cfg(test)]
mod tests;
