//! Whether this host has a route to a server.

use std::io;
use std::net::{IpAddr, SocketAddr};

use plait::{Host, PathObstacle, PathState, path_obstacles};

/// Checks that a path of `host` that is up has a route to one of the addresses of a server, so that the program does not wait for answers to
/// packets that are never sent.
///
/// # Errors
/// No path has one ([`io::ErrorKind::NetworkUnreachable`]).
pub(crate) async fn require(host: &Host, place: &str, addresses: &[SocketAddr]) -> anyhow::Result<()> {
    let paths: Vec<_> = host.paths().into_iter().filter(PathState::is_up).collect();
    if paths.is_empty() || addresses.is_empty() {
        return Ok(());
    }
    let addresses: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
    let search = tokio::task::spawn_blocking(move || missing(&paths, &addresses));
    match search.await? {
        None => Ok(()),
        Some(why) => {
            let text = format!("cannot reach {place}: this host has no route to it{why}");
            Err(io::Error::new(io::ErrorKind::NetworkUnreachable, text).into())
        }
    }
}

/// The reason of each path, for people, if none of them leads to any of the addresses.
fn missing(paths: &[PathState], addresses: &[IpAddr]) -> Option<String> {
    let mut reasons: Vec<String> = Vec::new();
    for address in addresses {
        for path in paths {
            let device = path.device().to_owned();
            let has_family = if address.is_ipv4() { path.ipv4().is_some() } else { path.ipv6().is_some() };
            let reason = if has_family {
                // What cannot be found out is tried.
                let obstacles = path_obstacles(&[device], Some(*address)).unwrap_or_default();
                let is_route = |obstacle: &PathObstacle| matches!(obstacle, PathObstacle::NoWayOut { .. });
                obstacles.into_iter().find(is_route)?.to_string()
            } else {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                format!("{device} has no {family} address, and {address} needs one")
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    Some(reasons.iter().map(|reason| format!("\n  {}", reason.replace('\n', "\n  "))).collect())
}
