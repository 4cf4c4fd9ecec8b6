//! The paths of this host.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ::plait_host::{PathCarriers, PathClass, PathSpec};

use crate::error::{Error, ErrorKind};
use crate::networks::SharedNetwork;
use crate::{Carrier, Carriers};

/// A network device to use, and how.
///
/// ```
/// use plait::{Path, TrustLevel};
///
/// let path = Path::new("wlan0")?.trust_level(TrustLevel::Untrusted).backup();
/// assert_eq!(path, "wlan0=untrusted,backup".parse()?);
/// # Ok::<(), plait::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path(pub(crate) PathSpec);

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
    /// Returns a path over the device of this name, trusted and not a backup. The device may appear later, and come and go. On systems
    /// other than Linux, an address of this host names the device.
    ///
    /// # Errors
    /// No device can have that name.
    pub fn new(device: &str) -> Result<Self, Error> {
        Ok(Self(PathSpec::new(device)?))
    }

    /// Returns the paths of a host that is configured with none: the devices of the default routes, or, without any, the device that
    /// leads to `towards`. Over UDP, an address of this host is reached by its own device. A listener, with `None`, also uses the
    /// loopback device.
    ///
    /// # Errors
    /// There is none ([`ErrorKind::Unreachable`]), or the kernel cannot be asked.
    pub fn defaults(towards: Option<IpAddr>, carriers: Carriers) -> Result<Vec<Self>, Error> {
        let is_over_udp = carriers != Carriers::Tcp;
        if let Some(address) = towards.filter(|_| is_over_udp)
            && let Some(own) = ::plait_host::device_with(address)?
        {
            return Ok(vec![Self::new(&own)?]);
        }
        let mut devices = ::plait_host::default_devices(towards)?;
        if towards.is_none() && is_over_udp {
            devices.push(::plait_host::LOOPBACK.to_owned());
        }
        if devices.is_empty() {
            let words = "this host has no default route to take a path from\n  fix: name the devices to use with --path";
            return Err(Error::new(ErrorKind::Unreachable, words));
        }
        devices.iter().map(|device| Self::new(device)).collect()
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

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &str {
        self.0.device()
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

/// `DEV`, or `DEV=` and some of `trusted`, `untrusted`, `never`, `backup` with commas between them.
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

    /// Changes the use of the path of this device. Running connections tell their peers (MP_PRIO, RFC 8684, section 3.3.8), and leave a
    /// path that must carry nothing.
    ///
    /// Dropping the future after its first poll undoes nothing: the change is made without a reply.
    ///
    /// # Errors
    /// The host has no path of this device, or has ended.
    pub async fn set(&self, path: Path) -> Result<(), Error> {
        Ok(self.0.set(path.0).await?)
    }
}
