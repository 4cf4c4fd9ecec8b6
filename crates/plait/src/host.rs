//! The stack on this machine.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::plait_host::Config;

use crate::error::{Error, ErrorKind};
use crate::listener::Listener;
use crate::path::{Path, PathControl, PathState};
use crate::protection::{Protection, Scheduler};
use crate::service::Service;
use crate::stream::Stream;

/// A running stack. Dropping it resets the connections that are still open and puts the network back to what it was;
/// [`Host::close`] lets them end in order before.
#[derive(Debug)]
pub struct Host {
    inner: ::plait_host::Host,
    config: Config,
}

/// What a [`Host`] is to be: its paths, and how connections use them. Obtained from [`Host::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is started"]
pub struct HostBuilder {
    inner: ::plait_host::HostBuilder,
    config: Config,
    paths: usize,
}

/// A server: a name or an address, and a port. From `"gw.example.com:7443"`, `"[2001:db8::1]:7443"`, a name and a port, or a
/// [`SocketAddr`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// `HOST:PORT`, as it was given.
    authority: String,
}

impl Host {
    /// A host without paths yet.
    pub fn builder() -> HostBuilder {
        HostBuilder { inner: ::plait_host::Host::builder(), config: Config::default(), paths: 0 }
    }

    /// Opens a connection. A [`Trust`](crate::Trust) alone asks for a sealed one; what is weaker is a [`Protection`] with that
    /// name. Giving up the future ends the attempt.
    ///
    /// # Errors
    /// The name has no address, no path leads there, nobody answers, the peer refuses, it cannot prove who it is, or the
    /// connection cannot be protected as asked for.
    pub async fn connect(
        &self,
        remote: impl Into<Remote>,
        protection: impl Into<Protection>,
    ) -> Result<Stream, Error> {
        let (remote, protection) = (remote.into(), protection.into());
        let (config, expected) = protection.settings(&remote, &self.config)?;
        let addresses = remote.resolve().await?;
        let stream = self.inner.connect_with(config, &addresses).await?;
        if let Some(expected) = expected {
            let status = stream.status();
            // Before the application has the stream, and so before a byte of it is sent.
            if let Err(error) = expected.judge(status.as_ref().and_then(|status| status.sealed.as_ref())) {
                stream.abort();
                return Err(error);
            }
        }
        Stream::new(stream, self.inner.path_control(), None)
    }

    /// Accepts connections to `port` of the paths' devices.
    ///
    /// # Errors
    /// The port is taken by somebody else on this machine, or the network cannot be changed.
    pub async fn listen(&self, port: u16, service: Service) -> Result<Listener, Error> {
        let inner = self.inner.listen_with(service.settings(&self.config), port).await?;
        Ok(Listener { inner, control: self.inner.path_control() })
    }

    /// The paths and their state now.
    #[must_use]
    pub fn paths(&self) -> Vec<PathState> {
        self.inner.paths().into_iter().map(PathState).collect()
    }

    /// A handle for changing how the paths are used.
    #[must_use]
    pub fn path_control(&self) -> PathControl {
        PathControl(self.inner.path_control())
    }

    /// Waits until the connections that were let go of have delivered what was written, and ends the stack. Connections that
    /// somebody still holds a [`Stream`] of are waited for, too.
    pub async fn close(self) {
        self.inner.drained().await;
    }
}

impl HostBuilder {
    /// Adds a path; the first ones are preferred for opening connections. Without any the host uses the devices of the default
    /// routes.
    pub fn path(mut self, path: Path) -> Self {
        self.inner = self.inner.path(path.0);
        self.paths += 1;
        self
    }

    /// Which path the next bytes take.
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.config.scheduler = scheduler.into();
        self
    }

    /// How long a connection that has lost its last path waits for another before it fails; a minute if nothing is said.
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.config.no_subflow_timeout = time;
        self
    }

    /// Writes all packets to this file, in pcapng.
    pub fn capture(mut self, file: impl Into<PathBuf>) -> Self {
        self.inner = self.inner.capture(file);
        self
    }

    /// Threads that seal and open blocks; without any the stack's own thread does it.
    pub fn crypto_threads(mut self, count: usize) -> Self {
        self.inner = self.inner.crypto_threads(count);
        self
    }

    /// Sets the network up, in the network namespace of the calling thread, and starts the stack. Blocks for some tens of
    /// milliseconds.
    ///
    /// # Errors
    /// A privilege or a program is missing, or the paths make no sense. Nothing of the set-up is left then.
    pub fn start(self) -> Result<Host, Error> {
        let Self { mut inner, config, paths } = self;
        if paths == 0 {
            for device in ::plait_host::default_devices()? {
                inner = inner.path(::plait_host::PathSpec::new(&device)?);
            }
        }
        Ok(Host { inner: inner.start()?, config })
    }
}

impl Remote {
    /// The name or address, without the port.
    pub(crate) fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or(&self.authority[..], |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// `HOST:PORT`.
    pub(crate) fn authority(&self) -> String {
        self.authority.clone()
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let found = tokio::net::lookup_host(&self.authority).await.map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
                _ => ErrorKind::UnknownName,
            };
            Error::with_source(kind, format!("cannot find the address of {}: {error}", self.authority), error)
        })?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            let words = format!("{} has no address", self.authority);
            return Err(Error::new(ErrorKind::UnknownName, words));
        }
        Ok(addresses)
    }
}

impl From<&str> for Remote {
    fn from(authority: &str) -> Self {
        Self { authority: authority.to_owned() }
    }
}

impl From<String> for Remote {
    fn from(authority: String) -> Self {
        Self { authority }
    }
}

impl From<(&str, u16)> for Remote {
    fn from((host, port): (&str, u16)) -> Self {
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Self { authority }
    }
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Self {
        Self { authority: address.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_in_many_ways() {
        let v6: SocketAddr = "[2001:db8::1]:7443".parse().expect("an address");
        for (remote, host) in [
            (Remote::from("gw.example.com:7443"), "gw.example.com"),
            (Remote::from("[2001:db8::1]:7443"), "2001:db8::1"),
            (Remote::from(v6), "2001:db8::1"),
            (Remote::from(("2001:db8::1", 7443)), "2001:db8::1"),
            (Remote::from(("gw", 7443)), "gw"),
        ] {
            assert_eq!(remote.host(), host);
            assert!(remote.authority().ends_with(":7443"));
        }
    }
}
