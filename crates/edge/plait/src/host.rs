//! The stack on this machine.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::plait_host::{Config, HostSettings, Joins, Pulse, Ranges};
use plait_handshake::Fingerprint;
use tokio::time::{Instant, timeout_at};

use crate::Carriers;
use crate::connecting::{AbortOnDrop, ConnectOptions};
use crate::counters::{self, HostState, HostTotals};
use crate::dnssec::DnssecAnchors;
use crate::error::Error;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::names::Names;
use crate::networks::{Devices, SharedNetwork};
use crate::path::{Path, PathControl, PathState};
use crate::protection::{Ecn, Protection};
use crate::remote::Remote;
use crate::service::Service;
use crate::status::Monitor;
use crate::stream::Stream;
use crate::trust::Expected;
use crate::{CongestionControl, Scheduler};

/// A running stack. A clone is another handle of the same stack. Dropping the last handle resets the open connections and restores the
/// network, which blocks the calling thread for some tens of milliseconds. [`Host::close`] lets connections end in order first, and blocks
/// no task.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) inner: Arc<::plait_host::Host>,
    control: ::plait_host::PathControl,
    config: Config,
    nameservers: Vec<IpAddr>,
    anchors: Option<DnssecAnchors>,
}

/// The configuration of a [`Host`]: its paths, and how connections use them. Obtained from [`Host::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is started"]
pub struct HostBuilder {
    settings: HostSettings,
    config: Config,
    nameservers: Vec<IpAddr>,
    anchors: Option<DnssecAnchors>,
}

impl Host {
    /// Returns a builder of a host without paths.
    pub fn builder() -> HostBuilder {
        let (settings, config) = (HostSettings::default(), Config::default());
        HostBuilder { settings, config, nameservers: Vec::new(), anchors: None }
    }

    /// Opens a connection. A [`Trust`](crate::Trust) alone asks for a sealed connection; weaker protection needs a [`Protection`] of that
    /// name.
    ///
    /// Dropping the future ends the attempt: the connection is reset, and no byte of the application was sent.
    ///
    /// Some connections need several paths to contribute to the keys: those with [`Sealing::require_paths`](crate::Sealing::require_paths),
    /// and those with [`Trust::known_peers`](crate::Trust::known_peers) to a new server. Then the stream is returned after these paths have
    /// contributed:
    ///
    /// ```no_run
    /// use plait::{ErrorKind, Host, Sealing, Trust};
    ///
    /// # async fn open(host: Host, key: plait::Fingerprint) -> Result<(), plait::Error> {
    /// let sealing = Sealing::new(Trust::pinned(key)).require_paths(2);
    /// match host.connect("gw.example.com:7443", sealing).await {
    ///     // Both paths are in the keys: an eavesdropper on one path reads nothing of this stream.
    ///     Ok(stream) => assert!(stream.status().and_then(|status| Some(status.sealed()?.mixed_paths().min())) >= Some(2)),
    ///     // The error names the missing path and the reason: not answered, refused, stripped, altered. No byte was sent.
    ///     Err(error) if error.kind() == ErrorKind::PathsMissing => eprintln!("{error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The name has no address, no path leads to the server, nothing answers, the peer refuses, the peer cannot prove its identity, or the
    /// connection cannot be protected as asked for. If a path is missing, that takes at most 20 seconds.
    pub async fn connect(
        &self,
        remote: impl Into<Remote>,
        protection: impl Into<Protection>,
    ) -> Result<Stream, Error> {
        self.open(&ConnectOptions::new(), remote.into(), protection.into()).await
    }

