//! Paths that are addresses of this host. Sockets answer the questions about them, without a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::error::Error;
use crate::path::PathSpec;
use crate::path_obstacle::PathObstacle;
use crate::path_rule::PathRule;
use crate::selection::present_in;
use crate::shared_networks::{SharedNetwork, SharedNetworks};
use crate::sys::{Candidate, Device};

/// The MTU that every IPv6 path supports (RFC 8200, section 5): this system has no interface to ask for more.
const MTU: u32 = 1280;

/// Addresses of documentation (RFC 5737, RFC 3849): packets to them take the default route.
const SOMEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// Any port but 0.
const PORT: u16 = 9;

/// The state of the system, which is asked at each question.
#[derive(Default, Debug)]
pub(crate) struct Snapshot {
    /// None is known: this system is not asked for its routes.
    networks: SharedNetworks,
    /// The addresses that packets to the default routes have.
    default: Vec<String>,
}

/// The knowledge about the networks behind devices: none.
#[derive(Default, Debug)]
pub(crate) struct Uplinks {}

impl Uplinks {
    /// Returns the state without shared networks.
    pub(crate) fn look(
        &mut self,
        _rules: &[PathRule],
        select: impl FnOnce(&Snapshot) -> Vec<PathSpec>,
    ) -> Result<Snapshot, Error> {
        let snapshot = Snapshot::take();
        let _paths = select(&snapshot);
        Ok(snapshot)
    }

    /// The same as [`Uplinks::look`].
    pub(crate) fn settle(
        &mut self,
        rules: Option<&[PathRule]>,
        select: impl FnOnce(&Snapshot) -> Vec<PathSpec>,
    ) -> Result<Snapshot, Error> {
        self.look(rules.unwrap_or_default(), select)
    }

    /// No look is needed in addition to the regular ones.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        None
    }
}

impl Snapshot {
    fn take() -> Self {
        Self { networks: SharedNetworks::default(), default: default_devices(None).unwrap_or_default() }
    }

    /// Those of the default routes: this system is not asked for others. An address that a rule names is a path all the same.
    pub(crate) fn candidates(&self) -> Vec<Candidate<'_>> {
        let all = self.default.iter().zip(1..);
        all.map(|(name, index)| Candidate {
            name,
            other_names: &[],
            link_addresses: Vec::new(),
            addresses: Vec::new(),
            index,
            is_loopback: false,
        })
        .collect()
    }

    /// The addresses that packets to the default routes have.
    pub(crate) fn default_devices(&self) -> Vec<String> {
        self.default.clone()
    }

    /// The networks that devices of paths share.
    pub(crate) fn shared_networks(&self) -> &SharedNetworks {
        &self.networks
    }

    /// The routes of this system are not asked for.
    pub(crate) fn leads_out(&self, _path: &str) -> bool {
        true
    }

    /// Returns the properties of a path: its name is its only address, and it is up as long as this host has that.
    pub(crate) fn device(&self, name: &str) -> Device {
        let Some(own) = name.parse().ok().filter(|address| is_ours(*address)) else {
            return Device::default();
        };
        let (v4, v6) = match own {
            IpAddr::V4(v4) => (Some(v4), None),
            IpAddr::V6(v6) => (None, Some(v6)),
        };
        Device { index: 0, v4, v6, valid: [own].into(), mtu: MTU, is_up: true }
    }
}

/// The address that this host reaches `towards` from. Without `towards`: its IPv4 address, or its IPv6 address if it has no IPv4. Not
/// both: they may be on one network, and two paths must not be.
///
/// # Errors
/// None.
pub fn default_devices(towards: Option<IpAddr>) -> Result<Vec<String>, Error> {
    Ok(towards.into_iter().chain(SOMEWHERE).filter_map(source_towards).take(1).collect())
}

/// `address`, if this host has it.
///
/// # Errors
/// None.
pub fn device_with(address: IpAddr) -> Result<Option<String>, Error> {
    Ok(is_ours(address).then(|| address.to_string()))
}

/// Returns the rules for the single addresses that these rules select now.
///
/// # Errors
/// Two rules are for the same addresses.
pub fn present(rules: Vec<PathRule>) -> Result<Vec<PathRule>, Error> {
    let snapshot = Snapshot::take();
    present_in(rules, &snapshot.candidates(), &snapshot.default)
}

/// Returns nothing: this system is not asked for the networks behind its devices.
///
/// # Errors
/// None.
pub fn shared_networks(_devices: &[String]) -> Result<Vec<SharedNetwork>, Error> {
    Ok(Vec::new())
}

/// Returns nothing: this system is not asked for its routes.
///
/// # Errors
/// None.
pub fn path_obstacles(_devices: &[String], _towards: Option<IpAddr>) -> Result<Vec<PathObstacle>, Error> {
    Ok(Vec::new())
}

/// Nothing is known about such a check.
pub(crate) fn strict_source_check(_path: &str, _own: Ipv4Addr, _towards: Option<Ipv4Addr>) -> Option<String> {
    None
}

fn is_ours(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && UdpSocket::bind((address, 0)).is_ok()
}

/// The address that the system sends packets to `address` from, if it has a route.
fn source_towards(address: IpAddr) -> Option<String> {
    let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect((address, PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}
