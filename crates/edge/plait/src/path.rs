//! The paths of this host.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ::plait_host::{PathCarriers, PathClass, PathRule};

use crate::error::{Error, ErrorKind};
use crate::networks::SharedNetwork;
use crate::{Carrier, Carriers};

/// Network devices to use, and how. They need not exist yet: a device is used when it appears.
///
/// | text | devices |
/// |---|---|
/// | `wlan0` | the device with this name, or with this alternative name |
/// | `usb*`, `eth?` | all devices with such a name |
/// | `mac:02:00:00:00:00:01` | the device with this link-layer address, whatever its name |
/// | `192.0.2.7`, `2001:db8::7` | the device with this address |
/// | `default` | the devices of the default routes |
///
/// The most specific one counts for a device: its name before an address or an alternative name, these before a pattern, and a pattern before
/// `default`. If several devices have one link-layer address, as a device and its VLANs have, the oldest one with an IP address is selected. On
/// systems other than Linux, an address of this host names the device, and there are no patterns.
///
/// ```
/// use plait::{Path, TrustLevel};
///
/// let path = Path::new("wlan0")?.trust_level(TrustLevel::Untrusted).backup();
/// assert_eq!(path, "wlan0=untrusted,backup".parse()?);
/// # Ok::<(), plait::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Path(pub(crate) PathRule);

/// The trust level of a path. Sealed connections use all paths but [`TrustLevel::Never`]; scrambled and dispersed connections show less
/// data to untrusted paths.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum TrustLevel {
    /// It may carry anything.
    #[default]
    Trusted,
    /// It may carry what the protection in use allows.
    Untrusted,
    /// It carries nothing.
    Never,
}

impl Path {
    /// Returns a path over these devices, trusted and not a backup. The text is one of the table above.
    ///
    /// # Errors
    /// It is none of them.
    pub fn new(devices: &str) -> Result<Self, Error> {
        Ok(Self(PathRule::new(devices)?))
    }

    /// Returns the path over the devices of the default routes, as they come and go.
    #[must_use]
    pub fn default_routes() -> Self {
        Self(PathRule::default_routes())
    }

    /// Returns the paths of a host that is configured with none: the devices of the default routes. Without any such route now, the device
    /// that leads to `towards`. Over UDP, an address of this host is reached by its own device. A listener, with `None`, also uses the
    /// loopback device, and waits for a default route.
    ///
    /// # Errors
    /// Nothing leads to `towards` ([`ErrorKind::Unreachable`]), or the kernel cannot be asked.
    pub fn defaults(towards: Option<IpAddr>, carriers: Carriers) -> Result<Vec<Self>, Error> {
        let is_over_udp = carriers != Carriers::Tcp;
        let Some(address) = towards else {
            let loopback = is_over_udp.then(|| Self::new(::plait_host::LOOPBACK)).transpose()?;
            return Ok(std::iter::once(Self::default_routes()).chain(loopback).collect());
        };
        if is_over_udp && let Some(own) = ::plait_host::device_with(address)? {
            return Ok(vec![Self::new(&own)?]);
        }
        if !::plait_host::default_devices(None)?.is_empty() {
            return Ok(vec![Self::default_routes()]);
        }
        let devices = ::plait_host::default_devices(towards)?;
        if devices.is_empty() {
            let words = "this host has no default route to take a path from\n  fix: name the devices to use with --path";
            return Err(Error::new(ErrorKind::Unreachable, words));
        }
        devices.iter().map(|device| Self::new(device)).collect()
    }

    /// Returns the paths over the single devices that these paths select now, each with its name.
    ///
    /// # Errors
    /// Two of the paths are for the same devices, or the kernel cannot be asked.
    pub fn present(paths: &[Self]) -> Result<Vec<Self>, Error> {
        let rules = paths.iter().map(|path| path.0.clone()).collect();
        let present = ::plait_host::present(rules)?;
        Ok(present.into_iter().map(Self).collect())
    }

