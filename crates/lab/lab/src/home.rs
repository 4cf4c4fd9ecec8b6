//! A host with two devices, `eth0` and `wlan0`, behind one router or behind two that look alike.
//!
//! ```text
//!                          ┌─ eth0 ─┐                             ┌─ eth0 ──  br0 192.168.1.1  router
//!      client 192.168.1.2 ─┤        ├─ br0 192.168.1.1   client ──┤
//!             192.168.1.3 ─┴─ wlan0 ┘       router                └─ wlan0 ── br0 192.168.1.1  router
//! ```

use std::net::IpAddr;

use plait_netns::{Cidr, Link, Namespace, veth};

use crate::Result;

/// The devices of the client.
pub const DEVICES: [&str; 2] = ["eth0", "wlan0"];

/// The address of each router, as in many networks.
pub const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 1, 1));

/// The client and its routers. Dropping it removes all.
#[derive(Debug)]
pub struct Home {
    /// The host with two devices.
    pub client: Namespace,
    routers: Vec<Namespace>,
}

impl Home {
    /// Both devices behind one router, a bridge of its two wires.
    ///
    /// # Errors
    /// The user lacks the permission, or the kernel refuses.
    pub fn with_one_router() -> Result<Self> {
        Self::new(1)
    }

    /// A router for each device, both with the same address.
    ///
    /// # Errors
    /// The user lacks the permission, or the kernel refuses.
    pub fn with_two_routers() -> Result<Self> {
        Self::new(2)
    }

    fn new(routers: usize) -> Result<Self> {
        let client = Namespace::named("home")?;
        let routers = (0..routers).map(|_| router()).collect::<Result<Vec<_>>>()?;
        for (index, device) in DEVICES.into_iter().enumerate() {
            let router = routers.get(index).unwrap_or(&routers[0]);
            let (near, far) = veth((&client, device), (router, device))?;
            router.ip(&format!("link set {} master br0", far.name()))?;
            near.add_address(Cidr::new([192, 168, 1, index as u8 + 2].into(), 24))?;
            client.ip(&format!("route add default via {ROUTER} dev {device} metric {}", index + 1))?;
        }
        Ok(Self { client, routers })
    }

    /// The link-layer address of a router.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn link_address(&self, router: usize) -> Result<String> {
        let shown = self.routers[router].ip("-o link show dev br0")?;
        let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
        Ok(words.nth(1).unwrap_or_default().to_owned())
    }

    /// Takes the carrier of a device away, or gives it back: the wire is unplugged at the router.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn plug(&self, device: usize, is_plugged: bool) -> Result<()> {
        let router = self.routers.get(device).unwrap_or(&self.routers[0]);
        let state = if is_plugged { "up" } else { "down" };
        router.ip(&format!("link set {} {state}", DEVICES[device]))?;
        Ok(())
    }

    /// Gives a router this link-layer address, makes the client forget the earlier one, and changes a device, so that programs look at the
    /// network again.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn pretend(&self, router: usize, link_address: &str) -> Result<()> {
        self.routers[router].ip(&format!("link set br0 address {link_address}"))?;
        self.client.ip("neighbour flush all")?;
        for mtu in [1400, 1500] {
            self.client.ip(&format!("link set wlan0 mtu {mtu}"))?;
        }
        Ok(())
    }
}

fn router() -> Result<Namespace> {
    let router = Namespace::named("router")?;
    router.ip("link add br0 type bridge")?;
    let bridge = Link::existing(&router, "br0")?;
    bridge.add_address(Cidr::new(ROUTER, 24))?;
    bridge.up()?;
    Ok(router)
}
