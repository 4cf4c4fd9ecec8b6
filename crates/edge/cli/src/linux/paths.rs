//! Obstacles of paths.

use anyhow::Context;
use plait::{Carriers, PathObstacle};
use plait_console::prerequisite::may_change_the_network;

use super::firewall::{self, Opening};
use crate::options::Options;
use crate::output::say;

/// The devices of this host that can be paths.
fn devices() -> Vec<String> {
    let Ok(all) = nix::net::if_::if_nameindex() else { return Vec::new() };
    let names = all.iter().map(|device| device.name().to_string_lossy().into_owned());
    names.filter(|name| name != "lo" && !name.starts_with("plait")).collect()
}

/// The reason that a path cannot be used yet, most often a wrong name.
pub(crate) fn why_not(device: &str) -> String {
    let devices = devices();
    if let Some(domain) = routing_domain(device) {
        domain
    } else if devices.iter().any(|there| there == device) {
        "it has no address, or is down\n  fix: ip address add, or ip link set up".to_owned()
    } else if devices.is_empty() {
        "there is no such device, nor any other but the loopback device".to_owned()
    } else {
        format!("there is no such device\n  fix: this host has {}", devices.join(", "))
    }
}

/// The routing domain of a device, which cannot be a path over TCP.
fn routing_domain(device: &str) -> Option<String> {
    let obstacles = plait::path_obstacles(&[device.to_owned()], None).unwrap_or_default();
    let is_domain = |obstacle: &PathObstacle| matches!(obstacle, PathObstacle::RoutingDomain { .. });
    obstacles.iter().find(|obstacle| is_domain(obstacle)).map(ToString::to_string)
}

/// Reports whether a firewall drops forwarded packets. If the options ask for it, the firewall is opened while the returned
/// value lives.
pub(crate) fn clear_the_way(options: &Options) -> anyhow::Result<Option<Opening>> {
    // With sockets of UDP nothing is forwarded.
    if !may_change_the_network() || options.carrier == Carriers::Udp {
        return Ok(None);
    }
    if options.open_firewall {
        return Opening::new().context("cannot open the firewall").map(Some);
    }
    if let Some(obstacle) = firewall::obstacle() {
        say(&format!(
            "warning: {}, so nothing comes through over TCP\n  fix: --open-firewall, or {}",
            obstacle.why, obstacle.fix
        ));
    }
    Ok(None)
}