    async fn open(
        &self,
        options: &ConnectOptions,
        remote: Remote,
        protection: Protection,
    ) -> Result<Stream, Error> {
        let begun = Instant::now();
        let until = options.limit().and_then(|limit| begun.checked_add(limit));
        let late = || Error::late(Vec::new());
        let config = options.over(&self.config);
        let (mut settings, mut expected) = protection.settings(&remote, &config)?;
        // The search for a proof may take half of the time: without one, the connection is opened all the same.
        if expected.as_ref().is_some_and(Expected::is_new) {
            let half = options.limit().and_then(|limit| begun.checked_add(limit / 2));
            if let Some(Some(keys)) = by(half, self.published_keys(&remote)).await {
                (settings, expected) = protection.published(keys).settings(&remote, &config)?;
            }
        }
        if let Some(expected) = &expected {
            expected.judge_paths(&self.devices())?;
        }
        let (addresses, basis) = match expected.as_ref().filter(|expected| expected.asks_each_path()) {
            Some(expected) => {
                let names = by(until, self.look_up(&remote)).await.ok_or_else(late)??;
                expected.judge_names(&names)?;
                (names.addresses().to_vec(), names.basis())
            }
            None => {
                let addresses = by(until, remote.resolve()).await.ok_or_else(late)??;
                (addresses, remote.basis())
            }
        };
        if addresses.is_empty() {
            return Err(remote.without_address());
        }
        let connection = self.inner.connect(settings, &addresses)?;
        let monitor = Monitor { connection, control: self.control.clone() };
        let given_up = AbortOnDrop::of(&monitor);
        match by(until, monitor.connection.opened()).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                let error = Error::from(error);
                let sealed = monitor.connection.status().and_then(|status| status.sealed);
                return Err(match expected {
                    Some(expected) => {
                        let waited = sealed.is_some_and(|sealed| sealed.waits_for_paths);
                        let error = match expected.require_paths {
                            0 | 1 => error,
                            _ => error.with_networks(&self.devices()),
                        };
                        expected.explain(error, waited)
                    }
                    None => error,
                });
            }
            None => {
                return Err(Error::late(monitor.status().map_or_else(Vec::new, |status| status.attempts())));
            }
        }
        if let Some(expected) = expected {
            let status = monitor.connection.status();
            // Before the application has the stream, and so before a byte of it is sent.
            expected.judge(status.as_ref().and_then(|status| status.sealed.as_ref()), basis)?;
        }
        given_up.disarm();
        Stream::new(monitor, None)
    }

    /// Opens a connection as [`Host::connect`] does, with settings of its own. Dropping the future ends the attempt.
    ///
    /// # Errors
    /// As [`Host::connect`]; [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) if there is no connection within the limit of the options.
    pub async fn connect_with(
        &self,
        remote: impl Into<Remote>,
        protection: impl Into<Protection>,
        options: &ConnectOptions,
    ) -> Result<Stream, Error> {
        self.open(options, remote.into(), protection.into()).await
    }

    /// Looks up a name over each path of this host that may carry something: at a nameserver of its device, over that device alone. An
    /// address is returned unchanged, and a name in the machine's hosts file is taken from there. Takes at most eight seconds. Dropping the
    /// future drops the answers.
    ///
    /// # Errors
    /// `remote` is not a name and a port ([`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput)). A path without an answer is no
    /// error: [`Names::doubt`] reports it.
    pub async fn look_up(&self, remote: &Remote) -> Result<Names, Error> {
        remote.look_up_over(&self.devices_that_are_up(), &self.nameservers).await
    }

    /// Looks up the keys that the DNS zone of a server publishes for it (TLSA, RFC 6698), over each path of this host. Only keys that DNSSEC
    /// proves are returned: then the server has one of them, whatever a path or a nameserver says. With an empty list no key is acceptable
    /// (its records have SHA-512 only). Returns `None` if no key is proved: the zone is not signed or publishes none, the answers are
    /// invalid, expired or missing, `remote` is an address or in the machine's hosts file, or the host has no trust anchors (feature
    /// `dnssec`, `HostBuilder::dnssec`). Takes at most eight seconds. Dropping the future drops the answers.
    ///
    /// [`Host::connect`] does this for a server that [`Trust::known_peers`](crate::Trust::known_peers) does not know.
    pub async fn published_keys(&self, remote: &Remote) -> Option<Vec<Fingerprint>> {
        let anchors = self.anchors.as_ref()?;
        let (host, port) = remote.name_and_port()?;
        anchors.keys_of(host, port, &self.devices_that_are_up(), &self.nameservers).await
    }

    /// Accepts connections to `port` of the paths' devices.
    ///
    /// Dropping the future gives the port back.
    ///
    /// # Errors
    /// The port is taken by another program on this machine, or the network cannot be changed.
    pub async fn listen(&self, port: u16, service: Service) -> Result<Listener, Error> {
        let inner = self.inner.listen(service.settings(&self.config), port).await?;
        Ok(Listener { inner, control: self.control.clone() })
    }

    /// The devices of the paths that may carry something, each once, for all carriers.
    fn devices(&self) -> Devices {
        Devices::in_use(&self.control.paths(), self.shared_networks())
    }

    /// Those whose paths are up now. The network of a device that is just coming up is not known yet, so it must not be asked.
    fn devices_that_are_up(&self) -> Devices {
        let paths: Vec<_> = self.control.paths().into_iter().filter(|path| path.up).collect();
        Devices::in_use(&paths, self.shared_networks())
    }

    /// The number of disjoint paths: of networks that the devices lead into, as far as this machine can see. Paths that must carry nothing
    /// do not count.
    #[must_use]
    pub fn disjoint_paths(&self) -> usize {
        self.devices().paths()
    }

    /// The networks that several devices of the paths share. The paths of such devices count as one.
    #[must_use]
    pub fn shared_networks(&self) -> Vec<SharedNetwork> {
        self.path_control().shared_networks()
    }

    /// The paths and their current state.
    #[must_use]
    pub fn paths(&self) -> Vec<PathState> {
        self.path_control().paths()
    }

    /// A handle for changing how the paths are used.
    #[must_use]
    pub fn path_control(&self) -> PathControl {
        PathControl(self.control.clone())
    }

    /// A handle that counts the turns of the event loop, for a watchdog.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.inner.pulse()
    }

    /// Totals since the start: what was dropped or refused, by reason.
    #[must_use]
    pub fn totals(&self) -> HostTotals {
        let (totals, _) = counters::of_host(self.inner.counters());
        HostTotals { malformed: self.inner.malformed().total(), ..totals }
    }

    /// What the host keeps for connections now.
    #[must_use]
    pub fn state(&self) -> HostState {
        counters::of_host(self.inner.counters()).1
    }

    /// Waits until no connection is left: dropped streams have delivered what was written. Dropping the future changes nothing.
    pub async fn drained(&self) {
        self.inner.drained().await;
    }

    /// Waits until no connection of the stack is left, those with a live [`Stream`] and those of other handles included, then gives up this
    /// handle. The last handle ends the stack, and `close` then returns after the network is restored. Dropping the future drops the handle
    /// at once.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn close(self) {
        self.inner.drained().await;
        // The driver's thread is waited for, which must not hold up a task.
        if let Some(last) = Arc::into_inner(self.inner) {
            let _ = tokio::task::spawn_blocking(move || drop(last)).await;
        }
    }
}

