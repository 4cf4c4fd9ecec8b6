//! Connections that others open to us.

use std::net::{IpAddr, SocketAddr};

use crate::error::Error;
use crate::status::Monitor;
use crate::stream::Stream;

/// A port that connections are accepted on, over all paths. Dropping it gives the port back to the kernel; accepted
/// connections go on.
#[derive(Debug)]
pub struct Listener {
    pub(crate) inner: ::plait_host::Listener,
    pub(crate) control: ::plait_host::PathControl,
}

impl Listener {
    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.inner.port()
    }

    /// The addresses that connections can come to now: those of the paths that are up, with the port, as others see them without
    /// another address translation in between.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        let paths = self.control.paths();
        let addresses = paths.iter().filter(|path| path.up).flat_map(|path| {
            [path.public_v4.map(IpAddr::V4), path.public_v6.map(IpAddr::V6)].into_iter().flatten()
        });
        addresses.map(|address| SocketAddr::new(address, self.port())).collect()
    }

    /// Waits for the next connection. Connections that do not meet the demands of the [`Service`](crate::Service) never come here. Several
    /// tasks may wait; each connection goes to one of them.
    ///
    /// Dropping the future loses no connection: the next call returns it.
    ///
    /// # Errors
    /// The host has ended.
    pub async fn accept(&self) -> Result<Stream, Error> {
        loop {
            let (connection, from) = self.inner.accept().await?;
            let monitor = Monitor { connection, control: self.control.clone() };
            // One that has ended already is of no interest.
            if let Ok(stream) = Stream::new(monitor, Some(from)) {
                return Ok(stream);
            }
        }
    }
}
