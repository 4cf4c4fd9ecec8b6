//! Obstacles to the packets of a path on this machine.

use std::fmt;
use std::net::IpAddr;

use crate::carriers::CarrierKind;

/// An obstacle to the packets of a path on this machine, from its routes and settings.
///
/// Its text is for people, and names the fix.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PathObstacle {
    /// The kernel drops answers that arrive on the device, because its route to the peer leads over another one. Over TCP the routes of
    /// plait are asked, and nothing is dropped.
    StrictSourceCheck {
        /// The device.
        device: String,
        /// The setting of the kernel that is 1, as `sysctl` names it.
        setting: String,
    },
    /// The device has an address, and no route over it.
    NoWayOut {
        /// The device.
        device: String,
        /// The destination; `None`: there is no default route over the device.
        towards: Option<IpAddr>,
    },
    /// The device is in a routing domain (VRF): the kernel looks for the way of its answers over TCP in the table of the domain, and the TUN
    /// device of plait is not in the domain. Over UDP the device is a path as others are.
    RoutingDomain {
        /// The device.
        device: String,
        /// The device of the domain.
        domain: String,
    },
}

impl PathObstacle {
    /// The device.
    #[must_use]
    pub fn device(&self) -> &str {
        match self {
            Self::StrictSourceCheck { device, .. }
            | Self::NoWayOut { device, .. }
            | Self::RoutingDomain { device, .. } => device,
        }
    }

    /// Whether it stops the packets of this carrier.
    #[must_use]
    pub fn concerns(&self, carrier: CarrierKind) -> bool {
        match self {
            Self::StrictSourceCheck { .. } => carrier == CarrierKind::Udp,
            Self::RoutingDomain { .. } => carrier == CarrierKind::Tcp,
            Self::NoWayOut { .. } => true,
        }
    }

    /// The explanation.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::StrictSourceCheck { device, setting } => format!(
                "{setting} is 1: the kernel drops answers over UDP that arrive on {device}, because its route leads over another device"
            ),
            Self::NoWayOut { device, towards: Some(address) } => {
                format!("{device} has an address, and no routing table has a route over it to {address}")
            }
            Self::NoWayOut { device, towards: None } => {
                format!("{device} has an address, and no routing table has a default route over it")
            }
            Self::RoutingDomain { device, domain } => {
                format!(
                    "{device} is in the routing domain (VRF) {domain}: answers over TCP stay in the domain, and do not reach plait"
                )
            }
        }
    }

    /// The fix.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            // The larger of the values for the device and for all counts.
            Self::StrictSourceCheck { device, .. } => {
                format!(
                    "sysctl -w {}=2 (as root, plait does that by itself if it uses TCP, too)",
                    sysctl_name(device)
                )
            }
            Self::NoWayOut { device, .. } => {
                format!("ip route add default via GATEWAY dev {device} metric 1000, or in a table of its own")
            }
            Self::RoutingDomain { device, .. } => {
                format!(
                    "--carrier udp, or auto, with which {device} is used over UDP (or ip link set {device} nomaster)"
                )
            }
        }
    }
}

impl fmt::Display for PathObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  fix: {}", self.why(), self.fix())
    }
}

/// The name of the check of sources of a device, or of `all`, for `sysctl`, which takes the dots in the name of a device for separators.
pub(crate) fn sysctl_name(device: &str) -> String {
    if device.contains('.') {
        format!("net/ipv4/conf/{device}/rp_filter")
    } else {
        format!("net.ipv4.conf.{device}.rp_filter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_is_for_the_device_and_in_a_form_that_sysctl_reads() {
        let strict = |device: &str| PathObstacle::StrictSourceCheck {
            device: device.to_owned(),
            setting: sysctl_name("all"),
        };
        assert!(strict("wan2").why().starts_with("net.ipv4.conf.all.rp_filter is 1"));
        assert!(strict("wan2").fix().starts_with("sysctl -w net.ipv4.conf.wan2.rp_filter=2 "));
        assert!(strict("eth0.7").fix().starts_with("sysctl -w net/ipv4/conf/eth0.7/rp_filter=2 "));
    }

    #[test]
    fn each_obstacle_is_one_for_its_carriers_only() {
        let device = "wan".to_owned();
        let strict = PathObstacle::StrictSourceCheck { device: device.clone(), setting: sysctl_name("wan") };
        let domain = PathObstacle::RoutingDomain { device: device.clone(), domain: "red".to_owned() };
        let no_way = PathObstacle::NoWayOut { device, towards: None };
        let both = [CarrierKind::Tcp, CarrierKind::Udp];
        assert_eq!(both.map(|carrier| strict.concerns(carrier)), [false, true]);
        assert_eq!(both.map(|carrier| domain.concerns(carrier)), [true, false]);
        assert_eq!(both.map(|carrier| no_way.concerns(carrier)), [true, true]);
        assert!(domain.to_string().contains("VRF) red") && domain.to_string().contains("fix: --carrier udp"));
    }
}