impl HostBuilder {
    /// Adds a path; earlier paths are preferred for opening connections. Without any path, the host uses the devices of the default routes,
    /// as they come and go, and the loopback device if it may use UDP.
    pub fn path(mut self, path: Path) -> Self {
        self.settings.paths.push(path.0);
        self
    }

    /// Sets the nameservers to ask over each path if several paths must agree on the addresses of a server. Default: the nameservers of
    /// each device according to systemd-resolved, or those in `/etc/resolv.conf`.
    pub fn nameservers(mut self, servers: impl IntoIterator<Item = IpAddr>) -> Self {
        self.nameservers = servers.into_iter().collect();
        self
    }

    /// Trusts the keys that the DNS zones of unknown servers publish, if DNSSEC signatures lead from these anchors to them
    /// ([`Host::published_keys`]). Such a key is required of the server and pinned, also over one path
    /// ([`Trust::known_peers`](crate::Trust::known_peers)). Default: DNSSEC is not used.
    #[cfg(feature = "dnssec")]
    pub fn dnssec(mut self, anchors: DnssecAnchors) -> Self {
        self.anchors = Some(anchors);
        self
    }

    /// Sets the carriers of the segments. Default: [`Carriers::Auto`].
    pub fn carriers(mut self, carriers: Carriers) -> Self {
        self.settings.carriers = carriers;
        self
    }

    /// Sets how long a subflow over UDP may be silent before it sends an empty datagram, so that NATs keep its mapping. Default: 25
    /// seconds.
    pub fn keep_alive(mut self, silence: Duration) -> Self {
        self.settings.keep_alive = silence;
        self
    }

