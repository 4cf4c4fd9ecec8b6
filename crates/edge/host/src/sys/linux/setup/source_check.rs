//! The kernel's check of the sources of packets (`rp_filter`, RFC 3704), and the obstacles of paths.
//!
//! A strict check (1) drops a packet that arrives on another device than the one that the kernel's own route to its source leads over. The
//! answers over UDP to a path besides the default route are such packets. A loose check (2) drops packets from sources without a route. The
//! larger of the values for the device and for all devices counts. Segments over TCP pass: to the kernel they are packets for an address of
//! the stack, whose routes are those of the path (`tcp/path_tables.rs`).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::links::Link;
use super::routes::device_from;
use super::snapshot::{Family, Snapshot};
use crate::error::Error;
use crate::path_obstacle::{PathObstacle, sysctl_name};
use crate::sys::LOOPBACK;

const STRICT: &str = "1";
pub(super) const LOOSE: &str = "2";

/// The device's name for the setting of all devices.
const ALL: &str = "all";

/// An address of documentation (RFC 5737): packets to it take the default route.
const SOMEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The name of the setting of a device.
pub(super) fn setting(device: &str) -> String {
    format!("net/ipv4/conf/{device}/rp_filter")
}

/// The device, or [`ALL`], whose setting makes the check of this device strict.
fn strict_by(device: &str, value: impl Fn(&str) -> Option<String>) -> Option<&str> {
    let values = [device, ALL].map(|name| (name, value(&setting(name)).unwrap_or_default()));
    let is_loose = values.iter().any(|(_, value)| value == LOOSE);
    values.iter().find(|(_, value)| value == STRICT && !is_loose).map(|(name, _)| *name)
}

/// The setting that drops answers to datagrams from `own`, the address of `device`, to `towards` or beyond the default route.
pub(crate) fn strict_source_check(device: &str, own: Ipv4Addr, towards: Option<Ipv4Addr>) -> Option<String> {
    let value = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    // What a host sends to itself is not checked.
    let by = strict_by(device, value).filter(|_| device != LOOPBACK)?;
    // Without a route the check fails, too.
    let back = device_from(own, towards.unwrap_or(SOMEWHERE)).unwrap_or_default();
    (back.as_deref() != Some(device)).then(|| sysctl_name(by))
}

/// Returns the obstacles on this machine of packets over these devices to `towards`, or beyond the default routes. A device that does not
/// exist, is down or has no address has none. Takes some milliseconds.
///
/// # Errors
/// The kernel does not answer questions about its devices and routes.
pub fn path_obstacles(devices: &[String], towards: Option<IpAddr>) -> Result<Vec<PathObstacle>, Error> {
    let snapshot = Snapshot::take()?;
    let links = devices.iter().filter_map(|device| snapshot.link(device));
    let links = links.filter(|link| link.is_up() && !link.is_loopback());
    Ok(links.flat_map(|link| obstacles_of(&snapshot, link, towards)).collect())
}

fn obstacles_of(snapshot: &Snapshot, link: &Link, towards: Option<IpAddr>) -> Vec<PathObstacle> {
    let device = &link.name;
    let is_asked = |family: Family| towards.is_none_or(|address| Family::of(address) == family);
    let v4 = link.v4().filter(|_| is_asked(Family::V4));
    let v6 = link.v6().filter(|_| is_asked(Family::V6));
    let anywhere = [v4.map(|_| Ipv4Addr::UNSPECIFIED.into()), v6.map(|_| Ipv6Addr::UNSPECIFIED.into())];
    let mut destinations = anywhere.into_iter().flatten().map(|any| towards.unwrap_or(any)).peekable();
    let has_address = destinations.peek().is_some();
    let has_way = destinations.any(|address| snapshot.reaches(device, address));
    let mut obstacles: Vec<_> = domain(snapshot, device).into_iter().collect();
    if has_address && !has_way {
        obstacles.push(PathObstacle::NoWayOut { device: device.clone(), towards });
        return obstacles;
    }
    let towards = towards.and_then(|address| match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    });
    if let Some(setting) = v4.and_then(|own| strict_source_check(device, own, towards)) {
        obstacles.push(PathObstacle::StrictSourceCheck { device: device.clone(), setting });
    }
    obstacles
}

/// The routing domain of a device, as an obstacle of its segments over TCP.
pub(super) fn domain(snapshot: &Snapshot, device: &str) -> Option<PathObstacle> {
    let domain = snapshot.domain_of(device)?.to_owned();
    Some(PathObstacle::RoutingDomain { device: device.to_owned(), domain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_value_of_the_device_and_of_all_counts() {
        let strict = |own: &str, all: &str| {
            let value = |name: &str| Some(if name == setting(ALL) { all } else { own }.to_owned());
            strict_by("eth0", value).map(str::to_owned)
        };
        assert_eq!(strict("0", "0"), None);
        assert_eq!(strict("1", "0").as_deref(), Some("eth0"));
        assert_eq!(strict("0", "1").as_deref(), Some("all"));
        assert_eq!((strict("2", "1"), strict("1", "2")), (None, None));
        assert_eq!(strict_by("gone", |_| None), None);
    }
}
