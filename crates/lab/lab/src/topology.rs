//! The hosts, their devices, addresses and routes.
//!
//! Path number `i` has the networks `10.77.i.0/24` and `fd77:0:0:i::/64`; the client is 1 in them, the server 2. The server also
//! has the addresses `10.77.255.2` and `fd77:0:0:ff::2`, which all paths lead to. A packet of the client leaves on the path of its
//! source address; without one on the first path. A packet of the server leaves on the path to its destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command};

use plait_netns::mptcp::{Endpoint, EndpointFlag};
use plait_netns::tun::Tun;
use plait_netns::{Cidr, Namespace, Route, Rule, Target};
use serde::{Deserialize, Serialize};

use crate::config::{LabConfig, MAX_PATHS, PathConfig};
use crate::program::CARRIER;
use crate::{Direction, Error, Result};

/// Longest name of a path: a device's has 15 bytes, and what a host builds on it may want some.
const LONGEST_NAME: usize = 10;
/// Packets that wait in a device for the emulator. A host's own queues are not to be the bottleneck.
const DEVICE_QUEUE: u32 = 10_000;
/// First routing table used in the client.
const FIRST_TABLE: u32 = 7700;
/// The network number of the addresses that all paths lead to.
const SERVICE: u8 = 255;

/// An address of each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// IPv4.
    pub v4: IpAddr,
    /// IPv6.
    pub v6: IpAddr,
}

impl Addresses {
    fn of(network: u8, host: u8) -> Self {
        let v6 = Ipv6Addr::new(0xfd77, 0, 0, u16::from(network), 0, 0, 0, u16::from(host));
        Self { v4: Ipv4Addr::new(10, 77, network, host).into(), v6: v6.into() }
    }

    fn networks(self) -> [Cidr; 2] {
        [Cidr::new(self.v4, 24), Cidr::new(self.v6, 64)]
    }

    fn hosts(self) -> [Cidr; 2] {
        [Cidr::host(self.v4), Cidr::host(self.v6)]
    }
}

/// The client's address on path number `index`.
pub(crate) fn client_address(index: usize) -> Addresses {
    Addresses::of(index as u8, 1)
}

/// The server's address on path number `index`.
pub(crate) fn server_address(index: usize) -> Addresses {
    Addresses::of(index as u8, 2)
}

/// The server's address that all paths lead to.
pub(crate) fn service_address() -> Addresses {
    Addresses::of(SERVICE, 2)
}

/// One of the two hosts: a network namespace.
#[derive(Debug)]
pub struct Host {
    name: &'static str,
    namespace: Namespace,
}

impl Host {
    fn new(name: &'static str) -> Result<Self> {
        let namespace = Namespace::named(name)?;
        for (setting, value) in [
            // Packets may come by another path than answers go.
            ("net.ipv4.conf.all.rp_filter", 0),
            ("net.ipv4.conf.default.rp_filter", 0),
            // Each run shows its own network, not what was learned in the last.
            ("net.ipv4.tcp_no_metrics_save", 1),
        ] {
            namespace.set_sysctl(setting, value)?;
        }
        Ok(Self { name, namespace })
    }

    /// `client` or `server`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A command that will run in this host, to be given arguments and started as usual.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        // A namespace made by a lab has a name.
        command.args(["netns", "exec", self.namespace.name().unwrap_or_default()]).arg(program);
        command.env(CARRIER.0, CARRIER.1);
        command
    }

    /// Starts a command, made in any way, in this host.
    ///
    /// # Errors
    /// The program is missing, or the namespace gone.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        Ok(self.namespace.spawn(command.env(CARRIER.0, CARRIER.1))?)
    }

    /// Kills every process in it.
    pub(crate) fn kill_all(&self) {
        use nix::sys::signal::{Signal, kill};
        for process in self.namespace.processes().unwrap_or_default() {
            // It may have ended since.
            let _ = kill(nix::unistd::Pid::from_raw(process), Signal::SIGKILL);
        }
    }
}

/// The hosts, and per path the devices in client and server.
pub(crate) struct Topology {
    pub(crate) client: Host,
    pub(crate) server: Host,
    pub(crate) devices: Vec<[Tun; 2]>,
}