    /// Sets how the path of the next bytes is selected.
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.config.scheduler = scheduler;
        self
    }

    /// Sets whether a subflow that joins while no path works carries data with its SYN, on sealed connections. Default: it does. The first
    /// byte on the new path is then two round trips earlier.
    pub fn join_data(mut self, is_brought: bool) -> Self {
        self.config.join_data = is_brought;
        self
    }

    /// Sets the congestion control of the subflows.
    pub fn congestion_control(mut self, algorithm: CongestionControl) -> Self {
        self.config.tcp.congestion = algorithm;
        self
    }

    /// Sets whether routers may mark packets instead of dropping them (RFC 3168), on each subflow that supports it on its path and at its
    /// peer.
    pub fn ecn(mut self, ecn: Ecn) -> Self {
        self.config.tcp.ecn = ecn.into();
        self
    }

    /// Asks peers for checksums of the data (RFC 8684, section 3.3.1). They detect changes by middleboxes on connections that are not
    /// sealed.
    pub fn checksums(mut self, are_wanted: bool) -> Self {
        self.config.checksum = are_wanted;
        self
    }

    /// Sets the most bytes of a connection that are kept until the peer has acknowledged them. Default: 16 MiB.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.config.send_buffer = bytes;
        self
    }

    /// Sets the most bytes of a connection that are kept until they are read, which is the largest offered window (RFC 9293). Default: 16
    /// MiB. A connection begins with less and gets what its reader uses.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.config.receive_buffer = bytes;
        self
    }

    /// Sets the limits on what unknown peers can make the host keep.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits.0;
        self
    }

    /// Sets the networks for the private addresses of the stack: networks of 16 bits (IPv4) and 48 bits (IPv6), by their first addresses,
    /// best first. Default for a family without any: 198.18.0.0 (RFC 2544) or fd70:6c61:6974:: (RFC 4193), if this machine does not use
    /// them.
    pub fn address_ranges(mut self, networks: impl IntoIterator<Item = IpAddr>) -> Self {
        let networks: Vec<IpAddr> = networks.into_iter().collect();
        self.settings.ranges = Ranges::of(&networks);
        self
    }

    /// Sets whether a subflow is opened for each pair of a path and an address of the other host, instead of one over each path.
    pub fn mesh(mut self, is_wanted: bool) -> Self {
        self.config.joins = if is_wanted { Joins::Mesh } else { Joins::OnePerPath };
        self
    }

    /// Sets whether subflows are opened, one each, to the addresses that connecting hosts announce.
    pub fn join_announced(mut self, is_wanted: bool) -> Self {
        self.config.passive_joins = if is_wanted { Joins::OnePerPath } else { Joins::None };
        self
    }

    /// Sets how long a connection that has lost its last path waits for another before it fails. Default: one minute.
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.config.no_subflow_timeout = time;
        self
    }

    /// Writes all packets to this file, in pcapng, with their addresses and ports on the network. A packet carried over UDP is written as
    /// the TCP segment in it, with the addresses and ports of the datagram.
    pub fn capture(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.capture = Some(file.into());
        self
    }

    /// Sets the number of threads that seal and open blocks. Without any, the stack's own thread does it.
    pub fn crypto_threads(mut self, count: usize) -> Self {
        self.settings.crypto_threads = count;
        self
    }

    /// Configures the network, in the network namespace of the calling thread, and starts the stack. Blocks the thread for some tens of
    /// milliseconds, and for 0.3 seconds more if a gateway does not tell its link-layer address. In a runtime with other tasks, call it in
    /// `tokio::task::spawn_blocking`.
    ///
    /// # Errors
    /// A privilege or a program is missing, or the paths are invalid. Then no part of the network configuration remains.
    pub fn start(self) -> Result<Host, Error> {
        let Self { mut settings, config, nameservers, anchors } = self;
        if settings.paths.is_empty() {
            let defaults = Path::defaults(None, settings.carriers)?;
            settings.paths = defaults.into_iter().map(|path| path.0).collect();
        }
        let inner = Arc::new(::plait_host::Host::start(settings)?);
        Ok(Host { control: inner.path_control(), inner, config, nameservers, anchors })
    }
}

/// Returns the result of `work`, if it is ready by then. After that time, `work` is not asked, although it may be ready.
async fn by<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) if until <= Instant::now() => None,
        Some(until) => timeout_at(until, work).await.ok(),
        None => Some(work.await),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn what_is_ready_at_the_first_look_is_late_all_the_same_once_the_time_has_passed() {
        assert_eq!(by(Some(Instant::now()), ready("late")).await, None);
        assert_eq!(by(None, ready("without a limit")).await, Some("without a limit"));
    }
}
