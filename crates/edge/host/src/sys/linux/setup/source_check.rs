//! The kernel's check of the sources of packets (`rp_filter`, RFC 3704), and the obstacles of paths.
//!
//! A strict check (1) drops a packet that arrives on another device than the one that the kernel's own route to its source leads over. The
//! answers over UDP to a path besides the default route are such packets. A loose check (2) drops packets from sources without a route. The
//! larger of the values for the device and for all devices counts. Segments over TCP pass: to the kernel they are packets for an address of
//! the stack, whose routes are those of the path ([`super::routes`]).

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use tracing::{debug, info};

use super::links::Link;
use super::routes::device_from;
use super::snapshot::{Family, Snapshot};
use super::sysctl::Journal;
use crate::error::Error;
use crate::path_obstacle::{PathObstacle, sysctl_name};
use crate::sys::LOOPBACK;

const STRICT: &str = "1";
const LOOSE: &str = "2";

/// The device's name for the setting of all devices.
const ALL: &str = "all";

/// An address of documentation (RFC 5737): packets to it take the default route.
const SOMEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The use of the devices by a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceCheck {
    /// Datagrams arrive on them, too: they need a loose check.
    Loosened,
    /// Only segments over TCP arrive.
    AsItIs,
}

/// The devices whose check a host has made loose, by the kernel's number: a device that comes again has a new number and the old setting.
#[derive(Default, Debug)]
pub(super) struct Loosened(BTreeSet<u32>);

fn setting(device: &str) -> String {
    format!("net/ipv4/conf/{device}/rp_filter")
}

/// The device, or [`ALL`], whose setting makes the check of this device strict.
fn strict_by(device: &str, value: impl Fn(&str) -> Option<String>) -> Option<&str> {
    let values = [device, ALL].map(|name| (name, value(&setting(name)).unwrap_or_default()));
    let is_loose = values.iter().any(|(_, value)| value == LOOSE);
    values.iter().find(|(_, value)| value == STRICT && !is_loose).map(|(name, _)| *name)
}

/// Makes the check of this device loose and returns true, if the value before can be noted in the journal, which restores it.
fn loosen(journal: &Journal, device: &str) -> bool {
    let name = setting(device);
    let before = journal.value(&name);
    match journal.open_behind(&[name], LOOSE, || Ok(())) {
        Ok(false) => false,
        Ok(true) => {
            info!(
                device,
                before,
                now = LOOSE,
                "the kernel's check of sources (rp_filter) is loose while plait runs: answers over UDP arrive"
            );
            true
        }
        Err(error) => {
            // The path over UDP warns of the setting.
            debug!(%error, device, "the check of sources stays strict");
            false
        }
    }
}

impl Loosened {
    /// Makes the check of these devices loose where it would drop answers from beyond the default route, once for each device: an
    /// administrator may set it again.
    pub(super) fn extend<'a>(
        &mut self,
        journal: &Journal,
        snapshot: &Snapshot,
        devices: impl Iterator<Item = &'a str>,
    ) {
        for (device, link) in devices.filter_map(|device| Some((device, snapshot.link(device)?))) {
            let Some(own) = link.v4().filter(|_| link.is_up() && snapshot.leads_out(device)) else {
                continue;
            };
            let is_new = !self.0.contains(&link.index);
            if is_new && strict_source_check(device, own, None).is_some() && loosen(journal, device) {
                self.0.insert(link.index);
            }
        }
    }
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
    let mut obstacles = Vec::new();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_stays_strict_if_the_value_before_cannot_be_noted() {
        let settings = std::env::temp_dir().join(format!("plait-source-check-{}", std::process::id()));
        let file = settings.join(setting("eth0"));
        fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        fs::write(&file, "1\n").expect("written");
        let journal = |directory: &str| Journal::at(Path::new(directory), 1, &settings);
        let is_loosened = loosen(&journal("/proc/no/such/directory"), "eth0");
        assert_eq!((is_loosened, fs::read_to_string(&file).expect("there").trim()), (false, "1"));
        let kept = journal(&settings.join("journal").to_string_lossy());
        assert!(loosen(&kept, "eth0"));
        assert_eq!(fs::read_to_string(&file).expect("there"), "2");
        assert!(kept.restore());
        assert_eq!(fs::read_to_string(&file).expect("there"), "1");
        assert!(!loosen(&kept, "gone"));
        fs::remove_dir_all(&settings).expect("removed");
    }

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
