//! One process hands its listening ports over to another one, and keeps its connections.

use std::os::fd::OwnedFd;

use crate::error::Error;
use crate::host::Host;

impl Host {
    /// Hands the ports of this host over to a host in another process of the same user. Returns the descriptor for [`Host::take_over`]
    /// there. No datagram is received from now on until that host listens, or until [`Host::take_back`].
    ///
    /// This host keeps its connections and its paths. Keep its [`Listener`](crate::Listener)s, and accept from them, until the last
    /// connection has ended: openings in progress are finished here.
    ///
    /// Dropping the future may leave the ports handed over: call [`Host::take_back`].
    ///
    /// # Errors
    /// The sockets cannot be shared. The host accepts connections as before.
    pub async fn hand_over(&self) -> Result<OwnedFd, Error> {
        Ok(self.inner.hand_over().await?)
    }

    /// Leaves new connections to the other host, which listens now.
    ///
    /// Dropping the future changes nothing: they are left.
    ///
    /// # Errors
    /// The host has ended.
    pub async fn leave_ports(&self) -> Result<(), Error> {
        Ok(self.inner.leave_ports().await?)
    }

    /// Undoes [`Host::hand_over`]: the other process has not taken over, or has ended.
    ///
    /// Dropping the future changes nothing: the ports are taken back.
    ///
    /// # Errors
    /// The host has ended.
    pub async fn take_back(&self) -> Result<(), Error> {
        Ok(self.inner.take_back().await?)
    }

    /// Takes the ports of a host in another process over, by the descriptor that [`Host::hand_over`] has returned there. The next
    /// [`Host::listen`] uses its sockets. This host passes segments of unknown connections to the other one until that process ends.
    ///
    /// Waits up to five seconds for the other process, and blocks the task meanwhile. Dropping the future may leave the sockets taken.
    ///
    /// # Errors
    /// The other process does not describe its sockets.
    pub async fn take_over(&self, descriptor: OwnedFd) -> Result<(), Error> {
        Ok(self.inner.take_over(descriptor).await?)
    }
}
