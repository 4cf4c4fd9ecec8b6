//! Veth pairs and addresses.

use std::fmt;
use std::net::IpAddr;

use crate::{Error, Namespace, Result};

/// The kernel's `IFNAMSIZ` without the terminating zero.
const LONGEST_DEVICE_NAME: usize = 15;

/// An address with the length of its network's prefix, as in `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// The prefix length in bits.
    pub prefix: u8,
}

impl Cidr {
    /// An address and the length of its prefix in bits.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        Self { address, prefix }
    }

    /// The address alone: 32 or 128 bits.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix)
    }
}

/// One network device in one namespace. Dropping it leaves the device; see [`LinkGuard`].
#[derive(Clone, Debug)]
pub struct Link {
    namespace: Namespace,
    name: String,
}

/// Makes a veth pair with one end in each namespace, both up.
///
/// # Errors
/// A name does not fit, is taken, or the caller is not root in both namespaces.
pub fn veth(one: (&Namespace, &str), other: (&Namespace, &str)) -> Result<(Link, Link)> {
    let ends = (Link::existing(one.0, one.1)?, Link::existing(other.0, other.1)?);
    let path = other.0.path();
    let (near, far, path) = (one.1, other.1, path.display());
    one.0.ip(&format!("link add {near} type veth peer name {far} netns {path}"))?;
    ends.0.up()?;
    ends.1.up()?;
    Ok(ends)
}

impl Link {
    /// A device that is already there.
    ///
    /// # Errors
    /// The name cannot be a device's.
    pub fn existing(namespace: &Namespace, name: &str) -> Result<Self> {
        let reason = match name {
            "" => Some("it is empty"),
            long if long.len() > LONGEST_DEVICE_NAME => Some("a device's name has at most 15 bytes"),
            odd if odd.contains(|c: char| c == '/' || c.is_whitespace()) => Some("no slash, no white space"),
            _ => None,
        };
        match reason {
            Some(reason) => Err(Error::Name { name: name.to_owned(), reason }),
            None => Ok(Self { namespace: namespace.clone(), name: name.to_owned() }),
        }
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Adds an address; an IPv6 address is usable at once, without duplicate address detection.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn add_address(&self, address: Cidr) -> Result<()> {
        let flag = if address.address.is_ipv6() { " nodad" } else { "" };
        self.namespace.ip(&format!("address add {address} dev {}{flag}", self.name)).map(drop)
    }

    /// Removes an address.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove_address(&self, address: Cidr) -> Result<()> {
        self.namespace.ip(&format!("address del {address} dev {}", self.name)).map(drop)
    }

    /// Brings the device up.
    ///
    /// # Errors
    /// It is gone.
    pub fn up(&self) -> Result<()> {
        self.set("up")
    }

    /// Takes the device down. The kernel then forgets its routes, and its IPv6 addresses unless `keep_addr_on_down` is set.
    ///
    /// # Errors
    /// It is gone.
    pub fn down(&self) -> Result<()> {
        self.set("down")
    }

    /// Sets the largest packet, in bytes without the link header.
    ///
    /// # Errors
    /// The device does not take this size.
    pub fn set_mtu(&self, bytes: u32) -> Result<()> {
        self.set(&format!("mtu {bytes}"))
    }

    fn set(&self, words: &str) -> Result<()> {
        self.namespace.ip(&format!("link set dev {} {words}", self.name)).map(drop)
    }

    /// Removes the device, and with it the other end of a veth pair.
    ///
    /// # Errors
    /// It is gone already.
    pub fn remove(self) -> Result<()> {
        self.namespace.ip(&format!("link del dev {}", self.name)).map(drop)
    }

    /// Removes the device when the guard is dropped: for links in namespaces that outlive them.
    #[must_use]
    pub fn remove_on_drop(self) -> LinkGuard {
        LinkGuard(self)
    }
}

/// Removes its link when it is dropped.
#[derive(Debug)]
pub struct LinkGuard(Link);

impl LinkGuard {
    /// The link it guards.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.0
    }
}

impl Drop for LinkGuard {
    fn drop(&mut self) {
        if let Err(error) = self.0.clone().remove() {
            tracing::debug!(%error, "the link went before its guard");
        }
    }
}
