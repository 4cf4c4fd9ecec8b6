//! The stack on this machine: paths, connections, and the threads behind them.

#[cfg(target_os = "linux")]
mod handing_over;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use arrayvec::ArrayVec;
use plait_carrier::MalformedCounts;
use plait_endpoint::{ConnectError, Counters, Endpoint, EndpointConfig, ListenError};
use plait_mptcp::Config;

use crate::capture::{Capture, Interface, Outside};
use crate::carriers::{Carriers, KEEP_ALIVE, MAX_CARRIERS, OpenCarriers, Opened, Setup};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::control::PathControl;
use crate::driver::Driver;
use crate::error::Error;
use crate::failure::gone;
use crate::listener::Listener;
use crate::log::warn;
use crate::network_monitor::NetworkMonitor;
use crate::networks::Networks;
use crate::os_random::OsRandom;
use crate::path_rule::PathRule;
use crate::pulse::Pulse;
use crate::ranges::{MAX_PATHS, Ranges};
use crate::selection::Selection;
use crate::shared::{Awaited, Phase, Shared};
use crate::sys::BINDS_TO_DEVICES;
use crate::wake::Wake;
use crate::workers::Workers;

/// A running stack. Dropping it resets the open connections and restores the network, which takes some tens of milliseconds.
/// [`Host::drained`] waits for an orderly end first.
pub struct Host {
    shared: Arc<Shared>,
    crypto_threads: usize,
    /// Payload of the longest super-segment that a carrier sends by one call, in bytes.
    longest_super_segment: u16,
    // Dropped in this order: the driver sends the last resets before the network is taken down.
    _driver: DriverThread,
    network_monitor: NetworkMonitor,
}

/// The settings of a [`Host`], with defaults for everything but the paths.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The devices of the paths, as they come and go. Earlier paths are preferred for the first subflow.
    pub paths: Vec<PathRule>,
    /// The carriers of the segments.
    pub carriers: Carriers,
    /// The limits on what unknown peers can make the host keep.
    pub limits: EndpointConfig,
    /// The ranges of the stack's private addresses.
    pub ranges: Ranges,
    /// The file that all packets are written to, in pcapng, with their addresses and ports on the network; datagrams of UDP are written as
    /// the TCP segments in them.
    pub capture: Option<PathBuf>,
    /// The number of threads that seal and open the blocks of sealed connections; with 0, the driver does it.
    pub crypto_threads: usize,
    /// The time for which a subflow of ours over UDP may be silent before it sends an empty datagram, so that NATs keep its mapping.
    pub keep_alive: Duration,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            carriers: Carriers::default(),
            limits: EndpointConfig::default(),
            ranges: Ranges::default(),
            capture: None,
            crypto_threads: 0,
            keep_alive: KEEP_ALIVE,
        }
    }
}

/// Blocks of one connection that may be queued to the threads, to be sealed and as many to be opened: enough to keep the threads busy while
/// the driver does something else, and 1 MiB of the longest blocks each way.
const JOBS_PER_CONNECTION: u16 = 16;

/// Sealing this many bytes takes a microsecond or two; waking another thread takes ten.
const SHORTEST_JOB: usize = 4096;

