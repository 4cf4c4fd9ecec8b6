//! The link-layer addresses of neighbours (ARP, RFC 826; neighbour discovery, RFC 4861), as the kernel knows them.

use std::net::IpAddr;

use serde::Deserialize;
use tracing::debug;

use super::command::ip_json;

/// The neighbour table.
#[derive(Default, Debug)]
pub(super) struct Neighbours(Vec<Neighbour>);

/// A neighbour as `ip -json neighbour` shows it.
#[derive(Debug, Deserialize)]
struct Neighbour {
    dst: String,
    #[serde(default)]
    dev: String,
    #[serde(default)]
    lladdr: Option<String>,
}

impl Neighbours {
    /// Reads the table of the kernel; empty if it cannot be read.
    pub(super) fn read() -> Self {
        let read = ip_json("neighbour show").unwrap_or_else(|error| {
            debug!(%error, "the link-layer addresses of gateways are unknown");
            Vec::new()
        });
        Self(read)
    }

    /// The link-layer address of a neighbour on `device`.
    pub(super) fn link_address(&self, device: &str, address: IpAddr) -> Option<&str> {
        let is_it = |neighbour: &&Neighbour| {
            neighbour.dev == device && neighbour.dst.parse::<IpAddr>().is_ok_and(|known| known == address)
        };
        let known = self.0.iter().filter(is_it).find_map(|neighbour| neighbour.lladdr.as_deref());
        // Devices without link-layer addresses show zeros.
        known.filter(|known| known.chars().any(|digit| !matches!(digit, '0' | ':')))
    }

    #[cfg(test)]
    pub(super) fn of(json: &str) -> Self {
        Self(serde_json::from_str(json).expect("as ip prints it"))
    }
}
