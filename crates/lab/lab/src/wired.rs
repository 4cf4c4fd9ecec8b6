//! Hosts joined by wires (veth): the kernel's own devices, queues and routers, at full speed and without an emulator. For peers on the
//! kernel's Multipath TCP, and for programs under test that need no attacker.
//!
//! [`Pair`] is two hosts and the wires between them. [`Testbed`] is such a pair with two paths, routes for a client with several networks,
//! and optionally a router on each path:
//!
//! ```text
//!              10.1.1.2 p1 ── c router1 s ── p1 10.2.1.2
//!      client                                            server
//!              10.1.2.2 p2 ── c router2 s ── p2 10.2.2.2
//! ```
//!
//! IPv6 is the same: `fd00:1:1::2` and so on. A packet takes the path of the client's address in it: the client routes by source, the
//! server by destination. So the client's second address may talk to the server's first, like a phone with two networks and a server with
//! one. Without routers the pairs are joined directly and the server has the routers' addresses.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use plait_netns::nft::Table;
use plait_netns::{Cidr, Link, Namespace, Rate, Route, Rule, Target, veth};

use crate::{Error, Result};

/// A wire: its device and addresses at the client, and at the server.
#[derive(Clone, Debug)]
pub struct Wire {
    /// Names of the devices.
    pub devices: [String; 2],
    /// Per network the client's address and the server's.
    pub addresses: Vec<[Cidr; 2]>,
}

/// Two hosts and the wires between them, without routes except those of the addresses. Dropping it removes all.
#[derive(Debug)]
pub struct Pair {
    /// One end.
    pub client: Namespace,
    /// The other.
    pub server: Namespace,
    /// The devices of each wire, the client's first.
    pub wires: Vec<[Link; 2]>,
}

impl Pair {
    /// Two namespaces with `label` in their names.
    ///
    /// # Errors
    /// The user lacks the permission, or the kernel refuses.
    pub fn new(label: &str) -> Result<Self> {
        Ok(Self { client: host(label)?, server: host(label)?, wires: Vec::new() })
    }

    /// Adds another wire.
    ///
    /// # Errors
    /// There is such a device, or such an address.
    pub fn lay(&mut self, wire: &Wire) -> Result<()> {
        let [near, far] = &wire.devices;
        let (near, far) = veth((&self.client, near), (&self.server, far))?;
        for [client, server] in &wire.addresses {
            near.add_address(*client)?;
            far.add_address(*server)?;
        }
        self.wires.push([near, far]);
        Ok(())
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Addresses `10.…`.
    V4,
    /// Addresses `fd00:…`.
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// `v4` or `v6`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// The address `host` of path `path` on one side (1: the client's, 2: the server's).
    fn address(self, side: u8, path: u8, host: u8) -> IpAddr {
        match self {
            Self::V4 => IpAddr::from([10, side, path, host]),
            Self::V6 => IpAddr::from([0xfd00, u16::from(side), u16::from(path), 0, 0, 0, 0, u16::from(host)]),
        }
    }

    fn prefix(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }

    fn network(self, side: u8, path: u8) -> Cidr {
        Cidr::new(self.address(side, path, 0), self.prefix())
    }

    fn default(self) -> Target {
        match self {
            Self::V4 => Target::DefaultV4,
            Self::V6 => Target::DefaultV6,
        }
    }
}

/// The topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Through a router per path.
    Routed,
    /// Two veth pairs, directly.
    Direct,
    /// Through one router: the client has two networks, and the server one, with a wire that both paths share.
    Shared,
}

/// The numbers of the paths.
pub const PATHS: RangeInclusive<u8> = 1..=2;

/// The two hosts and the network between them; dropping it removes all.
#[derive(Debug)]
pub struct Testbed {
    /// The active host.
    pub client: Namespace,
    /// The passive one.
    pub server: Namespace,
    routers: Vec<Namespace>,
    shape: Shape,
    /// Per path: the end of each link from which packets leave towards (client, server).
    towards: Vec<(Link, Link)>,
}

impl Testbed {
    /// Joins two hosts by two paths.
    ///
    /// # Errors
    /// The user lacks the permission, or the kernel refuses; the same below.
    pub fn new(shape: Shape) -> Result<Self> {
        let (client, server) = (host("client")?, host("server")?);
        let mut bed = Self { client, server, routers: Vec::new(), shape, towards: Vec::new() };
        for path in PATHS {
            match shape {
                Shape::Shared if path != 1 => bed.add_access(path)?,
                Shape::Routed | Shape::Shared => bed.add_routed_path(path)?,
                Shape::Direct => bed.add_direct_path(path)?,
            }
        }
        Ok(bed)
    }