struct DriverThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Configures the network, in the network namespace of the calling thread, and starts the stack. Blocks for some tens of milliseconds,
    /// and for 0.3 seconds more if a gateway does not tell its link-layer address.
    ///
    /// # Errors
    /// A privilege or a program is missing, or the paths are invalid. Then no part of the network configuration remains.
    pub fn start(settings: HostSettings) -> Result<Self, Error> {
        let carriers = settings.carriers;
        Self::start_over(settings, |setup| carriers.open(setup))
    }

    /// Starts the stack over the carriers that `open` returns.
    pub(crate) fn start_over(
        settings: HostSettings,
        open: impl FnOnce(&Setup<'_>) -> Result<OpenCarriers, Error>,
    ) -> Result<Self, Error> {
        let HostSettings { paths, carriers: allowed, limits, ranges, capture, crypto_threads, keep_alive } =
            settings;
        if !(1..=MAX_PATHS).contains(&paths.len()) {
            return Err(Error::PathCount { count: paths.len(), max: MAX_PATHS });
        }
        let selection = Selection::new(paths.clone())?;
        if !BINDS_TO_DEVICES && paths.len() > 1 {
            warn!("the routes of this system decide by which device the packets of a path leave");
        }
        let wake = Arc::new(Wake::new()?);
        let open = open(&Setup { rules: &paths, ranges: &ranges, keep_alive, wake: &wake })?;
        let of_paths = open.of_paths();
        let OpenCarriers { opened, tcp_missing } = open;
        let longest = opened.iter().map(|opened| opened.carrier.longest_super_segment()).max();
        let kernel = opened.iter().flat_map(|opened| opened.paths.kernel_addresses()).collect();
        let (carriers, networks): (Vec<_>, ArrayVec<_, MAX_CARRIERS>) =
            opened.into_iter().map(|Opened { carrier, paths }| (carrier, paths)).unzip();
        let random =
            || OsRandom::new().map(Box::new).map_err(|source| Error::system("get random bytes", source));
        let (wire, secret) = (random()?, random()?);
        let clock = Clock::start();
        let mut endpoint = Endpoint::with_random(limits, wire, secret);
        endpoint.set_wall_clock(Box::new(clock.clone()));
        let shared = Shared::new(clock, wake, of_paths.clone(), endpoint);
        shared.lock().tcp_missing = tcp_missing;
        let networks = Networks::new(selection, allowed, (networks, of_paths));
        let network_monitor = NetworkMonitor::start(networks, shared.clone())?;
        let outside = || Outside::of_this_host(shared.clone(), kernel);
        let capture =
            capture.map(|file| Capture::create(&file, interfaces(&shared), outside())).transpose()?;
        let workers = (crypto_threads > 0).then(|| Workers::start(crypto_threads, &shared)).transpose()?;
        let driver = Driver::new(carriers, shared.clone(), capture, workers);
        let driver = DriverThread::start(driver, shared.clone())?;
        let longest_super_segment = longest.unwrap_or(u16::MAX);
        Ok(Self { shared, crypto_threads, longest_super_segment, _driver: driver, network_monitor })
    }

    /// Opens a connection to a host with these addresses, best first. It can be used after [`Connection::opened`].
    ///
    /// # Errors
    /// No path can reach any of them.
    pub fn connect(&self, config: Config, remotes: &[SocketAddr]) -> io::Result<Connection> {
        let config = self.suited(config);
        let opened = self.shared.change(|state, now| {
            if state.phase != Phase::Running {
                return Err(gone());
            }
            let id = state.endpoint.connect(now, config, remotes).map_err(error_of)?;
            state.add_connection(id);
            Ok(id)
        });
        Ok(Connection::new(self.shared.clone(), opened?))
    }

    /// Accepts connections to `port` of the paths' devices from now on. Dropping the future gives the port back.
    ///
    /// # Errors
    /// The port is used by another program on this machine, or the network cannot be changed.
    pub async fn listen(&self, config: Config, port: u16) -> Result<Listener, Error> {
        let open_port = self.network_monitor.open_port(port).await?;
        let id = self.shared.lock().endpoint.listen(port, self.suited(config));
        let in_use =
            |ListenError::InUse| Error::PortInUse { port, holder: "this host listens on it already" };
        Ok(Listener::new(self.shared.clone(), id.map_err(in_use)?, port, open_port))
    }

    /// The host decides whether there are jobs, because it has the threads. The carrier decides how long a super-segment may be.
    fn suited(&self, config: Config) -> Config {
        let crypto_jobs = if self.crypto_threads == 0 { 0 } else { JOBS_PER_CONNECTION };
        let mut config = Config { crypto_jobs, shortest_job: SHORTEST_JOB, ..config };
        config.tcp.max_super_segment = config.tcp.max_super_segment.min(self.longest_super_segment);
        config
    }

    /// A handle for changing how the paths are used.
    #[must_use]
    pub fn path_control(&self) -> PathControl {
        PathControl::new(self.shared.clone(), self.network_monitor.requests())
    }

    /// A handle that counts the turns of the event loop.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.shared.clone())
    }

    /// Totals of the stack.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.lock().endpoint.counters()
    }

    /// Packets that were dropped because they were malformed or not TCP, by reason.
    #[must_use]
    pub fn malformed(&self) -> MalformedCounts {
        self.shared.lock().malformed.clone()
    }

    /// Waits until no connection is left: dropped connections have delivered what was written. Dropping the future
    /// changes nothing.
    pub async fn drained(&self) {
        let mut wait = self.shared.wait_for(Awaited::Drained);
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if state.phase == Phase::Stopped || state.endpoint.counters().connections == 0 {
                return Poll::Ready(());
            }
            wait.pending(&mut state, context)
        })
        .await;
    }
}

impl DriverThread {
    fn start(driver: Driver, shared: Arc<Shared>) -> Result<Self, Error> {
        let thread = std::thread::Builder::new()
            .name("plait-driver".into())
            .spawn(move || driver.run())
            .map_err(|source| Error::system("start a thread", source))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.shared.change(|state, _| state.begin_to_stop());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

/// The present paths, for a capture.
fn interfaces(shared: &Shared) -> Vec<Interface> {
    let state = shared.lock();
    state.endpoint.paths().iter().map(|path| Interface::of(path, state.carriers.of(path.id))).collect()
}

fn error_of(error: ConnectError) -> io::Error {
    let (kind, words) = match error {
        ConnectError::NoPath => {
            (io::ErrorKind::NetworkUnreachable, "no path that is up has an address of that family")
        }
        ConnectError::TooMany => (io::ErrorKind::QuotaExceeded, "too many connections"),
        ConnectError::NoAddress => (io::ErrorKind::InvalidInput, "no address to connect to"),
    };
    io::Error::new(kind, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_set_up_for_paths_that_make_no_sense() {
        let start = |names: &[&str]| {
            let paths = names.iter().map(|name| PathRule::new(name).expect("a name")).collect();
            Host::start(HostSettings { paths, carriers: Carriers::Tcp, ..HostSettings::default() })
        };
        assert!(matches!(start(&[]), Err(Error::PathCount { count: 0, .. })));
        assert!(matches!(start(&["eth0", "eth0"]), Err(Error::DuplicatePath { name }) if name == "eth0"));
    }
}
