//! The network around a host: the state of its devices, addresses, routes and neighbours, and, in `tcp`, what TCP over TUN changes in it.

mod addresses;
mod command;
mod domains;
mod links;
mod neighbours;
mod netlink;
#[cfg(test)]
mod recorded;
mod routes;
mod routing_tables;
#[cfg(test)]
mod same_picture;
#[cfg(test)]
mod shown;
mod snapshot;
mod source_check;
#[cfg(feature = "tcp")]
mod tcp;
mod tunnels;
mod uplinks;

use std::net::IpAddr;

use crate::error::Error;
use crate::path::PathSpec;
use crate::path_rule::PathRule;
use crate::selection::present_in;
use crate::shared_networks::SharedNetwork;
use crate::sys::LOOPBACK;

pub(crate) use self::snapshot::Snapshot;
pub use self::source_check::path_obstacles;
#[cfg(feature = "udp")]
pub(crate) use self::source_check::strict_source_check;
#[cfg(feature = "tcp")]
pub use self::tcp::remove_leftovers;
#[cfg(feature = "tcp")]
pub(crate) use self::tcp::{Network, Translations, Tun};
pub(crate) use self::uplinks::Uplinks;

/// Returns the devices of the default routes, IPv4 first; without any, the one that leads to `towards`.
///
/// # Errors
/// The kernel does not answer questions about its devices and routes.
pub fn default_devices(towards: Option<IpAddr>) -> Result<Vec<String>, Error> {
    let mut devices = Snapshot::take()?.default_devices();
    if let Some(address) = towards.filter(|_| devices.is_empty()) {
        // A missing route is reported by the caller that needs one.
        devices.extend(routes::device_towards(address).ok().flatten());
    }
    Ok(devices)
}

/// Returns the rules for the single devices that these rules select now, each by its name.
///
/// # Errors
/// Two rules are for the same devices; or the kernel does not answer questions about its devices and routes.
pub fn present(rules: Vec<PathRule>) -> Result<Vec<PathRule>, Error> {
    let snapshot = Snapshot::take()?;
    present_in(rules, &snapshot.candidates(), &snapshot.default_devices())
}

/// Returns the networks that these devices share now. Takes some hundred milliseconds if a gateway must be asked for its link-layer address.
///
/// # Errors
/// The kernel does not answer questions about its devices and routes.
pub fn shared_networks(devices: &[String]) -> Result<Vec<SharedNetwork>, Error> {
    let paths = devices.iter().map(|device| PathSpec::new(device)).collect::<Result<Vec<_>, _>>()?;
    let snapshot = Uplinks::default().settle(None, |_| paths)?;
    Ok(snapshot.shared_networks().iter().cloned().collect())
}

/// The device of this host that has `address`; a loopback address need not be one that is listed.
///
/// # Errors
/// The kernel does not answer questions about its devices and routes.
pub fn device_with(address: IpAddr) -> Result<Option<String>, Error> {
    if address.is_loopback() {
        return Ok(Some(LOOPBACK.to_owned()));
    }
    Ok(Snapshot::take()?.device_with(address).map(str::to_owned))
}
