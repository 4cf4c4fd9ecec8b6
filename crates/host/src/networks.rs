//! The paths of a host: over TCP, over UDP, or both.

use std::collections::BTreeSet;

use plait_mptcp::Path;
use tracing::info;

use crate::error::Error;
use crate::path::PathSpec;
use crate::sys::{Network, Snapshot};
use crate::without_tun::PlainNetwork;

/// The carriers of the paths of a host, and the network around them: a TUN device for TCP, sockets for UDP, or both.
#[derive(Debug)]
pub(crate) struct Networks {
    pub(crate) tun: Option<Network>,
    pub(crate) udp: Option<PlainNetwork>,
}

impl Networks {
    /// Reads the kernel's state again and returns the changed paths.
    pub(crate) fn refresh(&mut self) -> Result<Vec<Path>, Error> {
        let snapshot = Snapshot::take()?;
        let mut changed = match &mut self.tun {
            Some(tun) => tun.refresh(&snapshot)?,
            None => Vec::new(),
        };
        changed.extend(self.udp.as_mut().map(|udp| udp.refresh(&snapshot)).unwrap_or_default());
        Ok(changed)
    }

    /// Sets the class and use of the paths of a device; returns those that have been looked at, as they are then.
    pub(crate) fn use_path(&mut self, spec: &PathSpec) -> Result<Vec<Path>, Error> {
        let over_tcp = self.tun.as_mut().map(|tun| tun.use_path(spec.clone()));
        let over_udp = self.udp.as_mut().map(|udp| udp.use_path(spec.clone()));
        let both: Vec<_> = [over_tcp, over_udp].into_iter().flatten().collect();
        if both.iter().all(Result::is_err) {
            return both.into_iter().next().map_or(Ok(Vec::new()), |result| result.map(Vec::from_iter));
        }
        Ok(both.into_iter().flatten().flatten().collect())
    }

    /// Redirects connections to `port` of the paths' devices to the stack.
    pub(crate) fn open_port(&mut self, port: u16) -> Result<(), Error> {
        let Self { tun, udp } = self;
        if let Some(tun) = tun {
            tun.open_port(port)?;
        }
        match (udp.as_ref().map(|udp| udp.open_port(port)), tun) {
            // Another program may have the port of UDP, for example one for QUIC beside one for TCP.
            (Some(Err(error)), Some(_)) => {
                info!(%error, port, "listened on over TCP only");
                Ok(())
            }
            (opened, _) => opened.unwrap_or(Ok(())),
        }
    }

    /// Undoes [`Networks::open_port`].
    pub(crate) fn close_port(&mut self, port: u16) {
        if let Some(tun) = &mut self.tun {
            tun.close_port(port);
        }
        if let Some(udp) = &self.udp {
            udp.close_port(port);
        }
    }

    /// Restores our rules if another program has removed or changed them; returns whether that was so. `opened` returns
    /// the ports that connections of the stack were opened from.
    pub(crate) fn mend_rules(&mut self, opened: impl FnOnce() -> BTreeSet<u16>) -> Result<bool, Error> {
        self.tun.as_mut().map_or(Ok(false), |tun| tun.mend_rules(opened))
    }
}
