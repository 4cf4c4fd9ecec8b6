//! Linux: all commands, and the kernel interfaces behind the commands of every system.

mod access;
mod accounts;
mod announcement;
pub(crate) mod arguments;
mod asking;
pub(crate) mod control;
mod directory;
mod doctor;
mod door;
pub(crate) mod firewall;
mod gateway;
mod guests;
mod health;
pub(crate) mod hooks;
pub(crate) mod limits;
mod listen;
mod machine;
mod manual;
pub(crate) mod memory;
mod metered;
mod metrics;
mod monitor;
mod network;
mod paths;
mod place;
mod plaits;
mod port;
pub(crate) mod prerequisite;
pub(crate) mod renewal;
mod repeated;
mod run;
pub(crate) mod sandbox;
mod serve;
pub(crate) mod service;
mod state_file;
mod streams;
mod tracking;
mod up;
pub(crate) mod upgrade;
pub(crate) mod usage;
mod waiting;
mod waiting_clients;
mod wireshark;

use plait::PathControl;

pub(crate) use plait_proxy::passed::take_listeners as passed_listeners;

pub(crate) use self::network::network;
pub(crate) use self::paths::{clear_the_way, why_not};
pub(crate) use self::streams::open as standard_streams;
pub(crate) use self::usage::within_caps;
use crate::reload::Reload;
pub(crate) use crate::unix::{HANGUP, Hangups, at_each_reopening, caught, ignores_hangup, is_root};

/// The fault of the clock of this machine and its fix, if it has one.
pub(crate) fn fault_of_clock() -> Option<(String, String)> {
    machine::clock().err().map(|(why, fix)| (why, fix.into_owned()))
}

/// A rule that exempts connections to `port` over TCP from connection tracking, and its fix, as far as this user may see.
pub(crate) fn untracked(port: u16) -> Option<(String, String)> {
    plait_console::prerequisite::may_change_the_network().then(|| tracking::obstacle(port)).flatten()
}

/// Runs hooks and counts volumes. Never returns.
pub(crate) async fn upkeep(reload: Reload, paths: PathControl, kind: &'static str) {
    tokio::join!(hooks::keep(reload.clone(), paths.clone(), kind), usage::keep(reload, paths));
}