impl Topology {
    pub(crate) fn build(config: &LabConfig) -> Result<Self> {
        check(config)?;
        let (client, server) = (Host::new("client")?, Host::new("server")?);
        let mut devices = Vec::new();
        for (index, path) in config.paths.iter().enumerate() {
            let near = device(&client, path, Direction::ToServer, client_address(index))?;
            let far = device(&server, path, Direction::ToClient, server_address(index))?;
            devices.push([near, far]);
            let source_table = FIRST_TABLE + index as u32;
            for target in [Target::DefaultV4, Target::DefaultV6] {
                let default = || Route::to(target).device(&path.name);
                client.namespace.add_route(&default().table(source_table))?;
                let metric = 100 + index as u32;
                for host in [&client, &server] {
                    host.namespace.add_route(&Route { metric: Some(metric), ..default() })?;
                }
            }
            for address in client_address(index).hosts() {
                client.namespace.add_rule(&Rule::from(address, source_table))?;
            }
        }
        for address in service_address().hosts() {
            let flag = if address.address.is_ipv6() { " nodad" } else { "" };
            server.namespace.ip(&format!("address add {address} dev lo{flag}"))?;
        }
        Ok(Self { client, server, devices })
    }
}

fn device(host: &Host, path: &PathConfig, outgoing: Direction, address: Addresses) -> Result<Tun> {
    let tun = Tun::create(&host.namespace, &path.name)?;
    let name = &path.name;
    tun.link().set_mtu(path.conditions(outgoing).mtu)?;
    // No link-local address, no router solicitations: an idle path is silent.
    host.namespace.set_sysctl(&format!("net/ipv6/conf/{name}/addr_gen_mode"), 1)?;
    host.namespace.ip(&format!("link set dev {name} txqueuelen {DEVICE_QUEUE} up"))?;
    for network in address.networks() {
        tun.link().add_address(network)?;
    }
    Ok(tun)
}

fn check(config: &LabConfig) -> Result<()> {
    let count = config.paths.len();
    if count == 0 || count > MAX_PATHS {
        return Err(Error::Config(format!("a lab has 1 to {MAX_PATHS} paths, not {count}")));
    }
    for (index, path) in config.paths.iter().enumerate() {
        let name = &path.name;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_name || name.len() > LONGEST_NAME || name == "lo" {
            return Err(Error::Config(format!(
                "`{name}` is no name for a path: 1 to {LONGEST_NAME} letters or digits"
            )));
        }
        if config.paths[..index].iter().any(|other| other.name == *name) {
            return Err(Error::Config(format!("two paths are called `{name}`")));
        }
        for direction in Direction::BOTH {
            // IPv6 does not work below.
            if path.conditions(direction).mtu < 1280 || path.conditions(direction).mtu > 65_521 {
                return Err(Error::Config(format!("the MTU of path `{name}` is not in 1280 to 65521")));
            }
        }
    }
    Ok(())
}

/// Tells the kernel's Multipath TCP to use every path: the client opens a subflow from each further address to the address of the
/// first, up to eight.
pub(crate) fn enable_kernel_mptcp(topology: &(&Host, &Host), paths: usize) -> Result<()> {
    let (client, server) = topology;
    for host in [client, server] {
        host.namespace.set_mptcp_limits(8, 8)?;
    }
    for index in 1..paths.min(8) {
        for address in [client_address(index).v4, client_address(index).v6] {
            let id = (2 * index + usize::from(address.is_ipv6())) as u8;
            client.namespace.add_mptcp_endpoint(&Endpoint {
                address,
                id,
                device: None,
                port: None,
                flags: vec![EndpointFlag::Subflow],
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, PathClass};

    #[test]
    fn paths_need_names_that_can_be_devices_and_differ() {
        let path = |name: &str| PathConfig::new(name, PathClass::Trusted, Conditions::default());
        let lab = |names: &[&str]| LabConfig {
            paths: names.iter().map(|name| path(name)).collect(),
            ..LabConfig::default()
        };
        assert!(check(&lab(&["a", "lte"])).is_ok());
        for wrong in [&["a", "a"][..], &[], &[""], &["a b"], &["abcdefghijk"], &["lo"], &["../x"]] {
            assert!(check(&lab(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn all_addresses_differ() {
        let mut all: Vec<IpAddr> = (0..MAX_PATHS)
            .flat_map(|index| [client_address(index), server_address(index)])
            .chain([service_address()])
            .flat_map(|addresses| [addresses.v4, addresses.v6])
            .collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