    fn add_routed_path(&mut self, path: u8) -> Result<()> {
        let router = host(&format!("router{path}"))?;
        for forwarding in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            router.set_sysctl(forwarding, 1)?;
        }
        let (near_client, to_client) = veth((&self.client, &device(path)), (&router, "c"))?;
        let (near_server, to_server) = veth((&self.server, &device(path)), (&router, "s"))?;
        for family in Family::BOTH {
            for (side, link, end) in
                [(1, &near_client, 2), (1, &to_client, 1), (2, &near_server, 2), (2, &to_server, 1)]
            {
                link.add_address(Cidr::new(family.address(side, path, end), family.prefix()))?;
            }
            self.route_client(family, path)?;
            let (gateway, device) = (family.address(2, path, 1), device(path));
            self.server.add_route(
                &Route::to(family.default()).via(gateway).device(&device).metric(100 + u32::from(path)),
            )?;
            let back = Target::Network(family.network(1, path));
            self.server.add_route(&Route::to(back).via(gateway).device(&device))?;
            // Packets to the other address of the server, and of the client, use the same neighbours.
            for other in PATHS.filter(|&other| other != path && self.shape == Shape::Routed) {
                for (side, end) in [(1, "c"), (2, "s")] {
                    let to = Target::Network(family.network(side, other));
                    router.add_route(&Route::to(to).via(family.address(side, path, 2)).device(end))?;
                }
            }
        }
        self.routers.push(router);
        self.towards.push((to_client, to_server));
        Ok(())
    }

    /// Another network of the client's, behind the first router.
    fn add_access(&mut self, path: u8) -> Result<()> {
        let router = self.router(1)?;
        let (near_client, to_client) = veth((&self.client, &device(path)), (router, &format!("c{path}")))?;
        for family in Family::BOTH {
            for (link, end) in [(&near_client, 2), (&to_client, 1)] {
                link.add_address(Cidr::new(family.address(1, path, end), family.prefix()))?;
            }
            self.route_client(family, path)?;
            let back = Target::Network(family.network(1, path));
            self.server.add_route(&Route::to(back).via(family.address(2, 1, 1)).device(&device(1)))?;
        }
        let to_server = Link::existing(router, "s")?;
        self.towards.push((to_client, to_server));
        Ok(())
    }

    fn add_direct_path(&mut self, path: u8) -> Result<()> {
        let name = device(path);
        let (near_client, near_server) = veth((&self.client, &name), (&self.server, &name))?;
        for family in Family::BOTH {
            for (link, end) in [(&near_client, 2), (&near_server, 1)] {
                link.add_address(Cidr::new(family.address(1, path, end), family.prefix()))?;
            }
            self.route_client(family, path)?;
        }
        self.towards.push((near_server, near_client));
        Ok(())
    }

    /// Routes by source to the path of the source; the first path is the default one.
    fn route_client(&self, family: Family, path: u8) -> Result<()> {
        let (gateway, name, table) = (family.address(1, path, 1), device(path), 100 + u32::from(path));
        let default = Route::to(family.default()).via(gateway).device(&name);
        self.client.add_route(&default.clone().metric(table))?;
        self.client.add_route(&default.table(table))?;
        self.client.add_rule(&Rule::from(Cidr::host(family.address(1, path, 2)), table))?;
        if self.shape == Shape::Routed {
            let there = Target::Network(family.network(2, path));
            self.client.add_route(&Route::to(there).via(gateway).device(&name))?;
        }
        Ok(())
    }

    /// The client's address on a path.
    pub fn client_address(&self, family: Family, path: u8) -> IpAddr {
        family.address(1, path, 2)
    }

    /// The server's address on a path.
    pub fn server_address(&self, family: Family, path: u8) -> IpAddr {
        match self.shape {
            Shape::Routed => family.address(2, path, 2),
            Shape::Shared => family.address(2, 1, 2),
            Shape::Direct => family.address(1, path, 1),
        }
    }

    /// The router of a path.
    pub fn router(&self, path: u8) -> Result<&Namespace> {
        self.routers
            .get(usize::from(path) - 1)
            .ok_or_else(|| Error::Config("a direct path has no router".to_owned()))
    }

    /// Limits every path to this rate, in both directions.
    pub fn limit(&self, megabits: u32) -> Result<()> {
        for path in PATHS {
            self.limit_path(path, megabits)?;
        }
        Ok(())
    }

    /// Limits one path to this rate, in both directions.
    pub fn limit_path(&self, path: u8, megabits: u32) -> Result<()> {
        let (to_client, to_server) = &self.towards[usize::from(path) - 1];
        to_client.limit_rate(Rate::megabits(megabits))?;
        to_server.limit_rate(Rate::megabits(megabits))?;
        Ok(())
    }

    /// Drops everything on a path without an error.
    pub fn black_hole(&self, path: u8) -> Result<Table> {
        Ok(Table::black_hole(self.router(path)?, "s")?)
    }

    /// Takes the device of a path down, at the client.
    pub fn take_down(&self, path: u8) -> Result<()> {
        Ok(Link::existing(&self.client, &device(path))?.down()?)
    }

    /// Bytes each path has carried so far, towards the (client, server); a wire that both share has carried those of both.
    pub fn carried(&self) -> Result<Vec<(u64, u64)>> {
        self.towards.iter().map(|(to_client, to_server)| Ok((sent(to_client)?, sent(to_server)?))).collect()
    }
}

fn sent(link: &Link) -> Result<u64> {
    let counters = link.namespace().interface_counters()?;
    let counted = counters.get(link.name());
    Ok(counted.ok_or_else(|| Error::Config(format!("the device {} is gone", link.name())))?.sent_bytes)
}

/// The name of a host's device on a path.
pub fn device(path: u8) -> String {
    format!("p{path}")
}

/// A namespace in which addresses are usable at once and asymmetric routes are accepted.
fn host(label: &str) -> Result<Namespace> {
    let namespace = Namespace::named(label)?;
    for (name, value) in [
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.keep_addr_on_down", "1"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        // Each scenario measures its own network, not metrics cached by the one before.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ] {
        namespace.set_sysctl(name, value)?;
    }
    // Fills queues like plait's default. A kernel may be configured to BBR, which gives way to the queue in the other direction and would
    // distort the figures. CUBIC may be unavailable in namespaces, Reno never is.
    let set = |name| namespace.set_sysctl("net.ipv4.tcp_congestion_control", name);
    set("cubic").or_else(|_| set("reno"))?;
    Ok(namespace)
}