    /// Sets the trust level.
    #[must_use]
    pub fn trust_level(self, level: TrustLevel) -> Self {
        let class = match level {
            TrustLevel::Trusted => PathClass::Trusted,
            TrustLevel::Untrusted => PathClass::Untrusted,
            TrustLevel::Never => PathClass::Never,
        };
        Self(self.0.with_class(class))
    }

    /// Makes the path a backup, used only when no other path works.
    #[must_use]
    pub fn backup(self) -> Self {
        Self(self.0.as_backup())
    }

    /// Its devices, as in the table above.
    #[must_use]
    pub fn devices(&self) -> String {
        self.0.devices()
    }

    /// Whether it is used only when no other path works.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.0.is_backup()
    }
}

/// As in the text of a [`Path`].
impl fmt::Display for TrustLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
            Self::Never => "never",
        })
    }
}

/// `DEVICES`, or `DEVICES=` and some of `trusted`, `untrusted`, `never`, `backup` with commas between them.
impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self(text.parse()?))
    }
}

/// As it can be parsed again.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The current state of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathState {
    path: ::plait_host::Path,
    carrier: Carrier,
}

impl PathState {
    pub(crate) fn new(path: ::plait_host::Path, carriers: &PathCarriers) -> Self {
        let carrier = carriers.of(path.id);
        Self { path, carrier }
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.path.name
    }

    /// The carrier of its segments. A device with both carriers is two paths.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Whether the path can be used: the device exists, has a carrier and an address.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.path.up
    }

    /// The trust level.
    #[must_use]
    pub fn trust_level(&self) -> TrustLevel {
        match self.path.class {
            PathClass::Trusted => TrustLevel::Trusted,
            PathClass::Untrusted => TrustLevel::Untrusted,
            PathClass::Never => TrustLevel::Never,
        }
    }

    /// Whether it is used only when no other path works.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.path.backup
    }

    /// The IPv4 address on the network, if the path has one.
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.path.public_v4
    }

    /// The IPv6 address on the network, if the path has one.
    #[must_use]
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.path.public_v6
    }

    /// The longest packet of the device, in bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.path.mtu
    }
}

/// Reads the state of the paths of a [`Host`](crate::Host) and changes their use. It may outlive the host, and then has no effect.
#[derive(Clone, Debug)]
pub struct PathControl(pub(crate) ::plait_host::PathControl);

impl PathControl {
    /// The paths and their current state.
    #[must_use]
    pub fn paths(&self) -> Vec<PathState> {
        let carriers = self.0.carriers();
        self.0.paths().into_iter().map(|path| PathState::new(path, &carriers)).collect()
    }

    /// The networks that several devices of the paths share. The paths of such devices count as one.
    #[must_use]
    pub fn shared_networks(&self) -> Vec<SharedNetwork> {
        self.0.shared_networks().into_iter().map(SharedNetwork::of).collect()
    }

    /// Adds paths over these devices. Running connections join over them.
    ///
    /// Dropping the future after its first poll undoes nothing: the paths are added without a reply.
    ///
    /// # Errors
    /// The host has a path that was given by the same text, the state of the network cannot be read, or the host has ended.
    pub async fn add(&self, path: Path) -> Result<(), Error> {
        Ok(self.0.add(path.0).await?)
    }

    /// Changes the use of the paths that were given by the same text, or of one device among those of a pattern or of `default`. Running
    /// connections tell their peers (MP_PRIO, RFC 8684, section 3.3.8), and leave a path that must carry nothing.
    ///
    /// Dropping the future after its first poll undoes nothing: the change is made without a reply.
    ///
    /// # Errors
    /// The host has no such path, the state of the network cannot be read, or the host has ended.
    pub async fn set(&self, path: Path) -> Result<(), Error> {
        Ok(self.0.set(path.0).await?)
    }

    /// Removes the paths that were given by this text. Running connections leave them. A device that another path selects stays one.
    ///
    /// Dropping the future after its first poll undoes nothing: the paths are removed without a reply.
    ///
    /// # Errors
    /// No path was given by this text, the state of the network cannot be read, or the host has ended.
    pub async fn remove(&self, path: &Path) -> Result<(), Error> {
        Ok(self.0.remove(path.0.clone()).await?)
    }
}
