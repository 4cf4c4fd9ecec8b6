//! The ways to the peer, best first: each is a path and an address.

use core::net::SocketAddr;
use plait_base::{Instant, PathId};
use std::collections::VecDeque;

use crate::connection::trust::may_open_over;
use crate::{Config, ConnectionError, Host, Path, PathClass};

/// Largest number of ways that are tried: an application may know any number of addresses of a host.
const MAX_WAYS: usize = 64;

/// One path to one address of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) path: PathId,
    pub(super) remote: SocketAddr,
}

/// Returns all ways, best first. Ways without a recent failure come first, then regular paths before backups, trusted paths before
/// untrusted ones, and the order of preference. If possible, the next way differs from the last at both ends.
pub(super) fn ways(
    now: Instant,
    config: &Config,
    remotes: &[SocketAddr],
    host: &dyn Host,
) -> VecDeque<Target> {
    let usable = |path: &&Path| path.up && may_open_over(&config.protect, path, host);
    let mut paths: Vec<&Path> = host.paths().iter().filter(usable).collect();
    // Stable: the order of preference stays.
    paths.sort_by_key(|path| (path.backup, path.class));
    let mut ways = Vec::new();
    for group in paths.chunk_by(|one, other| (one.backup, one.class) == (other.backup, other.class)) {
        for (row, path) in group.iter().enumerate() {
            for (column, &remote) in remotes.iter().enumerate() {
                if path.local_for(remote.ip()).is_some() {
                    let order = (path.backup, path.class, row.abs_diff(column), row);
                    ways.push((order, Target { path: path.id, remote }));
                }
            }
        }
    }
    ways.sort_by_key(|&(order, way)| (host.has_failed_lately(now, way.path, way.remote.ip()), order));
    ways.into_iter().map(|(_, way)| way).take(MAX_WAYS).collect()
}

/// Returns the reason for which there is no way.
pub(super) fn no_way(remotes: &[SocketAddr], host: &dyn Host) -> ConnectionError {
    let is_usable = |path: &Path| path.up && path.class != PathClass::Never;
    let reaches = |path: &Path| remotes.iter().any(|remote| path.local_for(remote.ip()).is_some());
    if host.paths().iter().any(|path| is_usable(path) && reaches(path)) {
        ConnectionError::NoTrustedPath
    } else {
        ConnectionError::Unreachable
    }
}
