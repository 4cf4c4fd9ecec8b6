//! A host hands its ports over to the host of another process ([`crate::handover`]).

use std::os::fd::OwnedFd;

use plait_tcp::FourTuple;

use super::Host;
use crate::error::Error;
use crate::handover::{Handover, Relay, flow_of};

impl Host {
    /// Hands the open ports over to the host of another process, its successor. Returns the descriptor for [`Host::take_over`] there. From
    /// now on no datagram is received until the successor listens, or until [`Host::take_back`]. The listeners must stay until the last
    /// connection has ended: openings in progress are finished here.
    ///
    /// # Errors
    /// The sockets cannot be shared. The host accepts connections as before.
    pub async fn hand_over(&self) -> Result<OwnedFd, Error> {
        let sockets = self.network_monitor.hand_over().await?;
        let flows: Vec<_> = {
            let state = self.shared.lock();
            let of = |tuple: &FourTuple| {
                let path = state.endpoint.paths().with_address(tuple.local.ip())?;
                Some(flow_of(state.carriers.of(path.id), tuple))
            };
            state.endpoint.tuples().filter_map(of).collect()
        };
        match Relay::of_predecessor(&sockets, flows) {
            Ok((relay, far)) => {
                self.shared.change(|state, _| state.relay = Some(Some(relay)));
                Ok(far)
            }
            Err(source) => {
                self.network_monitor.take_back().await?;
                Err(Error::system("make a channel to the other process", source))
            }
        }
    }

    /// Leaves new connections to the successor, which listens.
    ///
    /// # Errors
    /// The host has ended.
    pub async fn leave_ports(&self) -> Result<(), Error> {
        self.network_monitor.leave_ports().await
    }

    /// Undoes [`Host::hand_over`]: the successor has not taken over, or has ended.
    ///
    /// # Errors
    /// The host has ended.
    pub async fn take_back(&self) -> Result<(), Error> {
        self.shared.change(|state, _| state.relay = Some(None));
        self.network_monitor.take_back().await
    }

    /// Takes the ports of another host over by the descriptor from [`Host::hand_over`]: the next [`Host::listen`] uses its sockets. What
    /// arrives for connections of the other host is passed to it, until its process ends.
    ///
    /// # Errors
    /// The other process does not describe its sockets.
    pub async fn take_over(&self, descriptor: OwnedFd) -> Result<(), Error> {
        let failed = |source| Error::system("take over from the other process", source);
        let Handover { relay, sockets } = Relay::of_successor(descriptor).map_err(failed)?;
        for device in self.network_monitor.take_over(sockets).await? {
            relay.give_device(&device).map_err(failed)?;
        }
        self.shared.change(|state, _| {
            state.endpoint.leave_unknown(true);
            state.relay = Some(Some(relay));
        });
        Ok(())
    }
}
