//! Other systems: the commands that need sockets of UDP only, and what they lack there.
//!
//! This has been compiled for macOS and for Windows, and has never run.

pub(crate) mod arguments;
pub(crate) mod control;
pub(crate) mod firewall;
pub(crate) mod limits;
pub(crate) mod memory;
#[cfg(not(unix))]
mod not_unix;
pub(crate) mod prerequisite;
pub(crate) mod service;

use std::io::{self, Stdin, Stdout};

use plait::{Path, PathControl};

#[cfg(not(unix))]
pub(crate) use self::not_unix::{HANGUP, at_each_reopening, caught, ignores_hangup, is_root};
use crate::options::Options;
use crate::reload::Reload;
#[cfg(unix)]
pub(crate) use crate::unix::{HANGUP, at_each_reopening, caught, ignores_hangup, is_root};

/// No service manager passes sockets.
///
/// # Errors
/// None.
pub(crate) fn passed_listeners() -> io::Result<Vec<std::net::TcpListener>> {
    Ok(Vec::new())
}

/// The reason that a path cannot be used yet.
pub(crate) fn why_not(_device: &str) -> String {
    "this host does not have that address".to_owned()
}

/// No hook is run here, and no volume counted.
pub(crate) async fn upkeep(_reload: Reload, _paths: PathControl, _kind: &'static str) {
    std::future::pending().await
}

/// Volumes are not counted.
///
/// # Errors
/// The options ask for that.
pub(crate) fn within_caps(options: &Options, paths: Vec<Path>) -> anyhow::Result<Vec<Path>> {
    anyhow::ensure!(options.caps.is_empty(), "volumes are only counted on Linux\n  fix: leave --cap out");
    Ok(paths)
}

/// The clock is not looked at.
pub(crate) fn fault_of_clock() -> Option<(String, String)> {
    None
}

/// Nothing is tracked.
pub(crate) fn untracked(_port: u16) -> Option<(String, String)> {
    None
}

/// Nothing is forwarded.
pub(crate) fn clear_the_way(_options: &Options) -> anyhow::Result<Option<firewall::Opening>> {
    Ok(None)
}

/// Changes of the network are not noticed.
pub(crate) fn network() -> String {
    String::new()
}

/// Standard input and output.
pub(crate) fn standard_streams() -> io::Result<(Stdin, Stdout)> {
    Ok((io::stdin(), io::stdout()))
}
