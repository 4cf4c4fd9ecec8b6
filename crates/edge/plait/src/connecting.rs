//! One connection that we open: its settings, and its end if it is given up.

use std::time::Duration;

use ::plait_host::{Config, CongestionControl, Connection, Scheduler};

use crate::status::Monitor;

/// Settings of one connection that differ from those of its [`Host`](crate::Host), for [`Host::connect_with`](crate::Host::connect_with).
/// What is not set is as the [`HostBuilder`](crate::HostBuilder) has set it.
///
/// ```no_run
/// use std::time::Duration;
///
/// use plait::{ConnectOptions, Host, Scheduler, Trust};
///
/// # async fn open(host: Host, key: plait::Fingerprint) -> Result<(), plait::Error> {
/// let options = ConnectOptions::new().scheduler(Scheduler::Redundant).within(Duration::from_secs(10));
/// let control = host.connect_with("gw.example.com:7443", Trust::pinned(key), &options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[must_use = "it is given to Host::connect_with"]
pub struct ConnectOptions {
    scheduler: Option<Scheduler>,
    congestion_control: Option<CongestionControl>,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
    limit: Option<Duration>,
}

impl ConnectOptions {
    /// The settings of the host, without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how the path of the next bytes is selected.
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Sets the congestion control of the subflows.
    pub fn congestion_control(mut self, algorithm: CongestionControl) -> Self {
        self.congestion_control = Some(algorithm);
        self
    }

    /// Sets the most bytes that are kept until the peer has acknowledged them.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// Sets the most bytes that are kept until they are read, which is the largest offered window (RFC 9293, section 3.8.6).
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Sets the time limit of the opening, the lookup of the name included.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Returns the settings of the host with those of this connection in place of them.
    pub(crate) fn over(&self, host: &Config) -> Config {
        let mut config = host.clone();
        config.scheduler = self.scheduler.unwrap_or(config.scheduler);
        config.tcp.congestion = self.congestion_control.unwrap_or(config.tcp.congestion);
        config.send_buffer = self.send_buffer.unwrap_or(config.send_buffer);
        config.receive_buffer = self.receive_buffer.unwrap_or(config.receive_buffer);
        config
    }
}

/// Resets a connection when it is dropped, unless it is disarmed: a connection that is given up while it opens does not end in order without
/// a byte.
#[must_use = "it resets the connection when it is dropped"]
pub(crate) struct AbortOnDrop(Option<Connection>);

impl AbortOnDrop {
    /// For the connection of `monitor`.
    pub(crate) fn of(monitor: &Monitor) -> Self {
        Self(Some(monitor.connection.clone()))
    }

    /// Lets the connection live.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_replaces_the_setting_of_the_host_and_nothing_else_does() {
        let host = Config { send_buffer: 1000, receive_buffer: 2000, ..Config::default() };
        let plain = ConnectOptions::new().over(&host);
        assert_eq!((plain.send_buffer, plain.receive_buffer), (1000, 2000));
        assert_eq!((plain.scheduler, plain.tcp.congestion), (host.scheduler, host.tcp.congestion));
        let options = ConnectOptions::new().scheduler(Scheduler::Redundant).receive_buffer(3000);
        let config = options.congestion_control(CongestionControl::Bbr).over(&host);
        assert_eq!((config.send_buffer, config.receive_buffer), (1000, 3000));
        assert_eq!(config.scheduler, Scheduler::Redundant);
        assert_eq!(config.tcp.congestion, CongestionControl::Bbr);
    }
}
